#include "fabricbench/transports/transport.hpp"

#include <algorithm>

#include "fabricbench/errors.hpp"

namespace fabricbench {
namespace {

// Whether any of the operations has a buffer in the memory of a device.
bool uses_device(const Options& options) {
  const bool on_host = options.ends == Ends{Place::host, Place::host};
  return !std::all_of(options.operations.begin(), options.operations.end(), [&](Operation operation) {
    return (on_host && is_pair_operation(operation)) || operation == Operation::host_stream;
  });
}

}  // namespace

std::unique_ptr<Transport> make_transport(const std::string& name, const Options& options,
                                          [[maybe_unused]] bool for_a_step) {
  if (name == "mpi") return make_mpi();
  if (name == "cores") return make_cores();
  if (name == "fabric") return make_fabric(options.nic, device::present() && uses_device(options));
#if defined(FABRICBENCH_GPU)
  if (name == "staging") return make_staging();
  if (name == "copy" || name == "kernel") return make_copy(name == "kernel", for_a_step, options.handles);
#if defined(FABRICBENCH_CCL)
  if (name == "ccl") return make_ccl(options.ccl);
#else
  if (name == "ccl")
    throw InputError(
        "this fabricbench was built without NCCL, RCCL or oneCCL: build it with -DFABRICHECK_CCL=ON and -DNCCL_ROOT=, "
        "-DRCCL_ROOT= or -DCCL_ROOT=");
#endif
#endif
  throw InputError("the host backend has no transport '" + name +
                   "', which needs a GPU: use --transport mpi, fabric or cores, or build the cuda or hip backend");
}

std::byte* source_of(const Transfer& sent, const Context& context) {
  const bool host = sent.source_place == Place::host;
  std::byte* passed_on = host ? context.host_receive.data() : context.receive.data();
  std::byte* own = host ? context.host_send.data() : context.send.data();
  return (sent.relayed ? passed_on : own) + sent.source_offset;
}

std::byte* destination_of(const Transfer& received, const Context& context) {
  std::byte* buffer = received.destination_place == Place::host ? context.host_receive.data() : context.receive.data();
  return buffer + received.destination_offset;
}

OwnTransfers own_transfers(const Step& step, int rank) {
  OwnTransfers own;
  for (const Transfer& transfer : step) {
    if (transfer.source == rank) own.sent.push_back(transfer);
    if (transfer.destination == rank) own.received.push_back(transfer);
  }
  return own;
}

}  // namespace fabricbench
