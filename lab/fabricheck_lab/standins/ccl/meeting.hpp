// Where ranks of one node meet for an operation: shared memory in which each finds what the other has posted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ccl/communicator.hpp"
#include "core/timeline.hpp"

namespace emulation::ccl {

constexpr std::uint32_t kDepth = 64;        // operations of a pair that may be under way
constexpr std::uint32_t kCollectives = 16;  // of a communicator
constexpr std::size_t kMostNeighbours = 32;

// Memory as another process finds it.
struct Place {
  Handle handle;
  std::uint64_t offset;
};
// Ends the run for memory that is not on a device.
Place place_of_buffer(const void* pointer);
// The same memory in this process.
void* map_place(const Place& place);

// One direction between two ranks. `posted` under the node's lock, the rest by atomics.
struct Channel {
  std::uint64_t communicator;
  std::int32_t source;
  std::int32_t destination;
  std::int32_t owner;  // process id
  std::uint32_t posted_sends;
  std::uint32_t posted_receives;
  std::atomic<std::uint32_t> ready;     // sends whose data are there
  std::atomic<std::uint32_t> consumed;  // of these, how many have been received
  TaskId flows[kDepth];                 // of what one side has posted and the other not
  Place places[kDepth];
  std::uint64_t bytes[kDepth];
};

// A collective of a communicator's ranks on this node.
struct Gathering {
  std::uint32_t sequence;  // from 1; 0: unused
  std::uint32_t posted;
  TaskId begun;  // begins when all have come
  TaskId ended;
  Place send[kMostNeighbours];
  Place result[kMostNeighbours];
  std::atomic<std::uint32_t> arrived[3];
};

struct Circle {
  std::uint64_t communicator;  // and host
  std::int32_t owner;
  Gathering gatherings[kCollectives];
};

// Both under the node's lock; made where there is none.
Channel& channel(const Communicator& communicator, int source, int destination);
Circle& circle(const Communicator& communicator);

// Waits until `word` is at least `value`.
void await(std::atomic<std::uint32_t>& word, std::uint32_t value);
void post(std::atomic<std::uint32_t>& word, std::uint32_t value);

}  // namespace emulation::ccl
