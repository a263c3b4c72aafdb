#include "core/managed.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

#include "core/description.hpp"
#include "core/timeline.hpp"

namespace emulation {
namespace {

// What of a block has come to a GPU: its host draws no more than that.
struct Placed {
  int gpu = -1;
  std::size_t bytes = 0;
};

struct Blocks {
  std::recursive_mutex mutex;
  std::map<std::uintptr_t, Placed> placed;  // by the block's address
  int devices = 0;                          // threads that act as one
};

Blocks& blocks() {
  static Blocks* const all = new Blocks;
  return *all;
}

struct sigaction before{};

void protect(std::uintptr_t block, int protection) {
  mprotect(reinterpret_cast<void*>(block), kManagedBlock, protection);
}

// Brings a block that the host has touched; false where it is none.
bool draw(std::uintptr_t address) {
  const std::uintptr_t block = address / kManagedBlock * kManagedBlock;
  Placed here;
  {
    const std::lock_guard<std::recursive_mutex> lock(blocks().mutex);
    const auto found = blocks().placed.find(block);
    if (found == blocks().placed.end()) return false;
    here = found->second;
    blocks().placed.erase(found);
  }
  const Description& node = description();
  const int host = node.gpus[static_cast<std::size_t>(here.gpu)].host;
  const Flow flow = flow_between(here.gpu, host, here.bytes, Mover::copy);
  Timeline& timeline = Timeline::of_node();
  TaskId task = kNoTask;
  {
    Timeline::Change change(timeline);
    task = change.task({}, 0, &flow);
  }
  timeline.wait(task);
  {
    Timeline::Change change(timeline);
    change.release(task);
  }
  protect(block, PROT_READ | PROT_WRITE);
  return true;
}

void on_fault(int number, siginfo_t* info, void* context) {
  if (draw(reinterpret_cast<std::uintptr_t>(info->si_addr))) return;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    signal(number, SIG_DFL);  // the same instruction runs again, and ends the process
  }
}

void watch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before);
  });
}

}  // namespace

void place_pages(const void* begin, std::size_t bytes, int gpu) {
  watch_faults();
  const auto start = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = start / kManagedBlock * kManagedBlock;
  const std::uintptr_t end = start + bytes;
  Blocks& all = blocks();
  const std::lock_guard<std::recursive_mutex> lock(all.mutex);
  for (std::uintptr_t block = first; block < end; block += kManagedBlock) {
    if (gpu < 0) {
      all.placed.erase(block);
      protect(block, PROT_READ | PROT_WRITE);
    } else {
      const std::size_t within = std::min(end, block + kManagedBlock) - std::max(start, block);
      all.placed[block] = {gpu, std::max(within, all.placed[block].bytes)};
      if (all.devices == 0) protect(block, PROT_NONE);
    }
  }
}

AsDevice::AsDevice() {
  Blocks& all = blocks();
  const std::lock_guard<std::recursive_mutex> lock(all.mutex);
  if (all.devices++ > 0) return;
  for (const auto& each : all.placed) protect(each.first, PROT_READ | PROT_WRITE);
}

AsDevice::~AsDevice() {
  Blocks& all = blocks();
  const std::lock_guard<std::recursive_mutex> lock(all.mutex);
  if (--all.devices > 0) return;
  for (const auto& each : all.placed) protect(each.first, PROT_NONE);
}

}  // namespace emulation
