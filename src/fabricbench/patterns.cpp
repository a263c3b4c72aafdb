#include "fabricbench/patterns.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

enum class Kind { pair, collective, rail, asymmetric, symmetric, striping, sparse, victim, memory };
enum class Direction { none, unidirectional, bidirectional, omnidirectional };

struct Description {
  Operation operation;
  const char* name;
  Kind kind;
  bool reduction;
  bool divided;  // the buffer is divided among the ranks
  Direction direction;
};

constexpr Direction kNone = Direction::none;
constexpr Direction kUni = Direction::unidirectional;
constexpr Direction kBi = Direction::bidirectional;
constexpr Direction kOmni = Direction::omnidirectional;

constexpr Description kDescriptions[] = {
    {Operation::pingpong, "pingpong", Kind::pair, false, false, kNone},
    {Operation::unidirectional, "unidirectional", Kind::pair, false, false, kNone},
    {Operation::bidirectional, "bidirectional", Kind::pair, false, false, kNone},
    {Operation::alltoall, "alltoall", Kind::collective, false, true, kNone},
    {Operation::allreduce, "allreduce", Kind::collective, true, false, kNone},
    {Operation::allgather, "allgather", Kind::collective, false, true, kNone},
    {Operation::reduce_scatter, "reduce_scatter", Kind::collective, true, true, kNone},
    {Operation::broadcast, "broadcast", Kind::collective, false, false, kNone},
    {Operation::reduce, "reduce", Kind::collective, true, false, kNone},
    {Operation::rail_unidirectional, "rail_unidirectional", Kind::rail, false, false, kUni},
    {Operation::rail_bidirectional, "rail_bidirectional", Kind::rail, false, false, kBi},
    {Operation::rail_omnidirectional, "rail_omnidirectional", Kind::rail, false, false, kOmni},
    {Operation::asymmetric_unidirectional, "asymmetric_unidirectional", Kind::asymmetric, false, false, kUni},
    {Operation::asymmetric_bidirectional, "asymmetric_bidirectional", Kind::asymmetric, false, false, kBi},
    {Operation::symmetric_unidirectional, "symmetric_unidirectional", Kind::symmetric, false, false, kUni},
    {Operation::symmetric_bidirectional, "symmetric_bidirectional", Kind::symmetric, false, false, kBi},
    {Operation::symmetric_omnidirectional, "symmetric_omnidirectional", Kind::symmetric, false, false, kOmni},
    {Operation::striping, "striping", Kind::striping, false, false, kNone},
    {Operation::striping_pipelined, "striping_pipelined", Kind::striping, false, false, kNone},
    {Operation::striping_split, "striping_split", Kind::striping, false, false, kNone},
    {Operation::striping_translate, "striping_translate", Kind::striping, false, false, kNone},
    {Operation::striping_assemble, "striping_assemble", Kind::striping, false, false, kNone},
    {Operation::striping_direct, "striping_direct", Kind::striping, false, false, kNone},
    {Operation::sparse, "sparse", Kind::sparse, false, false, kNone},
    {Operation::sparse_intra, "sparse_intra", Kind::sparse, false, false, kNone},
    {Operation::sparse_inter, "sparse_inter", Kind::sparse, false, false, kNone},
    {Operation::sparse_alltoallv, "sparse_alltoallv", Kind::sparse, false, false, kNone},
    {Operation::victim_pingpong_alltoall, "victim_pingpong_alltoall", Kind::victim, false, false, kNone},
    {Operation::victim_pingpong_incast, "victim_pingpong_incast", Kind::victim, false, false, kNone},
    {Operation::victim_alltoall_alltoall, "victim_alltoall_alltoall", Kind::victim, false, true, kNone},
    {Operation::victim_alltoall_incast, "victim_alltoall_incast", Kind::victim, false, true, kNone},
    {Operation::host_to_device, "host_to_device", Kind::memory, false, true, kNone},
    {Operation::device_to_host, "device_to_host", Kind::memory, false, true, kNone},
    {Operation::host_bidirectional, "host_bidirectional", Kind::memory, false, true, kNone},
    {Operation::host_stream, "host_stream", Kind::memory, false, true, kNone},
    {Operation::local_copy, "local_copy", Kind::memory, false, true, kNone},
};

const Description& describe(Operation operation) {
  return *std::find_if(std::begin(kDescriptions), std::end(kDescriptions),
                       [&](const Description& each) { return each.operation == operation; });
}

// Lays the messages of a step out one after another in the buffers of their ranks.
class Layout {
 public:
  void add(int source, int destination, std::uint64_t bytes) {
    step_.push_back({source, destination, bytes, sent_[source], received_[destination]});
    sent_[source] += bytes;
    received_[destination] += bytes;
  }
  Step step() && { return std::move(step_); }

 private:
  Step step_;
  std::map<int, std::uint64_t> sent_;
  std::map<int, std::uint64_t> received_;
};

// Members of two groups that exchange a message, (in the source group, in the destination group). Beginning with the
// same member, so that the first messages do not all go to the same one.
std::vector<std::pair<int, int>> members(Kind kind, const Shape& shape, bool from_first) {
  std::vector<std::pair<int, int>> result;
  if (kind == Kind::rail) {
    for (int i = 0; i < shape.active; ++i) result.emplace_back(i, i);
    return result;
  }
  const int sources = kind == Kind::symmetric || from_first ? shape.active : shape.size;
  const int destinations = kind == Kind::symmetric || !from_first ? shape.active : shape.size;
  for (int i = 0; i < sources; ++i) {
    for (int j = 0; j < destinations; ++j) result.emplace_back(i, (i + j) % destinations);
  }
  return result;
}

std::uint64_t messages_of_first_group(const Description& pattern, const Shape& shape) {
  const std::size_t others = static_cast<std::size_t>(shape.groups) - 1;
  return others * members(pattern.kind, shape, true).size();
}

// CommBench, figures 6 and 7. The first group sends `bytes` in all.
Step group_step(const Description& pattern, const std::vector<int>& ranks, std::uint64_t bytes, const Shape& shape) {
  const std::uint64_t message = bytes / messages_of_first_group(pattern, shape);
  Layout layout;
  for (int a = 0; a < shape.groups; ++a) {
    for (int away = 1; away < shape.groups; ++away) {
      const int b = (a + away) % shape.groups;
      if (a != 0 && (pattern.direction == kUni || (pattern.direction == kBi && b != 0))) continue;
      for (const auto& [i, j] : members(pattern.kind, shape, a == 0)) {
        layout.add(ranks[static_cast<std::size_t>(a * shape.size + i)],
                   ranks[static_cast<std::size_t>(b * shape.size + j)], message);
      }
    }
  }
  return std::move(layout).step();
}

// CommBench, figure 4 and listing 2, for one piece of each stripe. Offsets are those of the whole message throughout.
class Striping {
 public:
  Striping(const std::vector<int>& ranks, const Shape& shape, std::uint64_t bytes, int pieces)
      : ranks_(ranks),
        shape_(shape),
        stripe_(bytes / static_cast<std::uint64_t>(shape.active)),
        piece_(stripe_ / static_cast<std::uint64_t>(pieces)) {}

  // The first rank hands the other members of its group their stripes.
  void split(Step& step, int piece) const {
    for (int i = 1; i < shape_.active; ++i) add(step, sender(0), sender(i), i, piece, false);
  }
  // Each member sends its stripe to its counterpart. Alone (not `relayed`), from its send buffer.
  void translate(Step& step, int piece, bool relayed) const {
    for (int i = 0; i < shape_.active; ++i) add(step, sender(i), receiver(i), i, piece, relayed && i > 0);
  }
  // The first rank of the other group gets all stripes.
  void assemble(Step& step, int piece, bool relayed) const {
    for (int i = 1; i < shape_.active; ++i) add(step, receiver(i), receiver(0), i, piece, relayed);
  }

 private:
  int sender(int i) const { return ranks_[static_cast<std::size_t>(i)]; }
  int receiver(int i) const { return ranks_[static_cast<std::size_t>(shape_.size + i)]; }
  void add(Step& step, int source, int destination, int stripe, int piece, bool relayed) const {
    const std::uint64_t offset =
        static_cast<std::uint64_t>(stripe) * stripe_ + static_cast<std::uint64_t>(piece) * piece_;
    step.push_back({source, destination, piece_, offset, offset, relayed});
  }

  const std::vector<int>& ranks_;
  const Shape& shape_;
  std::uint64_t stripe_;
  std::uint64_t piece_;
};

std::vector<Step> striping_steps(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                                 const Shape& shape) {
  const Striping whole(ranks, shape, bytes, 1);
  std::vector<Step> steps(operation == Operation::striping ? 3 : 1);
  switch (operation) {
    case Operation::striping:
      whole.split(steps[0], 0);
      whole.translate(steps[1], 0, true);
      whole.assemble(steps[2], 0, true);
      return steps;
    case Operation::striping_split:
      whole.split(steps[0], 0);
      return steps;
    case Operation::striping_translate:
      whole.translate(steps[0], 0, false);
      return steps;
    case Operation::striping_assemble:
      whole.assemble(steps[0], 0, false);
      return steps;
    case Operation::striping_direct:
      return {{{ranks[0], ranks[static_cast<std::size_t>(shape.size)], bytes}}};
    default:
      break;
  }
  const Striping pieces(ranks, shape, bytes, kStripingPieces);
  steps.resize(kStripingPieces + 2);
  for (int piece = 0; piece < kStripingPieces; ++piece) {
    const auto begin = static_cast<std::size_t>(piece);
    pieces.split(steps[begin], piece);
    pieces.translate(steps[begin + 1], piece, true);
    pieces.assemble(steps[begin + 2], piece, true);
  }
  return steps;
}

// The transfers of a memory path on one rank, which all go at the same time.
Step memory_path(Operation operation, int rank, std::uint64_t bytes) {
  const auto from = [&](Place source, Place destination) {
    return Transfer{rank, rank, bytes, 0, 0, false, source, destination};
  };
  switch (operation) {
    case Operation::host_to_device:
      return {from(Place::host, Place::device)};
    case Operation::device_to_host:
      return {from(Place::device, Place::host)};
    case Operation::host_bidirectional:
      return {from(Place::host, Place::device), from(Place::device, Place::host)};
    case Operation::host_stream:
      return {from(Place::host, Place::host)};
    default:
      return {from(Place::device, Place::device)};
  }
}

}  // namespace

const std::vector<Operation>& all_operations() {
  static const std::vector<Operation> operations = [] {
    std::vector<Operation> result;
    for (const Description& each : kDescriptions) result.push_back(each.operation);
    return result;
  }();
  return operations;
}

std::string to_string(const Shape& shape) {
  return std::to_string(shape.groups) + "x" + std::to_string(shape.size) + "x" + std::to_string(shape.active);
}

std::vector<int> numbers(const Shape& shape) { return {shape.groups, shape.size, shape.active}; }

std::string to_string(Operation operation) { return describe(operation).name; }

Operation parse_operation(const std::string& name) {
  std::vector<std::string> names;
  for (const Description& each : kDescriptions) {
    if (name == each.name) return each.operation;
    names.emplace_back(each.name);
  }
  throw InputError("there is no operation '" + name + "': choose from " + join(names, ", "));
}

bool is_pair_operation(Operation operation) { return describe(operation).kind == Kind::pair; }
bool is_striping(Operation operation) { return describe(operation).kind == Kind::striping; }
bool is_sparse(Operation operation) { return describe(operation).kind == Kind::sparse; }
bool is_victim(Operation operation) { return describe(operation).kind == Kind::victim; }
bool has_shape(Operation operation) { return is_striping(operation) || describe(operation).direction != kNone; }
bool can_have(Operation operation, const Shape& shape) {
  const bool two_groups = is_striping(operation) || describe(operation).kind == Kind::asymmetric;
  return (!two_groups || shape.groups == 2) && (!is_striping(operation) || shape.active >= 2);
}
bool is_memory_path(Operation operation) { return describe(operation).kind == Kind::memory; }
bool is_collective(Operation operation) { return describe(operation).kind == Kind::collective; }
bool is_reduction(Operation operation) { return describe(operation).reduction; }
bool is_round_trip(Operation operation) {
  return operation == Operation::pingpong || operation == Operation::victim_pingpong_alltoall ||
         operation == Operation::victim_pingpong_incast;
}
bool is_symmetric(Operation operation) { return operation == Operation::bidirectional; }

std::uint64_t granularity(Operation operation, std::size_t ranks, const Shape& shape) {
  const Description& description = describe(operation);
  if (is_striping(operation)) return static_cast<std::uint64_t>(shape.active) * kStripingPieces;
  if (has_shape(operation)) return messages_of_first_group(description, shape);
  return (description.divided ? ranks : 1) * (description.reduction ? sizeof(float) : 1);
}

std::vector<Step> transfers(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                            const Shape& shape) {
  const std::uint64_t share = bytes / ranks.size();
  Step step;
  switch (operation) {
    case Operation::pingpong:
      return {{{ranks[0], ranks[1], bytes}}, {{ranks[1], ranks[0], bytes}}};
    case Operation::unidirectional:
      return {{{ranks[0], ranks[1], bytes}}};
    case Operation::bidirectional:
      return {{{ranks[0], ranks[1], bytes}, {ranks[1], ranks[0], bytes}}};
    case Operation::alltoall:
    case Operation::reduce_scatter:
      for (std::size_t s = 0; s < ranks.size(); ++s) {
        // Beginning with the next rank, so that the first transfers do not all go to the same one.
        for (std::size_t k = 1; k <= ranks.size(); ++k) {
          const std::size_t d = (s + k) % ranks.size();
          const std::uint64_t destination_offset = operation == Operation::alltoall ? s * share : 0;
          step.push_back({ranks[s], ranks[d], share, d * share, destination_offset});
        }
      }
      return {step};
    case Operation::allgather:
      for (std::size_t s = 0; s < ranks.size(); ++s) {
        for (std::size_t k = 1; k <= ranks.size(); ++k) {
          step.push_back({ranks[s], ranks[(s + k) % ranks.size()], share, 0, s * share});
        }
      }
      return {step};
    case Operation::allreduce:
      for (const int source : ranks) {
        for (const int destination : ranks) step.push_back({source, destination, bytes});
      }
      return {step};
    case Operation::broadcast:
      for (const int destination : ranks) {
        if (destination != ranks[0]) step.push_back({ranks[0], destination, bytes});
      }
      return {step};
    case Operation::reduce:
      for (const int source : ranks) step.push_back({source, ranks[0], bytes});
      return {step};
    case Operation::rail_unidirectional:
    case Operation::rail_bidirectional:
    case Operation::rail_omnidirectional:
    case Operation::asymmetric_unidirectional:
    case Operation::asymmetric_bidirectional:
    case Operation::symmetric_unidirectional:
    case Operation::symmetric_bidirectional:
    case Operation::symmetric_omnidirectional:
      return {group_step(describe(operation), ranks, bytes, shape)};
    case Operation::striping:
    case Operation::striping_pipelined:
    case Operation::striping_split:
    case Operation::striping_translate:
    case Operation::striping_assemble:
    case Operation::striping_direct:
      return striping_steps(operation, ranks, bytes, shape);
    case Operation::victim_pingpong_alltoall:
    case Operation::victim_pingpong_incast:
      return transfers(Operation::pingpong, ranks, bytes);
    case Operation::victim_alltoall_alltoall:
    case Operation::victim_alltoall_incast:
      return transfers(Operation::alltoall, ranks, bytes);
    case Operation::sparse:
    case Operation::sparse_intra:
    case Operation::sparse_inter:
    case Operation::sparse_alltoallv:
      break;  // their transfers are in the user's matrix
    case Operation::host_to_device:
    case Operation::device_to_host:
    case Operation::host_bidirectional:
    case Operation::host_stream:
    case Operation::local_copy:
      for (const int rank : ranks) {
        for (const Transfer& each : memory_path(operation, rank, share)) step.push_back(each);
      }
      return {step};
  }
  return {};
}

std::vector<int> awaited_by(int rank, const std::vector<Step>& steps) {
  std::set<int> destinations;
  for (const Step& step : steps) {
    const bool first = destinations.empty();
    for (const Transfer& each : step) {
      if (each.source == each.destination) continue;
      if (each.source == rank) destinations.insert(each.destination);
      if (each.destination == rank && first) return {};
    }
  }
  return {destinations.begin(), destinations.end()};
}

std::vector<int> awaiting(int rank, const std::vector<Step>& steps) {
  std::set<int> sources;
  for (const Step& step : steps) {
    for (const Transfer& each : step) {
      if (each.destination == rank && each.source != rank) sources.insert(each.source);
    }
  }
  std::vector<int> result;
  for (const int source : sources) {
    const std::vector<int> awaited = awaited_by(source, steps);
    if (std::find(awaited.begin(), awaited.end(), rank) != awaited.end()) result.push_back(source);
  }
  return result;
}

Origin origin_of(const std::vector<Step>& steps, std::size_t step, std::size_t place) {
  const Transfer& transfer = steps[step][place];
  if (!transfer.relayed) return {transfer.source, transfer.source_offset};
  for (std::size_t earlier = step; earlier-- > 0;) {
    for (std::size_t i = 0; i < steps[earlier].size(); ++i) {
      const Transfer& brought = steps[earlier][i];
      if (brought.destination != transfer.source || brought.destination_place != transfer.source_place ||
          brought.destination_offset > transfer.source_offset ||
          brought.destination_offset + brought.bytes < transfer.source_offset + transfer.bytes)
        continue;
      const Origin origin = origin_of(steps, earlier, i);
      return {origin.rank, origin.offset + transfer.source_offset - brought.destination_offset};
    }
  }
  throw std::logic_error("a transfer relays what no earlier step brings");
}

Step sparse_step(const std::map<std::pair<int, int>, std::uint64_t>& messages) {
  Layout layout;
  for (auto row = messages.begin(); row != messages.end();) {
    const int source = row->first.first;
    const auto end = messages.lower_bound({source + 1, 0});
    const auto next = messages.lower_bound({source, source + 1});
    for (auto each = next; each != end; ++each) layout.add(source, each->first.second, each->second);
    for (auto each = row; each != next; ++each) layout.add(source, each->first.second, each->second);
    row = end;
  }
  return std::move(layout).step();
}

std::vector<Step> aggressor_transfers(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes) {
  if (operation == Operation::victim_pingpong_alltoall || operation == Operation::victim_alltoall_alltoall)
    return transfers(Operation::alltoall, ranks, bytes);
  Layout layout;
  for (std::size_t i = 1; i < ranks.size(); ++i) layout.add(ranks[i], ranks[0], bytes);
  return {std::move(layout).step()};
}

std::uint64_t buffer_extent(const std::vector<Step>& steps) {
  std::uint64_t extent = 0;
  for (const Step& step : steps) {
    for (const Transfer& each : step)
      extent = std::max({extent, each.source_offset + each.bytes, each.destination_offset + each.bytes});
  }
  return extent;
}

std::vector<Step> placed(std::vector<Step> steps, const std::vector<int>& ranks, const Ends& ends) {
  const auto place_of = [&](int rank) { return rank == ranks[0] ? ends.first : ends.second; };
  for (Step& step : steps) {
    for (Transfer& transfer : step) {
      transfer.source_place = place_of(transfer.source);
      transfer.destination_place = place_of(transfer.destination);
    }
  }
  return steps;
}

std::vector<std::vector<std::pair<int, int>>> pair_rounds(const std::vector<int>& ranks) {
  constexpr int kBye = -1;
  std::vector<int> circle = ranks;
  if (circle.size() % 2 == 1) circle.push_back(kBye);
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (std::size_t turn = 0; turn + 1 < circle.size(); ++turn) {
    std::vector<std::pair<int, int>> round;
    for (std::size_t i = 0; i < circle.size() / 2; ++i) {
      const int a = circle[i];
      const int b = circle[circle.size() - 1 - i];
      if (a != kBye && b != kBye) round.emplace_back(std::min(a, b), std::max(a, b));
    }
    std::sort(round.begin(), round.end());
    rounds.push_back(std::move(round));
    std::rotate(circle.begin() + 1, circle.end() - 1, circle.end());
  }
  return rounds;
}

}  // namespace fabricbench
