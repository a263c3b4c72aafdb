// The devices that the ranks drive. One implementation a kind of backend: device_host.cpp, device_gpu.cu,
// device_sycl.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fabricbench/device/pattern.hpp"
#include "fabricbench/numa.hpp"

namespace fabricbench::device {

struct Info {
  int index;
  std::string name;
  std::string bus_id;
  std::string uuid;
  int numa_node;
  std::uint64_t memory_bytes;
  int tile = -1;  // where a card has several devices (Intel's tiles): its number on the card
};

struct Versions {
  std::string name;       // CUDA, HIP, SYCL on Level Zero
  std::string runtime;    // "13.0"
  std::string driver;     // of the kernel module, or Level Zero's own
  std::string hierarchy;  // Level Zero's: flat, composite or combined (ZE_FLAT_DEVICE_HIERARCHY); else empty
};

const char* backend();   // host, cuda, hip, sycl
const char* platform();  // host, nvidia, amd, intel; cpu: a processor in the place of a GPU
bool present();          // false in the host backend
// From here on who waits for a stream lets other threads have the core meanwhile. Else some APIs spin, and on a rank's
// only core NCCL's threads do not get to send what it waits for.
void wait_by_yielding();
// What to look at where count() is 0, as half a sentence.
const char* what_to_check();
Versions versions();

int count();
void select(int index);
Info info(int index);

// Memory on the device (in the host backend: on the host). `bytes` of 0 is no memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes = 0);
  // That of a library, which `release` gives back.
  Memory(std::byte* data, void (*release)(std::byte*)) : data_(data), release_(release) {}
  ~Memory() {
    if (data_ != nullptr) release_(data_);
  }
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(release_, other.release_);
    return *this;
  }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  void (*release_)(std::byte*) = nullptr;
};

// How host memory is allocated (Schieffer et al., table I). Pinned is page-locked, and coherent where the API knows the
// difference; noncoherent is page-locked and may be cached by the device. Both kinds of managed memory have one address
// on host and device: `managed` stays where the host has put it, the pages of `migrated` go to who uses them.
enum class HostKind { pageable, pinned, noncoherent, managed, migrated };

// Why the selected device cannot use this kind of host memory, by a kernel or by its copy engine; empty where it can.
std::string why_unsupported(HostKind kind, bool by_kernel);

// Host memory. `bytes` of 0 is no memory. Only pageable and pinned memory can be put on a NUMA node; elsewhere the
// runtime chooses.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(std::size_t bytes, HostKind kind, int numa_node = kAnyNode);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  std::byte* data() const { return data_; }
  // The same memory as a kernel of the selected device addresses it.
  std::byte* on_device() const { return on_device_; }
  // What the GPU runtime says that it is: pageable, pinned, noncoherent or managed.
  std::string allocation() const;

 private:
  Pages pages_;  // what is not allocated by the runtime
  std::byte* data_ = nullptr;
  std::byte* on_device_ = nullptr;
  HostKind kind_ = HostKind::pageable;
};

// A handle with which another process opens this process's device memory.
using IpcHandle = std::array<std::byte, 96>;
// Whose handles: those of the runtime (ipc), of memory that CUDA's driver maps (vmm: virtual memory management), or of
// such memory that also processes on other nodes of an NVLink domain open (fabric).
enum class Handles { ipc, vmm, fabric };
// Why the selected device has no such handles; empty where it has.
std::string why_no_peers(Handles handles);
// Memory that has such a handle.
Memory exportable(std::size_t bytes, Handles handles);
IpcHandle export_memory(const Memory& memory, Handles handles);
// The memory of another process, as the selected device addresses it.
Memory open_peer(const IpcHandle& handle, Handles handles);

// What the words of a buffer hold: any bytes, or whole numbers, whose sums are exact.
enum class Content { bytes, numbers };

// Whether a kernel that reads over a link again and again reads over the link each time, and never from a cache.
bool kernel_reads_pass_caches();

// A queue of work on the selected device. Everything but synchronize() only enqueues.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;

  void copy(void* destination, const void* source, std::size_t bytes);
  // The same by loads and stores of a kernel, which does all operations of the ring once it has started. `link`: one
  // of the two lies outside the device's own memory.
  void copy_by_kernel(void* destination, const void* source, std::size_t bytes, bool link, const pattern::Ring& ring);
  // Moves the pages of managed memory to the host, or to the device.
  void migrate(void* managed, std::size_t bytes, bool to_host);
  // Writes a pattern (pattern.hpp) into a stretch of its positions, or its stamps alone; bytes also `inverted`, with
  // all their bits flipped.
  void fill(const pattern::Stretch& stretch, const pattern::Pattern& pattern, Content content, bool inverted,
            bool stamps_only);
  void set_byte(void* destination, std::size_t bytes, int value);
  // out[i] = sum of inputs[k][i], i in [0, count); the inputs may lie on other devices.
  void sum(float* out, const std::vector<const float*>& inputs, std::size_t count);
  // Adds to *total how many bytes are wrong; table and total lie on the device. `words`: how many there are to look at.
  void count_wrong(const pattern::Check& check, std::size_t words, std::uint64_t* total);
  void synchronize();
  void* native() const { return native_; }

 private:
  void* native_ = nullptr;
};

// A place in a stream. Where a backend's streams do their work at once, or know no time, recording it waits for them.
class Mark {
 public:
  Mark();
  ~Mark();
  Mark(Mark&& other) noexcept;
  Mark& operator=(Mark&&) = delete;
  void record(Stream& stream);
  bool passed() const;
  // Nanoseconds by the device's clock; once both are passed.
  std::int64_t ns_since(const Mark& earlier) const;

 private:
  [[maybe_unused]] void* native_ = nullptr;  // of the runtime
  [[maybe_unused]] std::int64_t at_ns_ = 0;  // where it has none
};

// Times what is enqueued on a stream from start to stop by the device's own clock. None of it begins before release(),
// so that the time in which the processor enqueues it does not count.
class TrainClock {
 public:
  TrainClock();
  ~TrainClock();
  TrainClock(TrainClock&& other) noexcept;
  TrainClock& operator=(TrainClock&&) = delete;
  void start(Stream& stream);
  void stop(Stream& stream);
  void release();
  // Once the stream is synchronised.
  std::int64_t ns() const;

 private:
  HostMemory flag_;
  [[maybe_unused]] void* first_ = nullptr;  // not on the host
  [[maybe_unused]] void* last_ = nullptr;
};
// Why this backend has none; empty where it has.
std::string why_no_trains();

}  // namespace fabricbench::device
