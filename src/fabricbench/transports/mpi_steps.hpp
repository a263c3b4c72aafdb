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

// MPI counts are ints.
inline constexpr std::uint64_t kMostMpiBytes = std::numeric_limits<int>::max();

// One rank's part of a step. What stays on the rank is copied on its device and not sent: an MPI library that reaches
// other ranks' device memory through UCX may still copy its own with the processor.
class MpiStep {
 public:
  MpiStep(const Step& step, const Context& context, const std::byte* send, std::byte* receive);
  void run(std::uint64_t shift);
  // As osu_bw: all messages of a ring outstanding at a time, and an answer to each rank that sends once all are there.
  void run_window(const pattern::Ring& ring);

 private:
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
  std::vector<int> sent_;
  std::vector<int> sent_from_;
  std::vector<int> received_;
  std::vector<int> received_at_;
};

// One rank's part of a collective; the root is the first of the members.
void run_mpi_collective(Operation operation, const Members& members, std::uint64_t bytes, const std::byte* send,
                        std::byte* receive);

}  // namespace fabricbench
