// The least that a unit test needs.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace check {

struct Test {
  std::string name;
  std::function<void()> body;
};
std::vector<Test>& tests();
void failed(const char* file, int line, const std::string& what);

struct Register {
  Register(const char* name, std::function<void()> body) { tests().push_back({name, std::move(body)}); }
};

template <typename Exception, typename Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Exception& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace check

#define TEST(name)                                           \
  static void name();                                        \
  static const check::Register register_##name(#name, name); \
  static void name()
#define CHECK(condition) \
  if (!(condition)) check::failed(__FILE__, __LINE__, #condition)
#define CHECK_EQUAL(actual, wanted) \
  if (!((actual) == (wanted))) check::failed(__FILE__, __LINE__, #actual " == " #wanted)
