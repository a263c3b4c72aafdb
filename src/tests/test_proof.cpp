#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include "check.hpp"
#include "fabricbench/private_log.hpp"
#include "fabricbench/proof_logs.hpp"

using namespace fabricbench;

// Lines as NCCL 2.28 prints them.
TEST(ccl_log_names_the_paths_of_its_channels) {
  const auto paths = paths_in_ccl_log(
      "n1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
      "n1:10:11 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
      "n1:10:11 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0\n"
      "n1:10:11 [0] NCCL INFO Using network Socket\n"
      "n1:10:11 [0] NCCL INFO Bootstrap: Using eth0 via nothing\n");
  CHECK_EQUAL(paths.size(), 2u);
  CHECK_EQUAL(paths.at("P2P/CUMEM"), 2);
  CHECK_EQUAL(paths.at("NET/Socket/0"), 1);
}

// Lines as NCCL 2.28 prints them where /dev/shm is full, and without RDMA.
TEST(ccl_log_warns_and_gives_reasons) {
  const std::string log =
      "n1:10:11 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so\n"
      "n1:10:11 [0] NCCL INFO NET/IB : No device found.\n"
      "n1:10:11 [0] NCCL INFO NET/Socket : Using [0]hsn0:10.78.0.1<0>\n"
      "n1:10:11 [0] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'hsn0'\n"
      "n1:10:11 [0] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'hsn0'\n"
      "[2026-11-25 17:00:00] n1:10:11 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-a to 9 "
      "bytes, error: No space left on device (28)\n"
      "an application prints WARN in capitals\n";
  const auto remarks = remarks_in_ccl_log(log, 10);
  CHECK_EQUAL(remarks.size(), 3u);
  CHECK_EQUAL(remarks[0].text, "NET/IB : No device found.");
  CHECK(!remarks[1].warning);
  CHECK(remarks[2].warning);
  CHECK_EQUAL(remarks_in_ccl_log(log, 1).size(), 1u);
  CHECK_EQUAL(warnings_in_ccl_log(log),
              "Error: failed to extend /dev/shm/nccl-a to 9 bytes, error: No space left on device (28)");
  CHECK(remarks_in_ccl_log("", 10).empty());
}

// Lines as NCCL 2.28 and 2.29 print them.
TEST(ccl_log_says_how_nccl_is_set) {
  const auto settings = settings_in_ccl_log(
      "n1:10:11 [0] NCCL INFO P2P Chunksize set to 524288\n"
      "n1:10:11 [0] NCCL INFO threadThresholds 8/8/64 | 16/8/64 | 512 | 512\n"
      "n1:10:11 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 16 p2p channels "
      "per peer\n"
      "n1:10:11 [0] NCCL INFO CC Off, workFifoBytes 1048576\n"
      "n1:10:11 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per "
      "peer\n"
      "an application has 7 coll channels\n");
  const std::map<std::string, std::string> expected = {
      {"NCCL P2P Chunksize", "524288"}, {"NCCL_THREAD_THRESHOLDS", "8/8/64 | 16/8/64 | 512 | 512"},
      {"NCCL_MAX_NCHANNELS", "24"},     {"NCCL_NVLS_NCHANNELS", "0"},
      {"NCCL_MAX_P2P_NCHANNELS", "32"}, {"NCCL_WORK_FIFO_BYTES", "1048576"}};
  CHECK(settings == expected);
  CHECK(settings_in_ccl_log("").empty());
}

// Texts of libfabric 1.17.
TEST(help_of_a_variable_names_its_default) {
  CHECK_EQUAL(default_in_help("psm2: Maximum message size for fi_inject and fi_tinject (default: 64)."), "64");
  CHECK_EQUAL(default_in_help("shm: Max number of outstanding tx operations\n\t\t\t Default: 1024"), "1024");
  CHECK_EQUAL(default_in_help("psm2: Unique Job ID required by the fabric"), "");
}

// Lines as aws-ofi-nccl and aws-ofi-rccl print them, and the channels that NCCL makes over them.
TEST(ccl_log_names_the_provider_below_the_plugin) {
  const auto paths = paths_in_ccl_log(
      "n1:10:11 [0] NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm\n"
      "n1:10:11 [1] NCCL INFO NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)\r\n"
      "n1:10:11 [0] NCCL INFO NET/OFI Selected something\n"
      "n1:10:11 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/AWS Libfabric/0/GDRDMA comm 0x55d0 nRanks 04\n"
      "n1:10:11 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/AWS Libfabric/0/GDRDMA\n");
  CHECK_EQUAL(paths.size(), 3u);
  CHECK_EQUAL(paths.at("NET/OFI provider tcp;ofi_rxm"), 1);
  CHECK_EQUAL(paths.at("NET/OFI provider cxi"), 1);
  CHECK_EQUAL(paths.at("NET/AWS Libfabric/0/GDRDMA"), 2);
}

// The plugin opens a provider wherever it is loaded.
TEST(a_provider_that_nothing_goes_over_is_no_path) {
  const auto paths = paths_in_ccl_log(
      "n1:10:11 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)\n"
      "n1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n");
  CHECK_EQUAL(paths.size(), 1u);
  CHECK_EQUAL(paths.at("P2P/CUMEM"), 1);
}

// Lines as UCX 1.22 prints them.
TEST(oneccl_log_says_whether_devices_reach_each_other_and_what_joins_nodes) {
  const std::string start = "2026:11:22-07:33:35:124:[0] |CCL_INFO| atl-mpi:\n{\n  extra_ep: 0\n}\n";
  const std::string block = "2026:11:22-07:33:35:124:[0] |CCL_INFO| topo_manager:\n{\n  comm_size: 2\n";
  auto paths = paths_in_oneccl_log(start + block + "  single_node: 1\n  p2p_access: 0\n}\n");
  CHECK_EQUAL(paths.size(), 1u);
  CHECK_EQUAL(paths["SHM/MPI"], 1);
  paths = paths_in_oneccl_log(start + block + "  single_node: 0\n  p2p_access: 1\n}\n");
  CHECK_EQUAL(paths.size(), 2u);
  CHECK_EQUAL(paths["NET/MPI"], 1);
  CHECK_EQUAL(paths["P2P/LevelZero"], 1);
  CHECK_EQUAL(paths_in_oneccl_log("oneCCL said nothing\n").size(), 0u);
}

TEST(ucx_log_names_the_lanes_of_each_kind_of_memory) {
  const auto paths = paths_in_ucx_log(
      "[1.1] [n1:8779 :0]   "
      "+--------------------------+-------------------------------------------------------------+\n"
      "[1.1] [n1:8779 :0]   | ucp_context_0 self cfg#0 | tagged message by ucp_tag_send* from host memory            "
      "|\n"
      "[1.1] [n1:8779 :0]   "
      "+--------------------------+-----------------------------------------------+-------------+\n"
      "[1.1] [n1:8779 :0]   |                  0..2284 | eager short                                   | sysv/memory "
      "|\n"
      "[1.1] [n1:8779 :0]   "
      "+--------------------------+-----------------------------------------------+-------------+\n"
      "[1.1] [n1:8779 :0]   | tagged message by ucp_tag_send*(fast-completion) from cuda/GPU0       |\n"
      "[1.1] [n1:8779 :0]   | 3515..inf | (?) rendezvous zero-copy read from remote | cuda_ipc/cuda |\n");
  CHECK_EQUAL(paths.size(), 2u);
  CHECK_EQUAL(paths.at("host: sysv/memory"), 1);
  CHECK_EQUAL(paths.at("cuda: cuda_ipc/cuda"), 1);
}

// A line as UCX 1.13 prints it.
TEST(ucx_log_of_older_versions_names_the_lanes_of_endpoints) {
  const auto paths = paths_in_ucx_log(
      "[1.1] [n1:8779 :0]  ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(self/memory0 tcp/hsn0) rma(self/memory0) "
      "am(tcp/hsn1)\n"
      "[1.1] [n1:8779 :0]  ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(tcp/hsn0) rma_am(tcp/hsn0) am(tcp/hsn0)\n");
  CHECK_EQUAL(paths.size(), 2u);
  CHECK_EQUAL(paths.at("host: tcp/hsn0"), 2);
  CHECK_EQUAL(paths.at("host: self/memory0"), 1);
}

TEST(logs_without_paths_prove_nothing) {
  CHECK(paths_in_ccl_log("").empty());
  CHECK(paths_in_ucx_log("UCX INFO version 1.22\n").empty());
}

// What a predictable name allowed: two containers with the same process id and a shared TMPDIR write one file.
TEST(a_log_lies_in_a_directory_of_its_own_that_is_removed_with_it) {
  char parent[] = "/tmp/fabricbench-test.XXXXXX";
  CHECK(mkdtemp(parent) != nullptr);
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", parent, 1);
  const std::string first = make_private_log();
  std::ofstream(first) << "a line";
  CHECK_EQUAL(first.rfind(parent, 0), 0u);
  const std::string directory = first.substr(0, first.rfind('/'));
  struct stat status{};
  CHECK(directory != parent && stat(directory.c_str(), &status) == 0);
  CHECK_EQUAL(status.st_mode & 0777u, 0700u);
  remove_private_log();
  remove_private_log();
  CHECK(stat(directory.c_str(), &status) != 0);
  const std::string second = make_private_log();
  CHECK(second != first);
  remove_private_log();
  CHECK_EQUAL(rmdir(parent), 0);  // nothing is left in it
  CHECK_EQUAL(make_private_log(), "");
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", kept.c_str(), 1);
  }
}
