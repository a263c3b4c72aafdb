// A NIC by libfabric, and nothing of libfabric's headers: without them there is no NIC, and the reason why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "fabricbench/nics.hpp"

namespace fabricbench {

// Operations that were begun, and how many of them have not ended.
class Flight {
 public:
  struct Operation {
    void* of_library[8];  // fi_context2
    std::size_t* left;
  };
  Operation& begin() {
    if (begun_ == operations_.size()) operations_.emplace_back();
    Operation& operation = operations_[begun_++];
    operation.left = &left_;
    ++left_;
    return operation;
  }
  // What was begun has ended: its places are used again.
  bool landed() {
    if (left_ == 0) begun_ = 0;
    return left_ == 0;
  }

 private:
  std::deque<Operation> operations_;  // which stay where they are
  std::size_t begun_ = 0;
  std::size_t left_ = 0;
};

// The buffers of a rank that its NICs, and those of other ranks, reach.
enum class Buffer { send, receive, host_send, host_receive };
inline constexpr std::size_t kBuffers = 4;

struct BufferMemory {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool on_device = false;
};

// A stretch of a buffer.
struct Part {
  Buffer buffer;
  std::uint64_t offset;
  std::uint64_t bytes;
};

class FabricEndpoint {
 public:
  virtual ~FabricEndpoint() = default;

  // What another rank has to know to reach this endpoint and the buffers behind it.
  virtual std::string card() const = 0;
  // The cards of all ranks, in their order.
  virtual void meet(const std::vector<std::string>& cards) = 0;
  // Whether the NIC reads and writes the memory of the device itself (registered), the provider copies it through the
  // host (staged), or the provider does not tell (unproven); empty without buffers there.
  virtual std::string device_memory() const = 0;
  // Bytes of the largest message.
  virtual std::uint64_t most_bytes() const = 0;

  // Begins to move `part` into the memory of `rank`, at an offset of a buffer there; it ends when the data are there,
  // so that who reads that memory from then on finds them (FI_DELIVERY_COMPLETE).
  virtual void write(Flight& flight, int rank, const Part& part, Buffer there, std::uint64_t offset) = 0;
  // Begins to fill `part` from the memory of `rank`.
  virtual void read(Flight& flight, int rank, const Part& part, Buffer there, std::uint64_t offset) = 0;
  // Begins a message, or to wait for one. A send ends as the provider's do: it needs this process no longer.
  virtual void send(Flight& flight, int rank, std::uint64_t tag, const Part& part) = 0;
  virtual void receive(Flight& flight, std::uint64_t tag, const Part& part) = 0;
  // The same without data.
  virtual void send_note(Flight& flight, int rank, std::uint64_t tag) = 0;
  virtual void receive_note(Flight& flight, std::uint64_t tag) = 0;
  // Goes on with what was begun, here and by others with this rank's memory, and ends what is done.
  virtual void poll() = 0;
};

// What libfabric offers on this node.
struct FabricOffer {
  std::vector<Nic> nics;  // all by one provider, the best that moves this memory
  std::string version;
  std::string why_not;  // why there are none; empty where there are some
  // Opens a NIC of `nics` and registers the buffers; RunError where libfabric fails.
  std::unique_ptr<FabricEndpoint> (*open)(const FabricOffer& offer, std::size_t nic,
                                          const std::vector<BufferMemory>& buffers, int device) = nullptr;
  std::shared_ptr<const void> list;  // libfabric's own
};
FabricOffer fabric_offer(bool on_device);

}  // namespace fabricbench
