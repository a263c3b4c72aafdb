#include <algorithm>
#include <cmath>
#include <random>

#include "check.hpp"
#include "fabricbench/statistics.hpp"

using namespace fabricbench;

TEST(median_of_odd_and_even_counts) {
  CHECK_EQUAL(median_interval({5, 1, 3}).median, 3.0);
  CHECK_EQUAL(median_interval({4, 1, 3, 2}).median, 2.5);
}

TEST(interval_of_ten_samples_is_the_second_to_the_tenth) {
  const MedianInterval interval = median_interval({10, 9, 8, 7, 6, 5, 4, 3, 2, 1});
  CHECK_EQUAL(interval.low, 1.0);
  CHECK_EQUAL(interval.high, 10.0);
}

TEST(too_few_samples_have_no_interval) {
  CHECK(std::isinf(median_interval({1, 2, 3, 4, 5}).relative_half_width()));
  CHECK(!std::isinf(median_interval({1, 2, 3, 4, 5, 6, 7, 8, 9}).relative_half_width()));
}

// Share of 4000 series of lognormal times whose neighbours are correlated so that the interval holds the median.
double coverage(double correlation, std::size_t count) {
  std::mt19937_64 random(20261121);
  std::normal_distribution<double> noise(0, 1);
  const double truth = std::exp(10.0);
  int covered = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<std::int64_t> samples(count);
    double state = noise(random);
    for (auto& sample : samples) {
      sample = std::llround(std::exp(10 + 0.5 * state));
      state = correlation * state + std::sqrt(1 - correlation * correlation) * noise(random);
    }
    const MedianInterval interval = median_interval(samples);
    covered += interval.low <= truth && truth <= interval.high ? 1 : 0;
  }
  return static_cast<double>(covered) / kTrials;
}

TEST(interval_covers_the_median_as_often_as_it_says) {
  // Nominal 95%, rounded outwards and the wider of two; four standard deviations of 4000 trials are 1.4 points.
  CHECK(coverage(0, 100) > 0.936);
  CHECK(coverage(0, 100) < 0.995);
}

TEST(interval_knows_that_iterations_depend_on_each_other) {
  CHECK(coverage(0.5, 200) > 0.92);
  CHECK(coverage(0.9, 800) > 0.92);
  CHECK(coverage(0.98, 400) > 0.9);
}

TEST(times_that_rise_all_the_time_have_a_wide_interval_and_equal_ones_none) {
  std::vector<std::int64_t> rising;
  for (std::int64_t i = 0; i < 100; ++i) rising.push_back(i);
  const MedianInterval interval = median_interval(rising);
  CHECK_EQUAL(interval.low, 0.0);
  CHECK_EQUAL(interval.high, 99.0);
  CHECK_EQUAL(median_interval(std::vector<std::int64_t>(100, 7)).relative_half_width(), 0.0);
}

TEST(quantiles_are_linear_between_neighbours) {
  CHECK_EQUAL(quantile({0, 10}, 0.25), 2.5);
  CHECK_EQUAL(quantile({7}, 0.95), 7.0);
}

TEST(one_hiccup_does_not_say_how_long_an_iteration_takes) {
  // The last of twenty iterations of 1 us took 0.6 s: half a second is still room for 500,000.
  std::vector<std::int64_t> times(20, 1000);
  times.back() = 600'000'000;
  CHECK_EQUAL(typical_iteration_ns(times, 1), 1000);
  CHECK_EQUAL(affordable_iterations(0.5, typical_iteration_ns(times, 1)), 500'000);
}

TEST(an_iteration_alone_and_beside_an_aggressor_is_both_times) {
  CHECK_EQUAL(typical_iteration_ns({1, 10, 2, 20, 1, 9000}, 2), 22);
  CHECK_EQUAL(typical_iteration_ns({}, 1), 0);
}

TEST(no_time_affords_nothing_and_any_time_a_bounded_number) {
  CHECK_EQUAL(affordable_iterations(0, 1000), 0);
  CHECK_EQUAL(affordable_iterations(1, 0), 1'000'000'000);
  CHECK_EQUAL(affordable_iterations(0.5, 600'000'000), 0);
}

TEST(a_train_has_the_operations_that_fit_into_its_time) {
  CHECK_EQUAL(affordable_train(0.0125, 2'000, 32), 32);
  CHECK_EQUAL(affordable_train(0.0125, 1'250'000, 32), 10);
  CHECK_EQUAL(affordable_train(0.0125, 600'000'000, 32), 1);
  CHECK_EQUAL(affordable_train(0.0125, 0, 32), 32);
}

// tests/records/test_order_statistics.py has the same.
TEST(a_long_series_is_kept_as_order_statistics) {
  CHECK_EQUAL(kept_ranks(1), (std::vector<std::size_t>{0}));
  CHECK_EQUAL(kept_ranks(100), (std::vector<std::size_t>{0,  4,  9,  14, 19, 22, 24, 27, 29, 32, 34, 37, 39, 42,
                                                         44, 47, 49, 50, 52, 54, 55, 57, 59, 60, 62, 64, 65, 67,
                                                         69, 70, 72, 74, 75, 77, 79, 80, 84, 89, 94, 99}));
  std::vector<std::int64_t> times;
  for (std::int64_t i = 0; i < 100; ++i) times.push_back(99 - i);
  const std::vector<std::int64_t> kept = order_statistics(times);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK_EQUAL(kept[i], static_cast<std::int64_t>(kept_ranks(100)[i]));
  const std::vector<std::int64_t> few{3, 1, 2};
  CHECK_EQUAL(order_statistics(few), few);
  CHECK(kept_ranks(1000).size() < 50);
}

// tests/records/test_order_statistics.py has the same.
TEST(how_far_the_rank_of_the_median_strays_is_known_of_a_series_in_order) {
  std::vector<std::int64_t> times;
  for (std::int64_t i = 0; i < 100; ++i) times.push_back(i);
  CHECK_EQUAL(rank_error(times), 100.0);
  times.clear();
  for (std::int64_t i = 0; i < 200; ++i) times.push_back(i / 10 * 37 % 101);
  CHECK(std::abs(rank_error(times) - 36.32392) < 1e-2);
  CHECK_EQUAL(rank_error({1, 2, 3}), 0.0);
}

// Share of 200 series of times with a spread of 2%, whose neighbours are correlated so, that are taken for known to 1%.
double share_known(double correlation, std::size_t count) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  int known = 0;
  for (int series = 0; series < 200; ++series) {
    double value = normal(random);
    std::vector<std::int64_t> times;
    for (std::size_t i = 0; i < count; ++i) {
      times.push_back(static_cast<std::int64_t>(1e6 * (1 + 0.02 * value)));
      value = correlation * value + std::sqrt(1 - correlation * correlation) * normal(random);
    }
    known += knows_median(times, 0.01) ? 1 : 0;
  }
  return known / 200.0;
}

TEST(a_median_is_known_only_after_many_times_as_long_as_iterations_depend_on_each_other) {
  CHECK(share_known(0, 200) > 0.95);
  CHECK(share_known(0.5, 400) > 0.95);
  // By their intervals alone every second of these would be, and half of those wrongly.
  CHECK(share_known(0.98, 400) < 0.1);
}

TEST(the_correlation_time_is_that_of_independent_or_dependent_iterations) {
  std::vector<std::int64_t> alternating;
  std::vector<std::int64_t> slow;
  std::mt19937_64 random(4);
  for (std::int64_t i = 0; i < 400; ++i) {
    alternating.push_back(i % 2);
    slow.push_back(i % 20 == 0 ? static_cast<std::int64_t>(random() >> 32) : slow.back());
  }
  CHECK_EQUAL(correlation_time(alternating), 1.0);
  CHECK(correlation_time(slow) > 10);
  CHECK_EQUAL(correlation_time({7, 7, 7, 7}), 1.0);
  CHECK_EQUAL(correlation_time({7}), 1.0);
}

TEST(order_statistics_of_counted_times_are_within_a_thousandth) {
  TimeCounts counts;
  CHECK_EQUAL(counts.quantile(0.5), 0);
  std::vector<std::int64_t> times;
  std::mt19937_64 random(5);
  for (int i = 0; i < 10001; ++i) times.push_back(static_cast<std::int64_t>(random() >> (20 + random() % 40)));
  for (const std::int64_t time : times) counts.add(time);
  std::sort(times.begin(), times.end());
  for (const double share : {0.01, 0.5, 0.99}) {
    const std::int64_t exact = times[static_cast<std::size_t>(std::ceil(share * 10001)) - 1];
    CHECK(std::abs(static_cast<double>(counts.quantile(share) - exact)) <= 0.001 * static_cast<double>(exact));
  }
  CHECK_EQUAL(counts.count(), 10001);
  CHECK_EQUAL(counts.most(), times.back());
  CHECK(counts.quantile(1) <= counts.most());
  counts.clear();
  CHECK_EQUAL(counts.count() + counts.most() + counts.quantile(0.5), 0);
}
