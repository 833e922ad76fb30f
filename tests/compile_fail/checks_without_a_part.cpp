// expect: chunkmem: a check policy lacks something
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/manager/manager.hpp>

#include <string_view>

#ifdef CHUNKMEM_COMPILES
#define PART part
#else
#define PART prat
#endif

struct newcomer {
  using policy_kind = chunkmem::checks_kind;
  static constexpr std::string_view name = "newcomer";
  static constexpr bool is_on = true;
  using PART = chunkmem::checks::no_checks;
};

chunkmem::manager<chunkmem::backend::simulated, newcomer>* made = nullptr;
