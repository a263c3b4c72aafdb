// NCCL, and RCCL with the same calls.
#include "fabricbench/device/api.hpp"
#if defined(FABRICBENCH_AMD)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

#include <string>

#include "fabricbench/errors.hpp"
#include "fabricbench/transports/transport.hpp"

#if defined(NCCL_VERSION_CODE) && NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0) && !defined(FABRICBENCH_AMD)
#define FABRICBENCH_CCL_ALLTOALL(send, receive, count, type, comm, stream) \
  ncclAlltoAll(send, receive, count, type, comm, stream)
#elif defined(FABRICBENCH_AMD)
// RCCL's own name for it, older than NCCL's.
#define FABRICBENCH_CCL_ALLTOALL(send, receive, count, type, comm, stream) \
  ncclAllToAll(send, receive, count, type, comm, stream)
#endif

namespace fabricbench {
namespace {

void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) throw RunError("library", std::string(call) + " failed: " + ncclGetErrorString(result));
}

class Ccl final : public Transport {
 public:
  ~Ccl() override {
    if (communicator_ != nullptr) ncclCommDestroy(communicator_);
  }
  bool reaches(const Transfer& transfer) const override {
    return transfer.source_place == Place::device && transfer.destination_place == Place::device;
  }
  bool has_library(Operation operation) const override {
#if defined(FABRICBENCH_CCL_ALLTOALL)
    return is_collective(operation);
#else
    return is_collective(operation) && operation != Operation::alltoall;
#endif
  }
  // Grouped sends and receives are what *CCL's users and tests mean by an alltoall.
  Implementation preferred(Operation operation) const override {
    return operation == Operation::alltoall ? Implementation::transfers : Transport::preferred(operation);
  }
  void set_up(const Context& context) override {
    context_ = &context;
    ncclUniqueId id;
    if (context.world.rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    mpi_check(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, context.world.all), "MPI_Bcast");
    check(ncclCommInitRank(&communicator_, context.world.size, id, context.world.rank), "ncclCommInitRank");
  }
  std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) override;
  std::map<std::string, std::string> library() const override {
    int version = 0;
    check(ncclGetVersion(&version), "ncclGetVersion");
#if defined(FABRICBENCH_AMD)
    const char* name = "RCCL";
#else
    const char* name = "NCCL";
#endif
    return {{name, std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
                       std::to_string(version % 100)}};
  }

  const Context& context() const { return *context_; }
  ncclComm_t communicator() const { return communicator_; }
  gpuStream_t stream() const { return static_cast<gpuStream_t>(context_->stream.native()); }

 private:
  const Context* context_ = nullptr;
  ncclComm_t communicator_ = nullptr;
};

class CclTransfers final : public Work {
 public:
  CclTransfers(const Group& group, const Ccl& ccl) : ccl_(ccl) {
    for (const Step& step : group.steps) steps_.push_back(own_transfers(step, ccl.context().world.rank));
  }
  void run() override {
    const Context& context = ccl_.context();
    // Steps follow each other on the stream: no wait in between.
    for (const OwnTransfers& own : steps_) {
      check(ncclGroupStart(), "ncclGroupStart");
      for (const Transfer& sent : own.sent) {
        check(ncclSend(source_of(sent, context), sent.bytes, ncclInt8, sent.destination, ccl_.communicator(),
                       ccl_.stream()),
              "ncclSend");
      }
      for (const Transfer& received : own.received) {
        check(ncclRecv(context.receive.data() + received.destination_offset, received.bytes, ncclInt8, received.source,
                       ccl_.communicator(), ccl_.stream()),
              "ncclRecv");
      }
      check(ncclGroupEnd(), "ncclGroupEnd");
    }
    context.stream.synchronize();
  }

 private:
  const Ccl& ccl_;
  std::vector<OwnTransfers> steps_;
};

class CclCollective final : public Work {
 public:
  CclCollective(const Measurement& measurement, const Group& group, const Ccl& ccl)
      : operation_(measurement.operation),
        bytes_(measurement.bytes),
        ranks_(group.ranks.size()),
        root_(group.ranks[0]),
        ccl_(ccl) {}
  void run() override {
    enqueue();
    ccl_.context().stream.synchronize();
  }

 private:
  void enqueue() {
    const std::byte* send = ccl_.context().send.data();
    std::byte* receive = ccl_.context().receive.data();
    const std::size_t share = bytes_ / ranks_;
    const std::size_t floats = bytes_ / sizeof(float);
    ncclComm_t communicator = ccl_.communicator();
    gpuStream_t stream = ccl_.stream();
    switch (operation_) {
      case Operation::allreduce:
        return check(ncclAllReduce(send, receive, floats, ncclFloat, ncclSum, communicator, stream), "ncclAllReduce");
      case Operation::reduce:
        return check(ncclReduce(send, receive, floats, ncclFloat, ncclSum, root_, communicator, stream), "ncclReduce");
      case Operation::reduce_scatter:
        return check(ncclReduceScatter(send, receive, floats / ranks_, ncclFloat, ncclSum, communicator, stream),
                     "ncclReduceScatter");
      case Operation::allgather:
        return check(ncclAllGather(send, receive, share, ncclInt8, communicator, stream), "ncclAllGather");
      case Operation::broadcast: {
        // In place at the root, as in MPI.
        void* target = ccl_.context().world.rank == root_ ? const_cast<std::byte*>(send) : receive;
        return check(ncclBroadcast(send, target, bytes_, ncclInt8, root_, communicator, stream), "ncclBroadcast");
      }
#if defined(FABRICBENCH_CCL_ALLTOALL)
      case Operation::alltoall:
        return check(FABRICBENCH_CCL_ALLTOALL(send, receive, share, ncclInt8, communicator, stream), "ncclAlltoAll");
#endif
      default:
        throw RunError("input", to_string(operation_) + " is no collective of this library");
    }
  }

  Operation operation_;
  std::size_t bytes_;
  std::size_t ranks_;
  int root_;
  const Ccl& ccl_;
};

std::unique_ptr<Work> Ccl::prepare(const Measurement& measurement, const Group& group) {
  if (measurement.implementation == Implementation::library)
    return std::make_unique<CclCollective>(measurement, group, *this);
  return std::make_unique<CclTransfers>(group, *this);
}

}  // namespace

std::unique_ptr<Transport> make_ccl() { return std::make_unique<Ccl>(); }

}  // namespace fabricbench
