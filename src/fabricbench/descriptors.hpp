// File descriptors of other processes of this user, by which drivers pass memory on.
#pragma once

#include <cstdint>

namespace fabricbench {

// Lets the other processes fetch descriptors of this one, which Yama forbids otherwise.
void let_descriptors_be_fetched();
// A descriptor of this process for the file that `theirs` is in the other one. Throws RunError.
int fetch_descriptor(std::int32_t pid, int theirs);

}  // namespace fabricbench
