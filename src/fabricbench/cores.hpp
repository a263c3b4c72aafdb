// Whether the ranks of a node have a core each.
#pragma once

#include <vector>

namespace fabricbench {

// `allowed`: the processors that each rank may run on. True where every rank can have one of them for itself. Not the
// number of processors that are online: a job step, a container or a binding may allow far fewer.
bool have_a_core_each(const std::vector<std::vector<int>>& allowed);

}  // namespace fabricbench
