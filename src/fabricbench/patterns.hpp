// Patterns: pure functions from ranks and a size to lists of transfers. No MPI and no GPU in here.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fabricbench {

// Where a buffer lies: in the memory of its rank's device (in the host port, of the host), or of the host.
enum class Place { device, host };

// `bytes` from the send buffer of rank `source` at `source_offset` to the receive buffer of rank `destination` at
// `destination_offset`. Ranks are those of the world. A rank has one buffer of each sort in each place.
struct Transfer {
  int source;
  int destination;
  std::uint64_t bytes;
  std::uint64_t source_offset = 0;
  std::uint64_t destination_offset = 0;
  Place source_place = Place::device;
  Place destination_place = Place::device;

  bool operator==(const Transfer& other) const {
    return source == other.source && destination == other.destination && bytes == other.bytes &&
           source_offset == other.source_offset && destination_offset == other.destination_offset &&
           source_place == other.source_place && destination_place == other.destination_place;
  }
};

// Transfers of a step go at the same time; a rank begins its next step when its part of this one is done.
using Step = std::vector<Transfer>;

enum class Operation {
  pingpong,
  unidirectional,
  bidirectional,
  alltoall,
  allreduce,
  allgather,
  reduce_scatter,
  broadcast,
  reduce,
  host_to_device,
  device_to_host,
  host_bidirectional,
  host_stream,
  local_copy
};

const std::vector<Operation>& all_operations();
std::string to_string(Operation operation);
Operation parse_operation(const std::string& name);

// An operation between two ranks, the first of which begins.
bool is_pair_operation(Operation operation);
// A path between memories that one rank uses by itself, or several ranks at once, each for itself.
bool is_memory_path(Operation operation);
// What libraries have an implementation of their own for.
bool is_collective(Operation operation);
// An operation that adds numbers, and so is not just a list of transfers.
bool is_reduction(Operation operation);
// Both directions of a pair are one and the same measurement.
bool is_symmetric(Operation operation);

// What the buffer size of an operation must be a multiple of, for `ranks` ranks (1 where anything goes).
std::uint64_t granularity(Operation operation, std::size_t ranks);

// The transfers of `operation` among `ranks` (for a pair: source, destination; the root of a rooted operation is
// first). For a reduction: where each rank's contribution has to go, not how. `bytes` is the buffer size of the result
// format.
std::vector<Step> transfers(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes);

// Where the buffers of the two ranks of a pair lie.
struct Ends {
  Place first = Place::device;
  Place second = Place::device;

  bool operator==(const Ends& other) const { return first == other.first && second == other.second; }
};
// The same transfers of the pair `ranks`, from and to buffers there.
std::vector<Step> placed(std::vector<Step> steps, const std::vector<int>& ranks, const Ends& ends);

// Rounds of pairs by the circle method: each unordered pair once, no rank twice in a round.
std::vector<std::vector<std::pair<int, int>>> pair_rounds(const std::vector<int>& ranks);

}  // namespace fabricbench
