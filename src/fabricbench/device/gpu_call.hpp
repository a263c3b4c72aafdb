// Calls of the GPU API that must succeed. Device code only: what includes this is compiled for the GPU.
#pragma once

#include <cstdio>
#include <string>

#include "fabricbench/device/api.hpp"
#include "fabricbench/device/device.hpp"
#include "fabricbench/errors.hpp"

namespace fabricbench::device {

inline void check(gpuError_t result, const char* call) {
  if (result == gpuSuccess) return;
  (void)gpuGetLastError();
  throw RunError("library", std::string(call) + " failed: " + gpuGetErrorString(result));
}

// What must not throw, because it runs in a destructor, says what went wrong instead.
inline void report(gpuError_t result, const char* call) {
  if (result != gpuSuccess) std::fprintf(stderr, "fabricbench: %s failed: %s\n", call, gpuGetErrorString(result));
}

inline gpuStream_t native_stream(const Stream& stream) { return static_cast<gpuStream_t>(stream.native()); }

}  // namespace fabricbench::device
