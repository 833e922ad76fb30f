// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/named_transformers.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/sanitized.hpp>
#include "training_tape.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string_view>

namespace transformer_costs_test {

using namespace chunkmem;
using namespace chunkmem::workload;
using enum transformer_operator;

namespace {

transformer_shape random_shape(support::dice& dice)
{
  transformer_shape it;
  it.style = static_cast<transformer_style>(dice.below(4));
  it.layers = dice.between(1, 4);
  it.kv_heads = dice.between(1, 3);
  it.heads = it.kv_heads * dice.between(1, 3);
  it.hidden = it.heads * dice.between(1, 9);
  it.ffn = dice.between(1, 150);
  it.vocabulary = dice.between(1, 400);
  it.embedding = dice.one_in(3) ? dice.between(1, 60) : it.hidden;
  it.sequence = dice.between(1, 40);
  it.positions = dice.one_in(2) ? 0 : it.sequence + dice.below(5);
  it.ties_embedding = dice.one_in(2);
  if (dice.one_in(3)) it.head_width = dice.between(1, 12);
  if (dice.one_in(4)) it.experts = dice.between(2, 6), it.experts_for_token = dice.between(1, 2);
  if (it.style != transformer_style::llama) return it;
  it.has_qkv_biases = dice.one_in(2);
  it.norms_heads = dice.one_in(2);
  return it;
}

training_setup random_setup(support::dice& dice)
{
  training_setup it{dice.between(1, 4), dice.one_in(2), dice.one_in(2), dice.one_in(2), !dice.one_in(4)};
  constexpr double ratios[] = {0.02, 0.1, 0.3, 0.6, 0.99, 1};
  if (dice.one_in(2))
    for (double* const each : {&it.sampled.qkv, &it.sampled.projection, &it.sampled.mlp_up, &it.sampled.mlp_down})
      *each = dice.one_in(2) ? 1 : ratios[dice.below(6)];
  return it;
}

/// Elements of the matrices that a token meets: each costs two FLOP forward and four backward.
std::uint64_t matrix_elements(const transformer_shape& shape)
{
  std::uint64_t sum = shape.ties_embedding ? shape.vocabulary * shape.embedding : 0;
  for (const transformer_tensor& it : tensors_of(shape)) {
    const bool is_table = it.part == embedding &&
                          !(it.rows == shape.embedding && it.columns == shape.hidden && shape.projects_embedding());
    if (it.columns > 1 && !is_table) sum += it.elements();
  }
  return sum;
}

}  // namespace

TEST_CASE("bytes and FLOP equal those of a step that is walked tensor by tensor", "[workload]")
{
  support::dice dice{20'261'122};
  for (int round = 0; round < (support::sanitized ? 500 : 3'000); ++round) {
    const transformer_shape shape = random_shape(dice);
    training_setup setup = random_setup(dice);
    if (shape.experts != 0) setup.sampled.mlp_up = setup.sampled.mlp_down = 1;
    CAPTURE(round, shape.head_width, shape.experts, shape.experts_for_token, shape.norms_heads, name_of(shape.style),
            shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.ffn, shape.vocabulary, shape.embedding,
            shape.sequence, setup.micro_batch, setup.recomputes_layers, setup.fuses_attention, setup.has_dropout,
            setup.has_logits, setup.sampled.qkv, setup.sampled.projection, setup.sampled.mlp_up,
            setup.sampled.mlp_down);
    const transformer_costs costs{shape, setup};
    const training_tape::step tape{shape, setup};
    REQUIRE(costs.held().count() == tape.held);
    REQUIRE(costs.peak().count() == tape.peak);
    for (const auto& [which, bytes] : tape.working) {
      CAPTURE(name_of(which));
      REQUIRE(costs.of(which).working.count() == bytes);
    }
    REQUIRE(tape.working.size() == (setup.has_logits ? 11U : 9U) + (shape.has_final_norm() ? 1 : 0));
    REQUIRE((costs.of(loss) == operator_cost{}) == !setup.has_logits);
    REQUIRE(costs.model().forward_flops == tape.forward_flops);
    REQUIRE(costs.model().backward_flops == tape.backward_flops);
    REQUIRE(costs.model().recomputed_flops == tape.recomputed_flops);
    REQUIRE(costs.step_flops(3) == 3 * (tape.forward_flops + tape.backward_flops + tape.recomputed_flops));
    REQUIRE(costs.model_flops(3) == 3 * (tape.forward_flops + tape.backward_flops));
    REQUIRE(costs.tokens(3) == 3 * setup.micro_batch * shape.sequence);
  }
}

TEST_CASE("a step takes six FLOP for each matrix parameter and token, and twelve L h s for each token's attention",
          "[workload]")
{
  for (const named_transformer& it : named_transformers) {
    CAPTURE(it.family, it.name);
    const transformer_shape& s = it.shape;
    const transformer_costs costs{s, {.micro_batch = 2}};
    CHECK(costs.model_flops() ==
          6 * matrix_elements(s) * 2 * s.sequence + 12 * s.layers * s.hidden * s.sequence * 2 * s.sequence);
    // A second forward pass of the layers: four thirds, less what is not in a layer.
    CHECK(costs.step_flops() == costs.model_flops() + s.layers * costs.layer().forward_flops);
  }
}

TEST_CASE("a GPT costs what Korthikanti et al. 2022 say", "[workload]")
{
  for (const named_transformer& it : named_transformers) {
    if (it.shape.style != transformer_style::gpt) continue;
    CAPTURE(it.family, it.name);
    const std::uint64_t s = it.shape.sequence;
    const std::uint64_t h = it.shape.hidden;
    const std::uint64_t a = it.shape.heads;
    const std::uint64_t V = it.shape.vocabulary;
    const std::uint64_t L = it.shape.layers;
    for (const std::uint64_t b : {std::uint64_t{1}, std::uint64_t{8}}) {
      const transformer_costs all{it.shape, {.micro_batch = b, .recomputes_layers = false}};
      // 72 B L s h^2 (1 + s / 6h + V / 12hL)
      CHECK(all.model_flops() == 72 * b * L * s * h * h + 12 * b * L * s * s * h + 6 * b * s * h * V);
      CHECK(all.step_flops() == all.model_flops());
      // s b h (34 + 5 a s / h) for a layer; s b h of dropout, 4 s b h (1 + V / h) for norm, logits and loss
      CHECK(all.layer().kept.count() == 34 * s * b * h + 5 * a * s * s * b);
      CHECK(all.held().count() == L * all.layer().kept.count() + s * b * h + 4 * s * b * h + 4 * s * b * V);
      CHECK(all.held_by_layer() == all.layer().kept);
      const transformer_costs fused{it.shape, {.micro_batch = b, .recomputes_layers = false, .fuses_attention = true}};
      CHECK(fused.layer().kept.count() == 34 * s * b * h + 4 * a * s * b);
      CHECK(fused.step_flops() == fused.model_flops() + L * 2 * b * s * s * h);
      const transformer_costs again{it.shape, {.micro_batch = b}};
      CHECK(again.checkpoint().count() == 2 * s * b * h);
      CHECK(again.held().count() == 2 * s * b * h * L + s * b * h + 4 * s * b * h + 4 * s * b * V);
      CHECK(again.layer().kept == all.layer().kept);
    }
  }
}

TEST_CASE("the peak with recomputation is every checkpoint and one layer, or every checkpoint and the logits",
          "[workload]")
{
  // R = 2 s b h L + s b h (34 + 5 a s / h), where a layer is the highest: its checkpoint is in both terms.
  const transformer_shape& shape = shape_of("PatrickStar", "GPT3_18B");
  for (const std::uint64_t b : {1U, 4U, 16U}) {
    const std::uint64_t sbh = 1024 * b * 4096;
    const std::uint64_t published = 2 * sbh * 90 + 34 * sbh + 5 * std::uint64_t{16} * 1024 * 1024 * b;
    // Where the backward pass of the last layer begins all of it is there, with the gradients of its stream (2), below
    // the mask (2) and of what GELU gave (8); the mask of the embedding (1) is there.
    const std::uint64_t layer = published - 2 * sbh + 2 * sbh + 2 * sbh + 8 * sbh + sbh;
    // At the loss: norm and logits keep their inputs, a logit has four bytes and its gradient two.
    const std::uint64_t head = (2 * 90 + 1 + 4) * sbh + 6 * 1024 * b * 50'257;
    CHECK(head > layer);
    CHECK(transformer_costs(shape, {.micro_batch = b}).peak().count() == head);
    CHECK(transformer_costs(shape, {.micro_batch = b, .has_logits = false}).peak().count() == layer);
    CHECK(static_cast<double>(layer) / static_cast<double>(published) == Catch::Approx(1.047).margin(0.001));
  }
}

TEST_CASE("figures by hand for one shape", "[workload]")
{
  // GPT2_1B: hidden 2,048, 20 layers, 16 heads, 1,024 tokens, vocabulary 50,257.
  const transformer_costs one{shape_of("PatrickStar", "GPT2_1B"), {.micro_batch = 1, .recomputes_layers = false}};
  const std::uint64_t mebi = 1 << 20;
  CHECK(one.of(qkv).forward_flops == 25'769'803'776);  // 2 x 1,024 x 2,048 x 6,144
  CHECK(one.of(qkv).backward_flops == 51'539'607'552);
  CHECK(one.of(attention_scores).forward_flops == 4'294'967'296);  // 2 x 16 x 1,024 x 128 x 1,024
  CHECK(one.of(attention_values).forward_flops == 4'294'967'296);
  CHECK(one.of(projection).forward_flops == 8'589'934'592);
  CHECK(one.of(mlp_up).forward_flops == 34'359'738'368);
  CHECK(one.of(mlp_down).forward_flops == 34'359'738'368);
  CHECK(one.of(logits).forward_flops == 210'793'136'128);  // 2 x 1,024 x 2,048 x 50,257
  for (const transformer_operator none : {embedding, attention_norm, mlp_norm, final_norm, loss})
    CHECK(one.of(none).forward_flops == 0);
  CHECK(one.of(embedding).kept.count() == 2 * mebi);  // a mask
  CHECK(one.of(attention_norm).kept.count() == 4 * mebi);
  CHECK(one.of(qkv).kept.count() == 4 * mebi);
  CHECK(one.of(attention_scores).kept.count() == 56 * mebi);  // queries, keys, softmax of 2 x 16 Mi, mask of 16 Mi
  CHECK(one.of(attention_values).kept.count() == 36 * mebi);  // values, dropped softmax
  CHECK(one.of(projection).kept.count() == 6 * mebi);
  CHECK(one.of(mlp_norm).kept.count() == 4 * mebi);
  CHECK(one.of(mlp_up).kept.count() == 20 * mebi);
  CHECK(one.of(mlp_down).kept.count() == 18 * mebi);
  CHECK(one.of(final_norm).kept.count() == 4 * mebi);
  CHECK(one.of(logits).kept.count() == 4 * mebi);
  CHECK(one.of(loss).kept.count() == 205'852'672);  // 4 x 1,024 x 50,257
  CHECK(one.of(loss).working.count() == 102'926'336);
  CHECK(one.of(mlp_up).working.count() == 32 * mebi);
  CHECK(one.of(attention_scores).working.count() == 68 * mebi);
  CHECK(one.layer().kept.count() == 148 * mebi);
  CHECK(one.layer().working.count() == 68 * mebi);
  CHECK(one.held().count() == (2 + 20 * 148 + 8) * mebi + 205'852'672);
  CHECK(one.peak().count() == one.held().count() + 102'926'336);  // the loss's gradient, while everything is kept
}

TEST_CASE("models of other surveys have the numbers found there", "[workload]")
{
  struct row {
    std::uint64_t layers, hidden, heads;
    double tera_flops, whole, fused, checkpoint;  // forward, for one row; MiB for a layer
  };
  // s = 1,024, vocabulary 51,200: 2.5 and 8.3 billion (Shoeybi et al. 2019, arXiv 1909.08053), Turing-NLG 17 billion
  // (2020).
  for (const row& it : {row{54, 1920, 20, 5.53, 163.8, 63.8, 3.8}, row{72, 3072, 32, 17.95, 262.0, 102.0, 6.0},
                        row{78, 4256, 28, 36.56, 281.3, 141.3, 8.3}}) {
    const transformer_shape shape{transformer_style::gpt,
                                  it.layers,
                                  it.hidden,
                                  it.heads,
                                  it.heads,
                                  4 * it.hidden,
                                  51'200,
                                  it.hidden,
                                  1024,
                                  1024,
                                  true};
    const transformer_costs stored{shape, {.recomputes_layers = false}};
    const transformer_costs fused{shape, {.recomputes_layers = false, .fuses_attention = true}};
    const double mebi = 1 << 20;
    CHECK(static_cast<double>(stored.model().forward_flops) / 1e12 == Catch::Approx(it.tera_flops).margin(0.006));
    CHECK(static_cast<double>(stored.layer().kept.count()) / mebi == Catch::Approx(it.whole).margin(0.051));
    CHECK(static_cast<double>(fused.layer().kept.count()) / mebi == Catch::Approx(it.fused).margin(0.2));
    CHECK(static_cast<double>(stored.checkpoint().count()) / mebi == Catch::Approx(it.checkpoint).margin(0.051));
  }
}

TEST_CASE("everything grows with the micro-batch", "[workload]")
{
  for (const named_transformer& it : named_transformers) {
    const transformer_costs one{it.shape, {}};
    const transformer_costs four{it.shape, {.micro_batch = 4}};
    CAPTURE(it.family, it.name);
    CHECK(four.peak() == one.peak() * 4);
    CHECK(four.held() == one.held() * 4);
    CHECK(four.step_flops() == one.step_flops(4));
    CHECK(one.peak() < transformer_costs(it.shape, {.recomputes_layers = false}).peak());
    CHECK(one.held() < one.peak());
  }
}

TEST_CASE("what cannot be throws, and what 64 bits cannot count is a size overflow", "[workload]")
{
  const transformer_shape good = shape_of("PatrickStar", "175B");
  CHECK_THROWS_AS(transformer_costs(good, {.micro_batch = 0}), config_error);
  transformer_shape wrong = good;
  wrong.kv_heads = 7;
  CHECK_THROWS_AS(transformer_costs{wrong}, config_error);
  CHECK_THROWS_AS(transformer_costs(good, {.micro_batch = std::uint64_t{1} << 50}), size_overflow);
  transformer_shape wide = good;
  wide.vocabulary = std::uint64_t{1} << 52;
  CHECK_THROWS_AS(transformer_costs{wide}, size_overflow);
  const transformer_costs costs{good};
  CHECK_THROWS_AS(costs.step_flops(std::uint64_t{1} << 40), size_overflow);
  CHECK_THROWS_AS(costs.model_flops(std::uint64_t{1} << 40), size_overflow);
  CHECK_THROWS_AS(costs.tokens(UINT64_MAX), size_overflow);
  STATIC_REQUIRE(transformer_costs{shape_of("PatrickStar", "GPT3_18B")}.step_flops() > 0);
}

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

}  // namespace transformer_costs_test
