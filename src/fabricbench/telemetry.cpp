#include "fabricbench/telemetry.hpp"

#include <glob.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "fabricbench/device/device.hpp"
#include "fabricbench/environment.hpp"
#include "fabricbench/interfaces.hpp"
#include "fabricbench/json.hpp"
#include "fabricbench/shared_library.hpp"

namespace fabricbench {
namespace {

// What a GPU told of one moment.
struct Moment {
  std::map<std::string, double> gauges;           // go up and down
  std::map<std::string, std::uint64_t> counters;  // only grow
  std::vector<std::string> throttle;              // what holds its clocks down
};

// How the GPUs of a vendor are asked. None that a driver, a GPU or a version does not tell is there.
class Sensors {
 public:
  virtual ~Sensors() = default;
  virtual Moment read(const std::string& bus_id) = 0;
  // XIDs since the last call: bus and number.
  virtual std::vector<std::pair<std::string, std::uint64_t>> xids() { return {}; }
  // What cannot be read at all, and why.
  virtual std::vector<std::string> unread() const = 0;
};

// NVML's functions and numbers (nvml.h), whose binary interface is stable.
class Nvml final : public Sensors {
 public:
  explicit Nvml(const std::vector<std::string>& bus_ids) : library_("libnvidia-ml.so.1") {
    int (*init)() = nullptr;
    int (*handle_of)(const char*, void**) = nullptr;
    library_.find(init, "nvmlInit_v2");
    library_.find(handle_of, "nvmlDeviceGetHandleByPciBusId_v2");
    if (init == nullptr || handle_of == nullptr) {
      unread_.push_back("NVML: " + library_.missing());
      return;
    }
    if (const int status = init(); status != 0) {
      unread_.push_back("NVML does not start: status " + std::to_string(status));
      return;
    }
    library_.find(clock_, "nvmlDeviceGetClockInfo");
    library_.find(power_, "nvmlDeviceGetPowerUsage");
    library_.find(temperature_, "nvmlDeviceGetTemperature");
    library_.find(reasons_, "nvmlDeviceGetCurrentClocksEventReasons");
    if (reasons_ == nullptr) library_.find(reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons");
    library_.find(ecc_, "nvmlDeviceGetTotalEccErrors");
    library_.find(rows_, "nvmlDeviceGetRemappedRows");
    library_.find(replays_, "nvmlDeviceGetPcieReplayCounter");
    library_.find(violation_, "nvmlDeviceGetViolationStatus");
    library_.find(link_errors_, "nvmlDeviceGetNvLinkErrorCounter");
    library_.find(wait_, "nvmlEventSetWait_v2");
    int (*make_set)(void**) = nullptr;
    int (*enroll)(void*, unsigned long long, void*) = nullptr;
    library_.find(make_set, "nvmlEventSetCreate");
    library_.find(enroll, "nvmlDeviceRegisterEvents");
    const bool has_events = wait_ != nullptr && make_set != nullptr && enroll != nullptr && make_set(&events_) == 0;
    if (!has_events) events_ = nullptr;
    for (const std::string& bus_id : bus_ids) {
      void* handle = nullptr;
      if (const int status = handle_of(bus_id.c_str(), &handle); status != 0) {
        unread_.push_back("NVML knows no GPU at " + bus_id + ": status " + std::to_string(status));
        continue;
      }
      handles_[bus_id] = handle;
      constexpr unsigned long long kXid = 8;
      if (events_ != nullptr && enroll(handle, kXid, events_) != 0) events_ = nullptr;
    }
    if (events_ == nullptr) unread_.emplace_back("NVML reports no XIDs here: look at the kernel's log");
  }

  Moment read(const std::string& bus_id) override {
    Moment moment;
    const auto known = handles_.find(bus_id);
    if (known == handles_.end()) return moment;
    void* gpu = known->second;
    const auto gauge = [&](const char* name, double scale, auto call, auto... which) {
      unsigned value = 0;
      if (call != nullptr && call(gpu, which..., &value) == 0) moment.gauges[name] = value * scale;
    };
    gauge("clock_mhz", 1, clock_, 1);
    gauge("memory_clock_mhz", 1, clock_, 2);
    gauge("power_w", 1e-3, power_);
    gauge("temperature_c", 1, temperature_, 0);
    unsigned long long reasons = 0;
    if (reasons_ != nullptr && reasons_(gpu, &reasons) == 0) {
      for (const auto& [bit, name] : kReasons) {
        if ((reasons & bit) != 0) moment.throttle.emplace_back(name);
      }
    }
    unsigned long long number = 0;
    for (const auto& [type, name] : {std::pair{0, "ecc_corrected"}, std::pair{1, "ecc_uncorrected"}}) {
      constexpr int kSinceDriverLoaded = 0;
      if (ecc_ != nullptr && ecc_(gpu, type, kSinceDriverLoaded, &number) == 0) moment.counters[name] = number;
    }
    unsigned rows[4] = {};
    if (rows_ != nullptr && rows_(gpu, &rows[0], &rows[1], &rows[2], &rows[3]) == 0) {
      moment.counters["rows_remapped"] = rows[0] + rows[1];
      moment.counters["rows_pending"] = rows[2];
      moment.counters["rows_failed"] = rows[3];
    }
    unsigned replays = 0;
    if (replays_ != nullptr && replays_(gpu, &replays) == 0) moment.counters["pcie_replays"] = replays;
    for (const auto& [policy, name] : kPolicies) {
      unsigned long long violation[2] = {};  // reference time, time of violation
      if (violation_ != nullptr && violation_(gpu, policy, violation) == 0) moment.counters[name] = violation[1];
    }
    // Links are numbered from 0; those that the GPU does not have answer nothing.
    constexpr int kMostLinks = 18;
    for (int link = 0; link < kMostLinks && link_errors_ != nullptr; ++link) {
      for (const auto& [which, name] : kLinkErrors) {
        if (link_errors_(gpu, link, which, &number) == 0) moment.counters[name] += number;
      }
    }
    return moment;
  }

  std::vector<std::pair<std::string, std::uint64_t>> xids() override {
    std::vector<std::pair<std::string, std::uint64_t>> numbers;
    Event event{};
    while (events_ != nullptr && wait_(events_, &event, 0) == 0) {
      for (const auto& [bus_id, handle] : handles_) {
        if (handle == event.device) numbers.emplace_back(bus_id, event.data);
      }
    }
    return numbers;
  }

  std::vector<std::string> unread() const override { return unread_; }

 private:
  struct Event {
    void* device;
    unsigned long long type;
    unsigned long long data;
    unsigned instances[2];
  };
  static constexpr std::pair<unsigned long long, const char*> kReasons[] = {{0x2, "applications_clocks_setting"},
                                                                            {0x4, "sw_power_cap"},
                                                                            {0x8, "hw_slowdown"},
                                                                            {0x10, "sync_boost"},
                                                                            {0x20, "sw_thermal_slowdown"},
                                                                            {0x40, "hw_thermal_slowdown"},
                                                                            {0x80, "hw_power_brake_slowdown"},
                                                                            {0x100, "display_clock_setting"}};
  static constexpr std::pair<int, const char*> kPolicies[] = {{0, "throttled_ns_power"},
                                                              {1, "throttled_ns_thermal"},
                                                              {3, "throttled_ns_board_limit"},
                                                              {5, "throttled_ns_reliability"}};
  static constexpr std::pair<int, const char*> kLinkErrors[] = {
      {0, "nvlink_replay"}, {1, "nvlink_recovery"}, {2, "nvlink_crc_flit"}, {3, "nvlink_crc_data"}};

  SharedLibrary library_;
  std::map<std::string, void*> handles_;
  std::vector<std::string> unread_;
  void* events_ = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*temperature_)(void*, int, unsigned*) = nullptr;
  int (*reasons_)(void*, unsigned long long*) = nullptr;
  int (*ecc_)(void*, int, int, unsigned long long*) = nullptr;
  int (*rows_)(void*, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  int (*replays_)(void*, unsigned*) = nullptr;
  int (*violation_)(void*, int, unsigned long long*) = nullptr;
  int (*link_errors_)(void*, int, int, unsigned long long*) = nullptr;
  int (*wait_)(void*, Event*, unsigned) = nullptr;
};

// The kernel's sensors of a PCI device, as amdgpu has them (Linux, Documentation/gpu/amdgpu/thermal.rst and ras.rst).
class KernelSensors final : public Sensors {
 public:
  Moment read(const std::string& bus_id) override {
    Moment moment;
    const std::string folder = "/sys/bus/pci/devices/" + bus_id;
    const auto gauge = [&](const char* name, const char* file, double scale) {
      const std::string path = first_match(folder + "/hwmon/hwmon*/" + file);
      if (double value = 0; !path.empty() && std::ifstream(path) >> value) moment.gauges.emplace(name, value * scale);
    };
    gauge("clock_mhz", "freq1_input", 1e-6);
    gauge("memory_clock_mhz", "freq2_input", 1e-6);
    gauge("power_w", "power1_average", 1e-6);
    gauge("power_w", "power1_input", 1e-6);
    gauge("temperature_c", "temp2_input", 1e-3);  // of the hottest place
    glob_t files{};
    if (glob((folder + "/ras/*_err_count").c_str(), 0, nullptr, &files) == 0) {
      for (std::size_t i = 0; i < files.gl_pathc; ++i) {
        std::ifstream file(files.gl_pathv[i]);
        std::string kind;
        for (std::uint64_t count = 0; file >> kind >> count;) {
          if (kind == "ce:") moment.counters["ecc_corrected"] += count;
          if (kind == "ue:") moment.counters["ecc_uncorrected"] += count;
        }
      }
    }
    globfree(&files);
    return moment;
  }
  std::vector<std::string> unread() const override {
    return {"what holds the clocks of these GPUs down, and XIDs: the kernel has no file of them"};
  }

 private:
  static std::string first_match(const std::string& pattern) {
    glob_t files{};
    std::string path;
    if (glob(pattern.c_str(), 0, nullptr, &files) == 0) path = files.gl_pathv[0];
    globfree(&files);
    return path;
  }
};

// Of a GPU over a window.
struct Gathered {
  struct Range {
    double least;
    double sum;
    double most;
    std::int64_t count;
  };
  std::map<std::string, Range> gauges;
  std::map<std::string, std::uint64_t> counters;
  std::map<std::string, std::int64_t> throttle;

  void add(const Moment& moment) {
    for (const auto& [name, value] : moment.gauges) {
      Range& range = gauges.try_emplace(name, Range{value, 0, value, 0}).first->second;
      range = {std::min(range.least, value), range.sum + value, std::max(range.most, value), range.count + 1};
    }
    for (const auto& [name, value] : moment.counters) counters[name] = value;
    for (const std::string& reason : moment.throttle) ++throttle[reason];
  }
};

}  // namespace

class Telemetry::Sampler {
 public:
  explicit Sampler(std::vector<std::string> bus_ids) : bus_ids_(std::move(bus_ids)), ports_(port_counters()) {
    if (!bus_ids_.empty() && std::string(device::platform()) == "nvidia") {
      sensors_ = std::make_unique<Nvml>(bus_ids_);
    } else if (!bus_ids_.empty()) {
      sensors_ = std::make_unique<KernelSensors>();
    }
    thread_ = std::thread([this] { sample_each_second(); });
  }
  ~Sampler() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  std::string window_json(std::int64_t window) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sample();
    Json json;
    json.begin_object().field("record", "node").field("window", window).field("host", host_name());
    json.field("samples", std::exchange(samples_, 0)).key("gpus").begin_array();
    for (const auto& [bus_id, gathered] : gathered_) {
      json.begin_object().field("bus_id", bus_id);
      for (const auto& [name, range] : gathered.gauges) {
        json.field(name, std::vector<double>{range.least, range.sum / static_cast<double>(range.count), range.most});
      }
      json.key("throttle").begin_object();
      for (const auto& [reason, count] : gathered.throttle) json.field(reason, count);
      json.end_object().key("counters").begin_object();
      for (const auto& [name, number] : gathered.counters) json.field(name, number);
      json.end_object().end_object();
    }
    json.end_array();
    if (sensors_ != nullptr) {
      if (const auto xids = sensors_->xids(); !xids.empty()) {
        json.key("xids").begin_array();
        for (const auto& [bus_id, number] : xids) json.begin_array().value(bus_id).value(number).end_array();
        json.end_array();
      }
      if (const auto unread = sensors_->unread(); window == 0 && !unread.empty()) json.field("unread", unread);
    }
    gathered_.clear();
    PortCounters ports = port_counters();
    json.key("nics").begin_array();
    for (const auto& [name, grown] : growth(ports_, ports)) {
      json.begin_object().field("name", name).key("grew").begin_object();
      for (const auto& [counter, number] : grown) json.field(counter, number);
      json.end_object().end_object();
    }
    ports_ = std::move(ports);
    return json.end_array().end_object().text();
  }

 private:
  void sample_each_second() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::seconds(1), [this] { return done_; })) sample();
  }
  void sample() {
    ++samples_;
    for (const std::string& bus_id : bus_ids_) gathered_[bus_id].add(sensors_->read(bus_id));
  }

  std::vector<std::string> bus_ids_;
  PortCounters ports_;
  std::unique_ptr<Sensors> sensors_;  // null where no rank drives a GPU
  std::map<std::string, Gathered> gathered_;
  std::int64_t samples_ = 0;
  bool done_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

Telemetry::Telemetry(const World& world, int device_index) {
  const std::string mine = device_index >= 0 ? device::info(device_index).bus_id : "";
  const std::vector<std::string> all = World::gather_strings(mine, world.node);
  if (world.node_rank != 0) return;
  std::set<std::string> bus_ids(all.begin(), all.end());
  bus_ids.erase("");
  sampler_ = std::make_unique<Sampler>(std::vector<std::string>(bus_ids.begin(), bus_ids.end()));
}
Telemetry::~Telemetry() = default;

std::string Telemetry::window_json(std::int64_t window) {
  return sampler_ != nullptr ? sampler_->window_json(window) : "";
}

}  // namespace fabricbench
