#pragma once
#include <hip/hip_runtime_api.h>
typedef hipStream_t cudaStream_t;
