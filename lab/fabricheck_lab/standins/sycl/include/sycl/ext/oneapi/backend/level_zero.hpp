// Level Zero's handles of SYCL's objects: of a device, its tile's number; of the one context, none.
#pragma once

#include <level_zero/ze_api.h>

#include <sycl/sycl.hpp>

namespace sycl {

template <backend>
ze_context_handle_t get_native(const context&) {
  return nullptr;
}
template <backend>
ze_device_handle_t get_native(const device& device) {
  return reinterpret_cast<ze_device_handle_t>(static_cast<std::intptr_t>(device.tile()) + 1);
}

}  // namespace sycl
