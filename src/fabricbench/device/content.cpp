#include "fabricbench/device/content.hpp"

#include <cstring>

#include "fabricbench/device/pattern.hpp"

namespace fabricbench::device {

void fill_on_host(void* destination, std::size_t bytes, std::uint64_t position, std::uint64_t seed, Content content,
                  bool inverted) {
  auto* out = static_cast<unsigned char*>(destination);
  const std::uint64_t flip = inverted ? ~std::uint64_t{0} : 0;
  if (content == Content::floats) {
    for (std::size_t i = 0; i < bytes / 4; ++i) {
      const std::uint32_t bits =
          pattern::bits_of(pattern::float_at(seed, position / 4 + i)) ^ static_cast<std::uint32_t>(flip);
      std::memcpy(out + 4 * i, &bits, 4);
    }
    return;
  }
  std::size_t i = 0;
  for (; i < bytes && (position + i) % 8 != 0; ++i)
    out[i] = static_cast<unsigned char>(pattern::byte_at(seed, position + i) ^ flip);
  for (; i + 8 <= bytes; i += 8) {
    const std::uint64_t word = pattern::bytes_of_word(seed, (position + i) / 8) ^ flip;
    std::memcpy(out + i, &word, 8);
  }
  for (; i < bytes; ++i) out[i] = static_cast<unsigned char>(pattern::byte_at(seed, position + i) ^ flip);
}

std::uint64_t count_wrong_on_host(const void* data, std::size_t bytes, std::uint64_t position, std::uint64_t seed,
                                  Content content) {
  const auto* in = static_cast<const unsigned char*>(data);
  std::uint64_t wrong = 0;
  if (content == Content::floats) {
    for (std::size_t i = 0; i < bytes / 4; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, in + 4 * i, 4);
      wrong += static_cast<std::uint64_t>(
          pattern::differing_bytes(bits, pattern::bits_of(pattern::float_at(seed, position / 4 + i))));
    }
    return wrong;
  }
  std::size_t i = 0;
  for (; i < bytes && (position + i) % 8 != 0; ++i) wrong += in[i] != pattern::byte_at(seed, position + i) ? 1U : 0U;
  for (; i + 8 <= bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, in + i, 8);
    wrong +=
        static_cast<std::uint64_t>(pattern::differing_bytes(word, pattern::bytes_of_word(seed, (position + i) / 8)));
  }
  for (; i < bytes; ++i) wrong += in[i] != pattern::byte_at(seed, position + i) ? 1U : 0U;
  return wrong;
}

std::uint64_t count_wrong_sums_on_host(const void* data, std::size_t bytes, std::uint64_t position,
                                       const std::vector<std::uint64_t>& seeds) {
  const auto* in = static_cast<const unsigned char*>(data);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < bytes / 4; ++i) {
    float total = 0;
    for (const std::uint64_t seed : seeds) total += pattern::float_at(seed, position / 4 + i);
    std::uint32_t bits = 0;
    std::memcpy(&bits, in + 4 * i, 4);
    wrong += static_cast<std::uint64_t>(pattern::differing_bytes(bits, pattern::bits_of(total)));
  }
  return wrong;
}

}  // namespace fabricbench::device
