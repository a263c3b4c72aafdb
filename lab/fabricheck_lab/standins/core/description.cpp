#include "core/description.hpp"

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "core/clock.hpp"
#include "core/ending.hpp"

namespace emulation {
namespace {

constexpr std::int64_t kLookEvery = 20'000'000;

const char* const kMoverNames[kMovers] = {"copy", "kernel", "ccl"};

std::array<std::uint8_t, 16> uuid_of(const std::string& text) {
  std::array<std::uint8_t, 16> result{};
  std::string digits;
  std::copy_if(text.begin(), text.end(), std::back_inserter(digits), [](char c) { return std::isxdigit(c) != 0; });
  for (std::size_t i = 0; i < result.size() && 2 * i + 1 < digits.size(); ++i)
    result[i] = static_cast<std::uint8_t>(std::strtoul(digits.substr(2 * i, 2).c_str(), nullptr, 16));
  return result;
}

Link link_of(const Json& entry) {
  Link link{entry["name"].text(), entry["from"].text(), entry["to"].text(), entry["rate"].number() / 1e9, {}};
  for (std::size_t mover = 0; mover < kMovers; ++mover)
    link.efficiency[mover] = entry["efficiency"][kMoverNames[mover]].number(1);
  return link;
}

Description read_description() {
  const char* folder = std::getenv("FABRICHECK_EMULATED_NODE");
  if (folder == nullptr)
    end_run("FABRICHECK_EMULATED_NODE is not set: start the program with `python -m fabricheck_lab.node`");
  Description result;
  result.folder = folder;
  const std::string file = result.folder + "/node.json";
  result.content = Json::read(file);
  if (!result.content.is_object()) end_run(file + ": is no description of a node");
  const Json& content = result.content;
  result.system = content["system"].text();
  result.vendor = content["vendor"].text();
  for (const char* group : {"gpus", "cpus", "nics"}) {
    for (const Json& each : content[group].items()) result.vertices.push_back(each["name"].text());
  }
  for (const Json& each : content["gpus"].items()) {
    const int vertex = static_cast<int>(result.gpus.size());
    result.gpus.push_back({each["name"].text(), vertex, each["model"].text(), uuid_of(each["uuid"].text()),
                           each["bus_id"].text(), static_cast<std::uint64_t>(each["memory_bytes"].integer()),
                           result.vertex(each["cpu"].text()), each["nic"].text(), each});
  }
  for (const Json& each : content["links"].items()) result.links.push_back(link_of(each));
  for (const Json& each : content["routes"].items()) {
    Route route;
    for (const Json& link : each["links"].items()) {
      if (link.integer(-1) < 0 || static_cast<std::size_t>(link.integer()) >= result.links.size())
        end_run(file + ": a route names a link that is not there");
      route.links.push_back(static_cast<std::uint16_t>(link.integer()));
    }
    route.peer_access = each["peer_access"].truth(true);
    result.routes[{result.vertex(each["from"].text()), result.vertex(each["to"].text())}] = route;
  }
  for (std::size_t mover = 0; mover < kMovers; ++mover)
    result.latency_ns[mover] = content["latency_ns"][kMoverNames[mover]].integer(5000);
  result.largest_allocation = static_cast<std::uint64_t>(content["largest_allocation"].integer());
  return result;
}

}  // namespace

int Description::vertex(const std::string& name) const {
  const auto found = std::find(vertices.begin(), vertices.end(), name);
  if (found == vertices.end()) end_run(folder + "/node.json: there is no '" + name + "'");
  return static_cast<int>(found - vertices.begin());
}

const Route& Description::route(int source, int destination) const {
  const auto found = routes.find({source, destination});
  if (found == routes.end())
    end_run(folder + "/node.json: has no route from " + vertices[static_cast<std::size_t>(source)] + " to " +
            vertices[static_cast<std::size_t>(destination)]);
  return found->second;
}

const Description& description() {
  static const Description* const read = new Description(read_description());  // outlives every destructor
  return *read;
}

const Faults& faults() {
  static std::mutex mutex;
  static Faults* current = new Faults;  // never freed: others may still be reading an older one
  static std::int64_t looked = -kLookEvery;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const std::int64_t now = now_ns(); now - looked >= kLookEvery) {
    looked = now;
    const std::string file = description().folder + "/faults.json";
    struct stat status{};
    const std::int64_t stamp =
        stat(file.c_str(), &status) == 0 ? status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec : 0;
    if (stamp != current->stamp) current = new Faults{Json::read(file), stamp};
  }
  return *current;
}

bool names(const Json& list, const Gpu& gpu) {
  if (list.truth()) return true;
  return std::any_of(list.items().begin(), list.items().end(),
                     [&](const Json& each) { return each.text() == gpu.name; });
}

std::vector<int> present_gpus() {
  const Description& node = description();
  const Json& wrong = faults().content;
  std::vector<int> order;
  for (const Json& each : wrong["gpu_order"].items()) order.push_back(node.vertex(each.text()));
  for (const Gpu& gpu : node.gpus) {
    if (std::find(order.begin(), order.end(), gpu.vertex) == order.end()) order.push_back(gpu.vertex);
  }
  order.erase(std::remove_if(order.begin(), order.end(),
                             [&](int vertex) {
                               return names(wrong["missing_gpus"], node.gpus[static_cast<std::size_t>(vertex)]);
                             }),
              order.end());
  return order;
}

Json version(const std::string& what) {
  const Json& wrong = faults().content["versions"];
  return wrong.has(what) ? wrong[what] : description().content["versions"][what];
}

}  // namespace emulation
