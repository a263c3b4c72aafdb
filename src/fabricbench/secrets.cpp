#include "fabricbench/secrets.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

namespace fabricbench {
namespace {

// In the order of std::string_view, as CMake sorts them.
constexpr std::string_view kRecorded[] = {
#include "variables.inc"
};
constexpr std::string_view kKeyWords[] = {"password", "passwd",    "passphrase", "pwd",           "token", "secret",
                                          "apikey",   "accesskey", "privatekey", "bearer",        "psk",   "credential",
                                          "cookie",   "authkey",   "authtoken",  "authorization", "auth"};
constexpr std::size_t kShortestRandom = 16;
constexpr std::size_t kFewestDistinct = 10;

bool is_alphanumeric(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
int kind_of(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0   ? 0
         : std::isupper(static_cast<unsigned char>(c)) != 0 ? 1
                                                            : 2;
}

// In lower case and without the signs that some write inside names: api-key, API_KEY.
std::string folded(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != '-' && c != '_') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

bool ends_with_key_word(std::string_view name) {
  std::string text = folded(name);
  if (!text.empty() && text.back() == 's') text.pop_back();
  return std::any_of(std::begin(kKeyWords), std::end(kKeyWords), [&](std::string_view word) {
    return text.size() >= word.size() && text.compare(text.size() - word.size(), word.size(), word) == 0;
  });
}

bool has_user_information(std::string_view value) {
  for (std::size_t start = value.find("://"); start != std::string_view::npos; start = value.find("://", start + 3)) {
    const std::size_t end = value.find_first_of("/?#\"' \t,;", start + 3);
    if (value.substr(start + 3, end == std::string_view::npos ? end : end - start - 3).find('@') !=
        std::string_view::npos) {
      return true;
    }
  }
  return false;
}

// "token=x", "Authorization: Bearer x", "--password x" within one text.
bool has_key_word(std::string_view value) {
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] != '=' && value[i] != ':' && value[i] != ' ') continue;
    std::size_t end = i;
    while (end > 0 && (value[end - 1] == '"' || value[end - 1] == '\'')) --end;
    std::size_t start = end;
    while (start > 0 && (is_alphanumeric(value[start - 1]) || value[start - 1] == '_' || value[start - 1] == '-')) {
      --start;
    }
    const std::size_t rest = value.find_first_not_of("=: \"'", i);
    if (rest != std::string_view::npos && start < end && ends_with_key_word(value.substr(start, end - start))) {
      return true;
    }
  }
  return false;
}

// Letters and digits of one piece that change between digits, capitals and small letters as random ones do.
bool is_random(std::string_view piece) {
  if (piece.size() < kShortestRandom) return false;
  std::size_t changes = 0;
  for (std::size_t i = 1; i < piece.size(); ++i) {
    if (kind_of(piece[i]) != kind_of(piece[i - 1])) ++changes;
  }
  return 10 * changes >= 3 * (piece.size() - 1) && std::set<char>(piece.begin(), piece.end()).size() >= kFewestDistinct;
}

// Not in a path, whose folders may have a hash in their names.
bool has_random_piece(std::string_view value) {
  std::size_t start = 0;
  bool path = false;
  for (std::size_t i = 0; i <= value.size(); ++i) {
    if (i < value.size() && is_alphanumeric(value[i])) continue;
    if (!path && is_random(value.substr(start, i - start))) return true;
    if (i < value.size()) {
      const bool begins = start == i && (i == 0 || value.find_first_of(":,;= \t", i - 1) == i - 1);
      path = value[i] == '/' ? path || begins : path && std::string_view(":,;= \t").find(value[i]) == std::string::npos;
    }
    start = i + 1;
  }
  return false;
}

}  // namespace

bool is_recorded(std::string_view name) { return std::binary_search(std::begin(kRecorded), std::end(kRecorded), name); }

bool is_secret(std::string_view value) {
  return has_user_information(value) || has_key_word(value) || has_random_piece(value);
}

std::string redacted(std::string value) { return is_secret(value) ? "<redacted>" : value; }

std::vector<std::string> redacted(std::vector<std::string> words) {
  bool after_key_word = false;
  for (std::string& word : words) {
    const bool names_one = word.rfind('-', 0) == 0 && ends_with_key_word(word);
    if (after_key_word || is_secret(word)) word = "<redacted>";
    after_key_word = names_one;
  }
  return words;
}

}  // namespace fabricbench
