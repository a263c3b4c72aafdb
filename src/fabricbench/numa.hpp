// On which NUMA node memory lies. Plain system calls: libnuma is not on every node.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fabricbench {

inline constexpr int kAnyNode = -1;

// Whole pages of this process, on NUMA node `node` (kAnyNode: wherever the kernel puts them), each written once.
// Throws RunError where there is no room.
class Pages {
 public:
  Pages() = default;
  Pages(std::size_t bytes, int node);
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// While it lives, pages that this thread touches first lie on NUMA node `node` (kAnyNode: wherever the kernel puts
// them): for memory that a driver allocates. Throws RunError where the node has no memory.
class MemoryPolicy {
 public:
  // `strictly`: there or nowhere; else there where it has room.
  explicit MemoryPolicy(int node, bool strictly = true);
  ~MemoryPolicy();
  MemoryPolicy(const MemoryPolicy&) = delete;
  MemoryPolicy& operator=(const MemoryPolicy&) = delete;

 private:
  int node_;
};

// The NUMA node of the page at an address, or kAnyNode where the kernel does not say, as for memory of a driver.
int numa_node_of_page(const void* address);
// The processors of a NUMA node.
std::vector<int> cpus_of_numa_node(int node);
// The nodes with memory by their distance from `node`, the nearest one first: itself, where it has memory.
std::vector<int> numa_nodes_with_memory(int node, const std::string& sysfs = "/sys");

}  // namespace fabricbench
