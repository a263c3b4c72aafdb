// Plays the part of Level Zero's driver for a processor, under the name of its loader: device memory is a file without
// a name, its handle the descriptor of that file, as with Intel's driver on Linux. For tests of the calls between
// processes where there is no GPU; nothing that is measured with it says anything about a machine.
#include <level_zero/ze_api.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>

namespace {

struct Mapping {
  std::size_t bytes;
  int file;
};
std::mutex lock;
std::map<const char*, Mapping> mappings;

// The last mapping that begins at or before an address, where the address lies in it.
std::map<const char*, Mapping>::iterator around(const void* address) {
  const auto* place = static_cast<const char*>(address);
  auto next = mappings.upper_bound(place);
  if (next == mappings.begin()) return mappings.end();
  --next;
  return place < next->first + next->second.bytes ? next : mappings.end();
}

void* map(int file, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  mappings[static_cast<const char*>(memory)] = {bytes, file};
  return memory;
}

void unmap(std::map<const char*, Mapping>::iterator found) {
  munmap(const_cast<char*>(found->first), found->second.bytes);
  close(found->second.file);
  mappings.erase(found);
}

}  // namespace

extern "C" {

void* fabricheck_stand_in_allocate(std::size_t bytes) {
  const std::lock_guard<std::mutex> guard(lock);
  const int file = memfd_create("device memory", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
  return map(file, bytes);
}

void fabricheck_stand_in_free(void* memory) {
  const std::lock_guard<std::mutex> guard(lock);
  if (const auto found = around(memory); found != mappings.end()) unmap(found);
}

ze_result_t zeMemGetAddressRange(ze_context_handle_t, const void* address, void** base, std::size_t* bytes) {
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = around(address);
  if (found == mappings.end()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  *base = const_cast<char*>(found->first);
  *bytes = found->second.bytes;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeMemGetIpcHandle(ze_context_handle_t, const void* memory, ze_ipc_mem_handle_t* handle) {
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = mappings.find(static_cast<const char*>(memory));
  if (found == mappings.end()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle->data, &found->second.file, sizeof found->second.file);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeMemOpenIpcHandle(ze_context_handle_t, ze_device_handle_t, ze_ipc_mem_handle_t handle,
                               ze_ipc_memory_flags_t, void** memory) {
  const std::lock_guard<std::mutex> guard(lock);
  int theirs = -1;
  std::memcpy(&theirs, handle.data, sizeof theirs);
  const int file = dup(theirs);
  struct stat facts{};
  if (file < 0 || fstat(file, &facts) != 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  *memory = map(file, static_cast<std::size_t>(facts.st_size));
  return *memory == nullptr ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY : ZE_RESULT_SUCCESS;
}

ze_result_t zeMemCloseIpcHandle(ze_context_handle_t, const void* memory) {
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = mappings.find(static_cast<const char*>(memory));
  if (found == mappings.end()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  unmap(found);
  return ZE_RESULT_SUCCESS;
}
}
