#include "fabricbench/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>

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

namespace {

// Student's t at 95% with 1 to 9 degrees of freedom.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
constexpr std::size_t kBatches = std::size(kStudent) + 1;
constexpr double kTimesOfBatch = 5;  // correlation times

double rank_error_around(double median, const std::vector<std::int64_t>& times) {
  if (times.size() < 2 * kBatches) return 0;
  const double size = static_cast<double>(times.size());
  const auto batches = std::min(kBatches, static_cast<std::size_t>(size / (kTimesOfBatch * correlation_time(times))));
  if (batches < 2) return size;
  const std::size_t length = times.size() / batches;
  double sum = 0;
  double squares = 0;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    const auto end = times.end() - static_cast<std::ptrdiff_t>(batch * length);
    double share = 0;  // half for each time above the median, minus half for each below: equal ones count for none
    std::for_each(end - static_cast<std::ptrdiff_t>(length), end, [&](std::int64_t nanoseconds) {
      const auto time = static_cast<double>(nanoseconds);
      share += time > median ? 0.5 : time < median ? -0.5 : 0;
    });
    share /= static_cast<double>(length);
    sum += share;
    squares += share * share;
  }
  const auto count = static_cast<double>(batches);
  const double variance = std::max(squares - sum * sum / count, 0.0) / (count - 1);
  return std::sqrt(variance / count) * size * kStudent[batches - 2] / kStudent[kBatches - 2];
}

}  // namespace

double rank_error(const std::vector<std::int64_t>& times) {
  std::vector<std::int64_t> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  return rank_error_around(quantile(sorted, 0.5), times);
}

MedianInterval median_interval(const std::vector<std::int64_t>& times) {
  std::vector<std::int64_t> samples = times;
  std::sort(samples.begin(), samples.end());
  const double median = quantile(samples, 0.5);
  const auto n = static_cast<double>(samples.size());
  const double reach =
      std::max(1.96 * std::sqrt(n), 2 * std::min(kStudent[kBatches - 2] * rank_error_around(median, times), n / 2 - 1));
  const auto low = static_cast<std::int64_t>(std::floor((n - reach) / 2));
  const auto high = static_cast<std::int64_t>(std::ceil(1 + (n + reach) / 2));
  if (low < 1 || high > static_cast<std::int64_t>(samples.size())) {
    const double infinity = std::numeric_limits<double>::infinity();
    return {median, -infinity, infinity};
  }
  return {median, static_cast<double>(samples[static_cast<std::size_t>(low - 1)]),
          static_cast<double>(samples[static_cast<std::size_t>(high - 1)])};
}

double correlation_time(const std::vector<std::int64_t>& times) {
  if (times.size() < 2) return 1;
  std::vector<std::int64_t> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const double median = quantile(sorted, 0.5);
  std::vector<double> sides;
  for (const std::int64_t time : times) {
    const auto value = static_cast<double>(time);
    sides.push_back(value > median ? 1 : value < median ? -1 : 0);
  }
  const auto count = static_cast<double>(sides.size());
  const double mean = std::accumulate(sides.begin(), sides.end(), 0.0) / count;
  double variance = 0;
  for (double& side : sides) {
    side -= mean;
    variance += side * side;
  }
  if (variance == 0) return 1;
  double time = 1;
  double longest = 1;
  for (std::size_t lag = 1; lag < sides.size() / 2; ++lag) {
    double product = 0;
    for (std::size_t i = 0; i + lag < sides.size(); ++i) product += sides[i] * sides[i + lag];
    time += 2 * product / variance;
    longest = std::max(longest, time);
    if (static_cast<double>(lag) >= kTimesOfBatch * longest) break;
  }
  return longest;
}

bool knows_median(const std::vector<std::int64_t>& times, double half_width) {
  constexpr double kCorrelationTimes = 50;
  return median_interval(times).relative_half_width() <= half_width &&
         static_cast<double>(times.size()) >= kCorrelationTimes * correlation_time(times);
}

std::int64_t typical_iteration_ns(const std::vector<std::int64_t>& times, std::size_t parts) {
  std::vector<std::int64_t> iterations;
  for (std::size_t i = 0; i + parts <= times.size(); i += parts) {
    const auto first = times.begin() + static_cast<std::ptrdiff_t>(i);
    iterations.push_back(std::accumulate(first, first + static_cast<std::ptrdiff_t>(parts), std::int64_t{0}));
  }
  if (iterations.empty()) return 0;
  std::sort(iterations.begin(), iterations.end());
  return static_cast<std::int64_t>(quantile(iterations, 0.5));
}

std::int64_t affordable_iterations(double seconds, std::int64_t iteration_ns) {
  return static_cast<std::int64_t>(
      std::min(1e9, seconds * 1e9 / static_cast<double>(std::max<std::int64_t>(iteration_ns, 1))));
}

std::int64_t affordable_train(double seconds, std::int64_t operation_ns, std::int64_t most) {
  return std::clamp(affordable_iterations(seconds, operation_ns), std::int64_t{1}, most);
}

std::vector<std::size_t> kept_ranks(std::size_t count) {
  constexpr std::size_t kShares = 20;
  constexpr std::size_t kSteps = 12;  // quarters of a root: six standard deviations of the rank of the median
  if (count == 0) return {};
  const std::size_t last = count - 1;
  const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  std::set<std::size_t> ranks;
  for (std::size_t share = 0; share <= kShares; ++share) ranks.insert(last * share / kShares);
  for (std::size_t step = 0; step <= kSteps; ++step) {
    const std::size_t away = step * root / 4;
    if (away <= last / 2) ranks.insert(last / 2 - away);
    if ((last + 1) / 2 + away <= last) ranks.insert((last + 1) / 2 + away);
  }
  return {ranks.begin(), ranks.end()};
}

std::vector<std::int64_t> order_statistics(const std::vector<std::int64_t>& times) {
  if (times.size() > kLongestReduced) return times;
  const std::vector<std::size_t> ranks = kept_ranks(times.size());
  if (ranks.size() == times.size()) return times;
  std::vector<std::int64_t> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int64_t> kept;
  for (const std::size_t rank : ranks) kept.push_back(sorted[rank]);
  return kept;
}

namespace {

// 512 bins for each power of two: a time is at most 0.1% from the middle of its bin.
constexpr int kBinBits = 9;

std::size_t bin_of(std::uint64_t ns) {
  int shift = 0;
  while (ns >> shift >= std::uint64_t{2} << kBinBits) ++shift;
  return (static_cast<std::size_t>(shift) << kBinBits) + static_cast<std::size_t>(ns >> shift);
}

std::int64_t middle_of(std::size_t bin) {
  if (bin < std::size_t{2} << kBinBits) return static_cast<std::int64_t>(bin);
  const std::size_t shift = (bin >> kBinBits) - 1;
  const std::size_t first = bin - (shift << kBinBits);
  return static_cast<std::int64_t>((first << shift) + (std::size_t{1} << shift) / 2);
}

}  // namespace

TimeCounts::TimeCounts() : bins_(bin_of(std::numeric_limits<std::int64_t>::max()) + 1, 0) {}

void TimeCounts::add(std::int64_t ns) {
  ++bins_[bin_of(static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0)))];
  ++count_;
  most_ = std::max(most_, ns);
}

void TimeCounts::clear() {
  std::fill(bins_.begin(), bins_.end(), 0);
  count_ = 0;
  most_ = 0;
}

std::int64_t TimeCounts::quantile(double share) const {
  std::int64_t left =
      std::max<std::int64_t>(static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count_))), 1);
  for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
    left -= bins_[bin];
    if (left <= 0) return std::min(middle_of(bin), most_);
  }
  return 0;
}

}  // namespace fabricbench
