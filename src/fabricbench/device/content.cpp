#include "fabricbench/device/content.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace fabricbench::device {
namespace {

// Calls for words of a stretch: `run` for those that lie in it as a whole, all at once, and `single` for others. They
// have one seed, so that loops over them are quick.
template <typename Single, typename Run>
void for_words(const pattern::Stretch& stretch, std::uint64_t first, std::uint64_t end, const Single& single,
               const Run& run) {
  const std::uint64_t whole = std::clamp((stretch.position + 7) / 8, first, end);
  const std::uint64_t end_of_whole = std::clamp((stretch.position + stretch.bytes) / 8, whole, end);
  for (std::uint64_t word = first; word < whole; ++word) single(word);
  if (whole < end_of_whole)
    run(whole, end_of_whole, static_cast<unsigned char*>(stretch.data) + (8 * whole - stretch.position));
  for (std::uint64_t word = end_of_whole; word < end; ++word) single(word);
}

// `value_of` gives the bytes of a word by its seed.
template <typename Value>
void write(const pattern::Stretch& stretch, const pattern::Pattern& pattern, bool stamps_only, const Value& value_of) {
  const auto single = [&](std::uint64_t word) { write_word(stretch, word, value_of(seed_of(pattern, word), word)); };
  const auto run = [&](std::uint64_t word, std::uint64_t end, unsigned char* data) {
    for (; word < end; ++word, data += 8) {
      const std::uint64_t value = value_of(pattern.seed, word);
      std::memcpy(data, &value, sizeof value);
    }
  };
  const pattern::Words stamps = words_of(stretch, pattern.stride, true);
  for (std::uint64_t stamp = stamps.first; stamp < stamps.end; stamp += stamps.step) {
    single(stamp);
    if (!stamps_only) for_words(stretch, stamp + 1, std::min(stamp + stamps.step, stamps.end), single, run);
  }
}

template <typename Value>
std::uint64_t count_wrong(const pattern::Check& check, const pattern::Stretch& stretch, const pattern::Pattern& pattern,
                          const Value& value_of) {
  std::uint64_t wrong = 0;
  const auto single = [&](std::uint64_t word) {
    const std::uint64_t value = value_of(seed_of(pattern, word), word);
    wrong += static_cast<std::uint64_t>(wrong_bytes(stretch, word, value));
  };
  const auto run = [&](std::uint64_t word, std::uint64_t end, const unsigned char* data) {
    std::uint64_t difference = 0;
    for (std::uint64_t i = word; i < end; ++i) {
      std::uint64_t there = 0;
      std::memcpy(&there, data + 8 * (i - word), sizeof there);
      difference |= there ^ value_of(pattern.seed, i);
    }
    for (; difference != 0 && word < end; ++word) single(word);
  };
  const pattern::Words stamps = words_of(stretch, pattern.stride, true);
  for (std::uint64_t stamp = stamps.first; stamp < stamps.end; stamp += stamps.step) {
    single(stamp);
    if (check.stamps_only == 0) for_words(stretch, stamp + 1, std::min(stamp + stamps.step, stamps.end), single, run);
  }
  return wrong;
}

// The numbers of words, by a table of all that there are.
class Numbers {
 public:
  Numbers(const pattern::Pattern& pattern, bool sums)
      : pattern_(pattern), largest_((std::uint64_t{1} << pattern.summands.bits) - 1) {
    for (std::uint64_t first = 0; first <= largest_; ++first)
      stored_[first] = pattern::number_of(pattern, first, 0, sums);
  }

  // Whether a number depends on bits of its word alone, and the table takes less time than it saves.
  static bool suit(const pattern::Pattern& pattern, std::uint64_t words) {
    return pattern.summands.apart == 1 && words > kMost;
  }

  std::uint64_t operator()(std::uint64_t seed, std::uint64_t word) const {
    const std::uint64_t mixed = pattern::bytes_of_word(seed, word);
    std::uint64_t value = 0;
    for (std::uint64_t shift = 0; shift < 64; shift += 8 * pattern_.summands.format.bytes)
      value |= stored_[mixed >> shift & largest_] << shift;
    return value;
  }

 private:
  static constexpr std::size_t kMost = 256;  // of the 8 bits that a number has at most
  pattern::Pattern pattern_;
  std::uint64_t largest_;
  std::array<std::uint64_t, kMost> stored_{};
};

}  // namespace

void fill_on_host(const pattern::Stretch& stretch, const pattern::Pattern& pattern, Content content, bool inverted,
                  bool stamps_only) {
  const std::uint64_t flip = inverted ? ~std::uint64_t{0} : 0;
  const auto fill = [&](const auto& value_of) { write(stretch, pattern, stamps_only, value_of); };
  if (content == Content::bytes) {
    fill([flip](std::uint64_t seed, std::uint64_t word) { return pattern::bytes_of_word(seed, word) ^ flip; });
  } else if (Numbers::suit(pattern, words_of(stretch, pattern.stride, stamps_only).count())) {
    fill(Numbers(pattern, false));
  } else {
    fill([&](std::uint64_t, std::uint64_t word) { return numbers_of_word(pattern, word, false); });
  }
}

std::uint64_t count_wrong_on_host(const pattern::Check& check) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < check.number; ++i) {
    const pattern::Stretch& stretch = check.stretches[i];
    const pattern::Pattern pattern = pattern::of(stretch.source, check.moment, check.summands);
    const auto count = [&](const auto& value_of) { return count_wrong(check, stretch, pattern, value_of); };
    const std::uint64_t words = words_of(stretch, pattern.stride, check.stamps_only != 0).count();
    if (check.summands.ranks == 0) {
      wrong += count([](std::uint64_t seed, std::uint64_t word) { return pattern::bytes_of_word(seed, word); });
    } else if (Numbers::suit(pattern, words)) {
      wrong += count(Numbers(pattern, true));
    } else {
      wrong += count([&](std::uint64_t, std::uint64_t word) { return numbers_of_word(pattern, word, true); });
    }
  }
  return wrong;
}

}  // namespace fabricbench::device
