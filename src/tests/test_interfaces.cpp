#include "check.hpp"
#include "fabricbench/interfaces.hpp"
#include "folder.hpp"

using namespace fabricbench;

TEST(counters_of_ethernet_and_infiniband_are_read) {
  const check::Folder sysfs;
  sysfs.write("class/net/hsn0/statistics/tx_bytes", "1500\n");
  sysfs.write("class/net/lo/statistics/tx_bytes", "99\n");
  sysfs.write("class/net/down0/statistics/tx_bytes", "Invalid argument\n");
  sysfs.write("class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "25\n");
  const SentBytes sent = sent_bytes(sysfs.path());
  CHECK_EQUAL(sent.size(), 2u);
  CHECK_EQUAL(sent.at("hsn0"), 1500u);
  CHECK_EQUAL(sent.at("mlx5_0:1"), 100u);
  CHECK_EQUAL(sent_bytes(sysfs.path() + "/none").size(), 0u);
}

TEST(only_interfaces_that_counted_throughout_have_sent) {
  const SentBytes sent =
      sent_between({{"hsn0", 100}, {"hsn1", 100}, {"gone", 1}}, {{"hsn0", 350}, {"hsn1", 5}, {"new", 7}});
  CHECK_EQUAL(sent.size(), 1u);
  CHECK_EQUAL(sent.at("hsn0"), 250u);
}
