#include "fabricbench/ras.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

constexpr char kDefaultAddress[] = "localhost:28028";
constexpr std::size_t kMostStatus = 64 << 10, kMostLine = 256, kMostProblems = 1500;
// All processes of a user share the port (SO_REUSEPORT): a connection may reach one that is stopped, or another job's.
// The next connection reaches another.
constexpr int kTries = 8;
constexpr std::chrono::milliseconds kHandshake{500};
// How long RAS is to wait for processes whose connections are silent; the fewest seconds that it takes.
constexpr char kPatience[] = "TIMEOUT 1\n";

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};
using Addresses = std::vector<Address>;

Addresses look_up(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) return {};
  Addresses addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(list);
  return addresses;
}

Addresses addresses_of(const std::string& text, Time deadline) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty() || port.empty()) return {};
  constexpr int kNumbers = AI_NUMERICHOST | AI_NUMERICSERV;
  if (host == "localhost") {
    Addresses both = look_up("127.0.0.1", port, kNumbers);
    for (const Address& address : look_up("::1", port, kNumbers)) both.push_back(address);
    return both;
  }
  if (Addresses addresses = look_up(host, port, kNumbers); !addresses.empty()) return addresses;
  // A name server may take longer than the deadline, and cannot be interrupted.
  const auto named = std::make_shared<std::promise<Addresses>>();
  std::future<Addresses> result = named->get_future();
  std::thread([named, host, port] { named->set_value(look_up(host, port, AI_NUMERICSERV)); }).detach();
  return result.wait_until(deadline) == std::future_status::ready ? result.get() : Addresses{};
}

class Connection {
 public:
  Connection(const Address& address, Time deadline) : socket_(::socket(address.storage.ss_family, SOCK_STREAM, 0)) {
    if (socket_ < 0) return;
    fcntl(socket_, F_SETFD, FD_CLOEXEC);
    fcntl(socket_, F_SETFL, O_NONBLOCK);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0) {
      open_ = true;
    } else if (errno == EINPROGRESS && ready(POLLOUT, deadline)) {
      int error = 0;
      socklen_t length = sizeof error;
      open_ = getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
    }
  }
  ~Connection() {
    if (socket_ >= 0) close(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_open() const { return open_; }

  bool send(std::string_view text, Time deadline) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        text.remove_prefix(static_cast<std::size_t>(sent));
      } else if (!waits(sent) || !ready(POLLOUT, deadline)) {
        return false;
      }
    }
    return true;
  }

  // Without its end; nullopt where there is no whole line.
  std::optional<std::string> line(Time deadline) {
    while (received_.find('\n') == std::string::npos) {
      if (received_.size() > kMostLine || receive(deadline) <= 0) return std::nullopt;
    }
    const std::size_t end = received_.find('\n');
    std::string text = received_.substr(0, end);
    received_.erase(0, end + 1);
    return text;
  }

  // Up to the end of the connection; nullopt where it does not come.
  std::optional<std::string> rest(Time deadline) {
    while (received_.size() < kMostStatus) {
      const ssize_t length = receive(deadline);
      if (length < 0) return std::nullopt;
      if (length == 0) break;
    }
    return received_.substr(0, kMostStatus);
  }

 private:
  static bool waits(ssize_t result) {
    return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  }

  bool ready(short events, Time deadline) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return false;
      pollfd poll_for{socket_, events, 0};
      const int ready = poll(&poll_for, 1, static_cast<int>(left.count()));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }

  // The number of bytes, 0 at the end, -1 for a failure or when it is too late.
  ssize_t receive(Time deadline) {
    char buffer[4096];
    for (;;) {
      if (!ready(POLLIN, deadline)) return -1;
      const ssize_t length = recv(socket_, buffer, sizeof buffer, 0);
      if (length >= 0) {
        received_.append(buffer, static_cast<std::size_t>(length));
        return length;
      }
      if (!waits(length)) return -1;
    }
  }

  int socket_;
  bool open_ = false;
  std::string received_;
};

enum class Outcome { nobody, silent, other, status };

// The dialogue of NCCL's client (src/ras/client.cc).
Outcome ask(const Address& address, Time deadline, std::string& status) {
  const Time handshake = std::min(deadline, Clock::now() + kHandshake);
  Connection connection(address, handshake);
  if (!connection.is_open()) return Outcome::nobody;
  if (!connection.send("CLIENT PROTOCOL 2\n", handshake)) return Outcome::silent;
  const std::optional<std::string> server = connection.line(handshake);
  if (!server) return Outcome::silent;
  if (server->rfind("SERVER PROTOCOL ", 0) != 0) return Outcome::other;
  if (!connection.send(kPatience, handshake)) return Outcome::silent;
  const std::optional<std::string> taken = connection.line(handshake);
  if (!taken) return Outcome::silent;
  if (*taken != "OK") return Outcome::other;
  if (!connection.send("VERBOSE STATUS\n", handshake)) return Outcome::silent;
  const std::optional<std::string> answer = connection.rest(deadline);
  if (!answer) return Outcome::silent;
  status = *answer;
  return Outcome::status;
}

std::vector<std::string> lines_of(const std::string& status) {
  std::vector<std::string> lines = split(status, '\n');
  for (std::string& line : lines) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    for (char& letter : line) {
      if (letter == '\t') letter = ' ';
      if (letter < ' ' || letter > '~') letter = '?';
    }
  }
  return lines;
}

std::string trimmed(const std::string& line) {
  const std::size_t first = line.find_first_not_of(' ');
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(' ') - first + 1);
}

bool is_underline(const std::string& line) { return !line.empty() && line.find_first_not_of('=') == std::string::npos; }

}  // namespace

std::string ras_address() {
  // NCCL takes any other value than 1 for no.
  const char* enable = std::getenv("NCCL_RAS_ENABLE");
  if (enable != nullptr && *enable != '\0' && std::strtol(enable, nullptr, 0) != 1) return {};
  const char* address = std::getenv("NCCL_RAS_ADDR");
  return address != nullptr && *address != '\0' ? address : kDefaultAddress;
}

std::string ask_ras(const std::string& address, int processes, std::chrono::milliseconds limit) noexcept try {
  const Time deadline = Clock::now() + limit;
  const Addresses addresses = addresses_of(address, deadline);
  for (int i = 0; i < kTries; ++i) {
    bool again = false;
    for (const Address& candidate : addresses) {
      if (Clock::now() >= deadline) return {};
      std::string status;
      const Outcome outcome = ask(candidate, deadline, status);
      if (outcome == Outcome::status && ras_processes(status) == processes) return status;
      again = again || outcome == Outcome::silent || outcome == Outcome::status;
    }
    if (!again) return {};
  }
  return {};
} catch (...) {
  return {};
}

int ras_processes(const std::string& status) {
  bool is_next = false;
  for (const std::string& line : lines_of(status)) {
    if (is_next) {
      // Nodes, processes a node, GPUs a process, processes, GPUs; or, where nodes differ, nodes, processes, GPUs.
      std::istringstream stream(line);
      std::vector<int> numbers;
      for (int number; stream >> number;) numbers.push_back(number);
      if (numbers.size() == 5) return numbers[3];
      if (numbers.size() == 3) return numbers[1];
    }
    is_next = trimmed(line).rfind("(total)", 0) == 0;
  }
  return -1;
}

std::string ras_problems(const std::string& status) {
  const std::vector<std::string> lines = lines_of(status);
  int sections = 0;
  bool is_wanted = false, is_first = true;
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (is_underline(lines[i])) continue;
    if (i + 1 < lines.size() && is_underline(lines[i + 1])) {
      is_wanted = lines[i] == "Errors" || lines[i] == "Warnings";
      sections += is_wanted ? 1 : 0;
      continue;
    }
    const std::string line = trimmed(lines[i]);
    if (!is_wanted || line.empty()) continue;
    if (lines[i][0] != ' ') {
      text += (text.empty() ? "" : ". ") + line + ':';
      is_first = true;
    } else {
      text += (is_first ? " " : "; ") + line;
      is_first = false;
    }
  }
  if (text.empty() && sections == 2)
    return "no errors, no warnings, and all " + std::to_string(ras_processes(status)) + " processes answer";
  if (text.size() <= kMostProblems) return text;
  constexpr char kMore[] = "; ...";
  text.resize(kMostProblems - std::strlen(kMore));
  if (const std::size_t end = text.rfind("; "); end != std::string::npos) text.resize(end);
  return text + kMore;
}

}  // namespace fabricbench
