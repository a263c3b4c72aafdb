#include <cstdio>

#include "check.hpp"

namespace check {
namespace {
int failures = 0;
}
std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}
void failed(const char* file, int line, const std::string& what) {
  ++failures;
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what.c_str());
}
}  // namespace check

int main() {
  int failed_tests = 0;
  for (const check::Test& test : check::tests()) {
    const int before = check::failures;
    test.body();
    if (check::failures != before) {
      ++failed_tests;
      std::fprintf(stderr, "FAILED %s\n", test.name.c_str());
    }
  }
  std::printf("%zu passed, %d failed\n", check::tests().size() - static_cast<std::size_t>(failed_tests), failed_tests);
  return failed_tests == 0 && !check::tests().empty() ? 0 : 1;
}
