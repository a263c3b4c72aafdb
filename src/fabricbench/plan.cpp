#include "fabricbench/plan.hpp"

#include <algorithm>
#include <numeric>

#include "fabricbench/errors.hpp"

namespace fabricbench {
namespace {

std::vector<std::uint64_t> rounded_sizes(const std::vector<std::uint64_t>& sizes, std::uint64_t granule) {
  std::vector<std::uint64_t> result;
  for (const std::uint64_t size : sizes) {
    const std::uint64_t rounded = size / granule * granule;
    if (rounded > 0 && (result.empty() || result.back() != rounded)) result.push_back(rounded);
  }
  return result;
}

bool selected(const Options& options, Operation operation, int a, int b) {
  const auto& wanted = options.pairs;
  const auto has = [&](int x, int y) {
    return std::find(wanted.begin(), wanted.end(), std::pair{x, y}) != wanted.end();
  };
  return wanted.empty() || has(a, b) || (is_symmetric(operation) && has(b, a));
}

void add_pairs(std::vector<Series>& plan, const Options& options, const std::vector<int>& ranks, Series series) {
  const auto add = [&](const std::vector<std::pair<int, int>>& round, bool reversed) {
    series.groups.clear();
    for (const auto& [low, high] : round) {
      const int a = reversed ? high : low;
      const int b = reversed ? low : high;
      if (selected(options, series.operation, a, b)) series.groups.push_back({a, b});
    }
    if (!series.groups.empty()) {
      plan.push_back(series);
      ++series.round;
    }
  };
  const int directions = is_symmetric(series.operation) ? 1 : 2;
  if (series.schedule == Schedule::contended) {
    if (ranks.size() < 4) return;
    series.round = 0;
    for (const auto& round : pair_rounds(ranks)) {
      for (int direction = 0; direction < directions; ++direction) add(round, direction == 1);
    }
    return;
  }
  for (const int a : ranks) {
    for (const int b : ranks) {
      if (a == b || (directions == 1 && a > b)) continue;
      series.round = -1;
      add({{std::min(a, b), std::max(a, b)}}, a > b);
    }
  }
}

}  // namespace

Measurement Series::at(std::uint64_t bytes) const {
  Measurement measurement{operation, implementation, schedule, round, bytes, {}};
  for (const std::vector<int>& ranks : groups)
    measurement.groups.push_back({ranks, transfers(operation, ranks, bytes)});
  return measurement;
}

std::vector<Series> make_plan(const Options& options, int ranks, const Chooser& choose) {
  for (const auto& [a, b] : options.pairs) {
    if (std::max(a, b) >= ranks) {
      throw InputError("there is no rank " + std::to_string(std::max(a, b)) + " in a run of " + std::to_string(ranks) +
                       ": mend --pairs or start more ranks");
    }
  }
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Series> plan;
  for (const Operation operation : options.operations) {
    if (ranks < 2)
      throw InputError(to_string(operation) + " needs at least 2 ranks and this run has " + std::to_string(ranks));
    Series series{operation, choose(operation, options.implementation), Schedule::uncontended, -1, {}, {}};
    series.sizes = rounded_sizes(options.sizes, granularity(operation, all.size()));
    if (series.sizes.empty()) {
      throw InputError("no size is large enough for " + to_string(operation) + " over " + std::to_string(ranks) +
                       " ranks: it needs at least " + std::to_string(granularity(operation, all.size())) + " B");
    }
    if (is_pair_operation(operation)) {
      for (const Schedule schedule : options.schedules) {
        series.schedule = schedule;
        add_pairs(plan, options, all, series);
      }
    } else {
      series.groups = {all};
      plan.push_back(series);
    }
  }
  if (plan.empty()) {
    throw InputError("nothing is left to measure: a contended schedule needs at least 4 ranks");
  }
  return plan;
}

std::size_t record_count(const std::vector<Series>& plan) {
  std::size_t count = 0;
  for (const Series& series : plan) count += series.groups.size() * series.sizes.size();
  return count;
}

std::uint64_t largest_size(const std::vector<Series>& plan) {
  std::uint64_t largest = 0;
  for (const Series& series : plan) largest = std::max(largest, series.sizes.back());
  return largest;
}

}  // namespace fabricbench
