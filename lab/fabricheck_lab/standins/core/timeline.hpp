// The node's tasks in memory that all its processes share (fluid.hpp), and how a process waits for one of them.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/description.hpp"
#include "core/fluid.hpp"

namespace emulation {

constexpr std::size_t kMostProcesses = 256;
constexpr std::size_t kMostGpus = 64;

struct Process {
  std::int32_t pid;  // 0: nobody
  std::int32_t gpu;  // that it drives, by vertex; -1: none yet
  std::uint64_t started;
  std::uint64_t used[kMostGpus];  // bytes of device memory, by the GPU's vertex
};

struct Shared {
  std::uint64_t magic;
  pthread_mutex_t mutex;
  std::atomic<std::uint32_t> changes;  // a futex: counts what may make a task end earlier or at all
  std::int32_t blocked;                // how many wait without knowing until when
  std::uint64_t generation;            // counts what makes predictions wrong
  std::uint64_t predicted;
  std::int64_t time;
  std::int64_t faults_stamp;
  std::int64_t looked_for_dead;
  double capacity[kMostLinks];
  std::int16_t others[kMostLinks];
  Process processes[kMostProcesses];
  std::int32_t first_free_task;
  std::int32_t first_free_edge;
  std::int32_t tasks_used;  // none at or above it was ever used
  std::int32_t edges_used;
  std::int32_t active_count;
  TaskId active[kMostTasks];
  Task tasks[kMostTasks];
  Edge edges[kMostEdges];
};

// Data to be moved: over the links of a route, by a mover.
struct Flow {
  double bits;
  std::vector<Use> uses;
};

// `share`: part of the bits that go this way. Routes of one flow are used at the same time.
void add_route(Flow& flow, int source, int destination, Mover mover, double share = 1);
Flow flow_between(int source, int destination, std::uint64_t bytes, Mover mover);

class Timeline {
 public:
  static Timeline& of_node();

  // Holds the node's lock, with everything up to now done. Tasks are made and joined under it.
  class Change {
   public:
    explicit Change(Timeline& timeline);
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

    // A task that begins when all of `after` have ended, and no earlier than now. `holds`: further tasks that it waits
    // for, each to come by join() or unhold().
    TaskId task(const std::vector<TaskId>& after, std::int64_t latency, const Flow* flow = nullptr, int holds = 0);
    // `next`, which is held for it, waits for `task`.
    void join(TaskId task, TaskId next);
    void unhold(TaskId id);
    // The caller has no more use for a task.
    void release(TaskId id);
    std::int64_t now() const { return now_; }

   private:
    void add_edge(TaskId from, TaskId to);
    Timeline& timeline_;
    std::int64_t now_;
    bool changed_ = false;
  };

  // Returns when the task has ended, with the time at which it did.
  std::int64_t wait(TaskId id);
  bool has_ended(TaskId id);

  // Waits while `word` is `value`, at most for a tenth of a second.
  void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t value);
  static void wake(std::atomic<std::uint32_t>& word);

  // Takes device memory of a GPU; false where it has no more.
  bool take_memory(int gpu, std::uint64_t bytes);
  void give_memory(int gpu, std::uint64_t bytes);
  std::uint64_t memory_used(int gpu);
  void drive(int gpu);
  std::vector<Process> processes();

  int process() const { return process_; }
  Shared& shared() { return *shared_; }

 private:
  Timeline();
  void lock();
  void unlock();
  void advance(std::int64_t now);
  void predict();
  void attach();
  void detach();
  void look_for_dead(std::int64_t now);
  void forget(std::size_t process);
  void apply_faults();
  void free_task(TaskId id);
  Fluid fluid(bool frees);
  static void ended(void* timeline, TaskId id);

  Shared* shared_;
  int process_ = -1;
};

// When a process began, in clock ticks since boot; 0 where there is none of that id.
std::uint64_t start_of(std::int32_t pid);

}  // namespace emulation
