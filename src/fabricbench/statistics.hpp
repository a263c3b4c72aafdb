// Order statistics of measured times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fabricbench {

struct MedianInterval {
  double median;
  double low;
  double high;
  // Half the width of the interval over the median; infinite where there are too few samples for an interval.
  double relative_half_width() const;
};

// Median with its nonparametric 95% confidence interval (Hoefler and Belli, SC15, section 3.1.3: the order statistics
// at (n - 1.96 sqrt(n)) / 2 and 1 + (n + 1.96 sqrt(n)) / 2), of times in the order in which they were measured: it is
// wider where iterations depend on each other, by batch means (fabricheck/statistics/iterations.py has the same and its
// source). Fewer than 8 samples have no such interval.
MedianInterval median_interval(const std::vector<std::int64_t>& times);

// The standard error of the rank of the median of times in this order, by batches of five correlation times, ten at
// most; 0 for fewer than 20 times. That of fewer batches is as much larger as Student's t is.
double rank_error(const std::vector<std::int64_t>& times);

// Over how many iterations the times of a series depend on each other: the integrated autocorrelation time of whether
// each is above or below the median, the most that its sum comes to up to five times that (A. Sokal, Monte Carlo
// Methods in Statistical Mechanics, 1997, section 3). 1 where they do not.
double correlation_time(const std::vector<std::int64_t>& times);

// Whether the median is known: half its interval is `half_width` of it at most, and the series is so long that what the
// interval takes the dependence of its iterations for can be trusted, which is 50 times their correlation time (Sokal;
// D. Foreman-Mackey et al., emcee, 2013, section 4).
bool knows_median(const std::vector<std::int64_t>& times, double half_width);

// Quantile q in [0, 1] of `sorted` (not empty), linear between neighbours.
double quantile(const std::vector<std::int64_t>& sorted, double q);

// Nanoseconds that an iteration of a batch typically takes: the median, so that one hiccup counts for nothing. Where a
// group is measured alone and beside an aggressor, an iteration has `parts` consecutive times, which add up. 0 for no
// times.
std::int64_t typical_iteration_ns(const std::vector<std::int64_t>& times, std::size_t parts);

// How many iterations of `iteration_ns` fit into a time; at most 10^9.
std::int64_t affordable_iterations(double seconds, std::int64_t iteration_ns);

// How many operations of `operation_ns` a train has that is to take no longer than that: `most`, or fewer, one at
// least. What a train hides, some 10 us to start an operation, is 0.1% of the 12.5 ms that it has of a budget of 0.1 s.
std::int64_t affordable_train(double seconds, std::int64_t operation_ns, std::int64_t most);

// Longer series are kept whole.
inline constexpr std::size_t kLongestReduced = std::size_t{1} << 20;

// The places from 0 up, ascending, of the values that stand for a sorted series of `count`, up to kLongestReduced:
// every 5%, and those around the middle that an interval of the median can need. The package has the same rule
// (fabricheck/records/order_statistics.py), and tests of both have the same example.
std::vector<std::size_t> kept_ranks(std::size_t count);

// The order statistics of a series at these places; the whole series, as it is, where they are no fewer.
std::vector<std::int64_t> order_statistics(const std::vector<std::int64_t>& times);

// Times of hours in memory that does not grow: their number, order statistics to 0.1%, and the exact maximum.
class TimeCounts {
 public:
  TimeCounts();
  void add(std::int64_t ns);
  void clear();
  std::int64_t count() const { return count_; }
  // The time below or at which that share of them lies (nearest rank); 0 where there is none.
  std::int64_t quantile(double share) const;
  std::int64_t most() const { return most_; }

 private:
  std::vector<std::uint32_t> bins_;
  std::int64_t count_ = 0;
  std::int64_t most_ = 0;
};

}  // namespace fabricbench
