#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "fabricbench/ras.hpp"

using namespace fabricbench;

namespace {

using std::chrono::milliseconds;

// As NCCL's documentation shows them and src/ras/client_support.cc writes them.
const std::string kSummary =
    "NCCL version 2.28.3 compiled with CUDA 13.0\n"
    "CUDA runtime version 13000, driver version 13000\n\n"
    "Job summary\n"
    "===========\n\n"
    "  Nodes  Processes         GPUs  Processes     GPUs\n"
    "(total)   per node  per process    (total)  (total)\n"
    "      4          8            1         32       32\n";
const std::string kUnevenSummary =
    "Job summary\n"
    "===========\n\n"
    "  Nodes  Processes         GPUs\n"
    "          per node  per process\n"
    "      3          8            1\n"
    "      1          7            1\n\n"
    "  Nodes  Processes         GPUs\n"
    "(total)    (total)      (total)\n"
    "      4         31           31\n\n"
    "The outlier node:\n"
    "  Node 172.16.64.213 running processes 1,2,3,4,5,6,7\n";
const std::string kGroups =
    "\nCommunicators... (2.05s)\n"
    "=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         4       7-8        32        32   RUNNING  INCOMPLETE\n";
const std::string kHealthy = "\nErrors\n======\n\nWarnings\n========\n\n";
const std::string kProblems =
    "\nErrors\n"
    "======\n\n"
    "INCOMPLETE\n"
    "  Missing communicator data from 1 job process\n"
    "  Process 3487984 on node 172.16.64.213 managing GPU 5\n\n"
    "#0-0 (cf264af53edbe986) INCOMPLETE\n"
    "  Missing communicator data from 1 rank\n"
    "  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213\n\n"
    "Warnings\n"
    "========\n\n"
    "TIMEOUT\n"
    "  Encountered 2 communication timeouts while gathering communicator data\n\n"
    "#0-0 (cf264af53edbe986) MISMATCH\n"
    "  Communicator ranks have different AllReduce operation counts\n"
    "  30 ranks have launched up to operation 6650\n"
    "  Rank 7 has launched up to operation 6649 -- GPU 7 managed by process 483079 on node 172.16.64.210\n\n";

// What is answered to the commands of a connection, one by one; nothing, and the connection stays open, where empty.
using Script = std::vector<std::string>;

// Goes through the scripts connection by connection, and stays with the last.
class Server {
 public:
  explicit Server(std::vector<Script> scripts) : scripts_(std::move(scripts)) {
    listening_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    CHECK(bind(listening_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(listening_, 16) == 0);
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    done_ = true;
    thread_.join();
    for (const int socket : silent_) close(socket);
    close(listening_);
  }
  std::string address() const { return "localhost:" + std::to_string(port_); }
  int connections() const { return connections_; }
  std::string commands() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return commands_;
  }

 private:
  static bool readable(int socket) {
    pollfd entry{socket, POLLIN, 0};
    return poll(&entry, 1, 20) == 1;
  }

  void serve() {
    while (!done_) {
      if (!readable(listening_)) continue;
      const int client = accept(listening_, nullptr, nullptr);
      const std::size_t which = static_cast<std::size_t>(connections_++);
      const Script& script = scripts_[std::min(which, scripts_.size() - 1)];
      if (script.empty()) {
        silent_.push_back(client);
        continue;
      }
      for (const std::string& answer : script) {
        while (!done_ && !readable(client)) continue;
        char command[256];
        const ssize_t length = recv(client, command, sizeof command, 0);
        if (length <= 0) break;
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          commands_.append(command, static_cast<std::size_t>(length));
        }
        (void)!send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      }
      close(client);
    }
  }

  std::vector<Script> scripts_;
  int listening_ = -1, port_ = 0;
  std::atomic<bool> done_{false};
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  std::string commands_;
  std::vector<int> silent_;
  std::thread thread_;
};

Script telling(const std::string& status) { return {"SERVER PROTOCOL 2\n", "OK\n", status}; }

// What came, and whether it came in time.
std::string asked(const std::string& address, int processes, milliseconds limit, milliseconds most) {
  const auto start = std::chrono::steady_clock::now();
  const std::string status = ask_ras(address, processes, limit);
  CHECK(std::chrono::steady_clock::now() - start < most);
  return status;
}

}  // namespace

TEST(ras_tells_its_status) {
  const std::string status = kSummary + kGroups + kProblems;
  Server server({telling(status)});
  CHECK_EQUAL(asked(server.address(), 32, milliseconds(4000), milliseconds(3000)), status);
  CHECK_EQUAL(server.commands(), "CLIENT PROTOCOL 2\nTIMEOUT 1\nVERBOSE STATUS\n");
}

TEST(a_status_of_another_job_is_not_taken) {
  Server server({telling(kSummary + kGroups + kProblems)});
  CHECK_EQUAL(asked(server.address(), 4, milliseconds(4000), milliseconds(3000)), "");
  CHECK(server.connections() > 1);
}

TEST(where_several_processes_share_the_port_the_next_is_asked) {
  const std::string status = kSummary + kGroups + kHealthy;
  Server server({Script{}, telling(kUnevenSummary), telling(status)});
  CHECK_EQUAL(asked(server.address(), 32, milliseconds(4000), milliseconds(3500)), status);
}

TEST(who_is_silent_holds_up_nobody) {
  Server server({Script{}});
  CHECK_EQUAL(asked(server.address(), 2, milliseconds(900), milliseconds(1500)), "");
  CHECK_EQUAL(server.connections(), 2);
  // The summary comes at once, and what all processes have to be asked for does not.
  Server slow({Script{"SERVER PROTOCOL 2\n", "OK\n", kSummary, kGroups}});
  CHECK_EQUAL(asked(slow.address(), 32, milliseconds(900), milliseconds(1500)), "");
}

TEST(what_is_not_ras_says_nothing) {
  Server garbage({Script{"HTTP/1.1 400 Bad Request\r\n\r\n"}});
  CHECK_EQUAL(asked(garbage.address(), 2, milliseconds(4000), milliseconds(3000)), "");
  CHECK_EQUAL(garbage.connections(), 1);
  Server endless({Script{std::string(1 << 20, 'x')}});
  CHECK_EQUAL(asked(endless.address(), 2, milliseconds(4000), milliseconds(3900)), "");
  Server refusing({Script{"SERVER PROTOCOL 2\n", "ERROR: Invalid timeout value 1\n"}});
  CHECK_EQUAL(asked(refusing.address(), 2, milliseconds(4000), milliseconds(3000)), "");
  Server empty({telling("")});
  CHECK_EQUAL(asked(empty.address(), 2, milliseconds(4000), milliseconds(3000)), "");
}

TEST(nobody_listens) {
  std::string address;
  {
    address = Server({Script{}}).address();
  }
  CHECK_EQUAL(asked(address, 2, milliseconds(4000), milliseconds(1000)), "");
  for (const char* malformed :
       {"", "localhost", "localhost:", ":28028", "localhost:port", "[::1]", "127.0.0.1:99999999"})
    CHECK_EQUAL(asked(malformed, 2, milliseconds(4000), milliseconds(4500)), "");
}

TEST(an_endless_status_is_cut_off) {
  Server server({telling(kSummary + kGroups + kProblems + std::string(200000, 'x'))});
  CHECK_EQUAL(ask_ras(server.address(), 32).size(), std::size_t{64 << 10});
}

TEST(ras_is_where_its_variables_say) {
  unsetenv("NCCL_RAS_ENABLE");
  unsetenv("NCCL_RAS_ADDR");
  CHECK_EQUAL(ras_address(), "localhost:28028");
  setenv("NCCL_RAS_ADDR", "[::1]:12345", 1);
  CHECK_EQUAL(ras_address(), "[::1]:12345");
  setenv("NCCL_RAS_ENABLE", "1", 1);
  CHECK_EQUAL(ras_address(), "[::1]:12345");
  setenv("NCCL_RAS_ENABLE", "0", 1);
  CHECK_EQUAL(ras_address(), "");
  unsetenv("NCCL_RAS_ENABLE");
  unsetenv("NCCL_RAS_ADDR");
}

TEST(the_processes_of_a_job_are_counted) {
  CHECK_EQUAL(ras_processes(kSummary + kGroups + kProblems), 32);
  CHECK_EQUAL(ras_processes(kUnevenSummary + kGroups), 31);
  CHECK_EQUAL(ras_processes(""), -1);
  CHECK_EQUAL(ras_processes("(total)\n"), -1);
  CHECK_EQUAL(ras_processes("(total)\n1 2 99999999999999999999 4 5\n"), -1);
}

TEST(errors_and_warnings_are_one_line) {
  CHECK_EQUAL(
      ras_problems(kSummary + kGroups + kProblems),
      "INCOMPLETE: Missing communicator data from 1 job process; Process 3487984 on node 172.16.64.213 managing "
      "GPU 5. #0-0 (cf264af53edbe986) INCOMPLETE: Missing communicator data from 1 rank; Rank 21 -- GPU 5 "
      "managed by process 3487984 on node 172.16.64.213. TIMEOUT: Encountered 2 communication timeouts while "
      "gathering communicator data. #0-0 (cf264af53edbe986) MISMATCH: Communicator ranks have different "
      "AllReduce operation counts; 30 ranks have launched up to operation 6650; Rank 7 has launched up to "
      "operation 6649 -- GPU 7 managed by process 483079 on node 172.16.64.210");
  CHECK_EQUAL(ras_problems(kSummary + kGroups + kHealthy), "no errors, no warnings, and all 32 processes answer");
  // Whether there is nothing to say is known only where both sections came.
  CHECK_EQUAL(ras_problems(kSummary + kGroups), "");
  CHECK_EQUAL(ras_problems(""), "");
}

TEST(many_ranks_are_cut_off_between_two) {
  std::string status = kSummary + kGroups + "\nErrors\n======\n\nDEAD\n";
  for (int i = 0; i < 1000; ++i)
    status += "  Process " + std::to_string(i) + " on node nid\xc3\xa4\x01 managing GPU 0\n";
  const std::string problems = ras_problems(status + kHealthy);
  CHECK(problems.size() <= 1500 && problems.size() > 1400);
  CHECK_EQUAL(problems.substr(problems.size() - 20), " managing GPU 0; ...");
  CHECK(problems.find("on node nid??? managing") != std::string::npos);
}
