// Queues of work on a GPU. When an operation ends is known to the timeline as soon as it is enqueued; its data move
// when somebody waits for it, and not before, so that nothing looks finished that nobody has waited for.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "core/timeline.hpp"

namespace emulation {

// Work that a graph holds: it is enqueued anew with each launch.
struct Captured {
  bool is_kernel;
  std::function<void()> enqueue;
};

class Stream {
 public:
  explicit Stream(int gpu) : gpu_(gpu) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int gpu() const { return gpu_; }
  // An operation: all flows begin `latency` after the one before it, and it ends with the last of them. `move` is what
  // it does to memory.
  void enqueue(const std::vector<Flow>& flows, std::int64_t latency, std::function<void()> move);
  // The same for who makes the tasks himself: `make` gets the last task so far, and returns the one that ends the new
  // operation.
  void enqueue(const std::function<TaskId(Timeline::Change&, TaskId)>& make, std::function<void()> move);
  void synchronize();
  // Does to memory what has been enqueued so far, whenever it ends.
  void move_all();

  TaskId tail() const { return tail_; }

  // From here on work is captured, as far as it asks `capture`, and what else is enqueued ends the run.
  void begin_capture();
  std::vector<Captured> end_capture();
  // Whether `work` was captured, and so is not to be done now.
  bool capture(const Captured& work);

 private:
  int gpu_;
  TaskId tail_ = kNoTask;
  std::recursive_mutex mutex_;
  std::deque<std::function<void()>> moves_;
  bool is_capturing_ = false;
  std::vector<Captured> captured_;
};

}  // namespace emulation
