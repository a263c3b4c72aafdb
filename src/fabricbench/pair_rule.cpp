#include "fabricbench/pair_rule.hpp"

#include <algorithm>
#include <cstdio>

namespace fabricbench {
namespace {

std::size_t as_size(int number) { return static_cast<std::size_t>(number); }

// Who is at a place of the circle of `size` members after `turn` turns: the first one stays, the others move on.
int at_place(int place, int turn, int size) {
  if (place == 0) return 0;
  return (place - 1 - turn % (size - 1) + size - 1) % (size - 1) + 1;
}

// The pairs of a turn among `count` groups, the lower one first, in ascending order.
std::vector<std::pair<int, int>> met(int count, int turn) {
  const int size = count + count % 2;  // who meets the one too many rests
  std::vector<std::pair<int, int>> pairs;
  for (int place = 0; place < size / 2; ++place) {
    const int a = at_place(place, turn, size);
    const int b = at_place(size - 1 - place, turn, size);
    if (std::max(a, b) < count) pairs.emplace_back(std::min(a, b), std::max(a, b));
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

// The mixing function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 15).
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

}  // namespace

PairRule PairRule::with_turns(int most) const {
  PairRule rule = *this;
  rule.turns = in_rounds && most < all_turns() ? most : 0;
  return rule;
}

std::size_t PairRule::pair_count() const {
  if (in_rounds) return as_size(own_turns()) * as_size(groups() / 2) * as_size(group) * as_size(directions);
  return as_size(ranks) * (as_size(groups()) - 1) / 2 * as_size(directions);
}

std::size_t PairRule::rounds() const {
  if (!in_rounds) return pair_count();
  return as_size(own_turns()) * as_size(directions);
}

std::vector<std::pair<int, int>> PairRule::pairs(std::size_t round) const {
  if (in_rounds) {
    std::vector<std::pair<int, int>> result;
    const std::size_t own = round / as_size(directions);
    const int turn = static_cast<int>(own * as_size(all_turns()) / as_size(own_turns()));
    const bool turned = round % as_size(directions) == 1;
    for (const auto& [low, high] : met(groups(), turn)) {
      for (int place = 0; place < group; ++place) {
        const std::pair pair{low * group + place, high * group + place};
        result.emplace_back(turned ? std::pair{pair.second, pair.first} : pair);
      }
    }
    return result;
  }
  // A rank meets that of each other group, or of each group above its own.
  std::size_t left = round;
  for (int own = 0;; ++own) {
    const std::size_t partners = as_size(directions == 2 ? groups() - 1 : groups() - 1 - own);
    if (left < partners * as_size(group)) {
      const int place = static_cast<int>(left / partners);
      int other = static_cast<int>(left % partners) + (directions == 2 ? 0 : own + 1);
      if (directions == 2 && other >= own) ++other;
      return {{own * group + place, other * group + place}};
    }
    left -= partners * as_size(group);
  }
}

std::uint64_t PairRule::hash() const {
  // The same pairs are in rounds, of which there are fewer.
  const PairRule all{ranks, group, directions, true, turns};
  std::uint64_t sum = 0;
  for (std::size_t round = 0, count = all.rounds(); round < count; ++round) {
    const std::uint64_t number = in_rounds ? round + 1 : 0;
    for (const auto& [source, destination] : all.pairs(round))
      sum += mixed(number << 42 | static_cast<std::uint64_t>(source) << 21 | static_cast<std::uint64_t>(destination));
  }
  return sum;
}

std::string hash_text(const PairRule& rule) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(rule.hash()));
  return digits;
}

}  // namespace fabricbench
