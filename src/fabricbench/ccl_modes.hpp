// How NCCL is used beyond its defaults (--ccl-mode), and what its log says of each way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fabricbench/operations.hpp"

namespace fabricbench {

// The buffers: as they are; registered with the communicator (ncclCommRegister); symmetric windows of it
// (ncclCommWindowRegister), which its kernels reach at each rank, or its copy engines with a policy of no CTAs.
enum class CclBuffers { plain, registered, symmetric, copy_engine };

// Their names; the others have a number: graph-20, communicators-2.
inline constexpr char kRegisteredMode[] = "registered";
inline constexpr char kSymmetricMode[] = "symmetric";
inline constexpr char kCopyEngineMode[] = "copy-engine";

struct CclModes {
  CclBuffers buffers = CclBuffers::plain;
  int graph_calls = 0;    // calls that are captured as one CUDA graph, whose launch is an iteration; 0: no graph
  int communicators = 1;  // that share each message, every one on a stream of its own

  bool any() const { return buffers != CclBuffers::plain || graph_calls > 0 || communicators > 1; }
  // Whether the library allocates the buffers: others cannot be registered.
  bool library_memory() const { return buffers != CclBuffers::plain || graph_calls > 0; }
  bool windows() const { return buffers == CclBuffers::symmetric || buffers == CclBuffers::copy_engine; }
};

// "registered,graph-20"; InputError says what is wrong.
CclModes parse_ccl_modes(const std::string& text);
// Their names, in one order; empty for none.
std::vector<std::string> names(const CclModes& modes);

// The oldest NCCL that has what these modes need, as 22700, and what in it they need.
struct CclNeed {
  int version;
  const char* what;
};
CclNeed need_of(const CclModes& modes);

// What the log of some calls says.
struct CclLogFacts {
  bool registered = false;  // a buffer was used where it lies, by another rank or a NIC
  bool symmetric = false;   // a kernel for symmetric windows was chosen
  bool copy_engine = false;
  std::set<std::string> communicators;  // those that were called, each with its stream
};
CclLogFacts facts_in_ccl_log(const std::string& log);

// What was looked for to prove a mode, for a message.
std::string evidence_of(const std::string& mode);

// By mode and operation, of each size whether the mode was in effect on all ranks that can tell. Lines of text, one a
// measurement, carry it from rank to rank.
class CclProof {
 public:
  void add(const std::string& mode, Operation operation, std::uint64_t bytes, bool proven);
  std::string lines() const;
  void add_lines(const std::string& lines);
  // {"registered": {"evidence": "…", "proven": {"allreduce": [65536]}, "unproven": {"allreduce": [16]}}}
  std::string json() const;
  bool empty() const { return found_.empty(); }
  // At how many operations and sizes a mode was in effect.
  long proven(const std::string& mode) const;

 private:
  std::map<std::string, std::map<std::string, std::map<std::uint64_t, bool>>> found_;
};

}  // namespace fabricbench
