// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/files.hpp>

#include <chunkmem/workload/machine.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include "file_mistakes.hpp"

namespace machine_file_test {

using namespace chunkmem;
using namespace chunkmem::workload;
using Catch::Matchers::ContainsSubstring;

namespace {

const auto parse = [](const std::string& text) { return parse_machine(text, "it.json"); };

file_mistakes::fields good()
{
  file_mistakes::fields all{{"name", "\"two nodes\""}};
  for (const auto& [key, value] : file_mistakes::fields{{"nodes", "2"},
                                                        {"devices", "4"},
                                                        {"device_bytes", "1000"},
                                                        {"host_bytes", "9000"},
                                                        {"device_flops_per_second", "1e12"},
                                                        {"to_device_bytes_per_second", "2e9"},
                                                        {"to_host_bytes_per_second", "1000000000"},
                                                        {"peer_bytes_per_second", "3e9"},
                                                        {"network_bytes_per_second", "5e8"},
                                                        {"host_memory_bytes_per_second", "8e9"},
                                                        {"host_updates_per_second", "1e8"},
                                                        {"device_updates_per_second", "1.5e9"}}) {
    all.emplace_back(key + ".value", value);
    all.emplace_back(key + ".source", "\"a book\"");
  }
  return all;
}

file_mistakes::fields with(const std::string& path, const std::string& value)
{
  file_mistakes::fields all = good();
  for (auto& it : all)
    if (it.first == path) it.second = value;
  return all;
}

const std::filesystem::path& examples()
{
  static const std::filesystem::path folder =
      std::filesystem::path{__FILE__}.parent_path() / "../../examples/max_model/machines";
  return folder;
}

}  // namespace

TEST_CASE("a machine is what its file says", "[workload]")
{
  CHECK(parse(file_mistakes::json_of(good())) ==
        machine{"two nodes", 2, 4, bytes{1000}, bytes{9000}, {1e12, 2e9, 1e9, 3e9, 5e8, 8e9, 1e8, 1.5e9}});
}

TEST_CASE("every mistake at every key of a machine is one sentence with file and key", "[workload]")
{
  CHECK(file_mistakes::try_all(parse, good()) == 12 * 12 + 13 * 11 + 1);
}

TEST_CASE("a key is refused where it cannot go together with others", "[workload]")
{
  for (const char* key : {"nodes", "devices", "device_bytes", "host_bytes"}) {
    const std::string path = std::string{key} + ".value";
    file_mistakes::expect(parse, with(path, "0"), path, "is 0");
    file_mistakes::expect(parse, with(path, "1.5"), path, "is no whole number");
    file_mistakes::expect(parse, with(path, "18446744073709551616"), path, "needs more than 64 bits");
  }
  file_mistakes::expect(parse, with("nodes.value", "4294967296"), "nodes.value", "is too large");
  file_mistakes::expect(parse, with("nodes.value", "4294967295"), "nodes.value", "is above 2^20");
  file_mistakes::expect(parse, with("devices.value", "4294967295"), "devices.value", "makes more than 2^20 ranks");
  file_mistakes::expect(parse, with("devices.value", "4294967296"), "devices.value", "is too large");
  for (const char* key : {"device_flops_per_second", "to_device_bytes_per_second", "to_host_bytes_per_second",
                          "peer_bytes_per_second", "network_bytes_per_second", "host_memory_bytes_per_second",
                          "host_updates_per_second", "device_updates_per_second"}) {
    const std::string path = std::string{key} + ".value";
    file_mistakes::expect(parse, with(path, "0"), path, "is 0");
  }
  file_mistakes::expect(parse, with("nodes.value", "1"), "network_bytes_per_second.value", "is not 0");
  file_mistakes::expect(parse, with("devices.value", "1"), "peer_bytes_per_second.value", "is not 0");
  file_mistakes::expect(parse, with("host_bytes.value", "18446744073709551615"), "host_bytes.value", "64 bits");
  file_mistakes::fields flat = good();
  flat.erase(flat.begin() + 1, flat.begin() + 3);
  flat.insert(flat.begin() + 1, {"nodes", "2"});
  file_mistakes::expect(parse, flat, "nodes.value", "is missing");
}

TEST_CASE("the machines of the examples are read, and say where each number is from", "[workload]")
{
  std::map<std::string, machine> all;
  for (const auto& it : std::filesystem::directory_iterator{examples()}) {
    CAPTURE(it.path().string());
    const machine found = read_machine(it.path().string());
    CHECK(share_of_rank(found).rates.device_flops_per_second > 1e14);
    // The host's update is what its memory allows at 28 B for a parameter, and a link is slower than that memory.
    CHECK(found.rates.host_updates_per_second ==
          Catch::Approx(found.rates.host_memory_bytes_per_second / 28).epsilon(1e-6));
    CHECK(found.rates.to_device_bytes_per_second < found.rates.host_memory_bytes_per_second);
    all[it.path().stem().string()] = found;
  }
  struct row {
    std::uint32_t nodes, devices;
    double device_gib, host_gb;
  };
  const std::map<std::string, row> wanted{{"v100_32_node", {1, 8, 31.74, 240}},
                                          {"a100_40_node", {1, 8, 39.49, 1000}},
                                          {"a100_40_four_nodes", {4, 8, 39.49, 1000}},
                                          {"a100_80_node", {1, 8, 79.14, 1000}},
                                          {"a100_80_four_nodes", {4, 8, 79.14, 1000}},
                                          {"h100_node", {1, 8, 79.65, 2000}},
                                          {"h200_node", {1, 8, 131.32, 2000}},
                                          {"gh200", {1, 1, 89.41, 480}},
                                          {"rtx_4090", {1, 1, 23.64, 64}}};
  REQUIRE(all.size() == wanted.size());
  for (const auto& [name, it] : wanted) {
    CAPTURE(name);
    REQUIRE(all.contains(name));
    const machine& found = all[name];
    CHECK(found.nodes == it.nodes);
    CHECK(found.devices == it.devices);
    CHECK(static_cast<double>(found.device_bytes.count()) / (1 << 30) == Catch::Approx(it.device_gib).margin(0.01));
    CHECK(static_cast<double>(found.host_bytes.count()) == it.host_gb * 1e9);
  }
  machine four = all["a100_40_node"];
  four.name = all["a100_40_four_nodes"].name, four.nodes = 4, four.rates.network_bytes_per_second = 25e9;
  CHECK(four == all["a100_40_four_nodes"]);
}

TEST_CASE("a machine file that is not there is an io_error", "[workload]")
{
  CHECK_THROWS_AS(read_machine((examples() / "none.json").string()), io_error);
  CHECK_THROWS_WITH(read_machine((examples() / "none.json").string()), ContainsSubstring("none.json cannot be read"));
}

}  // namespace machine_file_test

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

TEST_CASE("a file may leave out what few models have", "[workload]")
{
  transformer_shape shape = shape_of("Gemini LLaMA", "7b");
  shape.head_width = 256;
  shape.has_qkv_biases = shape.norms_heads = true;
  shape.experts = 8;
  shape.experts_for_token = 2;
  file_mistakes::fields all = fields_of(shape);
  CHECK(parse(file_mistakes::json_of(all)).shape == shape_of("Gemini LLaMA", "7b"));
  all.insert(all.end(), {{"head_width", "256"},
                         {"has_qkv_biases", "true"},
                         {"norms_heads", "true"},
                         {"experts", "8"},
                         {"experts_for_token", "2"}});
  CHECK(parse(file_mistakes::json_of(all)).shape == shape);
  all.back().second = "9";
  file_mistakes::expect(parse, all, "experts_for_token", "is above experts");
  all.pop_back();
  file_mistakes::expect(parse, all, "experts_for_token", "does not go with experts");
  all.back().second = "1";
  file_mistakes::expect(parse, all, "experts", "is neither 0 nor from 2 to 65536");
  file_mistakes::fields gpt = fields_of(shape_of("PatrickStar", "175B"));
  gpt.emplace_back("norms_heads", "true");
  file_mistakes::expect(parse, gpt, "norms_heads", "is for the style llama");
  gpt.back() = {"has_qkv_biases", "true"};
  file_mistakes::expect(parse, gpt, "has_qkv_biases", "is for the style llama");
  gpt.back() = {"head_width", "18446744073709551615"};
  file_mistakes::expect(parse, gpt, "head_width", "makes queries wider than 2^40");
}

TEST_CASE("the transformers of the examples have their published parameters", "[workload]")
{
  const auto folder = std::filesystem::path{__FILE__}.parent_path() / "../../examples/max_model/models";
  const auto parameters_in = [&](const char* file) {
    return parameters_of(read_transformer((folder / file).string()).shape);
  };
  CHECK(read_transformer((folder / "llama_3_8b.json").string()).name == "LLaMA 3 8B");
  CHECK(parameters_in("llama_3_8b.json") == 8'030'261'248);
  CHECK(parameters_in("mixtral_8x7b.json") == 46'702'792'704);
  CHECK(parameters_in("qwen2_7b.json") == 7'615'616'512);
  CHECK(parameters_in("qwen3_30b_a3b.json") == 30'532'122'624);
  CHECK(parameters_in("gemma_7b.json") == 8'537'680'896);
  CHECK_THROWS_AS(read_transformer((folder / "none.json").string()), io_error);
}

}  // namespace transformer_file_test
