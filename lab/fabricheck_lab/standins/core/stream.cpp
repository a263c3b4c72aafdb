#include "core/stream.hpp"

#include <utility>

#include "core/description.hpp"
#include "core/ending.hpp"
#include "core/managed.hpp"

namespace emulation {

Stream::~Stream() {
  synchronize();
  if (tail_ == kNoTask) return;
  Timeline::Change change(Timeline::of_node());
  change.release(tail_);
}

void Stream::enqueue(const std::function<TaskId(Timeline::Change&, TaskId)>& make, std::function<void()> move) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (is_capturing_) end_run("an emulated GPU captures calls of *CCL in graphs, and nothing else");
  {
    Timeline::Change change(Timeline::of_node());
    const TaskId before = tail_;
    // On a GPU that hangs nothing begins, and what others do together with it does not either.
    const bool hangs = names(faults().content["hung_gpus"], description().gpus[static_cast<std::size_t>(gpu_)]);
    const TaskId gate = hangs ? change.task({before}, 0, nullptr, 1) : before;
    tail_ = make(change, gate);
    change.release(before);
    if (hangs) change.release(gate);
  }
  moves_.push_back(std::move(move));
}

void Stream::enqueue(const std::vector<Flow>& flows, std::int64_t latency, std::function<void()> move) {
  enqueue(
      [&](Timeline::Change& change, TaskId before) {
        if (flows.empty()) return change.task({before}, latency);
        if (flows.size() == 1) return change.task({before}, latency, &flows[0]);
        std::vector<TaskId> parts;
        for (const Flow& flow : flows) parts.push_back(change.task({before}, latency, &flow));
        const TaskId end = change.task(parts, 0);
        for (const TaskId part : parts) change.release(part);
        return end;
      },
      std::move(move));
}

void Stream::move_all() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (moves_.empty()) return;
  const AsDevice acting;
  while (!moves_.empty()) {
    const std::function<void()> move = std::move(moves_.front());
    moves_.pop_front();
    if (move) move();
  }
}

void Stream::synchronize() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  move_all();
  if (tail_ != kNoTask) Timeline::of_node().wait(tail_);
}

void Stream::begin_capture() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  is_capturing_ = true;
}

std::vector<Captured> Stream::end_capture() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  is_capturing_ = false;
  return std::exchange(captured_, {});
}

bool Stream::capture(const Captured& work) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (is_capturing_) captured_.push_back(work);
  return is_capturing_;
}

}  // namespace emulation
