// The pattern of the data (pattern.hpp) written and checked by the processor, in memory that it can address.
#pragma once

#include <cstdint>

#include "fabricbench/device/device.hpp"

namespace fabricbench::device {

// As Stream::fill.
void fill_on_host(const pattern::Stretch& stretch, const pattern::Pattern& pattern, Content content, bool inverted,
                  bool stamps_only);
// As Stream::count_wrong adds them.
std::uint64_t count_wrong_on_host(const pattern::Check& check);

}  // namespace fabricbench::device
