// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "model_choice.hpp"
#include "problem.hpp"

#include <support/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace options_test {

namespace {

using Catch::Matchers::ContainsSubstring;
using max_model::parse_options;

max_model::options parse(const std::vector<const char*>& words)
{
  return parse_options(static_cast<int>(words.size()), words.data());
}

std::string refusal(const std::vector<const char*>& words)
{
  try {
    (void)parse(words);
  } catch (const max_model::problem& refused) {
    return refused.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a machine and a model are enough", "[max_model]")
{
  const max_model::options chosen = parse({"--machine", "it.json", "--model", "GPT3_18B"});
  CHECK(chosen.machine == "it.json");
  CHECK(chosen.model == "GPT3_18B");
  CHECK(chosen.micro_batch == 4);
  CHECK(chosen.widths.empty());
  CHECK(chosen.strategies.empty());
  CHECK(!chosen.csv);
  CHECK(!chosen.layers);
  CHECK(!chosen.timeline);
  CHECK(!chosen.only_bytes);
  CHECK(chosen.has_logits);
  CHECK(chosen.recomputes);
  CHECK(!chosen.fuses_attention);
}

TEST_CASE("every option of the command line is read", "[max_model]")
{
  const max_model::options chosen =
      parse({"--machine", "it.json", "--model=Gemini GPT/10b", "--micro-batch", "16", "--widths", "4096,8192",
             "--strategies", "plain,planned", "--csv", "it.csv", "--layers", "7", "--timeline", "it.line",
             "--no-logits", "--no-recompute", "--fused-attention"});
  CHECK(chosen.model == "Gemini GPT/10b");
  CHECK(chosen.micro_batch == 16);
  CHECK(chosen.widths == std::vector<std::uint64_t>{4096, 8192});
  CHECK(chosen.strategies == std::vector<std::string>{"plain", "planned"});
  CHECK(chosen.csv == "it.csv");
  CHECK(chosen.layers == 7);
  CHECK(chosen.timeline == "it.line");
  CHECK(parse({"--machine", "it.json", "--model", "GPT3_18B", "--only-bytes"}).only_bytes);
  CHECK(!chosen.has_logits);
  CHECK(!chosen.recomputes);
  CHECK(chosen.fuses_attention);
  CHECK(parse({"--help"}).common.help);
  CHECK(parse({"--models"}).lists_models);
}

TEST_CASE("a wrong word is refused by one sentence that names it", "[max_model]")
{
  CHECK_THAT(refusal({}), ContainsSubstring("--machine is missing"));
  CHECK_THAT(refusal({"--machine", "it.json"}), ContainsSubstring("--model is missing"));
  std::vector<const char*> good{"--machine", "it.json", "--model", "GPT3_18B"};
  const auto with = [&](const char* option, const char* value) {
    std::vector<const char*> words = good;
    words.push_back(option);
    words.push_back(value);
    return refusal(words);
  };
  for (const char* const value : {"0", "-1", "1.5", "x", "99999999999999999999"})
    CHECK_THAT(with("--micro-batch", value), ContainsSubstring("--micro-batch '" + std::string{value} + "'"));
  CHECK_THAT(with("--layers", "0"), ContainsSubstring("--layers '0'"));
  good.push_back("--only-bytes");
  CHECK_THAT(with("--timeline", "it.line"), ContainsSubstring("--timeline needs a simulation"));
  good.pop_back();
  CHECK_THAT(with("--widths", "1,,2"), ContainsSubstring("empty entry"));
  CHECK_THAT(with("--widths", "1,0"), ContainsSubstring("--widths '0'"));
  CHECK_THAT(with("--strategies", "plain,"), ContainsSubstring("empty entry"));
  CHECK_THAT(with("--strategies", "luck"), ContainsSubstring("'luck' is unknown: choose plain, zero_offload"));
  CHECK_THAT(with("--colour", "red"), ContainsSubstring("--colour"));
  CHECK_THAT(with("--csv", ""), ContainsSubstring("empty value"));
}

TEST_CASE("the help names every option", "[max_model]")
{
  for (const char* const option :
       {"--machine", "--model", "--micro-batch", "--widths", "--strategies", "--csv", "--layers", "--timeline",
        "--only-bytes", "--no-logits", "--no-recompute", "--fused-attention", "--models"})
    CHECK_THAT(max_model::help_text(), ContainsSubstring(option));
}

TEST_CASE("a model is chosen by its name, with its family where several have it", "[max_model]")
{
  namespace workload = chunkmem::workload;
  CHECK(max_model::choose_model("GPT3_18B").shape == workload::shape_of("PatrickStar", "GPT3_18B"));
  CHECK(max_model::choose_model("Elixir GPT-2/10b").shape == workload::shape_of("Elixir GPT-2", "10b"));
  CHECK_THROWS_AS(max_model::choose_model("10b"), max_model::problem);
  CHECK_THROWS_AS(max_model::choose_model("GPT5"), max_model::problem);
  CHECK(max_model::choose_model(std::string{MAX_MODEL_MACHINES} + "/../models/llama_3_8b.json").shape.layers == 32);
  CHECK_THROWS_AS(max_model::choose_model("no-such.json"), chunkmem::io_error);
}

}  // namespace options_test
