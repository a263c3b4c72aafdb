#include "fabricbench/clocks.hpp"

#include <sys/syscall.h>
#include <unistd.h>
#include <ctime>

#include "fabricbench/environment.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace fabricbench {
namespace {

// Whatever the C library says of it.
std::int64_t raw_ns() {
  timespec now{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC_RAW, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

std::uint64_t ticks_now() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return 0;
#endif
}

}  // namespace

ClockCheck::ClockCheck(const Context& context) : context_(context), first_(read(first_mark_)) {}

ClockCheck::Reading ClockCheck::read(device::Mark& mark) {
  context_.shared.barrier();
  const std::int64_t begin = raw_ns();
  Reading reading{now_ns(), begin, ticks_now(), 0};
  if (device::present()) {
    mark.record(context_.stream);
    context_.stream.synchronize();
  }
  // Once all are here, all have read.
  context_.shared.barrier();
  reading.doubt = raw_ns() - begin;
  return reading;
}

std::vector<ClockFault> ClockCheck::faults() {
  device::Mark last_mark;
  const Reading last = read(last_mark);
  const World& world = context_.world;
  const std::int64_t device = device::present() ? last_mark.ns_since(first_mark_) : 0;
  const ClockTimes mine{
      static_cast<double>(last.monotonic - first_.monotonic), static_cast<double>(last.raw - first_.raw),
      static_cast<double>(last.ticks - first_.ticks),         static_cast<double>(device),
      static_cast<double>(last.doubt + first_.doubt),         static_cast<double>(world.node_ranks.front())};
  constexpr int kNumbers = sizeof(ClockTimes) / sizeof(double);
  std::vector<ClockTimes> all(world.rank == 0 ? static_cast<std::size_t>(world.size) : 0);
  mpi_check(MPI_Gather(&mine, kNumbers, MPI_DOUBLE, all.data(), kNumbers, MPI_DOUBLE, 0, world.all), "MPI_Gather");
  context_.shared.advance();
  return world.rank == 0 ? clock_faults(all) : std::vector<ClockFault>{};
}

}  // namespace fabricbench
