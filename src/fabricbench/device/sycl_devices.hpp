// The SYCL side of the sycl backend, for what needs more than device.hpp: oneCCL and Level Zero.
#pragma once

#include <string>
#include <sycl/sycl.hpp>

#include "fabricbench/device/device.hpp"
#include "fabricbench/errors.hpp"

namespace fabricbench::device {

// The device that select() chose, or the first.
const sycl::device& current_device();
// One context for all devices of this process, so that a queue of one reaches the memory of the others.
const sycl::context& shared_context();
inline sycl::queue& queue_of(const Stream& stream) { return *static_cast<sycl::queue*>(stream.native()); }
// Whether this is Intel's Level Zero driver, and not a processor through OpenCL.
bool on_level_zero();

inline constexpr std::size_t kAlignment = 4096;
// Frees what was allocated in the shared context, if anything; says what went wrong instead of throwing.
void release(void* memory) noexcept;

// Calls SYCL, whose errors are exceptions, and says what was called.
template <typename Call>
auto guarded(const char* what, const Call& call) {
  try {
    return call();
  } catch (const sycl::exception& error) {
    throw RunError("library", std::string(what) + " failed: " + error.what());
  }
}

}  // namespace fabricbench::device
