#include "core/timeline.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "core/clock.hpp"
#include "core/ending.hpp"
#include "core/prompt.hpp"

namespace emulation {
namespace {

constexpr std::uint64_t kLayout = 0x66636865636b0001;  // changes with the layout of Shared
constexpr std::int64_t kLookForDeadEvery = 200'000'000;
constexpr std::int64_t kLongestSleep = 100'000'000;
// A wait that is longer than this is looked at again on the way: others may have made its task end earlier.
constexpr std::int64_t kLongWait = 1'500'000;

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value, const struct timespec* timeout) {
  return syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

void sleep_until(std::int64_t deadline) {
  const struct timespec until = timespec_of(deadline);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void make_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

// What processes that are planted, and not there, have of a GPU's memory.
std::uint64_t taken_by_others(const Gpu& gpu) {
  std::uint64_t taken = 0;
  for (const Json& each : faults().content["processes"].items()) {
    if (each["gpu"].text() == gpu.name) taken += static_cast<std::uint64_t>(each["memory_bytes"].integer());
  }
  return taken;
}

Shared* map_shared(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) end_run(path + " cannot be opened: " + std::strerror(errno));
  // One process at a time looks whether it is the first.
  if (lockf(file, F_LOCK, 0) != 0 || ftruncate(file, sizeof(Shared)) != 0)
    end_run(path + " cannot be made: " + std::strerror(errno));
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) end_run(path + " cannot be mapped: " + std::strerror(errno));
  auto* shared = static_cast<Shared*>(memory);
  if (shared->magic != kLayout) {
    std::memset(memory, 0, sizeof(Shared));
    make_mutex(shared->mutex);
    shared->first_free_task = kNoTask;
    shared->first_free_edge = -1;
    shared->faults_stamp = -1;
    shared->generation = 1;
    shared->magic = kLayout;
  }
  if (lockf(file, F_ULOCK, 0) != 0) end_run(path + " cannot be unlocked");
  close(file);
  return shared;
}

}  // namespace

std::uint64_t start_of(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  // The 22nd field; the third comes after the name. A process that has ended and is not yet waited for is none.
  std::size_t at = name_end + 2;
  if (text.compare(at, 1, "Z") == 0 || text.compare(at, 1, "X") == 0) return 0;
  for (int field = 3; field < 22; ++field) at = text.find(' ', at) + 1;
  return std::strtoull(text.c_str() + at, nullptr, 10);
}

void add_route(Flow& flow, int source, int destination, Mover mover, double share) {
  const Description& node = description();
  for (const std::uint16_t link : node.route(source, destination).links) {
    const double efficiency = node.links[link].efficiency[static_cast<std::size_t>(mover)];
    const auto weight = static_cast<float>(share / efficiency);
    const auto same =
        std::find_if(flow.uses.begin(), flow.uses.end(), [&](const Use& use) { return use.link == link; });
    if (same != flow.uses.end()) {
      same->weight += weight;
    } else {
      flow.uses.push_back({link, weight});
    }
  }
  if (flow.uses.size() > kMostUses) end_run("a route has more than " + std::to_string(kMostUses) + " links");
}

Flow flow_between(int source, int destination, std::uint64_t bytes, Mover mover) {
  Flow flow{8.0 * static_cast<double>(bytes), {}};
  if (source >= 0 && destination >= 0) add_route(flow, source, destination, mover);
  return flow;
}

Timeline& Timeline::of_node() {
  static Timeline* const timeline = new Timeline;
  return *timeline;
}

Timeline::Timeline() : shared_(map_shared(description().folder + "/state")) {
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  Prompt();
  attach();
  static Timeline* ending = this;
  std::atexit([] { ending->detach(); });
}

void Timeline::lock() {
  const int result = pthread_mutex_lock(&shared_->mutex);
  if (result == EOWNERDEAD) {
    pthread_mutex_consistent(&shared_->mutex);
    shared_->looked_for_dead = 0;
  } else if (result != 0) {
    end_run(std::string("the lock of the node cannot be taken: ") + std::strerror(result));
  }
}

void Timeline::unlock() { pthread_mutex_unlock(&shared_->mutex); }

void Timeline::attach() {
  lock();
  look_for_dead(now_ns());
  auto* const end = shared_->processes + kMostProcesses;
  auto* const slot = std::find_if(shared_->processes, end, [](const Process& each) { return each.pid == 0; });
  if (slot == end) end_run("more than " + std::to_string(kMostProcesses) + " processes use this node");
  *slot = Process{};
  slot->pid = getpid();
  slot->gpu = -1;
  slot->started = start_of(slot->pid);
  process_ = static_cast<int>(slot - shared_->processes);
  advance(now_ns());
  unlock();
}

void Timeline::detach() {
  if (process_ < 0 || shared_->processes[process_].pid != getpid()) return;  // a child that was forked
  lock();
  forget(static_cast<std::size_t>(process_));
  unlock();
}

void Timeline::look_for_dead(std::int64_t now) {
  if (now - shared_->looked_for_dead < kLookForDeadEvery) return;
  shared_->looked_for_dead = now;
  for (std::size_t i = 0; i < kMostProcesses; ++i) {
    const Process& each = shared_->processes[i];
    if (each.pid != 0 && start_of(each.pid) != each.started) forget(i);
  }
}

// What a process has left under way ends now; nothing of it is waited for.
void Timeline::forget(std::size_t process) {
  const std::string prefix = description().folder + "/memory-" + std::to_string(shared_->processes[process].pid) + "-";
  for (int number = 0, missed = 0; missed < 64; ++number)
    missed = unlink((prefix + std::to_string(number)).c_str()) == 0 ? 0 : missed + 1;
  shared_->processes[process] = Process{};
  Fluid all = fluid(true);
  for (TaskId id = 0; id < shared_->tasks_used; ++id) {
    Task& task = shared_->tasks[id];
    if (task.state == State::free || task.process != static_cast<std::int16_t>(process)) continue;
    task.released = true;
    task.bits = 0;
    task.uses = 0;
    task.latency = 0;
    if (task.state == State::done) {
      free_task(id);
    } else if (task.state == State::waiting) {
      // Held by what will not come.
      std::int32_t known = 0;
      for (TaskId other = 0; other < shared_->tasks_used; ++other) {
        const Task& before = shared_->tasks[other];
        if (before.state == State::free) continue;
        for (std::int32_t edge = before.first_edge; edge >= 0; edge = shared_->edges[edge].next)
          known += shared_->edges[edge].to == id ? 1 : 0;
      }
      task.waits = known;
      if (known == 0) all.activate(id);
    }
  }
  all.share_links();
  ++shared_->generation;
  wake(shared_->changes);
}

void Timeline::free_task(TaskId id) {
  Task& task = shared_->tasks[id];
  task.state = State::free;
  task.next_free = shared_->first_free_task;
  shared_->first_free_task = id;
}

void Timeline::ended(void* timeline, TaskId id) {
  auto& self = *static_cast<Timeline*>(timeline);
  Task& task = self.shared_->tasks[id];
  while (task.first_edge >= 0) {
    const std::int32_t edge = task.first_edge;
    task.first_edge = self.shared_->edges[edge].next;
    self.shared_->edges[edge].next = self.shared_->first_free_edge;
    self.shared_->first_free_edge = edge;
  }
  if (task.released) self.free_task(id);
}

Fluid Timeline::fluid(bool frees) {
  return {shared_->tasks,
          shared_->edges,
          shared_->active,
          &shared_->active_count,
          &shared_->time,
          shared_->capacity,
          shared_->others,
          frees ? &Timeline::ended : nullptr,
          this};
}

void Timeline::apply_faults() {
  const Faults& current = faults();
  if (shared_->faults_stamp == current.stamp) return;
  shared_->faults_stamp = current.stamp;
  const Description& node = description();
  const Json& wrong = current.content;
  if (node.links.size() > kMostLinks) end_run("the node has more than " + std::to_string(kMostLinks) + " links");
  const auto factor_of = [&](const std::string& gpu) { return wrong["throttle"][gpu]["factor"].number(1); };
  for (std::size_t i = 0; i < node.links.size(); ++i) {
    const Link& link = node.links[i];
    double factor = wrong["links"][link.name].number(1) * factor_of(link.source);
    if (link.destination != link.source) factor *= factor_of(link.destination);
    shared_->capacity[i] = link.rate * factor;
    shared_->others[i] = 0;
  }
  for (const Json& process : wrong["processes"].items()) {
    for (const Json& flow : process["flows"].items()) {
      if (flow.items().size() != 2) end_run("faults.json: a flow of a process is not a pair of names");
      const int ends[] = {node.vertex(flow.items()[0].text()), node.vertex(flow.items()[1].text())};
      for (const std::uint16_t link : node.route(ends[0], ends[1]).links) ++shared_->others[link];
    }
  }
  fluid(true).share_links();
  ++shared_->generation;
  wake(shared_->changes);
}

void Timeline::advance(std::int64_t now) {
  fluid(true).advance(now);
  if (shared_->faults_stamp != faults().stamp) apply_faults();
}

void Timeline::predict() {
  if (shared_->predicted == shared_->generation) return;
  static thread_local std::vector<Task> tasks;
  static thread_local std::vector<Edge> edges;
  static thread_local std::vector<TaskId> active(kMostTasks);
  tasks.assign(shared_->tasks, shared_->tasks + shared_->tasks_used);
  edges.assign(shared_->edges, shared_->edges + shared_->edges_used);
  std::copy_n(shared_->active, shared_->active_count, active.begin());
  std::int32_t count = shared_->active_count;
  std::int64_t time = shared_->time;
  Fluid ahead{tasks.data(),      edges.data(),    active.data(), &count, &time,
              shared_->capacity, shared_->others, nullptr,       nullptr};
  ahead.advance(kNever);
  for (std::size_t id = 0; id < tasks.size(); ++id)
    shared_->tasks[id].predicted = tasks[id].state == State::done ? tasks[id].finish : kNever;
  shared_->predicted = shared_->generation;
}

std::int64_t Timeline::wait(TaskId id) {
  std::optional<Prompt> prompt;
  lock();
  for (;;) {
    const std::int64_t now = now_ns();
    advance(now);
    look_for_dead(now);
    const Task& task = shared_->tasks[id];
    if (task.state == State::done) break;
    predict();
    const std::int64_t end = task.predicted;
    if (end == kNever) {
      const std::uint32_t seen = shared_->changes.load();
      ++shared_->blocked;
      unlock();
      wait_while(shared_->changes, seen);
      lock();
      --shared_->blocked;
      continue;
    }
    if (!prompt) prompt.emplace();
    const std::int64_t left = end - now;
    unlock();
    sleep_until(std::min(left > kLongWait ? now + left * 3 / 5 : end, now + kLongestSleep));
    lock();
  }
  const std::int64_t finish = shared_->tasks[id].finish;
  unlock();
  return finish;
}

bool Timeline::has_ended(TaskId id) {
  lock();
  advance(now_ns());
  const bool result = shared_->tasks[id].state == State::done;
  unlock();
  return result;
}

void Timeline::wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const struct timespec timeout = timespec_of(kLongestSleep);
  futex(const_cast<std::atomic<std::uint32_t>*>(&word), FUTEX_WAIT, value, &timeout);
}

void Timeline::wake(std::atomic<std::uint32_t>& word) {
  word.fetch_add(1);
  futex(&word, FUTEX_WAKE, INT32_MAX, nullptr);
}

bool Timeline::take_memory(int gpu, std::uint64_t bytes) {
  const Gpu& one = description().gpus[static_cast<std::size_t>(gpu)];
  std::uint64_t used = taken_by_others(one);
  lock();
  for (const Process& each : shared_->processes) used += each.pid != 0 ? each.used[gpu] : 0;
  const bool fits = used + bytes <= one.memory_bytes;
  if (fits) shared_->processes[process_].used[gpu] += bytes;
  unlock();
  return fits;
}

void Timeline::give_memory(int gpu, std::uint64_t bytes) {
  lock();
  shared_->processes[process_].used[gpu] -= bytes;
  unlock();
}

std::uint64_t Timeline::memory_used(int gpu) {
  std::uint64_t used = taken_by_others(description().gpus[static_cast<std::size_t>(gpu)]);
  for (const Process& each : processes()) used += each.used[gpu];
  return used;
}

void Timeline::drive(int gpu) { shared_->processes[process_].gpu = gpu; }

std::vector<Process> Timeline::processes() {
  lock();
  look_for_dead(now_ns());
  std::vector<Process> result;
  std::copy_if(std::begin(shared_->processes), std::end(shared_->processes), std::back_inserter(result),
               [](const Process& each) { return each.pid != 0; });
  unlock();
  return result;
}

}  // namespace emulation
