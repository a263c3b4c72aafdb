#include <cmath>

#include "check.hpp"
#include "fabricbench/device/pattern.hpp"

namespace pattern = fabricbench::pattern;

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
