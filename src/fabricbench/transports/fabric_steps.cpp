// Nobody takes data for there before they are: a write ends when the destination's memory has them, and only then does
// the source send a note; a read ends at its destination, which then tells the source.
#include "fabricbench/transports/fabric_steps.hpp"

#include <sched.h>

#include <map>
#include <utility>

namespace fabricbench {
namespace {

constexpr int kRankBits = 24;
constexpr int kPlaceBits = 16;
// What a message says: data, or nothing but that a rank is ready, or done.
enum Tag : std::uint64_t { kData, kReady, kDone };

// Few bits: not every provider has 64 for a tag.
std::uint64_t tag_of(std::uint64_t kind, int sender, std::size_t place) {
  return (kind << (kRankBits + kPlaceBits)) | (static_cast<std::uint64_t>(sender) << kPlaceBits) |
         (place & ((std::uint64_t{1} << kPlaceBits) - 1));
}

Buffer source_buffer(const Transfer& transfer) {
  if (transfer.source_place == Place::host) return transfer.relayed ? Buffer::host_receive : Buffer::host_send;
  return transfer.relayed ? Buffer::receive : Buffer::send;
}

Buffer destination_buffer(const Transfer& transfer) {
  return transfer.destination_place == Place::host ? Buffer::host_receive : Buffer::receive;
}

}  // namespace

FabricTransfers::FabricTransfers(const Group& group, int rank, Access access, const FabricEndpoints& endpoints,
                                 std::uint64_t most, bool yields)
    : rank_(rank), access_(access), endpoints_(endpoints), yields_(yields) {
  for (const Step& step : group.steps) {
    const OwnTransfers own = own_transfers(step, rank);
    std::map<int, std::size_t> places;
    Messages messages;
    // Both ends count the pieces between them.
    const auto message = [&](const Transfer& transfer, int other) {
      Message made{transfer, pieces_of(transfer.bytes, endpoints.size(), most), places[other]};
      places[other] += made.pieces.size();
      return made;
    };
    for (const Transfer& sent : own.sent) messages.sent.push_back(message(sent, sent.destination));
    places.clear();
    for (const Transfer& received : own.received) messages.received.push_back(message(received, received.source));
    steps_.push_back(std::move(messages));
  }
}

void FabricTransfers::run(std::uint64_t shift) {
  for (const Messages& step : steps_) run(step, {}, shift);
}

std::int64_t FabricTransfers::run_train(const pattern::Ring& ring) {
  run(steps_.front(), ring, 0);
  return -1;
}

void FabricTransfers::run(const Messages& step, const pattern::Ring& ring, std::uint64_t shift) {
  if (access_ == Access::send) {
    for (std::uint64_t i = 0; i < ring.operations; ++i) receive(step.received, shift + ring.shift_of(i));
    for (std::uint64_t i = 0; i < ring.operations; ++i) send(step.sent, shift + ring.shift_of(i));
    return land(data_);
  }
  const bool reads = access_ == Access::read;
  if (reads) {
    // Nobody reads what an earlier step is still bringing.
    expect(kReady, step.received, &Transfer::source);
    tell(kReady, step.sent, &Transfer::destination);
    land(notes_);
  }
  const auto& moved = reads ? step.received : step.sent;
  const auto& told = reads ? step.sent : step.received;
  const auto other_of_moved = reads ? &Transfer::source : &Transfer::destination;
  expect(kDone, told, reads ? &Transfer::destination : &Transfer::source);
  for (std::uint64_t i = 0; i < ring.operations; ++i) move(moved, other_of_moved, shift + ring.shift_of(i));
  land(data_);
  tell(kDone, moved, other_of_moved);
  land(notes_);
}

void FabricTransfers::move(const std::vector<Message>& messages, int Transfer::* other, std::uint64_t shift) {
  for (const auto& [transfer, pieces, first] : messages) {
    for (const Piece& piece : pieces) {
      const std::uint64_t from = transfer.source_offset + piece.offset + shift;
      const std::uint64_t to = transfer.destination_offset + piece.offset + shift;
      if (access_ == Access::read) {
        endpoints_[piece.nic]->read(data_, transfer.*other, {destination_buffer(transfer), to, piece.bytes},
                                    source_buffer(transfer), from);
      } else {
        endpoints_[piece.nic]->write(data_, transfer.*other, {source_buffer(transfer), from, piece.bytes},
                                     destination_buffer(transfer), to);
      }
    }
  }
}

void FabricTransfers::send(const std::vector<Message>& messages, std::uint64_t shift) {
  for (const auto& [transfer, pieces, first] : messages) {
    std::size_t place = first;
    for (const Piece& piece : pieces)
      endpoints_[piece.nic]->send(
          data_, transfer.destination, tag_of(kData, rank_, place++),
          {source_buffer(transfer), transfer.source_offset + piece.offset + shift, piece.bytes});
  }
}

void FabricTransfers::receive(const std::vector<Message>& messages, std::uint64_t shift) {
  for (const auto& [transfer, pieces, first] : messages) {
    std::size_t place = first;
    for (const Piece& piece : pieces)
      endpoints_[piece.nic]->receive(
          data_, tag_of(kData, transfer.source, place++),
          {destination_buffer(transfer), transfer.destination_offset + piece.offset + shift, piece.bytes});
  }
}

void FabricTransfers::expect(std::uint64_t kind, const std::vector<Message>& messages, int Transfer::* other) {
  for (const auto& [transfer, pieces, first] : messages) {
    if (transfer.*other != rank_) endpoints_.front()->receive_note(notes_, tag_of(kind, transfer.*other, 0));
  }
}

void FabricTransfers::tell(std::uint64_t kind, const std::vector<Message>& messages, int Transfer::* other) {
  for (const auto& [transfer, pieces, first] : messages) {
    if (transfer.*other != rank_) endpoints_.front()->send_note(notes_, transfer.*other, tag_of(kind, rank_, 0));
  }
}

void FabricTransfers::land(Flight& flight) {
  while (!flight.landed()) {
    for (const auto& endpoint : endpoints_) endpoint->poll();
    if (yields_) sched_yield();
  }
}

}  // namespace fabricbench
