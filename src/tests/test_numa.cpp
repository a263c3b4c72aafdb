#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "check.hpp"
#include "fabricbench/numa.hpp"
#include "folder.hpp"

using namespace fabricbench;

namespace {

// Four nodes, one offline, the second without memory of its own.
void write_nodes(const check::Folder& sysfs) {
  sysfs.write("devices/system/node/online", "0-1,3-4\n");
  sysfs.write("devices/system/node/has_memory", "0,3-4\n");
  sysfs.write("devices/system/node/node0/distance", "10 12 32 21\n");
  sysfs.write("devices/system/node/node1/distance", "32 10 12 21\n");
}

}  // namespace

TEST(the_nearest_memory_is_on_the_own_node) {
  const check::Folder sysfs;
  write_nodes(sysfs);
  CHECK_EQUAL(numa_nodes_with_memory(0, sysfs.path()), (std::vector<int>{0, 4, 3}));
}

TEST(a_node_without_memory_has_that_of_its_neighbour) {
  const check::Folder sysfs;
  write_nodes(sysfs);
  CHECK_EQUAL(numa_nodes_with_memory(1, sysfs.path()), (std::vector<int>{3, 4, 0}));
}

TEST(where_nobody_knows_a_device_no_node_is_nearest) {
  const check::Folder sysfs;
  write_nodes(sysfs);
  CHECK_EQUAL(numa_nodes_with_memory(kAnyNode, sysfs.path()).size(), 3u);
  CHECK(numa_nodes_with_memory(0, sysfs.path() + "/none").empty());
}

TEST(memory_is_touched_first_where_it_was_asked_for) {
  const std::vector<int> nodes = numa_nodes_with_memory(kAnyNode);
  if (nodes.empty()) return;  // a kernel without NUMA
  if (syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL) != 0 && (errno == EPERM || errno == ENOSYS)) {
    std::printf("SKIPPED memory_is_touched_first_where_it_was_asked_for: this container forbids to place memory (%s)\n",
                std::strerror(errno));
    return;
  }
  for (const int node : {nodes.front(), nodes.back()}) {
    const Pages placed(1 << 16, node);
    CHECK_EQUAL(numa_node_of_page(placed.data()), node);
    const MemoryPolicy near(node, false);
    const Pages touched(1 << 16, kAnyNode);
    CHECK_EQUAL(numa_node_of_page(touched.data()), node);
  }
}
