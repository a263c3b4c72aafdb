#include "fabricbench/verify.hpp"

#include <algorithm>

#include "fabricbench/device/pattern.hpp"

namespace fabricbench {
namespace {

std::uint64_t seed_of(int rank, std::uint64_t iteration) {
  return pattern::seed(static_cast<std::uint64_t>(rank), iteration);
}

}  // namespace

Verifier::Verifier(const Context& context, const Measurement& measurement, const Group* group)
    : context_(context),
      content_(is_reduction(measurement.operation) ? device::Content::floats : device::Content::bytes),
      summed_(is_reduction(measurement.operation)) {
  if (group == nullptr) return;
  for (std::size_t step = 0; step < group->steps.size(); ++step) {
    for (std::size_t i = 0; i < group->steps[step].size(); ++i) {
      Transfer transfer = group->steps[step][i];
      if (transfer.source == context.world.rank && !transfer.relayed)
        sent_bytes_ = std::max(sent_bytes_, transfer.source_offset + transfer.bytes);
      if (transfer.destination != context.world.rank) continue;
      const Origin origin = origin_of(group->steps, step, i);
      transfer.source = origin.rank;
      transfer.source_offset = origin.offset;
      received_.push_back(transfer);
    }
  }
}

void Verifier::prepare(std::uint64_t iteration) {
  device::Stream& stream = context_.stream;
  if (sent_bytes_ > 0)
    stream.fill(context_.send.data(), sent_bytes_, 0, seed_of(context_.world.rank, iteration), content_, false);
  if (summed_ && !received_.empty()) {
    // No sum of small whole numbers has all bits set.
    stream.set_byte(context_.receive.data() + received_[0].destination_offset, received_[0].bytes, 0xFF);
  } else {
    for (const Transfer& each : received_) {
      stream.fill(context_.receive.data() + each.destination_offset, each.bytes, each.source_offset,
                  seed_of(each.source, iteration), content_, true);
    }
  }
  stream.synchronize();
}

std::uint64_t Verifier::wrong_bytes(std::uint64_t iteration) {
  if (received_.empty()) return 0;
  if (summed_) {
    std::vector<std::uint64_t> seeds;
    for (const Transfer& each : received_) seeds.push_back(seed_of(each.source, iteration));
    const Transfer& first = received_[0];
    return device::count_wrong_sums(context_.stream, context_.receive.data() + first.destination_offset, first.bytes,
                                    first.source_offset, seeds);
  }
  std::uint64_t wrong = 0;
  for (const Transfer& each : received_) {
    wrong += device::count_wrong(context_.stream, context_.receive.data() + each.destination_offset, each.bytes,
                                 each.source_offset, seed_of(each.source, iteration), content_);
  }
  return wrong;
}

void Verifier::plant_wrong_byte(std::uint64_t iteration) {
  if (received_.empty()) return;
  const Transfer& first = received_[0];
  std::byte* target = context_.receive.data() + first.destination_offset;
  if (summed_) {
    context_.stream.set_byte(target, 1, 0xFF);
  } else {
    context_.stream.fill(target, 1, first.source_offset, seed_of(first.source, iteration), content_, true);
  }
  context_.stream.synchronize();
}

}  // namespace fabricbench
