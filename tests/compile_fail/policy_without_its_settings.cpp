// expect: a policy of this manager needs settings: pass a value of this policy to the constructor
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/basic_manager.hpp>

struct strict {
  explicit strict(int given) : value{given} {}
  int value;
};

int window()
{
#ifdef CHUNKMEM_COMPILES
  return chunkmem::policy_value<strict>(strict{3}).value;
#else
  return chunkmem::policy_value<strict>().value;
#endif
}
