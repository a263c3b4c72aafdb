#include <cmath>
#include <vector>

#include "check.hpp"
#include "fabricbench/device/content.hpp"
#include "fabricbench/device/pattern.hpp"
#include "fabricbench/text.hpp"

namespace device = fabricbench::device;
namespace pattern = fabricbench::pattern;
using fabricbench::format_ranges;
using fabricbench::parse_ranges;

namespace {

template <typename A, typename B>
double share_of_equal_bytes(A&& a, B&& b) {
  int equal = 0;
  constexpr int kBytes = 4096;
  for (std::uint64_t i = 0; i < kBytes; ++i) equal += a(i) == b(i) ? 1 : 0;
  return equal / double{kBytes};
}

}  // namespace

// Two unrelated patterns agree in one byte of 256; four standard deviations over 4096 bytes are 0.004.
TEST(pattern_depends_on_rank_iteration_and_position) {
  const auto pattern_of = [](std::uint64_t rank, std::uint64_t iteration) {
    return pattern::of(rank, {iteration, iteration, 8});
  };
  const pattern::Pattern base_pattern = pattern_of(3, 7);
  const auto base = [&](std::uint64_t i) { return pattern::byte_at(base_pattern, i); };
  const auto unrelated = [&](double share) { return std::abs(share - 1.0 / 256) < 0.004; };
  const auto of = [](const pattern::Pattern& other) {
    return [other](std::uint64_t i) { return pattern::byte_at(other, i); };
  };
  CHECK(unrelated(share_of_equal_bytes(base, of(pattern_of(4, 7)))));
  CHECK(unrelated(share_of_equal_bytes(base, of(pattern_of(3, 8)))));
  for (const std::uint64_t shift : {1u, 4u, 8u, 64u, 4096u}) {
    CHECK(unrelated(
        share_of_equal_bytes(base, [&](std::uint64_t i) { return pattern::byte_at(base_pattern, i + shift); })));
  }
}

TEST(pattern_bytes_are_those_of_its_words) {
  const pattern::Pattern data = pattern::of(5, {1, 2, 16});
  for (std::uint64_t position = 0; position < 64; ++position) {
    CHECK_EQUAL(pattern::byte_at(data, position),
                static_cast<std::uint8_t>(pattern::bytes_of_word(data, position / 8) >> (8 * (position % 8))));
  }
}

TEST(stamps_alone_are_new_in_the_next_iteration) {
  const pattern::Pattern first = pattern::of(3, {7, 7, 64});
  const pattern::Pattern next = pattern::of(3, {7, 8, 64});
  for (std::uint64_t word = 0; word < 64; ++word)
    CHECK_EQUAL(pattern::bytes_of_word(first, word) != pattern::bytes_of_word(next, word), word % 8 == 0);
}

TEST(every_message_holds_a_whole_stamp_in_each_64_KiB_wherever_it_begins) {
  for (const std::uint64_t bytes : {16u, 31u, 32u, 1000u, 65536u, 131072u, 1u << 24}) {
    const std::uint64_t stride = pattern::stride_for(bytes);
    CHECK(stride <= 65536);
    CHECK(stride == 8 || 2 * stride <= bytes);
  }
  CHECK_EQUAL(pattern::stride_for(1), 8u);
  CHECK_EQUAL(pattern::stride_for(std::uint64_t{1} << 30), 65536u);
}

TEST(sums_of_floats_are_those_of_their_places) {
  const pattern::Moment moment{1, 2, 16};
  for (const std::uint64_t ranks : {1u, 2u, 255u, 256u, 257u, 1000u}) {
    for (std::uint64_t index = 0; index < 100; ++index) {
      float sum = 0;
      for (std::uint64_t place = 0; place < ranks; ++place) {
        const float value = pattern::float_at(pattern::of(9, moment, place), index);
        CHECK(value >= 0 && value < 256 && value == std::floor(value));
        sum += value;
      }
      CHECK_EQUAL(pattern::sum_at(pattern::of(9, moment), index, ranks), sum);
    }
  }
}

TEST(pattern_counts_differing_bytes) {
  CHECK_EQUAL(pattern::differing_bytes(0, 0), 0);
  CHECK_EQUAL(pattern::differing_bytes(0, 0x0100000000000001ULL), 2);
  CHECK_EQUAL(pattern::differing_bytes(0, ~0ULL), 8);
}

TEST(the_processor_finds_every_byte_that_is_wrong) {
  const pattern::Moment moment{1, 2, 64};
  const pattern::Pattern sent = pattern::of(42, moment);
  for (const std::size_t bytes : {1u, 7u, 8u, 64u, 1003u}) {
    for (const std::uint64_t position : {0u, 3u, 8u}) {
      std::vector<unsigned char> data(bytes);
      const pattern::Stretch stretch{data.data(), bytes, position, 42};
      device::fill_on_host(stretch, sent, device::Content::bytes, false, false);
      const auto wrong = [&](bool stamps_only) {
        return device::count_wrong_on_host({&stretch, 1, moment, 0, stamps_only ? 1U : 0U});
      };
      CHECK_EQUAL(wrong(false), 0u);
      for (std::size_t i = 0; i < bytes; ++i) {
        data[i] = static_cast<unsigned char>(data[i] ^ 1U);
        CHECK_EQUAL(wrong(false), 1u);
        CHECK_EQUAL(wrong(true), (position + i) % 64 < 8 ? 1u : 0u);
        data[i] = static_cast<unsigned char>(data[i] ^ 1U);
      }
      device::fill_on_host(stretch, sent, device::Content::bytes, true, false);
      CHECK_EQUAL(wrong(false), bytes);
    }
  }
}

TEST(data_of_the_iteration_before_have_wrong_stamps) {
  std::vector<unsigned char> data(1003);
  const pattern::Stretch stretch{data.data(), data.size(), 5, 42};
  device::fill_on_host(stretch, pattern::of(42, {1, 2, 64}), device::Content::bytes, false, false);
  CHECK(device::count_wrong_on_host({&stretch, 1, {1, 3, 64}, 0, 1}) > 0);
  device::fill_on_host(stretch, pattern::of(42, {1, 3, 64}), device::Content::bytes, false, true);
  CHECK_EQUAL(device::count_wrong_on_host({&stretch, 1, {1, 3, 64}, 0, 0}), 0u);
}

TEST(the_processor_finds_wrong_sums) {
  const pattern::Moment moment{1, 2, 16};
  std::vector<float> sums(100);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = pattern::sum_at(pattern::of(42, moment), i + 3, 5);
  const pattern::Stretch stretch{sums.data(), 4 * sums.size(), 12, 42};
  CHECK_EQUAL(device::count_wrong_on_host({&stretch, 1, moment, 5, 0}), 0u);
  sums[1] += 1;  // element 4, in the stamp at byte 16
  CHECK(device::count_wrong_on_host({&stretch, 1, moment, 5, 1}) > 0);
}

TEST(ranges_are_read_as_they_are_written) {
  CHECK_EQUAL(parse_ranges("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  CHECK_EQUAL(parse_ranges("0"), (std::vector<int>{0}));
  CHECK(parse_ranges("").empty());
  CHECK_EQUAL(format_ranges(parse_ranges("0-3,8")), "0-3,8");
}
