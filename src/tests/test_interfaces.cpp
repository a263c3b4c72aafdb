#include <filesystem>
#include <fstream>

#include "check.hpp"
#include "fabricbench/interfaces.hpp"

using namespace fabricbench;

TEST(counters_of_ethernet_and_infiniband_are_read) {
  const auto root = std::filesystem::temp_directory_path() / "fabricbench_test_interfaces";
  std::filesystem::remove_all(root);
  const auto write = [&](const char* file, const char* text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  write("class/net/hsn0/statistics/tx_bytes", "1500\n");
  write("class/net/lo/statistics/tx_bytes", "99\n");
  write("class/net/down0/statistics/tx_bytes", "Invalid argument\n");
  write("class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "25\n");
  const SentBytes sent = sent_bytes(root);
  std::filesystem::remove_all(root);
  CHECK_EQUAL(sent.size(), 2u);
  CHECK_EQUAL(sent.at("hsn0"), 1500u);
  CHECK_EQUAL(sent.at("mlx5_0:1"), 100u);
  CHECK_EQUAL(sent_bytes(root).size(), 0u);
}

TEST(only_interfaces_that_counted_throughout_have_sent) {
  const SentBytes sent =
      sent_between({{"hsn0", 100}, {"hsn1", 100}, {"gone", 1}}, {{"hsn0", 350}, {"hsn1", 5}, {"new", 7}});
  CHECK_EQUAL(sent.size(), 1u);
  CHECK_EQUAL(sent.at("hsn0"), 250u);
}
