#include "fabricbench/caches.hpp"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace fabricbench {
namespace {

// Lines are as long or longer everywhere: some are flushed twice.
constexpr std::size_t kLine = 64;

#if defined(__x86_64__)
// Flushes of this kind do not wait for each other (Intel, Software Developer's Manual, CLFLUSHOPT).
__attribute__((target("clflushopt"))) void flush_without_order(std::uintptr_t begin, std::uintptr_t end) {
  for (std::uintptr_t line = begin; line < end; line += kLine) _mm_clflushopt(reinterpret_cast<void*>(line));
}

bool has_flush_without_order() {
  constexpr unsigned int kClflushopt = 1U << 23;  // CPUID leaf 7, EBX
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kClflushopt) != 0;
}
#endif

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
  const auto begin = reinterpret_cast<std::uintptr_t>(data) / kLine * kLine;
  const auto end = reinterpret_cast<std::uintptr_t>(data) + bytes;
#if defined(__x86_64__)
  static const bool without_order = has_flush_without_order();
  if (without_order) {
    flush_without_order(begin, end);
    wait_for_flushes();
    return;
  }
#endif
  for (std::uintptr_t line = begin; line < end; line += kLine) flush_line(line);
  wait_for_flushes();
}

}  // namespace fabricbench
