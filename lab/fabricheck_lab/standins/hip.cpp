// libamdhip64.so.5, as far as fabricbench and common tests of GPUs use it.
#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/ending.hpp"
#include "core/kernels.hpp"
#include "core/memory.hpp"
#include "core/runtime.hpp"

using namespace emulation;

namespace {

thread_local hipError_t last_error = hipSuccess;

hipError_t answer(hipError_t result) {
  if (result != hipSuccess) last_error = result;
  return result;
}

hipError_t answer(Result result) {
  switch (result) {
    case Result::success:
      return hipSuccess;
    case Result::out_of_memory:
      return answer(hipErrorOutOfMemory);
    case Result::no_peer_access:
      return answer(hipErrorPeerAccessUnsupported);
    case Result::unknown_pointer:
    case Result::invalid:
      return answer(hipErrorInvalidValue);
  }
  return answer(hipErrorUnknown);
}

bool present() {
  return !visible_gpus({"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}).empty();
}

const Gpu* gpu(int ordinal) { return present() ? gpu_of(ordinal) : nullptr; }

int fact(const Gpu& one, const char* name, int otherwise) {
  return static_cast<int>(one.facts[name].integer(otherwise));
}

struct Message {
  hipError_t error;
  const char* name;
};
constexpr Message kMessages[] = {
    {hipSuccess, "hipSuccess"},
    {hipErrorInvalidValue, "hipErrorInvalidValue"},
    {hipErrorOutOfMemory, "hipErrorOutOfMemory"},
    {hipErrorNoDevice, "hipErrorNoDevice"},
    {hipErrorInvalidDevice, "hipErrorInvalidDevice"},
    {hipErrorNotReady, "hipErrorNotReady"},
    {hipErrorPeerAccessUnsupported, "hipErrorPeerAccessUnsupported"},
};

// As HIP, which takes it from HSA's SVM_ACCESSIBLE_BY_DEFAULT: where a GPU retries page faults.
int reads_pageable_memory(const Gpu& one) {
  const char* retries = std::getenv("HSA_XNACK");
  return retries != nullptr && std::strcmp(retries, "1") == 0 ? 1 : fact(one, "pageable_memory_access", 0);
}

int attribute(const Gpu& one, hipDeviceAttribute_t which) {
  switch (which) {
    case hipDeviceAttributeConcurrentManagedAccess:
      return 1;
    case hipDeviceAttributePageableMemoryAccess:
      return reads_pageable_memory(one);
    case hipDeviceAttributeManagedMemory:
      return 1;
    case hipDeviceAttributeMultiprocessorCount:
      return fact(one, "multiprocessors", 100);
    case hipDeviceAttributeMaxThreadsPerBlock:
      return 1024;
    case hipDeviceAttributeWarpSize:
      return 64;
    case hipDeviceAttributeComputeCapabilityMajor:
      return 9;
    case hipDeviceAttributeComputeCapabilityMinor:
      return 0;
    default:
      end_run("the stand-in of libamdhip64 does not know device attribute " + std::to_string(which));
  }
}

Kind kind_of(unsigned flags) { return (flags & hipHostMallocNonCoherent) != 0 ? Kind::noncoherent : Kind::pinned; }

}  // namespace

extern "C" {

// Kernels --------------------------------------------------------------------------------------------------------

void** __hipRegisterFatBinary(const void*) {
  static void* none;
  return &none;
}
void __hipUnregisterFatBinary(void**) {}
void __hipRegisterFunction(void**, const void* stub, char*, const char* name, unsigned, void*, void*, void*, void*,
                           int*) {
  register_kernel(stub, name);
}
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared_memory, hipStream_t stream) {
  push_configuration({{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_memory, stream});
  return hipSuccess;
}
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_memory, hipStream_t* stream) {
  const Configuration configuration = pop_configuration();
  *grid = dim3(configuration.grid[0], configuration.grid[1], configuration.grid[2]);
  *block = dim3(configuration.block[0], configuration.block[1], configuration.block[2]);
  *shared_memory = configuration.shared_memory;
  *stream = static_cast<hipStream_t>(configuration.stream);
  return hipSuccess;
}
hipError_t hipLaunchKernel(const void* stub, dim3, dim3, void** arguments, size_t, hipStream_t stream) {
  if (!present()) return answer(hipErrorNoDevice);
  launch(stub, arguments, stream);
  return hipSuccess;
}

// Errors and versions --------------------------------------------------------------------------------------------

hipError_t hipGetLastError() {
  const hipError_t result = last_error;
  last_error = hipSuccess;
  return result;
}
hipError_t hipPeekAtLastError() { return last_error; }
const char* hipGetErrorName(hipError_t error) {
  const auto* found = std::find_if(std::begin(kMessages), std::end(kMessages),
                                   [&](const Message& each) { return each.error == error; });
  return found == std::end(kMessages) ? "hipErrorUnknown" : found->name;
}
// HIP's texts are the names, as long as AMD has written no others.
const char* hipGetErrorString(hipError_t error) { return hipGetErrorName(error); }
hipError_t hipRuntimeGetVersion(int* number) {
  *number = static_cast<int>(version("runtime").integer(HIP_VERSION));
  return hipSuccess;
}
hipError_t hipDriverGetVersion(int* number) { return hipRuntimeGetVersion(number); }

// Devices --------------------------------------------------------------------------------------------------------

hipError_t hipInit(unsigned) { return present() ? hipSuccess : answer(hipErrorNoDevice); }
hipError_t hipGetDeviceCount(int* count) {
  *count = 0;
  if (!present()) return answer(hipErrorNoDevice);
  *count = device_count();
  return hipSuccess;
}
hipError_t hipSetDevice(int device) {
  if (!present()) return answer(hipErrorNoDevice);
  return set_current(device) ? hipSuccess : answer(hipErrorInvalidDevice);
}
hipError_t hipGetDevice(int* device) {
  if (!present()) return answer(hipErrorNoDevice);
  *device = current_ordinal();
  return hipSuccess;
}
hipError_t hipDeviceSynchronize() {
  if (!present()) return answer(hipErrorNoDevice);
  synchronize_device(current_gpu().vertex);
  return hipSuccess;
}
hipError_t hipDeviceGetPCIBusId(char* text, int length, int device) {
  const Gpu* one = gpu(device);
  if (one == nullptr || length <= 0) return answer(hipErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(length), "%s", one->bus_id.c_str());
  return hipSuccess;
}
hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  const Gpu* one = gpu(device);
  if (one == nullptr) return answer(hipErrorInvalidDevice);
  std::memcpy(uuid, one->uuid.data(), one->uuid.size());
  return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which, int device) {
  const Gpu* one = gpu(device);
  if (one == nullptr) return answer(hipErrorInvalidDevice);
  *value = attribute(*one, which);
  return hipSuccess;
}
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  const Gpu* one = gpu(device);
  if (one == nullptr) return answer(hipErrorInvalidDevice);
  std::memset(static_cast<void*>(properties), 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "%s", device_name(*one).c_str());
  std::snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "%s",
                one->facts["arch"].text("gfx90a").c_str());
  properties->totalGlobalMem = one->memory_bytes;
  properties->multiProcessorCount = fact(*one, "multiprocessors", 100);
  properties->major = 9;
  properties->warpSize = 64;
  properties->maxThreadsPerBlock = 1024;
  properties->canMapHostMemory = 1;
  properties->concurrentManagedAccess = 1;
  properties->pageableMemoryAccess = reads_pageable_memory(*one);
  unsigned place[3] = {};
  std::sscanf(one->bus_id.c_str(), "%x:%x:%x", &place[0], &place[1], &place[2]);
  properties->pciDomainID = static_cast<int>(place[0]);
  properties->pciBusID = static_cast<int>(place[1]);
  properties->pciDeviceID = static_cast<int>(place[2]);
  return hipSuccess;
}
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
  const Gpu* one = gpu(device);
  const Gpu* other = gpu(peer);
  if (one == nullptr || other == nullptr) return answer(hipErrorInvalidDevice);
  *can = one != other && description().route(one->vertex, other->vertex).peer_access ? 1 : 0;
  return hipSuccess;
}
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned) {
  int can = 0;
  const hipError_t result = hipDeviceCanAccessPeer(&can, current_ordinal(), peer);
  if (result != hipSuccess) return result;
  return can != 0 ? hipSuccess : answer(hipErrorPeerAccessUnsupported);
}
hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  if (!present()) return answer(hipErrorNoDevice);
  const Gpu& one = current_gpu();
  *total = one.memory_bytes;
  *free = one.memory_bytes - Timeline::of_node().memory_used(one.vertex);
  return hipSuccess;
}

// Memory ---------------------------------------------------------------------------------------------------------

hipError_t hipMalloc(void** pointer, size_t bytes) {
  if (!present()) return answer(hipErrorNoDevice);
  return answer(allocate_device(pointer, bytes, current_gpu().vertex));
}
hipError_t hipFree(void* pointer) { return answer(release(pointer)); }
hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned flags) {
  if (!present()) return answer(hipErrorNoDevice);
  return answer(allocate_host(pointer, bytes, kind_of(flags)));
}
hipError_t hipHostFree(void* pointer) { return answer(release(pointer)); }
hipError_t hipMallocManaged(void** pointer, size_t bytes, unsigned) {
  if (!present()) return answer(hipErrorNoDevice);
  return answer(allocate_host(pointer, bytes, Kind::managed));
}
hipError_t hipHostRegister(void* pointer, size_t bytes, unsigned) { return answer(register_host(pointer, bytes)); }
hipError_t hipHostUnregister(void* pointer) { return answer(unregister_host(pointer)); }
hipError_t hipHostGetDevicePointer(void** on_device, void* pointer, unsigned) {
  if (!region_of(pointer)) return answer(hipErrorInvalidValue);
  *on_device = pointer;
  return hipSuccess;
}
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  const auto region = region_of(pointer);
  if (!region) return answer(hipErrorInvalidValue);
  std::memset(static_cast<void*>(attributes), 0, sizeof *attributes);
  const bool on_device = region->kind == Kind::device || region->kind == Kind::opened;
  attributes->memoryType = on_device ? hipMemoryTypeDevice : hipMemoryTypeHost;
  attributes->device = region->gpu >= 0 ? ordinal_of(region->gpu) : current_ordinal();
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->hostPointer = on_device ? nullptr : const_cast<void*>(pointer);
  attributes->isManaged = region->kind == Kind::managed ? 1 : 0;
  attributes->allocationFlags = region->kind == Kind::noncoherent ? hipHostMallocNonCoherent : 0;
  return hipSuccess;
}
hipError_t hipMemAdvise(const void* pointer, size_t, hipMemoryAdvise advice, int device) {
  if (advice == hipMemAdviseSetPreferredLocation) {
    const Gpu* one = device >= 0 ? gpu(device) : nullptr;
    set_place(pointer, one == nullptr ? -1 : one->vertex);
  }
  return hipSuccess;
}
hipError_t hipMemPrefetchAsync(const void* pointer, size_t bytes, int device, hipStream_t stream) {
  const Gpu* one = device >= 0 ? gpu(device) : nullptr;
  migrate(stream_of(stream), pointer, bytes, one == nullptr ? -1 : one->vertex);
  return hipSuccess;
}

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* pointer) {
  Handle own{};
  const Result result = handle_of(pointer, own);
  static_assert(sizeof own <= sizeof *handle, "a handle has 64 bytes");
  std::memset(static_cast<void*>(handle), 0, sizeof *handle);
  std::memcpy(static_cast<void*>(handle), &own, sizeof own);
  return answer(result);
}
hipError_t hipIpcOpenMemHandle(void** pointer, hipIpcMemHandle_t handle, unsigned) {
  if (!present()) return answer(hipErrorNoDevice);
  Handle own{};
  std::memcpy(&own, &handle, sizeof own);
  return answer(open_handle(pointer, own, current_gpu().vertex));
}
hipError_t hipIpcCloseMemHandle(void* pointer) { return answer(close_handle(pointer)); }

hipError_t hipMemcpyAsync(void* destination, const void* source, size_t bytes, hipMemcpyKind, hipStream_t stream) {
  if (!present()) return answer(hipErrorNoDevice);
  enqueue_copy(stream_of(stream), destination, source, bytes, Mover::copy);
  return hipSuccess;
}
hipError_t hipMemcpy(void* destination, const void* source, size_t bytes, hipMemcpyKind kind) {
  const hipError_t result = hipMemcpyAsync(destination, source, bytes, kind, nullptr);
  if (result == hipSuccess) stream_of(nullptr).synchronize();
  return result;
}
hipError_t hipMemsetAsync(void* pointer, int value, size_t bytes, hipStream_t stream) {
  if (!present()) return answer(hipErrorNoDevice);
  enqueue_set(stream_of(stream), pointer, value, bytes);
  return hipSuccess;
}
hipError_t hipMemset(void* pointer, int value, size_t bytes) { return hipMemsetAsync(pointer, value, bytes, nullptr); }

// Streams and events ---------------------------------------------------------------------------------------------

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) {
  if (!present()) return answer(hipErrorNoDevice);
  *stream = static_cast<hipStream_t>(make_stream());
  return hipSuccess;
}
hipError_t hipStreamCreate(hipStream_t* stream) { return hipStreamCreateWithFlags(stream, 0); }
hipError_t hipStreamDestroy(hipStream_t stream) {
  destroy_stream(stream);
  return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
  stream_of(stream).synchronize();
  return hipSuccess;
}
hipError_t hipStreamQuery(hipStream_t stream) { return hipStreamSynchronize(stream); }
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
  wait_for_event(stream_of(stream), *reinterpret_cast<Event*>(event));
  return hipSuccess;
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
  *event = reinterpret_cast<hipEvent_t>(new Event);
  return hipSuccess;
}
hipError_t hipEventCreate(hipEvent_t* event) { return hipEventCreateWithFlags(event, 0); }
hipError_t hipEventDestroy(hipEvent_t event) {
  auto* own = reinterpret_cast<Event*>(event);
  forget_event(*own);
  delete own;
  return hipSuccess;
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  record_event(*reinterpret_cast<Event*>(event), stream_of(stream));
  return hipSuccess;
}
hipError_t hipEventSynchronize(hipEvent_t event) {
  synchronize_event(*reinterpret_cast<Event*>(event));
  return hipSuccess;
}
hipError_t hipEventQuery(hipEvent_t event) {
  return event_has_ended(*reinterpret_cast<Event*>(event)) ? hipSuccess : hipErrorNotReady;
}
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t end) {
  auto* first = reinterpret_cast<Event*>(start);
  auto* last = reinterpret_cast<Event*>(end);
  if (!event_has_ended(*first) || !event_has_ended(*last)) return answer(hipErrorNotReady);
  *milliseconds = static_cast<float>(static_cast<double>(synchronize_event(*last) - synchronize_event(*first)) / 1e6);
  return hipSuccess;
}

}  // extern "C"
