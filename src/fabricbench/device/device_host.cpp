// The host port: the "device" is the memory of the host, and a stream does its work at once.
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "fabricbench/device/device.hpp"
#include "fabricbench/device/pattern.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench::device {
namespace {

constexpr std::size_t kAlignment = 4096;

std::byte* allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr)
    throw RunError("memory",
                   "no " + format_size(bytes) + " of host memory: choose smaller --sizes or fewer ranks a node");
  return static_cast<std::byte*>(memory);
}

[[noreturn]] void not_here() { throw RunError("library", "the host port has no device memory to share"); }

}  // namespace

const char* port() { return "host"; }
const char* platform() { return "host"; }
bool present() { return false; }
Versions versions() { return {}; }
int count() { return 0; }
void select(int) {}
Info info(int) { return {}; }

Memory::Memory(std::size_t bytes) : data_(allocate(bytes)) {}
Memory::~Memory() { std::free(data_); }
Memory::Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

PinnedMemory::PinnedMemory(std::size_t bytes) : data_(allocate(bytes)) {}
PinnedMemory::~PinnedMemory() { std::free(data_); }

IpcHandle export_memory(const Memory&) { not_here(); }
PeerMemory::PeerMemory(const IpcHandle&) { not_here(); }
PeerMemory::~PeerMemory() = default;
PeerMemory::PeerMemory(PeerMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

Stream::Stream() = default;
Stream::~Stream() = default;
Stream::Stream(Stream&& other) noexcept : native_(std::exchange(other.native_, nullptr)) {}

void Stream::copy(void* destination, const void* source, std::size_t bytes) { std::memcpy(destination, source, bytes); }

void Stream::fill(void* destination, std::size_t bytes, std::uint64_t position, std::uint64_t seed, Content content,
                  bool inverted) {
  auto* out = static_cast<unsigned char*>(destination);
  const std::uint64_t flip = inverted ? ~std::uint64_t{0} : 0;
  if (content == Content::floats) {
    for (std::size_t i = 0; i < bytes / 4; ++i) {
      const std::uint32_t bits =
          pattern::bits_of(pattern::float_at(seed, position / 4 + i)) ^ static_cast<std::uint32_t>(flip);
      std::memcpy(out + 4 * i, &bits, 4);
    }
    return;
  }
  std::size_t i = 0;
  for (; i < bytes && (position + i) % 8 != 0; ++i)
    out[i] = static_cast<unsigned char>(pattern::byte_at(seed, position + i) ^ flip);
  for (; i + 8 <= bytes; i += 8) {
    const std::uint64_t word = pattern::bytes_of_word(seed, (position + i) / 8) ^ flip;
    std::memcpy(out + i, &word, 8);
  }
  for (; i < bytes; ++i) out[i] = static_cast<unsigned char>(pattern::byte_at(seed, position + i) ^ flip);
}

void Stream::set_byte(void* destination, std::size_t bytes, int value) { std::memset(destination, value, bytes); }

void Stream::sum(float* out, const std::vector<const float*>& inputs, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    float total = 0;
    for (const float* input : inputs) total += input[i];
    out[i] = total;
  }
}

void Stream::synchronize() {}

std::uint64_t count_wrong(Stream&, const void* data, std::size_t bytes, std::uint64_t position, std::uint64_t seed,
                          Content content) {
  const auto* in = static_cast<const unsigned char*>(data);
  std::uint64_t wrong = 0;
  if (content == Content::floats) {
    for (std::size_t i = 0; i < bytes / 4; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, in + 4 * i, 4);
      wrong += static_cast<std::uint64_t>(
          pattern::differing_bytes(bits, pattern::bits_of(pattern::float_at(seed, position / 4 + i))));
    }
    return wrong;
  }
  std::size_t i = 0;
  for (; i < bytes && (position + i) % 8 != 0; ++i) wrong += in[i] != pattern::byte_at(seed, position + i) ? 1U : 0U;
  for (; i + 8 <= bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, in + i, 8);
    wrong +=
        static_cast<std::uint64_t>(pattern::differing_bytes(word, pattern::bytes_of_word(seed, (position + i) / 8)));
  }
  for (; i < bytes; ++i) wrong += in[i] != pattern::byte_at(seed, position + i) ? 1U : 0U;
  return wrong;
}

std::uint64_t count_wrong_sums(Stream&, const void* data, std::size_t bytes, std::uint64_t position,
                               const std::vector<std::uint64_t>& seeds) {
  const auto* in = static_cast<const unsigned char*>(data);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < bytes / 4; ++i) {
    float total = 0;
    for (const std::uint64_t seed : seeds) total += pattern::float_at(seed, position / 4 + i);
    std::uint32_t bits = 0;
    std::memcpy(&bits, in + 4 * i, 4);
    wrong += static_cast<std::uint64_t>(pattern::differing_bytes(bits, pattern::bits_of(total)));
  }
  return wrong;
}

}  // namespace fabricbench::device
