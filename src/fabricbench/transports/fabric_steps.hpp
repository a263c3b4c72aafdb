// What a rank does in the steps of a measurement by its NICs, whatever they are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabricbench/transports/fabric_endpoint.hpp"
#include "fabricbench/transports/transport.hpp"

namespace fabricbench {

using FabricEndpoints = std::vector<std::unique_ptr<FabricEndpoint>>;

class FabricTransfers final : public Work {
 public:
  // `most`: bytes of the largest message of all endpoints. `yields`: gives up its core where nothing has ended.
  FabricTransfers(const Group& group, int rank, Access access, const FabricEndpoints& endpoints, std::uint64_t most,
                  bool yields);
  void run(std::uint64_t shift) override;
  // All messages of a ring at a time, and one note at their end.
  std::int64_t run_train(const pattern::Ring& ring) override;

 private:
  struct Message {
    Transfer transfer;
    std::vector<Piece> pieces;
    std::size_t first;  // of the pieces, among those of a step between the same two ranks
  };
  struct Messages {
    std::vector<Message> sent;
    std::vector<Message> received;
  };

  void run(const Messages& step, const pattern::Ring& ring, std::uint64_t shift);
  // The transfers that this rank moves itself, to or from the `other` rank of each.
  void move(const std::vector<Message>& messages, int Transfer::* other, std::uint64_t shift);
  void send(const std::vector<Message>& messages, std::uint64_t shift);
  void receive(const std::vector<Message>& messages, std::uint64_t shift);
  void expect(std::uint64_t kind, const std::vector<Message>& messages, int Transfer::* other);
  void tell(std::uint64_t kind, const std::vector<Message>& messages, int Transfer::* other);
  void land(Flight& flight);

  int rank_;
  Access access_;
  const FabricEndpoints& endpoints_;
  bool yields_;
  std::vector<Messages> steps_;
  Flight data_;
  Flight notes_;
};

}  // namespace fabricbench
