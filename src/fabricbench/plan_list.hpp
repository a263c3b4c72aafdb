// A list of plans that one launch measures, one after the other (docs/methodology.md).
#pragma once

#include <string>
#include <vector>

#include "fabricbench/world.hpp"

namespace fabricbench {

// A line of the list: a folder, then options as on a command line, separated by blanks. The files that the options name
// are relative to the folder.
struct ListedPlan {
  std::string folder;
  std::vector<std::string> arguments;
};

// InputError where the file cannot be read or a line has no options.
std::vector<ListedPlan> read_plans(const std::string& file);

// What a plan leaves in its folder beside its results: `begun`, from when it is never measured again; `plan.out` and
// `plan.err`, what the ranks print; and `exit-status`, once it has ended by itself.
class PlanFolder {
 public:
  // Takes the plan, unless an earlier launch did: `taken`. While this lives the ranks print into the folder, and it is
  // their current directory. Collective.
  PlanFolder(const ListedPlan& plan, const World& world);
  ~PlanFolder();
  PlanFolder(const PlanFolder&) = delete;
  PlanFolder& operator=(const PlanFolder&) = delete;

  bool taken() const { return taken_; }
  // The plan has ended; for rank 0.
  void leave_status(int status) const;

 private:
  std::string folder_;
  std::string before_;
  bool taken_ = false;
  int output_ = -1;
  int errors_ = -1;
};

}  // namespace fabricbench
