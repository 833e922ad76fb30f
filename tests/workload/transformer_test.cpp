// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/transformer.hpp>

#include <chunkmem/workload/named_transformers.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace transformer_test {

using namespace chunkmem;
using namespace chunkmem::workload;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr transformer_shape good{transformer_style::llama, 32, 4096, 32, 8, 14'336, 128'256, 4096, 0, 8192, false};

constexpr transformer_shape with(std::uint64_t transformer_shape::*member, std::uint64_t value)
{
  transformer_shape changed = good;
  changed.*member = value;
  return changed;
}

}  // namespace

TEST_CASE("a shape that can be has no problem, whatever its style", "[workload]")
{
  STATIC_REQUIRE(good.problem().member.empty());
  STATIC_REQUIRE(good.kv_width() == 1024);
  STATIC_REQUIRE(with(&transformer_shape::positions, 8192).problem().member.empty());
  STATIC_REQUIRE(with(&transformer_shape::layers, transformer_shape::most_layers).problem().member.empty());
  CHECK_NOTHROW(good.check());
}

TEST_CASE("each member that cannot be is named, with the numbers of the shape", "[workload]")
{
  struct wrong {
    std::uint64_t transformer_shape::*member;
    std::uint64_t value;
    std::string_view name;
    std::string_view why;
  };
  using shape = transformer_shape;
  const wrong all[] = {
      {&shape::layers, 0, "layers", "is 0"},
      {&shape::layers, 65'537, "layers", "is above 65536"},
      {&shape::hidden, 0, "hidden", "is 0"},
      {&shape::heads, 0, "heads", "is 0"},
      {&shape::heads, 48, "heads", "does not divide hidden"},
      {&shape::heads, 8192, "heads", "does not divide hidden"},
      {&shape::kv_heads, 0, "kv_heads", "is 0"},
      {&shape::kv_heads, 3, "kv_heads", "does not divide heads"},
      {&shape::kv_heads, 64, "kv_heads", "does not divide heads"},
      {&shape::ffn, 0, "ffn", "is 0"},
      {&shape::vocabulary, 0, "vocabulary", "is 0"},
      {&shape::embedding, 0, "embedding", "is 0"},
      {&shape::sequence, 0, "sequence", "is 0"},
      {&shape::positions, 8191, "positions", "is below sequence"},
  };
  for (const wrong& it : all) {
    const transformer_shape changed = with(it.member, it.value);
    CAPTURE(it.name, it.value);
    CHECK(changed.problem().member == it.name);
    CHECK_THROWS_AS(changed.check(), config_error);
    CHECK_THROWS_WITH(changed.check(), ContainsSubstring(std::string{it.name} + " " + std::string{it.why}) &&
                                           ContainsSubstring("heads "));
  }
}

TEST_CASE("what a style means is a table", "[workload]")
{
  const auto row = [](transformer_style style) {
    transformer_shape it = good;
    it.style = style;
    const auto bit = [](bool is, char letter) { return is ? letter : '-'; };
    return std::string{bit(it.has_biases(), 'b'), bit(it.has_gate(), 'g'), bit(it.has_token_types(), 't'),
                       bit(it.splits_qkv(), 's'), bit(it.has_final_norm(), 'n')};
  };
  CHECK(row(transformer_style::gpt) == "b---n");
  CHECK(row(transformer_style::bert) == "b-t--");
  CHECK(row(transformer_style::opt) == "b--sn");
  CHECK(row(transformer_style::llama) == "-g-sn");
  transformer_shape narrow = good;
  narrow.style = transformer_style::opt;
  narrow.embedding = 512;
  CHECK(narrow.projects_embedding());
  CHECK(!narrow.has_final_norm());
  CHECK(name_of(transformer_style::gpt) == "gpt");
  CHECK(name_of(transformer_style::llama) == "llama");
}

TEST_CASE("parameters equal the counts that the published models have", "[workload]")
{
  struct published {
    std::string_view family;
    std::string_view name;
    std::uint64_t parameters;
  };
  // Sums over the published weights of GPT-2, BERT large without its pooler, LLaMA 1 and 2, OPT.
  constexpr published all[] = {
      {"Gemini GPT", "medium", 354'823'168},     {"Gemini GPT", "xl", 1'557'611'200},
      {"PatrickStar", "Bertlarge", 334'092'288}, {"Gemini LLaMA", "7b", 6'738'415'616},
      {"Gemini LLaMA", "13b", 13'015'864'320},   {"Gemini LLaMA", "70b", 68'976'648'192},
      {"Elixir OPT", "350m", 331'196'416},       {"Elixir OPT", "1.3b", 1'315'758'080},
      {"Elixir OPT", "2.7b", 2'651'596'800},     {"Elixir OPT", "6.7b", 6'658'473'984},
      {"Elixir OPT", "13b", 12'853'473'280},     {"Elixir OPT", "30b", 29'974'540'288},
  };
  for (const published& it : all) {
    CAPTURE(it.family, it.name);
    CHECK(parameters_of(shape_of(it.family, it.name)) == it.parameters);
  }
  STATIC_REQUIRE(parameters_of(shape_of("Gemini LLaMA", "7b")) == 6'738'415'616);
  // LLaMA 3 8B: 8 heads of keys and values, a table of its own for the logits.
  STATIC_REQUIRE(parameters_of({transformer_style::llama, 32, 4096, 32, 8, 14'336, 128'256, 4096, 0, 8192, false}) ==
                 8'030'261'248);
  // Qwen2.5 0.5B has biases of queries, keys and values; Qwen3 0.6B heads of its own width, and norms of them.
  STATIC_REQUIRE(parameters_of({.style = transformer_style::llama,
                                .layers = 24,
                                .hidden = 896,
                                .heads = 14,
                                .kv_heads = 2,
                                .ffn = 4864,
                                .vocabulary = 151'936,
                                .embedding = 896,
                                .sequence = 4096,
                                .has_qkv_biases = true}) == 494'032'768);
  STATIC_REQUIRE(parameters_of({.style = transformer_style::llama,
                                .layers = 28,
                                .hidden = 1024,
                                .heads = 16,
                                .kv_heads = 8,
                                .ffn = 3072,
                                .vocabulary = 151'936,
                                .embedding = 1024,
                                .sequence = 4096,
                                .head_width = 128,
                                .norms_heads = true}) == 596'049'920);
}

TEST_CASE("the sum is that of the tensors, for every named shape", "[workload]")
{
  for (const named_transformer& it : named_transformers) {
    CAPTURE(it.family, it.name);
    std::uint64_t sum = 0;
    std::map<std::uint64_t, std::uint64_t> by_layer;
    std::uint32_t last = 0;
    bool in_order = true;
    bool is_outside_at_0 = true;
    for (const transformer_tensor& tensor : tensors_of(it.shape)) {
      sum += tensor.elements();
      if (is_in_layer(tensor.part))
        by_layer[tensor.layer] += tensor.elements();
      else
        is_outside_at_0 = is_outside_at_0 && tensor.layer == 0;
      in_order = in_order && tensor.module >= last && tensor.module <= last + 1;
      last = tensor.module;
    }
    CHECK(sum == parameters_of(it.shape));
    CHECK(in_order);
    CHECK(is_outside_at_0);
    CHECK(by_layer.size() == it.shape.layers);
    const std::uint64_t h = it.shape.hidden;
    const std::uint64_t layer = it.shape.style == transformer_style::llama
                                    ? 2 * h * h + 2 * h * it.shape.kv_width() + 3 * h * it.shape.ffn + 2 * h
                                    : 12 * h * h + 13 * h;
    CHECK(by_layer[0] == layer);
    CHECK(by_layer[it.shape.layers - 1] == layer);
  }
}

TEST_CASE("tensors come in the order of construction, in modules", "[workload]")
{
  using enum transformer_operator;
  struct row {
    transformer_operator part;
    std::uint64_t rows, columns;
    std::uint32_t module;
  };
  const auto check = [](const transformer_shape& shape, const std::vector<row>& wanted) {
    const std::vector<transformer_tensor> found = tensors_of(shape);
    REQUIRE(found.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      CAPTURE(i);
      CHECK(found[i].part == wanted[i].part);
      CHECK(found[i].rows == wanted[i].rows);
      CHECK(found[i].columns == wanted[i].columns);
      CHECK(found[i].module == wanted[i].module);
    }
  };
  check({transformer_style::gpt, 1, 8, 2, 2, 40, 100, 8, 16, 16, true}, {{embedding, 100, 8, 0},
                                                                         {embedding, 16, 8, 1},
                                                                         {attention_norm, 8, 1, 2},
                                                                         {attention_norm, 8, 1, 2},
                                                                         {qkv, 8, 24, 3},
                                                                         {qkv, 24, 1, 3},
                                                                         {projection, 8, 8, 4},
                                                                         {projection, 8, 1, 4},
                                                                         {mlp_norm, 8, 1, 5},
                                                                         {mlp_norm, 8, 1, 5},
                                                                         {mlp_up, 8, 40, 6},
                                                                         {mlp_up, 40, 1, 6},
                                                                         {mlp_down, 40, 8, 7},
                                                                         {mlp_down, 8, 1, 7},
                                                                         {final_norm, 8, 1, 8},
                                                                         {final_norm, 8, 1, 8}});
  check({transformer_style::llama, 1, 8, 4, 2, 24, 100, 8, 0, 16, false}, {{embedding, 100, 8, 0},
                                                                           {qkv, 8, 8, 1},
                                                                           {qkv, 8, 4, 2},
                                                                           {qkv, 8, 4, 3},
                                                                           {projection, 8, 8, 4},
                                                                           {mlp_up, 8, 24, 5},
                                                                           {mlp_up, 8, 24, 6},
                                                                           {mlp_down, 24, 8, 7},
                                                                           {attention_norm, 8, 1, 8},
                                                                           {mlp_norm, 8, 1, 9},
                                                                           {final_norm, 8, 1, 10},
                                                                           {logits, 8, 100, 11}});
  check({transformer_style::opt, 1, 8, 2, 2, 32, 100, 4, 18, 16, true}, {{embedding, 100, 4, 0},
                                                                         {embedding, 18, 8, 1},
                                                                         {embedding, 4, 8, 2},
                                                                         {logits, 8, 4, 3},
                                                                         {qkv, 8, 8, 4},
                                                                         {qkv, 8, 1, 4},
                                                                         {qkv, 8, 8, 5},
                                                                         {qkv, 8, 1, 5},
                                                                         {qkv, 8, 8, 6},
                                                                         {qkv, 8, 1, 6},
                                                                         {projection, 8, 8, 7},
                                                                         {projection, 8, 1, 7},
                                                                         {attention_norm, 8, 1, 8},
                                                                         {attention_norm, 8, 1, 8},
                                                                         {mlp_up, 8, 32, 9},
                                                                         {mlp_up, 32, 1, 9},
                                                                         {mlp_down, 32, 8, 10},
                                                                         {mlp_down, 8, 1, 10},
                                                                         {mlp_norm, 8, 1, 11},
                                                                         {mlp_norm, 8, 1, 11}});
  check({transformer_style::bert, 1, 8, 2, 2, 32, 100, 8, 16, 16, true}, {{embedding, 100, 8, 0},
                                                                          {embedding, 16, 8, 1},
                                                                          {embedding, 2, 8, 2},
                                                                          {embedding, 8, 1, 3},
                                                                          {embedding, 8, 1, 3},
                                                                          {attention_norm, 8, 1, 4},
                                                                          {attention_norm, 8, 1, 4},
                                                                          {qkv, 8, 24, 5},
                                                                          {qkv, 24, 1, 5},
                                                                          {projection, 8, 8, 6},
                                                                          {projection, 8, 1, 6},
                                                                          {mlp_norm, 8, 1, 7},
                                                                          {mlp_norm, 8, 1, 7},
                                                                          {mlp_up, 8, 32, 8},
                                                                          {mlp_up, 32, 1, 8},
                                                                          {mlp_down, 32, 8, 9},
                                                                          {mlp_down, 8, 1, 9}});
}

TEST_CASE("a shape that cannot be, or has more parameters than 64 bits count, throws", "[workload]")
{
  transformer_shape wrong = shape_of("PatrickStar", "175B");
  wrong.heads = 7;
  CHECK_THROWS_AS(parameters_of(wrong), config_error);
  CHECK_THROWS_AS(tensors_of(wrong), config_error);
  transformer_shape huge = shape_of("PatrickStar", "175B");
  huge.ffn = std::uint64_t{1} << 60;
  CHECK_THROWS_AS(parameters_of(huge), size_overflow);
  huge.ffn = std::uint64_t{1} << 49;  // each tensor fits, their sum does not
  huge.layers = 16'384;
  CHECK_THROWS_AS(parameters_of(huge), size_overflow);
  huge.layers = 1;
  CHECK_NOTHROW(parameters_of(huge));
}

}  // namespace transformer_test
