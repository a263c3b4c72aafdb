#include "fabricbench/caches.hpp"

#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace fabricbench {
namespace {

// Lines are as long or longer everywhere: some are flushed twice.
constexpr std::size_t kLine = 64;

inline void flush_line([[maybe_unused]] std::uintptr_t address) {
#if defined(__x86_64__)
  _mm_clflush(reinterpret_cast<const void*>(address));
#elif defined(__aarch64__)
  asm volatile("dc civac, %0" : : "r"(address) : "memory");
#elif defined(__powerpc64__)
  asm volatile("dcbf 0, %0" : : "r"(address) : "memory");
#endif
}

inline void wait_for_flushes() {
#if defined(__x86_64__)
  _mm_mfence();
#elif defined(__aarch64__)
  asm volatile("dsb sy" : : : "memory");
#elif defined(__powerpc64__)
  asm volatile("sync" : : : "memory");
#endif
}

}  // namespace

void take_out_of_caches(const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  for (std::uintptr_t line = begin / kLine * kLine; line < begin + bytes; line += kLine) flush_line(line);
  wait_for_flushes();
}

}  // namespace fabricbench
