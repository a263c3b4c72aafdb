// Intel's driver below SYCL, for what SYCL has no word for: handles of device memory between processes. The loader
// (libze_loader) is opened when it is needed, so that the program starts where there is none.
#pragma once

#include <cstddef>

#include "fabricbench/device/device.hpp"

namespace fabricbench::device::level_zero {

// Why this process cannot exchange handles of its memory; empty where it can.
std::string unsupported();
IpcHandle export_memory(std::byte* memory);
// The memory of another process of the node, as this process and its selected device address it.
std::byte* open(const IpcHandle& handle);
void close(std::byte* opened) noexcept;

}  // namespace fabricbench::device::level_zero
