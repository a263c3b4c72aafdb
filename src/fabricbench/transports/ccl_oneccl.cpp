// oneCCL, by its C++ interface. In its words a queue is a stream, and what rank 0 makes for the others to find it a
// key-value store.
#include <mpi.h>

#include <algorithm>
#include <oneapi/ccl.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fabricbench/device/sycl_devices.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/private_log.hpp"
#include "fabricbench/transports/transport.hpp"

namespace fabricbench {
namespace {

// Calls oneCCL, whose errors are exceptions, and says what was called.
template <typename Call>
auto guarded(const char* what, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw RunError("library", std::string(what) + " failed: " + error.what());
  }
}

class OneCcl final : public Transport {
 public:
  ~OneCcl() override {
    const PrintsIntoLog said;
    stream_.reset();
    communicator_.reset();
    store_.reset();
  }
  bool reaches(const Transfer& transfer) const override {
    return transfer.source_place == Place::device && transfer.destination_place == Place::device;
  }
  bool has_library(Operation operation) const override { return is_collective(operation); }
  void set_up(const Context& context) override;
  std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) override;
  std::map<std::string, std::string> library() const override {
    const ccl::library_version version = ccl::get_library_version();
    return {{"oneCCL", std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
                           std::to_string(version.update)}};
  }

  const Context& context() const { return *context_; }
  const ccl::communicator& communicator() const { return *communicator_; }
  const ccl::stream& stream() const { return *stream_; }

 private:
  const Context* context_ = nullptr;
  ccl::shared_ptr_class<ccl::kvs> store_;
  std::optional<ccl::communicator> communicator_;
  std::optional<ccl::stream> stream_;
};

void OneCcl::set_up(const Context& context) {
  const PrintsIntoLog said;  // where it says which paths it takes (proof.hpp)
  context_ = &context;
  const Members& members = context.members;
  guarded("ccl::init", [] { ccl::init(); });
  ccl::kvs::address_type address{};
  if (members.rank == 0) {
    guarded("ccl::create_main_kvs", [&] { store_ = ccl::create_main_kvs(); });
    address = store_->get_address();
  }
  mpi_check(MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, members.communicator),
            "MPI_Bcast");
  if (members.rank != 0) guarded("ccl::create_kvs", [&] { store_ = ccl::create_kvs(address); });
  guarded("ccl::create_communicator", [&] {
    auto device = ccl::create_device(device::current_device());
    auto ccl_context = ccl::create_context(device::shared_context());
    communicator_.emplace(ccl::create_communicator(members.size, members.rank, device, ccl_context, store_));
    stream_.emplace(ccl::create_stream(device::queue_of(context.stream)));
  });
}

// Everything is enqueued on the stream, in order; the events of the library are only asked whether its host part is
// done.
void finish(std::vector<ccl::event>& events, const Context& context) {
  for (ccl::event& event : events) event.wait();
  events.clear();
  context.stream.synchronize();
}

class OneCclTransfers final : public Work {
 public:
  OneCclTransfers(const Group& group, const OneCcl& ccl) : ccl_(ccl) {
    for (const Step& step : group.steps) steps_.push_back(own_transfers(step, ccl.context().world.rank));
  }
  void run(std::uint64_t shift) override {
    guarded("ccl::send or ccl::recv", [&] {
      for (const OwnTransfers& own : steps_) enqueue(own, shift);
      finish(events_, ccl_.context());
    });
  }

 private:
  void enqueue(const OwnTransfers& own, std::uint64_t shift) {
    const Context& context = ccl_.context();
    // What stays on the rank is no message for the library.
    for (const Transfer& sent : own.sent) {
      if (sent.destination == context.world.rank)
        context.stream.copy(destination_of(sent, context) + shift, source_of(sent, context) + shift, sent.bytes);
    }
    const bool alone = own.sent.size() + own.received.size() == 1;
    if (!alone) ccl::group_start();
    for (const Transfer& sent : own.sent) {
      if (sent.destination == context.world.rank) continue;
      events_.push_back(ccl::send(source_of(sent, context) + shift, sent.bytes, ccl::datatype::int8,
                                  context.members.place_of(sent.destination), ccl_.communicator(), ccl_.stream()));
    }
    for (const Transfer& received : own.received) {
      if (received.source == context.world.rank) continue;
      events_.push_back(ccl::recv(destination_of(received, context) + shift, received.bytes, ccl::datatype::int8,
                                  context.members.place_of(received.source), ccl_.communicator(), ccl_.stream()));
    }
    if (!alone) ccl::group_end();
  }

  const OneCcl& ccl_;
  std::vector<OwnTransfers> steps_;
  std::vector<ccl::event> events_;
};

class OneCclCollective final : public Work {
 public:
  OneCclCollective(const Measurement& measurement, const Group& group, const OneCcl& ccl)
      : operation_(measurement.operation), bytes_(measurement.bytes), ranks_(group.ranks.size()), ccl_(ccl) {}
  void run(std::uint64_t shift) override {
    guarded("a collective of oneCCL", [&] {
      events_.push_back(enqueue(shift));
      finish(events_, ccl_.context());
    });
  }

 private:
  ccl::event enqueue(std::uint64_t shift) {
    const std::byte* send = ccl_.context().send.data() + shift;
    std::byte* receive = ccl_.context().receive.data() + shift;
    const std::size_t share = bytes_ / ranks_;
    const std::size_t floats = bytes_ / sizeof(float);
    constexpr auto kBytes = ccl::datatype::int8;
    constexpr auto kFloats = ccl::datatype::float32;
    constexpr int kRoot = 0;
    constexpr auto kSum = ccl::reduction::sum;
    const ccl::communicator& communicator = ccl_.communicator();
    const ccl::stream& stream = ccl_.stream();
    switch (operation_) {
      case Operation::allreduce:
        return ccl::allreduce(send, receive, floats, kFloats, kSum, communicator, stream);
      case Operation::reduce:
        return ccl::reduce(send, receive, floats, kFloats, kSum, kRoot, communicator, stream);
      case Operation::reduce_scatter:
        return ccl::reduce_scatter(send, receive, floats / ranks_, kFloats, kSum, communicator, stream);
      case Operation::allgather:
        return ccl::allgather(send, receive, share, kBytes, communicator, stream);
      case Operation::alltoall:
        return ccl::alltoall(send, receive, share, kBytes, communicator, stream);
      case Operation::broadcast: {
        // In place at the root, as in MPI.
        void* buffer = ccl_.context().members.rank == kRoot ? const_cast<std::byte*>(send) : receive;
        return ccl::broadcast(buffer, bytes_, kBytes, kRoot, communicator, stream);
      }
      default:
        throw RunError("input", to_string(operation_) + " is not a collective of this library");
    }
  }

  Operation operation_;
  std::size_t bytes_;
  std::size_t ranks_;
  const OneCcl& ccl_;
  std::vector<ccl::event> events_;
};

std::unique_ptr<Work> OneCcl::prepare(const Measurement& measurement, const Group& group) {
  if (measurement.implementation == Implementation::library)
    return std::make_unique<OneCclCollective>(measurement, group, *this);
  return std::make_unique<OneCclTransfers>(group, *this);
}

}  // namespace

std::unique_ptr<Transport> make_ccl(const CclModes& modes) {
  if (modes.any()) throw InputError("--ccl-mode needs NCCL or RCCL, and this fabricbench has oneCCL: leave it out");
  return std::make_unique<OneCcl>();
}

}  // namespace fabricbench
