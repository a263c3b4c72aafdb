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
  const std::uint64_t seed = pattern::seed(3, 7);
  const auto base = [&](std::uint64_t i) { return pattern::byte_at(seed, i); };
  const auto unrelated = [&](double share) { return std::abs(share - 1.0 / 256) < 0.004; };
  CHECK(
      unrelated(share_of_equal_bytes(base, [&](std::uint64_t i) { return pattern::byte_at(pattern::seed(4, 7), i); })));
  CHECK(
      unrelated(share_of_equal_bytes(base, [&](std::uint64_t i) { return pattern::byte_at(pattern::seed(3, 8), i); })));
  for (const std::uint64_t shift : {1u, 4u, 8u, 64u, 4096u}) {
    CHECK(unrelated(share_of_equal_bytes(base, [&](std::uint64_t i) { return pattern::byte_at(seed, i + shift); })));
  }
}

TEST(pattern_bytes_are_those_of_its_words) {
  for (std::uint64_t position = 0; position < 64; ++position) {
    CHECK_EQUAL(pattern::byte_at(5, position),
                static_cast<std::uint8_t>(pattern::bytes_of_word(5, position / 8) >> (8 * (position % 8))));
  }
}

TEST(pattern_floats_are_small_whole_numbers) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const float value = pattern::float_at(9, i);
    CHECK(value >= 0 && value < 256 && value == std::floor(value));
  }
}

TEST(pattern_counts_differing_bytes) {
  CHECK_EQUAL(pattern::differing_bytes(0, 0), 0);
  CHECK_EQUAL(pattern::differing_bytes(0, 0x0100000000000001ULL), 2);
  CHECK_EQUAL(pattern::differing_bytes(0, ~0ULL), 8);
}

TEST(the_processor_finds_every_byte_that_is_wrong) {
  for (const std::size_t bytes : {1u, 7u, 8u, 64u, 1003u}) {
    for (const std::uint64_t position : {0u, 3u, 8u}) {
      std::vector<unsigned char> data(bytes);
      device::fill_on_host(data.data(), bytes, position, 42, device::Content::bytes, false);
      const auto wrong = [&](std::uint64_t seed) {
        return device::count_wrong_on_host(data.data(), bytes, position, seed, device::Content::bytes);
      };
      CHECK_EQUAL(wrong(42), 0u);
      for (std::size_t i = 0; i < bytes; ++i) {
        data[i] = static_cast<unsigned char>(data[i] ^ 1U);
        CHECK_EQUAL(wrong(42), 1u);
        data[i] = static_cast<unsigned char>(data[i] ^ 1U);
      }
      device::fill_on_host(data.data(), bytes, position, 42, device::Content::bytes, true);
      CHECK_EQUAL(wrong(42), bytes);
    }
  }
}

TEST(ranges_are_read_as_they_are_written) {
  CHECK_EQUAL(parse_ranges("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  CHECK_EQUAL(parse_ranges("0"), (std::vector<int>{0}));
  CHECK(parse_ranges("").empty());
  CHECK_EQUAL(format_ranges(parse_ranges("0-3,8")), "0-3,8");
}
