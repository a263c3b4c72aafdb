#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "core/memory.hpp"

namespace emulation {

namespace {

constexpr std::size_t kRecords = 64;
// Copying less than this costs less than looking whether it is needed.
constexpr std::size_t kSmall = 16 << 10;

struct Record {
  std::uint64_t offset;
  std::uint64_t bytes;  // 0: no record
  Origin origin;
};

}  // namespace

// At the beginning of an allocation's file. `version` counts changes of the bytes, but for those of words at multiples
// of `step` that were written since.
struct Contents {
  std::atomic_flag locked;
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> step;
  std::atomic<std::uint32_t> records_used;
  std::uint32_t next;
  Record records[kRecords];
};

namespace {

class Locked {
 public:
  explicit Locked(Contents& contents) : contents_(contents) {
    while (contents_.locked.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~Locked() { contents_.locked.clear(std::memory_order_release); }

 private:
  Contents& contents_;
};

void drop_overlapping(Contents& contents, std::uint64_t offset, std::uint64_t bytes) {
  for (Record& record : contents.records) {
    if (record.bytes != 0 && record.offset < offset + bytes && offset < record.offset + record.bytes) record.bytes = 0;
  }
}

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ b) + 0x9E3779B97F4A7C15ULL + (a << 6) + (a >> 2);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  return x ^ (x >> 27);
}

}  // namespace

std::size_t contents_bytes() { return (sizeof(Contents) + 4095) / 4096 * 4096; }

Contents* make_contents(void* memory) { return new (memory) Contents{}; }

void add_input(Origin& origin, const void* input, std::size_t bytes) {
  const auto region = region_of(input);
  if (!region || region->contents == nullptr) {
    static std::atomic<std::uint64_t> unique{1};
    origin.state = mixed(origin.state, unique.fetch_add(1));  // unknown: never the same again
    return;
  }
  const std::uint64_t id =
      mixed(static_cast<std::uint64_t>(region->handle.pid) << 32, static_cast<std::uint64_t>(region->handle.number));
  origin.key = mixed(origin.key, mixed(id, reinterpret_cast<std::uintptr_t>(input) - region->begin));
  origin.key = mixed(origin.key, bytes);
  origin.state = mixed(origin.state, region->contents->version.load(std::memory_order_acquire));
}

bool holds(const void* destination, std::size_t bytes, const Origin& origin) {
  const auto region = region_of(destination);
  if (!region || region->contents == nullptr) return false;
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(destination) - region->begin;
  const Locked locked(*region->contents);
  for (const Record& record : region->contents->records) {
    if (record.bytes == bytes && record.offset == offset && record.origin.key == origin.key &&
        record.origin.state == origin.state)
      return true;
  }
  return false;
}

void now_holds(void* destination, std::size_t bytes, const Origin& origin) {
  const auto region = region_of(destination);
  if (!region || region->contents == nullptr) return;
  Contents& contents = *region->contents;
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(destination) - region->begin;
  const Locked locked(contents);
  drop_overlapping(contents, offset, bytes);
  contents.records[contents.next++ % kRecords] = {offset, bytes, origin};
}

void wrote(void* destination, std::size_t bytes) {
  const auto region = region_of(destination);
  if (!region || region->contents == nullptr) return;
  const Locked locked(*region->contents);
  drop_overlapping(*region->contents, reinterpret_cast<std::uintptr_t>(destination) - region->begin, bytes);
  // In this order: who sees no step sees the new version, and copies all.
  region->contents->version.fetch_add(1, std::memory_order_release);
  region->contents->step.store(0);
}

void wrote_words(void* allocation, std::size_t step) {
  const auto region = region_of(allocation);
  if (!region || region->contents == nullptr) return;
  const std::uint64_t before = region->contents->step.load();
  region->contents->step.store(before == 0 ? step : std::min<std::uint64_t>(before, step));
}

Changes changes_of(const void* data) {
  const auto region = region_of(data);
  if (!region || region->contents == nullptr) return {};
  const std::size_t step = region->contents->step.load();
  return {step, step == 0 ? 0 : (reinterpret_cast<std::uintptr_t>(data) - region->begin) % step};
}

void wrote_like(void* destination, const Changes& changes) {
  const auto region = region_of(destination);
  if (!region || region->contents == nullptr || changes.step == 0) return;
  if ((reinterpret_cast<std::uintptr_t>(destination) - region->begin) % changes.step == changes.phase) {
    wrote_words(destination, changes.step);
  } else {
    region->contents->version.fetch_add(1, std::memory_order_release);
  }
}

void move_bytes(void* destination, const void* source, std::size_t bytes) {
  if (bytes < kSmall) {
    wrote(destination, bytes);
    std::memmove(destination, source, bytes);
    return;
  }
  const Changes changes = changes_of(source);  // before the version: other parts of it may be written meanwhile
  Origin origin{1, 1};
  add_input(origin, source, bytes);
  if (holds(destination, bytes, origin)) {
    changes.for_each(bytes, [&](std::size_t begin, std::size_t length) {
      std::memmove(static_cast<char*>(destination) + begin, static_cast<const char*>(source) + begin, length);
    });
    wrote_like(destination, changes);
    return;
  }
  wrote(destination, bytes);
  std::memmove(destination, source, bytes);
  now_holds(destination, bytes, origin);
}

}  // namespace emulation
