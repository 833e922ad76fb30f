// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/named_transformers.hpp>
#include <chunkmem/workload/files.hpp>

#include <support/catch.hpp>

#include "file_mistakes.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace transformer_file_test {

using namespace chunkmem;
using namespace chunkmem::workload;

namespace {

const auto parse = [](const std::string& text) { return parse_transformer(text, "it.json"); };

file_mistakes::fields fields_of(const transformer_shape& shape)
{
  const auto text = [](std::uint64_t number) { return std::to_string(number); };
  return {{"name", "\"a model\""},
          {"source", "\"a paper\""},
          {"style", '"' + std::string{name_of(shape.style)} + '"'},
          {"layers", text(shape.layers)},
          {"hidden", text(shape.hidden)},
          {"heads", text(shape.heads)},
          {"kv_heads", text(shape.kv_heads)},
          {"ffn", text(shape.ffn)},
          {"vocabulary", text(shape.vocabulary)},
          {"embedding", text(shape.embedding)},
          {"positions", text(shape.positions)},
          {"sequence", text(shape.sequence)},
          {"ties_embedding", shape.ties_embedding ? "true" : "false"}};
}

file_mistakes::fields with(const std::string& key, const std::string& value)
{
  file_mistakes::fields all = fields_of(shape_of("PatrickStar", "175B"));
  for (auto& it : all)
    if (it.first == key) it.second = value;
  return all;
}

}  // namespace

TEST_CASE("every named shape is what a file of it says", "[workload]")
{
  for (const named_transformer& it : named_transformers) {
    CAPTURE(it.family, it.name);
    CHECK(parse(file_mistakes::json_of(fields_of(it.shape))) == transformer_file{"a model", it.shape});
  }
}

TEST_CASE("every mistake at every key of a transformer is one sentence with file and key", "[workload]")
{
  CHECK(file_mistakes::try_all(parse, fields_of(shape_of("PatrickStar", "175B"))) == 3 * 11 + 9 * 12 + 9 + 1);
}

TEST_CASE("a shape that cannot be is refused at its key", "[workload]")
{
  for (const char* key : {"layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "embedding", "sequence"}) {
    file_mistakes::expect(parse, with(key, "0"), key, "is 0");
    file_mistakes::expect(parse, with(key, "1.5"), key, "is no whole number");
  }
  file_mistakes::expect(parse, with("layers", "65537"), "layers", "is above 65536");
  file_mistakes::expect(parse, with("heads", "97"), "heads", "does not divide hidden");
  file_mistakes::expect(parse, with("kv_heads", "97"), "kv_heads", "does not divide heads");
  file_mistakes::expect(parse, with("positions", "1023"), "positions", "is below sequence");
  file_mistakes::expect(parse, with("style", "\"GPT\""), "style", "write gpt, bert, opt or llama");
  file_mistakes::expect(parse, with("vocabulary", "18446744073709551615"), "hidden", "more parameters");
  file_mistakes::expect(parse, with("ffn", "18446744073709551616"), "ffn", "needs more than 64 bits");
}

TEST_CASE("the transformer of the examples has its published parameters", "[workload]")
{
  const auto folder = std::filesystem::path{__FILE__}.parent_path() / "../../examples/max_model/models";
  const transformer_file found = read_transformer((folder / "llama_3_8b.json").string());
  CHECK(found.name == "LLaMA 3 8B");
  CHECK(parameters_of(found.shape) == 8'030'261'248);
  CHECK_THROWS_AS(read_transformer((folder / "none.json").string()), io_error);
}

}  // namespace transformer_file_test
