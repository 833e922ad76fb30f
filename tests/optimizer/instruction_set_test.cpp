// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <support/catch.hpp>

namespace instruction_set_test {

namespace cm = chunkmem;
using cm::optimizer::instruction_set;

TEST_CASE("instruction sets have names and grow", "[optimizer]")
{
  CHECK(name_of(instruction_set::baseline) == "baseline");
  CHECK(name_of(instruction_set::avx2) == "avx2");
  CHECK(name_of(instruction_set::avx512) == "avx512");
  CHECK(name_of(instruction_set::avx512_bf16) == "avx512_bf16");
  CHECK(cm::optimizer::is_available(instruction_set::baseline));
  CHECK(cm::optimizer::is_available(cm::optimizer::best_instruction_set()));
  for (const instruction_set set : cm::optimizer::instruction_sets)
    CHECK(cm::optimizer::is_available(set) == (set <= cm::optimizer::best_instruction_set()));
  CHECK(cm::optimizer::best_instruction_set() == cm::optimizer::best_instruction_set());
}

}  // namespace instruction_set_test
