#include "fabricbench/cores.hpp"

#include <map>
#include <set>

namespace fabricbench {
namespace {

// Which rank has a processor. A rank takes a free one, or one whose rank can move to another (Kuhn's algorithm for
// matchings).
class Seats {
 public:
  explicit Seats(const std::vector<std::vector<int>>& allowed) : allowed_(allowed) {}

  bool seat(std::size_t rank) {
    std::set<int> asked;
    return seat(rank, asked);
  }

 private:
  bool seat(std::size_t rank, std::set<int>& asked) {
    for (const int cpu : allowed_[rank]) {
      if (rank_of_.emplace(cpu, rank).second) return true;
    }
    for (const int cpu : allowed_[rank]) {
      if (!asked.insert(cpu).second || !seat(rank_of_.at(cpu), asked)) continue;
      rank_of_[cpu] = rank;
      return true;
    }
    return false;
  }

  const std::vector<std::vector<int>>& allowed_;
  std::map<int, std::size_t> rank_of_;
};

}  // namespace

bool have_a_core_each(const std::vector<std::vector<int>>& allowed) {
  Seats seats(allowed);
  for (std::size_t rank = 0; rank < allowed.size(); ++rank) {
    if (!seats.seat(rank)) return false;
  }
  return true;
}

}  // namespace fabricbench
