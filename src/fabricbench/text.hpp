// Sizes, lists and numbers as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fabricbench {

// "1GiB", "64KiB", "8B" or "8" in bytes; InputError where it is anything else.
std::uint64_t parse_size(std::string_view text);

// "8 B", "64 KiB", "1.5 MiB".
std::string format_size(std::uint64_t bytes);

// A range "MIN:MAX[:FACTOR]" (FACTOR is 2 where it is not given) or a list "8,1MiB,1GiB", in ascending order.
std::vector<std::uint64_t> parse_sizes(std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// A whole number of at least `minimum`; `what` names it in the error.
std::int64_t parse_integer(std::string_view text, std::int64_t minimum, std::string_view what);
double parse_positive(std::string_view text, std::string_view what);

// "0-3,8" for {0, 1, 2, 3, 8}.
std::string format_ranges(const std::vector<int>& numbers);
// The other way round, as the kernel writes lists; nothing of what is no such list.
std::vector<int> parse_ranges(std::string_view text);

// The digits of a number of at least 0 without any call, as a signal handler needs it.
class Digits {
 public:
  explicit Digits(int number) noexcept : first_(text_ + sizeof text_) {
    do {
      *--first_ = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
  }
  Digits(const Digits&) = delete;
  Digits& operator=(const Digits&) = delete;
  const char* data() const noexcept { return first_; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(text_ + sizeof text_ - first_); }

 private:
  char text_[12];
  char* first_;
};

}  // namespace fabricbench
