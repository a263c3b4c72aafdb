// The host backend: the "device" is the memory of the host, and a stream does its work at once. What only the copy and
// kernel transports use is missing, as they are.
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "fabricbench/device/content.hpp"
#include "fabricbench/device/device.hpp"
#include "fabricbench/environment.hpp"
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

}  // namespace

const char* backend() { return "host"; }
const char* platform() { return "host"; }
bool present() { return false; }
void wait_by_yielding() {}
const char* what_to_check() { return ""; }
Versions versions() { return {}; }
int count() { return 0; }
void select(int) {}
Info info(int) { return {}; }

Memory::Memory(std::size_t bytes) : data_(allocate(bytes)), release_([](std::byte* data) { std::free(data); }) {}

std::string why_unsupported(HostKind kind, bool) {
  return kind == HostKind::pageable ? "" : "the host backend has pageable memory only: use the cuda or hip backend";
}

HostMemory::HostMemory(std::size_t bytes, HostKind kind, int numa_node)
    : pages_(bytes, numa_node), data_(pages_.data()), on_device_(data_), kind_(kind) {}
HostMemory::~HostMemory() = default;
HostMemory::HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(pages_, other.pages_);
  std::swap(data_, other.data_);
  std::swap(on_device_, other.on_device_);
  std::swap(kind_, other.kind_);
  return *this;
}
std::string HostMemory::allocation() const { return "pageable"; }

Stream::Stream() = default;
Stream::~Stream() = default;
Stream::Stream(Stream&& other) noexcept : native_(std::exchange(other.native_, nullptr)) {}

void Stream::copy(void* destination, const void* source, std::size_t bytes) { std::memcpy(destination, source, bytes); }

void Stream::fill(const pattern::Stretch& stretch, const pattern::Pattern& pattern, Content content, bool inverted,
                  bool stamps_only) {
  fill_on_host(stretch, pattern, content, inverted, stamps_only);
}

void Stream::set_byte(void* destination, std::size_t bytes, int value) { std::memset(destination, value, bytes); }

void Stream::synchronize() {}

Mark::Mark() = default;
Mark::~Mark() = default;
Mark::Mark(Mark&&) noexcept = default;
void Mark::record(Stream&) { at_ns_ = now_ns(); }
bool Mark::passed() const { return true; }
std::int64_t Mark::ns_since(const Mark& earlier) const { return at_ns_ - earlier.at_ns_; }

std::string why_no_trains() { return "the host backend has no device"; }

void Stream::count_wrong(const pattern::Check& check, std::size_t, std::uint64_t* total) {
  *total += count_wrong_on_host(check);
}

}  // namespace fabricbench::device
