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

// The eight bytes at positions [8 word, 8 word + 8).
FABRICBENCH_EVERYWHERE inline std::uint64_t bytes_of_word(std::uint64_t seed, std::uint64_t word) {
  return mix(seed ^ word);
}

FABRICBENCH_EVERYWHERE inline std::uint8_t byte_at(std::uint64_t seed, std::uint64_t position) {
  return static_cast<std::uint8_t>(bytes_of_word(seed, position / 8) >> (8 * (position % 8)));
}

// The float at element `index`: a whole number below 256, so that the sum over 65,000 ranks is exact in any order.
FABRICBENCH_EVERYWHERE inline float float_at(std::uint64_t seed, std::uint64_t index) {
  return static_cast<float>(byte_at(seed, index));
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

}  // namespace fabricbench::pattern
