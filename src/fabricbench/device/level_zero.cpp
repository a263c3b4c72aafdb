#include "fabricbench/device/level_zero.hpp"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "fabricbench/descriptors.hpp"
#include "fabricbench/device/sycl_devices.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/shared_library.hpp"

#if defined(FABRICBENCH_LEVEL_ZERO)
#include <level_zero/ze_api.h>
#include <sycl/ext/oneapi/backend/level_zero.hpp>
#endif

namespace fabricbench::device::level_zero {

#if defined(FABRICBENCH_LEVEL_ZERO)
namespace {

// What goes from process to process: the driver's own handle is a file descriptor of the process that made it.
struct Exported {
  ze_ipc_mem_handle_t native;
  std::uint64_t offset;  // of the memory in the allocation that the handle is of
  std::int32_t pid;
};
static_assert(sizeof(Exported) <= sizeof(IpcHandle), "an IPC handle is larger than expected");

struct Loader {
  decltype(&zeMemGetAddressRange) get_address_range = nullptr;
  decltype(&zeMemGetIpcHandle) get_ipc_handle = nullptr;
  decltype(&zeMemOpenIpcHandle) open_ipc_handle = nullptr;
  decltype(&zeMemCloseIpcHandle) close_ipc_handle = nullptr;
  std::string missing;
};

const Loader& loader() {
  static const Loader loaded = [] {
    Loader result;
    SharedLibrary library("libze_loader.so.1");
    library.find(result.get_address_range, "zeMemGetAddressRange");
    library.find(result.get_ipc_handle, "zeMemGetIpcHandle");
    library.find(result.open_ipc_handle, "zeMemOpenIpcHandle");
    library.find(result.close_ipc_handle, "zeMemCloseIpcHandle");
    result.missing = library.missing();
    return result;
  }();
  return loaded;
}

void check(ze_result_t result, const char* call) {
  if (result == ZE_RESULT_SUCCESS) return;
  char code[16];
  std::snprintf(code, sizeof code, "0x%08x", static_cast<unsigned>(result));
  throw RunError("library", std::string(call) + " failed: ze_result_t " + code);
}

ze_context_handle_t native_context() {
  return sycl::get_native<sycl::backend::ext_oneapi_level_zero>(shared_context());
}

// Where the allocations begin in which the memory of other processes lies: only those addresses can be closed.
std::map<std::byte*, void*>& bases() {
  static std::map<std::byte*, void*> opened;
  return opened;
}

// Newer drivers fetch the descriptor themselves: their handles name the process that made them.
bool names_process(const ze_ipc_mem_handle_t& handle, std::int32_t pid) {
  for (std::size_t i = sizeof(std::uint64_t); i + sizeof pid <= sizeof handle.data; i += sizeof pid) {
    if (std::memcmp(handle.data + i, &pid, sizeof pid) == 0) return true;
  }
  return false;
}

}  // namespace

std::string unsupported() {
  if (!on_level_zero())
    return "the device is not a Level Zero GPU, and only those share memory with other processes: use "
           "--transport staging or mpi";
  if (!loader().missing.empty()) return loader().missing + ": load the site's Level Zero module";
  return "";
}

IpcHandle export_memory(std::byte* memory) {
  let_descriptors_be_fetched();
  Exported exported{};
  void* base = nullptr;
  std::size_t size = 0;
  check(loader().get_address_range(native_context(), memory, &base, &size), "zeMemGetAddressRange");
  check(loader().get_ipc_handle(native_context(), base, &exported.native), "zeMemGetIpcHandle");
  exported.offset = static_cast<std::uint64_t>(memory - static_cast<std::byte*>(base));
  exported.pid = getpid();
  IpcHandle handle{};
  std::memcpy(handle.data(), &exported, sizeof exported);
  return handle;
}

std::byte* open(const IpcHandle& handle) {
  Exported exported;
  std::memcpy(&exported, handle.data(), sizeof exported);
  int mine = -1;
  if (!names_process(exported.native, exported.pid)) {
    int theirs = 0;
    std::memcpy(&theirs, exported.native.data, sizeof theirs);
    mine = fetch_descriptor(exported.pid, theirs);
    std::memcpy(exported.native.data, &mine, sizeof mine);
  }
  void* base = nullptr;
  const ze_device_handle_t device = sycl::get_native<sycl::backend::ext_oneapi_level_zero>(current_device());
  const ze_result_t result = loader().open_ipc_handle(native_context(), device, exported.native, 0, &base);
  if (mine >= 0) ::close(mine);  // the driver holds the memory now
  check(result, "zeMemOpenIpcHandle (is there a path between the GPUs?)");
  std::byte* memory = static_cast<std::byte*>(base) + exported.offset;
  bases()[memory] = base;
  return memory;
}

void close(std::byte* opened) noexcept {
  const auto base = bases().find(opened);
  const ze_result_t result = loader().close_ipc_handle(native_context(), base->second);
  bases().erase(base);
  if (result != ZE_RESULT_SUCCESS)
    std::fprintf(stderr, "fabricbench: zeMemCloseIpcHandle failed: ze_result_t 0x%08x\n",
                 static_cast<unsigned>(result));
}

#else

std::string unsupported() {
  return "this fabricbench was built without Level Zero's headers, which the copy and kernel transports need between "
         "processes: build it with -DLEVEL_ZERO_ROOT=";
}
IpcHandle export_memory(std::byte*) { throw RunError("library", unsupported()); }
std::byte* open(const IpcHandle&) { throw RunError("library", unsupported()); }
void close(std::byte*) noexcept {}

#endif

}  // namespace fabricbench::device::level_zero
