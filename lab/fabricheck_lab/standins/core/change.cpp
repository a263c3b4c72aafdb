// How tasks are made and joined, under the node's lock.
#include <algorithm>
#include <string>

#include "core/clock.hpp"
#include "core/ending.hpp"
#include "core/timeline.hpp"

namespace emulation {

Timeline::Change::Change(Timeline& timeline) : timeline_(timeline), now_(0) {
  timeline_.lock();
  now_ = now_ns();
  timeline_.advance(now_);
}

Timeline::Change::~Change() {
  Shared& shared = *timeline_.shared_;
  if (changed_) {
    ++shared.generation;
    timeline_.advance(now_);
  }
  const bool wakes = changed_ && shared.blocked > 0;
  timeline_.unlock();
  if (wakes) wake(shared.changes);
}

TaskId Timeline::Change::task(const std::vector<TaskId>& after, std::int64_t latency, const Flow* flow, int holds) {
  Shared& shared = *timeline_.shared_;
  TaskId id = shared.first_free_task;
  if (id != kNoTask) {
    shared.first_free_task = shared.tasks[id].next_free;
  } else {
    id = shared.tasks_used++;
    if (static_cast<std::size_t>(id) >= kMostTasks)
      end_run("more than " + std::to_string(kMostTasks) + " operations are under way on this node");
  }
  Task& task = shared.tasks[id];
  task = Task{};
  task.state = State::waiting;
  task.process = static_cast<std::int16_t>(timeline_.process_);
  task.first_edge = -1;
  task.ready = now_;
  task.latency = latency;
  task.waits = holds;
  if (flow != nullptr) {
    task.bits = flow->bits;
    task.uses = static_cast<std::uint8_t>(flow->uses.size());
    std::copy(flow->uses.begin(), flow->uses.end(), task.use);
  }
  for (const TaskId before : after) {
    if (before == kNoTask) continue;
    const Task& earlier = shared.tasks[before];
    if (earlier.state == State::done) {
      task.ready = std::max(task.ready, earlier.finish);
    } else {
      ++task.waits;
      add_edge(before, id);
    }
  }
  if (task.waits == 0) timeline_.fluid(true).activate(id);
  changed_ = true;
  return id;
}

void Timeline::Change::add_edge(TaskId from, TaskId to) {
  Shared& shared = *timeline_.shared_;
  std::int32_t edge = shared.first_free_edge;
  if (edge >= 0) {
    shared.first_free_edge = shared.edges[edge].next;
  } else {
    edge = shared.edges_used++;
    if (static_cast<std::size_t>(edge) >= kMostEdges) end_run("too many operations of this node wait for others");
  }
  shared.edges[edge] = {to, shared.tasks[from].first_edge};
  shared.tasks[from].first_edge = edge;
}

void Timeline::Change::join(TaskId task, TaskId next) {
  Shared& shared = *timeline_.shared_;
  changed_ = true;
  if (shared.tasks[task].state != State::done) return add_edge(task, next);
  shared.tasks[next].ready = std::max(shared.tasks[next].ready, shared.tasks[task].finish);
  unhold(next);
}

void Timeline::Change::unhold(TaskId id) {
  Task& task = timeline_.shared_->tasks[id];
  task.ready = std::max(task.ready, now_);
  changed_ = true;
  if (--task.waits == 0 && task.state == State::waiting) timeline_.fluid(true).activate(id);
}

void Timeline::Change::release(TaskId id) {
  if (id == kNoTask) return;
  Task& task = timeline_.shared_->tasks[id];
  task.released = true;
  if (task.state == State::done) timeline_.free_task(id);
}

}  // namespace emulation
