// NCCL's header, or RCCL's with the same calls.
#pragma once

#include "fabricbench/device/api.hpp"
#if defined(FABRICBENCH_AMD)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

#include <string>

#include "fabricbench/errors.hpp"

namespace fabricbench {

inline void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) throw RunError("library", std::string(call) + " failed: " + ncclGetErrorString(result));
}

}  // namespace fabricbench
