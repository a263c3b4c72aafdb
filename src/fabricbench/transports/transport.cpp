#include "fabricbench/transports/transport.hpp"

#include "fabricbench/errors.hpp"

namespace fabricbench {

std::unique_ptr<Transport> make_transport(const std::string& name, [[maybe_unused]] bool for_a_step) {
  if (name == "mpi") return make_mpi();
#if defined(FABRICBENCH_GPU)
  if (name == "staging") return make_staging();
  if (name == "copy") return make_copy(for_a_step);
#if defined(FABRICBENCH_CCL)
  if (name == "ccl") return make_ccl();
#else
  if (name == "ccl")
    throw InputError(
        "this fabricbench was built without NCCL or RCCL: build it with -DFABRICHECK_CCL=ON and -DNCCL_ROOT= or "
        "-DRCCL_ROOT=");
#endif
#endif
  throw InputError("the host port has no transport '" + name +
                   "', which needs a GPU: use --transport mpi, or build the cuda or hip port");
}

const std::byte* source_of(const Transfer& sent, const Context& context) {
  return (sent.relayed ? context.receive : context.send).data() + sent.source_offset;
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
