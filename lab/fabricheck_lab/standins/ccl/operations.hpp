// The operations of *CCL, enqueued on a stream.
#pragma once

#include <cstddef>
#include <vector>

#include "ccl/api.hpp"
#include "ccl/communicator.hpp"
#include "core/stream.hpp"

namespace emulation::ccl {

struct PointToPoint {
  bool sends;
  int peer;
  void* data;
  std::size_t bytes;
};

// All of them as one operation, in which none waits for another.
void enqueue_group(Communicator& communicator, Stream& stream, const std::vector<PointToPoint>& group);

enum class Collective { allreduce, reduce, reduce_scatter, allgather, broadcast };

struct Call {
  Collective kind;
  const void* send;
  void* receive;
  std::size_t count;  // elements, as the call counts them
  ncclDataType_t type;
  ncclRedOp_t operation;
  int root;
};

void enqueue_collective(Communicator& communicator, Stream& stream, const Call& call);

// Logs a call as NCCL does, with what it makes of the buffers; whether a kernel runs it, and no copy engine.
bool log_call(Communicator& communicator, const void* stream, const char* name, const void* send, const void* receive,
              std::size_t bytes);

// Bytes of an element; ends the run for a type that is not known.
std::size_t bytes_of(ncclDataType_t type);
// out[i] = a[i] op b[i]; ends the run for a type or operation that is not stood in for.
void combine(void* out, const void* a, const void* b, std::size_t count, ncclDataType_t type, ncclRedOp_t operation);

}  // namespace emulation::ccl
