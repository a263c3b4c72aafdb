// Patterns: pure functions from ranks and a size to lists of transfers. No MPI and no GPU in here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabricbench/operations.hpp"

namespace fabricbench {

// Where a buffer lies: in the memory of its rank's device (of the host backend: of the host), or of the host.
enum class Place { device, host };

// `bytes` from the send buffer of rank `source` at `source_offset` to the receive buffer of rank `destination` at
// `destination_offset`. Ranks are those of the world. A rank has one buffer of each sort in each place. A relayed
// transfer passes on what an earlier step has brought: it goes out from the receive buffer of its source.
struct Transfer {
  int source;
  int destination;
  std::uint64_t bytes;
  std::uint64_t source_offset = 0;
  std::uint64_t destination_offset = 0;
  bool relayed = false;
  Place source_place = Place::device;
  Place destination_place = Place::device;

  bool operator==(const Transfer& other) const {
    return source == other.source && destination == other.destination && bytes == other.bytes &&
           source_offset == other.source_offset && destination_offset == other.destination_offset &&
           relayed == other.relayed && source_place == other.source_place &&
           destination_place == other.destination_place;
  }
};

// Pieces of a stripe that follow one another through the steps of a pipelined striping.
inline constexpr int kStripingPieces = 8;

// Transfers of a step go at the same time; a rank begins its next step when its part of this one is done.
using Step = std::vector<Transfer>;

// The parameters (n, g, k) of a pattern between groups (CommBench, ICS'24, section 4.3): `groups` groups of `size`
// consecutive ranks, of which the first `active` of a group take part. All 0 where a pattern knows no groups.
struct Shape {
  int groups = 0;
  int size = 0;
  int active = 0;

  int ranks() const { return groups * size; }
  bool operator==(const Shape& other) const {
    return groups == other.groups && size == other.size && active == other.active;
  }
};

// "2x4x1", and {2, 4, 1}.
std::string to_string(const Shape& shape);
std::vector<int> numbers(const Shape& shape);

// Whether an operation with a shape can have this one: asymmetric patterns and striping are between two groups, and
// striping takes at least two ranks of each.
bool can_have(Operation operation, const Shape& shape);

// Groups of `count` ranks, `stride` apart, that have a collective each at the same time; together they are all ranks.
// A grid of tensor-parallel by data-parallel ranks is split along either of its sides.
struct Split {
  int count;
  int stride;
};
// Empty where the groups would not be full. The package has the same (fabricheck/records/split.py).
std::vector<std::vector<int>> groups_of(const Split& split, int ranks);

// What the buffer size of an operation must be a multiple of, for `ranks` ranks (1 where anything goes).
std::uint64_t granularity(Operation operation, std::size_t ranks, const Shape& shape = {});

// The transfers of `operation` among `ranks` (for a pair: source, destination; the root of a rooted operation is
// first). For a reduction: where each rank's contribution has to go, not how. `bytes` is the buffer size of the result
// format. With `only`: where the number of transfers grows with the square of the number of ranks, those in which this
// rank takes part, in the order that they have among all; none of a rank that is not one of `ranks`.
std::vector<Step> transfers(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                            const Shape& shape = {}, std::optional<int> only = std::nullopt);

// The same transfers of a collective whose result lies where its input was: a rank's part at its own place.
std::vector<Step> in_place(std::vector<Step> steps, Operation operation);

// The ranks that `rank` sends to, where it begins: where it receives nothing in the first step that it has a part in.
// Their clocks have to run before it sends, or what they received in time would look as if it took none.
std::vector<int> awaited_by(int rank, const std::vector<Step>& steps);
// The ranks that wait for `rank` in this way.
std::vector<int> awaiting(int rank, const std::vector<Step>& steps);

// Where the bytes of a transfer come from, which is not its source if it is relayed.
struct Origin {
  int rank;
  std::uint64_t offset;
};
// Of the transfer at `place` in step `step`. std::logic_error where no earlier step brings what is relayed.
Origin origin_of(const std::vector<Step>& steps, std::size_t step, std::size_t place);

// Messages of these sizes in bytes by (source, destination), those of a map in one step, with buffers of their own.
// Each rank begins with the one after it.
using Messages = std::map<std::pair<int, int>, std::uint64_t>;
std::vector<Step> sparse_steps(const std::vector<Messages>& messages);

// A collective of some of the ranks beside others: its buffers of `bytes` begin at `offset`, as its steps say.
struct TrainingPart {
  Operation operation;
  std::vector<int> ranks;
  std::uint64_t bytes;
  std::uint64_t offset;
  std::vector<Step> steps;
};
// What a rank does in a training step: an allreduce of its group, and at the same time, one after the other, the
// reduce_scatter and the allgather of a layer among the ranks that have its place in their groups. `bytes` is the sum.
// Their shares are those of a layer of GPT-3 175B as Megatron-LM@157006d6 trains it (hidden size 12,288, sequences of
// 2,048, micro-batch 1, 8 ranks of tensor parallelism: examples/gpt3/train_gpt3_175b_distributed.sh): four allreduces
// of 2,048 x 12,288 activations (Narayanan et al., SC21, section 3), and the 12 x 12,288^2 / 8 gradients and weights of
// a rank, all of two bytes: 4 to 9 to 9.
std::vector<TrainingPart> training_parts(const Shape& shape, int rank, std::uint64_t bytes);

// What the aggressor of a victim operation does among `ranks`: an alltoall of buffers of `bytes`, or all but the first
// sending `bytes` each to the first. `only` as in `transfers`.
std::vector<Step> aggressor_transfers(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                                      std::optional<int> only = std::nullopt);
std::uint64_t aggressor_extent(Operation operation, std::size_t ranks, std::uint64_t bytes);

// Bytes of the buffers that the ranks need for these transfers, and for those of an operation other than the messages
// of a matrix, which are not written out for it.
std::uint64_t buffer_extent(const std::vector<Step>& steps);
std::uint64_t buffer_extent(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                            const Shape& shape = {});

// Where the buffers of the two ranks of a pair lie.
struct Ends {
  Place first = Place::device;
  Place second = Place::device;

  bool operator==(const Ends& other) const { return first == other.first && second == other.second; }
};
// The same transfers of the pair `ranks`, from and to buffers there.
std::vector<Step> placed(std::vector<Step> steps, const std::vector<int>& ranks, const Ends& ends);

}  // namespace fabricbench
