// The log that NCCL writes with NCCL_DEBUG, to the file that NCCL_DEBUG_FILE names or to stdout.
#pragma once

#include <string>

namespace emulation::ccl {

enum class Topic { init, p2p, shm, net, env, reg, tuning, coll };

// "host:pid:tid [device] NCCL INFO <text>", where level and subsystem are asked for.
void log_info(Topic topic, int device, const std::string& text);
void log_version(int device, int rank);
// The next line begins the file anew, under the name that NCCL_DEBUG_FILE has then.
void begin_log_anew();

// Puts what stands in the user's file and in that of the machine into the environment, where it is not set: once.
void read_files();

// NCCL or RCCL: which of the two this library stands in for.
bool is_rccl();
int version_number();
std::string version_text();
bool is_on(const char* variable);

}  // namespace emulation::ccl
