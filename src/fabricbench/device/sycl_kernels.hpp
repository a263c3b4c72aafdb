// The kernels of the sycl backend. DPC++ compiles them with the program; elsewhere this very text is compiled when the
// program starts (sycl_launch.hpp), so both ways run the same code. Each is a loop over all work-items' strides.
#pragma once

#include <cstdint>

#include "fabricbench/device/pattern.hpp"

#if defined(FABRICBENCH_COMPILED_AT_RUN_TIME)
// No more than is used: they are compiled each time that the program starts.
#include <sycl/atomic_ref.hpp>
#include <sycl/ext/oneapi/experimental/enqueue_functions.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/kernel_properties/properties.hpp>
#include <sycl/vector.hpp>
#define FABRICBENCH_KERNEL \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void
#else
#include <sycl/sycl.hpp>
#define FABRICBENCH_KERNEL inline void
#endif

namespace fabricbench::kernels {

// Work-items of a work-group.
constexpr unsigned kThreads = 512;

struct Strides {
  std::uint64_t first;
  std::uint64_t step;
};

inline Strides strides() {
  const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<1>();
  return {item.get_global_linear_id(), item.get_global_range(0)};
}

FABRICBENCH_KERNEL fill_bytes(pattern::Stretch out, pattern::Pattern pattern, pattern::Words words,
                              std::uint64_t flip) {
  const Strides own = strides();
  for (std::uint64_t word = words.first + own.first * words.step; word < words.end; word += own.step * words.step)
    write_bytes(out, word, pattern, flip);
}

FABRICBENCH_KERNEL fill_numbers(pattern::Stretch out, pattern::Pattern pattern, pattern::Words words) {
  const Strides own = strides();
  for (std::uint64_t word = words.first + own.first * words.step; word < words.end; word += own.step * words.step)
    write_numbers(out, word, pattern);
}

FABRICBENCH_KERNEL compare(pattern::Check check, std::uint64_t* total) {
  const Strides own = strides();
  const std::uint64_t wrong = wrong_for_worker(check, own.first, own.step);
  if (wrong == 0) return;
  sycl::atomic_ref<std::uint64_t, sycl::memory_order::relaxed, sycl::memory_scope::device,
                   sycl::access::address_space::global_space>(*total) += wrong;
}

constexpr int kMostInputs = 16;
struct Inputs {
  const float* of[kMostInputs];
};

// The product of a burn-in (product.hpp); the first parameter is its type, float32.
FABRICBENCH_KERNEL fill_factors(std::uint32_t, float* factors, std::uint64_t count, std::uint64_t second) {
  const Strides own = strides();
  for (std::uint64_t i = own.first; i < count; i += own.step)
    factors[i] = static_cast<float>(pattern::factor(i, second != 0));
}

FABRICBENCH_KERNEL multiply_by_cores(std::uint32_t, const float* a, const float* b, float* c, std::uint64_t order) {
  const Strides own = strides();
  for (std::uint64_t i = own.first; i < order * order; i += own.step) {
    const float* row = a + i / order * order;
    float sum = 0;
    for (std::uint64_t k = 0; k < order; ++k) sum += row[k] * b[k * order + i % order];
    c[i] = sum;
  }
}

FABRICBENCH_KERNEL compare_results(const std::uint32_t* result, const std::uint32_t* expected, std::uint64_t quads,
                                   std::uint64_t number, std::uint64_t* differences) {
  const Strides own = strides();
  for (std::uint64_t i = own.first; i < 4 * quads; i += own.step) {
    if (result[i] == expected[i]) continue;
    using Counter = sycl::atomic_ref<std::uint64_t, sycl::memory_order::relaxed, sycl::memory_scope::device,
                                     sycl::access::address_space::global_space>;
    Counter(differences[0]) += 1;
    Counter(differences[1]).fetch_min(pattern::packed(number, i));
  }
}

// Four floats a work-item and step in the first 4 `quads`, where everything is aligned: peers are read in 16-byte
// words.
FABRICBENCH_KERNEL add_inputs(float* out, Inputs inputs, int number, int onto, std::uint64_t quads,
                              std::uint64_t count) {
  const Strides own = strides();
  for (std::uint64_t i = own.first; i < quads; i += own.step) {
    auto* sums = reinterpret_cast<sycl::float4*>(out);
    sycl::float4 sum = onto != 0 ? sums[i] : sycl::float4(0);
    for (int k = 0; k < number; ++k) sum += reinterpret_cast<const sycl::float4*>(inputs.of[k])[i];
    sums[i] = sum;
  }
  for (std::uint64_t i = 4 * quads + own.first; i < count; i += own.step) {
    float sum = onto != 0 ? out[i] : 0;
    for (int k = 0; k < number; ++k) sum += inputs.of[k][i];
    out[i] = sum;
  }
}

// A tile is what a work-group copies in a step; each work-item has `unrolled` loads under way.
template <unsigned unrolled>
inline void copy_tiles(sycl::uint4* to, const sycl::uint4* from, std::uint64_t quads, const pattern::Ring& ring) {
  const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<1>();
  const std::uint64_t thread = item.get_local_id(0);
  constexpr std::uint64_t tile = static_cast<std::uint64_t>(kThreads) * unrolled;
  for (std::uint64_t operation = 0; operation < ring.operations; ++operation) {
    sycl::uint4* out = to + ring.shift_of(operation) / sizeof(sycl::uint4);
    const sycl::uint4* in = from + ring.shift_of(operation) / sizeof(sycl::uint4);
    for (std::uint64_t first = item.get_group(0) * tile; first < quads; first += item.get_group_range(0) * tile) {
      if (first + tile <= quads) {
        sycl::uint4 held[unrolled];
        for (unsigned k = 0; k < unrolled; ++k) held[k] = in[first + k * kThreads + thread];
        for (unsigned k = 0; k < unrolled; ++k) out[first + k * kThreads + thread] = held[k];
      } else {
        for (std::uint64_t i = first + thread; i < quads; i += kThreads) out[i] = in[i];
      }
    }
  }
}

constexpr unsigned kUnrolledOverLink = 8;
constexpr unsigned kUnrolledInside = 2;

FABRICBENCH_KERNEL copy_over_link(sycl::uint4* out, const sycl::uint4* in, std::uint64_t quads, pattern::Ring ring) {
  copy_tiles<kUnrolledOverLink>(out, in, quads, ring);
}

FABRICBENCH_KERNEL copy_inside(sycl::uint4* out, const sycl::uint4* in, std::uint64_t quads, pattern::Ring ring) {
  copy_tiles<kUnrolledInside>(out, in, quads, ring);
}

FABRICBENCH_KERNEL copy_single_bytes(std::uint8_t* out, const std::uint8_t* in, std::uint64_t bytes,
                                     pattern::Ring ring) {
  const Strides own = strides();
  for (std::uint64_t operation = 0; operation < ring.operations; ++operation) {
    const std::uint64_t shift = ring.shift_of(operation);
    for (std::uint64_t i = own.first; i < bytes; i += own.step) out[shift + i] = in[shift + i];
  }
}

}  // namespace fabricbench::kernels
