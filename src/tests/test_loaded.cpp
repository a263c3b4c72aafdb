#include "fabricbench/loaded.hpp"

#include "check.hpp"

TEST(loaded_libraries_are_files_with_what_the_linker_named_them_by) {
  bool has_c = false;
  for (const fabricbench::LoadedLibrary& library : fabricbench::loaded_libraries()) {
    has_c = has_c || library.path.find("/libc.so") != std::string::npos;
    CHECK_EQUAL(library.path.substr(0, 1), "/");
    CHECK_EQUAL(library.build_id.find_first_not_of("0123456789abcdef"), std::string::npos);
    CHECK_EQUAL(library.build_id.size() % 2, 0u);
  }
  CHECK(has_c);
}
