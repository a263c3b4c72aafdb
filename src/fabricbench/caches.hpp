// The processor's caches.
#pragma once

#include <cstddef>

namespace fabricbench {

// Writes memory back and takes it out of all caches, so that whoever uses it next gets it from memory. Does nothing on
// processors that have no instruction for it.
void take_out_of_caches(const void* data, std::size_t bytes);

}  // namespace fabricbench
