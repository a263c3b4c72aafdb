#include "ccl/log.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include "core/description.hpp"

extern char** environ;

namespace emulation::ccl {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string upper(std::string text) {
  for (char& each : text) each = static_cast<char>(std::toupper(static_cast<unsigned char>(each)));
  return text;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const std::string full = name;
  return full.substr(0, full.find('.'));
}

std::FILE* open_output() {
  const std::string given = variable("NCCL_DEBUG_FILE");
  std::string path;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] != '%' || i + 1 == given.size()) {
      path += given[i];
    } else if (given[++i] == 'h') {
      path += host_name();
    } else if (given[i] == 'p') {
      path += std::to_string(getpid());
    } else {
      path += given[i];
    }
  }
  std::FILE* opened = path.empty() ? nullptr : std::fopen(path.c_str(), "w");
  return opened == nullptr ? stdout : opened;
}

std::mutex mutex;
std::FILE* output = nullptr;  // null: opened with the next line

bool is_wanted(Topic topic) {
  if (const std::string level = upper(variable("NCCL_DEBUG")); level != "INFO" && level != "TRACE") return false;
  std::string topics = upper(variable("NCCL_DEBUG_SUBSYS"));
  if (topics.empty()) topics = "INIT,BOOTSTRAP,ENV";
  static const char* const kNames[] = {"INIT", "P2P", "SHM", "NET", "ENV", "REG", "TUNING", "COLL"};
  if (topics.find("ALL") != std::string::npos) return true;
  // Paths of channels are told under INIT too.
  return topics.find(kNames[static_cast<int>(topic)]) != std::string::npos ||
         (topic < Topic::env && topics.find("INIT") != std::string::npos);
}

std::string prefix(int device) {
  return host_name() + ":" + std::to_string(getpid()) + ":" + std::to_string(syscall(SYS_gettid)) + " [" +
         std::to_string(device) + "] NCCL INFO ";
}

void write_line(const std::string& line) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (output == nullptr) output = open_output();
  std::fprintf(output, "%s\n", line.c_str());
  std::fflush(output);
}

}  // namespace

bool is_rccl() { return description().vendor == "amd"; }

int version_number() { return static_cast<int>(version("ccl").integer(22809)); }

std::string version_text() {
  const int number = version_number();
  const int runtime = static_cast<int>(version("runtime").integer(13000));
  const std::string own =
      std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
  if (is_rccl()) {
    return "RCCL version " + own + "+hip" + std::to_string(runtime / 10000000) + "." +
           std::to_string(runtime / 100000 % 100);
  }
  return "NCCL version " + own + "+cuda" + std::to_string(runtime / 1000) + "." + std::to_string(runtime / 10 % 100);
}

bool is_on(const char* name) {
  const std::string value = variable(name);
  return !value.empty() && value != "0";
}

void log_info(Topic topic, int device, const std::string& text) {
  if (is_wanted(topic)) write_line(prefix(device) + text);
}

void read_files() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string library = is_rccl() ? "rccl" : "nccl";
    const std::string given = variable("NCCL_CONF_FILE");
    for (const std::string& name :
         {given.empty() ? variable("HOME") + "/." + library + ".conf" : given, "/etc/" + library + ".conf"}) {
      std::ifstream file(name);
      for (std::string line; std::getline(file, line);) {
        const std::size_t equals = line.find('=');
        if (line.rfind('#', 0) != 0 && equals != std::string::npos && equals > 0)
          setenv(line.substr(0, equals).c_str(), line.substr(equals + 1).c_str(), 0);
      }
    }
  });
}

void begin_log_anew() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (output != nullptr && output != stdout) std::fclose(output);
  output = nullptr;
}

void log_version(int device, int rank) {
  const std::string level = upper(variable("NCCL_DEBUG"));
  if (level.empty()) return;
  if (level == "INFO" || level == "TRACE") {
    write_line(prefix(device) + "emulated node: " + description().system + " in miniature; no GPU is used");
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const std::size_t equals = text.find('=');
      if (text.rfind("NCCL_", 0) != 0 && text.rfind("RCCL_", 0) != 0) continue;
      log_info(Topic::env, device, text.substr(0, equals) + " set by environment to " + text.substr(equals + 1) + ".");
    }
    if (rank == 0) write_line(prefix(device) + version_text());
  } else if (rank == 0) {
    write_line(version_text());
  }
}

}  // namespace emulation::ccl
