// What fabricbench's kernels (src/fabricbench/device) do, done by the processor.
#pragma once

#include <string>

#include "core/stream.hpp"

namespace emulation {

// "copy_quads" of a registered name, mangled or not.
std::string plain_kernel_name(const char* registered);

// Enqueues a kernel on a stream; ends the run where there is none of that name.
void launch_kernel(const std::string& name, void** arguments, Stream& stream);

// A copy of whatever kind between any two memories, by copy engine or kernel.
void enqueue_copy(Stream& stream, void* destination, const void* source, std::size_t bytes, Mover mover);
void enqueue_set(Stream& stream, void* destination, int value, std::size_t bytes);
// Moves the pages of managed memory to a GPU, or to the host (-1).
void migrate(Stream& stream, const void* managed, std::size_t bytes, int gpu);

}  // namespace emulation
