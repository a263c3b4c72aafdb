// What the CUDA and HIP runtimes have in common: ordinals of devices, the current one, default streams, kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/description.hpp"
#include "core/stream.hpp"

namespace emulation {

// The GPUs that this process sees, by vertex, in the order of their ordinals: `variables` may narrow them down.
const std::vector<int>& visible_gpus(const std::vector<const char*>& variables);

// The GPU of an ordinal; null for one that does not exist.
const Gpu* gpu_of(int ordinal);
int ordinal_of(int vertex);
int device_count();

// The current device of the calling thread, by its ordinal.
int current_ordinal();
bool set_current(int ordinal);
const Gpu& current_gpu();

// The stream behind a handle; of a null handle, the current device's default stream.
Stream& stream_of(void* handle);
// All streams of a device, to be waited for.
void synchronize_device(int vertex);
void* make_stream();
void destroy_stream(void* handle);

// Events: points in a stream.
struct Event {
  Stream* stream = nullptr;
  TaskId task = kNoTask;
};
void record_event(Event& event, Stream& stream);
void wait_for_event(Stream& stream, Event& event);
std::int64_t synchronize_event(Event& event);
bool event_has_ended(Event& event);
void forget_event(Event& event);

// Kernels by the address of their host stub.
void register_kernel(const void* stub, const char* name);
void launch(const void* stub, void** arguments, void* stream);

// The configuration between <<< and >>>, kept for the call that follows it.
struct Configuration {
  unsigned grid[3];
  unsigned block[3];
  std::size_t shared_memory;
  void* stream;
};
void push_configuration(const Configuration& configuration);
Configuration pop_configuration();

// The name of a device as the runtime and NVML report it: "emulated NVIDIA H100".
std::string device_name(const Gpu& gpu);

}  // namespace emulation
