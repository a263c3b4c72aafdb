#include <algorithm>
#include <cmath>
#include <vector>

#include "check.hpp"
#include "fabricbench/data_types.hpp"
#include "fabricbench/device/content.hpp"
#include "fabricbench/device/pattern.hpp"
#include "fabricbench/text.hpp"

namespace device = fabricbench::device;
namespace pattern = fabricbench::pattern;
using fabricbench::all_data_types;
using fabricbench::DataType;
using fabricbench::DataTypeRow;
using fabricbench::describe;
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

// The number at place `i` of a word, and a number as the nearest that a format holds.
double decoded(std::uint64_t word, std::uint64_t i, const pattern::Format& format) {
  const std::uint64_t width = 8 * format.bytes;
  const std::uint64_t bits = word >> (width * i) & (~std::uint64_t{0} >> (64 - width));
  if (bits == 0) return 0;
  const double fraction =
      std::ldexp(static_cast<double>(bits % (1u << format.mantissa)), -static_cast<int>(format.mantissa));
  return std::ldexp(1 + fraction, static_cast<int>(bits >> format.mantissa) - static_cast<int>(format.bias));
}
double rounded(double number, const pattern::Format& format) {
  if (number == 0) return 0;
  const int shift = static_cast<int>(format.mantissa) - std::ilogb(number);
  return std::ldexp(std::nearbyint(std::ldexp(number, shift)), -shift);
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

TEST(every_message_holds_a_whole_stamp_in_each_page_wherever_it_begins) {
  for (const std::uint64_t bytes : {16u, 31u, 32u, 1000u, 65536u, 131072u, 1u << 24}) {
    const std::uint64_t stride = pattern::stride_for(bytes);
    CHECK(stride <= 4096);
    CHECK(stride == 8 || 2 * stride <= bytes);
  }
  CHECK_EQUAL(pattern::stride_for(1), 8u);
  CHECK_EQUAL(pattern::stride_for(std::uint64_t{1} << 30), 4096u);
}

TEST(each_operation_has_a_slot_of_its_own_in_some_turn) {
  for (const std::uint64_t operations : {1u, 2u, 3u, 16u, 64u, 255u}) {
    for (std::uint64_t slots = std::min<std::uint64_t>(operations, 3); slots <= operations; slots += 1 + slots / 3) {
      pattern::Ring ring{operations, slots, 64, 5};
      std::vector<int> alone(operations);
      for (std::uint64_t turn = 0; turn < ring.turns(); ++turn, ++ring.turn) {
        std::vector<int> users(ring.used());
        for (std::uint64_t i = 0; i < operations; ++i) ++users.at(ring.shift_of(i) / 64);
        for (const int number : users) CHECK(number > 0);
        for (std::uint64_t i = 1; i < operations; ++i) CHECK(ring.shift_of(i) != ring.shift_of(i - 1));
        for (std::uint64_t i = 0; i < operations; ++i) alone[i] += users[ring.shift_of(i) / 64] == 1 ? 1 : 0;
      }
      for (const int times : alone) CHECK(times > 0);
      CHECK_EQUAL(ring.turns() == 1, slots == operations);
    }
  }
}

// Added up as a device does it, with each partial sum rounded to the type.
TEST(sums_are_exact_in_every_type_for_any_number_of_ranks) {
  const pattern::Moment moment{1, 2, 16};
  for (const DataTypeRow& row : all_data_types()) {
    for (const std::uint64_t ranks : {1u, 2u, 8u, 255u, 256u, 257u, 1000u}) {
      const pattern::Summands summands = pattern::summands_of(ranks, row.format);
      std::uint64_t numbers = 0;
      for (std::uint64_t word = 0; word < 50; ++word) {
        const std::uint64_t sums = pattern::numbers_of_word(pattern::of(9, moment, summands), word, true);
        for (std::uint64_t i = 0; i < 8 / row.format.bytes; ++i) {
          double sum = 0;
          for (std::uint64_t place = 0; place < ranks; ++place) {
            const double number =
                decoded(pattern::numbers_of_word(pattern::of(9, moment, summands, place), word, false), i, row.format);
            CHECK(number >= 0 && number < 256 && number == std::floor(number));
            numbers += number > 0 ? 1 : 0;
            sum = rounded(sum + number, row.format);
          }
          CHECK_EQUAL(decoded(sums, i, row.format), sum);
        }
      }
      CHECK(numbers > 50);
    }
  }
}

TEST(what_one_rank_left_out_shows_in_some_sum_of_every_type) {
  const pattern::Moment moment{1, 2, 16};
  for (const DataTypeRow& row : all_data_types()) {
    for (const std::uint64_t ranks : {2u, 8u, 1000u}) {
      const pattern::Summands summands = pattern::summands_of(ranks, row.format);
      int shown = 0;
      for (std::uint64_t word = 0; word < 1024; ++word)
        shown += pattern::numbers_of_word(pattern::of(9, moment, summands, ranks / 2), word, false) != 0 ? 1 : 0;
      CHECK(shown > 0);
    }
  }
}

TEST(numbers_are_stored_as_the_standards_say) {
  const auto stored = [](std::uint64_t number, DataType type) {
    return pattern::encode(number, describe(type).format);
  };
  CHECK_EQUAL(stored(3, DataType::float32), 0x40400000u);
  CHECK_EQUAL(stored(3, DataType::float16), 0x4200u);
  CHECK_EQUAL(stored(3, DataType::bfloat16), 0x4040u);
  CHECK_EQUAL(stored(3, DataType::float8_e4m3), 0x44u);
  CHECK_EQUAL(stored(3, DataType::float8_e5m2), 0x42u);
  for (const DataTypeRow& row : all_data_types()) CHECK_EQUAL(stored(0, row.type), 0u);
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
        return device::count_wrong_on_host({&stretch, 1, moment, {}, stamps_only ? 1U : 0U});
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
  CHECK(device::count_wrong_on_host({&stretch, 1, {1, 3, 64}, {}, 1}) > 0);
  device::fill_on_host(stretch, pattern::of(42, {1, 3, 64}), device::Content::bytes, false, true);
  CHECK_EQUAL(device::count_wrong_on_host({&stretch, 1, {1, 3, 64}, {}, 0}), 0u);
}

TEST(every_wrong_byte_of_a_sum_is_found_in_every_type) {
  const pattern::Moment moment{1, 2, 16};
  for (const DataTypeRow& row : all_data_types()) {
    const pattern::Summands summands = pattern::summands_of(1, row.format);
    for (const std::size_t bytes : {404u, 2404u}) {  // few, and so many that the processor makes a table of numbers
      std::vector<unsigned char> sums(bytes);
      // The sum over one rank is what it sends.
      const pattern::Stretch stretch{sums.data(), sums.size(), 12, 42};
      device::fill_on_host(stretch, pattern::of(42, moment, summands), device::Content::numbers, false, false);
      CHECK_EQUAL(pattern::wrong_in_stretch({&stretch, 1, moment, summands, 0}, 0, 0, 1), 0u);
      const auto wrong = [&](bool stamps_only) {
        return device::count_wrong_on_host({&stretch, 1, moment, summands, stamps_only ? 1U : 0U});
      };
      CHECK_EQUAL(wrong(false), 0u);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] = static_cast<unsigned char>(sums[i] ^ 1U);
        CHECK_EQUAL(wrong(false), 1u);
        CHECK_EQUAL(wrong(true), (12 + i) % 16 < 8 ? 1u : 0u);
        sums[i] = static_cast<unsigned char>(sums[i] ^ 1U);
      }
    }
  }
}

TEST(all_workers_together_count_each_wrong_byte_once) {
  const pattern::Moment moment{1, 2, 16};
  std::vector<std::vector<unsigned char>> data;
  std::vector<pattern::Stretch> stretches;
  for (const std::size_t bytes : {1u, 7u, 64u, 1000u, 4099u}) data.emplace_back(bytes);
  for (auto& bytes : data) stretches.push_back({bytes.data(), bytes.size(), 3, 42});
  for (const pattern::Stretch& stretch : stretches) {
    device::fill_on_host(stretch, pattern::of(42, moment), device::Content::bytes, false, false);
    *static_cast<unsigned char*>(stretch.data) ^= 1U;
  }
  for (const std::uint64_t workers : {1u, 2u, 4u, 5u, 6u, 64u, 10007u}) {
    std::uint64_t wrong = 0;
    for (std::uint64_t worker = 0; worker < workers; ++worker)
      wrong += pattern::wrong_for_worker({stretches.data(), stretches.size(), moment, {}, 0}, worker, workers);
    CHECK_EQUAL(wrong, stretches.size());
  }
}

TEST(ranges_are_read_as_they_are_written) {
  CHECK_EQUAL(parse_ranges("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  CHECK_EQUAL(parse_ranges("0"), (std::vector<int>{0}));
  CHECK(parse_ranges("").empty());
  CHECK_EQUAL(format_ranges(parse_ranges("0-3,8")), "0-3,8");
}
