// Device memory that CUDA's driver maps (virtual memory management), and its handles: descriptors of this node, or
// those of the fabric of an NVLink domain. The driver's library is opened when it is needed, as the runtime does.
#pragma once

#include <cstddef>
#include <string>

#include "fabricbench/device/device.hpp"

namespace fabricbench::device::virtual_memory {

// Why the selected device has no such memory; empty where it has.
std::string why_none(Handles handles);
Memory allocate(std::size_t bytes, Handles handles);
IpcHandle export_handle(const Memory& memory, Handles handles);
Memory open(const IpcHandle& handle, Handles handles);

}  // namespace fabricbench::device::virtual_memory
