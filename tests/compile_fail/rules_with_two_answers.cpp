// expect: is_deterministic
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor_rules.hpp>

struct two_answers {
  using policy_kind = chunkmem::rules_kind;
  static constexpr std::string_view name = "two_answers";
  using enum chunkmem::tensor_state;
  using enum chunkmem::tensor_event;
  static constexpr chunkmem::transition table[] = {
      {free, materialize, hold},
      {hold, drop, free},
#ifndef CHUNKMEM_COMPILES
      {hold, drop, hold},
#endif
  };
};

static_assert(chunkmem::state_machine<two_answers>::is_legal(chunkmem::tensor_state::hold,
                                                             chunkmem::tensor_event::drop));
