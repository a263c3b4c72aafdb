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
#include "fabricbench/private_log.hpp"
#include "fabricbench/proof_logs.hpp"

namespace fabricbench {

// What the library itself gives as the reason of a failure, as "; NCCL says: …"; empty where it says nothing.
std::string words_of_ccl();

inline void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  throw RunError("library", std::string(call) + " failed: " + ncclGetErrorString(result) + words_of_ccl());
}

}  // namespace fabricbench
