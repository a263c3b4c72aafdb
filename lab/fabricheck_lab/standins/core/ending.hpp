// How a run ends that asks a stand-in for what it does not have.
#pragma once

#include <string>

namespace emulation {

// Says "fabricheck emulation: <message>" on stderr and ends the process with exit status 70.
[[noreturn]] void end_run(const std::string& message);

// Ends the run: the stand-in of `library` has no `call`.
[[noreturn]] void end_for_missing_call(const char* library, const char* call);

}  // namespace emulation
