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
  bool is_kernel;
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
    Communicator& communicator = *first.communicator;
    Stream& stream = stream_of(first.stream);
    const bool is_kernel = first.is_kernel;
    const auto enqueue = [&communicator, &stream, group] { enqueue_group(communicator, stream, group); };
    if (!stream.capture({is_kernel, enqueue})) enqueue();
  }
}

ncclResult_t add(Communicator* communicator, void* stream, const PointToPoint& transfer, bool is_kernel = true) {
  if (communicator == nullptr || transfer.peer < 0 || transfer.peer >= communicator->size) return ncclInvalidArgument;
  pending.push_back({communicator, stream, transfer, is_kernel});
  if (depth == 0) submit();
  return ncclSuccess;
}

const char* name_of(Collective kind) {
  switch (kind) {
    case Collective::allreduce:
      return "AllReduce";
    case Collective::reduce:
      return "Reduce";
    case Collective::reduce_scatter:
      return "ReduceScatter";
    case Collective::allgather:
      return "AllGather";
    case Collective::broadcast:
      return "Broadcast";
  }
  return "";
}

ncclResult_t collective(Communicator* communicator, void* stream, const Call& call) {
  if (communicator == nullptr || call.root < 0 || call.root >= communicator->size) return ncclInvalidArgument;
  submit();
  Stream& queue = stream_of(stream);
  const std::size_t bytes = call.count * bytes_of(call.type);
  const bool is_kernel = log_call(*communicator, stream, name_of(call.kind), call.send, call.receive, bytes);
  const auto enqueue = [communicator, &queue, call] { enqueue_collective(*communicator, queue, call); };
  if (!queue.capture({is_kernel, enqueue})) enqueue();
  return ncclSuccess;
}

ncclResult_t alltoall(const void* send, void* receive, std::size_t count, ncclDataType_t type, Communicator* comm,
                      void* stream) {
  const std::size_t share = count * bytes_of(type);
  const bool is_kernel = log_call(*comm, stream, "AlltoAll", send, receive, share);
  ++depth;
  for (int peer = 0; peer < comm->size; ++peer) {
    const std::size_t at = share * static_cast<std::size_t>(peer);
    add(comm, stream, {true, peer, const_cast<char*>(static_cast<const char*>(send)) + at, share}, is_kernel);
    add(comm, stream, {false, peer, static_cast<char*>(receive) + at, share}, is_kernel);
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
  read_files();
  *comm = meet(id, size, rank);
  return *comm == nullptr ? ncclInvalidArgument : ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(Communicator** comm, int size, ncclUniqueId id, int rank,
                                    const ncclConfig_t* config) {
  const ncclResult_t result = ncclCommInitRank(comm, size, id, rank);
  if (result == ncclSuccess && config != nullptr && config->size >= sizeof *config)
    (*comm)->by_copy_engines = config->cta_policy == ncclCtaPolicyZero;
  return result;
}
// They meet at the first of the roots.
ncclResult_t ncclCommInitRankScalable(Communicator** comm, int size, int rank, int roots, ncclUniqueId* ids,
                                      const ncclConfig_t* config) {
  return roots < 1 ? ncclInvalidArgument : ncclCommInitRankConfig(comm, size, ids[0], rank, config);
}
// No rank of fabricbench is left out (NCCL_SPLIT_NOCOLOR).
ncclResult_t ncclCommSplit(Communicator* comm, int color, int key, Communicator** part, const ncclConfig_t*) {
  if (comm == nullptr || color < 0) return ncclInvalidArgument;
  *part = split(*comm, color, key);
  return ncclSuccess;
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
  const std::size_t bytes = count * bytes_of(type);
  if (comm != nullptr) log_call(*comm, stream, "Send", data, nullptr, bytes);
  return add(comm, stream, {true, peer, const_cast<void*>(data), bytes});
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, Communicator* comm, void* stream) {
  const std::size_t bytes = count * bytes_of(type);
  if (comm != nullptr) log_call(*comm, stream, "Recv", nullptr, data, bytes);
  return add(comm, stream, {false, peer, data, bytes});
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
