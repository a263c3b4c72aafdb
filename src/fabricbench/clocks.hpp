// Reads the clocks of all ranks before and after everything is timed.
#pragma once

#include <cstdint>
#include <vector>

#include "fabricbench/clock_faults.hpp"
#include "fabricbench/transports/transport.hpp"

namespace fabricbench {

// From its construction to faults(), which all ranks call; the faults are on rank 0.
class ClockCheck {
 public:
  explicit ClockCheck(const Context& context);
  std::vector<ClockFault> faults();

 private:
  struct Reading {
    std::int64_t monotonic;
    std::int64_t raw;
    std::uint64_t ticks;
    std::int64_t doubt;
  };
  Reading read(device::Mark& mark);

  const Context& context_;
  device::Mark first_mark_;
  Reading first_;
};

}  // namespace fabricbench
