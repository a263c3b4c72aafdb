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

struct Blocks {
  std::recursive_mutex mutex;
  std::map<std::uintptr_t, int> gpu_of;  // by the block's address
  int devices = 0;                       // threads that act as one
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
  int gpu = -1;
  {
    const std::lock_guard<std::recursive_mutex> lock(blocks().mutex);
    const auto found = blocks().gpu_of.find(block);
    if (found == blocks().gpu_of.end()) return false;
    gpu = found->second;
    blocks().gpu_of.erase(found);
  }
  const Description& node = description();
  const Flow flow = flow_between(gpu, node.gpus[static_cast<std::size_t>(gpu)].host, kManagedBlock, Mover::copy);
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
  const auto first = reinterpret_cast<std::uintptr_t>(begin) / kManagedBlock * kManagedBlock;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(begin) + bytes;
  Blocks& all = blocks();
  const std::lock_guard<std::recursive_mutex> lock(all.mutex);
  for (std::uintptr_t block = first; block < end; block += kManagedBlock) {
    if (gpu < 0) {
      all.gpu_of.erase(block);
      protect(block, PROT_READ | PROT_WRITE);
    } else {
      all.gpu_of[block] = gpu;
      if (all.devices == 0) protect(block, PROT_NONE);
    }
  }
}

AsDevice::AsDevice() {
  Blocks& all = blocks();
  const std::lock_guard<std::recursive_mutex> lock(all.mutex);
  if (all.devices++ > 0) return;
  for (const auto& [block, gpu] : all.gpu_of) protect(block, PROT_READ | PROT_WRITE);
}

AsDevice::~AsDevice() {
  Blocks& all = blocks();
  const std::lock_guard<std::recursive_mutex> lock(all.mutex);
  if (--all.devices > 0) return;
  for (const auto& [block, gpu] : all.gpu_of) protect(block, PROT_NONE);
}

}  // namespace emulation
