#include <type_traits>

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"
#include "fabricbench/transports/mpi_steps.hpp"

namespace fabricbench {
namespace {

constexpr int kTag = 1;
constexpr int kAnswerTag = 2;

// How many of a datatype, as either form of a call takes it.
struct Count {
  std::uint64_t number;
  operator int() const { return static_cast<int>(number); }
#if FABRICBENCH_LARGE_COUNTS
  operator MPI_Count() const { return static_cast<MPI_Count>(number); }
#endif
};

// A call of MPI: with int counts as in other programs, unless this count is too large for them.
#if FABRICBENCH_LARGE_COUNTS
#define FABRICBENCH_CALL(name, count, ...) \
  mpi_check((count).number > std::numeric_limits<int>::max() ? name##_c(__VA_ARGS__) : name(__VA_ARGS__), #name)
#else
#define FABRICBENCH_CALL(name, count, ...) mpi_check(name(__VA_ARGS__), #name)
#endif

// `Exchange` is what happens in a step: MpiStep or MpiAlltoallv.
template <typename Exchange>
class MpiTransfers final : public Work {
 public:
  MpiTransfers(const Group& group, const Context& context) {
    for (const Step& step : group.steps)
      steps_.emplace_back(step, context, context.send.data(), context.receive.data());
  }
  // No synchronisation with the device: a completed MPI call means that the data are there.
  void run(std::uint64_t shift) override {
    for (Exchange& step : steps_) step.run(shift);
  }
  std::int64_t run_train(const pattern::Ring& ring) override {
    if constexpr (std::is_same_v<Exchange, MpiStep>) {
      steps_.front().run_window(ring);
      return -1;
    } else {
      return Work::run_train(ring);
    }
  }

 private:
  std::vector<Exchange> steps_;
};

class MpiCollective final : public Work {
 public:
  MpiCollective(const Measurement& measurement, const Context& context)
      : operation_(measurement.operation), bytes_(measurement.bytes), context_(context) {}
  void run(std::uint64_t shift) override {
    run_mpi_collective(operation_, context_.members, bytes_, context_.send.data() + shift,
                       context_.receive.data() + shift);
  }

 private:
  Operation operation_;
  std::uint64_t bytes_;
  const Context& context_;
};

// The allreduce of a group goes on while the blocking calls across groups drive it.
class MpiTrainingStep final : public Work {
 public:
  MpiTrainingStep(const Measurement& measurement, const Context& context)
      : parts_(measurement.parts),
        context_(context),
        group_(context.world, parts_[0].ranks),
        replicas_(context.world, parts_[1].ranks) {}
  void run(std::uint64_t) override {
    const TrainingPart& tensor = parts_[0];
    MPI_Request reduced = MPI_REQUEST_NULL;
    const Count floats{tensor.bytes / sizeof(float)};
    FABRICBENCH_CALL(MPI_Iallreduce, floats, context_.send.data() + tensor.offset,
                     context_.receive.data() + tensor.offset, floats, MPI_FLOAT, MPI_SUM, group_.communicator,
                     &reduced);
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      const TrainingPart& part = parts_[i];
      run_mpi_collective(part.operation, replicas_, part.bytes, context_.send.data() + part.offset,
                         context_.receive.data() + part.offset);
    }
    mpi_check(MPI_Wait(&reduced, MPI_STATUS_IGNORE), "MPI_Wait");
  }

 private:
  const std::vector<TrainingPart>& parts_;
  const Context& context_;
  Members group_;
  Members replicas_;
};

class Mpi final : public Transport {
 public:
  bool has_library(Operation operation) const override {
    return is_collective(operation) || is_training(operation) || operation == Operation::sparse_alltoallv;
  }
  bool reaches(const Transfer& transfer) const override { return transfer.source != transfer.destination; }
  // MPI has the result of a reduce_scatter at the beginning of the buffer, *CCL at the rank's own place.
  bool has_in_place(Operation operation) const override {
    return describe(operation).has(kInPlace) && operation != Operation::reduce_scatter;
  }
  std::uint64_t most_bytes() const override { return kMostMpiBytes; }
  void set_up(const Context& context) override { context_ = &context; }
  std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) override {
    if (measurement.operation == Operation::sparse_alltoallv)
      return std::make_unique<MpiTransfers<MpiAlltoallv>>(group, *context_);
    if (is_training(measurement.operation)) return std::make_unique<MpiTrainingStep>(measurement, *context_);
    if (measurement.implementation == Implementation::library)
      return std::make_unique<MpiCollective>(measurement, *context_);
    return std::make_unique<MpiTransfers<MpiStep>>(group, *context_);
  }

 private:
  const Context* context_ = nullptr;
};

}  // namespace

MpiStep::MpiStep(const Step& step, const Context& context, const std::byte* send, std::byte* receive)
    : world_(context.world),
      stream_(context.stream),
      send_(send),
      receive_(receive),
      host_send_(context.host_send.data()),
      host_receive_(context.host_receive.data()) {
  Step exchanged;
  for (const Transfer& transfer : step) {
    if (transfer.source != transfer.destination) {
      exchanged.push_back(transfer);
    } else if (transfer.source == world_.rank) {
      local_.push_back(transfer);
    }
  }
  own_ = own_transfers(exchanged, world_.rank);
  requests_.assign(own_.sent.size() + own_.received.size(), MPI_REQUEST_NULL);
}

void MpiStep::begin_send(const Transfer& sent, std::uint64_t shift, MPI_Request* request) {
  const Count bytes{sent.bytes};
  FABRICBENCH_CALL(MPI_Isend, bytes, outgoing(sent) + shift, bytes, MPI_BYTE, sent.destination, kTag, world_.all,
                   request);
}

void MpiStep::begin_receive(const Transfer& received, std::uint64_t shift, MPI_Request* request) {
  const Count bytes{received.bytes};
  FABRICBENCH_CALL(MPI_Irecv, bytes, incoming(received) + shift, bytes, MPI_BYTE, received.source, kTag, world_.all,
                   request);
}

void MpiStep::run(std::uint64_t shift) {
  // One transfer alone needs no request: this is what a ping-pong is in every MPI benchmark.
  if (requests_.size() == 1 && local_.empty()) {
    if (!own_.sent.empty()) {
      const Transfer& sent = own_.sent[0];
      FABRICBENCH_CALL(MPI_Send, Count{sent.bytes}, outgoing(sent) + shift, Count{sent.bytes}, MPI_BYTE,
                       sent.destination, kTag, world_.all);
    } else {
      const Transfer& received = own_.received[0];
      FABRICBENCH_CALL(MPI_Recv, Count{received.bytes}, incoming(received) + shift, Count{received.bytes}, MPI_BYTE,
                       received.source, kTag, world_.all, MPI_STATUS_IGNORE);
    }
    return;
  }
  for (const Transfer& local : local_) {
    stream_.copy(incoming(local) + shift, outgoing(local) + shift, local.bytes);
  }
  std::size_t next = 0;
  for (const Transfer& received : own_.received) {
    begin_receive(received, shift, &requests_[next++]);
  }
  for (const Transfer& sent : own_.sent) {
    begin_send(sent, shift, &requests_[next++]);
  }
  mpi_check(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  if (!local_.empty()) stream_.synchronize();
}

void MpiStep::run_window(const pattern::Ring& ring) {
  std::vector<MPI_Request> requests(ring.operations * (own_.sent.size() + own_.received.size()));
  std::size_t next = 0;
  for (std::uint64_t i = 0; i < ring.operations; ++i) {
    const std::uint64_t shift = ring.shift_of(i);
    for (const Transfer& received : own_.received) {
      begin_receive(received, shift, &requests[next++]);
    }
  }
  for (std::uint64_t i = 0; i < ring.operations; ++i) {
    const std::uint64_t shift = ring.shift_of(i);
    for (const Transfer& sent : own_.sent) {
      begin_send(sent, shift, &requests[next++]);
    }
    for (const Transfer& local : local_) stream_.copy(incoming(local) + shift, outgoing(local) + shift, local.bytes);
  }
  mpi_check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  for (const Transfer& received : own_.received)
    mpi_check(MPI_Send(nullptr, 0, MPI_BYTE, received.source, kAnswerTag, world_.all), "MPI_Send");
  for (const Transfer& sent : own_.sent) {
    mpi_check(MPI_Recv(nullptr, 0, MPI_BYTE, sent.destination, kAnswerTag, world_.all, MPI_STATUS_IGNORE), "MPI_Recv");
  }
  if (!local_.empty()) stream_.synchronize();
}

MpiAlltoallv::MpiAlltoallv(const Step& step, const Context& context, const std::byte* send, std::byte* receive)
    : world_(context.world),
      send_(send),
      receive_(receive),
      sent_(static_cast<std::size_t>(world_.size)),
      sent_from_(sent_.size()),
      received_(sent_.size()),
      received_at_(sent_.size()) {
  const OwnTransfers own = own_transfers(step, world_.rank);
  for (const Transfer& transfer : own.sent) {
    const auto peer = static_cast<std::size_t>(transfer.destination);
    sent_[peer] = static_cast<Counts::value_type>(transfer.bytes);
    sent_from_[peer] = static_cast<Offsets::value_type>(transfer.source_offset);
  }
  for (const Transfer& transfer : own.received) {
    const auto peer = static_cast<std::size_t>(transfer.source);
    received_[peer] = static_cast<Counts::value_type>(transfer.bytes);
    received_at_[peer] = static_cast<Offsets::value_type>(transfer.destination_offset);
  }
}

void MpiAlltoallv::run(std::uint64_t shift) {
#if FABRICBENCH_LARGE_COUNTS
  const auto exchange = MPI_Alltoallv_c;
#else
  const auto exchange = MPI_Alltoallv;
#endif
  mpi_check(exchange(send_ + shift, sent_.data(), sent_from_.data(), MPI_BYTE, receive_ + shift, received_.data(),
                     received_at_.data(), MPI_BYTE, world_.all),
            "MPI_Alltoallv");
}

void run_mpi_collective(Operation operation, const Members& members, std::uint64_t bytes, const std::byte* send,
                        std::byte* receive) {
  constexpr int kRoot = 0;
  MPI_Comm all = members.communicator;
  const Count whole{bytes};
  const Count share{bytes / static_cast<std::uint64_t>(members.size)};
  const Count floats{bytes / sizeof(float)};
  const Count shared_floats{share.number / sizeof(float)};
  const void* source = send == receive ? MPI_IN_PLACE : send;
  switch (operation) {
    case Operation::alltoall:
      return FABRICBENCH_CALL(MPI_Alltoall, share, send, share, MPI_BYTE, receive, share, MPI_BYTE, all);
    case Operation::allgather:
      return FABRICBENCH_CALL(MPI_Allgather, share, source, share, MPI_BYTE, receive, share, MPI_BYTE, all);
    case Operation::broadcast: {
      // The root's buffer is where the data come from, and MPI only reads it there.
      void* buffer = members.rank == kRoot ? const_cast<std::byte*>(send) : receive;
      return FABRICBENCH_CALL(MPI_Bcast, whole, buffer, whole, MPI_BYTE, kRoot, all);
    }
    case Operation::allreduce:
      return FABRICBENCH_CALL(MPI_Allreduce, floats, source, receive, floats, MPI_FLOAT, MPI_SUM, all);
    case Operation::reduce:
      if (members.rank != kRoot) source = send;
      return FABRICBENCH_CALL(MPI_Reduce, floats, source, receive, floats, MPI_FLOAT, MPI_SUM, kRoot, all);
    case Operation::reduce_scatter:
      return FABRICBENCH_CALL(MPI_Reduce_scatter_block, shared_floats, send, receive, shared_floats, MPI_FLOAT, MPI_SUM,
                              all);
    default:
      break;
  }
  throw RunError("input", to_string(operation) + " is not a collective of MPI");
}

std::unique_ptr<Transport> make_mpi() { return std::make_unique<Mpi>(); }

}  // namespace fabricbench
