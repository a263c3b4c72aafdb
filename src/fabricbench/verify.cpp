#include "fabricbench/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "fabricbench/device/content.hpp"
#include "fabricbench/environment.hpp"

namespace fabricbench {
namespace {

// Of the time of an iteration, what looks at every byte may add to it on average: with the stamps of a train, which
// take 1% on two H200, a healthy run is at most 3% longer.
constexpr double kShareOfFullChecks = 0.02;

// What arrives at this rank: by whom it was sent and from where, whoever passed it on.
std::vector<Transfer> received_transfers(const Group& group, int rank) {
  std::vector<Transfer> received;
  for (std::size_t step = 0; step < group.steps.size(); ++step) {
    for (std::size_t i = 0; i < group.steps[step].size(); ++i) {
      Transfer transfer = group.steps[step][i];
      if (transfer.destination != rank) continue;
      const Origin origin = origin_of(group.steps, step, i);
      transfer.source = origin.rank;
      transfer.source_offset = origin.offset;
      received.push_back(transfer);
    }
  }
  return received;
}

// All ranks of a group find the same: where one does not know the others' transfers, they are as large as its own.
std::uint64_t stride_of(const Group* group) {
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
  for (const Step& step : group != nullptr ? group->steps : std::vector<Step>{}) {
    for (const Transfer& transfer : step) smallest = std::min(smallest, transfer.bytes);
  }
  return pattern::stride_for(smallest);
}

std::vector<pattern::Stretch> received_stretches(const Context& context, const Measurement& measurement,
                                                 const Group* group, Place place, const pattern::Ring& ring) {
  std::vector<pattern::Stretch> stretches;
  if (group == nullptr) return stretches;
  for (const Transfer& transfer : received_transfers(*group, context.world.rank)) {
    if (transfer.destination_place != place) continue;
    const bool summed = is_reduction(measurement.operation);
    const int source = summed ? group->ranks.front() : transfer.source;
    stretches.push_back({destination_of(transfer, context), transfer.bytes, transfer.source_offset,
                         static_cast<std::uint64_t>(source)});
    if (summed) break;  // all of them come together in one place
  }
  const std::size_t of_a_slot = stretches.size();
  for (std::size_t i = of_a_slot; i < of_a_slot * ring.slots; ++i) {
    pattern::Stretch next = stretches[i - of_a_slot];
    next.data = static_cast<std::byte*>(next.data) + ring.pitch;
    next.position += ring.pitch;
    stretches.push_back(next);
  }
  return stretches;
}

// All that this rank sends of its buffer there, from the first byte to the last.
pattern::Stretch sent_stretch(std::byte* buffer, const Group* group, int rank, Place place, std::uint64_t source) {
  std::uint64_t begin = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t end = 0;
  for (const Step& step : group != nullptr ? group->steps : std::vector<Step>{}) {
    for (const Transfer& transfer : step) {
      if (transfer.source != rank || transfer.relayed || transfer.source_place != place) continue;
      begin = std::min(begin, transfer.source_offset);
      end = std::max(end, transfer.source_offset + transfer.bytes);
    }
  }
  return end == 0 ? pattern::Stretch{buffer, 0, 0, source}
                  : pattern::Stretch{buffer + begin, end - begin, begin, source};
}

pattern::Summands summands_for(const Context& context, const Measurement& measurement, const Group* group) {
  if (group == nullptr || !is_reduction(measurement.operation)) return {};
  return pattern::summands_of(group->ranks.size(), describe(context.data_type).format);
}

}  // namespace

Verifier::Verifier(const Context& context, const Measurement& measurement, const Group* group,
                   const pattern::Ring& ring)
    : context_(context),
      content_(is_reduction(measurement.operation) ? device::Content::numbers : device::Content::bytes),
      stamps_alone_(measurement.operation == Operation::host_read),
      summands_(summands_for(context, measurement, group)),
      rank_(static_cast<std::uint64_t>(summands_.ranks > 0 ? group->ranks.front() : context.world.rank)),
      moment_{0, 0, stride_of(group)},
      ring_(ring),
      slots_(ring.slots),
      sent_(sent_stretch(context.send.data(), group, context.world.rank, Place::device, rank_)),
      sent_on_host_(sent_stretch(context.host_send.data(), group, context.world.rank, Place::host, rank_)),
      received_(received_stretches(context, measurement, group, Place::device, ring)),
      received_on_host_(received_stretches(context, measurement, group, Place::host, ring)),
      table_(received_.size() * sizeof(pattern::Stretch)),
      total_(sizeof(std::uint64_t)) {
  context_.stream.set_byte(total_.data(), sizeof(std::uint64_t), 0);
  if (!received_.empty())
    context_.stream.copy(table_.data(), received_.data(), received_.size() * sizeof(pattern::Stretch));
  if (summands_.ranks == 0) return;
  const auto own = std::find(group->ranks.begin(), group->ranks.end(), context.world.rank);
  place_ = static_cast<std::uint64_t>(own - group->ranks.begin());
}

void Verifier::fill() {
  moment_.filled = ++moment_.stamped;
  // In place what is sent lies where the result is to be.
  make_received_wrong();
  write(false);
  context_.stream.synchronize();
}

void Verifier::stamp(bool all_bytes) {
  if (context_.in_place()) return fill();
  ++moment_.stamped;
  if (all_bytes) make_received_wrong();
  write(true);
  // Nothing arrives where a check is still reading.
  context_.stream.synchronize();
}

void Verifier::write(bool stamps_only) {
  const pattern::Pattern own = pattern::of(rank_, moment_, summands_, place_);
  if (sent_.bytes > 0) context_.stream.fill(sent(sent_), own, content_, false, stamps_only);
  if (sent_on_host_.bytes > 0) device::fill_on_host(sent(sent_on_host_), own, content_, false, stamps_only);
}

pattern::Stretch Verifier::sent(pattern::Stretch of_a_slot) const {
  of_a_slot.bytes += (ring_.used() - 1) * ring_.pitch;
  return of_a_slot;
}

void Verifier::check(bool all_bytes) {
  const bool stamps_only = stamps_alone_ || !all_bytes;
  const auto check_of = [&](const pattern::Stretch* stretches, std::size_t number) {
    return pattern::Check{stretches, number, moment_, summands_, stamps_only ? 1U : 0U};
  };
  std::uint64_t words = 0;
  for (std::size_t i = 0; i < received_.size() / slots_; ++i)
    words += ring_.used() * words_of(received_[i], moment_.stride, stamps_only).count();
  if (!received_.empty()) {
    const auto* stretches = reinterpret_cast<const pattern::Stretch*>(table_.data());
    context_.stream.count_wrong(check_of(stretches, in_use(received_)), words,
                                reinterpret_cast<std::uint64_t*>(total_.data()));
  }
  // Where the data have to be, so that a processor sees what a device wrote into host memory.
  wrong_on_host_ += device::count_wrong_on_host(check_of(received_on_host_.data(), in_use(received_on_host_)));
}

std::int64_t Verifier::ns_of_all_bytes() {
  if (received_.empty() && received_on_host_.empty()) return 0;
  context_.stream.synchronize();
  const std::int64_t start = now_ns();
  check(false);
  context_.stream.synchronize();
  const std::int64_t end_of_stamps = now_ns();
  check(true);
  if (!context_.in_place()) make_received_wrong();
  context_.stream.synchronize();
  return now_ns() - end_of_stamps - (end_of_stamps - start);
}

std::uint64_t Verifier::wrong_bytes() {
  std::uint64_t wrong = 0;
  context_.stream.copy(&wrong, total_.data(), sizeof wrong);
  context_.stream.synchronize();
  return wrong + wrong_on_host_;
}

void Verifier::plant_wrong_byte() {
  if (received_.empty() && received_on_host_.empty()) return;
  const bool on_host = received_.empty();
  pattern::Stretch first = on_host ? received_on_host_.front() : received_.front();
  first.bytes = 1;
  make_wrong(first, on_host);
  context_.stream.synchronize();
}

void Verifier::make_received_wrong() {
  for (std::size_t i = 0; i < in_use(received_); ++i) make_wrong(received_[i], false);
  for (std::size_t i = 0; i < in_use(received_on_host_); ++i) make_wrong(received_on_host_[i], true);
}

void Verifier::make_wrong(const pattern::Stretch& received, bool on_host) {
  // No word has all bits set, nor a sum of small whole numbers. A short message shall differ in every byte.
  if (summands_.ranks > 0 || received.bytes >= pattern::kLongestStride) {
    if (on_host) {
      std::memset(received.data, 0xFF, received.bytes);
    } else {
      context_.stream.set_byte(received.data, received.bytes, 0xFF);
    }
    return;
  }
  const pattern::Pattern sent = pattern::of(received.source, moment_);
  if (on_host) {
    device::fill_on_host(received, sent, content_, true, false);
  } else {
    context_.stream.fill(received, sent, content_, true, false);
  }
}

bool FullChecks::draw() {
  drawn_ = pattern::mix(drawn_);
  return drawn_ % static_cast<std::uint64_t>(each_) == 0;
}

void FullChecks::share_out(std::int64_t longer_ns, std::int64_t iteration_ns, const World& world) {
  const double affordable_ns = kShareOfFullChecks * static_cast<double>(std::max<std::int64_t>(iteration_ns, 1));
  each_ = std::max<std::int64_t>(1, std::llround(static_cast<double>(longer_ns) / affordable_ns));
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, &each_, 1, MPI_INT64_T, MPI_MAX, world.all), "MPI_Allreduce");
}

}  // namespace fabricbench
