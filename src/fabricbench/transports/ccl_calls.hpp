// What not every version of NCCL has, found while the program runs, and its log turned on for single calls.
#pragma once

#include <cstddef>
#include <string>

#include "fabricbench/transports/nccl_header.hpp"

namespace fabricbench {

// Null for a call that the library does not have.
struct CclCalls {
  ncclResult_t (*allocate)(void** memory, std::size_t bytes);
  ncclResult_t (*release)(void* memory);
  ncclResult_t (*enter_by_roots)(ncclComm_t* communicator, int size, int rank, int roots, ncclUniqueId* ids,
                                 void* config);
  ncclResult_t (*split)(ncclComm_t communicator, int color, int key, ncclComm_t* part, void* config);
  ncclResult_t (*enroll)(ncclComm_t communicator, void* buffer, std::size_t bytes, void** handle);
  ncclResult_t (*strike_off)(ncclComm_t communicator, void* handle);
  ncclResult_t (*make_window)(ncclComm_t communicator, void* buffer, std::size_t bytes, void** window, int flags);
  ncclResult_t (*close_window)(ncclComm_t communicator, void* window);
  void (*read_log_variables_again)();
  const char* (*last_error)(ncclComm_t communicator);
};
const CclCalls& ccl_calls();

// While it lives, NCCL tells of each call in this process's private log, if there is one: what it registers, which
// kernel it takes, who is called. It does not do so where times are taken.
class CclListener {
 public:
  CclListener();
  ~CclListener();
  CclListener(const CclListener&) = delete;
  CclListener& operator=(const CclListener&) = delete;
  // What it told so far.
  std::string heard() const;

 private:
  std::string before_;  // NCCL_DEBUG_SUBSYS
};

// The calls of a stream, recorded once and launched as often as wanted.
class GpuGraph {
 public:
  // `calls` enqueue on the stream, and must not wait for it.
  template <typename Calls>
  GpuGraph(gpuStream_t stream, Calls calls) : stream_(stream) {
    begin();
    calls();
    end();
  }
  ~GpuGraph();
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  void launch();
  std::size_t nodes() const { return nodes_; }
  std::size_t kernels() const { return kernels_; }

 private:
  void begin();
  void end();

  gpuStream_t stream_;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
  std::size_t nodes_ = 0;
  std::size_t kernels_ = 0;
};

}  // namespace fabricbench
