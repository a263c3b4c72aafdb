// Times lists of messages with CommBench, for benchmarks/side_by_side.py: a site compiles it against its own copy of
// CommBench (https://github.com/merthidayetoglu/CommBench), here for NVIDIA GPUs, with the MPI library to compare with:
//
//     mpicxx -fopenmp -ICommBench -I$CUDA_HOME/include benchmarks/commbench_messages.cpp -L$CUDA_HOME/lib64 -lcudart
//     -lnccl
//
// commbench_messages LIBRARY ITERATIONS LIST...    LIBRARY: ipc, get, nccl or mpi; LIST: 0>2:1048576,1>3:1048576,...
//
// Prints "time LIST SECONDS" for each list: CommBench's own median, all messages of a list at the same time.
#define PORT_CUDA
#define CAP_NCCL
#define USE_MPI
#include "commbench.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Message {
  int source;
  int destination;
  std::size_t bytes;
};

std::vector<Message> parse(const std::string& list) {
  std::vector<Message> messages;
  std::istringstream stream(list);
  for (std::string each; std::getline(stream, each, ',');) {
    Message message{};
    if (std::sscanf(each.c_str(), "%d>%d:%zu", &message.source, &message.destination, &message.bytes) != 3) {
      std::fprintf(stderr, "commbench_messages: '%s' is not a message: write 0>2:1048576\n", each.c_str());
      std::exit(2);
    }
    messages.push_back(message);
  }
  return messages;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, CommBench::library> libraries{
      {"ipc", CommBench::IPC}, {"get", CommBench::IPC_get}, {"nccl", CommBench::NCCL}, {"mpi", CommBench::MPI}};
  if (argc < 4 || libraries.count(argv[1]) == 0) {
    std::fprintf(stderr, "usage: commbench_messages ipc|get|nccl|mpi ITERATIONS LIST...\n");
    return 2;
  }
  // Buffers for the longest of all lists: peers keep what they have mapped.
  std::vector<std::vector<Message>> lists;
  std::size_t most = 0;
  for (int i = 3; i < argc; ++i) {
    lists.push_back(parse(argv[i]));
    std::map<int, std::size_t> sent;
    std::map<int, std::size_t> received;
    for (const Message& each : lists.back())
      most = std::max({most, sent[each.source] += each.bytes, received[each.destination] += each.bytes});
  }
  CommBench::init();
  char* send = nullptr;
  char* receive = nullptr;
  CommBench::allocate(send, most);
  CommBench::allocate(receive, most);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    CommBench::Comm<char> pattern(libraries.at(argv[1]));
    std::map<int, std::size_t> sent;
    std::map<int, std::size_t> received;
    for (const Message& each : lists[i]) {
      pattern.add(send, sent[each.source], receive, received[each.destination], each.bytes, each.source,
                  each.destination);
      sent[each.source] += each.bytes;
      received[each.destination] += each.bytes;
    }
    double least = 0;
    double median = 0;
    double largest = 0;
    double mean = 0;
    CommBench::measure(5, std::atoi(argv[2]), least, median, largest, mean, pattern);
    if (CommBench::myid == 0) std::printf("time %s %.9f\n", argv[i + 3], median);
  }
  CommBench::free(send);
  CommBench::free(receive);
  MPI_Finalize();
  return 0;
}
