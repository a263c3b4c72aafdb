#include "fabricbench/plan.hpp"

#include <algorithm>
#include <map>
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
  return has(a, b) || (is_symmetric(operation) && has(b, a));
}

void check_rails(const Options& options, int ranks) {
  if (options.group_size == kNoCommonSize) {
    throw InputError(
        "the nodes have different numbers of ranks, or ranks that do not follow one another, so --pairs rails "
        "cannot use a node as a group: give --group-size");
  }
  if (options.group_size < 1 || 2 * options.group_size > ranks || ranks % options.group_size != 0) {
    throw InputError("--pairs rails is for ranks of several nodes, or of groups of --group-size, and this run has " +
                     std::to_string(ranks) + " ranks on one node or in incomplete groups");
  }
}

void add_pairs(std::vector<Series>& plan, const Options& options, int ranks, Series series) {
  const bool contended = series.schedule == Schedule::contended;
  const PairRule all{ranks, options.rails ? options.group_size : 1, is_symmetric(series.operation) ? 1 : 2, contended};
  const PairRule rule = all.with_turns(options.turns);
  // A pair by itself is no contended one.
  if (contended && rule.pairs(0).size() < 2) return;
  series.round = contended ? 0 : -1;
  if (options.pairs.empty()) {
    series.rule = rule;
    plan.push_back(series);
    return;
  }
  for (std::size_t round = 0, count = rule.rounds(); round < count; ++round) {
    series.groups.clear();
    for (const auto& [a, b] : rule.pairs(round)) {
      if (selected(options, series.operation, a, b)) series.groups.push_back({a, b});
    }
    if (series.groups.empty()) continue;
    plan.push_back(series);
    if (contended) ++series.round;
  }
}

// The rounds that the user has written down, each pair in the direction in which it stands there.
void add_rounds(std::vector<Series>& plan, const std::vector<Round>& rounds, Series series) {
  series.schedule = Schedule::contended;
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    series.round = static_cast<int>(round);
    series.groups.clear();
    for (const auto& [a, b] : rounds[round]) series.groups.push_back({a, b});
    plan.push_back(series);
  }
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Every number of active ranks between two groups, then all of them between more and more groups.
std::vector<Shape> default_shapes(int ranks, int size) {
  std::vector<Shape> shapes;
  for (int active = 1; active <= size; ++active) shapes.push_back({2, size, active});
  const int most = ranks / size;
  for (int groups = 4; groups < most; groups *= 2) shapes.push_back({groups, size, size});
  if (most > 2) shapes.push_back({most, size, size});
  return shapes;
}

std::vector<Shape> shapes_for(Operation operation, const Options& options, int ranks) {
  const int size = options.group_size > 0 ? options.group_size : ranks / 2;
  std::vector<Shape> shapes = options.shapes;
  if (shapes.empty()) {
    if (options.group_size == kNoCommonSize) {
      throw InputError("the nodes have different numbers of ranks, or ranks that do not follow one another, so " +
                       to_string(operation) + " cannot use a node as a group: give --groups or --group-size");
    }
    if (2 * size > ranks) {
      throw InputError(to_string(operation) + " needs two groups, and this run of " + std::to_string(ranks) +
                       " ranks has one group of " + std::to_string(size) +
                       ": start more ranks, or give --group-size for groups inside a node");
    }
    shapes = default_shapes(ranks, size);
  }
  for (const Shape& shape : shapes) {
    if (shape.ranks() > ranks) {
      throw InputError("--groups has " + std::to_string(shape.groups) + " groups of " + std::to_string(shape.size) +
                       " ranks and this run has " + std::to_string(ranks) + " ranks: start more or give others");
    }
  }
  const auto fits = [&](const Shape& shape) {
    return can_have(operation, shape) && (!is_training(operation) || shape.ranks() == ranks);
  };
  shapes.erase(std::remove_if(shapes.begin(), shapes.end(), [&](const Shape& shape) { return !fits(shape); }),
               shapes.end());
  if (shapes.empty() && is_training(operation)) {
    throw InputError(to_string(operation) + " is of all ranks, in full groups of two at least, and this run has " +
                     std::to_string(ranks) + " in groups of " + std::to_string(size) +
                     ": give --group-size or --groups NxGxG");
  }
  if (shapes.empty()) {
    throw InputError(to_string(operation) + " is between two groups" +
                     (is_striping(operation) ? ", with two active ranks at least," : "") +
                     " and there are none: give --groups 2xGxK");
  }
  // A message is striped over all that there is, and all train.
  if ((is_striping(operation) || is_training(operation)) && options.shapes.empty()) return {shapes.back()};
  return shapes;
}

void check_sizes(const Series& series, std::uint64_t least, std::size_t ranks) {
  if (!series.sizes.empty()) return;
  throw InputError("no size is large enough for " + to_string(series.operation) + " over " + std::to_string(ranks) +
                   " ranks: it needs at least " + std::to_string(least) + " B");
}

std::vector<std::vector<int>> split_ranks(const Options& options, int ranks) {
  if (options.split.empty()) return {first_ranks(ranks)};
  const int size = options.group_size > 0 ? options.group_size : ranks;
  if (options.group_size == kNoCommonSize && options.split.find('x') == std::string::npos) {
    throw InputError("the nodes have different numbers of ranks, or ranks that do not follow one another, so --split " +
                     options.split + " has no equal groups: give --group-size, or NxS");
  }
  const Split split = parse_split(options.split, ranks, std::min(size, ranks));
  const auto groups = split.count < 2 ? std::vector<std::vector<int>>{} : groups_of(split, ranks);
  if (groups.empty()) {
    throw InputError("--split " + options.split + " is groups of " + std::to_string(split.count) + " ranks, " +
                     std::to_string(split.stride) + " apart, and this run has " + std::to_string(ranks) +
                     " ranks: choose full groups of two at least");
  }
  return groups;
}

// All ranks; or the groups of --split, each by itself and all of them at once.
void add_collectives(std::vector<Series>& plan, const Options& options, int ranks, Series series) {
  const auto groups = split_ranks(options, ranks);
  const std::size_t size = groups[0].size();
  series.sizes = rounded_sizes(options.sizes, granularity(series.operation, size));
  check_sizes(series, granularity(series.operation, size), size);
  for (const Schedule schedule : groups.size() > 1 ? options.schedules : std::vector{Schedule::uncontended}) {
    series.schedule = schedule;
    if (schedule == Schedule::contended) {
      series.round = 0;
      series.groups = groups;
      plan.push_back(series);
      continue;
    }
    series.round = -1;
    for (const std::vector<int>& group : groups) {
      series.groups = {group};
      plan.push_back(series);
    }
  }
}

void add_shapes(std::vector<Series>& plan, const Options& options, int ranks, Series series) {
  for (const Shape& shape : shapes_for(series.operation, options, ranks)) {
    series.shape = shape;
    series.groups = {first_ranks(shape.ranks())};
    const std::uint64_t granule = granularity(series.operation, series.groups[0].size(), shape);
    series.sizes = rounded_sizes(options.sizes, granule);
    check_sizes(series, granule, series.groups[0].size());
    plan.push_back(series);
  }
}

void add_matrix(std::vector<Series>& plan, const Options& options, int ranks, Series series) {
  if (options.matrices.empty()) throw InputError(to_string(series.operation) + " needs a --matrix");
  series.groups = {first_ranks(ranks)};
  const int group = options.group_size > 0 ? options.group_size : std::max(1, ranks / 2);
  if (options.group_size == kNoCommonSize) {
    throw InputError("the nodes have different numbers of ranks, or ranks that do not follow one another, so " +
                     to_string(series.operation) + " cannot tell them apart: give --group-size");
  }
  std::vector<std::map<std::pair<int, int>, double>> whole;
  double total = 0;
  for (const CommunicationMatrix& matrix : options.matrices) {
    whole.push_back(folded(matrix, ranks));
    for (const auto& [ends, value] : whole.back()) total += value;
  }
  // Without --sizes the entries are bytes.
  std::vector<double> scales;
  for (const std::uint64_t size : options.sizes) scales.push_back(static_cast<double>(size) / total);
  if (!options.sizes_given) scales = {1.0};
  bool any = false;
  for (const double scale : scales) {
    std::vector<Messages> steps;
    std::uint64_t bytes = 0;
    for (const auto& values : whole) {
      Messages messages;
      for (const auto& [ends, value] : values) {
        const bool inside = ends.first / group == ends.second / group;
        if (series.operation == (inside ? Operation::sparse_inter : Operation::sparse_intra)) continue;
        const auto message = static_cast<std::uint64_t>(value * scale);
        if (message > 0) messages[ends] = message;
        bytes += message;
      }
      if (!messages.empty()) steps.push_back(std::move(messages));
    }
    if (bytes == 0 || (any && plan.back().sizes[0] == bytes)) continue;
    series.sizes = {bytes};
    series.steps = sparse_steps(steps);
    plan.push_back(series);
    any = true;
  }
  if (!any) {
    throw InputError(to_string(series.operation) + " sends nothing among " + std::to_string(ranks) +
                     " ranks in groups of " + std::to_string(group) +
                     ": give a larger size, another --group-size or another --matrix");
  }
}

// The ranks that are farthest apart, or every other one.
std::vector<int> default_victims(bool pair, int ranks) {
  if (pair) return {0, ranks - 1};
  std::vector<int> victims;
  for (int rank = 0; rank < ranks; rank += 2) victims.push_back(rank);
  return victims;
}

void add_victims(std::vector<Series>& plan, const Options& options, int ranks, Series series) {
  const bool pair = is_round_trip(series.operation);
  const std::vector<int> victims = !options.victims.empty() ? options.victims : default_victims(pair, ranks);
  std::vector<int> aggressors;
  for (const int rank : first_ranks(ranks)) {
    if (std::find(victims.begin(), victims.end(), rank) == victims.end()) aggressors.push_back(rank);
  }
  if (const int last = *std::max_element(victims.begin(), victims.end()); last >= ranks) {
    throw InputError("there is no rank " + std::to_string(last) + " in a run of " + std::to_string(ranks) +
                     ": fix --victims or start more ranks");
  }
  if (pair && victims.size() != 2)
    throw InputError(to_string(series.operation) + " has two victims: give --victims such as 0,3");
  if (aggressors.size() < 2) {
    throw InputError(to_string(series.operation) + " needs two ranks besides its victims and this run has " +
                     std::to_string(aggressors.size()) + ": start more ranks or name fewer --victims");
  }
  series.groups = {victims};
  series.sizes = rounded_sizes(options.sizes, granularity(series.operation, victims.size()));
  check_sizes(series, granularity(series.operation, victims.size()), victims.size());
  series.aggressors = aggressors;
  series.aggressor_bytes = options.aggressor_size;
  plan.push_back(series);
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
                       ": fix --together or start more ranks");
    }
    series.groups = {set};
    series.sizes = rounded_sizes(options.sizes, granularity(series.operation, set.size()));
    check_sizes(series, granularity(series.operation, set.size()), set.size());
    plan.push_back(series);
  }
}

}  // namespace

std::vector<Schedule> Series::schedules() const {
  if (!aggressors.empty()) return {Schedule::uncontended, Schedule::contended};
  return {schedule};
}

std::size_t Series::record_count() const {
  return (rule ? rule->pair_count() : groups.size()) * schedules().size() * sizes.size();
}

Measurement Series::at(std::uint64_t bytes, std::optional<int> rank, std::size_t in_round) const {
  const bool numbered = rule && rule->in_rounds;
  const int number = numbered ? round + static_cast<int>(in_round) : round;
  Measurement measurement{operation, implementation, schedule, number, bytes, {}, shape, {}, 0};
  const auto add = [&](std::vector<int> ranks) {
    Group& group = measurement.groups.emplace_back(Group{std::move(ranks), {}});
    if (rank && std::find(group.ranks.begin(), group.ranks.end(), *rank) == group.ranks.end()) return;
    group.steps = !steps.empty() ? steps : transfers(operation, group.ranks, bytes, shape, rank);
    if (in_place) group.steps = fabricbench::in_place(std::move(group.steps), operation);
    if (is_pair_operation(operation)) group.steps = placed(std::move(group.steps), group.ranks, ends);
  };
  if (rule) {
    for (const auto& [a, b] : rule->pairs(in_round)) add({a, b});
  } else {
    for (const std::vector<int>& ranks : groups) add(ranks);
  }
  if (is_training(operation) && rank && *rank < shape.ranks()) measurement.parts = training_parts(shape, *rank, bytes);
  if (!aggressors.empty()) {
    measurement.aggressor = Group{aggressors, aggressor_transfers(operation, aggressors, aggressor_bytes, rank)};
    measurement.aggressor_bytes = aggressor_bytes;
  }
  return measurement;
}

Transfer Series::first_transfer() const {
  const int rank = rule ? rule->pairs(0).front().first : groups.front().front();
  return !steps.empty() ? steps[0][0] : at(sizes.front(), rank).groups.front().steps[0][0];
}

std::vector<Series> make_plan(const Options& options, int ranks, const Chooser& choose) {
  for (const auto& [a, b] : options.pairs) {
    if (std::max(a, b) >= ranks) {
      throw InputError("there is no rank " + std::to_string(std::max(a, b)) + " in a run of " + std::to_string(ranks) +
                       ": fix --pairs or start more ranks");
    }
  }
  if (options.rails) check_rails(options, ranks);
  const std::vector<int> all = first_ranks(ranks);
  std::vector<Series> plan;
  for (const Operation operation : options.operations) {
    if (!is_pair_operation(operation) && !(options.ends == Ends{})) {
      throw InputError(to_string(operation) + " defines its own buffers: --buffers is for operations of pairs");
    }
    if (ranks < 2 && !is_memory_path(operation))
      throw InputError(to_string(operation) + " needs at least 2 ranks and this run has " + std::to_string(ranks));
    Series series{operation,
                  choose(operation, options.implementation),
                  Schedule::uncontended,
                  -1,
                  {},
                  {},
                  {},
                  {},
                  {},
                  {},
                  0,
                  options.ends,
                  options.in_place};
    if (is_memory_path(operation)) {
      for (const Schedule schedule : options.schedules) {
        series.schedule = schedule;
        add_rank_sets(plan, options, all, series);
      }
      continue;
    }
    if (has_shape(operation)) {
      add_shapes(plan, options, ranks, series);
      continue;
    }
    if (is_sparse(operation)) {
      add_matrix(plan, options, ranks, series);
      continue;
    }
    if (is_victim(operation)) {
      add_victims(plan, options, ranks, series);
      continue;
    }
    if (is_collective(operation)) {
      add_collectives(plan, options, ranks, series);
      continue;
    }
    series.sizes = rounded_sizes(options.sizes, 1);
    if (!options.rounds.empty()) {
      add_rounds(plan, options.rounds, series);
      continue;
    }
    for (const Schedule schedule : options.schedules) {
      series.schedule = schedule;
      add_pairs(plan, options, ranks, series);
    }
  }
  if (plan.empty()) {
    throw InputError(
        "no measurement is left: a contended schedule needs two pairs at the same time, of 4 ranks at "
        "least, and 2 ranks for paths between memories");
  }
  if (options.ccl.buffers == CclBuffers::registered) {
    // NCCL before 2.29.2 hangs in a ring after sends and receives of the same registered buffers: a record that those
    // made has no addresses of peers on the GPU, and gets none (ipcRegisterBuffer in its p2p.cc; its issue 1859).
    std::stable_partition(plan.begin(), plan.end(),
                          [](const Series& series) { return series.implementation == Implementation::library; });
  }
  return plan;
}

std::vector<int> members_of(const std::vector<Series>& plan, int rank) {
  for (const Series& series : plan) {
    if (!is_collective(series.operation)) continue;
    for (const std::vector<int>& group : series.groups) {
      if (std::find(group.begin(), group.end(), rank) != group.end()) return group;
    }
  }
  return {};
}

std::size_t record_count(const std::vector<Series>& plan) {
  std::size_t count = 0;
  for (const Series& series : plan) count += series.record_count();
  return count;
}

std::size_t pair_records(const std::vector<Series>& plan) {
  std::size_t count = 0;
  for (const Series& series : plan) count += is_pair_operation(series.operation) ? series.record_count() : 0;
  return count;
}

std::uint64_t operations_of(const Options& options, Operation operation, std::uint64_t bytes) {
  const auto calls = static_cast<std::uint64_t>(std::max<std::int64_t>({options.ccl.graph_calls, options.train, 1}));
  return calls == 1 && operation == Operation::pingpong && bytes < kWarmBelow ? kWarmRoundTrips : calls;
}

pattern::Ring ring_for(std::uint64_t operations, std::uint64_t extent, const RingMemory& memory) {
  if (operations == 1) return {};
  // Aligned as kernels copy, and as pages lie.
  constexpr std::uint64_t kLine = 64;
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t granule = extent < kPage ? kLine : kPage;
  const std::uint64_t pitch = (extent + granule - 1) / granule * granule;
  // All but two slots hold an operation each.
  const auto fewest = static_cast<std::uint64_t>(kFewestIterations);
  const std::uint64_t wanted = 2 + (operations + fewest - 1) / fewest;
  const std::uint64_t slots = std::max(memory.for_all / pitch, std::min(wanted, memory.most / pitch));
  return {operations, std::min(std::max<std::uint64_t>(slots, 3), operations), pitch, 0};
}

pattern::Ring ring_for(const Options& options, Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                       const Shape& shape, bool has_device) {
  // Victims and aggressors have operations one by one, and attacks that are not measured.
  if (is_victim(operation)) return {operations_of(options, operation, bytes), 1, 0, 0};
  const bool on_host = (is_memory_path(operation) && operation != Operation::local_copy) || !(options.ends == Ends{});
  return ring_for(operations_of(options, operation, bytes), buffer_extent(operation, ranks, bytes, shape),
                  has_device && !on_host ? kRingOnDevice : kRingOnHost);
}

HostBufferBytes host_buffer_bytes(const std::vector<Series>& plan, const Options& options, bool has_device) {
  HostBufferBytes needed;
  for (const Series& series : plan) {
    if (!is_pair_operation(series.operation) && !is_memory_path(series.operation)) continue;
    // All groups need as much.
    const int rank = series.first_transfer().source;
    for (const std::uint64_t size : series.sizes) {
      for (const Group& group : series.at(size, rank).groups) {
        const pattern::Ring ring = ring_for(options, series.operation, group.ranks, size, series.shape, has_device);
        const std::uint64_t others = (ring.slots - 1) * ring.pitch;
        for (const Step& step : group.steps) {
          for (const Transfer& transfer : step) {
            if (transfer.source_place == Place::host)
              needed.send = std::max(needed.send, transfer.source_offset + transfer.bytes + others);
            if (transfer.destination_place == Place::host)
              needed.receive = std::max(needed.receive, transfer.destination_offset + transfer.bytes + others);
          }
        }
      }
    }
  }
  return needed;
}

std::uint64_t ring_bytes(const std::vector<Series>& plan, const Options& options, bool has_device) {
  std::uint64_t largest = buffer_bytes(plan);
  for (const Series& series : plan) {
    const std::vector<int> ranks = series.rule ? std::vector<int>{0, 1} : series.groups.front();
    for (const std::uint64_t size : series.sizes) {
      if (operations_of(options, series.operation, size) == 1) continue;
      const pattern::Ring ring = ring_for(options, series.operation, ranks, size, series.shape, has_device);
      largest = std::max(largest, ring.slots * ring.pitch);
    }
  }
  return largest;
}

std::uint64_t buffer_bytes(const std::vector<Series>& plan) {
  std::uint64_t largest = 0;
  for (const Series& series : plan) {
    const std::uint64_t bytes = series.sizes.back();
    const std::vector<int> ranks = series.rule ? std::vector<int>{0, 1} : series.groups.front();
    largest = std::max(largest, !series.steps.empty() ? buffer_extent(series.steps)
                                                      : buffer_extent(series.operation, ranks, bytes, series.shape));
    if (!series.aggressors.empty()) {
      const std::size_t count = series.aggressors.size();
      largest = std::max(largest, aggressor_extent(series.operation, count, series.aggressor_bytes));
    }
  }
  return largest;
}

}  // namespace fabricbench
