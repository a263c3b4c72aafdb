// Between the program and its MPI library, of messages that hold data. FAULT is MUTATION:WHICH: what comes of a
// message, and of which ones once there were 20: `all`, `first` or `last` of a window, `rest` (all but its first), or
// each so many (a number).
#include <mpi.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using Bytes = std::vector<char>;

struct Message {
  char* to;
  Bytes now;
};

static std::vector<Message> window;  // begun and not waited for
static Bytes last, before_last;      // what arrived last, and before that
static long arrived = 0, harmed = 0;

// Written with each window: the launcher ends this rank once another one found wrong data.
static void report() {
  static std::FILE* file = std::fopen(std::getenv("FAULT_REPORT"), "w");
  std::rewind(file);
  std::fprintf(file, "%20ld %20ld\n", arrived, harmed);
  std::fflush(file);
}

static bool is_meant(const std::string& which, std::size_t place, std::size_t count) {
  if (arrived <= 20) return false;
  if (which == "all") return true;
  if (which == "first") return place == 0;
  if (which == "last") return place + 1 == count;
  if (which == "rest") return place > 0;
  return arrived % std::atol(which.c_str()) == 0;
}

// Delivers those blocks that differ from what was there before, as a library would that tracks what its user changed.
static bool deliver_changes(char* to, const Bytes& now, std::size_t block) {
  bool saved = false;
  for (std::size_t at = 0; at < now.size(); at += block) {
    const std::size_t length = std::min(block, now.size() - at);
    if (last.size() == now.size() && std::memcmp(&now[at], &last[at], length) == 0) {
      saved = true;
    } else {
      std::memcpy(to + at, &now[at], length);
    }
  }
  return saved;
}

// Whether anything was harmed.
static bool deliver(const std::string& mutation, std::size_t place) {
  const Message& message = window[place];
  const Bytes& now = message.now;
  const auto put = [&](const Bytes& bytes) { std::memcpy(message.to, bytes.data(), now.size()); };
  if (mutation == "drop") return true;
  if (mutation == "unchanged") {
    if (now == last) return true;
  } else if (mutation == "pages" || mutation == "lines") {
    return deliver_changes(message.to, now, mutation == "pages" ? 4096 : 64);
  } else if (mutation == "back" && last.size() == now.size()) {
    put(last);
    return true;
  } else if (mutation == "two-back" && before_last.size() == now.size()) {
    put(before_last);
    return true;
  } else if (mutation == "exchange" && place > 0) {
    std::memcpy(window[place - 1].to, now.data(), now.size());
    put(window[place - 1].now);
    return true;
  } else if (mutation == "double" && place + 1 < window.size()) {
    put(now);
    window[place + 1].now = now;
    return true;
  } else if (mutation == "part") {
    std::memcpy(message.to, now.data(), now.size() - now.size() / 16 - 1);
    return true;
  } else if (mutation == "shift") {
    std::memcpy(message.to + now.size() / 16, now.data(), now.size() - now.size() / 16);
    return now.size() >= 16;
  }
  put(now);
  if (mutation != "bit") return false;
  message.to[now.size() / 3] = static_cast<char>(message.to[now.size() / 3] ^ 1);
  return true;
}

static void deliver_window() {
  const std::string fault = std::getenv("FAULT");
  const auto colon = fault.find(':');
  for (std::size_t place = 0; place < window.size(); ++place) {
    ++arrived;
    const Bytes now = window[place].now;
    if (is_meant(fault.substr(colon + 1), place, window.size())) {
      harmed += deliver(fault.substr(0, colon), place) ? 1 : 0;
    } else {
      std::memcpy(window[place].to, now.data(), now.size());
    }
    before_last = last;
    last = now;
  }
  if (!window.empty()) report();
  window.clear();
}

static char* begin(void* data, int bytes) {
  window.push_back({static_cast<char*>(data), Bytes(static_cast<std::size_t>(bytes))});
  return window.back().now.data();
}

extern "C" int MPI_Recv(void* data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  if (type != MPI_BYTE || n == 0) return PMPI_Recv(data, n, type, from, tag, comm, status);
  const int result = PMPI_Recv(begin(data, n), n, type, from, tag, comm, status);
  deliver_window();
  return result;
}

extern "C" int MPI_Irecv(void* data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  return PMPI_Irecv(type == MPI_BYTE && n > 0 ? begin(data, n) : data, n, type, from, tag, comm, request);
}

extern "C" int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  const int result = PMPI_Waitall(count, requests, statuses);
  deliver_window();
  return result;
}

// Sums lose what a type with eight bits of mantissa cannot hold.
extern "C" int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const int result = PMPI_Allreduce(send, receive, count, type, op, comm);
  if (type != MPI_FLOAT || count < 16) return result;
  ++arrived;
  const std::string fault = std::getenv("FAULT");
  if (fault.rfind("round:", 0) == 0 && is_meant(fault.substr(6), 0, 1)) {
    auto* words = static_cast<unsigned*>(receive);
    for (int i = 0; i < count; ++i) words[i] &= 0xFFFF0000U;
    ++harmed;
  }
  report();
  return result;
}
