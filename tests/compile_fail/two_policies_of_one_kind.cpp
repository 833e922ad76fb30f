// expect: two policies of one kind: keep one of them
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/policy.hpp>

#include <string_view>

struct first_rule {
  using policy_kind = chunkmem::eviction_kind;
  static constexpr std::string_view name = "first_rule";
};
struct second_rule {
  using policy_kind = chunkmem::eviction_kind;
  static constexpr std::string_view name = "second_rule";
};

using accepted = chunkmem::detail::accepts<chunkmem::eviction_kind, chunkmem::transfer_kind>;

#ifdef CHUNKMEM_COMPILES
static_assert(accepted::check<first_rule>());
#else
static_assert(accepted::check<first_rule, second_rule>());
#endif
