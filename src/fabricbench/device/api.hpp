// The GPU API under one set of names. The cuda and hip backends differ in this file and nowhere else.
#pragma once

#if defined(FABRICBENCH_CUDA)
#include <cuda_runtime.h>
#define GPU_NAME(name) cuda##name
#elif defined(FABRICBENCH_HIP)
#if defined(__HIP_PLATFORM_NVIDIA__)
#include "fabricbench/device/hip_nvidia.hpp"
#else
#include <hip/hip_runtime.h>
#endif
#define GPU_NAME(name) hip##name
#endif

// HIP runs on AMD devices, and on NVIDIA ones through its own NVIDIA back end.
#if defined(FABRICBENCH_HIP) && !defined(__HIP_PLATFORM_NVIDIA__)
#define FABRICBENCH_AMD
#endif

#define gpuError_t GPU_NAME(Error_t)
#define gpuSuccess GPU_NAME(Success)
#define gpuGetErrorString GPU_NAME(GetErrorString)
#define gpuGetLastError GPU_NAME(GetLastError)
#define gpuErrorMemoryAllocation GPU_NAME(ErrorMemoryAllocation)
#define gpuStream_t GPU_NAME(Stream_t)
#define gpuStreamCreateWithFlags GPU_NAME(StreamCreateWithFlags)
#define gpuStreamNonBlocking GPU_NAME(StreamNonBlocking)
#define gpuStreamDestroy GPU_NAME(StreamDestroy)
#define gpuStreamSynchronize GPU_NAME(StreamSynchronize)
#define gpuEvent_t GPU_NAME(Event_t)
#define gpuEventCreate GPU_NAME(EventCreate)
#define gpuEventDestroy GPU_NAME(EventDestroy)
#define gpuEventRecord GPU_NAME(EventRecord)
#define gpuEventQuery GPU_NAME(EventQuery)
#define gpuEventElapsedTime GPU_NAME(EventElapsedTime)
#define gpuStreamQuery GPU_NAME(StreamQuery)
#define gpuErrorNotReady GPU_NAME(ErrorNotReady)
#define gpuMalloc GPU_NAME(Malloc)
#define gpuFree GPU_NAME(Free)
#define gpuMemcpyAsync GPU_NAME(MemcpyAsync)
#define gpuMemcpyDefault GPU_NAME(MemcpyDefault)
#define gpuMemsetAsync GPU_NAME(MemsetAsync)
#define gpuGetDeviceCount GPU_NAME(GetDeviceCount)
#define gpuSetDevice GPU_NAME(SetDevice)
#define gpuDeviceGetPCIBusId GPU_NAME(DeviceGetPCIBusId)
#define gpuDeviceGetAttribute GPU_NAME(DeviceGetAttribute)
#define gpuRuntimeGetVersion GPU_NAME(RuntimeGetVersion)
#define gpuIpcMemHandle_t GPU_NAME(IpcMemHandle_t)
#define gpuIpcGetMemHandle GPU_NAME(IpcGetMemHandle)
#define gpuIpcOpenMemHandle GPU_NAME(IpcOpenMemHandle)
#define gpuIpcCloseMemHandle GPU_NAME(IpcCloseMemHandle)
#define gpuIpcMemLazyEnablePeerAccess GPU_NAME(IpcMemLazyEnablePeerAccess)
#define gpuGetDevice GPU_NAME(GetDevice)
#define gpuHostRegister GPU_NAME(HostRegister)
#define gpuHostRegisterMapped GPU_NAME(HostRegisterMapped)
#define gpuHostUnregister GPU_NAME(HostUnregister)
#define gpuHostGetDevicePointer GPU_NAME(HostGetDevicePointer)
#define gpuMemAdviseSetPreferredLocation GPU_NAME(MemAdviseSetPreferredLocation)
#define gpuMemAdviseSetAccessedBy GPU_NAME(MemAdviseSetAccessedBy)
#define gpuCpuDeviceId GPU_NAME(CpuDeviceId)

// Names that do not follow the pattern.
#if defined(FABRICBENCH_CUDA)
#define gpuDeviceProp cudaDeviceProp
#define gpuGetDeviceProperties cudaGetDeviceProperties
#define gpuHostAllocate(pointer, bytes) cudaHostAlloc(pointer, bytes, cudaHostAllocDefault)
#define gpuHostRelease cudaFreeHost
#define gpuManagedAllocate(pointer, bytes) cudaMallocManaged(pointer, bytes, cudaMemAttachGlobal)
#define gpuConcurrentManagedAccess cudaDevAttrConcurrentManagedAccess
#define gpuPageableMemoryAccess cudaDevAttrPageableMemoryAccess
#define gpuMultiprocessors cudaDevAttrMultiProcessorCount
#elif defined(FABRICBENCH_HIP)
#define gpuDeviceProp hipDeviceProp_t
#define gpuGetDeviceProperties hipGetDeviceProperties
#define gpuHostAllocate(pointer, bytes) hipHostMalloc(pointer, bytes, hipHostMallocDefault)
#define gpuHostRelease hipHostFree
#define gpuManagedAllocate(pointer, bytes) hipMallocManaged(pointer, bytes, hipMemAttachGlobal)
#define gpuConcurrentManagedAccess hipDeviceAttributeConcurrentManagedAccess
#define gpuPageableMemoryAccess hipDeviceAttributePageableMemoryAccess
#define gpuMultiprocessors hipDeviceAttributeMultiprocessorCount
#endif

namespace fabricbench::device {

// `device` may be gpuCpuDeviceId. CUDA 13 names places where others number devices.
#if defined(FABRICBENCH_CUDA) && CUDART_VERSION >= 13000
inline cudaMemLocation location(int device) {
  return device == cudaCpuDeviceId ? cudaMemLocation{cudaMemLocationTypeHost, 0}
                                   : cudaMemLocation{cudaMemLocationTypeDevice, device};
}
inline gpuError_t mem_advise(const void* memory, std::size_t bytes, cudaMemoryAdvise advice, int device) {
  return cudaMemAdvise(memory, bytes, advice, location(device));
}
inline gpuError_t mem_prefetch(const void* memory, std::size_t bytes, int device, gpuStream_t stream) {
  return cudaMemPrefetchAsync(memory, bytes, location(device), 0, stream);
}
#else
template <typename Advice>
gpuError_t mem_advise(const void* memory, std::size_t bytes, Advice advice, int device) {
  return GPU_NAME(MemAdvise)(memory, bytes, advice, device);
}
inline gpuError_t mem_prefetch(const void* memory, std::size_t bytes, int device, gpuStream_t stream) {
  return GPU_NAME(MemPrefetchAsync)(memory, bytes, device, stream);
}
#endif

}  // namespace fabricbench::device
