// How the communication libraries of this process are set: by default, by a file, or by a variable.
#pragma once

#include <map>
#include <string>

namespace fabricbench {

// Values by the environment variable that sets them: those that MPI shows (MPI_T; of Open MPI its MCA parameters), and
// those of UCP, libfabric and NCCL, where they are loaded. A value that changes while the program runs is as it is now.
std::map<std::string, std::string> library_settings();

}  // namespace fabricbench
