// The GPU API under one set of names. The cuda and hip ports differ in this file and nowhere else.
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

// Names that do not follow the pattern.
#if defined(FABRICBENCH_CUDA)
#define gpuDeviceProp cudaDeviceProp
#define gpuGetDeviceProperties cudaGetDeviceProperties
#define gpuHostAllocate(pointer, bytes) cudaHostAlloc(pointer, bytes, cudaHostAllocDefault)
#define gpuHostRelease cudaFreeHost
#define gpuMultiprocessors cudaDevAttrMultiProcessorCount
#elif defined(FABRICBENCH_HIP)
#define gpuDeviceProp hipDeviceProp_t
#define gpuGetDeviceProperties hipGetDeviceProperties
#define gpuHostAllocate(pointer, bytes) hipHostMalloc(pointer, bytes, hipHostMallocDefault)
#define gpuHostRelease hipHostFree
#define gpuMultiprocessors hipDeviceAttributeMultiprocessorCount
#endif
