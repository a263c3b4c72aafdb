#include "fabricbench/verify.hpp"

#include <algorithm>

#include "fabricbench/device/content.hpp"
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
      if (transfer.source == context.world.rank && !transfer.relayed) {
        std::uint64_t& filled = transfer.source_place == Place::host ? sent_bytes_on_host_ : sent_bytes_;
        filled = std::max(filled, transfer.source_offset + transfer.bytes);
      }
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
  if (sent_bytes_on_host_ > 0) {
    device::fill_on_host(context_.host_send.data(), sent_bytes_on_host_, 0, seed_of(context_.world.rank, iteration),
                         content_, false);
  }
  if (summed_ && !received_.empty()) {
    // No sum of small whole numbers has all bits set.
    stream.set_byte(context_.receive.data() + received_[0].destination_offset, received_[0].bytes, 0xFF);
  } else {
    for (const Transfer& each : received_) make_wrong(each, each.bytes, iteration);
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
    // Where the data have to be, so that a processor sees what a device wrote into host memory.
    const std::uint64_t seed = seed_of(each.source, iteration);
    const std::byte* data = destination_of(each, context_);
    wrong += each.destination_place == Place::host
                 ? device::count_wrong_on_host(data, each.bytes, each.source_offset, seed, content_)
                 : device::count_wrong(context_.stream, data, each.bytes, each.source_offset, seed, content_);
  }
  return wrong;
}

void Verifier::plant_wrong_byte(std::uint64_t iteration) {
  if (received_.empty()) return;
  const Transfer& first = received_[0];
  if (summed_) {
    context_.stream.set_byte(context_.receive.data() + first.destination_offset, 1, 0xFF);
  } else {
    make_wrong(first, 1, iteration);
  }
  context_.stream.synchronize();
}

void Verifier::make_wrong(const Transfer& received, std::uint64_t bytes, std::uint64_t iteration) {
  const std::uint64_t seed = seed_of(received.source, iteration);
  std::byte* target = destination_of(received, context_);
  if (received.destination_place == Place::host) {
    device::fill_on_host(target, bytes, received.source_offset, seed, content_, true);
  } else {
    context_.stream.fill(target, bytes, received.source_offset, seed, content_, true);
  }
}

}  // namespace fabricbench
