// Lists of transfers and collectives over MPI, between buffers wherever they lie: device memory for the mpi transport
// (GPU-aware MPI), page-locked host memory for staging.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "fabricbench/transports/transport.hpp"

namespace fabricbench {

// Since MPI 4 each call that takes a count has a second form, with _c, for counts above 2^31 - 1.
#define FABRICBENCH_LARGE_COUNTS (MPI_VERSION >= 4)
#if FABRICBENCH_LARGE_COUNTS
using Counts = std::vector<MPI_Count>;
using Offsets = std::vector<MPI_Aint>;
#else
using Counts = std::vector<int>;
using Offsets = Counts;
#endif
inline constexpr std::uint64_t kMostMpiBytes = std::numeric_limits<Counts::value_type>::max();

// One rank's part of a step. What stays on the rank is copied on its device and not sent: an MPI library that reaches
// other ranks' device memory through UCX may still copy its own with the processor.
class MpiStep {
 public:
  MpiStep(const Step& step, const Context& context, const std::byte* send, std::byte* receive);
  void run(std::uint64_t shift);
  // As osu_bw: all messages of a ring outstanding at a time, and an answer to each rank that sends once all are there.
  void run_window(const pattern::Ring& ring);

 private:
  void begin_send(const Transfer& sent, std::uint64_t shift, MPI_Request* request);
  void begin_receive(const Transfer& received, std::uint64_t shift, MPI_Request* request);
  const std::byte* outgoing(const Transfer& sent) const {
    const bool host = sent.source_place == Place::host;
    const std::byte* passed_on = host ? host_receive_ : receive_;
    const std::byte* own = host ? host_send_ : send_;
    return (sent.relayed ? passed_on : own) + sent.source_offset;
  }
  std::byte* incoming(const Transfer& received) const {
    return (received.destination_place == Place::host ? host_receive_ : receive_) + received.destination_offset;
  }

  const World& world_;
  device::Stream& stream_;
  const std::byte* send_;
  std::byte* receive_;
  const std::byte* host_send_;
  std::byte* host_receive_;
  Step local_;
  OwnTransfers own_;
  std::vector<MPI_Request> requests_;
};

// One rank's part of a step as the MPI library's own alltoallv over all ranks: at most one transfer from rank to rank.
class MpiAlltoallv {
 public:
  MpiAlltoallv(const Step& step, const Context& context, const std::byte* send, std::byte* receive);
  void run(std::uint64_t shift);

 private:
  const World& world_;
  const std::byte* send_;
  std::byte* receive_;
  Counts sent_;
  Offsets sent_from_;
  Counts received_;
  Offsets received_at_;
};

// One rank's part of a collective; the root is the first of the members.
void run_mpi_collective(Operation operation, const Members& members, std::uint64_t bytes, const std::byte* send,
                        std::byte* receive);

}  // namespace fabricbench
