#include "fabricbench/device/content.hpp"

#include <array>
#include <cstring>

namespace fabricbench::device {
namespace {

// The words of a stretch that lie in it as a whole, of which most need no look at where they begin and end.
class Whole {
 public:
  explicit Whole(const pattern::Stretch& stretch)
      : data_(static_cast<unsigned char*>(stretch.data)),
        position_(stretch.position),
        first_((stretch.position + 7) / 8),
        end_((stretch.position + stretch.bytes) / 8) {}
  bool has(std::uint64_t word) const { return first_ <= word && word < end_; }
  unsigned char* place_of(std::uint64_t word) const { return data_ + (8 * word - position_); }

 private:
  unsigned char* data_;
  std::uint64_t position_;
  std::uint64_t first_;
  std::uint64_t end_;
};

// `value_of` gives the bytes of a word.
template <typename Value>
void write(const pattern::Stretch& stretch, const pattern::Words& words, const Value& value_of) {
  const Whole whole(stretch);
  for (std::uint64_t word = words.first; word < words.end; word += words.step) {
    const std::uint64_t value = value_of(word);
    if (whole.has(word)) {
      std::memcpy(whole.place_of(word), &value, sizeof value);
    } else {
      write_word(stretch, word, value);
    }
  }
}

template <typename Value>
std::uint64_t count_wrong(const pattern::Check& check, const pattern::Stretch& stretch, const Value& value_of) {
  if (check.stamps_only != 0) return pattern::wrong_in_stretch(check, stretch, value_of, 0, 1);
  const Whole whole(stretch);
  const pattern::Words words = words_of(stretch, check.moment.stride, false);
  std::uint64_t wrong = 0;
  for (std::uint64_t word = words.first; word < words.end; word += words.step) {
    const std::uint64_t value = value_of(word);
    std::uint64_t there = value;
    if (whole.has(word)) {
      std::memcpy(&there, whole.place_of(word), sizeof there);
    } else {
      wrong += static_cast<std::uint64_t>(wrong_bytes(stretch, word, value));
    }
    if (there != value) wrong += static_cast<std::uint64_t>(pattern::differing_bytes(there, value));
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
  static bool suit(const pattern::Pattern& pattern, const pattern::Words& words) {
    return pattern.summands.apart == 1 && words.count() > kMost;
  }

  std::uint64_t operator()(std::uint64_t word) const {
    const std::uint64_t mixed = bytes_of_word(pattern_, word);
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
  const pattern::Words words = words_of(stretch, pattern.stride, stamps_only);
  if (content == Content::bytes) {
    write(stretch, words, [&](std::uint64_t word) { return bytes_of_word(pattern, word) ^ flip; });
  } else if (Numbers::suit(pattern, words)) {
    write(stretch, words, Numbers(pattern, false));
  } else {
    write(stretch, words, [&](std::uint64_t word) { return numbers_of_word(pattern, word, false); });
  }
}

std::uint64_t count_wrong_on_host(const pattern::Check& check) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < check.number; ++i) {
    const pattern::Stretch& stretch = check.stretches[i];
    const pattern::Pattern pattern = pattern::of(stretch.source, check.moment, check.summands);
    const pattern::Words words = words_of(stretch, pattern.stride, check.stamps_only != 0);
    if (check.summands.ranks == 0) {
      wrong += count_wrong(check, stretch, [&](std::uint64_t word) { return bytes_of_word(pattern, word); });
    } else if (Numbers::suit(pattern, words)) {
      wrong += count_wrong(check, stretch, Numbers(pattern, true));
    } else {
      wrong += count_wrong(check, stretch, [&](std::uint64_t word) { return numbers_of_word(pattern, word, true); });
    }
  }
  return wrong;
}

}  // namespace fabricbench::device
