#include "core/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "core/description.hpp"
#include "core/ending.hpp"
#include "core/managed.hpp"
#include "core/timeline.hpp"

namespace emulation {
namespace {

constexpr std::uint64_t kMagic = 0x656d756c61746564;  // "emulated"

struct Registry {
  std::mutex mutex;
  std::map<std::uintptr_t, Region> regions;
  int next_number = 0;
};

Registry& registry() {
  static Registry* const all = new Registry;  // outlives destructors of the program that free memory
  return *all;
}

void* map_file(const std::string& path, int flags, std::size_t bytes, void* place = nullptr) {
  const int file = open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* memory = MAP_FAILED;
  if ((flags & O_CREAT) == 0 || posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0)
    memory = mmap(place == nullptr ? nullptr : static_cast<std::byte*>(place) - contents_bytes(), bytes,
                  PROT_READ | PROT_WRITE, MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED), file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : memory;
}

void keep(const Region& region) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.regions[region.begin] = region;
}

// The region that begins at an address, no longer known.
std::optional<Region> take(const void* pointer) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.regions.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == all.regions.end()) return std::nullopt;
  const Region region = found->second;
  all.regions.erase(found);
  return region;
}

Region region_for(void* mapped, const Handle& handle, Kind kind) {
  const std::size_t head = contents_bytes();
  return {reinterpret_cast<std::uintptr_t>(mapped) + head,
          handle.bytes,
          kind,
          handle.gpu,
          handle,
          static_cast<Contents*>(mapped),
          mapped,
          head + handle.bytes};
}

}  // namespace

std::string file_of(const Handle& handle) {
  return description().folder + "/memory-" + std::to_string(handle.pid) + "-" + std::to_string(handle.number);
}

Result allocate_device(void** pointer, std::size_t bytes, int gpu) {
  Handle handle{};
  const Result result = create_device(handle, bytes, gpu);
  return result == Result::success ? map_device(pointer, handle) : result;
}

Result create_device(Handle& handle, std::size_t bytes, int gpu) {
  const Description& node = description();
  if (node.largest_allocation != 0 && bytes > node.largest_allocation) {
    std::fprintf(stderr,
                 "fabricheck emulation: %zu bytes on %s are refused: this emulated node allows allocations of up to "
                 "%llu bytes; choose smaller sizes\n",
                 bytes, node.gpus[static_cast<std::size_t>(gpu)].name.c_str(),
                 static_cast<unsigned long long>(node.largest_allocation));
    return Result::out_of_memory;
  }
  Timeline& timeline = Timeline::of_node();
  if (!timeline.take_memory(gpu, bytes)) return Result::out_of_memory;
  handle = {kMagic, getpid(), 0, gpu, bytes};
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    handle.number = registry().next_number++;
  }
  void* mapped = map_file(file_of(handle), O_CREAT | O_EXCL, contents_bytes() + bytes);
  if (mapped == nullptr) {
    std::fprintf(stderr, "fabricheck emulation: no room for %zu bytes of device memory in %s: %s\n", bytes,
                 node.folder.c_str(), std::strerror(errno));
    unlink(file_of(handle).c_str());
    timeline.give_memory(gpu, bytes);
    return Result::out_of_memory;
  }
  make_contents(mapped);
  munmap(mapped, contents_bytes() + bytes);
  return Result::success;
}

void destroy_device(const Handle& handle) {
  unlink(file_of(handle).c_str());
  Timeline::of_node().give_memory(handle.gpu, handle.bytes);
}

Result map_device(void** pointer, const Handle& handle, void* place) {
  void* mapped = map_file(file_of(handle), 0, contents_bytes() + handle.bytes, place);
  if (mapped == nullptr) return Result::invalid;
  const Region region = region_for(mapped, handle, Kind::device);
  keep(region);
  *pointer = reinterpret_cast<void*>(region.begin);
  return Result::success;
}

Result allocate_host(void** pointer, std::size_t bytes, Kind kind) {
  // Managed memory has whole blocks of its own (managed.cpp).
  const std::size_t alignment = kind == Kind::managed ? kManagedBlock : 1;
  const std::size_t mapped_bytes = kind == Kind::managed ? bytes + 2 * kManagedBlock : bytes;
  void* memory = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Result::out_of_memory;
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(memory) + alignment - 1) / alignment * alignment;
  keep({begin, bytes, kind, -1, {}, nullptr, memory, mapped_bytes});
  *pointer = reinterpret_cast<void*>(begin);
  return Result::success;
}

Result release(void* pointer) {
  if (pointer == nullptr) return Result::success;
  const auto region = region_of(pointer);
  if (!region || region->begin != reinterpret_cast<std::uintptr_t>(pointer) || region->kind == Kind::opened ||
      region->kind == Kind::registered)
    return Result::unknown_pointer;
  take(pointer);
  if (region->kind == Kind::managed) place_pages(pointer, region->bytes, -1);
  munmap(region->mapped, region->mapped_bytes);
  if (region->kind == Kind::device) destroy_device(region->handle);
  return Result::success;
}

Result register_host(void* pointer, std::size_t bytes) {
  if (region_of(pointer)) return Result::invalid;
  keep({reinterpret_cast<std::uintptr_t>(pointer), bytes, Kind::registered, -1, {}, nullptr, nullptr, 0});
  return Result::success;
}

Result unregister_host(void* pointer) {
  const auto region = region_of(pointer);
  if (!region || region->kind != Kind::registered) return Result::unknown_pointer;
  take(pointer);
  return Result::success;
}

Result handle_of(void* pointer, Handle& handle) {
  const auto region = region_of(pointer);
  if (!region || region->kind != Kind::device) return Result::unknown_pointer;
  handle = region->handle;
  return Result::success;
}

Result open_handle(void** pointer, const Handle& handle, int gpu, void* place) {
  if (handle.magic != kMagic) return Result::invalid;
  const Description& node = description();
  if (gpu != handle.gpu && !(node.route(gpu, handle.gpu).peer_access && node.route(handle.gpu, gpu).peer_access))
    return Result::no_peer_access;
  void* mapped = map_file(file_of(handle), 0, contents_bytes() + handle.bytes, place);
  if (mapped == nullptr) return Result::invalid;
  const Region region = region_for(mapped, handle, Kind::opened);
  keep(region);
  *pointer = reinterpret_cast<void*>(region.begin);
  return Result::success;
}

Result close_handle(void* pointer) {
  const auto region = region_of(pointer);
  if (!region || region->kind != Kind::opened) return Result::unknown_pointer;
  take(reinterpret_cast<void*>(region->begin));
  munmap(region->mapped, region->mapped_bytes);
  return Result::success;
}

std::optional<Region> region_of(const void* pointer) {
  Registry& all = registry();
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto after = all.regions.upper_bound(address);
  if (after == all.regions.begin()) return std::nullopt;
  --after;
  if (address >= after->second.begin + after->second.bytes) return std::nullopt;
  return after->second;
}

void set_place(const void* managed, int gpu) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto after = all.regions.upper_bound(reinterpret_cast<std::uintptr_t>(managed));
  if (after != all.regions.begin()) std::prev(after)->second.gpu = gpu;
}

int place_of(const void* pointer, int host) {
  const auto region = region_of(pointer);
  return region && region->gpu >= 0 ? region->gpu : host;
}

}  // namespace emulation
