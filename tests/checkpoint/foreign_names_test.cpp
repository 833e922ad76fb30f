// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/file_name_rule.hpp>
#include <chunkmem/checkpoint/import_values.hpp>

#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>
#include "exchange.hpp"
#include "small_model.hpp"

namespace foreign_names_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using checkpoint::file_name_rule;
using support::memory_folder;

namespace {

constexpr std::uint64_t vocabulary = 61, positions = 12, width = 8, layers = 2;

/// Names of GPT-2 as Hugging Face's transformers writes them. Its linear layers are Conv1D, so input comes first.
const std::vector<file_name_rule> gpt2_names{
    {"wte", "transformer.wte.weight"},
    {"wpe", "transformer.wpe.weight"},
    {"h.*.norm_1", "transformer.h.*.ln_1.weight"},
    {"h.*.norm_1.bias", "transformer.h.*.ln_1.bias"},
    {"h.*.qkv", "transformer.h.*.attn.c_attn.weight", true},
    {"h.*.qkv.bias", "transformer.h.*.attn.c_attn.bias"},
    {"h.*.out", "transformer.h.*.attn.c_proj.weight", true},
    {"h.*.out.bias", "transformer.h.*.attn.c_proj.bias"},
    {"h.*.norm_2", "transformer.h.*.ln_2.weight"},
    {"h.*.norm_2.bias", "transformer.h.*.ln_2.bias"},
    {"h.*.up", "transformer.h.*.mlp.c_fc.weight", true},
    {"h.*.up.bias", "transformer.h.*.mlp.c_fc.bias"},
    {"h.*.down", "transformer.h.*.mlp.c_proj.weight", true},
    {"h.*.down.bias", "transformer.h.*.mlp.c_proj.bias"},
    {"norm", "transformer.ln_f.weight"},
    {"norm.bias", "transformer.ln_f.bias"},
};
/// Those of LLaMA: linear layers have the output first, as most trainers do.
const std::vector<file_name_rule> llama_names{
    {"wte", "model.embed_tokens.weight"},
    {"h.*.query", "model.layers.*.self_attn.q_proj.weight"},
    {"h.*.gate", "model.layers.*.mlp.gate_proj.weight"},
    {"norm", "model.norm.weight"},
    {"head", "lm_head.weight"},
};

/// A GPT-2 whose linear layers have the output first.
template <class Model>
struct gpt2 {
  explicit gpt2(Model& model) : m{model}
  {
    add("wte", {vocabulary, width}), add("wpe", {positions, width}), add("norm", {width}), add("norm.bias", {width});
    for (std::uint64_t layer = 0; layer < layers; ++layer) {
      const std::string h = "h." + std::to_string(layer) + '.';
      const auto linear = [&](const char* name, std::uint64_t out, std::uint64_t in) {
        add(h + name, {out, in}), add(h + name + ".bias", {out});
      };
      for (const char* const norm : {"norm_1", "norm_2"}) add(h + norm, {width}), add(h + norm + ".bias", {width});
      linear("qkv", 3 * width, width), linear("out", width, width);
      linear("up", 4 * width, width), linear("down", width, 4 * width);
    }
  }
  void add(const std::string& name, const cm::shape& extents)
  {
    weights.push_back(m.template add<float>(extents, cm::role::parameter));
    m.name(weights.back(), name);
    names.push_back(name);
  }
  void fill()
  {
    float next = 0;
    for (const auto it : weights)
      for (float& value : m.acquire(it, cm::access::write).span()) value = next++;
  }
  [[nodiscard]] std::vector<float> values()
  {
    std::vector<float> all;
    for (const auto it : weights)
      for (const float value : m.acquire(it, cm::access::read).span()) all.push_back(value);
    return all;
  }

  Model& m;
  std::vector<cm::tensor<float>> weights;
  std::vector<std::string> names;
};

struct alone {
  arena memory{{.device_capacity = 4_MiB, .host_capacity = 4_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 64_KiB}};
  gpt2<cm::manager<arena>> model{m};
};

/// One step of plain descent with a gradient of `slope` everywhere.
void train(alone& it, cm::optimizer::sgd& sgd, float slope)
{
  {
    const auto iteration = it.m.iteration();
    for (const auto each : it.model.weights)
      for (float& value : it.m.gradient(each).span()) value = slope;
  }
  (void)cm::optimizer::step(it.m, sgd, {.learning_rate = 0.5F});
}

}  // namespace

TEST_CASE("a star stands for the same characters in the model's name and in the file's", "[checkpoint]")
{
  using checkpoint::detail::place_of;
  CHECK(place_of("h.11.qkv", gpt2_names).name == "transformer.h.11.attn.c_attn.weight");
  CHECK(place_of("h.11.qkv", gpt2_names).is_transposed);
  CHECK(place_of("h.0.norm_1.bias", gpt2_names).name == "transformer.h.0.ln_1.bias");
  CHECK(place_of("h.3.gate", llama_names).name == "model.layers.3.mlp.gate_proj.weight");
  CHECK(place_of("other", gpt2_names).name == "other");
  CHECK(place_of("h.x", std::vector<file_name_rule>{{"h.*", "all"}}).name == "all");
  CHECK(place_of("wte", std::vector<file_name_rule>{{"*", "model.*"}, {"wte", "no"}}).name == "model.wte");
  using checkpoint::detail::expect_rules;
  CHECK_NOTHROW(expect_rules(gpt2_names));
  for (const file_name_rule& wrong : {file_name_rule{"h.*.*", "x"}, {"h.*", "*.*"}, {"h", "*"}})
    CHECK_THROWS_AS(expect_rules(std::vector{wrong}), cm::usage_error);
  using checkpoint::detail::has_form;
  CHECK((has_form("abc", "*") && has_form("", "*") && has_form("abcabd", "*ab*d") && has_form("a", "a")));
  CHECK((!has_form("abc", "") && !has_form("abc", "ab") && !has_form("ab", "a*c") && !has_form("xa", "a*")));
}

TEST_CASE("a file with names of another program goes in and out with the same bytes", "[checkpoint]")
{
  alone first;
  first.model.fill();
  memory_folder out, again;
  checkpoint::export_values(first.m, out, "gpt2", gpt2_names);
  checkpoint::safetensors_file file{std::as_const(out).open("gpt2"), "gpt2"};
  const auto qkv =
      std::ranges::find(file.tensors(), "transformer.h.1.attn.c_attn.weight", &checkpoint::stored_tensor::name);
  REQUIRE(qkv != file.tensors().end());
  CHECK(qkv->extents == std::vector<std::uint64_t>{width, 3 * width});
  alone second;
  CHECK(checkpoint::import_values(second.m, out, "gpt2", {.names = gpt2_names}).tensors == first.model.weights.size());
  CHECK(second.model.values() == first.model.values());
  checkpoint::export_values(second.m, again, "gpt2", gpt2_names);
  const auto content = [](const memory_folder& folder) {
    const auto reader = folder.open("gpt2");
    std::vector<std::byte> all(static_cast<std::size_t>(reader.size()));
    (void)reader.read(0, all);
    return all;
  };
  CHECK(content(again) == content(out));
  CHECK_THROWS_AS(checkpoint::import_values(second.m, out, "gpt2"), cm::config_error);
  CHECK_THROWS_AS(checkpoint::export_values(second.m, again, "x", std::vector<file_name_rule>{{"norm", "n", true}}),
                  cm::config_error);
  CHECK_THROWS_AS(checkpoint::export_values(second.m, again, "x", std::vector<file_name_rule>{{"*", "one"}}),
                  cm::config_error);
}

TEST_CASE("ranks take their shares of transposed tensors", "[checkpoint]")
{
  alone first;
  first.model.fill();
  memory_folder out;
  checkpoint::export_values(first.m, out, "gpt2", gpt2_names);
  const std::vector<float> expected = first.model.values();
  for (const std::uint32_t ranks : {2U, 3U}) {
    std::vector<std::string> said(ranks);
    const cm::collective::thread_group group{ranks};
    support::on_ranks(ranks, [&](std::uint32_t rank) {
      said[rank] = support::complaint_of([&] {
        arena memory{{.device_capacity = 8_MiB, .host_capacity = 8_MiB}};
        cm::collective::local_threads self{group, cm::rank_id{rank}};
        cm::sharded_model<arena, cm::collective::local_threads> m{memory, self, {.chunk_bytes = 16_KiB * ranks}};
        const auto large = m.add<float>({70, 301}, cm::role::parameter);
        m.name(large, "large");
        gpt2<decltype(m)> model{m};
        (void)checkpoint::import_values(m, out, "gpt2", {.begins_anew = {"large"}, .names = gpt2_names});
        return model.values() == expected ? "" : "other values";
      });
    });
    for (const std::string& it : said) CHECK(it == "");
  }
}

TEST_CASE("parts of a transposed matrix are its elements in the model's order, wherever they begin and end",
          "[checkpoint]")
{
  memory_folder out;
  constexpr std::uint64_t rows = 5, columns = 7;
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto matrix = m.add<float>({rows, columns}, cm::role::frozen);
  m.name(matrix, "w");
  float next = 0;
  for (float& it : m.acquire(matrix, cm::access::write).span()) it = next++;
  checkpoint::export_values(m, out, "w", std::vector<file_name_rule>{{"w", "w", true}});
  checkpoint::safetensors_file file{std::as_const(out).open("w"), "w"};
  const checkpoint::stored_index index{file.tensors(), file.payload()};
  checkpoint::item_piece piece{"w", {rows, columns}, 0, rows * columns, 0};
  piece.stored = index.find("w");
  piece.is_transposed = true;
  for (std::uint64_t first = 0; first < rows * columns; ++first)
    for (std::uint64_t end = first; end <= rows * columns; ++end) {
      std::vector<float> found(end - first, -1);
      (void)checkpoint::read_piece(file, piece, 0 + first, end - first, reinterpret_cast<std::byte*>(found.data()),
                                   cm::dtype::float32);
      for (std::uint64_t at = first; at < end; ++at)
        if (found[at - first] != static_cast<float>(at)) FAIL(first << " to " << end << " at " << at);
    }
}

TEST_CASE("a GPT-2 of Hugging Face is imported, trained and exported, and transformers finds the same logits",
          "[checkpoint][.python]")
{
  const char* const interpreter = std::getenv("CHUNKMEM_PYTHON");
  const std::string script = (std::filesystem::path{__FILE__}.parent_path() / "gpt2_files.py").string();
  const std::string command = interpreter == nullptr ? "" : std::string{interpreter} + " '" + script + "' ";
  if (command.empty() || std::system((command + "ask").c_str()) != 0)
    SKIP("no Python with torch, transformers and safetensors (pip install torch transformers safetensors)");
  const temporary_folder place;
  cm::io::posix_folder folder{place.path()};
  REQUIRE(std::system((command + "write '" + place.path() + "'").c_str()) == 0);
  alone it;
  cm::optimizer::sgd sgd;
  it.m.use(sgd);
  const auto found = checkpoint::import_values(it.m, folder, "model.safetensors", {.names = gpt2_names});
  CHECK(found.tensors == it.model.weights.size());
  CHECK(found.ignored.empty());
  checkpoint::export_values(it.m, folder, "same.safetensors", gpt2_names);
  CHECK(std::system((command + "compare '" + place.path() + "' same.safetensors 0").c_str()) == 0);
  train(it, sgd, 0.125F);
  checkpoint::export_values(it.m, folder, "trained.safetensors", gpt2_names);
  CHECK(std::system((command + "compare '" + place.path() + "' trained.safetensors 0.0625").c_str()) == 0);
}

}  // namespace foreign_names_test
