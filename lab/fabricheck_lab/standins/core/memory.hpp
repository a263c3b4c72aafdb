// Device memory is a file of the node's folder that every process can map; host memory is the process's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace emulation {

enum class Kind { device, opened, pinned, noncoherent, managed, registered };

// Where an allocation of a process of this node is found by the others.
struct Handle {
  std::uint64_t magic;
  std::int32_t pid;
  std::int32_t number;
  std::int32_t gpu;  // vertex
  std::uint64_t bytes;
};

struct Contents;  // contents.cpp: what an allocation holds, as far as it came from another one

struct Region {
  std::uintptr_t begin;
  std::size_t bytes;
  Kind kind;
  int gpu;  // vertex of the memory's GPU; of managed memory, where its pages lie, -1: on the host
  Handle handle;
  Contents* contents;
  void* mapped;
  std::size_t mapped_bytes;
};

enum class Result { success, out_of_memory, unknown_pointer, no_peer_access, invalid };

Result allocate_device(void** pointer, std::size_t bytes, int gpu);
// The two halves of it: memory of a GPU that is not mapped yet, and its place among this process's addresses.
Result create_device(Handle& handle, std::size_t bytes, int gpu);
Result map_device(void** pointer, const Handle& handle, void* place = nullptr);
// Gives back what was created.
void destroy_device(const Handle& handle);
Result allocate_host(void** pointer, std::size_t bytes, Kind kind);
// Frees what one of the two has given.
Result release(void* pointer);
Result register_host(void* pointer, std::size_t bytes);
Result unregister_host(void* pointer);

// The file that the others of the node find it in.
std::string file_of(const Handle& handle);
Result handle_of(void* pointer, Handle& handle);
// Maps the memory of another process, for a GPU of this one; `place`: at addresses that were reserved for it.
Result open_handle(void** pointer, const Handle& handle, int gpu, void* place = nullptr);
Result close_handle(void* pointer);

// The region that an address lies in; none for memory that no call has allocated or registered.
std::optional<Region> region_of(const void* pointer);
// Moves the pages of managed memory to a GPU, or to the host (-1).
void set_place(const void* managed, int gpu);

// The vertex whose memory an address belongs to; `host` for all memory of the host.
int place_of(const void* pointer, int host);

// contents.cpp

std::size_t contents_bytes();
Contents* make_contents(void* memory);
// Copies, unless the destination holds these very bytes already, from an earlier copy of a source that nobody has
// written to since: iterations over unchanged data cost no processor time.
void move_bytes(void* destination, const void* source, std::size_t bytes);
// The bytes at `destination` are new: whoever was about to write has to say so.
void wrote(void* destination, std::size_t bytes);

// The words of eight bytes at multiples of `step` from the beginning of an allocation, as seen from a place in it that
// is `phase` beyond one of these multiples; none where `step` is 0.
struct Changes {
  std::size_t step = 0;
  std::size_t phase = 0;

  // Those of both; where they do not lie in one grid, of all words.
  Changes with(const Changes& other) const {
    if (step == 0 || other.step == 0) return step == 0 ? other : *this;
    const std::size_t smaller = step < other.step ? step : other.step;
    return phase % smaller == other.phase % smaller ? Changes{smaller, phase % smaller} : Changes{8, phase % 8};
  }
  // Calls change(begin, length) for each piece of a changed word in `bytes` from that place on.
  template <typename Change>
  void for_each(std::size_t bytes, Change&& change) const {
    if (step == 0) return;
    if (phase > 0 && phase < 8) change(std::size_t{0}, 8 - phase < bytes ? 8 - phase : bytes);
    for (std::size_t at = phase == 0 ? 0 : step - phase; at < bytes; at += step)
      change(at, bytes - at < 8 ? bytes - at : std::size_t{8});
  }
};
// As `wrote`, of words of an allocation only: a copy of it has to bring no more than these up to date.
void wrote_words(void* allocation, std::size_t step);
// What has been written so since the bytes of the allocation of `data` were new, seen from there.
Changes changes_of(const void* data);
// The destination has got such changes of what it was made of.
void wrote_like(void* destination, const Changes& changes);

// For results of several inputs: whether `destination` already holds what was made of them as they are now. `key` names
// the operation and the inputs' places, `state` their contents.
struct Origin {
  std::uint64_t key;
  std::uint64_t state;
};
void add_input(Origin& origin, const void* input, std::size_t bytes);
bool holds(const void* destination, std::size_t bytes, const Origin& origin);
void now_holds(void* destination, std::size_t bytes, const Origin& origin);

}  // namespace emulation
