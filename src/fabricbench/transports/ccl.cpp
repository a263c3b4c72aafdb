// NCCL, and RCCL with the same calls.
#include "fabricbench/transports/transport.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"
#include "fabricbench/transports/ccl_calls.hpp"

#if defined(NCCL_VERSION_CODE) && NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0) && !defined(FABRICBENCH_AMD)
#define FABRICBENCH_CCL_ALLTOALL(send, receive, count, type, comm, stream) \
  ncclAlltoAll(send, receive, count, type, comm, stream)
#define FABRICBENCH_CCL_COPY_ENGINE
#elif defined(FABRICBENCH_AMD)
// RCCL's own name for it, older than NCCL's.
#define FABRICBENCH_CCL_ALLTOALL(send, receive, count, type, comm, stream) \
  ncclAllToAll(send, receive, count, type, comm, stream)
#endif

namespace fabricbench {
namespace {

#if defined(FABRICBENCH_AMD)
constexpr char kName[] = "RCCL";
#else
constexpr char kName[] = "NCCL";
#endif
constexpr int kRoot = 0;             // of rooted collectives, among their members
constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC, which headers before 2.27 do not have

int version_of_library() {
  int version = 0;
  check(ncclGetVersion(&version), "ncclGetVersion");
  return version;
}

std::string dotted(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

// A communicator of all ranks, or of this one's group, its stream, and the buffers that are known to it.
struct Lane {
  ncclComm_t communicator = nullptr;
  gpuStream_t stream = nullptr;
  std::vector<void*> known;
};

class Ccl final : public Transport {
 public:
  explicit Ccl(const CclModes& modes) : modes_(modes) {}
  ~Ccl() override {
    for (const Lane& lane : lanes_) ncclCommDestroy(lane.communicator);
  }
  bool reaches(const Transfer& transfer) const override {
    return transfer.source_place == Place::device && transfer.destination_place == Place::device;
  }
  bool has_library(Operation operation) const override {
    if (is_training(operation)) return !modes_.any();
    // What each rank has of the buffer is in one piece only where one communicator has all of it.
    const bool in_pieces =
        operation == Operation::alltoall || operation == Operation::allgather || operation == Operation::reduce_scatter;
    if (in_pieces && modes_.communicators > 1) return false;
#if defined(FABRICBENCH_CCL_ALLTOALL)
    return is_collective(operation);
#else
    return is_collective(operation) && operation != Operation::alltoall;
#endif
  }
  // Grouped sends and receives are what *CCL's users and tests mean by an alltoall, unless copy engines are to do it.
  Implementation preferred(Operation operation) const override {
    const bool by_engine = modes_.buffers == CclBuffers::copy_engine && has_library(operation);
    return operation == Operation::alltoall && !by_engine ? Implementation::transfers : Transport::preferred(operation);
  }
  bool has_in_place(Operation operation) const override { return describe(operation).has(kInPlace); }
  std::string why_no(DataType type) const override;
  std::string why_unsupported() const override;
  device::Memory allocate(const World&, std::size_t bytes) override;
  void set_up(const Context& context) override;
  void let_go() override;
  std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) override;
  std::map<std::string, std::string> library() const override { return {{kName, dotted(version_of_library())}}; }
  CclProof proof() const override { return proof_; }

  const Context& context() const { return *context_; }
  const CclModes& modes() const { return modes_; }
  const std::vector<Lane>& lanes() const { return lanes_; }
  void synchronize() {
    for (std::size_t i = 1; i < lanes_.size(); ++i) more_streams_[i - 1].synchronize();
    context_->stream.synchronize();
  }
  void enter(ncclComm_t& communicator, const Members& members) const;
  // What the log of a first call, and its graphs, say of a measurement.
  void note(const Measurement& measurement, const CclLogFacts& facts, const GpuGraph* graph, const GpuGraph* one_call);

 private:
  void enter(ncclComm_t& communicator) const;

  CclModes modes_;
  const Context* context_ = nullptr;
  std::vector<device::Stream> more_streams_;
  std::vector<Lane> lanes_;
  bool has_copy_engine_ = false;
  CclProof proof_;
};

std::string Ccl::why_unsupported() const {
  if (!modes_.any()) return {};
  const std::string asked = "--ccl-mode " + join(names(modes_), ",");
  const auto [version, what] = need_of(modes_);
  const CclCalls& calls = ccl_calls();
  const bool has_calls = calls.allocate != nullptr && calls.release != nullptr && calls.enroll != nullptr &&
                         calls.strike_off != nullptr && calls.read_log_variables_again != nullptr &&
                         (!modes_.windows() || (calls.make_window != nullptr && calls.close_window != nullptr));
  if (const int installed = version_of_library(); installed < version || !has_calls) {
    return asked + " needs " + what + ", which came with " + kName + " " + dotted(version) + "; the library is " +
           dotted(installed);
  }
#if !defined(FABRICBENCH_CCL_COPY_ENGINE)
  if (modes_.buffers == CclBuffers::copy_engine)
    return asked + " needs " + what + ", and this fabricbench was built with headers before NCCL 2.28";
#endif
  return {};
}

// The numbers and versions of nccl.h, also where this program was built with an older one.
struct CclType {
  int number;
  int version;
  int compute_capability;  // of NVIDIA devices, major
};
CclType of_nccl(DataType type) {
  switch (type) {
    case DataType::float32:
      return {7, 0, 0};
    case DataType::float16:
      return {6, 0, 0};
    case DataType::bfloat16:
      return {9, 21000, 0};
    case DataType::float8_e4m3:
      return {10, 22400, 9};
    case DataType::float8_e5m2:
      return {11, 22400, 9};
  }
  return {};
}
ncclDataType_t of_ccl(DataType type) { return static_cast<ncclDataType_t>(of_nccl(type).number); }

std::string Ccl::why_no(DataType type) const {
  const CclType wanted = of_nccl(type);
  if (const int installed = version_of_library(); installed < wanted.version) {
    return "--datatype " + to_string(type) + " needs " + kName + " " + dotted(wanted.version) +
           " or newer; the library is " + dotted(installed);
  }
#if !defined(FABRICBENCH_AMD)
  int device_index = 0;
  int major = 0;
  if (cudaGetDevice(&device_index) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_index) == cudaSuccess &&
      major < wanted.compute_capability)
    return "NCCL adds up " + to_string(type) + " on GPUs from Hopper on";
#endif
  return {};
}

device::Memory Ccl::allocate(const World&, std::size_t bytes) {
  if (!modes_.library_memory() || bytes == 0) return device::Memory(bytes);
  void* memory = nullptr;
  check(ccl_calls().allocate(&memory, bytes), "ncclMemAlloc");
  return device::Memory(static_cast<std::byte*>(memory), [](std::byte* data) { (void)ccl_calls().release(data); });
}

void Ccl::set_up(const Context& context) {
  context_ = &context;
  for (int i = 0; i < modes_.communicators; ++i) {
    if (i > 0) more_streams_.emplace_back();
    const device::Stream& stream = i == 0 ? context.stream : more_streams_.back();
    Lane lane;
    lane.stream = static_cast<gpuStream_t>(stream.native());
    enter(lane.communicator);
    lanes_.push_back(lane);
    context.shared.advance();
  }
  for (Lane& lane : lanes_) {
    for (const device::Memory* buffer : {&context.send, &context.receive}) {
      if (buffer == &context.receive && context.in_place()) continue;
      void* handle = nullptr;
      if (modes_.buffers == CclBuffers::registered)
        check(ccl_calls().enroll(lane.communicator, buffer->data(), context.bytes, &handle), "ncclCommRegister");
      if (modes_.windows()) {
        check(ccl_calls().make_window(lane.communicator, buffer->data(), context.bytes, &handle, kSymmetricWindow),
              "ncclCommWindowRegister");
      }
      if (handle != nullptr) lane.known.push_back(handle);
    }
    context.shared.advance();
  }
}

// As applications do it: a group's communicator is split off that of all ranks, where the library can do so.
void Ccl::enter(ncclComm_t& communicator) const {
  const Members& members = context_->members;
  if (members.all || ccl_calls().split == nullptr) return enter(communicator, members);
  ncclComm_t whole = nullptr;
  enter(whole, Members(context_->world, {}));
  check(ccl_calls().split(whole, members.first(), members.rank, &communicator, nullptr), "ncclCommSplit");
  check(ncclCommDestroy(whole), "ncclCommDestroy");
}

// At how many of its ranks those of a communicator meet, where the library can do so: as in PyTorch one for each 128,
// or as its variable says, so that a rank of thousands does not have to talk to all others.
int roots_for(int ranks) {
  constexpr int kRanksOfRoot = 128;
  const char* told = std::getenv("TORCH_NCCL_RANKS_PER_ROOT");
  const int of_root = told != nullptr && std::atoi(told) > 0 ? std::atoi(told) : kRanksOfRoot;
  return ccl_calls().enter_by_roots == nullptr ? 1 : (ranks + of_root - 1) / of_root;
}

void Ccl::enter(ncclComm_t& communicator, const Members& members) const {
  std::vector<ncclUniqueId> ids(static_cast<std::size_t>(roots_for(members.size)));
  const int roots = static_cast<int>(ids.size());
  for (int i = 0; i < roots; ++i) {
    // The first of those that NCCL has meet at this root (rootIdFromRank in its bootstrap.cc).
    const int root = i * (members.size / roots) + std::min(i, members.size % roots);
    ncclUniqueId& id = ids[static_cast<std::size_t>(i)];
    if (members.rank == root) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    mpi_check(MPI_Bcast(&id, sizeof id, MPI_BYTE, root, members.communicator), "MPI_Bcast");
  }
  void* chosen = nullptr;
#if defined(FABRICBENCH_CCL_COPY_ENGINE)
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  if (modes_.buffers == CclBuffers::copy_engine) chosen = &config;
  if (roots == 1 && chosen != nullptr) {
    return check(ncclCommInitRankConfig(&communicator, members.size, ids[0], members.rank, &config),
                 "ncclCommInitRankConfig");
  }
#endif
  if (roots == 1) {
    return check(ncclCommInitRank(&communicator, members.size, ids[0], members.rank), "ncclCommInitRank");
  }
  check(ccl_calls().enter_by_roots(&communicator, members.size, members.rank, roots, ids.data(), chosen),
        "ncclCommInitRankScalable");
}

void Ccl::let_go() {
  for (Lane& lane : lanes_) {
    for (void* handle : lane.known) {
      if (modes_.windows()) {
        check(ccl_calls().close_window(lane.communicator, handle), "ncclCommWindowDeregister");
      } else {
        check(ccl_calls().strike_off(lane.communicator, handle), "ncclCommDeregister");
      }
    }
    lane.known.clear();
  }
}

void Ccl::note(const Measurement& measurement, const CclLogFacts& facts, const GpuGraph* graph,
               const GpuGraph* one_call) {
  has_copy_engine_ = has_copy_engine_ || facts.copy_engine;
  for (const std::string& name : names(modes_)) {
    bool proven = false;
    if (name == kRegisteredMode) {
      proven = facts.registered;
    } else if (name == kSymmetricMode) {
      if (context_->world.rank != 0) continue;  // NCCL names kernels on its first rank only
      proven = facts.symmetric;
    } else if (name == kCopyEngineMode) {
      proven = has_copy_engine_ && one_call->nodes() > 0 && one_call->kernels() == 0;
    } else if (graph != nullptr) {
      proven = graph->nodes() >= static_cast<std::size_t>(modes_.graph_calls);
    } else {
      proven = facts.communicators.size() == lanes_.size();
    }
    proof_.add(name, measurement.operation, measurement.bytes, proven);
  }
}

// Calls of the library, made as the modes say.
class CclWork : public Work {
 public:
  CclWork(const Measurement& measurement, Ccl& ccl) : ccl_(ccl), measurement_(measurement) {}
  void run(std::uint64_t shift) final { run_operations({}, shift); }
  // By the clock of who calls it, as nccl-tests do.
  std::int64_t run_train(const pattern::Ring& ring) final {
    run_operations(ring, 0);
    return -1;
  }

 protected:
  virtual void enqueue_part(std::size_t part, std::size_t parts, std::uint64_t shift) = 0;
  Ccl& ccl_;

 private:
  void run_operations(const pattern::Ring& ring, std::uint64_t shift) {
    std::uint64_t done = 0;
    if (ccl_.modes().any() && !began_) {
      began_ = true;
      begin(ring, shift);
      done = 1;
    }
    if (graph_ && ring.operations == static_cast<std::uint64_t>(ccl_.modes().graph_calls)) {
      graph_->launch();
    } else {
      for (; done < ring.operations; ++done) enqueue(shift + ring.shift_of(done));
    }
    ccl_.synchronize();
  }
  void enqueue(std::uint64_t shift) {
    const std::size_t parts = ccl_.lanes().size();
    for (std::size_t part = 0; part < parts; ++part) enqueue_part(part, parts, shift);
  }
  // In the first iteration, which is never kept: does an operation, looks whether the modes are in effect, and makes
  // the graph.
  void begin(const pattern::Ring& ring, std::uint64_t shift) {
    CclLogFacts facts;
    {
      const CclListener listener;
      enqueue(shift + ring.shift_of(0));
      ccl_.synchronize();
      facts = facts_in_ccl_log(listener.heard());
    }
    std::optional<GpuGraph> one_call;
    if (ccl_.modes().buffers == CclBuffers::copy_engine)
      one_call.emplace(ccl_.lanes()[0].stream, [&] { enqueue(shift); });
    if (const int calls = ccl_.modes().graph_calls; calls > 0) {
      graph_.emplace(ccl_.lanes()[0].stream, [&] {
        for (int i = 0; i < calls; ++i) enqueue(shift + ring.shift_of(static_cast<std::uint64_t>(i) % ring.operations));
      });
    }
    ccl_.note(measurement_, facts, graph_ ? &*graph_ : nullptr, one_call ? &*one_call : nullptr);
  }

  const Measurement& measurement_;
  std::optional<GpuGraph> graph_;
  bool began_ = false;
};

// A part of a number of bytes of whole elements.
struct Part {
  std::size_t begin;
  std::size_t bytes;
};
Part part_of(std::size_t bytes, std::size_t element, std::size_t part, std::size_t parts) {
  const std::size_t elements = bytes / element;
  const std::size_t begin = elements * part / parts * element;
  const std::size_t end = part + 1 == parts ? bytes : elements * (part + 1) / parts * element;
  return {begin, end - begin};
}

class CclTransfers final : public CclWork {
 public:
  CclTransfers(const Measurement& measurement, const Group& group, Ccl& ccl) : CclWork(measurement, ccl) {
    for (const Step& step : group.steps) steps_.push_back(own_transfers(step, ccl.context().world.rank));
  }

 protected:
  void enqueue_part(std::size_t part, std::size_t parts, std::uint64_t shift) override {
    const Context& context = ccl_.context();
    const Lane& lane = ccl_.lanes()[part];
    // Steps follow each other on the stream: no wait in between.
    for (const OwnTransfers& own : steps_) {
      check(ncclGroupStart(), "ncclGroupStart");
      for (const Transfer& sent : own.sent) {
        const Part piece = part_of(sent.bytes, 1, part, parts);
        check(ncclSend(source_of(sent, context) + shift + piece.begin, piece.bytes, ncclInt8,
                       context.members.place_of(sent.destination), lane.communicator, lane.stream),
              "ncclSend");
      }
      for (const Transfer& received : own.received) {
        const Part piece = part_of(received.bytes, 1, part, parts);
        check(ncclRecv(destination_of(received, context) + shift + piece.begin, piece.bytes, ncclInt8,
                       context.members.place_of(received.source), lane.communicator, lane.stream),
              "ncclRecv");
      }
      check(ncclGroupEnd(), "ncclGroupEnd");
    }
  }

 private:
  std::vector<OwnTransfers> steps_;
};

class CclCollective final : public CclWork {
 public:
  CclCollective(const Measurement& measurement, const Group& group, Ccl& ccl)
      : CclWork(measurement, ccl),
        operation_(measurement.operation),
        bytes_(measurement.bytes),
        ranks_(group.ranks.size()) {}

 protected:
  void enqueue_part(std::size_t part, std::size_t parts, std::uint64_t shift) override {
    const DataType type = ccl_.context().data_type;
    const std::size_t element = describe(type).format.bytes;
    const Part piece = part_of(bytes_, element, part, parts);
    const std::byte* send = ccl_.context().send.data() + shift + piece.begin;
    std::byte* receive = ccl_.context().receive.data() + shift + piece.begin;
    const std::size_t share = piece.bytes / ranks_;
    const std::size_t numbers = piece.bytes / element;
    // In place a rank's part lies where it is in the whole.
    const std::size_t own =
        ccl_.context().in_place() ? share * static_cast<std::size_t>(ccl_.context().members.rank) : 0;
    const auto& [communicator, stream, known] = ccl_.lanes()[part];
    switch (operation_) {
      case Operation::allreduce:
        return check(ncclAllReduce(send, receive, numbers, of_ccl(type), ncclSum, communicator, stream),
                     "ncclAllReduce");
      case Operation::reduce:
        return check(ncclReduce(send, receive, numbers, of_ccl(type), ncclSum, kRoot, communicator, stream),
                     "ncclReduce");
      case Operation::reduce_scatter:
        return check(
            ncclReduceScatter(send, receive + own, numbers / ranks_, of_ccl(type), ncclSum, communicator, stream),
            "ncclReduceScatter");
      case Operation::allgather:
        return check(ncclAllGather(send + own, receive, share, ncclInt8, communicator, stream), "ncclAllGather");
      case Operation::broadcast: {
        // In place at the root, as in MPI.
        void* target = ccl_.context().members.rank == kRoot ? const_cast<std::byte*>(send) : receive;
        return check(ncclBroadcast(send, target, piece.bytes, ncclInt8, kRoot, communicator, stream), "ncclBroadcast");
      }
#if defined(FABRICBENCH_CCL_ALLTOALL)
      case Operation::alltoall:
        return check(FABRICBENCH_CCL_ALLTOALL(send, receive, share, ncclInt8, communicator, stream), "ncclAlltoAll");
#endif
      default:
        throw RunError("input", to_string(operation_) + " is not a collective of this library");
    }
  }

 private:
  Operation operation_;
  std::size_t bytes_;
  std::size_t ranks_;
};

// Communicators of the group and of the ranks across groups, each on a stream of its own, as frameworks have them.
class CclTrainingStep final : public Work {
 public:
  CclTrainingStep(const Measurement& measurement, Ccl& ccl) : parts_(measurement.parts), context_(ccl.context()) {
    ccl.enter(group_, Members(context_.world, parts_[0].ranks));
    ccl.enter(replicas_, Members(context_.world, parts_[1].ranks));
  }
  ~CclTrainingStep() override {
    ncclCommDestroy(group_);
    ncclCommDestroy(replicas_);
  }
  void run(std::uint64_t) override {
    const TrainingPart& tensor = parts_[0];
    const TrainingPart& gradients = parts_[1];
    const TrainingPart& weights = parts_[2];
    const DataType type = context_.data_type;
    const std::size_t element = describe(type).format.bytes;
    const auto of = [](device::Stream& stream) { return static_cast<gpuStream_t>(stream.native()); };
    const std::byte* send = context_.send.data();
    std::byte* receive = context_.receive.data();
    const std::size_t count = gradients.ranks.size();
    check(ncclAllReduce(send + tensor.offset, receive + tensor.offset, tensor.bytes / element, of_ccl(type), ncclSum,
                        group_, of(context_.stream)),
          "ncclAllReduce");
    check(ncclReduceScatter(send + gradients.offset, receive + gradients.offset, gradients.bytes / element / count,
                            of_ccl(type), ncclSum, replicas_, of(stream_)),
          "ncclReduceScatter");
    check(ncclAllGather(send + weights.offset, receive + weights.offset, weights.bytes / count, ncclInt8, replicas_,
                        of(stream_)),
          "ncclAllGather");
    stream_.synchronize();
    context_.stream.synchronize();
  }

 private:
  const std::vector<TrainingPart>& parts_;
  const Context& context_;
  device::Stream stream_;
  ncclComm_t group_ = nullptr;
  ncclComm_t replicas_ = nullptr;
};

std::unique_ptr<Work> Ccl::prepare(const Measurement& measurement, const Group& group) {
  if (is_training(measurement.operation)) return std::make_unique<CclTrainingStep>(measurement, *this);
  if (measurement.implementation == Implementation::library)
    return std::make_unique<CclCollective>(measurement, group, *this);
  return std::make_unique<CclTransfers>(measurement, group, *this);
}

}  // namespace

std::unique_ptr<Transport> make_ccl(const CclModes& modes) { return std::make_unique<Ccl>(modes); }

}  // namespace fabricbench
