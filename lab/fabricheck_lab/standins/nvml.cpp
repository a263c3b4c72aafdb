// libnvidia-ml.so.1: what init and the checks of a node's state ask. A call that is not here is not found by
// dlsym, which NVML's users take for an old driver; what a GPU of this node does not have is "not supported".
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/clock.hpp"
#include "core/description.hpp"
#include "core/runtime.hpp"
#include "core/timeline.hpp"
#include "nvml_api.hpp"

using namespace emulation;

namespace {

int give(char* text, unsigned length, const std::string& value) {
  if (text == nullptr) return kInvalidArgument;
  if (value.size() + 1 > length) return kInsufficientSize;
  std::memcpy(text, value.c_str(), value.size() + 1);
  return kSuccess;
}

// What a fault says of a GPU, else its description; null where neither does.
const Json& fact(Device gpu, const std::string& name) {
  const Json& wrong = faults().content["nvml"][gpu->name];
  return wrong.has(name) ? wrong[name] : gpu->facts["nvml"][name];
}

int give_fact(Device gpu, const char* name, unsigned* value) {
  if (gpu == nullptr || value == nullptr) return kInvalidArgument;
  const Json& found = fact(gpu, name);
  if (found.is_null()) return kNotSupported;
  *value = static_cast<unsigned>(found.integer());
  return kSuccess;
}

const Json* nvlink(Device gpu, unsigned number) {
  const auto& links = gpu->facts["nvlinks"].items();
  return number < links.size() ? &links[number] : nullptr;
}

// "inactive", or counters of a link that a fault names: {"nvlinks": {"gpu0": {"3": {"state": "inactive"}}}}.
const Json& nvlink_fault(Device gpu, unsigned number) {
  return faults().content["nvlinks"][gpu->name][std::to_string(number)];
}

bool nvlink_is_active(Device gpu, unsigned number) {
  return nvlink_fault(gpu, number)["state"].text("active") == "active";
}

PciInfo pci_info(const std::string& bus_id) {
  PciInfo info{};
  std::sscanf(bus_id.c_str(), "%x:%x:%x", &info.domain, &info.bus, &info.device);
  std::snprintf(info.bus_id_legacy, sizeof info.bus_id_legacy, "%04X:%02X:%02X.0", info.domain & 0xFFFF,
                info.bus & 0xFF, info.device & 0xFF);
  std::snprintf(info.bus_id, sizeof info.bus_id, "%08X:%02X:%02X.0", info.domain, info.bus & 0xFF, info.device & 0xFF);
  return info;
}

const Json& throttle(Device gpu) { return faults().content["throttle"][gpu->name]; }

unsigned long long throttle_reasons(Device gpu) {
  struct Reason {
    const char* name;
    unsigned long long bit;
  };
  static constexpr Reason kReasons[] = {{"gpu_idle", 0x1},
                                        {"applications_clocks_setting", 0x2},
                                        {"sw_power_cap", 0x4},
                                        {"hw_slowdown", 0x8},
                                        {"sync_boost", 0x10},
                                        {"sw_thermal_slowdown", 0x20},
                                        {"hw_thermal_slowdown", 0x40},
                                        {"hw_power_brake_slowdown", 0x80},
                                        {"display_clock_setting", 0x100}};
  unsigned long long reasons = 0;
  for (const Json& each : throttle(gpu)["reasons"].items()) {
    for (const Reason& reason : kReasons) reasons |= each.text() == reason.name ? reason.bit : 0;
  }
  return reasons;
}

unsigned long long counter(Device gpu, unsigned link, const char* name) {
  return static_cast<unsigned long long>(nvlink_fault(gpu, link)[name].integer(0));
}

void fill(Device gpu, FieldValue& field) {
  field.timestamp = now_ns() / 1000;
  field.latency = 0;
  field.type = 1;  // unsigned int
  field.result = kSuccess;
  field.value.large = 0;
  const Json* link = nvlink(gpu, field.scope);
  switch (field.field) {
    case kFieldNvlinkSpeed:
      if (link != nullptr) field.value.number = static_cast<unsigned>((*link)["mbytes_per_s"].integer());
      break;
    case kFieldNvlinkState:
      field.value.number = link != nullptr && nvlink_is_active(gpu, field.scope) ? 1 : 0;
      break;
    case kFieldNvlinkReplay:
    case kFieldNvlinkRecovery:
    case kFieldNvlinkCrc:
      field.type = 3;  // unsigned long long
      field.value.large = counter(gpu, field.scope,
                                  field.field == kFieldNvlinkReplay     ? "replay_errors"
                                  : field.field == kFieldNvlinkRecovery ? "recovery_errors"
                                                                        : "crc_errors");
      break;
    case kFieldNvlinkCount:
      field.value.number = static_cast<unsigned>(gpu->facts["nvlinks"].items().size());
      return;
    case kFieldPcieReplays:
      field.value.number = static_cast<unsigned>(fact(gpu, "pcie_replays").integer(0));
      return;
    default:
      field.result = kNotSupported;
      return;
  }
  if (link == nullptr) field.result = kInvalidArgument;
}

std::vector<ProcessInfo> processes_on(Device gpu) {
  std::vector<ProcessInfo> result;
  for (const Process& each : Timeline::of_node().processes()) {
    const unsigned long long used = each.used[gpu->vertex];
    if (each.gpu == gpu->vertex || used > 0)
      result.push_back({static_cast<unsigned>(each.pid), used, kNoInstance, kNoInstance});
  }
  for (const Json& each : faults().content["processes"].items()) {
    if (each["gpu"].text() == gpu->name)
      result.push_back({static_cast<unsigned>(each["pid"].integer()),
                        static_cast<unsigned long long>(each["memory_bytes"].integer()), kNoInstance, kNoInstance});
  }
  return result;
}

Memory memory_of(Device gpu) {
  Memory memory{gpu->memory_bytes, 0, 0};
  for (const ProcessInfo& each : processes_on(gpu)) memory.used += each.used_memory;
  memory.used = std::min(memory.used, memory.total);
  memory.free = memory.total - memory.used;
  return memory;
}

int find(Device* device, const std::string& what, std::string (*text_of)(const Gpu&)) {
  for (const int vertex : present_gpus()) {
    const Gpu& gpu = description().gpus[static_cast<std::size_t>(vertex)];
    if (text_of(gpu) != what) continue;
    *device = &gpu;
    return kSuccess;
  }
  return kNotFound;
}

int pcie(Device gpu, const char* now, const char* name, unsigned* value) {
  if (gpu == nullptr || value == nullptr) return kInvalidArgument;
  const Json& wrong = faults().content["pcie"][gpu->name];
  const Json& found = now != nullptr && wrong.has(now) ? wrong[now] : gpu->facts["pcie"][name];
  if (found.is_null()) return kNotSupported;
  *value = static_cast<unsigned>(found.integer());
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return description().vendor == "nvidia" ? kSuccess : kNotFound; }
int nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }
int nvmlInit() { return nvmlInit_v2(); }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    default:
      return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char* text, unsigned length) { return give(text, length, version("driver").text()); }
int nvmlSystemGetNVMLVersion(char* text, unsigned length) { return give(text, length, version("nvml").text()); }
int nvmlSystemGetCudaDriverVersion_v2(int* number) {
  *number = static_cast<int>(version("cuda_driver").integer());
  return kSuccess;
}
int nvmlSystemGetCudaDriverVersion(int* number) { return nvmlSystemGetCudaDriverVersion_v2(number); }
int nvmlSystemGetProcessName(unsigned pid, char* text, unsigned length) {
  for (const Json& each : faults().content["processes"].items()) {
    if (each["pid"].integer() == static_cast<long long>(pid)) return give(text, length, each["name"].text());
  }
  char name[64] = "";
  if (std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/comm").c_str(), "r")) {
    if (std::fgets(name, sizeof name, file) != nullptr) name[std::strcspn(name, "\n")] = '\0';
    std::fclose(file);
  }
  return name[0] == '\0' ? static_cast<int>(kNotFound) : give(text, length, name);
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(present_gpus().size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  const auto present = present_gpus();
  if (index >= present.size()) return kInvalidArgument;
  *device = &description().gpus[static_cast<std::size_t>(present[index])];
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  return find(device, uuid, [](const Gpu& gpu) { return gpu.facts["uuid"].text(); });
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device* device) {
  return find(device, pci_info(bus_id).bus_id, [](const Gpu& gpu) { return std::string(pci_info(gpu.bus_id).bus_id); });
}
int nvmlDeviceGetIndex(Device gpu, unsigned* index) {
  const auto present = present_gpus();
  const auto found = std::find(present.begin(), present.end(), gpu->vertex);
  if (found == present.end()) return kNotFound;
  *index = static_cast<unsigned>(found - present.begin());
  return kSuccess;
}
int nvmlDeviceGetMinorNumber(Device gpu, unsigned* number) {
  *number = static_cast<unsigned>(gpu->vertex);
  return kSuccess;
}
int nvmlDeviceGetName(Device gpu, char* text, unsigned length) { return give(text, length, device_name(*gpu)); }
int nvmlDeviceGetUUID(Device gpu, char* text, unsigned length) { return give(text, length, gpu->facts["uuid"].text()); }
int nvmlDeviceGetSerial(Device gpu, char* text, unsigned length) {
  return give(text, length, "emulated-" + std::to_string(gpu->vertex));
}
int nvmlDeviceGetPciInfo_v3(Device gpu, PciInfo* info) {
  *info = pci_info(gpu->bus_id);
  return kSuccess;
}
int nvmlDeviceGetCudaComputeCapability(Device gpu, int* major, int* minor) {
  *major = static_cast<int>(gpu->facts["major"].integer());
  *minor = static_cast<int>(gpu->facts["minor"].integer());
  return kSuccess;
}
int nvmlDeviceGetNumaNodeId(Device gpu, unsigned* number) {
  *number = static_cast<unsigned>(gpu->facts["numa_node"].integer());
  return kSuccess;
}
int nvmlDeviceGetNumGpuCores(Device gpu, unsigned* number) {
  *number = 128 * static_cast<unsigned>(gpu->facts["multiprocessors"].integer());
  return kSuccess;
}

int nvmlDeviceGetMaxPcieLinkGeneration(Device gpu, unsigned* value) { return pcie(gpu, nullptr, "generation", value); }
int nvmlDeviceGetGpuMaxPcieLinkGeneration(Device gpu, unsigned* value) {
  return pcie(gpu, nullptr, "generation", value);
}
int nvmlDeviceGetMaxPcieLinkWidth(Device gpu, unsigned* value) { return pcie(gpu, nullptr, "width", value); }
int nvmlDeviceGetCurrPcieLinkGeneration(Device gpu, unsigned* value) {
  return pcie(gpu, "generation", "generation", value);
}
int nvmlDeviceGetCurrPcieLinkWidth(Device gpu, unsigned* value) { return pcie(gpu, "width", "width", value); }
int nvmlDeviceGetPcieReplayCounter(Device gpu, unsigned* value) {
  *value = static_cast<unsigned>(fact(gpu, "pcie_replays").integer(0));
  return kSuccess;
}

int nvmlDeviceGetNvLinkState(Device gpu, unsigned number, unsigned* state) {
  if (nvlink(gpu, number) == nullptr) return gpu->facts["nvlinks"].items().empty() ? kNotSupported : kInvalidArgument;
  *state = nvlink_is_active(gpu, number) ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetNvLinkVersion(Device gpu, unsigned number, unsigned* value) {
  const Json* link = nvlink(gpu, number);
  if (link == nullptr) return kNotSupported;
  // NVML_NVLINK_VERSION_*: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0.
  constexpr unsigned kVersions[] = {0, 1, 2, 4, 6, 7};
  *value = kVersions[std::clamp<long long>((*link)["generation"].integer(), 0, 5)];
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device gpu, unsigned number, PciInfo* info) {
  const Json* link = nvlink(gpu, number);
  if (link == nullptr) return kNotSupported;
  *info = pci_info((*link)["bus_id"].text());
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Device gpu, unsigned number, unsigned* type) {
  const Json* link = nvlink(gpu, number);
  if (link == nullptr) return kNotSupported;
  const std::string kind = (*link)["kind"].text();
  *type = kind == "gpu" ? 0 : kind == "cpu" ? 1 : kind == "switch" ? 2 : 0xFF;
  return kSuccess;
}
int nvmlDeviceGetNvLinkCapability(Device gpu, unsigned number, unsigned, unsigned* value) {
  if (nvlink(gpu, number) == nullptr) return kNotSupported;
  *value = 1;
  return kSuccess;
}
int nvmlDeviceGetNvLinkErrorCounter(Device gpu, unsigned number, unsigned which, unsigned long long* value) {
  if (nvlink(gpu, number) == nullptr) return kNotSupported;
  static constexpr const char* kNames[] = {"replay_errors", "recovery_errors", "crc_flit_errors", "crc_errors"};
  if (which >= std::size(kNames)) return kNotSupported;
  *value = counter(gpu, number, kNames[which]);
  return kSuccess;
}
int nvmlDeviceGetFieldValues(Device gpu, int count, FieldValue* fields) {
  for (int i = 0; i < count; ++i) fill(gpu, fields[i]);
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(Device gpu, Memory* memory) {
  *memory = memory_of(gpu);
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo_v2(Device gpu, MemoryV2* memory) {
  const Memory now = memory_of(gpu);
  *memory = {memory->version, now.total, 0, now.free, now.used};
  return kSuccess;
}
int nvmlDeviceGetMemoryBusWidth(Device gpu, unsigned* value) { return give_fact(gpu, "memory_bus_bits", value); }
int nvmlDeviceGetMaxClockInfo(Device gpu, unsigned which, unsigned* value) {
  return give_fact(gpu, which == 2 ? "memory_clock_mhz" : "sm_clock_max_mhz", value);
}
int nvmlDeviceGetClockInfo(Device gpu, unsigned which, unsigned* value) {
  if (which == 2) return give_fact(gpu, "memory_clock_mhz", value);
  const int result = give_fact(gpu, "sm_clock_max_mhz", value);
  if (result == kSuccess) *value = static_cast<unsigned>(*value * throttle(gpu)["factor"].number(1));
  return result;
}
int nvmlDeviceGetApplicationsClock(Device gpu, unsigned which, unsigned* value) {
  return nvmlDeviceGetMaxClockInfo(gpu, which, value);
}
int nvmlDeviceGetCurrentClocksEventReasons(Device gpu, unsigned long long* reasons) {
  *reasons = throttle_reasons(gpu);
  return kSuccess;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device gpu, unsigned long long* reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(gpu, reasons);
}
int nvmlDeviceGetTemperature(Device gpu, unsigned, unsigned* value) { return give_fact(gpu, "temperature_c", value); }
int nvmlDeviceGetTemperatureV(Device gpu, TemperatureV1* temperature) {
  unsigned value = 0;
  const int result = give_fact(gpu, "temperature_c", &value);
  temperature->temperature = static_cast<int>(value);
  return result;
}
int nvmlDeviceGetPowerUsage(Device gpu, unsigned* value) { return give_fact(gpu, "power_mw", value); }
int nvmlDeviceGetEnforcedPowerLimit(Device gpu, unsigned* value) { return give_fact(gpu, "power_limit_mw", value); }
int nvmlDeviceGetPowerManagementLimit(Device gpu, unsigned* value) { return give_fact(gpu, "power_limit_mw", value); }
int nvmlDeviceGetPowerManagementDefaultLimit(Device gpu, unsigned* value) {
  *value = static_cast<unsigned>(gpu->facts["nvml"]["power_limit_mw"].integer());
  return kSuccess;
}
int nvmlDeviceGetPerformanceState(Device, unsigned* value) {
  *value = 0;
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(Device, Utilization* utilization) {
  *utilization = {0, 0};
  return kSuccess;
}

int nvmlDeviceGetEccMode(Device gpu, unsigned* current, unsigned* pending) {
  *current = static_cast<unsigned>(fact(gpu, "ecc_mode").integer(1));
  *pending = static_cast<unsigned>(fact(gpu, "ecc_mode_pending").integer(*current));
  return kSuccess;
}
int nvmlDeviceGetTotalEccErrors(Device gpu, unsigned type, unsigned kind, unsigned long long* value) {
  const std::string name =
      std::string(type == 0 ? "corrected" : "uncorrected") + (kind == 0 ? "_ecc_errors" : "_ecc_errors_lifetime");
  *value = static_cast<unsigned long long>(fact(gpu, name).integer(0));
  return kSuccess;
}
int nvmlDeviceGetMemoryErrorCounter(Device gpu, unsigned type, unsigned kind, unsigned, unsigned long long* value) {
  return nvmlDeviceGetTotalEccErrors(gpu, type, kind, value);
}
int nvmlDeviceGetRemappedRows(Device gpu, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
  *corrected = static_cast<unsigned>(fact(gpu, "remapped_rows_corrected").integer(0));
  *uncorrected = static_cast<unsigned>(fact(gpu, "remapped_rows_uncorrected").integer(0));
  *pending = static_cast<unsigned>(fact(gpu, "remapped_rows_pending").integer(0));
  *failed = static_cast<unsigned>(fact(gpu, "remapped_rows_failed").integer(0));
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device gpu, unsigned* count, ProcessInfo* processes) {
  const auto found = processes_on(gpu);
  const unsigned room = processes == nullptr ? 0 : *count;
  *count = static_cast<unsigned>(found.size());
  if (found.size() > room) return kInsufficientSize;
  std::copy(found.begin(), found.end(), processes);
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v2(Device gpu, unsigned* count, ProcessInfo* processes) {
  return nvmlDeviceGetComputeRunningProcesses_v3(gpu, count, processes);
}
int nvmlDeviceGetMigMode(Device gpu, unsigned* current, unsigned* pending) {
  *current = static_cast<unsigned>(fact(gpu, "mig_mode").integer(0));
  *pending = *current;
  return kSuccess;
}
int nvmlDeviceGetPersistenceMode(Device gpu, unsigned* value) {
  *value = static_cast<unsigned>(fact(gpu, "persistence_mode").integer(1));
  return kSuccess;
}
int nvmlDeviceGetComputeMode(Device gpu, unsigned* value) {
  *value = static_cast<unsigned>(fact(gpu, "compute_mode").integer(0));
  return kSuccess;
}
int nvmlDeviceGetP2PStatus(Device gpu, Device other, unsigned, unsigned* status) {
  *status = gpu == other || description().route(gpu->vertex, other->vertex).peer_access ? 0 : 5;
  return kSuccess;
}

}  // extern "C"
