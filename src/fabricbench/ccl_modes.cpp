#include "fabricbench/ccl_modes.hpp"

#include <sstream>

#include "fabricbench/errors.hpp"
#include "fabricbench/json.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

constexpr char kGraph[] = "graph-";
constexpr char kCommunicators[] = "communicators-";
constexpr int kMostCalls = 1000;
constexpr int kMostCommunicators = 8;

bool begins_with(const std::string& text, const char* beginning) { return text.rfind(beginning, 0) == 0; }

int number_after(const std::string& name, const char* beginning, int least, int most, const char* what) {
  const std::int64_t number = parse_integer(name.substr(std::string(beginning).size()), least, what);
  if (number > most) throw InputError("'" + name + "' is more than " + std::to_string(most) + " " + what);
  return static_cast<int>(number);
}

void set_buffers(CclModes& modes, CclBuffers buffers, const std::string& name) {
  if (modes.buffers != CclBuffers::plain)
    throw InputError("--ccl-mode has '" + name + "' and another kind of buffers: choose one of them");
  modes.buffers = buffers;
}

bool has(const std::string& line, const char* text) { return line.find(text) != std::string::npos; }

// "… comm 0x55d0 [nranks=2] stream 0x55e8": the two addresses.
std::string called_in(const std::string& line) {
  const std::size_t comm = line.find(" comm 0x");
  const std::size_t stream = line.find(" stream 0x");
  if (comm == std::string::npos || stream == std::string::npos || !has(line, ": opCount ")) return {};
  return line.substr(comm, line.find(' ', comm + 6) - comm) + line.substr(stream);
}

}  // namespace

CclModes parse_ccl_modes(const std::string& text) {
  CclModes modes;
  for (const std::string& name : split(text, ',')) {
    if (name == kRegisteredMode) {
      set_buffers(modes, CclBuffers::registered, name);
    } else if (name == kSymmetricMode) {
      set_buffers(modes, CclBuffers::symmetric, name);
    } else if (name == kCopyEngineMode) {
      set_buffers(modes, CclBuffers::copy_engine, name);
    } else if (begins_with(name, kGraph) && modes.graph_calls == 0) {
      modes.graph_calls = number_after(name, kGraph, 1, kMostCalls, "calls of a graph");
    } else if (begins_with(name, kCommunicators) && modes.communicators == 1) {
      modes.communicators = number_after(name, kCommunicators, 2, kMostCommunicators, "communicators");
    } else {
      throw InputError("there is no mode '" + name +
                       "' of *CCL, or it is given twice: choose from registered, symmetric, copy-engine, graph-N, "
                       "communicators-N");
    }
  }
  if (modes.graph_calls > 0 && modes.communicators > 1)
    throw InputError("one graph holds the calls of one communicator: choose graph-N or communicators-N");
  return modes;
}

std::vector<std::string> names(const CclModes& modes) {
  std::vector<std::string> names;
  if (modes.buffers == CclBuffers::registered) names.emplace_back(kRegisteredMode);
  if (modes.buffers == CclBuffers::symmetric) names.emplace_back(kSymmetricMode);
  if (modes.buffers == CclBuffers::copy_engine) names.emplace_back(kCopyEngineMode);
  if (modes.graph_calls > 0) names.push_back(kGraph + std::to_string(modes.graph_calls));
  if (modes.communicators > 1) names.push_back(kCommunicators + std::to_string(modes.communicators));
  return names;
}

CclNeed need_of(const CclModes& modes) {
  // What proves a mode is read from a log that is turned on and off again, which 2.24 is the first to do.
  if (modes.buffers == CclBuffers::copy_engine) return {22800, "collectives by copy engines"};
  if (modes.buffers == CclBuffers::symmetric) return {22700, "symmetric windows"};
  return {22400, "a log that can be turned on for one call"};
}

CclLogFacts facts_in_ccl_log(const std::string& log) {
  CclLogFacts facts;
  std::istringstream stream(log);
  for (std::string line; std::getline(stream, line);) {
    const bool used = has(line, " IPC register buffer ") || has(line, " IPC registered buffer ") ||
                      has(line, " IPC reuse buffer ") || has(line, " NET register userbuff ") ||
                      has(line, " NET reuse buffer ") || has(line, " COLLNET register userbuff ") ||
                      has(line, " COLLNET reuse register ") || has(line, " registered NVLS ");
    facts.registered = facts.registered || (used && !has(line, " failed to "));
    facts.symmetric = facts.symmetric || has(line, " [Symmetric]: ");
    facts.copy_engine = facts.copy_engine || has(line, " Init CE, rank ");
    if (const std::string called = called_in(line); !called.empty()) facts.communicators.insert(called);
  }
  return facts;
}

std::string evidence_of(const std::string& mode) {
  if (mode == kRegisteredMode) return "a line of NCCL_DEBUG_SUBSYS=REG such as 'IPC register buffer' from each rank";
  if (mode == kSymmetricMode) return "a line of NCCL_DEBUG_SUBSYS=TUNING with '[Symmetric]' and the kernel";
  if (mode == kCopyEngineMode)
    return "the line 'Init CE' in NCCL's log, and copies but no kernel in a graph of one call";
  if (begins_with(mode, kGraph)) return "a node of the captured graph for each call";
  return "lines of NCCL_DEBUG_SUBSYS=COLL that name so many communicators and streams";
}

void CclProof::add(const std::string& mode, Operation operation, std::uint64_t bytes, bool proven) {
  const auto [place, is_new] = found_[mode][to_string(operation)].emplace(bytes, proven);
  if (!is_new) place->second = place->second && proven;
}

std::string CclProof::lines() const {
  std::string text;
  for (const auto& [mode, operations] : found_) {
    for (const auto& [operation, sizes] : operations) {
      for (const auto& [bytes, proven] : sizes)
        text += mode + ' ' + operation + ' ' + std::to_string(bytes) + (proven ? " 1\n" : " 0\n");
    }
  }
  return text;
}

void CclProof::add_lines(const std::string& lines) {
  std::istringstream stream(lines);
  std::string mode;
  std::string operation;
  std::uint64_t bytes = 0;
  for (bool proven = false; stream >> mode >> operation >> bytes >> proven;)
    add(mode, parse_operation(operation), bytes, proven);
}

long CclProof::proven(const std::string& mode) const {
  long count = 0;
  if (const auto place = found_.find(mode); place != found_.end()) {
    for (const auto& [operation, sizes] : place->second) {
      for (const auto& [bytes, proven] : sizes) count += proven ? 1 : 0;
    }
  }
  return count;
}

std::string CclProof::json() const {
  Json json;
  json.begin_object();
  for (const auto& [mode, operations] : found_) {
    json.key(mode).begin_object().field("evidence", evidence_of(mode));
    for (const bool wanted : {true, false}) {
      json.key(wanted ? "proven" : "unproven").begin_object();
      for (const auto& [operation, sizes] : operations) {
        std::vector<std::uint64_t> chosen;
        for (const auto& [bytes, proven] : sizes) {
          if (proven == wanted) chosen.push_back(bytes);
        }
        if (!chosen.empty()) json.field(operation, chosen);
      }
      json.end_object();
    }
    json.end_object();
  }
  return json.end_object().text();
}

}  // namespace fabricbench
