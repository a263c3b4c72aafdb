// Whether the clocks by which everything is timed run as others do: the kernel's that nothing steers, the processor's
// counter, those of the other ranks, and the device's.
#pragma once

#include <string>
#include <vector>

namespace fabricbench {

struct ClockFault {
  int rank;
  std::string clock;
  std::string against;
  double ratio;  // of how fast they run
};

// What passed on a rank between two readings, in nanoseconds of the clock that is meant.
struct ClockTimes {
  double monotonic;  // by the C library, as all times are taken
  double raw;        // CLOCK_MONOTONIC_RAW, by the kernel itself
  double ticks;      // of the processor's counter; 0 where it has none
  double device;     // 0 where there is none
  double doubt;      // how far apart the ranks may have read
  double node;       // the first rank of its node
};
// Those that are further apart than steering explains (NTP slews by 500 ppm at most), by rank.
std::vector<ClockFault> clock_faults(const std::vector<ClockTimes>& times);

}  // namespace fabricbench
