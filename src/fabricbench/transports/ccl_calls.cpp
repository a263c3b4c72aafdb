#include "fabricbench/transports/ccl_calls.hpp"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "fabricbench/private_log.hpp"
#include "fabricbench/proof_logs.hpp"
#include "fabricbench/secrets.hpp"
#include "fabricbench/shared_library.hpp"
#include "fabricbench/text.hpp"

// NCCL brings CUDA's runtime along, also where the rest is HIP on NVIDIA.
#if defined(FABRICBENCH_AMD)
#define GRAPH_NAME(name) hip##name
#else
#define GRAPH_NAME(name) cuda##name
#endif

namespace fabricbench {
namespace {

constexpr char kSubsystems[] = "NCCL_DEBUG_SUBSYS";

CclCalls find_calls() {
  CclCalls calls{};
  find_loaded(calls.allocate, "ncclMemAlloc");
  find_loaded(calls.release, "ncclMemFree");
  find_loaded(calls.enter_by_roots, "ncclCommInitRankScalable");
  find_loaded(calls.split, "ncclCommSplit");
  find_loaded(calls.enroll, "ncclCommRegister");
  find_loaded(calls.strike_off, "ncclCommDeregister");
  find_loaded(calls.make_window, "ncclCommWindowRegister");
  find_loaded(calls.close_window, "ncclCommWindowDeregister");
  find_loaded(calls.last_error, "ncclGetLastError");
  // No part of the API any longer, and its name before.
  find_loaded(calls.read_log_variables_again, "ncclResetDebugInitInternal");
  if (calls.read_log_variables_again == nullptr) find_loaded(calls.read_log_variables_again, "ncclResetDebugInit");
  return calls;
}

void check(GRAPH_NAME(Error_t) result, const char* call) {
  if (result == GRAPH_NAME(Success)) return;
  throw RunError("library", std::string(call) + " failed: " + GRAPH_NAME(GetErrorString)(result));
}

}  // namespace

const CclCalls& ccl_calls() {
  static const CclCalls calls = find_calls();
  return calls;
}

std::string words_of_ccl() {
  const char* last = ccl_calls().last_error == nullptr ? nullptr : ccl_calls().last_error(nullptr);
  std::string said = warnings_in_ccl_log(read_private_log());
  if (said.empty() && last != nullptr) said = last;
  return said.empty() ? "" : "; the library says: " + redacted(said);
}

CclListener::CclListener() {
  if (private_log().empty()) return;
  const char* before = std::getenv(kSubsystems);
  before_ = before == nullptr ? "" : before;
  // NCCL begins its file anew when it reads its variables again, which it does with its next line.
  set_private_log_aside();
  setenv(kSubsystems, (before_ + ",REG,TUNING,COLL").c_str(), 1);
  ccl_calls().read_log_variables_again();
}

CclListener::~CclListener() {
  if (private_log().empty()) return;
  set_private_log_aside();
  setenv(kSubsystems, before_.c_str(), 1);
  ccl_calls().read_log_variables_again();
}

std::string CclListener::heard() const { return read_new_private_log(); }

GpuGraph::~GpuGraph() {
  if (executable_ != nullptr) (void)GRAPH_NAME(GraphExecDestroy)(static_cast<GRAPH_NAME(GraphExec_t)>(executable_));
  if (graph_ != nullptr) (void)GRAPH_NAME(GraphDestroy)(static_cast<GRAPH_NAME(Graph_t)>(graph_));
}

void GpuGraph::begin() {
  // Other threads of NCCL may allocate memory meanwhile.
  check(GRAPH_NAME(StreamBeginCapture)(stream_, GRAPH_NAME(StreamCaptureModeThreadLocal)), "StreamBeginCapture");
}

void GpuGraph::end() {
  GRAPH_NAME(Graph_t) graph = nullptr;
  check(GRAPH_NAME(StreamEndCapture)(stream_, &graph), "StreamEndCapture");
  graph_ = graph;
  check(GRAPH_NAME(GraphGetNodes)(graph, nullptr, &nodes_), "GraphGetNodes");
  std::vector<GRAPH_NAME(GraphNode_t)> nodes(nodes_);
  check(GRAPH_NAME(GraphGetNodes)(graph, nodes.data(), &nodes_), "GraphGetNodes");
  for (const auto& node : nodes) {
    // The runtime has no name for some nodes that the driver has, none of which is a kernel.
    GRAPH_NAME(GraphNodeType) type{};
    if (GRAPH_NAME(GraphNodeGetType)(node, &type) != GRAPH_NAME(Success)) {
      (void)GRAPH_NAME(GetLastError)();
    } else if (type == GRAPH_NAME(GraphNodeTypeKernel)) {
      ++kernels_;
    }
  }
  GRAPH_NAME(GraphExec_t) executable = nullptr;
  check(GRAPH_NAME(GraphInstantiateWithFlags)(&executable, graph, 0), "GraphInstantiate");
  executable_ = executable;
}

void GpuGraph::launch() {
  check(GRAPH_NAME(GraphLaunch)(static_cast<GRAPH_NAME(GraphExec_t)>(executable_), stream_), "GraphLaunch");
}

}  // namespace fabricbench
