// Functions by their name while the program runs: those of a library that not every node has, or of one version of it.
#pragma once

#include <dlfcn.h>

#include <string>

namespace fabricbench {

// Null where what this program has loaded has no such function.
template <typename Call>
void find_loaded(Call& call, const char* name) {
  call = reinterpret_cast<Call>(dlsym(RTLD_DEFAULT, name));
}

// Stays loaded until the program ends.
class SharedLibrary {
 public:
  explicit SharedLibrary(const char* name) : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ != nullptr) return;
    const char* reason = dlerror();
    missing_ = reason == nullptr ? name_ + " cannot be loaded" : reason;
  }

  template <typename Call>
  void find(Call& call, const char* name) {
    if (handle_ == nullptr) return;
    call = reinterpret_cast<Call>(dlsym(handle_, name));
    if (call == nullptr && missing_.empty()) missing_ = name_ + " has no " + name;
  }
  // What of it is not there, the library itself or the first function; empty where all is.
  const std::string& missing() const { return missing_; }

 private:
  std::string name_;
  void* handle_;
  std::string missing_;
};

}  // namespace fabricbench
