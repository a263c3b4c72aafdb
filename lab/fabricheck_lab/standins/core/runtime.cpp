#include "core/runtime.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "core/ending.hpp"
#include "core/kernels.hpp"
#include "core/timeline.hpp"

namespace emulation {
namespace {

struct Known {
  std::mutex mutex;
  std::set<Stream*> streams;
  std::map<int, Stream*> default_streams;
  std::map<const void*, std::string> kernels;
};

Known& known() {
  static Known* const all = new Known;  // outlives the program's own statics
  return *all;
}

std::vector<int> gpus;
thread_local int current = 0;
thread_local std::vector<Configuration> configurations;

std::string uuid_text(const Gpu& gpu) { return gpu.facts["uuid"].text(); }

// "1,0" or "GPU-6175…": up to the first that does not exist, as the runtimes do.
std::vector<int> narrowed(const std::vector<int>& all, const std::string& list) {
  std::vector<int> result;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, comma - at);
    at = comma + 1;
    int found = -1;
    if (!item.empty() && item.find_first_not_of("0123456789") == std::string::npos) {
      const std::size_t index = std::strtoull(item.c_str(), nullptr, 10);
      if (index < all.size()) found = all[index];
    } else if (!item.empty()) {
      for (const int vertex : all) {
        if (uuid_text(description().gpus[static_cast<std::size_t>(vertex)]).rfind(item, 0) == 0) found = vertex;
      }
    }
    if (found < 0) break;
    result.push_back(found);
  }
  return result;
}

}  // namespace

const std::vector<int>& visible_gpus(const std::vector<const char*>& variables) {
  static std::once_flag once;
  std::call_once(once, [&] {
    gpus = present_gpus();
    for (const char* variable : variables) {
      if (const char* list = std::getenv(variable)) gpus = narrowed(gpus, list);
    }
  });
  return gpus;
}

const Gpu* gpu_of(int ordinal) {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= gpus.size()) return nullptr;
  return &description().gpus[static_cast<std::size_t>(gpus[static_cast<std::size_t>(ordinal)])];
}

int ordinal_of(int vertex) {
  const auto found = std::find(gpus.begin(), gpus.end(), vertex);
  return found == gpus.end() ? -1 : static_cast<int>(found - gpus.begin());
}

int device_count() { return static_cast<int>(gpus.size()); }

int current_ordinal() { return current; }

bool set_current(int ordinal) {
  const Gpu* gpu = gpu_of(ordinal);
  if (gpu == nullptr) return false;
  current = ordinal;
  Timeline::of_node().drive(gpu->vertex);
  return true;
}

const Gpu& current_gpu() {
  const Gpu* gpu = gpu_of(current);
  if (gpu == nullptr) end_run("the node has no GPU that this process can use");
  return *gpu;
}

Stream& stream_of(void* handle) {
  // 1 and 2 are the legacy and the per-thread default stream.
  if (reinterpret_cast<std::uintptr_t>(handle) > 2) return *static_cast<Stream*>(handle);
  Known& all = known();
  const int vertex = current_gpu().vertex;
  const std::lock_guard<std::mutex> lock(all.mutex);
  Stream*& stream = all.default_streams[vertex];
  if (stream == nullptr) {
    stream = new Stream(vertex);
    all.streams.insert(stream);
  }
  return *stream;
}

void* make_stream() {
  auto* stream = new Stream(current_gpu().vertex);
  const std::lock_guard<std::mutex> lock(known().mutex);
  known().streams.insert(stream);
  return stream;
}

void destroy_stream(void* handle) {
  auto* stream = static_cast<Stream*>(handle);
  {
    const std::lock_guard<std::mutex> lock(known().mutex);
    known().streams.erase(stream);
  }
  delete stream;
}

void synchronize_device(int vertex) {
  std::vector<Stream*> streams;
  {
    const std::lock_guard<std::mutex> lock(known().mutex);
    std::copy_if(known().streams.begin(), known().streams.end(), std::back_inserter(streams),
                 [&](const Stream* each) { return each->gpu() == vertex; });
  }
  for (Stream* stream : streams) stream->synchronize();
}

void record_event(Event& event, Stream& stream) {
  Timeline::Change change(Timeline::of_node());
  change.release(event.task);
  event.task = change.task({stream.tail()}, 0);
  event.stream = &stream;
}

void wait_for_event(Stream& stream, Event& event) {
  if (event.task == kNoTask) return;
  stream.enqueue([&](Timeline::Change& change, TaskId before) { return change.task({before, event.task}, 0); },
                 [other = event.stream, &stream] {
                   if (other != &stream) other->move_all();
                 });
}

std::int64_t synchronize_event(Event& event) {
  if (event.task == kNoTask) return 0;
  event.stream->move_all();
  return Timeline::of_node().wait(event.task);
}

bool event_has_ended(Event& event) {
  if (event.task == kNoTask) return true;
  if (!Timeline::of_node().has_ended(event.task)) return false;
  event.stream->move_all();
  return true;
}

void forget_event(Event& event) {
  if (event.task == kNoTask) return;
  Timeline::Change change(Timeline::of_node());
  change.release(event.task);
  event.task = kNoTask;
}

void register_kernel(const void* stub, const char* name) {
  const std::lock_guard<std::mutex> lock(known().mutex);
  known().kernels[stub] = plain_kernel_name(name);
}

void launch(const void* stub, void** arguments, void* stream) {
  std::string name;
  {
    const std::lock_guard<std::mutex> lock(known().mutex);
    const auto found = known().kernels.find(stub);
    if (found == known().kernels.end()) end_run("a kernel was launched that was not registered");
    name = found->second;
  }
  launch_kernel(name, arguments, stream_of(stream));
}

void push_configuration(const Configuration& configuration) { configurations.push_back(configuration); }

Configuration pop_configuration() {
  if (configurations.empty()) end_run("a kernel was launched without a configuration");
  const Configuration result = configurations.back();
  configurations.pop_back();
  return result;
}

std::string device_name(const Gpu& gpu) { return "emulated " + gpu.model; }

}  // namespace emulation
