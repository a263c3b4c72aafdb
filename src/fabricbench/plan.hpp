// What a run will measure, worked out before anything is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fabricbench/options.hpp"
#include "fabricbench/pair_rule.hpp"

namespace fabricbench {

// A pair or group at one size; one samples record.
struct Group {
  std::vector<int> ranks;
  std::vector<Step> steps;  // of a collective: as Series::at says
};

// What is measured between two barriers: groups with no rank in common, at the same time.
struct Measurement {
  Operation operation;
  Implementation implementation;
  Schedule schedule;
  int round;
  std::uint64_t bytes;
  std::vector<Group> groups;
  Shape shape;
  // Goes on beside the groups in every second turn until they are done with it.
  std::optional<Group> aggressor;
  std::uint64_t aggressor_bytes = 0;
  std::vector<TrainingPart> parts = {};  // of a training step: what this rank has in it
};

// The same groups at all sizes, in ascending order; or, by a rule, those of many rounds, each at all sizes.
struct Series {
  Operation operation;
  Implementation implementation;
  Schedule schedule;
  int round;                     // -1 where there are none; with a rule that of its first round
  std::optional<PairRule> rule;  // in place of `groups`
  std::vector<std::vector<int>> groups;
  std::vector<std::uint64_t> sizes;
  Shape shape;
  std::vector<Step> steps;  // where they do not follow from the operation: the messages of matrices, of one size
  std::vector<int> aggressors;
  std::uint64_t aggressor_bytes;
  Ends ends;      // of pairs
  bool in_place;  // of collectives

  // Those of the records at one size: both where the groups are measured alone and beside an aggressor, interleaved.
  std::vector<Schedule> schedules() const;
  std::size_t rounds() const { return rule ? rule->rounds() : 1; }
  std::size_t record_count() const;
  // What is measured in one of the rounds. Transfers are those of all ranks, or with `rank` those of its own group, and
  // of it alone where `transfers` says so.
  Measurement at(std::uint64_t bytes, std::optional<int> rank = std::nullopt, std::size_t in_round = 0) const;
  // Of those that go at first.
  Transfer first_transfer() const;
};

// Which implementation of an operation a transport has: `automatic` answered with transfers or library, or InputError.
using Chooser = std::function<Implementation(Operation, Implementation wanted)>;

// The plan for `ranks` ranks. A contended schedule whose rounds hold a single pair is left out: it would repeat the
// uncontended one.
std::vector<Series> make_plan(const Options& options, int ranks, const Chooser& choose);

// The ranks with which `rank` has its collectives; empty where there are none.
std::vector<int> members_of(const std::vector<Series>& plan, int rank);

std::size_t record_count(const std::vector<Series>& plan);
// Those of pairs.
std::size_t pair_records(const std::vector<Series>& plan);
// How much memory slots for the operations of an iteration may take: that for all of them, or more where it takes that
// much for each to have a slot of its own in one of the fewest iterations.
struct RingMemory {
  std::uint64_t for_all;
  std::uint64_t most;
};
// What a processor fills and checks in little time, and of which its caches hold a share.
inline constexpr RingMemory kRingOnHost{std::uint64_t{4} << 20, std::uint64_t{256} << 20};
// The same of a device.
inline constexpr RingMemory kRingOnDevice{std::uint64_t{1} << 30, std::uint64_t{4} << 30};
// The nonparametric interval of the median needs eight samples.
inline constexpr std::int64_t kFewestIterations = 8;

// The first exchange after a pause is cold, which shows in what is small: so many round trips in an iteration, of which
// the first is timed as that and the last as what one takes.
inline constexpr std::uint64_t kWarmBelow = std::uint64_t{16} << 10;
inline constexpr std::uint64_t kWarmRoundTrips = 3;

// Operations of an iteration: of a train or of a graph, or round trips; else 1.
std::uint64_t operations_of(const Options& options, Operation operation, std::uint64_t bytes);
pattern::Ring ring_for(std::uint64_t operations, std::uint64_t extent, const RingMemory& memory);
// That of a measurement of such ranks, in the memory of a device or of the host.
pattern::Ring ring_for(const Options& options, Operation operation, const std::vector<int>& ranks, std::uint64_t bytes,
                       const Shape& shape, bool has_device);

// Bytes of the largest send or receive buffer of a rank, in one slot and in all of them.
std::uint64_t buffer_bytes(const std::vector<Series>& plan);
std::uint64_t ring_bytes(const std::vector<Series>& plan, const Options& options, bool has_device);
// Bytes of the largest send and receive buffers that a rank needs in host memory; 0 for none.
struct HostBufferBytes {
  std::uint64_t send = 0;
  std::uint64_t receive = 0;
};
HostBufferBytes host_buffer_bytes(const std::vector<Series>& plan, const Options& options, bool has_device);

}  // namespace fabricbench
