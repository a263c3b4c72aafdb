// What the bytes of a message are: a function of their position, the rank that sends them and the iteration.
#pragma once

#include <cstdint>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define FABRICBENCH_EVERYWHERE __host__ __device__
#else
#define FABRICBENCH_EVERYWHERE
#endif

namespace fabricbench::pattern {

// splitmix64's finaliser: every bit of the result depends on every bit of the input.
FABRICBENCH_EVERYWHERE inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

FABRICBENCH_EVERYWHERE inline std::uint64_t seed(std::uint64_t rank, std::uint64_t iteration) {
  return mix(mix(rank) ^ (iteration << 20));
}

// The data of an iteration: all of it was written for iteration `filled`, and what has to be new in each, the stamps,
// for iteration `stamped`. A stamp is the word of eight bytes at each multiple of `stride`, a power of two from 8 up.
struct Moment {
  std::uint64_t filled;
  std::uint64_t stamped;
  std::uint64_t stride;
};

// What one rank sends at a moment. `place`: of its floats, so that those of several ranks have a known sum.
struct Pattern {
  std::uint64_t seed;
  std::uint64_t stamp;
  std::uint64_t stride;
  std::uint64_t place;
};

FABRICBENCH_EVERYWHERE inline Pattern of(std::uint64_t rank, const Moment& moment, std::uint64_t place = 0) {
  return {seed(rank, moment.filled), seed(rank, moment.stamped), moment.stride, place};
}

// The most bytes between two stamps.
constexpr std::uint64_t kLongestStride = std::uint64_t{64} << 10;

// The stride with which every message of at least `bytes` holds a whole stamp wherever it begins; all of it is stamps
// where it is too short for that.
inline std::uint64_t stride_for(std::uint64_t bytes) {
  std::uint64_t stride = 8;
  while (stride < kLongestStride && 4 * stride <= bytes) stride *= 2;
  return stride;
}

// The eight bytes at positions [8 word, 8 word + 8).
FABRICBENCH_EVERYWHERE inline std::uint64_t bytes_of_word(const Pattern& pattern, std::uint64_t word) {
  return mix((8 * word % pattern.stride == 0 ? pattern.stamp : pattern.seed) ^ word);
}

FABRICBENCH_EVERYWHERE inline std::uint8_t byte_at(const Pattern& pattern, std::uint64_t position) {
  return static_cast<std::uint8_t>(bytes_of_word(pattern, position / 8) >> (8 * (position % 8)));
}

// A whole number below 256 for the element `index` of four bytes, which a float holds exactly.
FABRICBENCH_EVERYWHERE inline std::uint64_t number_at(const Pattern& pattern, std::uint64_t index) {
  return bytes_of_word(pattern, index / 2) >> (32 * (index % 2)) & 0xFF;
}

// The float at element `index` of the rank at `place`: one more, modulo 256, than at the place before it.
FABRICBENCH_EVERYWHERE inline float float_at(const Pattern& pattern, std::uint64_t index) {
  return static_cast<float>((number_at(pattern, index) + pattern.place) & 0xFF);
}

// The sum of that element over the places [0, ranks), without going through them: exact in any order, as a float holds
// every whole number below 2^24, for 65,000 ranks.
FABRICBENCH_EVERYWHERE inline float sum_at(const Pattern& pattern, std::uint64_t index, std::uint64_t ranks) {
  const std::uint64_t first = number_at(pattern, index);
  const std::uint64_t end = first + ranks;
  const auto below = [](std::uint64_t n) { return n / 256 * (255 * 128) + n % 256 * (n % 256 - (n % 256 > 0)) / 2; };
  return static_cast<float>(below(end) - below(first));
}

FABRICBENCH_EVERYWHERE inline int differing_bytes(std::uint64_t a, std::uint64_t b) {
  int count = 0;
  for (std::uint64_t difference = a ^ b; difference != 0; difference >>= 8) count += (difference & 0xFF) != 0 ? 1 : 0;
  return count;
}

FABRICBENCH_EVERYWHERE inline std::uint32_t bits_of(float number) {
  union {
    float number;
    std::uint32_t bits;
  } both;
  both.number = number;
  return both.bits;
}

// A piece of memory with positions [position, position + bytes) of what the rank `source` sends.
struct Stretch {
  void* data;
  std::uint64_t bytes;
  std::uint64_t position;
  std::uint64_t source;
};

// The words of a stretch, from the first on and each `step` later: all of them, or the stamps alone.
struct Words {
  std::uint64_t first;
  std::uint64_t end;
  std::uint64_t step;

  std::uint64_t count() const { return (end - first + step - 1) / step; }
};
FABRICBENCH_EVERYWHERE inline Words words_of(const Stretch& stretch, std::uint64_t stride, bool stamps_only) {
  const std::uint64_t step = stamps_only ? stride / 8 : 1;
  return {stretch.position / 8 / step * step, (stretch.position + stretch.bytes + 7) / 8, step};
}

// The part of a word that lies in a stretch: bytes [begin, begin + bytes) of the word, at `data`.
struct PartOfWord {
  unsigned char* data;
  std::uint64_t begin;
  std::uint64_t bytes;
  FABRICBENCH_EVERYWHERE bool is_whole() const { return bytes == 8 && reinterpret_cast<std::uintptr_t>(data) % 8 == 0; }
};
FABRICBENCH_EVERYWHERE inline PartOfWord part_of_word(const Stretch& stretch, std::uint64_t word) {
  const std::uint64_t begin = 8 * word > stretch.position ? 8 * word : stretch.position;
  const std::uint64_t last = stretch.position + stretch.bytes;
  const std::uint64_t end = 8 * word + 8 < last ? 8 * word + 8 : last;
  auto* data = static_cast<unsigned char*>(stretch.data) + (begin - stretch.position);
  return {data, begin - 8 * word, begin < end ? end - begin : 0};
}

// Writes the bytes of `pattern` into a word of a stretch, each exclusive-or `flip`.
FABRICBENCH_EVERYWHERE inline void write_bytes(const Stretch& stretch, std::uint64_t word, const Pattern& pattern,
                                               std::uint64_t flip) {
  const std::uint64_t value = bytes_of_word(pattern, word) ^ flip;
  const PartOfWord part = part_of_word(stretch, word);
  if (part.is_whole()) {
    *reinterpret_cast<std::uint64_t*>(part.data) = value;
    return;
  }
  for (std::uint64_t i = 0; i < part.bytes; ++i)
    part.data[i] = static_cast<unsigned char>(value >> (8 * (part.begin + i)));
}

// The same of floats, whose stretches are at multiples of four bytes.
FABRICBENCH_EVERYWHERE inline void write_floats(const Stretch& stretch, std::uint64_t word, const Pattern& pattern) {
  const PartOfWord part = part_of_word(stretch, word);
  auto* floats = reinterpret_cast<float*>(part.data);
  for (std::uint64_t i = 0; i < part.bytes / 4; ++i) floats[i] = float_at(pattern, 2 * word + part.begin / 4 + i);
}

// How many bytes in a word of a stretch are not those of `pattern`.
FABRICBENCH_EVERYWHERE inline int wrong_bytes(const Stretch& stretch, std::uint64_t word, const Pattern& pattern) {
  const std::uint64_t value = bytes_of_word(pattern, word);
  const PartOfWord part = part_of_word(stretch, word);
  if (part.is_whole()) return differing_bytes(*reinterpret_cast<const std::uint64_t*>(part.data), value);
  int wrong = 0;
  for (std::uint64_t i = 0; i < part.bytes; ++i)
    wrong += part.data[i] != static_cast<unsigned char>(value >> (8 * (part.begin + i))) ? 1 : 0;
  return wrong;
}

// How many bytes of the floats in a word of a stretch are not those of the sum over `ranks` ranks.
FABRICBENCH_EVERYWHERE inline int wrong_sums(const Stretch& stretch, std::uint64_t word, const Pattern& pattern,
                                             std::uint64_t ranks) {
  const PartOfWord part = part_of_word(stretch, word);
  const auto* floats = reinterpret_cast<const float*>(part.data);
  int wrong = 0;
  for (std::uint64_t i = 0; i < part.bytes / 4; ++i) {
    const std::uint32_t sum = bits_of(sum_at(pattern, 2 * word + part.begin / 4 + i, ranks));
    wrong += differing_bytes(bits_of(floats[i]), sum);
  }
  return wrong;
}

// What is looked at after an iteration: stretches in a table, all their bytes or those of the stamps. `summed_ranks`:
// they hold the sums of the floats at so many places; 0: the bytes that their sources sent.
struct Check {
  const Stretch* stretches;
  std::uint64_t number;
  Moment moment;
  std::uint64_t summed_ranks;
  std::uint64_t stamps_only;
};

// How many bytes are wrong in those words of a stretch that fall to worker `first` of `workers`.
FABRICBENCH_EVERYWHERE inline std::uint64_t wrong_in_stretch(const Check& check, std::uint64_t number,
                                                             std::uint64_t first, std::uint64_t workers) {
  const Stretch stretch = check.stretches[number];
  const Pattern pattern = of(stretch.source, check.moment);
  const Words words = words_of(stretch, check.moment.stride, check.stamps_only != 0);
  std::uint64_t wrong = 0;
  for (std::uint64_t word = words.first + first * words.step; word < words.end; word += workers * words.step) {
    wrong += static_cast<std::uint64_t>(check.summed_ranks > 0 ? wrong_sums(stretch, word, pattern, check.summed_ranks)
                                                               : wrong_bytes(stretch, word, pattern));
  }
  return wrong;
}

}  // namespace fabricbench::pattern
