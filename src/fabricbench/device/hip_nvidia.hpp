// HIP's NVIDIA back end with a CUDA toolkit that is newer than the HIP headers. CUDA 13 removed what those headers (HIP
// 5.2) still wrap; what fabricbench does not call is answered with "not supported", what it calls is translated.
#pragma once

#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#if CUDART_VERSION >= 13000

namespace fabricbench::device::hip_nvidia {

// Fields that became attributes.
struct DeviceProperties : cudaDeviceProp {
  int clockRate;
  int memoryClockRate;
  int computeMode;
  int kernelExecTimeoutEnabled;
  int cooperativeMultiDeviceLaunch;
};

inline cudaMemLocation device_location(int device) {
  return device == cudaCpuDeviceId ? cudaMemLocation{cudaMemLocationTypeHost, 0}
                                   : cudaMemLocation{cudaMemLocationTypeDevice, device};
}
inline cudaError_t advise(const void* memory, std::size_t bytes, cudaMemoryAdvise advice, int device) {
  return ::cudaMemAdvise(memory, bytes, advice, device_location(device));
}
inline cudaError_t prefetch(const void* memory, std::size_t bytes, int device, cudaStream_t stream) {
  return ::cudaMemPrefetchAsync(memory, bytes, device_location(device), 0, stream);
}

template <class T, int dimensions, cudaTextureReadMode mode>
struct Texture {};

}  // namespace fabricbench::device::hip_nvidia

#define cudaDeviceProp fabricbench::device::hip_nvidia::DeviceProperties
#define cudaMemAdvise fabricbench::device::hip_nvidia::advise
#define cudaMemPrefetchAsync fabricbench::device::hip_nvidia::prefetch
#define cudaDevAttrCooperativeMultiDeviceLaunch cudaDevAttrCooperativeLaunch
#define texture fabricbench::device::hip_nvidia::Texture
#define cudaBindTexture(...) cudaErrorNotSupported
#define cudaBindTexture2D(...) cudaErrorNotSupported
#define cudaBindTextureToArray(...) cudaErrorNotSupported
#define cudaUnbindTexture(...) cudaErrorNotSupported
#define cudaGetTextureAlignmentOffset(...) cudaErrorNotSupported
#define cudaLaunchCooperativeKernelMultiDevice(...) cudaErrorNotSupported
#define cudaGraphAddDependencies(...) cudaErrorNotSupported
#define cudaGraphRemoveDependencies(...) cudaErrorNotSupported
#define cudaGraphGetEdges(...) cudaErrorNotSupported
#define cudaGraphNodeGetDependencies(...) cudaErrorNotSupported
#define cudaGraphNodeGetDependentNodes(...) cudaErrorNotSupported
#define cudaStreamGetCaptureInfo_v2(...) cudaErrorNotSupported
#define cudaStreamUpdateCaptureDependencies(...) cudaErrorNotSupported
#undef cuCtxCreate
#define cuCtxCreate(...) CUDA_ERROR_NOT_SUPPORTED

#include <hip/hip_runtime.h>

#undef cudaDeviceProp
#undef cudaMemAdvise
#undef cudaMemPrefetchAsync
#undef cudaDevAttrCooperativeMultiDeviceLaunch
#undef texture

#else
#include <hip/hip_runtime.h>
#endif
