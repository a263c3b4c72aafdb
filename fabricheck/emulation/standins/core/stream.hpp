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
  bool is_idle();
  // Does to memory what has been enqueued so far, whenever it ends.
  void move_all();

  TaskId tail() const { return tail_; }

 private:
  int gpu_;
  TaskId tail_ = kNoTask;
  std::recursive_mutex mutex_;
  std::deque<std::function<void()>> moves_;
};

}  // namespace emulation
