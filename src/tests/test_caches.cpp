#include "fabricbench/caches.hpp"

#include <numeric>
#include <vector>

#include "check.hpp"

TEST(memory_that_was_taken_out_of_caches_holds_what_it_held) {
  std::vector<int> data(10000);
  std::iota(data.begin(), data.end(), 0);
  fabricbench::take_out_of_caches(data.data() + 1, 4 * (data.size() - 1));
  for (int i = 0; i < static_cast<int>(data.size()); ++i) CHECK_EQUAL(data[static_cast<std::size_t>(i)], i);
  fabricbench::take_out_of_caches(data.data(), 0);
}
