// The kernels, compiled when the program starts, where its compiler is no SYCL compiler. CMake writes the texts of
// sycl_kernels.hpp and pattern.hpp into the program (sycl_kernel_texts.hpp).
#include "fabricbench/device/sycl_launch.hpp"

#if defined(FABRICBENCH_RUN_TIME_KERNELS)

#include <map>
#include <string>
#include <vector>

#include "fabricbench/device/sycl_devices.hpp"
#include "fabricbench/errors.hpp"
#include "sycl_kernel_texts.hpp"

namespace fabricbench::device {
namespace {

namespace experimental = sycl::ext::oneapi::experimental;
constexpr const char* kNames[] = {"fill_bytes",        "fill_numbers",   "compare",           "add_inputs",
                                  "copy_over_link",    "copy_inside",    "copy_single_bytes", "fill_factors",
                                  "multiply_by_cores", "compare_results"};
// Never destroyed, as the devices.
const std::map<std::string, sycl::kernel>* kernels_by_name = nullptr;

using Executable = sycl::kernel_bundle<sycl::bundle_state::executable>;

Executable compile() {
  sycl::device device = current_device();
  if (!device.ext_oneapi_can_compile(experimental::source_language::sycl))
    throw RunError(
        "library",
        "SYCL's runtime cannot compile kernels for this device: build fabricbench with icpx, as it was built "
        "with another compiler");
  const std::string source =
      "#define FABRICBENCH_COMPILED_AT_RUN_TIME\n#include \"fabricbench/device/sycl_kernels.hpp\"\n";
  experimental::include_files headers;
  headers.add("fabricbench/device/sycl_kernels.hpp", kSyclKernelsText);
  headers.add("fabricbench/device/pattern.hpp", kPatternText);
  auto source_bundle = experimental::create_kernel_bundle_from_source(
      shared_context(), experimental::source_language::sycl, source, experimental::properties{headers});
  // No part of a device library is used, and wheels of the runtime do not bring them.
  const std::vector<std::string> options{"-fno-sycl-device-lib=all", "-std=c++17", "-I."};
  return experimental::build(source_bundle, std::vector<sycl::device>{device},
                             experimental::properties{experimental::build_options{options}});
}

}  // namespace

void compile_kernels() {
  if (kernels_by_name != nullptr) return;
  auto* kernels = new std::map<std::string, sycl::kernel>;
  Executable compiled = compile();
  for (const char* name : kNames) kernels->emplace(name, compiled.ext_oneapi_get_kernel(name));
  kernels_by_name = kernels;
}

const sycl::kernel& run_time_kernel(const char* name) { return kernels_by_name->at(name); }

}  // namespace fabricbench::device

#endif
