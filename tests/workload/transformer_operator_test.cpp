// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/transformer_operator.hpp>

#include <support/catch.hpp>

#include <cstddef>
#include <set>
#include <string_view>

namespace transformer_operator_test {

using namespace chunkmem::workload;

TEST_CASE("each operator has a name of its own, and eight of them are in a layer", "[workload]")
{
  std::set<std::string_view> names;
  std::size_t in_layer = 0;
  for (std::size_t which = 0; which < transformer_operator_count; ++which) {
    names.insert(name_of(static_cast<transformer_operator>(which)));
    in_layer += is_in_layer(static_cast<transformer_operator>(which)) ? 1 : 0;
  }
  CHECK(names.size() == transformer_operator_count);
  CHECK(in_layer == 8);
  STATIC_REQUIRE(static_cast<std::size_t>(transformer_operator::loss) + 1 == transformer_operator_count);
  STATIC_REQUIRE(!is_in_layer(transformer_operator::embedding));
  STATIC_REQUIRE(!is_in_layer(transformer_operator::final_norm));
  STATIC_REQUIRE(name_of(transformer_operator::qkv) == "qkv");
  STATIC_REQUIRE(name_of(transformer_operator::mlp_down) == "mlp_down");
  STATIC_REQUIRE(name_of(transformer_operator::loss) == "loss");
}

}  // namespace transformer_operator_test
