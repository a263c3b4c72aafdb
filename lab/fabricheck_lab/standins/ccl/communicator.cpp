#include "ccl/communicator.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "ccl/log.hpp"
#include "ccl/network.hpp"
#include "core/clock.hpp"
#include "core/description.hpp"
#include "core/ending.hpp"
#include "core/runtime.hpp"

namespace emulation::ccl {
namespace {

constexpr std::uint64_t kMagic = 0x656d756c61746564;
constexpr std::int64_t kPatience = 60'000'000'000;

// What a unique id holds.
struct Root {
  std::uint64_t magic;
  std::uint64_t id;
  sockaddr_in address;
};

struct Arrival {
  std::uint64_t magic;
  std::int32_t size;
  Member member;
};

std::uint64_t hash_of(const std::string& text) { return std::hash<std::string>{}(text); }

std::uint64_t host_hash() {
  if (const char* given = std::getenv("NCCL_HOSTID"); given != nullptr && *given != '\0') return hash_of(given);
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return hash_of(std::string(name) + boot);
}

std::uint64_t node_hash() {
  struct stat status{};
  const std::string file = description().folder + "/node.json";
  if (stat(file.c_str(), &status) != 0) end_run(file + " has gone");
  return hash_of(std::to_string(status.st_dev) + " " + std::to_string(status.st_ino));
}

bool send_all(int socket, const void* data, std::size_t bytes) {
  for (const auto* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t done = send(socket, at, bytes, MSG_NOSIGNAL);
    if (done <= 0 && errno != EINTR) return false;
    if (done <= 0) continue;
    at += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

bool receive_all(int socket, void* data, std::size_t bytes) {
  for (auto* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t done = recv(socket, at, bytes, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

// Waits for all ranks, and tells each of them who they are.
void introduce(int listener) {
  std::vector<int> sockets;
  std::vector<Member> members;
  std::size_t expected = 1;
  while (sockets.size() < expected) {
    const int socket = accept(listener, nullptr, nullptr);
    if (socket < 0) continue;
    Arrival arrival{};
    if (!receive_all(socket, &arrival, sizeof arrival) || arrival.magic != kMagic) {
      close(socket);
      continue;
    }
    expected = static_cast<std::size_t>(arrival.size);
    members.resize(expected);
    members[static_cast<std::size_t>(arrival.member.rank)] = arrival.member;
    sockets.push_back(socket);
  }
  for (const int socket : sockets) {
    send_all(socket, members.data(), members.size() * sizeof(Member));
    close(socket);
  }
  close(listener);
}

int connect_patiently(const sockaddr_in& address) {
  const std::int64_t deadline = now_ns() + kPatience;
  while (now_ns() < deadline) {
    const int socket = connect_to(address, nullptr);
    if (socket >= 0) return socket;
    usleep(20'000);
  }
  end_run("no rank 0 answers at " + text_of(address) + ": *CCL cannot start");
}

Placement place(const std::vector<Member>& members, int rank) {
  Placement result;
  std::vector<std::uint64_t> hosts;
  for (const Member& each : members) {
    // The stand-in shares memory on one emulated node only.
    const std::uint64_t host = each.host ^ (each.node * 31);
    const auto found = std::find(hosts.begin(), hosts.end(), host);
    const auto node = static_cast<std::size_t>(found - hosts.begin());
    if (found == hosts.end()) {
      hosts.push_back(host);
      result.nodes.emplace_back();
    }
    if (each.rank == rank) {
      result.node = static_cast<int>(node);
      result.local = static_cast<int>(result.nodes[node].size());
    }
    result.nodes[node].push_back(each.rank);
  }
  return result;
}

void log_start(const Communicator& communicator) {
  const Member& self = communicator.self();
  log_version(self.device, communicator.rank);
  log_network(self.device);
  const Gpu& gpu = description().gpus[static_cast<std::size_t>(self.gpu)];
  char line[256];
  std::snprintf(line, sizeof line,
                "ncclCommInitRank comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %s commId 0x%llx - Init START",
                static_cast<const void*>(&communicator), communicator.rank, communicator.size, self.device, self.gpu,
                gpu.bus_id.c_str(), static_cast<unsigned long long>(communicator.id));
  log_info(Topic::init, self.device, line);
}

}  // namespace

Path Communicator::path_to(int other) const {
  const auto& near = placement.neighbours();
  if (std::find(near.begin(), near.end(), other) == near.end()) return Path::net;
  const Description& node = description();
  const bool reaches = other == rank || (node.route(self().gpu, member(other).gpu).peer_access &&
                                         node.route(member(other).gpu, self().gpu).peer_access);
  if (reaches && !is_on("NCCL_P2P_DISABLE")) return Path::p2p;
  return is_on("NCCL_SHM_DISABLE") ? Path::net : Path::shm;
}

void Communicator::log_path(int other, bool sends) {
  if (is_between_windows) return;
  if (other == rank || !logged.insert({other, sends}).second) return;
  const Path path = path_to(other);
  if (path != Path::net && !sends) return;  // NCCL tells of these at the sender
  const Member& from = member(sends ? rank : other);
  const Member& to = member(sends ? other : rank);
  const std::string pair = std::to_string(from.rank) + "[" + std::to_string(from.device) + "] -> " +
                           std::to_string(to.rank) + "[" + std::to_string(to.device) + "]";
  const std::string via = path == Path::p2p ? (is_rccl() ? "P2P/IPC" : "P2P/CUMEM")
                          : path == Path::shm
                              ? "SHM/direct/direct"
                              : network_path(*this, sends ? leaving_gpu(*this, other)
                                                          : description().gpus[static_cast<std::size_t>(self().gpu)]);
  const std::string direction = path == Path::net ? (sends ? " [send]" : " [receive]") : "";
  for (const char* channel : {"00/0", "01/0"}) {
    log_info(path == Path::p2p   ? Topic::p2p
             : path == Path::shm ? Topic::shm
                                 : Topic::net,
             self().device, std::string("Channel ") + channel + " : " + pair + direction + " via " + via);
  }
}

ncclUniqueId make_id() {
  Root root{kMagic, 0, listening_address(bootstrap_interface())};
  std::random_device random;
  root.id = (static_cast<std::uint64_t>(random()) << 32) | random();
  const int listener = listen_at(root.address);
  std::thread(introduce, listener).detach();
  ncclUniqueId id{};
  static_assert(sizeof root <= sizeof id.internal, "a unique id has 128 bytes");
  std::memcpy(id.internal, &root, sizeof root);
  return id;
}

Communicator* meet(const ncclUniqueId& id, int size, int rank) {
  Root root{};
  std::memcpy(&root, id.internal, sizeof root);
  if (root.magic != kMagic) return nullptr;
  auto* communicator = new Communicator;
  communicator->id = root.id;
  communicator->rank = rank;
  communicator->size = size;
  communicator->sent.resize(static_cast<std::size_t>(size));
  communicator->received.resize(static_cast<std::size_t>(size));
  const Gpu& gpu = current_gpu();
  Arrival arrival{kMagic, size, {}};
  arrival.member = {rank, gpu.vertex, current_ordinal(), nic_number(gpu), host_hash(), node_hash(), {}};
  arrival.member.address = listening_address(data_interface(gpu));
  communicator->listener = listen_at(arrival.member.address);
  const int socket = connect_patiently(root.address);
  communicator->members.resize(static_cast<std::size_t>(size));
  if (!send_all(socket, &arrival, sizeof arrival) ||
      !receive_all(socket, communicator->members.data(), communicator->members.size() * sizeof(Member)))
    end_run("rank 0 went away while *CCL started");
  close(socket);
  communicator->placement = place(communicator->members, rank);
  log_start(*communicator);
  log_info(Topic::init, current_ordinal(),
           "ncclCommInitRank rank " + std::to_string(rank) + " nranks " + std::to_string(size) + " - Init COMPLETE");
  return communicator;
}

Communicator* split(Communicator& whole, int color, int key) {
  struct Choice {
    std::int32_t color, key, rank;
  };
  Choice own{color, key, whole.rank};
  std::vector<Choice> all(static_cast<std::size_t>(whole.size), own);
  std::vector<Message> to_all;
  std::vector<Message> from_all;
  for (int rank = 0; rank < whole.size; ++rank) {
    if (rank == whole.rank) continue;
    to_all.push_back({rank, &own, sizeof own});
    from_all.push_back({rank, &all[static_cast<std::size_t>(rank)], sizeof own});
  }
  exchange(whole, to_all, from_all);
  all.erase(std::remove_if(all.begin(), all.end(), [&](const Choice& each) { return each.color != color; }), all.end());
  std::sort(all.begin(), all.end(),
            [](const Choice& a, const Choice& b) { return std::pair(a.key, a.rank) < std::pair(b.key, b.rank); });
  const bool is_first = all.front().rank == whole.rank;
  ncclUniqueId id = is_first ? make_id() : ncclUniqueId{};
  std::vector<Message> to_others;
  int place = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].rank == whole.rank) place = static_cast<int>(i);
    if (is_first && i > 0) to_others.push_back({all[i].rank, &id, sizeof id});
  }
  exchange(whole, to_others,
           is_first ? std::vector<Message>{} : std::vector<Message>{{all.front().rank, &id, sizeof id}});
  Communicator* part = meet(id, static_cast<int>(all.size()), place);
  part->by_copy_engines = whole.by_copy_engines;
  return part;
}

void leave(Communicator* communicator) {
  for (const auto& sockets : {communicator->outgoing, communicator->incoming}) {
    for (const auto& [rank, socket] : sockets) close(socket);
  }
  close(communicator->listener);
  if (communicator->scratch != nullptr) release(communicator->scratch);
  delete communicator;
}

}  // namespace emulation::ccl
