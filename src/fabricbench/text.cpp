#include "fabricbench/text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "fabricbench/errors.hpp"

namespace fabricbench {
namespace {

struct Unit {
  const char* name;
  int shift;
};
constexpr Unit kUnits[] = {{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};

}  // namespace

std::uint64_t parse_size(std::string_view text) {
  // More than any memory, and far enough below 2^64 to be multiplied by some thousand.
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error == std::errc{} && number > 0) {
    for (const Unit& unit : kUnits) {
      if ((suffix == unit.name || (suffix.empty() && unit.shift == 0)) && number <= (kMostBytes >> unit.shift)) {
        return number << unit.shift;
      }
    }
  }
  throw InputError("'" + std::string(text) +
                   "' is not a size: give a whole number with B, KiB, MiB or GiB, 1048576GiB at most");
}

std::string format_size(std::uint64_t bytes) {
  int unit = 3;
  while (unit > 0 && bytes < (1ULL << kUnits[unit].shift)) --unit;
  char buffer[32];
  const double value = static_cast<double>(bytes) / static_cast<double>(1ULL << kUnits[unit].shift);
  std::snprintf(buffer, sizeof buffer, "%.4g %s", value, kUnits[unit].name);
  return buffer;
}

std::vector<std::uint64_t> parse_sizes(std::string_view text) {
  std::vector<std::uint64_t> sizes;
  if (const auto parts = split(text, ':'); parts.size() > 1) {
    if (parts.size() > 3)
      throw InputError("'" + std::string(text) + "' is not a range of sizes: give MIN:MAX or MIN:MAX:FACTOR");
    const std::uint64_t minimum = parse_size(parts[0]);
    const std::uint64_t maximum = parse_size(parts[1]);
    const auto factor = parts.size() == 3
                            ? static_cast<std::uint64_t>(parse_integer(parts[2], 2, "the factor of a range of sizes"))
                            : 2;
    if (minimum > maximum)
      throw InputError("the range of sizes '" + std::string(text) + "' is empty: its minimum is above its maximum");
    for (std::uint64_t size = minimum; size <= maximum; size *= factor) {
      sizes.push_back(size);
      if (size > maximum / factor) break;
    }
  } else {
    for (const std::string& part : split(text, ',')) sizes.push_back(parse_size(part));
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  }
  return sizes;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t start = 0;;) {
    const std::size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string result;
  for (const std::string& part : parts) {
    if (!result.empty()) result += separator;
    result += part;
  }
  return result;
}

std::int64_t parse_integer(std::string_view text, std::int64_t minimum, std::string_view what) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < minimum) {
    throw InputError("'" + std::string(text) + "' is not " + std::string(what) + ": give a whole number of at least " +
                     std::to_string(minimum));
  }
  return number;
}

double parse_positive(std::string_view text, std::string_view what) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  if (copy.empty() || *end != '\0' || !std::isfinite(number) || number <= 0) {
    throw InputError("'" + copy + "' is not " + std::string(what) + ": give a number above 0");
  }
  return number;
}

std::string format_ranges(const std::vector<int>& numbers) {
  std::string result;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    if (!result.empty()) result += ',';
    result += std::to_string(numbers[i]);
    if (j > i) result += '-' + std::to_string(numbers[j]);
    i = j + 1;
  }
  return result;
}

std::vector<int> parse_ranges(std::string_view text) {
  std::vector<int> result;
  for (const std::string& part : split(text, ',')) {
    int first = 0;
    int last = 0;
    const int fields = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (fields < 1) return {};
    for (int number = first; number <= (fields == 2 ? last : first); ++number) result.push_back(number);
  }
  return result;
}

}  // namespace fabricbench
