// Fills the buffers of a measurement and checks what arrived.
#pragma once

#include <cstdint>
#include <vector>

#include "fabricbench/transports/transport.hpp"

namespace fabricbench {

// A batch of iterations has the same data but for their stamps (pattern.hpp), which are new in each: what did not
// arrive in an iteration, or not before its end, does not look right after it.
class Verifier {
 public:
  // `group` is the group of this rank, or null where it has no part.
  Verifier(const Context& context, const Measurement& measurement, const Group* group);

  // Before a batch: all that this rank sends is new, and what it will receive is made wrong in every byte.
  void fill();
  // Before an iteration: the stamps of what this rank sends are new, and in place all of it, which the iteration before
  // has overwritten. What was checked so far has been read.
  void stamp();
  // Straight after it: the stamps of what this rank received.
  void check_stamps();
  // After a batch: every byte, of what is read and not kept the stamps.
  void check_all();
  // Bytes that were wrong in all checks so far.
  std::uint64_t wrong_bytes();
  // Makes one received byte wrong: a planted defect. Nothing where this rank receives nothing.
  void plant_wrong_byte();

 private:
  void write(bool stamps_only);
  void check(bool stamps_only);
  pattern::Check check_of(const pattern::Stretch* stretches, std::size_t number, bool stamps_only) const {
    return {stretches, number, moment_, summands_, stamps_only ? 1U : 0U};
  }
  // All bits of received bytes flipped.
  void make_wrong(const pattern::Stretch& received, bool on_host);

  const Context& context_;
  device::Content content_;
  bool stamps_alone_;
  pattern::Summands summands_;
  std::uint64_t place_ = 0;  // of this rank, among those whose numbers are added up
  std::uint64_t rank_;       // whose pattern it sends: of these its first rank's
  pattern::Moment moment_;
  // What this rank sends of its buffers on the device and on the host.
  pattern::Stretch sent_;
  pattern::Stretch sent_on_host_;
  // What it receives.
  std::vector<pattern::Stretch> received_;
  std::vector<pattern::Stretch> received_on_host_;
  device::Memory table_;  // of `received_`
  device::Memory total_;  // of their wrong bytes: one counter, so that a check does not wait
  std::uint64_t wrong_on_host_ = 0;
};

}  // namespace fabricbench
