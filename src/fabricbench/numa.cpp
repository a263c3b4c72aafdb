#include "fabricbench/numa.hpp"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

constexpr unsigned long kMostNodes = 1024;
constexpr unsigned long kBitsOfWord = 8 * sizeof(unsigned long);

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

struct NodeMask {
  explicit NodeMask(int node) {
    const auto bit = static_cast<unsigned long>(node);
    words[bit / kBitsOfWord] = 1UL << (bit % kBitsOfWord);
  }
  unsigned long words[kMostNodes / kBitsOfWord] = {};
};

}  // namespace

Pages::Pages(std::size_t bytes, int node) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw RunError("memory",
                   "no " + format_size(bytes) + " of host memory: choose smaller --sizes or fewer ranks a node");
  data_ = static_cast<std::byte*>(memory);
  if (node != kAnyNode) {
    if (syscall(SYS_mbind, memory, bytes, MPOL_BIND, NodeMask(node).words, kMostNodes, MPOL_MF_STRICT) != 0) {
      const int reason = errno;
      munmap(memory, bytes);
      throw RunError("memory", "no memory on NUMA node " + std::to_string(node) + ": " + std::strerror(reason));
    }
  }
  std::memset(memory, 0, bytes);
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}
Pages::Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryPolicy::MemoryPolicy(int node, bool strictly) : node_(node) {
  const int policy = strictly ? MPOL_BIND : MPOL_PREFERRED;
  if (node != kAnyNode && syscall(SYS_set_mempolicy, policy, NodeMask(node).words, kMostNodes) != 0 && strictly)
    throw RunError("memory", "no memory on NUMA node " + std::to_string(node) + ": " + std::strerror(errno));
}
MemoryPolicy::~MemoryPolicy() {
  if (node_ != kAnyNode) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL);
}

int numa_node_of_page(const void* address) {
  int node = kAnyNode;
  const long result =
      syscall(SYS_get_mempolicy, &node, nullptr, 0UL, const_cast<void*>(address), MPOL_F_NODE | MPOL_F_ADDR);
  return result == 0 ? node : kAnyNode;
}

std::vector<int> cpus_of_numa_node(int node) {
  return parse_ranges(first_line("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist"));
}

std::vector<int> numa_nodes_with_memory(int node, const std::string& sysfs) {
  const std::string nodes = sysfs + "/devices/system/node/";
  std::vector<int> usable = parse_ranges(first_line(nodes + "has_memory"));
  // The distances are those to the nodes that are online, in their order.
  std::istringstream distances(first_line(nodes + "node" + std::to_string(node) + "/distance"));
  std::map<int, int> distance_to;
  for (const int other : parse_ranges(first_line(nodes + "online"))) {
    if (int distance = 0; distances >> distance) distance_to[other] = distance;
  }
  std::stable_sort(usable.begin(), usable.end(), [&](int a, int b) { return distance_to[a] < distance_to[b]; });
  return usable;
}

}  // namespace fabricbench
