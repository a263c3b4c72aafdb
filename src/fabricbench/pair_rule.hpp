// Which pairs are measured in which round: a rule that every rank, and whoever reads the results, evaluates round by
// round. The package has the same rule (fabricheck/records/pair_rule.py), and a test compares the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fabricbench {

// All pairs of `ranks` ranks that have the same place in their groups of `group` consecutive ranks, which fill them: of
// groups of one, all pairs. `in_rounds`: by the circle method, so that a round holds each rank once at most, and each
// unordered pair of groups meets once; else each pair by itself, in ascending order. With two `directions` a pair is
// measured from either rank; the round with the pairs turned around follows at once. Of the turns of the circle there
// may be fewer, evenly spread over them: a screen, in which each group meets so many others.
struct PairRule {
  int ranks = 2;
  int group = 1;
  int directions = 2;
  bool in_rounds = false;
  int turns = 0;  // of the circle; 0: all

  // The same with `most` turns, if it has more; 0: with all.
  PairRule with_turns(int most) const;
  std::size_t rounds() const;
  // Those of a round below rounds(), source first.
  std::vector<std::pair<int, int>> pairs(std::size_t round) const;
  std::size_t pair_count() const;
  // Of all (round, source, destination), without regard to their order.
  std::uint64_t hash() const;

 private:
  int groups() const { return ranks / group; }
  int all_turns() const { return groups() - 1 + groups() % 2; }
  int own_turns() const { return turns > 0 ? turns : all_turns(); }
};

// 16 hexadecimal digits.
std::string hash_text(const PairRule& rule);

}  // namespace fabricbench
