// Managed memory whose pages lie on a GPU: the host that touches one draws it back, and that takes its time.
#pragma once

#include <cstddef>

namespace emulation {

// So many bytes come at once: a driver moves 64 KiB to 2 MiB for a fault.
constexpr std::size_t kManagedBlock = 256 << 10;

// The pages of [begin, begin + bytes) of managed memory go to a GPU (by its vertex), or to the host (-1).
void place_pages(const void* begin, std::size_t bytes, int gpu);

// While one of these lives, this thread acts as the GPU: it uses pages wherever they lie.
class AsDevice {
 public:
  AsDevice();
  ~AsDevice();
  AsDevice(const AsDevice&) = delete;
  AsDevice& operator=(const AsDevice&) = delete;
};

}  // namespace emulation
