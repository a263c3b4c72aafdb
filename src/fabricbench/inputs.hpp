// Files that the user hands in. What is wrong in one is an InputError that names the line.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fabricbench {

// Pairs of ranks that are measured at the same time.
using Round = std::vector<std::pair<int, int>>;

// The content of a file; `option` is the one that it was given with.
std::string read_input(const std::string& path, const std::string& option);

// Rounds of pairs for a run of `ranks` ranks: a round a line, its pairs `a-b` with spaces in between, no rank twice in
// a round. Empty lines and lines that begin with # are no rounds. `path` is what errors call the text.
std::vector<Round> parse_rounds(const std::string& text, const std::string& path, int ranks);

// Who sends how much to whom: of `size` ranks, `value` from the one to the other, counted from 0.
struct MatrixEntry {
  int source;
  int destination;
  double value;
};
struct CommunicationMatrix {
  int size = 0;
  std::vector<MatrixEntry> entries;
};

// A square matrix in Matrix Market's coordinate format: real, integer or pattern (all entries 1), general or symmetric;
// no entry below 0.
CommunicationMatrix parse_matrix(const std::string& text, const std::string& path);

// The same among `ranks` ranks, each of which stands for a block of consecutive rows; what stays on a rank is left out.
std::map<std::pair<int, int>, double> folded(const CommunicationMatrix& matrix, int ranks);

}  // namespace fabricbench
