// libze_loader.so.1: memory of other processes. As with Intel's driver on Linux, a handle is a descriptor of the
// process that made it, which another process has to fetch before it opens the memory.
#include <fcntl.h>
#include <level_zero/ze_api.h>
#include <sys/stat.h>

#include <cstring>
#include <map>

#include "core/memory.hpp"

using namespace emulation;

namespace {

struct Content {
  std::int32_t descriptor;
  // Of Handle, all bits flipped: drivers whose handles name the process have it fetch the descriptor themselves.
  unsigned char flipped[sizeof(Handle)];
};
static_assert(sizeof(Content) <= sizeof(ze_ipc_mem_handle_t), "a handle has 64 bytes");

void copy_flipped(void* destination, const void* source) {
  for (std::size_t i = 0; i < sizeof(Handle); ++i)
    static_cast<unsigned char*>(destination)[i] =
        static_cast<unsigned char>(~static_cast<const unsigned char*>(source)[i]);
}

ze_result_t answer(Result result) {
  return result == Result::success          ? ZE_RESULT_SUCCESS
         : result == Result::no_peer_access ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
                                            : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

// Open for as long as the process lives: the driver is not told when the others have the memory.
int descriptor_of(const Handle& handle) {
  static std::map<std::int32_t, int> opened;
  const auto found = opened.find(handle.number);
  if (found != opened.end()) return found->second;
  return opened[handle.number] = open(file_of(handle).c_str(), O_RDWR | O_CLOEXEC);
}

bool is_file_of(int descriptor, const Handle& handle) {
  struct stat given{};
  struct stat meant{};
  return fstat(descriptor, &given) == 0 && stat(file_of(handle).c_str(), &meant) == 0 && given.st_dev == meant.st_dev &&
         given.st_ino == meant.st_ino;
}

}  // namespace

extern "C" {

ze_result_t zeMemGetAddressRange(ze_context_handle_t, const void* memory, void** base, std::size_t* bytes) {
  const auto region = region_of(memory);
  if (!region) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  *base = reinterpret_cast<void*>(region->begin);
  *bytes = region->bytes;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeMemGetIpcHandle(ze_context_handle_t, const void* memory, ze_ipc_mem_handle_t* handle) {
  Handle own{};
  const Result result = handle_of(const_cast<void*>(memory), own);
  if (result != Result::success) return answer(result);
  Content content{descriptor_of(own), {}};
  copy_flipped(content.flipped, &own);
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle->data, &content, sizeof content);
  return content.descriptor < 0 ? ZE_RESULT_ERROR_INVALID_ARGUMENT : ZE_RESULT_SUCCESS;
}

ze_result_t zeMemOpenIpcHandle(ze_context_handle_t, ze_device_handle_t device, ze_ipc_mem_handle_t handle,
                               ze_ipc_memory_flags_t, void** memory) {
  Content content;
  std::memcpy(&content, handle.data, sizeof content);
  Handle theirs;
  copy_flipped(&theirs, content.flipped);
  if (!is_file_of(content.descriptor, theirs)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  return answer(open_handle(memory, theirs, static_cast<int>(reinterpret_cast<std::intptr_t>(device)) - 1));
}

ze_result_t zeMemCloseIpcHandle(ze_context_handle_t, const void* memory) {
  return answer(close_handle(const_cast<void*>(memory)));
}

}  // extern "C"
