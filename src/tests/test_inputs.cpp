#include "check.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/inputs.hpp"

using namespace fabricbench;

namespace {

std::string mistake(const std::string& text, int ranks = 4) {
  return check::message_of<InputError>([&] { parse_rounds(text, "my.rounds", ranks); });
}

bool says(const std::string& message, const std::string& part) { return message.find(part) != std::string::npos; }

}  // namespace

TEST(rounds_are_read_line_by_line_as_they_stand) {
  const auto rounds = parse_rounds("# two rounds\n0-1 3-2\n\n  2-0\t\n", "my.rounds", 4);
  CHECK_EQUAL(rounds, (std::vector<Round>{{{0, 1}, {3, 2}}, {{2, 0}}}));
}

TEST(mistakes_in_rounds_name_the_line) {
  CHECK(says(mistake("0-1\n1-2 2-3\n"), "my.rounds:2: rank 2 is in the round twice"));
  CHECK(says(mistake("0-1 2-4\n"), "my.rounds:1: there is no rank 4 in a run of 4"));
  CHECK(says(mistake("0-0\n"), "my.rounds:1: the pair '0-0'"));
  CHECK(says(mistake("# none\n\n"), "has no round"));
  CHECK(says(mistake(""), "has no round"));
  for (const char* garbage :
       {"0-1,2-3", "0", "a-b", "0-1-2", "-1-2", "0-1 \x01", "0-99999999999999999999", "0-4294967297"}) {
    CHECK(says(mistake(garbage), "my.rounds:1: "));
  }
}

namespace {

constexpr char kHead[] = "%%MatrixMarket matrix coordinate integer general\n";

std::string matrix_mistake(const std::string& text) {
  return check::message_of<InputError>([&] { parse_matrix(text, "my.mtx"); });
}

}  // namespace

TEST(a_matrix_is_read) {
  const auto matrix = parse_matrix(std::string(kHead) + "% made by hand\n3 3 2\n1 2 10\n\n3 1 2.5e1\n", "my.mtx");
  CHECK_EQUAL(matrix.size, 3);
  CHECK_EQUAL(folded(matrix, 3), (std::map<std::pair<int, int>, double>{{{0, 1}, 10}, {{2, 0}, 25}}));
  const auto symmetric =
      parse_matrix("%%MatrixMarket MATRIX coordinate pattern symmetric\r\n2 2 2\r\n2 1\r\n1 1\r\n", "my.mtx");
  CHECK_EQUAL(folded(symmetric, 2), (std::map<std::pair<int, int>, double>{{{0, 1}, 1}, {{1, 0}, 1}}));
}

TEST(a_matrix_is_folded_into_blocks_of_rows) {
  const auto matrix = parse_matrix(std::string(kHead) + "4 4 4\n1 2 1\n1 3 2\n2 4 4\n4 1 8\n", "my.mtx");
  CHECK_EQUAL(folded(matrix, 2), (std::map<std::pair<int, int>, double>{{{0, 1}, 6}, {{1, 0}, 8}}));
  CHECK(says(check::message_of<InputError>([&] { folded(matrix, 5); }), "--matrix is for 4 ranks and this run has 5"));
}

TEST(mistakes_in_a_matrix_name_the_line) {
  CHECK(says(matrix_mistake(""), "my.mtx:1: does not begin with"));
  CHECK(says(matrix_mistake("1 1 1\n"), "my.mtx:1: does not begin with"));
  CHECK(says(matrix_mistake("%%MatrixMarket matrix array real general\n"), "has to be coordinate"));
  CHECK(says(matrix_mistake("%%MatrixMarket matrix coordinate complex general\n"), "have to be real"));
  CHECK(says(matrix_mistake("%%MatrixMarket matrix coordinate real hermitian\n"), "general or symmetric"));
  const auto after_head = [](const std::string& text) { return matrix_mistake(kHead + text); };
  CHECK(says(after_head(""), "has no size line"));
  CHECK(says(after_head("2 3 1\n1 1 1\n"), "my.mtx:2: the matrix has 2 rows and 3 columns"));
  CHECK(says(after_head("2 2\n"), "my.mtx:2: the size line"));
  CHECK(says(after_head("2 2 2\n1 2 1\n"), "ends after 1 of 2 entries"));
  CHECK(says(after_head("2 2 1\n1 2 1\n2 1 1\n"), "my.mtx:4: has more than the 1 entries"));
  for (const char* entry : {"3 1 1", "0 1 1", "1 1", "1 2 -1", "1 2 nan", "1 2 x", "1 2 1 1", "1.5 1 1"})
    CHECK(says(after_head(std::string("2 2 1\n") + entry + "\n"), "my.mtx:3: "));
}

TEST(an_input_that_cannot_be_read_is_named_with_its_option) {
  const auto message = [](const char* path) {
    return check::message_of<InputError>([&] { read_input(path, "--rounds"); });
  };
  CHECK(says(message("/nowhere/rounds"), "--rounds /nowhere/rounds cannot be read"));
  CHECK(says(message("/"), "--rounds / cannot be read"));
}
