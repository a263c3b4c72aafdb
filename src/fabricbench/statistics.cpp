#include "fabricbench/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fabricbench {

double MedianInterval::relative_half_width() const {
  return median > 0 ? (high - low) / 2 / median : std::numeric_limits<double>::infinity();
}

double quantile(const std::vector<std::int64_t>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double fraction = position - static_cast<double>(below);
  return static_cast<double>(sorted[below]) * (1 - fraction) + static_cast<double>(sorted[above]) * fraction;
}

MedianInterval median_interval(std::vector<std::int64_t> samples) {
  std::sort(samples.begin(), samples.end());
  const double median = quantile(samples, 0.5);
  const auto n = static_cast<double>(samples.size());
  const double reach = 1.96 * std::sqrt(n);
  const auto low = static_cast<std::int64_t>(std::floor((n - reach) / 2));
  const auto high = static_cast<std::int64_t>(std::ceil(1 + (n + reach) / 2));
  if (low < 1 || high > static_cast<std::int64_t>(samples.size())) {
    const double infinity = std::numeric_limits<double>::infinity();
    return {median, -infinity, infinity};
  }
  return {median, static_cast<double>(samples[static_cast<std::size_t>(low - 1)]),
          static_cast<double>(samples[static_cast<std::size_t>(high - 1)])};
}

}  // namespace fabricbench
