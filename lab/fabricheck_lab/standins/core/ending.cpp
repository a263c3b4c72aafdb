#include "core/ending.hpp"

#include <unistd.h>

#include <cstdio>

namespace emulation {

void end_run(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "fabricheck emulation: %s\n", message.c_str());
  std::fflush(stderr);
  _exit(70);
}

void end_for_missing_call(const char* library, const char* call) {
  end_run(std::string("the stand-in of ") + library + " has no " + call +
          ": on an emulated node only what fabricbench and init call can run");
}

}  // namespace emulation
