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
// The name of this process's log; empty where there is none.
std::string private_log();
// What libraries have written into it, also before they began it anew; empty where there is no log.
std::string read_private_log();
// Only since then.
std::string read_new_private_log();
// Keeps what is in the log for read_private_log(): a library is about to begin the file anew.
void set_private_log_aside();
// What is in the log so far is of no plan that is still to come.
void forget_private_log();
// Removes the log and its directory, if there are any. Also from a signal handler, and more than once.
void remove_private_log() noexcept;

// While it lives, what libraries print goes into the log, if there is one, and no further: for a library that has no
// file for it. What it printed before a failure is lost with it, and its errors come as exceptions.
class PrintsIntoLog {
 public:
  PrintsIntoLog();
  ~PrintsIntoLog();
  PrintsIntoLog(const PrintsIntoLog&) = delete;
  PrintsIntoLog& operator=(const PrintsIntoLog&) = delete;

 private:
  int output_ = -1;
};

}  // namespace fabricbench
