// A folder with the files of a test, gone at its end.
#pragma once

#include <ftw.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace check {

class Folder {
 public:
  Folder() {
    if (mkdtemp(path_) == nullptr) std::abort();
  }
  ~Folder() {
    nftw(
        path_, [](const char* path, const struct stat*, int, FTW*) { return std::remove(path); }, 8,
        FTW_DEPTH | FTW_PHYS);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    for (std::size_t end = file.find('/'); end != std::string::npos; end = file.find('/', end + 1))
      mkdir((path() + '/' + file.substr(0, end)).c_str(), 0755);
    std::ofstream(path() + '/' + file) << text;
  }

 private:
  char path_[32] = "/tmp/fabricbench_test.XXXXXX";
};

}  // namespace check
