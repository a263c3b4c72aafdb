// The devices that the ranks drive. One implementation a kind of port: device_host.cpp, device_gpu.cu.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fabricbench::device {

struct Info {
  int index;
  std::string name;
  std::string bus_id;
  std::string uuid;
  int numa_node;
  std::uint64_t memory_bytes;
};

struct Versions {
  std::string name;     // CUDA, HIP
  std::string runtime;  // "13.0"
  std::string driver;   // of the kernel module
};

const char* port();      // host, cuda, hip
const char* platform();  // host, nvidia, amd
bool present();          // false in the host port
Versions versions();

int count();
void select(int index);
Info info(int index);

// Memory on the device (in the host port: on the host). `bytes` of 0 is no memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes = 0);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

// Page-locked host memory, for staging.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

// A handle with which another process of the node opens this process's device memory.
using IpcHandle = std::array<std::byte, 64>;
IpcHandle export_memory(const Memory& memory);
class PeerMemory {
 public:
  explicit PeerMemory(const IpcHandle& handle);
  ~PeerMemory();
  PeerMemory(PeerMemory&& other) noexcept;
  PeerMemory& operator=(PeerMemory&&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

// What the words of a buffer hold: any bytes, or floats that are small whole numbers, whose sums are exact.
enum class Content { bytes, floats };

// A queue of work on the selected device. Everything but synchronize() only enqueues.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;

  void copy(void* destination, const void* source, std::size_t bytes);
  // Positions [position, position + bytes) of the pattern of `seed` (pattern.hpp); `inverted`, all their bits flipped.
  void fill(void* destination, std::size_t bytes, std::uint64_t position, std::uint64_t seed, Content content,
            bool inverted);
  void set_byte(void* destination, std::size_t bytes, int value);
  // out[i] = sum of inputs[k][i], i in [0, count); the inputs may lie on other devices.
  void sum(float* out, const std::vector<const float*>& inputs, std::size_t count);
  void synchronize();
  void* native() const { return native_; }

 private:
  void* native_ = nullptr;
};

// Bytes of `data` that differ from positions [position, position + bytes) of the pattern of `seed`. Waits for the
// answer.
std::uint64_t count_wrong(Stream& stream, const void* data, std::size_t bytes, std::uint64_t position,
                          std::uint64_t seed, Content content);
// Bytes of the floats in `data` that differ from the sums of the patterns of `seeds` at the same positions.
std::uint64_t count_wrong_sums(Stream& stream, const void* data, std::size_t bytes, std::uint64_t position,
                               const std::vector<std::uint64_t>& seeds);

}  // namespace fabricbench::device
