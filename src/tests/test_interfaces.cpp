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

TEST(counters_of_ports_have_the_kernels_names) {
  const check::Folder sysfs;
  sysfs.write("class/infiniband/mlx5_0/ports/1/counters/symbol_error", "3\n");
  sysfs.write("class/infiniband/mlx5_0/ports/2/hw_counters/out_of_sequence", "4\n");
  sysfs.write("class/net/hsn0/type", "1\n");
  sysfs.write("class/net/hsn0/statistics/rx_crc_errors", "5\n");
  sysfs.write("class/net/hsn0/carrier_changes", "6\n");
  sysfs.write("class/net/lo/type", "772\n");
  sysfs.write("class/net/lo/statistics/tx_bytes", "99\n");
  sysfs.write("class/cxi/cxi0/device/telemetry/hni_rx_paused_0", "7@1700000000.5\n");
  sysfs.write("class/cxi/cxi0/device/telemetry/hni_pkts_sent", "8@1700000000.5\n");
  const PortCounters counters = port_counters(sysfs.path());
  CHECK_EQUAL(counters, (PortCounters{{"mlx5_0", {{"symbol_error", 3}}},
                                      {"mlx5_0_2", {{"out_of_sequence", 4}}},
                                      {"hsn0", {{"rx_crc_errors", 5}, {"carrier_changes", 6}}},
                                      {"cxi0", {{"hni_rx_paused_0", 7}}}}));
  const PortCounters before{{"hsn0", {{"rx_crc_errors", 5}, {"carrier_changes", 4}}}};
  CHECK_EQUAL(growth(before, counters), (PortCounters{{"hsn0", {{"carrier_changes", 2}}}}));
}
