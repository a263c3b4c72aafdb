// What of the environment and of a command line may be written down. fabricheck/results/environment.py has the same
// rules, and data/secrets.txt the cases that both are tested with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fabricbench {

// Whether the variable may be recorded: data/variables.txt names it, where nothing else is.
bool is_recorded(std::string_view name);

// Whether a value looks like a credential: user information in a URL, a key word with a value, or random characters.
bool is_secret(std::string_view value);

// The value, or "<redacted>" in its place.
std::string redacted(std::string value);
// A command line without the words that are secret, or follow on an option such as --token.
std::vector<std::string> redacted(std::vector<std::string> words);

}  // namespace fabricbench
