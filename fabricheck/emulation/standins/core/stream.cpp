#include "core/stream.hpp"

#include <utility>

#include "core/description.hpp"
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
  {
    Timeline::Change change(Timeline::of_node());
    const TaskId before = tail_;
    tail_ = make(change, before);
    change.release(before);
  }
  moves_.push_back(std::move(move));
}

void Stream::enqueue(const std::vector<Flow>& flows, std::int64_t latency, std::function<void()> move) {
  const bool hangs = names(faults().content["hung_gpus"], description().gpus[static_cast<std::size_t>(gpu_)]);
  enqueue(
      [&](Timeline::Change& change, TaskId before) {
        if (hangs || flows.empty()) return change.task({before}, latency, nullptr, hangs ? 1 : 0);
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

bool Stream::is_idle() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (tail_ != kNoTask && !Timeline::of_node().has_ended(tail_)) return false;
  move_all();
  return true;
}

}  // namespace emulation
