#include "fabricbench/loaded.hpp"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace fabricbench {

namespace {

std::string build_id_in(const char* notes, std::size_t size) {
  const auto padded = [](std::size_t length) { return (length + 3) / 4 * 4; };
  for (std::size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const char* const name = notes + at + sizeof note;
    const char* const value = name + padded(note.n_namesz);
    at += sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (at > size) break;
    if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || std::memcmp(name, "GNU", 4) != 0) continue;
    std::string digits;
    for (std::size_t i = 0; i < note.n_descsz; ++i) {
      const auto byte = static_cast<unsigned char>(value[i]);
      digits += "0123456789abcdef"[byte / 16];
      digits += "0123456789abcdef"[byte % 16];
    }
    return digits;
  }
  return {};
}

int add(dl_phdr_info* info, std::size_t, void* result) {
  // Neither the program, which has no name, nor what the kernel maps, which has no file.
  const std::unique_ptr<char, void (*)(void*)> path(realpath(info->dlpi_name, nullptr), std::free);
  if (!path) return 0;
  LoadedLibrary library{path.get(), {}};
  for (std::size_t i = 0; i < info->dlpi_phnum && library.build_id.empty(); ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    // The loader mapped the segment there.
    library.build_id = build_id_in(reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr), header.p_memsz);
  }
  static_cast<std::vector<LoadedLibrary>*>(result)->push_back(library);
  return 0;
}

}  // namespace

std::vector<LoadedLibrary> loaded_libraries() {
  std::vector<LoadedLibrary> libraries;
  dl_iterate_phdr(add, &libraries);
  std::sort(libraries.begin(), libraries.end(),
            [](const LoadedLibrary& a, const LoadedLibrary& b) { return a.path < b.path; });
  return libraries;
}

}  // namespace fabricbench
