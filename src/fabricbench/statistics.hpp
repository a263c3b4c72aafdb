// Order statistics of measured times.
#pragma once

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

}  // namespace fabricbench
