// Buffers that NCCL knows: its own memory, what is registered with a communicator, and symmetric windows.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "ccl/api.hpp"
#include "ccl/communicator.hpp"
#include "ccl/log.hpp"
#include "ccl/operations.hpp"
#include "core/memory.hpp"
#include "core/runtime.hpp"

using namespace emulation;
using namespace emulation::ccl;

namespace emulation::ccl {
namespace {

// NCCL's smallest messages go through its own buffers, whatever is registered.
std::size_t through_own_buffers() {
  const char* given = std::getenv("NCCL_P2P_LL_THRESHOLD");
  return given == nullptr ? 16384 : std::strtoull(given, nullptr, 10);
}

template <typename... Values>
std::string text_of(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

bool is_off(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::strcmp(value, "0") == 0;
}

ncclResult_t remember(Communicator* communicator, void* buffer, std::size_t bytes, bool is_window, void** handle) {
  if (communicator == nullptr || buffer == nullptr || handle == nullptr) return ncclInvalidArgument;
  log_info(Topic::reg, communicator->self().device,
           text_of("register comm %p buffer %p size %zi", static_cast<void*>(communicator), buffer, bytes));
  communicator->known.push_back(
      std::make_unique<KnownBuffer>(KnownBuffer{static_cast<const char*>(buffer), bytes, is_window}));
  *handle = communicator->known.back().get();
  return ncclSuccess;
}

ncclResult_t forget(Communicator* communicator, const void* handle) {
  auto& known = communicator->known;
  known.erase(std::remove_if(known.begin(), known.end(), [&](const auto& each) { return each.get() == handle; }),
              known.end());
  return ncclSuccess;
}

}  // namespace

const KnownBuffer* Communicator::find(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  const auto found = std::find_if(known.begin(), known.end(), [&](const auto& each) {
    return at >= each->begin && at < each->begin + each->bytes;
  });
  return found == known.end() ? nullptr : found->get();
}

bool log_call(Communicator& communicator, const void* stream, const char* name, const void* send, const void* receive,
              std::size_t bytes) {
  const int device = communicator.self().device;
  log_info(
      Topic::coll, device,
      text_of("%s: opCount 0 sendbuff %p recvbuff %p count %zu datatype 0 op 0 root 0 comm %p [nranks=%d] stream %p",
              name, send, receive, bytes, static_cast<void*>(&communicator), communicator.size, stream));
  communicator.is_between_windows = false;
  const KnownBuffer* own = communicator.find(receive == nullptr ? send : receive);
  const KnownBuffer* other = communicator.find(send == nullptr ? receive : send);
  if (own == nullptr || other == nullptr) return true;
  const bool is_gather = std::strcmp(name, "AllGather") == 0;
  if (own->is_window && other->is_window && communicator.by_copy_engines &&
      (is_gather || std::strcmp(name, "AlltoAll") == 0)) {
    if (!communicator.logged_copy_engines) {
      log_info(Topic::init, device, text_of("Init CE, rank %d, emulated, seq num 0", communicator.rank));
    }
    communicator.logged_copy_engines = true;
    communicator.is_between_windows = true;
    return false;
  }
  const bool has_kernel = is_gather || std::strcmp(name, "AllReduce") == 0 || std::strcmp(name, "ReduceScatter") == 0;
  if (own->is_window && other->is_window && has_kernel) {
    communicator.is_between_windows = true;
    if (communicator.rank == 0) {
      log_info(Topic::tuning, device,
               text_of("%s [Symmetric]: %zu Bytes -> Kernel emulated nchannels 1 nthreads 1 nWorks 1", name, bytes));
    }
  } else if (bytes > through_own_buffers()) {
    log_info(Topic::reg, device,
             text_of("rank %d - IPC register buffer %p size %zu, emulated", communicator.rank, receive, bytes));
  }
  return true;
}

}  // namespace emulation::ccl

extern "C" {

ncclResult_t ncclMemAlloc(void** pointer, std::size_t bytes) {
  return allocate_device(pointer, bytes, current_gpu().vertex) == Result::success ? ncclSuccess
                                                                                  : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* pointer) {
  return release(pointer) == Result::success ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(Communicator* comm, void* buffer, std::size_t bytes, void** handle) {
  if (!is_off("NCCL_LOCAL_REGISTER")) return remember(comm, buffer, bytes, false, handle);
  *handle = nullptr;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(Communicator* comm, void* handle) { return forget(comm, handle); }
// Only of the ranks of one node; elsewhere, and where windows are off, it is registered and nothing more.
ncclResult_t ncclCommWindowRegister(Communicator* comm, void* buffer, std::size_t bytes, void** window, int flags) {
  const bool has_windows = comm->placement.nodes_count() == 1 && flags == 1 && !is_off("NCCL_WIN_ENABLE");
  return has_windows ? remember(comm, buffer, bytes, true, window) : ncclCommRegister(comm, buffer, bytes, window);
}
ncclResult_t ncclCommWindowDeregister(Communicator* comm, void* window) { return forget(comm, window); }
void ncclResetDebugInitInternal() { begin_log_anew(); }
void ncclResetDebugInit() { begin_log_anew(); }

}  // extern "C"
