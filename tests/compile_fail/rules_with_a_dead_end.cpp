// expect: is_connected
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor_rules.hpp>

struct dead_end {
  using policy_kind = chunkmem::rules_kind;
  static constexpr std::string_view name = "dead_end";
  using enum chunkmem::tensor_state;
  using enum chunkmem::tensor_event;
  static constexpr chunkmem::transition table[] = {
      {free, materialize, hold},
#ifdef CHUNKMEM_COMPILES
      {hold, drop, free},
#endif
  };
};

static_assert(chunkmem::state_machine<dead_end>::is_legal(chunkmem::tensor_state::free,
                                                          chunkmem::tensor_event::materialize));
