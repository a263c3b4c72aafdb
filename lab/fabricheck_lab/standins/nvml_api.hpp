// Values and structures of nvml.h, as far as they are used.
#pragma once

#include <cstdint>

#include "core/description.hpp"

namespace emulation {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kUnknown = 999
};

using Device = const Gpu*;

// nvml.h's structures, as far as they are filled in.
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
struct Utilization {
  unsigned gpu, memory;
};
struct FieldValue {
  std::uint32_t field, scope;
  std::int64_t timestamp, latency;
  std::uint32_t type, result;
  union {
    unsigned number;
    unsigned long long large;
  } value;
};
struct TemperatureV1 {
  unsigned version, sensor;
  int temperature;
};

constexpr unsigned kFieldNvlinkReplay = 161;
constexpr unsigned kFieldNvlinkRecovery = 162;
constexpr unsigned kFieldNvlinkCrc = 163;
constexpr unsigned kFieldNvlinkSpeed = 164;
constexpr unsigned kFieldNvlinkState = 165;
constexpr unsigned kFieldPcieReplays = 94;
constexpr unsigned kFieldNvlinkCount = 91;
constexpr unsigned kNoInstance = 0xFFFFFFFF;

}  // namespace emulation
