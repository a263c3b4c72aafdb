// Fills the buffers of a measurement and checks what arrived.
#pragma once

#include <cstdint>

#include "fabricbench/transports/transport.hpp"

namespace fabricbench {

class Verifier {
 public:
  // `group` is the group of this rank, or null where it has no part.
  Verifier(const Context& context, const Measurement& measurement, const Group* group);

  // What this rank sends gets the pattern of `iteration`; what it will receive is made wrong in every byte.
  void prepare(std::uint64_t iteration);
  // Bytes of what this rank received that are not the pattern of `iteration`.
  std::uint64_t wrong_bytes(std::uint64_t iteration);
  // Makes one received byte wrong: a planted defect. Nothing where this rank receives nothing.
  void plant_wrong_byte(std::uint64_t iteration);

 private:
  // The first bytes of what this rank receives by a transfer, with all their bits flipped.
  void make_wrong(const Transfer& received, std::uint64_t bytes, std::uint64_t iteration);

  const Context& context_;
  device::Content content_;
  // Bytes to fill of the send buffer on the device, and of that on the host.
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t sent_bytes_on_host_ = 0;
  Step received_;  // from where their bytes come from
  bool summed_ = false;
};

}  // namespace fabricbench
