// How a kernel of sycl_kernels.hpp is started: compiled by DPC++ with the program, or by the runtime when it starts.
#pragma once

#include <cstddef>
#include <sycl/sycl.hpp>

#include "fabricbench/device/sycl_kernels.hpp"

// Only a SYCL compiler (icpx, clang++ -fsycl) makes kernels of the functions of a program.
#if !defined(SYCL_LANGUAGE_VERSION)
#define FABRICBENCH_RUN_TIME_KERNELS
#endif

namespace fabricbench::device {

#if defined(FABRICBENCH_RUN_TIME_KERNELS)
// Compiles all kernels for the selected device, which takes seconds: before anything is measured.
void compile_kernels();
const sycl::kernel& run_time_kernel(const char* name);
#endif

template <auto kernel>
struct Launch;

template <typename... Parameters, void (*kernel)(Parameters...)>
struct Launch<kernel> {
  static void on(sycl::queue& queue, [[maybe_unused]] const char* name, std::size_t groups, Parameters... arguments) {
    const sycl::nd_range<1> range(groups * kernels::kThreads, kernels::kThreads);
#if defined(FABRICBENCH_RUN_TIME_KERNELS)
    const sycl::kernel& compiled = run_time_kernel(name);
    queue.submit([&](sycl::handler& handler) {
      handler.set_args(arguments...);
      handler.parallel_for(range, compiled);
    });
#else
    queue.parallel_for(range, [=](sycl::nd_item<1>) { kernel(arguments...); });
#endif
  }
};

}  // namespace fabricbench::device

#define FABRICBENCH_LAUNCH(kernel, queue, ...) Launch<&kernels::kernel>::on(queue, #kernel, __VA_ARGS__)
