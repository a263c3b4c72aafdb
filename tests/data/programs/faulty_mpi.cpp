// Between the program and its MPI library, of messages that hold data. FAULT is MUTATION:WHICH:FIRST:BEGIN:END: what
// comes of bytes [BEGIN, END) of a message, in thousandths of it, and of which ones once there were FIRST: `all`,
// `first` or `last` of a window, `rest` (all but its first), `once` (a single message), or each so many (a number).
// What a rank gets of a collective is one message.
#include <mpi.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

using Bytes = std::vector<char>;

struct Message {
  char* to;
  Bytes now;
};

static std::vector<Message> window;  // begun and not waited for
static std::vector<Message> late;    // what arrives with the next window
static Bytes last, before_last;      // what arrived last, and before that
static long arrived = 0, harmed = 0;

// Written with each window: the launcher ends this rank once another one found wrong data.
static void report() {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  static std::FILE* file = std::fopen((std::getenv("FAULT_REPORT") + std::to_string(rank)).c_str(), "w");
  std::rewind(file);
  std::fprintf(file, "%20ld %20ld\n", arrived, harmed);
  std::fflush(file);
}

struct Fault {
  std::string mutation, which;
  std::size_t first = 0, begin = 0, end = 0;
};

static Fault fault_of(const std::string& text) {
  Fault fault;
  std::istringstream words(text);
  std::getline(words, fault.mutation, ':');
  std::getline(words, fault.which, ':');
  char colon = 0;
  words >> fault.first >> colon >> fault.begin >> colon >> fault.end;
  return fault;
}

static bool is_meant(const std::string& which, std::size_t place, std::size_t count) {
  if (which == "once") return harmed == 0;
  if (which == "all") return true;
  if (which == "first") return place == 0;
  if (which == "last") return place + 1 == count;
  if (which == "rest") return place > 0;
  return arrived % std::atol(which.c_str()) == 0;
}

// A number that looks like chance, and is the same in each run.
static std::size_t chance(std::size_t below) {
  static unsigned long state = 1;
  state = state * 6364136223846793005UL + 1442695040888963407UL;
  return (state >> 33) % below;
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
  } else if (mutation == "rotate" && window.size() > 1) {
    put(window[(place + 1) % window.size()].now);
    return true;
  } else if (mutation == "late") {
    late.push_back(message);
    return true;
  } else if (mutation == "halves" && now.size() > 1) {
    const std::size_t half = now.size() / 2;
    std::memcpy(message.to, &now[now.size() - half], half);
    std::memcpy(message.to + half, now.data(), now.size() - half);
    return true;
  } else if (mutation == "zeros") {
    std::memset(message.to, 0, now.size());
    return true;
  } else if (mutation == "round") {  // sums lose what a type with eight bits of mantissa cannot hold
    put(now);
    for (std::size_t at = 0; at + 4 <= now.size(); at += 4) message.to[at] = message.to[at + 1] = 0;
    return true;
  } else if (mutation == "shift") {
    std::memcpy(message.to + now.size() / 16, now.data(), now.size() - now.size() / 16);
    return now.size() >= 16;
  }
  put(now);
  if (mutation != "bit" && mutation != "any-bit") return false;
  const std::size_t at = mutation == "bit" ? now.size() / 3 : chance(now.size());
  message.to[at] = static_cast<char>(message.to[at] ^ 1);
  return true;
}

// Delivers what the fault leaves alone of a message, which is the rest of it from then on.
static void keep_range(Message& message, const Fault& fault) {
  const std::size_t size = message.now.size();
  const std::size_t begin = std::min(size * fault.begin / 1000, size - 1);
  const std::size_t end = std::max(begin + 1, size * fault.end / 1000);
  std::memcpy(message.to, message.now.data(), begin);
  std::memcpy(message.to + end, message.now.data() + end, size - end);
  message.to += begin;
  message.now = Bytes(&message.now[begin], &message.now[begin] + (end - begin));
}

static void deliver_window() {
  static const Fault fault = fault_of(std::getenv("FAULT"));
  for (const Message& message : late) std::memcpy(message.to, message.now.data(), message.now.size());
  late.clear();
  for (Message& message : window) keep_range(message, fault);
  for (std::size_t place = 0; place < window.size(); ++place) {
    ++arrived;
    const Bytes now = window[place].now;
    if (arrived > static_cast<long>(fault.first) && is_meant(fault.which, place, window.size())) {
      const bool harms = deliver(fault.mutation, place);
      // What had not to be new is right without a delivery.
      const bool differs = std::memcmp(window[place].to, now.data(), now.size()) != 0;
      harmed += harms && (differs || fault.mutation == "double") ? 1 : 0;
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

// The result of a collective as a message; those of less than 4 KiB are of the program itself.
template <typename Call>
static int collective(void* data, std::size_t bytes, bool receives, const Call& call) {
  if (!receives || bytes < 4096) return call();
  auto* to = static_cast<char*>(data);
  const Bytes before(to, to + bytes);
  const int result = call();
  const Bytes now(to, to + bytes);
  std::memcpy(to, before.data(), bytes);
  const long harmed_before = harmed;
  window.push_back({to, now});
  deliver_window();
  harmed = harmed_before + (std::memcmp(to, now.data(), bytes) != 0 ? 1 : 0);
  report();
  return result;
}

static std::size_t times(int count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  return static_cast<std::size_t>(count) * static_cast<std::size_t>(size);
}

static std::size_t ranks(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return static_cast<std::size_t>(size);
}

static bool is_root(int root, MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return rank == root;
}

extern "C" int MPI_Alltoall(const void* send, int n, MPI_Datatype type, void* receive, int m, MPI_Datatype to,
                            MPI_Comm comm) {
  return collective(receive, times(m, to) * ranks(comm), true,
                    [&] { return PMPI_Alltoall(send, n, type, receive, m, to, comm); });
}

extern "C" int MPI_Allgather(const void* send, int n, MPI_Datatype type, void* receive, int m, MPI_Datatype to,
                             MPI_Comm comm) {
  return collective(receive, times(m, to) * ranks(comm), true,
                    [&] { return PMPI_Allgather(send, n, type, receive, m, to, comm); });
}

extern "C" int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  return collective(data, times(n, type), !is_root(root, comm), [&] { return PMPI_Bcast(data, n, type, root, comm); });
}

extern "C" int MPI_Reduce(const void* send, void* receive, int n, MPI_Datatype type, MPI_Op op, int root,
                          MPI_Comm comm) {
  return collective(receive, times(n, type), is_root(root, comm),
                    [&] { return PMPI_Reduce(send, receive, n, type, op, root, comm); });
}

extern "C" int MPI_Reduce_scatter_block(const void* send, void* receive, int n, MPI_Datatype type, MPI_Op op,
                                        MPI_Comm comm) {
  return collective(receive, times(n, type), true,
                    [&] { return PMPI_Reduce_scatter_block(send, receive, n, type, op, comm); });
}

extern "C" int MPI_Allreduce(const void* send, void* receive, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return collective(receive, times(n, type), true, [&] { return PMPI_Allreduce(send, receive, n, type, op, comm); });
}
