// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>
#include <support/oracles/dice.hpp>

namespace planner_test {

/// Small shapes of all styles.
inline chunkmem::workload::transformer_shape random_shape(support::dice& dice)
{
  chunkmem::workload::transformer_shape it;
  it.style = static_cast<chunkmem::workload::transformer_style>(dice.below(4));
  it.layers = dice.between(1, 4);
  it.kv_heads = dice.between(1, 3);
  it.heads = it.kv_heads * dice.between(1, 3);
  it.hidden = it.heads * dice.between(2, 9);  // a matrix of one column would be taken for a vector
  it.ffn = dice.between(2, 150);
  it.vocabulary = dice.between(1, 400);
  it.embedding = dice.one_in(3) ? dice.between(2, 60) : it.hidden;
  it.sequence = dice.between(1, 40);
  it.positions = dice.one_in(2) ? 0 : it.sequence + dice.below(5);
  it.ties_embedding = dice.one_in(2);
  return it;
}

inline chunkmem::workload::training_setup random_setup(support::dice& dice)
{
  chunkmem::workload::training_setup it{dice.between(1, 4), dice.one_in(2), dice.one_in(2), dice.one_in(2),
                                        !dice.one_in(4)};
  if (dice.one_in(3)) it.sampled = {dice.one_in(2) ? 1 : 0.3, 0.3, dice.one_in(2) ? 1 : 0.1, dice.one_in(2) ? 1 : 0.7};
  return it;
}

}  // namespace planner_test
