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

// Each rank by itself, then sets of ranks at the same time.
void add_rank_sets(std::vector<Series>& plan, const Options& options, const std::vector<int>& ranks, Series series) {
  std::vector<std::vector<int>> sets;
  if (series.schedule == Schedule::uncontended) {
    for (const int rank : ranks) sets.push_back({rank});
  } else if (!options.together.empty()) {
    sets = options.together;
  } else {
    for (std::size_t count = 2; count <= ranks.size(); ++count)
      sets.emplace_back(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count));
  }
  for (const std::vector<int>& set : sets) {
    if (const int last = *std::max_element(set.begin(), set.end()); last >= static_cast<int>(ranks.size())) {
      throw InputError("there is no rank " + std::to_string(last) + " in a run of " + std::to_string(ranks.size()) +
                       ": mend --together or start more ranks");
    }
    series.groups = {set};
    series.sizes = rounded_sizes(options.sizes, granularity(series.operation, set.size()));
    if (series.sizes.empty()) {
      throw InputError("no size is large enough for " + to_string(series.operation) + " over " +
                       std::to_string(set.size()) + " ranks: it needs at least " + std::to_string(set.size()) + " B");
    }
    plan.push_back(series);
  }
}

}  // namespace

Measurement Series::at(std::uint64_t bytes) const {
  Measurement measurement{operation, implementation, schedule, round, bytes, {}};
  for (const std::vector<int>& ranks : groups)
    measurement.groups.push_back({ranks, transfers(operation, ranks, bytes)});
  if (is_pair_operation(operation)) {
    for (Group& group : measurement.groups) group.steps = placed(std::move(group.steps), group.ranks, ends);
  }
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
    if (is_memory_path(operation)) {
      Series series{operation, choose(operation, options.implementation), Schedule::uncontended, -1, {}, {}, {}};
      for (const Schedule schedule : options.schedules) {
        series.schedule = schedule;
        add_rank_sets(plan, options, all, series);
      }
      continue;
    }
    if (!is_pair_operation(operation) && !(options.ends == Ends{})) {
      throw InputError(to_string(operation) + " has its buffers on the device: --buffers is for operations of pairs");
    }
    if (ranks < 2)
      throw InputError(to_string(operation) + " needs at least 2 ranks and this run has " + std::to_string(ranks));
    Series series{operation,   choose(operation, options.implementation), Schedule::uncontended, -1, {}, {},
                  options.ends};
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
    throw InputError(
        "nothing is left to measure: a contended schedule needs at least 4 ranks, and 2 for paths between memories");
  }
  return plan;
}

std::size_t record_count(const std::vector<Series>& plan) {
  std::size_t count = 0;
  for (const Series& series : plan) count += series.groups.size() * series.sizes.size();
  return count;
}

HostBufferBytes host_buffer_bytes(const std::vector<Series>& plan) {
  HostBufferBytes needed;
  for (const Series& series : plan) {
    for (const Group& group : series.at(series.sizes.back()).groups) {
      for (const Step& step : group.steps) {
        for (const Transfer& each : step) {
          if (each.source_place == Place::host) needed.send = std::max(needed.send, each.source_offset + each.bytes);
          if (each.destination_place == Place::host)
            needed.receive = std::max(needed.receive, each.destination_offset + each.bytes);
        }
      }
    }
  }
  return needed;
}

std::uint64_t largest_size(const std::vector<Series>& plan) {
  std::uint64_t largest = 0;
  for (const Series& series : plan) largest = std::max(largest, series.sizes.back());
  return largest;
}

}  // namespace fabricbench
