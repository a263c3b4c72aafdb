#include "fabricbench/device/content.hpp"

namespace fabricbench::device {

void fill_on_host(const pattern::Stretch& stretch, const pattern::Pattern& pattern, Content content, bool inverted,
                  bool stamps_only) {
  const std::uint64_t flip = inverted ? ~std::uint64_t{0} : 0;
  const pattern::Words words = words_of(stretch, pattern.stride, stamps_only);
  for (std::uint64_t word = words.first; word < words.end; word += words.step) {
    if (content == Content::numbers) {
      write_numbers(stretch, word, pattern);
    } else {
      write_bytes(stretch, word, pattern, flip);
    }
  }
}

std::uint64_t count_wrong_on_host(const pattern::Check& check) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < check.number; ++i) wrong += wrong_in_stretch(check, i, 0, 1);
  return wrong;
}

}  // namespace fabricbench::device
