#include "fabricbench/private_log.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

namespace fabricbench {
namespace {

constexpr char kFile[] = "/libraries.log";

// Plain characters, since a signal handler reads them. `made` is set last, once both are whole.
char directory[PATH_MAX] = "";
char log_file[PATH_MAX] = "";
std::atomic<bool> made{false};

// What was in the log before a library began it anew.
std::string& aside() {
  static std::string text;
  return text;
}

// Of the file, what belongs to an earlier plan.
std::streamoff skipped = 0;

std::string read_log_file() {
  if (!made.load()) return {};
  // Libraries write through stdio, and have not closed their file yet.
  std::fflush(nullptr);
  std::ifstream file(log_file);
  file.seekg(skipped);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

}  // namespace

std::string make_private_log() {
  const char* parent = std::getenv("TMPDIR");
  const std::string pattern =
      std::string(parent == nullptr || *parent == '\0' ? "/tmp" : parent) + "/fabricbench.XXXXXX";
  if (pattern.size() + sizeof kFile > sizeof log_file) return {};
  std::string name = pattern;
  if (mkdtemp(name.data()) == nullptr) return {};
  adopt_private_log(name + kFile);
  return log_file;
}

void adopt_private_log(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos || path.size() >= sizeof log_file) return;
  std::snprintf(log_file, sizeof log_file, "%s", path.c_str());
  std::snprintf(directory, sizeof directory, "%s", path.substr(0, slash).c_str());
  made.store(true);
}

std::string private_log() { return made.load() ? log_file : ""; }

std::string read_private_log() { return aside() + read_log_file(); }

std::string read_new_private_log() { return read_log_file(); }

void set_private_log_aside() {
  aside() += read_log_file();
  skipped = 0;
}

void forget_private_log() {
  skipped += static_cast<std::streamoff>(read_log_file().size());
  aside().clear();
}

PrintsIntoLog::PrintsIntoLog() {
  if (!made.load()) return;
  std::fflush(stdout);
  const int log = open(log_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (log < 0) return;
  output_ = dup(STDOUT_FILENO);
  if (output_ >= 0) dup2(log, STDOUT_FILENO);
  close(log);
}

PrintsIntoLog::~PrintsIntoLog() {
  if (output_ < 0) return;
  std::fflush(stdout);
  std::cout.flush();
  dup2(output_, STDOUT_FILENO);
  close(output_);
}

void remove_private_log() noexcept {
  if (!made.exchange(false)) return;
  unlink(log_file);
  rmdir(directory);
}

}  // namespace fabricbench
