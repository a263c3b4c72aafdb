#include "fabricbench/inputs.hpp"

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "fabricbench/errors.hpp"
#include "fabricbench/options.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

// A matrix of all pairs of 4,096 ranks has 16 million lines of a dozen letters.
constexpr std::size_t kMostInput = std::size_t{256} << 20;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

[[noreturn]] void fail(const std::string& path, std::size_t line, const std::string& what) {
  throw InputError(path + ":" + std::to_string(line) + ": " + what);
}

Round parse_round(const std::vector<std::string>& words, int ranks) {
  Round round;
  std::set<int> busy;
  for (const std::string& word : words) {
    const auto pair = parse_pair(word);
    for (const int rank : {pair.first, pair.second}) {
      if (rank >= ranks) {
        throw InputError("there is no rank " + std::to_string(rank) + " in a run of " + std::to_string(ranks) +
                         ": fix the file or start more ranks");
      }
      if (!busy.insert(rank).second) {
        throw InputError("rank " + std::to_string(rank) + " is in the round twice: a rank has one partner at a time");
      }
    }
    round.push_back(pair);
  }
  return round;
}

std::string lowered(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

// What the first line of a Matrix Market file says of its entries.
struct MatrixKind {
  bool has_values;
  bool symmetric;
};

MatrixKind parse_matrix_kind(const std::string& line) {
  const auto words = words_of(lowered(line));
  if (words.size() != 5 || words[0] != "%%matrixmarket" || words[1] != "matrix")
    throw InputError("does not begin with '%%MatrixMarket matrix coordinate FIELD SYMMETRY'");
  if (words[2] != "coordinate") throw InputError("the format is " + words[2] + " and has to be coordinate");
  if (words[3] != "real" && words[3] != "integer" && words[3] != "pattern")
    throw InputError("the entries are " + words[3] + " and have to be real, integer or pattern");
  if (words[4] != "general" && words[4] != "symmetric")
    throw InputError("the matrix is " + words[4] + " and has to be general or symmetric");
  return {words[3] != "pattern", words[4] == "symmetric"};
}

// A whole number in [1, `most`].
int parse_index(const std::string& word, int most, const char* what) {
  const int number = parse_count(word, 1, what);
  if (number > most) throw InputError("'" + word + "' is not " + what + ": the matrix has " + std::to_string(most));
  return number;
}

double parse_value(const std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (*end != '\0' || !std::isfinite(value) || value < 0)
    throw InputError("'" + word + "' is not a number of bytes: give 0 or more");
  return value;
}

// Reads the lines after the first.
class MatrixReader {
 public:
  explicit MatrixReader(MatrixKind kind) : kind_(kind) {}

  void read(const std::string& line) {
    const auto words = words_of(line);
    if (words.empty() || words[0][0] == '%') return;
    if (matrix_.size == 0) return read_sizes(words);
    if (read_ == wanted_)
      throw InputError("has more than the " + std::to_string(wanted_) + " entries of its size line");
    if (words.size() != (kind_.has_values ? 3 : 2))
      throw InputError(kind_.has_values ? "an entry has to be a row, a column and a value"
                                        : "an entry has to be a row and a column");
    const int row = parse_index(words[0], matrix_.size, "a row") - 1;
    const int column = parse_index(words[1], matrix_.size, "a column") - 1;
    const double value = kind_.has_values ? parse_value(words[2]) : 1.0;
    matrix_.entries.push_back({row, column, value});
    if (kind_.symmetric && row != column) matrix_.entries.push_back({column, row, value});
    ++read_;
  }

  CommunicationMatrix matrix() const {
    if (matrix_.size == 0) throw InputError("has no size line with the numbers of rows, columns and entries");
    if (read_ != wanted_) {
      throw InputError("ends after " + std::to_string(read_) + " of " + std::to_string(wanted_) + " entries");
    }
    return matrix_;
  }

 private:
  void read_sizes(const std::vector<std::string>& words) {
    if (words.size() != 3) throw InputError("the size line has to be the numbers of rows, columns and entries");
    const int rows = parse_count(words[0], 1, "a number of rows");
    const int columns = parse_count(words[1], 1, "a number of columns");
    if (rows != columns) {
      throw InputError("the matrix has " + words[0] + " rows and " + words[1] + " columns and has to be square");
    }
    wanted_ = parse_integer(words[2], 1, "a number of entries");
    matrix_.size = rows;
  }

  MatrixKind kind_;
  CommunicationMatrix matrix_;
  std::int64_t wanted_ = 0;
  std::int64_t read_ = 0;
};

}  // namespace

std::string read_input(const std::string& path, const std::string& option) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  std::string text;
  char block[1 << 16];
  while (file != nullptr) {
    const std::size_t count = std::fread(block, 1, sizeof block, file.get());
    text.append(block, count);
    if (text.size() > kMostInput) throw InputError(option + " " + path + " is larger than 256 MiB: give another file");
    if (count < sizeof block) break;
  }
  if (file == nullptr || std::ferror(file.get()) != 0) {
    throw InputError(option + " " + path + " cannot be read: " + std::strerror(errno));
  }
  return text;
}

std::vector<Round> parse_rounds(const std::string& text, const std::string& path, int ranks) {
  std::vector<Round> rounds;
  std::istringstream stream(text);
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const auto words = words_of(line);
    if (words.empty() || words[0][0] == '#') continue;
    try {
      rounds.push_back(parse_round(words, ranks));
    } catch (const InputError& error) {
      fail(path, number, error.what());
    }
  }
  if (rounds.empty()) throw InputError(path + ": has no round: write one in each line, such as '0-1 2-3'");
  return rounds;
}

CommunicationMatrix parse_matrix(const std::string& text, const std::string& path) {
  std::istringstream stream(text);
  std::size_t number = 1;
  std::string line;
  try {
    std::getline(stream, line);
    MatrixReader reader(parse_matrix_kind(line));
    while (std::getline(stream, line)) {
      ++number;
      reader.read(line);
    }
    return reader.matrix();
  } catch (const InputError& error) {
    fail(path, number, error.what());
  }
}

std::map<std::pair<int, int>, double> folded(const CommunicationMatrix& matrix, int ranks) {
  if (matrix.size < ranks) {
    throw InputError("--matrix is for " + std::to_string(matrix.size) + " ranks and this run has " +
                     std::to_string(ranks) + ": start fewer or give another");
  }
  const auto rank_of = [&](int row) { return static_cast<int>(static_cast<std::int64_t>(row) * ranks / matrix.size); };
  std::map<std::pair<int, int>, double> result;
  for (const MatrixEntry& entry : matrix.entries) {
    const std::pair<int, int> ends{rank_of(entry.source), rank_of(entry.destination)};
    if (ends.first != ends.second && entry.value > 0) result[ends] += entry.value;
  }
  return result;
}

}  // namespace fabricbench
