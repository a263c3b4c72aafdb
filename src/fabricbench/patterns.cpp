#include "fabricbench/patterns.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

namespace fabricbench {
namespace {

// Lays the messages of a step out one after another in the buffers of their ranks. With `only` it keeps those in which
// that rank takes part.
class Layout {
 public:
  explicit Layout(std::optional<int> only = std::nullopt) : only_(only) {}
  void add(int source, int destination, std::uint64_t bytes) {
    std::uint64_t& sent = end_of(sent_, source);
    std::uint64_t& received = end_of(received_, destination);
    if (!only_ || source == *only_ || destination == *only_)
      step_.push_back({source, destination, bytes, sent, received});
    sent += bytes;
    received += bytes;
    extent_ = std::max({extent_, sent, received});
  }
  // What was added since the last step; the next one lies behind it.
  Step take_step() { return std::exchange(step_, {}); }
  // Bytes of the largest buffer of all ranks.
  std::uint64_t extent() const { return extent_; }

 private:
  static std::uint64_t& end_of(std::vector<std::uint64_t>& ends, int rank) {
    const auto place = static_cast<std::size_t>(rank);
    if (place >= ends.size()) ends.resize(place + 1);
    return ends[place];
  }

  std::optional<int> only_;
  Step step_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::uint64_t extent_ = 0;
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

// Of a training step.
constexpr std::uint64_t kTensorShares = 4;
constexpr std::uint64_t kLayerShares = 9;
constexpr std::uint64_t kTrainingShares = kTensorShares + 2 * kLayerShares;

// A rank that no run has: what remains of a layout is how large its buffers are.
constexpr int kNobody = -1;

std::uint64_t messages_of_first_group(const Description& pattern, const Shape& shape) {
  const std::size_t others = static_cast<std::size_t>(shape.groups) - 1;
  return others * members(pattern.kind, shape, true).size();
}

// CommBench, figures 6 and 7. The first group sends `bytes` in all.
Layout group_layout(const Description& pattern, const std::vector<int>& ranks, std::uint64_t bytes, const Shape& shape,
                    std::optional<int> only) {
  const std::uint64_t message = bytes / messages_of_first_group(pattern, shape);
  const std::vector<std::pair<int, int>> of_first = members(pattern.kind, shape, true);
  const std::vector<std::pair<int, int>> of_others = members(pattern.kind, shape, false);
  Layout layout(only);
  for (int a = 0; a < shape.groups; ++a) {
    for (int away = 1; away < shape.groups; ++away) {
      const int b = (a + away) % shape.groups;
      if (a != 0 &&
          (pattern.direction == Direction::unidirectional || (pattern.direction == Direction::bidirectional && b != 0)))
        continue;
      for (const auto& [i, j] : a == 0 ? of_first : of_others) {
        layout.add(ranks[static_cast<std::size_t>(a * shape.size + i)],
                   ranks[static_cast<std::size_t>(b * shape.size + j)], message);
      }
    }
  }
  return layout;
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

std::vector<Step> pair_steps(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes) {
  const Transfer there{ranks[0], ranks[1], bytes};
  const Transfer back{ranks[1], ranks[0], bytes};
  if (operation == Operation::unidirectional) return {{there}};
  if (operation == Operation::bidirectional) return {{there, back}};
  return {{there}, {back}};
}

// Calls add(source, destination) for the places of every source and every destination, itself included; with `only`,
// for those where that place is one of the two.
template <typename Add>
void for_each_exchange(std::size_t ranks, std::optional<std::size_t> only, Add&& add) {
  for (std::size_t source = 0; source < ranks; ++source) {
    if (only && *only != source) {
      add(source, *only);
      continue;
    }
    // Beginning half the ranks away: each goes to another one at a time, and those of one node to others elsewhere.
    for (std::size_t k = 0; k < ranks; ++k) add(source, (source + ranks / 2 + k) % ranks);
  }
}

// Of all ranks, or `only` the transfers of the rank at one place: those of all are the square of their number.
Step collective_step(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                     std::optional<std::size_t> only) {
  const std::uint64_t share = bytes / ranks.size();
  Step step;
  if (describe(operation).has(kRooted)) {
    const bool from_root = operation == Operation::broadcast;
    for (std::size_t place = from_root ? 1 : 0; place < ranks.size(); ++place) {
      if (only && *only != 0 && *only != place) continue;
      step.push_back(from_root ? Transfer{ranks[0], ranks[place], bytes} : Transfer{ranks[place], ranks[0], bytes});
    }
    return step;
  }
  for_each_exchange(ranks.size(), only, [&](std::size_t s, std::size_t d) {
    Transfer transfer{ranks[s], ranks[d], operation == Operation::allreduce ? bytes : share};
    if (operation == Operation::alltoall || operation == Operation::reduce_scatter) transfer.source_offset = d * share;
    if (operation == Operation::alltoall || operation == Operation::allgather) transfer.destination_offset = s * share;
    step.push_back(transfer);
  });
  return step;
}

std::optional<std::size_t> place_of(std::optional<int> rank, const std::vector<int>& ranks) {
  if (!rank) return std::nullopt;
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), *rank) - ranks.begin());
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
    case Operation::host_read:
    case Operation::host_stream:
    case Operation::host_triad:
      return {from(Place::host, Place::host)};
    default:
      return {from(Place::device, Place::device)};
  }
}

}  // namespace

std::string to_string(const Shape& shape) {
  return std::to_string(shape.groups) + "x" + std::to_string(shape.size) + "x" + std::to_string(shape.active);
}

std::vector<int> numbers(const Shape& shape) { return {shape.groups, shape.size, shape.active}; }

bool can_have(Operation operation, const Shape& shape) {
  const bool two_groups = is_striping(operation) || describe(operation).kind == Kind::asymmetric;
  if (is_training(operation)) return shape.size >= 2 && shape.active == shape.size;
  return (!two_groups || shape.groups == 2) && (!is_striping(operation) || shape.active >= 2);
}

std::vector<std::vector<int>> groups_of(const Split& split, int ranks) {
  std::vector<std::vector<int>> groups;
  const std::int64_t block = std::int64_t{split.count} * split.stride;
  if (ranks % block != 0) return groups;
  for (int begin = 0; begin < ranks; begin += static_cast<int>(block)) {
    for (int first = begin; first < begin + split.stride; ++first) {
      std::vector<int>& group = groups.emplace_back();
      for (int i = 0; i < split.count; ++i) group.push_back(first + i * split.stride);
    }
  }
  return groups;
}

std::uint64_t granularity(Operation operation, std::size_t ranks, const Shape& shape) {
  const Description& description = describe(operation);
  if (is_striping(operation)) return static_cast<std::uint64_t>(shape.active) * kStripingPieces;
  if (is_training(operation)) return kTrainingShares * ranks * sizeof(float);
  if (has_shape(operation)) return messages_of_first_group(description, shape);
  return (description.has(kDivides) ? ranks : 1) * (description.has(kReduces) ? sizeof(float) : 1);
}

std::vector<Step> transfers(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes, const Shape& shape,
                            std::optional<int> only) {
  const Description& description = describe(operation);
  if (only && std::find(ranks.begin(), ranks.end(), *only) == ranks.end()) return {};
  switch (description.kind) {
    case Kind::pair:
      return pair_steps(operation, ranks, bytes);
    case Kind::collective:
      return {collective_step(operation, ranks, bytes, place_of(only, ranks))};
    case Kind::rail:
    case Kind::asymmetric:
    case Kind::symmetric:
      return {group_layout(description, ranks, bytes, shape, only).take_step()};
    case Kind::striping:
      return striping_steps(operation, ranks, bytes, shape);
    case Kind::victim:
      return transfers(description.has(kDivides) ? Operation::alltoall : Operation::pingpong, ranks, bytes, {}, only);
    case Kind::training:
    case Kind::sparse:
      break;  // their transfers are in their parts, and in the user's matrices
    case Kind::memory: {
      Step step;
      for (const int rank : ranks) {
        if (only && rank != *only) continue;
        for (const Transfer& transfer : memory_path(operation, rank, bytes / ranks.size())) step.push_back(transfer);
      }
      return {step};
    }
  }
  return {};
}

std::vector<Step> in_place(std::vector<Step> steps, Operation operation) {
  for (Step& step : steps) {
    for (Transfer& transfer : step) {
      if (operation == Operation::allgather) transfer.source_offset = transfer.destination_offset;
      if (operation == Operation::reduce_scatter) transfer.destination_offset = transfer.source_offset;
    }
  }
  return steps;
}

std::vector<int> awaited_by(int rank, const std::vector<Step>& steps) {
  std::set<int> destinations;
  for (const Step& step : steps) {
    const bool first = destinations.empty();
    for (const Transfer& transfer : step) {
      if (transfer.source == transfer.destination) continue;
      if (transfer.source == rank) destinations.insert(transfer.destination);
      if (transfer.destination == rank && first) return {};
    }
  }
  return {destinations.begin(), destinations.end()};
}

std::vector<int> awaiting(int rank, const std::vector<Step>& steps) {
  std::set<int> sources;
  for (const Step& step : steps) {
    for (const Transfer& transfer : step) {
      if (transfer.destination == rank && transfer.source != rank) sources.insert(transfer.source);
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

std::vector<Step> sparse_steps(const std::vector<Messages>& messages) {
  Layout layout;
  std::vector<Step> steps;
  for (const Messages& of_step : messages) {
    for (auto row = of_step.begin(); row != of_step.end();) {
      const int source = row->first.first;
      const auto end = of_step.lower_bound({source + 1, 0});
      const auto next = of_step.lower_bound({source, source + 1});
      for (auto entry = next; entry != end; ++entry) layout.add(source, entry->first.second, entry->second);
      for (auto entry = row; entry != next; ++entry) layout.add(source, entry->first.second, entry->second);
      row = end;
    }
    steps.push_back(layout.take_step());
  }
  return steps;
}

std::vector<TrainingPart> training_parts(const Shape& shape, int rank, std::uint64_t bytes) {
  std::vector<int> group;
  std::vector<int> replicas;
  for (int i = 0; i < shape.size; ++i) group.push_back(rank / shape.size * shape.size + i);
  for (int i = 0; i < shape.groups; ++i) replicas.push_back(i * shape.size + rank % shape.size);
  const std::uint64_t share = bytes / kTrainingShares;
  std::vector<TrainingPart> parts{{Operation::allreduce, group, kTensorShares * share, 0, {}},
                                  {Operation::reduce_scatter, replicas, kLayerShares * share, 0, {}},
                                  {Operation::allgather, replicas, kLayerShares * share, 0, {}}};
  std::uint64_t offset = 0;
  for (TrainingPart& part : parts) {
    part.offset = offset;
    part.steps = transfers(part.operation, part.ranks, part.bytes, {}, rank);
    for (Transfer& transfer : part.steps.front()) {
      transfer.source_offset += offset;
      transfer.destination_offset += offset;
    }
    offset += part.bytes;
  }
  return parts;
}

std::vector<Step> aggressor_transfers(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                                      std::optional<int> only) {
  if (!describe(operation).has(kIncast)) return transfers(Operation::alltoall, ranks, bytes, {}, only);
  Layout layout(only);
  for (std::size_t i = 1; i < ranks.size(); ++i) layout.add(ranks[i], ranks[0], bytes);
  return {layout.take_step()};
}

std::uint64_t aggressor_extent(Operation operation, std::size_t ranks, std::uint64_t bytes) {
  return describe(operation).has(kIncast) ? (ranks - 1) * bytes : bytes / ranks * ranks;
}

std::uint64_t buffer_extent(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                            const Shape& shape) {
  const Description& description = describe(operation);
  if (description.direction != Direction::none) return group_layout(description, ranks, bytes, shape, kNobody).extent();
  return description.kind == Kind::memory ? bytes / ranks.size() : bytes;
}

std::uint64_t buffer_extent(const std::vector<Step>& steps) {
  std::uint64_t extent = 0;
  for (const Step& step : steps) {
    for (const Transfer& transfer : step)
      extent =
          std::max({extent, transfer.source_offset + transfer.bytes, transfer.destination_offset + transfer.bytes});
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

}  // namespace fabricbench
