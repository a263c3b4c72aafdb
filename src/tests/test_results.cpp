#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "check.hpp"
#include "fabricbench/results.hpp"

using namespace fabricbench;

namespace {

Measurement measuring(Operation operation, std::uint64_t bytes) {
  return {operation, Implementation::transfers, Schedule::uncontended, -1, bytes, {}, {}, {}};
}

}  // namespace

// The watchdog asks while the measuring thread goes on: run this with ThreadSanitizer to see every race.
TEST(an_operation_is_never_named_with_the_size_of_another) {
  CurrentProgress current;
  const Progress ours[] = {{"broadcast", 8}, {"victim_alltoall_alltoall of a name beyond any small buffer", 1 << 20}};
  current.set(ours[0]);
  std::thread measuring_thread([&] {
    for (int i = 0; i < 20000; ++i) current.set(ours[i % 2]);
  });
  int torn = 0;
  for (int i = 0; i < 20000; ++i) {
    const Progress seen = current.get();
    const Progress& whole = seen.bytes == 8 ? ours[0] : ours[1];
    torn += seen.operation == whole.operation && seen.bytes == whole.bytes ? 0 : 1;
  }
  measuring_thread.join();
  CHECK_EQUAL(torn, 0);
}

TEST(an_error_names_what_was_being_measured) {
  char folder[] = "/tmp/fabricbench-test.XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/result.jsonl";
  {
    ResultFile results(path, "0123");
    results.now_measuring(measuring(Operation::broadcast, 64));
    std::thread watchdog([&] { results.write_error("timeout", "no progress", {1}); });
    results.now_measuring(measuring(Operation::broadcast, 64));
    watchdog.join();
    results.write_error("library", "a second one");
  }
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  CHECK(line.find(R"("operation":"broadcast","bytes":64,"missing_ranks":[1])") != std::string::npos);
  CHECK(!std::getline(file, line));
  unlink(path.c_str());
  rmdir(folder);
}

TEST(an_error_goes_on_with_what_the_library_says) {
  char folder[] = "/tmp/fabricbench-test.XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/result.jsonl";
  {
    ResultFile results(path, "0123");
    results.write_line(R"({"record":"header"})");
    CHECK(results.write_error("timeout", "no progress", {1}));
    CHECK(!results.write_error("library", "a second one"));
    results.add_to_error("process 7 \"is\" dead");
  }
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  CHECK_EQUAL(line, R"({"record":"header"})");
  std::getline(file, line);
  CHECK_EQUAL(line.substr(line.find("missing_ranks")), R"(missing_ranks":[1],"library":"process 7 \"is\" dead"})");
  CHECK(!std::getline(file, line));
  unlink(path.c_str());
  rmdir(folder);
}
