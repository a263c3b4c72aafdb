#include "core/fluid.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace emulation {
namespace {

// Less than this is no payload: what rounding of times to nanoseconds leaves.
constexpr double kNoBits = 1e-3;

}  // namespace

void Fluid::activate(TaskId id) {
  tasks[id].state = State::delayed;
  active[(*active_count)++] = id;
}

void Fluid::finish(TaskId id) {
  Task& task = tasks[id];
  task.state = State::done;
  task.finish = *time;
  for (std::int32_t edge = task.first_edge; edge >= 0; edge = edges[edge].next) {
    Task& next = tasks[edges[edge].to];
    next.ready = std::max(next.ready, task.finish);
    if (--next.waits == 0 && next.state == State::waiting) activate(edges[edge].to);
  }
  if (ended != nullptr) ended(context, id);
}

std::int64_t Fluid::next_event() const {
  std::int64_t next = kNever;
  for (std::int32_t i = 0; i < *active_count; ++i) {
    const Task& task = tasks[active[i]];
    if (task.state == State::delayed) {
      next = std::min(next, task.ready + task.latency);
    } else if (task.rate > 0) {
      next = std::min(next, *time + static_cast<std::int64_t>(std::ceil(task.bits / task.rate)));
    }
  }
  return std::max(next, *time);
}

void Fluid::drain(std::int64_t until) {
  const auto span = static_cast<double>(until - *time);
  if (span <= 0) return;
  for (std::int32_t i = 0; i < *active_count; ++i) {
    Task& task = tasks[active[i]];
    if (task.state == State::flowing) task.bits -= task.rate * span;
  }
  *time = until;
}

void Fluid::advance(std::int64_t until) {
  for (;;) {
    const std::int64_t next = next_event();
    if (next > until || next == kNever) break;
    drain(next);
    bool changed = false;
    for (std::int32_t i = 0; i < *active_count;) {
      const TaskId id = active[i];
      Task& task = tasks[id];
      bool is_done = false;
      if (task.state == State::delayed && task.ready + task.latency <= *time) {
        task.state = State::flowing;
        is_done = task.bits <= kNoBits;
        changed = changed || !is_done;
      } else if (task.state == State::flowing && task.rate > 0 && task.bits <= kNoBits) {
        is_done = true;
        changed = true;
      }
      if (!is_done) {
        ++i;
        continue;
      }
      // The last one takes its place; those that it lets begin come after it.
      active[i] = active[--*active_count];
      finish(id);
    }
    if (changed) share_links();
  }
  if (until != kNever) drain(until);
}

void Fluid::share_links() {
  struct Load {
    std::uint16_t link;
    double left;
    double weight;
  };
  static thread_local std::vector<Load> loads;
  static thread_local std::vector<std::int32_t> place_of(kMostLinks, -1);
  static thread_local std::vector<TaskId> open;
  loads.clear();
  open.clear();
  for (std::int32_t i = 0; i < *active_count; ++i) {
    Task& task = tasks[active[i]];
    if (task.state != State::flowing) continue;
    task.rate = 0;
    open.push_back(active[i]);
    for (std::size_t k = 0; k < task.uses; ++k) {
      std::int32_t& place = place_of[task.use[k].link];
      if (place < 0) {
        place = static_cast<std::int32_t>(loads.size());
        const std::uint16_t link = task.use[k].link;
        loads.push_back({link, capacity[link], static_cast<double>(others[link])});
      }
      loads[static_cast<std::size_t>(place)].weight += static_cast<double>(task.use[k].weight);
    }
  }
  // The narrowest links of all fix the rate of what flows over them, then the narrowest of the rest, and so on.
  while (!open.empty()) {
    double share = std::numeric_limits<double>::infinity();
    for (const Load& load : loads) {
      if (load.weight > 1e-9) share = std::min(share, std::max(load.left, 0.0) / load.weight);
    }
    std::size_t kept = 0;
    const double bound = share * (1 + 1e-9);
    static thread_local std::vector<char> narrow;
    narrow.assign(loads.size(), 0);
    for (std::size_t l = 0; l < loads.size(); ++l)
      narrow[l] = loads[l].weight > 1e-9 && std::max(loads[l].left, 0.0) <= bound * loads[l].weight ? 1 : 0;
    for (const TaskId id : open) {
      Task& task = tasks[id];
      const bool is_fixed = task.uses == 0 || std::any_of(task.use, task.use + task.uses, [&](const Use& use) {
                              return narrow[static_cast<std::size_t>(place_of[use.link])] != 0;
                            });
      if (!is_fixed) {
        open[kept++] = id;
        continue;
      }
      task.rate = task.uses == 0 ? 1e9 : share;
      for (std::size_t k = 0; k < task.uses; ++k) {
        Load& load = loads[static_cast<std::size_t>(place_of[task.use[k].link])];
        load.left -= share * static_cast<double>(task.use[k].weight);
        load.weight -= static_cast<double>(task.use[k].weight);
      }
    }
    if (kept == open.size()) break;
    open.resize(kept);
  }
  for (const Load& load : loads) place_of[load.link] = -1;
}

}  // namespace emulation
