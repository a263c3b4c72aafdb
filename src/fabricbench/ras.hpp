// What NCCL's RAS subsystem (NCCL >= 2.24) knows of a job that hangs: which processes do not answer, and which ranks
// are behind. https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
#pragma once

#include <chrono>
#include <string>

namespace fabricbench {

constexpr std::chrono::milliseconds kRasLimit{4000};

// Where RAS listens on this node, by NCCL_RAS_ADDR; empty where NCCL_RAS_ENABLE has turned it off.
std::string ras_address();

// The job status in RAS's own text. Empty where nobody listens at `address` (HOST:PORT or [IPv6]:PORT), where what
// answers is not RAS or tells of a job that has not as many `processes`, and after `limit`. Does not throw.
std::string ask_ras(const std::string& address, int processes, std::chrono::milliseconds limit = kRasLimit) noexcept;

// How many processes the job of such a status has; -1 where it does not say.
int ras_processes(const std::string& status);

// The errors and warnings of such a status, in one line of at most 1500 printable characters.
std::string ras_problems(const std::string& status);

}  // namespace fabricbench
