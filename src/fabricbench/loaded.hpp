// The shared libraries of this process.
#pragma once

#include <string>
#include <vector>

namespace fabricbench {

struct LoadedLibrary {
  std::string path;      // without links: its name often has the version
  std::string build_id;  // hexadecimal digits of the linker's note; empty where it has none
};

// Those that are loaded now, by path; what the kernel or a closed handle brought is not there.
std::vector<LoadedLibrary> loaded_libraries();

}  // namespace fabricbench
