// What moves the data. A transport runs any list of transfers, and the collectives that it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabricbench/ccl_modes.hpp"
#include "fabricbench/device/device.hpp"
#include "fabricbench/node_shared.hpp"
#include "fabricbench/plan.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {

// What all transports work on. Send and receive buffers of one rank, each `bytes` large, on its device, and those in
// host memory, as large as the plan needs them.
struct Context {
  const World& world;
  const Members& members;
  NodeShared& shared;
  device::Stream& stream;
  device::Memory& send;
  device::Memory& receive;
  std::size_t bytes;
  device::HostMemory& host_send;
  device::HostMemory& host_receive;
  device::HostKind host_kind;
  Access access;
  bool between_ranks;  // whether the plan moves data between ranks, and not only inside each
  DataType data_type;  // of the numbers that are added up
  HostBufferBytes host_bytes{};
  int device_index = -1;  // -1: no device

  // Whether collectives have their result where their input was.
  bool in_place() const { return &send == &receive; }
};

// This rank's part of a measurement, made ready. run() returns when that part is done and the device is synchronised.
class Work {
 public:
  virtual ~Work() = default;
  // With all data so many bytes further in every buffer.
  virtual void run(std::uint64_t shift) = 0;
  // The operations of a ring, one after the other without a wait in between where the transport can. Nanoseconds of
  // all of it by the device's clock, 0 for a rank that moves nothing itself; -1: by the clock of who calls it.
  virtual std::int64_t run_train(const pattern::Ring& ring) {
    for (std::uint64_t i = 0; i < ring.operations; ++i) run(ring.shift_of(i));
    return -1;
  }
  // Before each run, outside the clock: puts back what a run moves away.
  virtual void rewind() {}
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Whether it has its own collective for `operation`, and whether it can run it as a list of transfers.
  virtual bool has_library(Operation operation) const = 0;
  virtual bool has_transfers(Operation operation) const {
    return !is_reduction(operation) && operation != Operation::sparse_alltoallv;
  }
  // Whether it moves data from the one buffer to the other: those of two ranks, or of one.
  virtual bool reaches(const Transfer& transfer) const {
    return transfer.source_place == Place::device && transfer.destination_place == Place::device &&
           transfer.source != transfer.destination;
  }
  // Which of the two is meant where the user did not say.
  virtual Implementation preferred(Operation operation) const {
    return has_library(operation) ? Implementation::library : Implementation::transfers;
  }

  // Whether its collective for `operation` can have its result where its input was.
  virtual bool has_in_place(Operation) const { return false; }
  // Why it cannot add up numbers of this type; empty where it can.
  virtual std::string why_no(DataType type) const {
    return type == DataType::float32 ? "" : "this library adds up float32 alone: leave out --datatype";
  }

  // Whether others may still read what this rank sent when its own part is done.
  virtual bool others_read(Operation) const { return false; }

  // The largest buffer that it can send.
  virtual std::uint64_t most_bytes() const { return std::numeric_limits<std::uint64_t>::max(); }

  // Why the machine or its libraries cannot do what this transport was made for; empty where they can.
  virtual std::string why_unsupported() const { return {}; }
  // A send or receive buffer on the device. All ranks call it.
  virtual device::Memory allocate(const World&, std::size_t bytes) { return device::Memory(bytes); }
  // Allocates, exchanges handles, creates communicators: everything that happens once. All ranks call it.
  virtual void set_up(const Context& context) = 0;
  // Before the buffers go. All ranks call it.
  virtual void let_go() {}
  // Null where this rank has no part. Not collective.
  virtual std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) = 0;

  // Name to version of the library that moves the data, beside MPI and the GPU runtime.
  virtual std::map<std::string, std::string> library() const { return {}; }
  // By which handles ranks reach each other's memory, where they do.
  virtual device::Handles handles() const { return device::Handles::ipc; }
  // The NICs that this rank uses, for the header: a JSON array; empty where libraries choose them.
  virtual std::string nics_json() const { return {}; }
  // Which paths the data of this rank take, and how many of each, where the transport knows it by itself.
  virtual std::map<std::string, long> paths() const { return {}; }
  // Which measurements were made in the modes that were asked for, as far as this rank can tell.
  virtual CclProof proof() const { return {}; }
};

// The transport of that name, or InputError where this backend has none. One that works inside a node only has to have
// no more than one, unless it is `for_a_step`: then it is not asked for what goes between nodes.
std::unique_ptr<Transport> make_transport(const std::string& name, const Options& options, bool for_a_step = false);
// That of the options, but for the steps of a striped message: split, translate, assemble.
std::unique_ptr<Transport> make_stepwise(const Options& options);

// The ranks' transfers of a step in which this rank takes part: those that it sends and those that it receives.
struct OwnTransfers {
  Step sent;
  Step received;
};
OwnTransfers own_transfers(const Step& step, int rank);

// Where this rank sends a transfer from, and where it receives one.
std::byte* source_of(const Transfer& sent, const Context& context);
std::byte* destination_of(const Transfer& received, const Context& context);

std::unique_ptr<Transport> make_mpi();
std::unique_ptr<Transport> make_cores();
std::unique_ptr<Transport> make_staging();
std::unique_ptr<Transport> make_copy(bool by_kernel, bool for_a_step, std::optional<device::Handles> wanted);
std::unique_ptr<Transport> make_ccl(const CclModes& modes);
std::unique_ptr<Transport> make_fabric(const std::string& nic, bool on_device);

}  // namespace fabricbench
