#pragma once

#include <chunkmem/tensor/gradient_policy.hpp>
#include <support/catch.hpp>

namespace conformance {

/// The laws of gradient_policy: a gradient is of the parameter's type or float32; of the parameter's where it takes its
/// slot.
template <chunkmem::gradient_policy Gradient>
void gradient_policy_laws(const Gradient& gradient = {})
{
  using namespace chunkmem;
  const Gradient copy = gradient;
  CHECK_FALSE(Gradient::name.empty());
  for (int round = 0; round < 2; ++round) {
    for (const dtype parameter : {dtype::float32, dtype::bfloat16, dtype::float16}) {
      INFO(Gradient::name << " for " << name_of(parameter));
      const dtype type = gradient.type_for(parameter);
      CHECK((type == parameter || type == dtype::float32));
      if (gradient.takes_slot()) CHECK(type == parameter);
      CHECK(copy.type_for(parameter) == type);
    }
    CHECK(copy.takes_slot() == gradient.takes_slot());
  }
}

}  // namespace conformance
