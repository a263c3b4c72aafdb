#include "fabricbench/plan_list.hpp"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "fabricbench/errors.hpp"
#include "fabricbench/inputs.hpp"

namespace fabricbench {
namespace {

// Where `stream` wrote before; -1 where the file cannot be opened, and it goes on writing there.
int redirect(std::FILE* stream, const std::string& path) {
  std::fflush(stream);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0) return -1;
  const int before = fcntl(fileno(stream), F_DUPFD_CLOEXEC, 0);
  dup2(file, fileno(stream));
  close(file);
  return before;
}

void restore(std::FILE* stream, int before) {
  if (before < 0) return;
  std::fflush(stream);
  dup2(before, fileno(stream));
  close(before);
}

}  // namespace

std::vector<ListedPlan> read_plans(const std::string& file) {
  std::istringstream stream(read_input(file, "--plans"));
  std::vector<ListedPlan> plans;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    ListedPlan plan;
    if (!(words >> plan.folder)) continue;
    for (std::string word; words >> word;) plan.arguments.push_back(word);
    if (plan.arguments.empty()) throw InputError("--plans " + file + " has no options for " + plan.folder);
    plans.push_back(plan);
  }
  if (plans.empty()) throw InputError("--plans " + file + " has no plan");
  return plans;
}

PlanFolder::PlanFolder(const ListedPlan& plan, const World& world) : folder_(plan.folder) {
  enum Claim : int { kTaken, kOurs, kUnwritable };
  int claim = kTaken;
  if (world.rank == 0) {
    const int begun = open((folder_ + "/begun").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    claim = begun >= 0 ? kOurs : errno == EEXIST ? kTaken : kUnwritable;
    if (begun >= 0) close(begun);
  }
  mpi_check(MPI_Bcast(&claim, 1, MPI_INT, 0, world.all), "MPI_Bcast");
  if (claim == kUnwritable) throw InputError("--plans: nothing can be written into " + folder_);
  taken_ = claim == kTaken;
  if (taken_) return;
  output_ = redirect(stdout, folder_ + "/plan.out");
  errors_ = redirect(stderr, folder_ + "/plan.err");
  char directory[PATH_MAX] = "";
  if (getcwd(directory, sizeof directory) != nullptr && chdir(folder_.c_str()) == 0) before_ = directory;
}

PlanFolder::~PlanFolder() {
  restore(stdout, output_);
  restore(stderr, errors_);
  if (!before_.empty() && chdir(before_.c_str()) != 0)
    std::fprintf(stderr, "fabricbench: %s is gone\n", before_.c_str());
}

void PlanFolder::leave_status(int status) const {
  const std::string path = folder_ + "/exit-status";
  std::ofstream(path + ".new") << status << '\n';
  std::rename((path + ".new").c_str(), path.c_str());
}

}  // namespace fabricbench
