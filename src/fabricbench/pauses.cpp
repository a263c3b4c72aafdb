#include "fabricbench/pauses.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "fabricbench/json.hpp"

namespace fabricbench {
namespace {

constexpr std::size_t kMostTimes = 32;

// Nanoseconds of a cpu.stat; 0 where it has no such line.
std::int64_t throttled_in(const std::string& folder) {
  std::ifstream file(folder + "/cpu.stat");
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == "throttled_usec") return value * 1000;
    if (name == "throttled_time") return value;
  }
  return 0;
}

}  // namespace

void Pauses::add(std::int64_t at_ns, std::int64_t late_ns) {
  if (late_ns < std::chrono::nanoseconds(kPaused).count()) return;
  ++count;
  total_ns += late_ns;
  longest_ns = std::max(longest_ns, late_ns);
  if (at_ms.size() < kMostTimes) at_ms.push_back(at_ns / 1'000'000);
}

std::string Pauses::json() const {
  if (count == 0 && throttled_ns == 0) return "";
  Json json;
  json.begin_object();
  if (count > 0) {
    json.field("count", count).field("total_ns", total_ns).field("longest_ns", longest_ns).field("at_ms", at_ms);
  }
  if (throttled_ns > 0) json.field("throttled_ns", throttled_ns);
  return json.end_object().text();
}

std::int64_t throttled_ns(const std::string& proc, const std::string& sys) {
  std::ifstream file(proc + "/self/cgroup");
  std::int64_t most = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(fields, number, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    const bool v2 = controllers.empty();
    if (!v2 && (',' + controllers + ',').find(",cpu,") == std::string::npos) continue;
    const std::string root = v2 ? sys : sys + '/' + controllers;
    for (; path != "/" && !path.empty(); path.resize(path.rfind('/'))) most = std::max(most, throttled_in(root + path));
    most = std::max(most, throttled_in(root));
  }
  return most;
}

}  // namespace fabricbench
