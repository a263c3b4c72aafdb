#include "ccl/meeting.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "core/ending.hpp"

namespace emulation::ccl {
namespace {

constexpr std::size_t kChannels = 2048;
constexpr std::size_t kCircles = 64;

// Zeros are a valid beginning: no page of it is there before it is used.
struct Meetings {
  Channel channels[kChannels];
  Circle circles[kCircles];
};

Meetings& meetings() {
  static Meetings* const mapped = [] {
    const std::string path = description().folder + "/ccl";
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(Meetings)) != 0) end_run(path + ": " + std::strerror(errno));
    void* memory = mmap(nullptr, sizeof(Meetings), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) end_run(path + ": " + std::strerror(errno));
    close(file);
    return static_cast<Meetings*>(memory);
  }();
  return *mapped;
}

// The entry that `is_it`, else one that nobody uses any more, cleared.
template <typename Entry, std::size_t size, typename IsIt>
Entry& entry_of(Entry (&entries)[size], IsIt&& is_it, const char* what) {
  const auto found = std::find_if(std::begin(entries), std::end(entries), is_it);
  if (found != std::end(entries)) return *found;
  const auto unused = std::find_if(std::begin(entries), std::end(entries), [](const Entry& each) {
    return each.communicator == 0 || (each.owner != getpid() && start_of(each.owner) == 0);
  });
  if (unused == std::end(entries)) end_run(std::string("too many ") + what + " of *CCL on this node");
  std::memset(static_cast<void*>(&*unused), 0, sizeof(Entry));
  unused->owner = getpid();
  return *unused;
}

// Ranks that take themselves for being on different hosts do not meet.
std::uint64_t key_of(const Communicator& communicator) { return communicator.id ^ communicator.self().host ^ 1; }

}  // namespace

Place place_of_buffer(const void* pointer) {
  const auto region = region_of(pointer);
  if (!region || region->contents == nullptr)
    end_run("the stand-in of *CCL moves device memory only, and was given another buffer");
  return {region->handle, reinterpret_cast<std::uintptr_t>(pointer) - region->begin};
}

void* map_place(const Place& place) {
  static std::mutex mutex;
  static auto* const mapped = new std::map<std::pair<int, int>, void*>;
  const std::lock_guard<std::mutex> lock(mutex);
  void*& begin = (*mapped)[{place.handle.pid, place.handle.number}];
  if (begin == nullptr && open_handle(&begin, place.handle, place.handle.gpu) != Result::success)
    end_run("the memory of another rank has gone");
  return static_cast<char*>(begin) + place.offset;
}

Channel& channel(const Communicator& communicator, int source, int destination) {
  const std::uint64_t key = key_of(communicator);
  Channel& found = entry_of(
      meetings().channels,
      [&](const Channel& each) {
        return each.communicator == key && each.source == source && each.destination == destination;
      },
      "pairs of ranks");
  found.communicator = key;
  found.source = source;
  found.destination = destination;
  return found;
}

Circle& circle(const Communicator& communicator) {
  const std::uint64_t key = key_of(communicator);
  Circle& found =
      entry_of(meetings().circles, [&](const Circle& each) { return each.communicator == key; }, "communicators");
  found.communicator = key;
  return found;
}

void await(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  for (std::uint32_t seen = word.load(std::memory_order_acquire); static_cast<std::int32_t>(seen - value) < 0;
       seen = word.load(std::memory_order_acquire))
    Timeline::of_node().wait_while(word, seen);
}

void post(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  word.store(value - 1, std::memory_order_release);
  Timeline::wake(word);
}

}  // namespace emulation::ccl
