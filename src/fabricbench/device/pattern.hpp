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

// How a floating-point number is stored.
struct Format {
  std::uint64_t bytes;
  std::uint32_t bias;  // of the exponent
  std::uint32_t mantissa;
};

// Whole numbers that `ranks` ranks add up, exactly in any order: a format holds each whole number up to 2^(mantissa +
// 1), and no sum is larger. All numbers are below 2^bits; where the ranks are too many for that, one of `apart`
// neighbours has a number for an element, and the others have zeros.
struct Summands {
  std::uint64_t ranks;  // 0: nothing is added up
  std::uint64_t bits;
  std::uint64_t apart;
  Format format;
};
inline Summands summands_of(std::uint64_t ranks, const Format& format) {
  const std::uint64_t largest = std::uint64_t{2} << format.mantissa;
  Summands summands{ranks, 1, (ranks + largest - 1) / largest, format};
  while (summands.bits < 8 && ranks * ((std::uint64_t{2} << summands.bits) - 1) <= largest) ++summands.bits;
  return summands;
}

// What one rank sends at a moment. `place`: of its numbers, so that those of several ranks have a known sum.
struct Pattern {
  std::uint64_t seed;
  std::uint64_t stamp;
  std::uint64_t stride;
  std::uint64_t place;
  Summands summands;
};

FABRICBENCH_EVERYWHERE inline Pattern of(std::uint64_t rank, const Moment& moment, const Summands& summands = {},
                                         std::uint64_t place = 0) {
  return {seed(rank, moment.filled), seed(rank, moment.stamped), moment.stride, place, summands};
}

// The most bytes between two stamps: a page, so that a library finds none that it has sent before.
constexpr std::uint64_t kLongestStride = std::uint64_t{4} << 10;

// The stride with which every message of at least `bytes` holds a whole stamp wherever it begins; all of it is stamps
// where it is too short for that.
inline std::uint64_t stride_for(std::uint64_t bytes) {
  std::uint64_t stride = 8;
  while (stride < kLongestStride && 4 * stride <= bytes) stride *= 2;
  return stride;
}

// Where the operations of an iteration have their data, in all buffers: in slots of `pitch` bytes, so that no two look
// alike. With fewer slots than operations, all but the last two hold one each, others in the next turn, and those two
// hold the rest by turns, so that none has the data of the one before it.
struct Ring {
  std::uint64_t operations = 1;
  std::uint64_t slots = 1;
  std::uint64_t pitch = 0;
  std::uint64_t turn = 0;

  // Bytes from the first slot to that of an operation.
  FABRICBENCH_EVERYWHERE std::uint64_t shift_of(std::uint64_t operation) const {
    if (slots >= operations) return operation * pitch;
    const std::uint64_t own = slots - 2;
    const std::uint64_t place = (operations - 1 - operation + turn * own) % operations;
    return (place < own ? place : own + (place - own) % 2) * pitch;
  }
  std::uint64_t used() const { return slots < operations ? slots : operations; }
  // After so many each operation has had a slot of its own.
  std::uint64_t turns() const { return slots >= operations || slots < 3 ? 1 : (operations + slots - 3) / (slots - 2); }
};

// The seed of a word: that of the stamp, or of all other data.
FABRICBENCH_EVERYWHERE inline std::uint64_t seed_of(const Pattern& pattern, std::uint64_t word) {
  return (8 * word & (pattern.stride - 1)) == 0 ? pattern.stamp : pattern.seed;
}

// Quicker than mix(), and enough where the seed was mixed.
FABRICBENCH_EVERYWHERE inline std::uint64_t bytes_of_word(std::uint64_t seed, std::uint64_t word) {
  std::uint64_t x = seed + word * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 32)) * 0xBF58476D1CE4E5B9ULL;
  return x ^ (x >> 32);
}

// The eight bytes at positions [8 word, 8 word + 8).
FABRICBENCH_EVERYWHERE inline std::uint64_t bytes_of_word(const Pattern& pattern, std::uint64_t word) {
  return bytes_of_word(seed_of(pattern, word), word);
}

FABRICBENCH_EVERYWHERE inline std::uint8_t byte_at(const Pattern& pattern, std::uint64_t position) {
  return static_cast<std::uint8_t>(bytes_of_word(pattern, position / 8) >> (8 * (position % 8)));
}

FABRICBENCH_EVERYWHERE inline int differing_bytes(std::uint64_t a, std::uint64_t b) {
  int count = 0;
  for (std::uint64_t difference = a ^ b; difference != 0; difference >>= 8) count += (difference & 0xFF) != 0 ? 1 : 0;
  return count;
}

// A whole number that the format holds, as it is stored.
FABRICBENCH_EVERYWHERE inline std::uint64_t encode(std::uint64_t number, const Format& format) {
  if (number == 0) return 0;
  union {
    float number;
    std::uint32_t bits;
  } single;
  single.number = static_cast<float>(number);
  const std::uint64_t exponent = (single.bits >> 23) - 127 + format.bias;
  return exponent << format.mantissa | (single.bits & 0x7FFFFF) >> (23 - format.mantissa);
}

// The sum of i modulo 2^bits over i in [0, end).
FABRICBENCH_EVERYWHERE inline std::uint64_t sum_below(std::uint64_t end, std::uint64_t bits) {
  const std::uint64_t largest = (std::uint64_t{1} << bits) - 1;
  const std::uint64_t rest = end & largest;
  return (end >> bits) * (largest * (largest + 1) / 2) + rest * (rest - (rest > 0)) / 2;
}

// This rank's number for an element, or the sum over all places, as it is stored. The place `begin`, the first that has
// a number for the element, has `first`; from there to the next one it is one more, modulo 2^bits, so that their sum is
// known.
FABRICBENCH_EVERYWHERE inline std::uint64_t number_of(const Pattern& pattern, std::uint64_t first, std::uint64_t begin,
                                                      bool sums) {
  const auto& [ranks, bits, apart, format] = pattern.summands;
  std::uint64_t number = 0;
  if (sums) {
    const std::uint64_t places = apart > 1 ? (ranks - begin + apart - 1) / apart : ranks;
    number = sum_below(first + places, bits) - sum_below(first, bits);
  } else if (apart == 1 || pattern.place % apart == begin) {
    number = (first + pattern.place / apart) & ((std::uint64_t{1} << bits) - 1);
  }
  return encode(number, format);
}

// The eight bytes at positions [8 word, 8 word + 8) of this rank's numbers, or of the sums over all places.
FABRICBENCH_EVERYWHERE inline std::uint64_t numbers_of_word(const Pattern& pattern, std::uint64_t word, bool sums) {
  const Summands& summands = pattern.summands;
  const std::uint64_t mixed = bytes_of_word(pattern, word);
  std::uint64_t value = 0;
  for (std::uint64_t shift = 0; shift < 64; shift += 8 * summands.format.bytes) {
    const std::uint64_t first = mixed >> shift & ((std::uint64_t{1} << summands.bits) - 1);
    const std::uint64_t begin = summands.apart > 1 ? mix(mixed ^ shift) % summands.apart : 0;
    value |= number_of(pattern, first, begin, sums) << shift;
  }
  return value;
}

// A factor of a matrix product (product.hpp), of the first or the second matrix, by its place there.
FABRICBENCH_EVERYWHERE inline int factor(std::uint64_t place, bool second) {
  return static_cast<int>(mix(place ^ (second ? std::uint64_t{1} << 63 : 0)) % 255) - 127;
}

// The number of such a product and the place of a word of 4 bytes in its result, in one number. The largest result has
// 2^31 words.
constexpr std::uint64_t kPlaceBits = 31;
FABRICBENCH_EVERYWHERE inline std::uint64_t packed(std::uint64_t product, std::uint64_t place) {
  return product << kPlaceBits | place;
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

// Writes a word of a stretch.
FABRICBENCH_EVERYWHERE inline void write_word(const Stretch& stretch, std::uint64_t word, std::uint64_t value) {
  const PartOfWord part = part_of_word(stretch, word);
  if (part.is_whole()) {
    *reinterpret_cast<std::uint64_t*>(part.data) = value;
    return;
  }
  for (std::uint64_t i = 0; i < part.bytes; ++i)
    part.data[i] = static_cast<unsigned char>(value >> (8 * (part.begin + i)));
}

// The bytes of `pattern`, each exclusive-or `flip`.
FABRICBENCH_EVERYWHERE inline void write_bytes(const Stretch& stretch, std::uint64_t word, const Pattern& pattern,
                                               std::uint64_t flip) {
  write_word(stretch, word, bytes_of_word(pattern, word) ^ flip);
}

FABRICBENCH_EVERYWHERE inline void write_numbers(const Stretch& stretch, std::uint64_t word, const Pattern& pattern) {
  write_word(stretch, word, numbers_of_word(pattern, word, false));
}

// How many bytes in a word of a stretch are not those of `value`.
FABRICBENCH_EVERYWHERE inline int wrong_bytes(const Stretch& stretch, std::uint64_t word, std::uint64_t value) {
  const PartOfWord part = part_of_word(stretch, word);
  if (part.is_whole()) return differing_bytes(*reinterpret_cast<const std::uint64_t*>(part.data), value);
  int wrong = 0;
  for (std::uint64_t i = 0; i < part.bytes; ++i)
    wrong += part.data[i] != static_cast<unsigned char>(value >> (8 * (part.begin + i))) ? 1 : 0;
  return wrong;
}

// What is looked at after an iteration: stretches in a table, all their bytes or those of the stamps. They hold sums,
// or where nothing is added up the bytes that their sources sent.
struct Check {
  const Stretch* stretches;
  std::uint64_t number;
  Moment moment;
  Summands summands;
  std::uint64_t stamps_only;
};

// How many bytes are wrong in those words of stretch `number` that fall to worker `first` of `workers`.
FABRICBENCH_EVERYWHERE inline std::uint64_t wrong_in_stretch(const Check& check, std::uint64_t number,
                                                             std::uint64_t first, std::uint64_t workers) {
  const Stretch stretch = check.stretches[number];
  const Pattern pattern = of(stretch.source, check.moment, check.summands);
  const Words words = words_of(stretch, check.moment.stride, check.stamps_only != 0);
  // Most words need no look at where they begin and end.
  const std::uint64_t first_whole = (stretch.position + 7) / 8;
  const std::uint64_t end = (stretch.position + stretch.bytes) / 8;
  const std::uint64_t whole = end > first_whole ? end - first_whole : 0;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(stretch.data) - stretch.position;
  const auto* const words_there = reinterpret_cast<const std::uint64_t*>(begin);
  std::uint64_t wrong = 0;
  for (std::uint64_t word = words.first + first * words.step; word < words.end; word += workers * words.step) {
    const std::uint64_t value =
        pattern.summands.ranks > 0 ? numbers_of_word(pattern, word, true) : bytes_of_word(pattern, word);
    const bool is_whole = begin % 8 == 0 && word - first_whole < whole;
    if (is_whole && words_there[word] == value) continue;
    wrong += static_cast<std::uint64_t>(wrong_bytes(stretch, word, value));
  }
  return wrong;
}

// Those that fall to one of all workers: the stretches are looked at side by side, each by as many workers.
FABRICBENCH_EVERYWHERE inline std::uint64_t wrong_for_worker(const Check& check, std::uint64_t worker,
                                                             std::uint64_t workers) {
  const std::uint64_t teams = check.number < workers ? check.number : workers;
  const std::uint64_t members = workers / teams;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = worker / members; worker < teams * members && i < check.number; i += teams)
    wrong += wrong_in_stretch(check, i, worker % members, members);
  return wrong;
}

}  // namespace fabricbench::pattern
