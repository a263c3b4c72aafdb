// Fills the buffers of a measurement and checks what arrived.
#pragma once

#include <cstdint>
#include <vector>

#include "fabricbench/transports/transport.hpp"

namespace fabricbench {

// A batch of iterations has the same data but for their stamps (pattern.hpp), which are new in each, and a line of each
// stride, which is made wrong before it: what did not arrive in an iteration, or not before its end, does not look
// right after it.
class Verifier {
 public:
  // `group` is the group of this rank, or null where it has no part. `ring`: where an iteration's operations have their
  // data; fewer operations than now may come, and other turns.
  Verifier(const Context& context, const Measurement& measurement, const Group* group, const pattern::Ring& ring);

  // Before a batch: all that this rank sends is new, and what it will receive is made wrong in every byte.
  void fill();
  // Before an iteration: the stamps of what this rank sends are new, and in place all of it, which the iteration before
  // has overwritten. What was checked so far has been read.
  void stamp();
  // Straight after it: the stamps of what this rank received, and a line.
  void check_stamps();
  // The same of every byte, of what is read and not kept the stamps. `last`: of a batch; nothing is made wrong for the
  // next iteration.
  void check_all(bool last);
  // After so many iterations each byte was one that had to be new.
  std::uint64_t iterations_of_all_bytes() const { return lines_ * ring_.turns(); }
  // Bytes that were wrong in all checks so far.
  std::uint64_t wrong_bytes();
  // Makes one received byte wrong: a planted defect. Nothing where this rank receives nothing.
  void plant_wrong_byte();

 private:
  void write(bool stamps_only);
  void check(bool stamps_only, bool last);
  pattern::Check check_of(const pattern::Stretch* stretches, std::size_t number, bool stamps_only, bool last) const;
  std::uint64_t line(std::uint64_t iteration) const { return iteration / ring_.turns() % lines_; }
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
  std::uint64_t lines_;
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

}  // namespace fabricbench
