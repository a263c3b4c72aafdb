#include "check.hpp"
#include "fabricbench/cores.hpp"

using namespace fabricbench;

TEST(ranks_that_are_bound_to_one_core_do_not_have_one_each) {
  CHECK(have_a_core_each({{0}, {1}, {2}}));
  CHECK(!have_a_core_each({{3}, {3}}));
  CHECK(!have_a_core_each({{0, 1}, {0, 1}, {0, 1}}));
}

TEST(a_rank_moves_to_another_core_for_one_that_cannot) {
  CHECK(have_a_core_each({{0, 1}, {0}}));
  CHECK(have_a_core_each({{0, 1, 2}, {0, 1}, {0}}));
  // As many processors as ranks, and yet three of them share two.
  CHECK(!have_a_core_each({{0, 1}, {0, 1}, {0, 1}, {2, 3}}));
}

TEST(a_rank_without_a_core_has_none) {
  CHECK(have_a_core_each({}));
  CHECK(!have_a_core_each({{}}));
}
