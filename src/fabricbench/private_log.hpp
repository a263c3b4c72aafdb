// A log file that only this process writes, for what a library is asked to say about itself.
#pragma once

#include <string>

namespace fabricbench {

// The name of a log file in a new directory under TMPDIR (/tmp where it is not set) that nobody else can enter: process
// ids and file names repeat between containers that share a TMPDIR. Empty where no directory can be made. One a
// process.
std::string make_private_log();
// Goes on with the log that this process made under `path` before it restarted itself.
void adopt_private_log(const std::string& path);
// Removes the log and its directory, if there are any. Also from a signal handler, and more than once.
void remove_private_log() noexcept;

}  // namespace fabricbench
