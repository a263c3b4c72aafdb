#include "check.hpp"
#include "fabricbench/pauses.hpp"
#include "folder.hpp"

using namespace fabricbench;

TEST(wakes_that_are_late_are_pauses) {
  Pauses pauses;
  for (const std::int64_t late_ms : {0, 3, 49, 150, 20, 130}) pauses.add(1'000'000'000, late_ms * 1'000'000);
  CHECK_EQUAL(pauses.count, 2);
  CHECK_EQUAL(pauses.total_ns, 280'000'000);
  CHECK_EQUAL(pauses.longest_ns, 150'000'000);
  CHECK_EQUAL(pauses.json(), R"({"count":2,"total_ns":280000000,"longest_ns":150000000,"at_ms":[1000,1000]})");
  CHECK_EQUAL(Pauses{}.json(), "");
}

TEST(throttling_is_that_of_the_cgroup_or_one_above_it) {
  const check::Folder folder;
  folder.write("self/cgroup", "0::/job/step\n");
  folder.write("job/step/cpu.stat", "usage_usec 900\nthrottled_usec 7\n");
  folder.write("job/cpu.stat", "usage_usec 900\nnr_throttled 3\nthrottled_usec 50\n");
  CHECK_EQUAL(throttled_ns(folder.path(), folder.path()), 50'000);
  const check::Folder old;
  old.write("self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/job\n1:name=systemd:/\n");
  old.write("cpu,cpuacct/job/cpu.stat", "nr_periods 5\nthrottled_time 1234\n");
  CHECK_EQUAL(throttled_ns(old.path(), old.path()), 1234);
  CHECK_EQUAL(throttled_ns("/nowhere", "/nowhere"), 0);
}
