// Work as a graph of tasks, each of which may move bits over links that it shares, max-min fairly, with all others that
// are under way. Times are fluid: a task begins when the last one that it waits for ends, however late anybody looks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace emulation {

using TaskId = std::int32_t;
constexpr TaskId kNoTask = -1;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMostTasks = 8192;
constexpr std::size_t kMostEdges = 4 * kMostTasks;
constexpr std::size_t kMostLinks = 512;
constexpr std::size_t kMostUses = 24;

// `weight`: bits of the link's rate that a bit of payload takes.
struct Use {
  std::uint16_t link;
  float weight;
};

enum class State : std::uint8_t { free, waiting, delayed, flowing, done };

struct Task {
  State state;
  bool released;         // its owner has forgotten it
  std::uint8_t uses;     // how many of `use`
  std::int16_t process;  // whose it is
  std::int32_t waits;    // for so many tasks
  std::int32_t first_edge;
  std::int32_t next_free;
  std::int64_t ready;    // when the last one that it waited for ended
  std::int64_t latency;  // from then until its bits flow
  std::int64_t finish;
  std::int64_t predicted;
  double bits;  // left
  double rate;  // bits a nanosecond
  Use use[kMostUses];
};

struct Edge {
  TaskId to;
  std::int32_t next;
};

// All that the simulation needs; of the shared memory, or of a copy to look ahead in.
struct Fluid {
  Task* tasks;
  Edge* edges;
  TaskId* active;  // delayed or flowing
  std::int32_t* active_count;
  std::int64_t* time;
  const double* capacity;      // of each link, bits a nanosecond
  const std::int16_t* others;  // flows of other programs over each link, which never end
  // Called with each task that has ended; may be null.
  void (*ended)(void* context, TaskId id);
  void* context;

  // Lets everything happen that happens until `until`. False when nothing more can happen before.
  void advance(std::int64_t until);
  // A task that waits for nothing more is delayed, and flows later.
  void activate(TaskId id);
  void share_links();

 private:
  void finish(TaskId id);
  std::int64_t next_event() const;
  void drain(std::int64_t until);
};

}  // namespace emulation
