// How a process that sleeps until a deadline wakes at it, on a machine with fewer cores than processes.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace emulation {

constexpr std::uint64_t kShortestSlice = 100'000;  // nanoseconds, that Linux grants

struct Scheduling {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime, deadline, period;
};

// With more processes than cores, and ranks that wait by spinning, a process that has slept would run milliseconds
// late. While this lives it runs as soon as it wakes: as a real-time process where that is allowed (as root). Before
// and after, Linux 6.12 and later are asked to let it run in short slices. Failing all that, times are what they are.
class Prompt {
 public:
  Prompt() {
    Scheduling before{};
    if (!allowed || syscall(SYS_sched_getattr, 0, &before, sizeof before, 0) != 0 || before.policy != SCHED_OTHER)
      return;
    nice_ = before.nice;
    Scheduling wanted{};
    wanted.size = sizeof wanted;
    wanted.policy = SCHED_FIFO;
    wanted.priority = 1;
    allowed = is_prompt_ = syscall(SYS_sched_setattr, 0, &wanted, 0) == 0;
  }
  ~Prompt() {
    if (is_prompt_) ask_for_short_slices(nice_);
  }
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  static void ask_for_short_slices(int nice) {
    Scheduling wanted{};
    wanted.size = sizeof wanted;
    wanted.policy = SCHED_OTHER;
    wanted.nice = nice;
    wanted.runtime = kShortestSlice;
    syscall(SYS_sched_setattr, 0, &wanted, 0);
  }

 private:
  static inline std::atomic<bool> allowed{true};
  bool is_prompt_ = false;
  int nice_ = 0;
};

}  // namespace emulation
