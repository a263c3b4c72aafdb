// Rates and times of the simulation against cases worked out by hand, and against what max-min fairness means.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "core/fluid.hpp"

using namespace emulation;

namespace {

int failures = 0;

void check(bool is_right, const char* what) {
  if (is_right) return;
  ++failures;
  std::fprintf(stderr, "fluid_test: %s\n", what);
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(1.0, std::abs(b)); }

struct Case {
  std::vector<Task> tasks;
  std::vector<Edge> edges;
  std::vector<TaskId> active = std::vector<TaskId>(kMostTasks);
  std::int32_t active_count = 0;
  std::int64_t time = 0;
  std::vector<double> capacity;
  std::vector<std::int16_t> others;

  explicit Case(std::vector<double> rates) : capacity(std::move(rates)), others(capacity.size()) {}

  Fluid fluid() {
    return {tasks.data(),    edges.data(),  active.data(), &active_count, &time,
            capacity.data(), others.data(), nullptr,       nullptr};
  }
  TaskId add(double bits, const std::vector<Use>& uses, std::int64_t latency = 0, int waits = 0) {
    Task task{};
    task.state = State::waiting;
    task.first_edge = -1;
    task.bits = bits;
    task.latency = latency;
    task.waits = waits;
    task.uses = static_cast<std::uint8_t>(uses.size());
    std::copy(uses.begin(), uses.end(), task.use);
    tasks.push_back(task);
    const auto id = static_cast<TaskId>(tasks.size() - 1);
    if (waits == 0) fluid().activate(id);
    return id;
  }
  void join(TaskId from, TaskId to) {
    edges.push_back({to, tasks[static_cast<std::size_t>(from)].first_edge});
    tasks[static_cast<std::size_t>(from)].first_edge = static_cast<std::int32_t>(edges.size() - 1);
  }
  double rate(TaskId id) const { return tasks[static_cast<std::size_t>(id)].rate; }
  std::int64_t finish(TaskId id) const { return tasks[static_cast<std::size_t>(id)].finish; }
};

// A over both links, B over the first, C over the second, which is wider: A and B share the first, C has the rest.
void three_flows() {
  Case one({1.0, 3.0});
  const TaskId a = one.add(1000, {{0, 1}, {1, 1}});
  const TaskId b = one.add(500, {{0, 1}});
  const TaskId c = one.add(10000, {{1, 1}});
  one.fluid().advance(1);
  check(near(one.rate(a), 0.5) && near(one.rate(b), 0.5) && near(one.rate(c), 2.5), "three flows share two links");
  one.fluid().advance(kNever);
  check(one.finish(b) == 1000, "B ends after 500 bits at half the first link");
  check(one.finish(a) == 1500, "A has the first link alone afterwards");
}

void weights_and_other_programs() {
  Case one({1.0});
  const TaskId a = one.add(100, {{0, 2}});
  one.fluid().advance(1);
  check(near(one.rate(a), 0.5), "a bit of payload takes two of the link");
  Case other({1.0});
  other.others[0] = 1;
  const TaskId b = other.add(100, {{0, 1}});
  other.fluid().advance(1);
  check(near(other.rate(b), 0.5), "another program has half of the link");
}

// Whoever looks late finds the times at which things would have happened.
void late_looks() {
  Case one({1.0});
  const TaskId first = one.add(100, {{0, 1}}, 10);
  const TaskId second = one.add(100, {{0, 1}}, 5, 1);
  one.join(first, second);
  one.fluid().advance(1'000'000);
  check(one.finish(first) == 110 && one.finish(second) == 215, "an operation begins when the one before it ended");
}

void a_hung_link() {
  Case one({0.0, 1.0});
  const TaskId stuck = one.add(100, {{0, 1}, {1, 1}});
  const TaskId other = one.add(100, {{1, 1}});
  one.fluid().advance(kNever);
  check(one.tasks[static_cast<std::size_t>(stuck)].state == State::flowing, "nothing flows over a link that is down");
  check(one.finish(other) == 100, "what is stuck takes nothing from others");
}

// Max-min: each flow uses a full link on which no other flow has more.
void random_cases() {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Case one({});
    for (std::size_t links = 1 + random() % 12; one.capacity.size() < links;)
      one.capacity.push_back(1.0 + static_cast<double>(random() % 100));
    one.others.assign(one.capacity.size(), 0);
    for (std::size_t flows = 1 + random() % 40; one.tasks.size() < flows;) {
      std::vector<Use> uses;
      for (std::size_t link = 0; link < one.capacity.size(); ++link) {
        if (random() % 3 == 0) uses.push_back({static_cast<std::uint16_t>(link), 1});
      }
      if (uses.empty()) uses.push_back({0, 1});
      one.add(1e9, uses);
    }
    one.fluid().advance(1);
    std::vector<double> load(one.capacity.size());
    std::vector<double> most(one.capacity.size());
    for (const Task& task : one.tasks) {
      for (std::size_t k = 0; k < task.uses; ++k) {
        load[task.use[k].link] += task.rate;
        most[task.use[k].link] = std::max(most[task.use[k].link], task.rate);
      }
    }
    for (std::size_t link = 0; link < load.size(); ++link)
      check(load[link] <= one.capacity[link] * (1 + 1e-6), "a link carries more than it can");
    for (const Task& task : one.tasks) {
      const bool has_bottleneck = std::any_of(task.use, task.use + task.uses, [&](const Use& use) {
        return near(load[use.link], one.capacity[use.link]) && task.rate >= most[use.link] * (1 - 1e-6);
      });
      check(has_bottleneck, "a flow could have more without taking from a smaller one");
    }
  }
}

}  // namespace

int main() {
  three_flows();
  weights_and_other_programs();
  late_looks();
  a_hung_link();
  random_cases();
  return failures == 0 ? 0 : 1;
}
