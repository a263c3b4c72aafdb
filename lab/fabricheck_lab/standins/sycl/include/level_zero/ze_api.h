// The interface of Level Zero's loader, as far as it is stood in for (oneapi-src/level-zero, include/ze_api.h).
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

typedef struct _ze_context_handle_t* ze_context_handle_t;
typedef struct _ze_device_handle_t* ze_device_handle_t;
typedef std::uint32_t ze_ipc_memory_flags_t;

struct ze_ipc_mem_handle_t {
  char data[64];
};

enum ze_result_t : std::uint32_t {
  ZE_RESULT_SUCCESS = 0,
  ZE_RESULT_ERROR_UNSUPPORTED_FEATURE = 0x78000003,
  ZE_RESULT_ERROR_INVALID_ARGUMENT = 0x78000004
};

ze_result_t zeMemGetAddressRange(ze_context_handle_t, const void* memory, void** base, std::size_t* bytes);
ze_result_t zeMemGetIpcHandle(ze_context_handle_t, const void* memory, ze_ipc_mem_handle_t* handle);
ze_result_t zeMemOpenIpcHandle(ze_context_handle_t, ze_device_handle_t device, ze_ipc_mem_handle_t handle,
                               ze_ipc_memory_flags_t, void** memory);
ze_result_t zeMemCloseIpcHandle(ze_context_handle_t, const void* memory);

}  // extern "C"
