// libcudart.so.13, as far as fabricbench and common tests of GPUs use it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/ending.hpp"
#include "core/kernels.hpp"
#include "core/memory.hpp"
#include "core/runtime.hpp"

using namespace emulation;

namespace {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t answer(cudaError_t result) {
  if (result != cudaSuccess) last_error = result;
  return result;
}

cudaError_t answer(Result result) {
  switch (result) {
    case Result::success:
      return cudaSuccess;
    case Result::out_of_memory:
      return answer(cudaErrorMemoryAllocation);
    case Result::no_peer_access:
      return answer(cudaErrorPeerAccessUnsupported);
    case Result::unknown_pointer:
    case Result::invalid:
      return answer(cudaErrorInvalidValue);
  }
  return answer(cudaErrorUnknown);
}

bool present() { return !visible_gpus({"CUDA_VISIBLE_DEVICES"}).empty(); }

const Gpu* gpu(int ordinal) { return present() ? gpu_of(ordinal) : nullptr; }

int fact(const Gpu& one, const char* name, int otherwise) {
  return static_cast<int>(one.facts[name].integer(otherwise));
}

struct Message {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr Message kMessages[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
};

const Message& message(cudaError_t error) {
  static constexpr Message unknown{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  const auto* found = std::find_if(std::begin(kMessages), std::end(kMessages),
                                   [&](const Message& each) { return each.error == error; });
  return found == std::end(kMessages) ? unknown : *found;
}

int attribute(const Gpu& one, cudaDeviceAttr which, bool& known) {
  known = true;
  switch (which) {
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrManagedMemory:
      return 1;
    case cudaDevAttrPageableMemoryAccess:
      return fact(one, "pageable_memory_access", 0);
    case cudaDevAttrMultiProcessorCount:
      return fact(one, "multiprocessors", 100);
    case cudaDevAttrComputeCapabilityMajor:
      return fact(one, "major", 9);
    case cudaDevAttrComputeCapabilityMinor:
      return fact(one, "minor", 0);
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
      return 1;
    case cudaDevAttrComputeMode:
    case cudaDevAttrIntegrated:
      return 0;
    default:
      known = false;
      return 0;
  }
}

}  // namespace

extern "C" {

// Kernels --------------------------------------------------------------------------------------------------------

void** __cudaRegisterFatBinary(void* image) {
  static void* kept;
  kept = image;
  return &kept;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, void*, void*, void*, void*, int*) {
  register_kernel(stub, name);
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_memory, void* stream) {
  push_configuration({{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_memory, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_memory, void* stream) {
  const Configuration configuration = pop_configuration();
  *grid = {configuration.grid[0], configuration.grid[1], configuration.grid[2]};
  *block = {configuration.block[0], configuration.block[1], configuration.block[2]};
  *shared_memory = configuration.shared_memory;
  *static_cast<void**>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* stub, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
  if (!present()) return answer(cudaErrorNoDevice);
  launch(stub, arguments, stream);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_memory,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_memory, stream);
}

// Errors and versions --------------------------------------------------------------------------------------------

cudaError_t cudaGetLastError() {
  const cudaError_t result = last_error;
  last_error = cudaSuccess;
  return result;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorString(cudaError_t error) { return message(error).text; }
const char* cudaGetErrorName(cudaError_t error) { return message(error).name; }
cudaError_t cudaRuntimeGetVersion(int* number) {
  *number = static_cast<int>(version("runtime").integer(CUDART_VERSION));
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* number) {
  *number = static_cast<int>(version("cuda_driver").integer(CUDART_VERSION));
  return cudaSuccess;
}

// Devices --------------------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (!present()) return answer(cudaErrorNoDevice);
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!present()) return answer(cudaErrorNoDevice);
  return set_current(device) ? cudaSuccess : answer(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  if (!present()) return answer(cudaErrorNoDevice);
  *device = current_ordinal();
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  if (!present()) return answer(cudaErrorNoDevice);
  synchronize_device(current_gpu().vertex);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const Gpu* one = gpu(device);
  if (one == nullptr || length <= 0) return answer(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(length), "%s", one->bus_id.c_str());
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  const Gpu* one = gpu(device);
  if (one == nullptr) return answer(cudaErrorInvalidDevice);
  bool known = false;
  *value = attribute(*one, which, known);
  if (!known) end_run("the stand-in of libcudart does not know device attribute " + std::to_string(which));
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Gpu* one = gpu(device);
  if (one == nullptr) return answer(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "%s", device_name(*one).c_str());
  std::memcpy(&properties->uuid, one->uuid.data(), one->uuid.size());
  properties->totalGlobalMem = one->memory_bytes;
  properties->major = fact(*one, "major", 9);
  properties->minor = fact(*one, "minor", 0);
  properties->multiProcessorCount = fact(*one, "multiprocessors", 100);
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->unifiedAddressing = 1;
  properties->canMapHostMemory = 1;
  properties->concurrentManagedAccess = 1;
  properties->pageableMemoryAccess = fact(*one, "pageable_memory_access", 0);
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  std::sscanf(one->bus_id.c_str(), "%x:%x:%x", &domain, &bus, &slot);
  properties->pciDomainID = static_cast<int>(domain);
  properties->pciBusID = static_cast<int>(bus);
  properties->pciDeviceID = static_cast<int>(slot);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const Gpu* one = gpu(device);
  const Gpu* other = gpu(peer);
  if (one == nullptr || other == nullptr) return answer(cudaErrorInvalidDevice);
  *can = one != other && description().route(one->vertex, other->vertex).peer_access ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  int can = 0;
  const cudaError_t result = cudaDeviceCanAccessPeer(&can, current_ordinal(), peer);
  if (result != cudaSuccess) return result;
  return can != 0 ? cudaSuccess : answer(cudaErrorPeerAccessUnsupported);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (!present()) return answer(cudaErrorNoDevice);
  const Gpu& one = current_gpu();
  *total = one.memory_bytes;
  *free = one.memory_bytes - Timeline::of_node().memory_used(one.vertex);
  return cudaSuccess;
}

// Memory ---------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (!present()) return answer(cudaErrorNoDevice);
  return answer(allocate_device(pointer, bytes, current_gpu().vertex));
}
cudaError_t cudaFree(void* pointer) { return answer(release(pointer)); }
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  if (!present()) return answer(cudaErrorNoDevice);
  return answer(allocate_host(pointer, bytes, Kind::pinned));
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
cudaError_t cudaFreeHost(void* pointer) { return answer(release(pointer)); }
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
  if (!present()) return answer(cudaErrorNoDevice);
  return answer(allocate_host(pointer, bytes, Kind::managed));
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) { return answer(register_host(pointer, bytes)); }
cudaError_t cudaHostUnregister(void* pointer) { return answer(unregister_host(pointer)); }
cudaError_t cudaHostGetDevicePointer(void** on_device, void* pointer, unsigned) {
  if (!region_of(pointer)) return answer(cudaErrorInvalidValue);
  *on_device = pointer;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  const auto region = region_of(pointer);
  attributes->hostPointer = const_cast<void*>(pointer);
  attributes->device = -1;
  if (!region) {
    attributes->type = cudaMemoryTypeUnregistered;
    return cudaSuccess;
  }
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->device = region->gpu >= 0 ? ordinal_of(region->gpu) : current_ordinal();
  const bool on_device = region->kind == Kind::device || region->kind == Kind::opened;
  if (on_device) attributes->hostPointer = nullptr;
  attributes->type = on_device                       ? cudaMemoryTypeDevice
                     : region->kind == Kind::managed ? cudaMemoryTypeManaged
                                                     : cudaMemoryTypeHost;
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void* pointer, size_t, cudaMemoryAdvise advice, cudaMemLocation place) {
  if (advice == cudaMemAdviseSetPreferredLocation) {
    const Gpu* one = place.type == cudaMemLocationTypeDevice ? gpu(place.id) : nullptr;
    set_place(pointer, one == nullptr ? -1 : one->vertex);
  }
  return cudaSuccess;
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, cudaMemLocation place, unsigned,
                                 cudaStream_t stream) {
  const Gpu* one = place.type == cudaMemLocationTypeDevice ? gpu(place.id) : nullptr;
  migrate(stream_of(stream), pointer, bytes, one == nullptr ? -1 : one->vertex);
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  if (!current_gpu().facts["ipc"].truth(true)) return answer(cudaErrorNotSupported);
  Handle own{};
  const Result result = handle_of(pointer, own);
  static_assert(sizeof own <= sizeof *handle, "a handle has 64 bytes");
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &own, sizeof own);
  return answer(result);
}
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned) {
  if (!present()) return answer(cudaErrorNoDevice);
  Handle own{};
  std::memcpy(&own, &handle, sizeof own);
  return answer(open_handle(pointer, own, current_gpu().vertex));
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) { return answer(close_handle(pointer)); }

cudaError_t cudaMemcpyAsync(void* destination, const void* source, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (!present()) return answer(cudaErrorNoDevice);
  enqueue_copy(stream_of(stream), destination, source, bytes, Mover::copy);
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* destination, int, const void* source, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream);
}
cudaError_t cudaMemcpy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t result = cudaMemcpyAsync(destination, source, bytes, kind, nullptr);
  if (result == cudaSuccess) stream_of(nullptr).synchronize();
  return result;
}
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  if (!present()) return answer(cudaErrorNoDevice);
  enqueue_set(stream_of(stream), pointer, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  return cudaMemsetAsync(pointer, value, bytes, nullptr);
}

// Graphs: what a stream captured, in order ------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream_of(stream).begin_capture();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(new std::vector<Captured>(stream_of(stream).end_capture()));
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  auto& captured = *reinterpret_cast<std::vector<Captured>*>(graph);
  for (size_t i = 0; nodes != nullptr && i < std::min(*count, captured.size()); ++i)
    nodes[i] = reinterpret_cast<cudaGraphNode_t>(&captured[i]);
  *count = captured.size();
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = reinterpret_cast<const Captured*>(node)->is_kernel ? cudaGraphNodeTypeKernel : cudaGraphNodeTypeMemcpy;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable =
      reinterpret_cast<cudaGraphExec_t>(new std::vector<Captured>(*reinterpret_cast<std::vector<Captured>*>(graph)));
  return cudaSuccess;
}
// In the stream in which it was captured: nothing that is emulated launches one in another.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  for (const Captured& each : *reinterpret_cast<std::vector<Captured>*>(executable)) each.enqueue();
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<std::vector<Captured>*>(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<std::vector<Captured>*>(graph);
  return cudaSuccess;
}

// Streams and events ---------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (!present()) return answer(cudaErrorNoDevice);
  *stream = static_cast<cudaStream_t>(make_stream());
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  destroy_stream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream_of(stream).synchronize();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  // Done when this returns, lest who asks until it is takes the cores meanwhile.
  return cudaStreamSynchronize(stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  wait_for_event(stream_of(stream), *reinterpret_cast<Event*>(event));
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  auto* own = reinterpret_cast<Event*>(event);
  forget_event(*own);
  delete own;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  record_event(*reinterpret_cast<Event*>(event), stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  synchronize_event(*reinterpret_cast<Event*>(event));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event_has_ended(*reinterpret_cast<Event*>(event)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  auto* first = reinterpret_cast<Event*>(start);
  auto* last = reinterpret_cast<Event*>(end);
  if (!event_has_ended(*first) || !event_has_ended(*last)) return answer(cudaErrorNotReady);
  *milliseconds = static_cast<float>(static_cast<double>(synchronize_event(*last) - synchronize_event(*first)) / 1e6);
  return cudaSuccess;
}

}  // extern "C"
