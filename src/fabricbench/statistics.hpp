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
// at (n - 1.96 sqrt(n)) / 2 and 1 + (n + 1.96 sqrt(n)) / 2). Fewer than 8 samples have no such interval.
MedianInterval median_interval(std::vector<std::int64_t> samples);

// Quantile q in [0, 1] of `sorted` (not empty), linear between neighbours.
double quantile(const std::vector<std::int64_t>& sorted, double q);

// Nanoseconds that an iteration of a batch typically takes: the median, so that one hiccup counts for nothing. Where a
// group is measured alone and beside an aggressor, an iteration has `parts` consecutive times, which add up. 0 for no
// times.
std::int64_t typical_iteration_ns(const std::vector<std::int64_t>& times, std::size_t parts);

// How many iterations of `iteration_ns` fit into a time; at most 10^9.
std::int64_t affordable_iterations(double seconds, std::int64_t iteration_ns);

}  // namespace fabricbench
