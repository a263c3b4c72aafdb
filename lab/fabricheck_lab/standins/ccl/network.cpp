#include "ccl/network.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ccl/log.hpp"
#include "core/ending.hpp"

namespace emulation::ccl {
namespace {

struct Interface {
  std::string name;
  sockaddr_in address;
  bool is_loopback;
};

const std::vector<Interface>& interfaces() {
  static const auto* const all = [] {
    auto* found = new std::vector<Interface>;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return found;
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0)
        continue;
      sockaddr_in address{};
      std::memcpy(&address, each->ifa_addr, sizeof address);
      found->push_back({each->ifa_name, address, (each->ifa_flags & IFF_LOOPBACK) != 0});
    }
    freeifaddrs(list);
    return found;
  }();
  return *all;
}

const Interface* interface_named(const std::string& name) {
  const auto found =
      std::find_if(interfaces().begin(), interfaces().end(), [&](const Interface& each) { return each.name == name; });
  return found == interfaces().end() ? nullptr : &*found;
}

// NCCL_SOCKET_IFNAME: prefixes, whole names after '=', all others after '^'.
bool is_chosen(const Interface& each) {
  const char* variable = std::getenv("NCCL_SOCKET_IFNAME");
  if (variable == nullptr || *variable == '\0') return !each.is_loopback;
  std::string list = variable;
  const bool excludes = list[0] == '^';
  if (excludes) list.erase(0, 1);
  const bool exact = !list.empty() && list[0] == '=';
  if (exact) list.erase(0, 1);
  bool is_named = false;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::string one = list.substr(at, comma - at);
    at = comma + 1;
    is_named = is_named || (exact ? each.name == one : !one.empty() && each.name.rfind(one, 0) == 0);
  }
  return is_named != excludes;
}

const std::string& nic_of(const Gpu& gpu) {
  static std::string replaced;
  replaced = faults().content["nic_of"][gpu.name].text(gpu.nic);
  return replaced;
}

int take_connection(Communicator& communicator) {
  const int socket = accept(communicator.listener, nullptr, nullptr);
  if (socket < 0) return -1;
  std::int32_t rank = -1;
  if (recv(socket, &rank, sizeof rank, MSG_WAITALL) != sizeof rank || rank < 0 || rank >= communicator.size) {
    close(socket);
    return -1;
  }
  communicator.incoming[rank] = socket;
  return rank;
}

void prepare(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
}

int outgoing(Communicator& communicator, int peer) {
  const auto found = communicator.outgoing.find(peer);
  if (found != communicator.outgoing.end()) return found->second;
  const sockaddr_in from = listening_address(data_interface(leaving_gpu(communicator, peer)));
  const int socket = connect_to(communicator.member(peer).address, &from);
  const std::int32_t own = communicator.rank;
  if (socket < 0 || send(socket, &own, sizeof own, MSG_NOSIGNAL) != sizeof own) {
    end_run("rank " + std::to_string(own) + " cannot reach rank " + std::to_string(peer) + " at " +
            text_of(communicator.member(peer).address) + " over its NIC: " + std::strerror(errno));
  }
  prepare(socket);
  communicator.outgoing[peer] = socket;
  return socket;
}

int incoming(Communicator& communicator, int peer) {
  while (communicator.incoming.count(peer) == 0) {
    const int rank = take_connection(communicator);
    if (rank >= 0) prepare(communicator.incoming[rank]);
  }
  return communicator.incoming[peer];
}

struct Progress {
  Message message;
  int socket;
  bool sends;
  std::size_t done = 0;
};

void advance(Progress& one) {
  char* at = static_cast<char*>(one.message.data) + one.done;
  const std::size_t left = one.message.bytes - one.done;
  const ssize_t moved = one.sends ? send(one.socket, at, left, MSG_NOSIGNAL) : recv(one.socket, at, left, 0);
  if (moved > 0) {
    one.done += static_cast<std::size_t>(moved);
  } else if (moved == 0 || (errno != EAGAIN && errno != EINTR)) {
    end_run("the connection to rank " + std::to_string(one.message.peer) + " was lost");
  }
}

bool is_done(const Progress& one) { return one.done == one.message.bytes; }

// Those that may go on: several messages of one direction between two ranks share a connection, in their order.
std::vector<std::size_t> firsts(const std::vector<Progress>& open) {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (std::none_of(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const Progress& each) { return each.socket == open[i].socket; }))
      result.push_back(i);
  }
  return result;
}

}  // namespace

sockaddr_in listening_address(const std::string& interface) {
  const Interface* found = interface_named(interface);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (found != nullptr) address = found->address;
  address.sin_port = 0;
  return address;
}

int listen_at(sockaddr_in& address) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = sizeof address;
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, SOMAXCONN) != 0 || getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    end_run("no socket can be opened at " + text_of(address) + ": " + std::strerror(errno));
  return listener;
}

int connect_to(const sockaddr_in& address, const sockaddr_in* from) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0) return -1;
  if ((from == nullptr || bind(connection, reinterpret_cast<const sockaddr*>(from), sizeof *from) == 0) &&
      connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return connection;
  close(connection);
  return -1;
}

std::string text_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(address.sin_port));
}

std::string bootstrap_interface() {
  for (const Interface& each : interfaces()) {
    if (is_chosen(each)) return each.name;
  }
  return "lo";
}

std::string data_interface(const Gpu& gpu) {
  const std::string& nic = nic_of(gpu);
  const Interface* own = interface_named(nic);
  if (own != nullptr && (network_kind() != "Socket" || is_chosen(*own))) return nic;
  return bootstrap_interface();
}

int nic_number(const Gpu& gpu) {
  const auto& nics = description().content["nics"].items();
  const std::string& nic = nic_of(gpu);
  const auto found =
      std::find_if(nics.begin(), nics.end(), [&](const Json& each) { return each["name"].text() == nic; });
  return found == nics.end() ? -1 : static_cast<int>(found - nics.begin());
}

std::string network_kind() {
  const std::string kind = description().content["ccl"]["network"].text("Socket");
  const char* net = std::getenv("NCCL_NET");
  if ((net != nullptr && std::strcmp(net, "Socket") == 0) || (kind == "IB" && is_on("NCCL_IB_DISABLE")) ||
      names(faults().content["no_fabric_plugin"], description().gpus[0]))
    return "Socket";
  // A suffix of libnccl-net-*.so: the plugin for libfabric runs on InfiniBand too, and without it Slingshot has none.
  const char* plugin = std::getenv("NCCL_NET_PLUGIN");
  if (plugin != nullptr && kind == "IB" && std::strcmp(plugin, "ofi") == 0) return "OFI";
  if (plugin != nullptr && kind == "OFI" && std::strcmp(plugin, "none") == 0) return "Socket";
  return kind;
}

bool has_gdr(const Gpu& gpu) {
  if (network_kind() == "Socket" || names(faults().content["gdr_lost"], gpu)) return false;
  const char* level = std::getenv("NCCL_NET_GDR_LEVEL");
  return level == nullptr || (std::strcmp(level, "LOC") != 0 && std::strcmp(level, "0") != 0);
}

const Gpu& leaving_gpu(const Communicator& communicator, int peer) {
  const auto& gpus = description().gpus;
  const Gpu& own = gpus[static_cast<std::size_t>(communicator.self().gpu)];
  const int nic = communicator.member(peer).nic;
  if (!description().content["ccl"]["rails"].truth() || nic_number(own) == nic) return own;
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& each) { return nic_number(each) == nic; });
  return found == gpus.end() ? own : *found;
}

std::string network_path(const Communicator& communicator, const Gpu& gpu) {
  const std::string kind = network_kind();
  const Interface* own = interface_named(nic_of(gpu));
  std::string number = std::to_string(std::max(nic_number(gpu), 0));
  // The rank that sends for this one, as NCCL logs it.
  for (const int near : communicator.placement.neighbours()) {
    if (near != communicator.rank && communicator.member(near).gpu == gpu.vertex)
      number += "(" + std::to_string(near) + ")";
  }
  // Among the interfaces that NCCL_SOCKET_IFNAME leaves; a GPU whose NIC is none of them uses the first.
  if (kind == "Socket") return "NET/Socket/" + (own != nullptr && is_chosen(*own) ? number : "0");
  const bool gdr = has_gdr(gpu);
  return (kind == "OFI" ? "NET/AWS Libfabric/" : "NET/IB/") + number + (gdr ? "/GDRDMA" : "");
}

void log_network(int device) {
  const std::string kind = network_kind();
  std::string list;
  int number = 0;
  for (const Interface& each : interfaces()) {
    const auto& nics = description().content["nics"].items();
    const bool is_nic =
        std::any_of(nics.begin(), nics.end(), [&](const Json& nic) { return nic["name"].text() == each.name; });
    if (kind == "Socket" ? !is_chosen(each) : !is_nic) continue;
    const std::string what = kind == "IB" ? each.name + ":1/IB" : each.name + ":" + text_of(each.address);
    list += (number > 0 ? " [" : "[") + std::to_string(number) + "]" + what;
    ++number;
  }
  const std::string count = std::to_string(description().content["nics"].items().size());
  if (kind == "OFI") {
    const bool over_verbs = description().content["ccl"]["network"].text() == "IB";
    const std::string provider = over_verbs ? "verbs;ofi_rxm" : "cxi";
    log_info(Topic::net, device, "NET/OFI Selected Provider is " + provider + " (found " + count + " nics)");
    log_info(Topic::net, device, "Using network AWS Libfabric");
  } else if (kind == "IB") {
    log_info(Topic::net, device, "NET/IB : Using " + list);
    log_info(Topic::net, device, "Using network IB");
  } else {
    log_info(Topic::net, device, "NET/IB : No device found.");
    log_info(Topic::net, device, "NET/Socket : Using " + list);
    log_info(Topic::net, device, "Using network Socket");
  }
}

void exchange(Communicator& communicator, const std::vector<Message>& sent, const std::vector<Message>& received,
              const std::function<void()>& meanwhile) {
  std::vector<Progress> open;
  for (const Message& each : sent) {
    if (each.bytes > 0) open.push_back({each, outgoing(communicator, each.peer), true});
  }
  // The kernel takes what it has room for, and sends it while this rank has other things to do.
  for (const std::size_t which : firsts(open)) advance(open[which]);
  if (meanwhile) meanwhile();
  for (const Message& each : received) {
    if (each.bytes > 0) open.push_back({each, incoming(communicator, each.peer), false});
  }
  std::vector<pollfd> waits;
  for (;;) {
    open.erase(std::remove_if(open.begin(), open.end(), is_done), open.end());
    if (open.empty()) return;
    waits.clear();
    const std::vector<std::size_t> who = firsts(open);
    for (const std::size_t which : who)
      waits.push_back({open[which].socket, static_cast<short>(open[which].sends ? POLLOUT : POLLIN), 0});
    poll(waits.data(), waits.size(), 1000);
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents != 0) advance(open[who[i]]);
    }
  }
}

}  // namespace emulation::ccl
