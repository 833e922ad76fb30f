// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor_label.hpp>

#include <support/catch.hpp>

#include <string>

namespace tensor_label_test {

using namespace chunkmem;

TEST_CASE("a message calls a tensor by its name, or by its number where it has none", "[tensor]")
{
  error_text named, numbered;
  named << tensor_label{tensor_id{3}, "blocks.0.query", "gradient"};
  numbered << tensor_label{tensor_id{3}, {}, "value"};
  CHECK(named.view() == "tensor 'blocks.0.query' (gradient)");
  CHECK(numbered.view() == "tensor 3 (value)");
}

}  // namespace tensor_label_test
