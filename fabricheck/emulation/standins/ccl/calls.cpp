// libnccl.so.2 and librccl.so.1: the calls.
#include <algorithm>
#include <cstdio>

#include "ccl/api.hpp"
#include "ccl/communicator.hpp"
#include "ccl/log.hpp"
#include "ccl/operations.hpp"
#include "core/ending.hpp"
#include "core/runtime.hpp"

using namespace emulation;
using namespace emulation::ccl;

namespace {

struct Pending {
  Communicator* communicator;
  void* stream;
  PointToPoint transfer;
};

thread_local int depth = 0;
thread_local std::vector<Pending> pending;

// Transfers of a group go at the same time, for each stream of each communicator.
void submit() {
  std::vector<Pending> all;
  all.swap(pending);
  while (!all.empty()) {
    const Pending first = all.front();
    std::vector<PointToPoint> group;
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](const Pending& each) {
                               const bool is_same =
                                   each.communicator == first.communicator && each.stream == first.stream;
                               if (is_same) group.push_back(each.transfer);
                               return is_same;
                             }),
              all.end());
    enqueue_group(*first.communicator, stream_of(first.stream), group);
  }
}

ncclResult_t add(Communicator* communicator, void* stream, const PointToPoint& transfer) {
  if (communicator == nullptr || transfer.peer < 0 || transfer.peer >= communicator->size) return ncclInvalidArgument;
  pending.push_back({communicator, stream, transfer});
  if (depth == 0) submit();
  return ncclSuccess;
}

ncclResult_t collective(Communicator* communicator, void* stream, const Call& call) {
  if (communicator == nullptr || call.root < 0 || call.root >= communicator->size) return ncclInvalidArgument;
  submit();
  enqueue_collective(*communicator, stream_of(stream), call);
  return ncclSuccess;
}

ncclResult_t alltoall(const void* send, void* receive, std::size_t count, ncclDataType_t type, Communicator* comm,
                      void* stream) {
  const std::size_t share = count * bytes_of(type);
  ++depth;
  for (int peer = 0; peer < comm->size; ++peer) {
    const std::size_t at = share * static_cast<std::size_t>(peer);
    add(comm, stream, {true, peer, const_cast<char*>(static_cast<const char*>(send)) + at, share});
    add(comm, stream, {false, peer, static_cast<char*>(receive) + at, share});
  }
  if (--depth == 0) submit();
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = version_number();
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error - please report this issue to the NCCL developers";
  }
}
const char* ncclGetLastError(Communicator*) { return ""; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = make_id();
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(Communicator** comm, int size, ncclUniqueId id, int rank) {
  if (size < 1 || rank < 0 || rank >= size) return ncclInvalidArgument;
  *comm = meet(id, size, rank);
  return *comm == nullptr ? ncclInvalidArgument : ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(Communicator** comm, int size, ncclUniqueId id, int rank, void*) {
  return ncclCommInitRank(comm, size, id, rank);
}
ncclResult_t ncclCommFinalize(Communicator*) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(Communicator* comm) {
  leave(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(Communicator* comm) { return ncclCommDestroy(comm); }
ncclResult_t ncclCommCount(const Communicator* comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const Communicator* comm, int* device) {
  *device = comm->self().device;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const Communicator* comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(Communicator*, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth == 0) submit();
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, Communicator* comm,
                      void* stream) {
  return add(comm, stream, {true, peer, const_cast<void*>(data), count * bytes_of(type)});
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, Communicator* comm, void* stream) {
  return add(comm, stream, {false, peer, data, count * bytes_of(type)});
}
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, Communicator* comm, void* stream) {
  return collective(comm, stream, {Collective::allreduce, send, receive, count, type, operation, 0});
}
ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, Communicator* comm, void* stream) {
  return collective(comm, stream, {Collective::reduce, send, receive, count, type, operation, root});
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, Communicator* comm, void* stream) {
  return collective(comm, stream, {Collective::reduce_scatter, send, receive, count, type, operation, 0});
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type, Communicator* comm,
                           void* stream) {
  return collective(comm, stream, {Collective::allgather, send, receive, count, type, ncclSum, 0});
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           Communicator* comm, void* stream) {
  return collective(comm, stream, {Collective::broadcast, send, receive, count, type, ncclSum, root});
}
ncclResult_t ncclBcast(void* data, std::size_t count, ncclDataType_t type, int root, Communicator* comm, void* stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}
// NCCL's name for it, and RCCL's.
ncclResult_t ncclAlltoAll(const void* send, void* receive, std::size_t count, ncclDataType_t type, Communicator* comm,
                          void* stream) {
  return alltoall(send, receive, count, type, comm, stream);
}
ncclResult_t ncclAllToAll(const void* send, void* receive, std::size_t count, ncclDataType_t type, Communicator* comm,
                          void* stream) {
  return alltoall(send, receive, count, type, comm, stream);
}

}  // extern "C"
