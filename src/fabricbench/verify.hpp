// Fills the buffers of a measurement and checks what arrived.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "fabricbench/transports/transport.hpp"

namespace fabricbench {

// Iterations have the same data but for their stamps (pattern.hpp), which are new in each, so that a message that did
// not arrive, or not before the end, does not look right. Of some iterations every byte has to arrive: FullChecks says
// which.
class Verifier {
 public:
  // `group` is the group of this rank, or null where it has no part. `ring`: where an iteration's operations have their
  // data; fewer operations than now may come, and other turns.
  Verifier(const Context& context, const Measurement& measurement, const Group* group, const pattern::Ring& ring);

  // All that this rank sends is new, and what it will receive is made wrong in every byte.
  void fill();
  // Before an iteration: the stamps of what this rank sends are new, and in place all of it, which the iteration before
  // has overwritten. `all_bytes`: what it will receive is made wrong in every byte. What was checked so far has been
  // read.
  void stamp(bool all_bytes);
  // Straight after it, what this rank received: every byte, or the stamps, which are all that is kept of a read.
  void check(bool all_bytes);
  // By how many ns `all_bytes` makes an iteration longer; after one whose data are still there, which are wrong then.
  std::int64_t ns_of_all_bytes();
  // Bytes that were wrong in all checks so far.
  std::uint64_t wrong_bytes();
  // Makes one received byte wrong: a planted defect. Nothing where this rank receives nothing.
  void plant_wrong_byte();

 private:
  void write(bool stamps_only);
  void make_received_wrong();
  // Of the stretches of all slots those of the slots in use.
  std::size_t in_use(const std::vector<pattern::Stretch>& stretches) const {
    return stretches.size() / slots_ * ring_.used();
  }
  pattern::Stretch sent(pattern::Stretch of_a_slot) const;
  // All bits of received bytes flipped.
  void make_wrong(const pattern::Stretch& received, bool on_host);

  const Context& context_;
  device::Content content_;
  bool stamps_alone_;
  pattern::Summands summands_;
  std::uint64_t place_ = 0;  // of this rank, among those whose numbers are added up
  std::uint64_t rank_;       // whose pattern it sends: of these its first rank's
  pattern::Moment moment_;
  const pattern::Ring& ring_;
  std::size_t slots_;
  // What this rank sends of its buffers on the device and on the host, in one slot.
  pattern::Stretch sent_;
  pattern::Stretch sent_on_host_;
  // What it receives, slot by slot.
  std::vector<pattern::Stretch> received_;
  std::vector<pattern::Stretch> received_on_host_;
  device::Memory table_;  // of `received_`
  device::Memory total_;  // of their wrong bytes: one counter, so that a check does not wait
  std::uint64_t wrong_on_host_ = 0;
};

// The iterations of which every byte is looked at: so many that they take a given share of the time, and without a
// period, so that a fault which has one does not escape. All ranks look in the same ones, or they would wait for each
// other in turn.
class FullChecks {
 public:
  bool draw();
  // Collective: after an iteration of so many ns, of which `longer_ns` are what a look adds on this rank.
  void share_out(std::int64_t longer_ns, std::int64_t iteration_ns, const World& world);
  // One iteration in so many, on average; none as long as share_out() was not called.
  std::int64_t each() const { return each_; }

 private:
  std::int64_t each_ = std::numeric_limits<std::int64_t>::max();
  std::uint64_t drawn_ = 0;
};

}  // namespace fabricbench
