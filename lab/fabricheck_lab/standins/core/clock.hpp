// The clock that all processes of a machine share.
#pragma once

#include <time.h>

#include <cstdint>

namespace emulation {

inline std::int64_t now_ns() {
  struct timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

inline struct timespec timespec_of(std::int64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace emulation
