// A communicator: who is in it, on which node each rank is, and how the data of each pair go.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ccl/api.hpp"
#include "core/memory.hpp"

namespace emulation::ccl {

// What a rank tells the others when they meet.
struct Member {
  std::int32_t rank;
  std::int32_t gpu;     // vertex on its node
  std::int32_t device;  // ordinal in its process
  std::int32_t nic;     // number on its node; -1: none
  std::uint64_t host;   // equal for ranks that take each other for neighbours
  std::uint64_t node;   // equal for ranks on one emulated node, whatever they call it
  sockaddr_in address;  // where it accepts data, on its NIC
};

enum class Path { p2p, shm, net };

// A buffer that was registered with a communicator, or is a window of it.
struct KnownBuffer {
  const char* begin;
  std::size_t bytes;
  bool is_window;
};

// How the ranks are spread: nodes in the order of their first rank, each with its ranks in order.
struct Placement {
  std::vector<std::vector<int>> nodes;
  int node = 0;   // of this rank
  int local = 0;  // place of this rank on it

  int nodes_count() const { return static_cast<int>(nodes.size()); }
  int local_count() const { return static_cast<int>(nodes[static_cast<std::size_t>(node)].size()); }
  const std::vector<int>& neighbours() const { return nodes[static_cast<std::size_t>(node)]; }
  // The rank with this rank's place on another node.
  int counterpart(int other) const { return nodes[static_cast<std::size_t>(other)][static_cast<std::size_t>(local)]; }
};

struct Communicator {
  std::uint64_t id = 0;
  int rank = 0;
  int size = 0;
  std::vector<Member> members;
  Placement placement;
  int listener = -1;
  std::map<int, int> outgoing;  // sockets by rank
  std::map<int, int> incoming;
  std::vector<std::uint32_t> sent;      // operations so far, by destination
  std::vector<std::uint32_t> received;  // by source
  std::uint32_t collectives = 0;
  std::set<std::pair<int, bool>> logged;  // paths that the log names already: peer, and whether this rank sends
  bool logged_rings = false;
  std::vector<std::unique_ptr<KnownBuffer>> known;
  bool by_copy_engines = false;  // where both buffers are windows
  bool logged_copy_engines = false;
  bool is_between_windows = false;  // the last call: the library makes no channels for it, and logs none
  void* scratch = nullptr;          // device memory for results on the way
  std::size_t scratch_bytes = 0;

  const Member& member(int which) const { return members[static_cast<std::size_t>(which)]; }
  const Member& self() const { return member(rank); }
  Path path_to(int other) const;
  // The registered buffer or window that holds an address; null for none.
  const KnownBuffer* find(const void* address) const;
  // Names the path of a pair in the log, once.
  void log_path(int other, bool sends);
};

ncclUniqueId make_id();
Communicator* meet(const ncclUniqueId& id, int size, int rank);
// The communicator of the ranks that give the same color, in the order of their keys. All ranks call it.
Communicator* split(Communicator& whole, int color, int key);
void leave(Communicator* communicator);

// Bytes for or from another node.
struct Message {
  int peer;
  void* data;
  std::size_t bytes;
};
// Sends and receives them all at the same time, over this rank's NIC. `meanwhile` is done once sending has begun.
void exchange(Communicator& communicator, const std::vector<Message>& sent, const std::vector<Message>& received,
              const std::function<void()>& meanwhile = {});

}  // namespace emulation::ccl
