// The pattern of the data (pattern.hpp) written and checked by the processor, in memory that it can address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fabricbench/device/device.hpp"

namespace fabricbench::device {

// As Stream::fill, count_wrong and count_wrong_sums.
void fill_on_host(void* destination, std::size_t bytes, std::uint64_t position, std::uint64_t seed, Content content,
                  bool inverted);
std::uint64_t count_wrong_on_host(const void* data, std::size_t bytes, std::uint64_t position, std::uint64_t seed,
                                  Content content);
std::uint64_t count_wrong_sums_on_host(const void* data, std::size_t bytes, std::uint64_t position,
                                       const std::vector<std::uint64_t>& seeds);

}  // namespace fabricbench::device
