#include "fabricbench/clock_faults.hpp"

#include <algorithm>
#include <cmath>

namespace fabricbench {
namespace {

constexpr double kMostApart = 0.005;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

std::vector<ClockFault> clock_faults(const std::vector<ClockTimes>& times) {
  std::vector<double> raw;
  for (const ClockTimes& of_rank : times) raw.push_back(of_rank.raw);
  const double passed = median(raw);
  std::vector<ClockFault> faults;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    const ClockTimes& own = times[rank];
    const auto compare = [&](const char* clock, double ns, const char* against, double expected, double doubt) {
      if (ns > 0 && std::abs(ns - expected) > kMostApart * expected + doubt)
        faults.push_back({static_cast<int>(rank), clock, against, ns / expected});
    };
    double doubt = 0;
    std::vector<double> rates;
    for (const ClockTimes& other : times) {
      doubt = std::max(doubt, other.doubt);
      if (other.node == own.node) rates.push_back(other.ticks / other.raw);
    }
    compare("CLOCK_MONOTONIC", own.monotonic, "CLOCK_MONOTONIC_RAW", own.raw, own.doubt);
    compare("CLOCK_MONOTONIC_RAW", own.raw, "that of the other ranks", passed, doubt);
    compare("the processor's counter", own.ticks / median(rates), "CLOCK_MONOTONIC_RAW", own.raw, own.doubt);
    compare("the GPU's clock", own.device, "CLOCK_MONOTONIC_RAW", own.raw, own.doubt);
  }
  return faults;
}

}  // namespace fabricbench
