// Times in which a process did not run although it wanted to: stopped, throttled by its cgroup, or on a machine that
// stood still.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace fabricbench {

// How often the watchdog wakes, and how late it wakes where the process was paused. A scheduler that shares a core
// gives it back within some milliseconds (sched(7), EEVDF's base slice is 3 ms), also among a few processes.
constexpr auto kTick = std::chrono::milliseconds(20);
constexpr auto kPaused = std::chrono::milliseconds(50);

// Those of one rank since its measurements began.
struct Pauses {
  std::int64_t count = 0;
  std::int64_t total_ns = 0;
  std::int64_t longest_ns = 0;
  std::vector<std::int64_t> at_ms;  // of the first ones
  std::int64_t throttled_ns = 0;    // by the quota of its cgroup

  // A wake-up `at` nanoseconds after the first measurement, `late` nanoseconds after its time.
  void add(std::int64_t at_ns, std::int64_t late_ns);
  // As JSON, without what is zero; empty text where nothing paused.
  std::string json() const;
};

// For how long the kernel has kept this process from running by the CPU quota of its cgroup or one above it, in
// nanoseconds: cpu.stat of cgroup v2 (throttled_usec) or v1 (throttled_time). 0 where nothing says so. `proc` and
// `sys`: where those file systems are.
std::int64_t throttled_ns(const std::string& proc = "/proc", const std::string& sys = "/sys/fs/cgroup");

}  // namespace fabricbench
