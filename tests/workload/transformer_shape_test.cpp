// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/transformer.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace transformer_shape_test {

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

}  // namespace transformer_shape_test
