#include <random>

#include "check.hpp"
#include "fabricbench/clock_faults.hpp"

using namespace fabricbench;

namespace {

constexpr double kSecond = 1e9;

// Ranks whose clocks are read up to 1 ms apart, as the barriers around it say, and steered by up to 500 ppm.
std::vector<ClockTimes> honest(std::mt19937& chance, int ranks, double seconds) {
  std::uniform_real_distribution<double> part(-1, 1);
  std::vector<ClockTimes> times;
  for (int rank = 0; rank < ranks; ++rank) {
    const double raw = seconds * kSecond + 0.5e6 * part(chance);
    times.push_back({raw * (1 + 500e-6 * part(chance)), raw, 2.5 * raw, raw * (1 + 20e-6 * part(chance)), 1e6,
                     static_cast<double>(rank / 4)});
  }
  return times;
}

}  // namespace

TEST(clocks_that_are_steered_and_read_at_different_times_are_right) {
  std::mt19937 chance(1);
  for (const double seconds : {0.01, 0.3, 5.0, 3000.0})
    for (const int ranks : {1, 2, 3, 16}) CHECK(clock_faults(honest(chance, ranks, seconds)).empty());
}

TEST(a_clock_that_is_wrong_is_found_with_its_rank) {
  std::mt19937 chance(2);
  for (const double rate : {0.97, 0.99, 1.01, 1.03}) {
    for (const auto clock : {&ClockTimes::monotonic, &ClockTimes::raw, &ClockTimes::ticks, &ClockTimes::device}) {
      for (const int ranks : {3, 16}) {
        std::vector<ClockTimes> times = honest(chance, ranks, 2.0);
        times[2].*clock *= rate;
        const std::vector<ClockFault> faults = clock_faults(times);
        CHECK(!faults.empty());
        for (const ClockFault& fault : faults) CHECK_EQUAL(fault.rank, 2);
      }
    }
  }
}

TEST(what_all_ranks_time_by_is_held_against_the_clock_that_nothing_steers) {
  std::mt19937 chance(3);
  std::vector<ClockTimes> times = honest(chance, 4, 1.0);
  for (ClockTimes& of_rank : times) of_rank.monotonic *= 0.97;
  CHECK_EQUAL(clock_faults(times).size(), 4u);
}
