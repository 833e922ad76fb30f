// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/memory_plan_file.hpp>

#include <support/catch.hpp>
#include <support/links.hpp>

#include "../workload/file_mistakes.hpp"

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

namespace memory_plan_file_test {

using namespace chunkmem;
using namespace chunkmem::planner;
using Catch::Matchers::ContainsSubstring;

namespace {

const auto parse = [](const std::string& text) { return parse_memory_plan(text, "it.json", 7); };

const memory_plan example{.fingerprint = 7,
                          .chunk_bytes = 512_B,
                          .device_capacity = 100_B,
                          .host_capacity = 200_B,
                          .device_update_share = 0.25,
                          .gather_units = 6,
                          .gathers_ahead = 2,
                          .gradient = "separate",
                          .has_wide_gradients = true,
                          .layout = "append_layout",
                          .at_peak = {10_B, 20_B, 30_B, 40_B},
                          .host_peak = 150_B,
                          .step_nanoseconds = 5,
                          .assumed = {30_B, 29_B, 1e12, {2e12, 3e9, 4e9, 5e9, 6e9, 7e9, 8e9, 9e9}}};

file_mistakes::fields good()
{
  return {{"fingerprint", "7"},
          {"chunk_bytes", "512"},
          {"device_capacity", "100"},
          {"host_capacity", "200"},
          {"device_update_share", "0.25"},
          {"gather_units", "6"},
          {"gathers_ahead", "2"},
          {"gradient", "\"separate\""},
          {"has_wide_gradients", "true"},
          {"layout", "\"append_layout\""},
          {"at_peak.values", "10"},
          {"at_peak.states", "20"},
          {"at_peak.leases", "30"},
          {"at_peak.free", "40"},
          {"host_peak", "150"},
          {"step_nanoseconds", "5"},
          {"assumed.tide", "30"},
          {"assumed.modelled_tide", "29"},
          {"assumed.flops_per_second", "1e12"},
          {"rates.device_flops_per_second", "2e12"},
          {"rates.to_device_bytes_per_second", "3e9"},
          {"rates.to_host_bytes_per_second", "4e9"},
          {"rates.peer_bytes_per_second", "5e9"},
          {"rates.network_bytes_per_second", "6000000000"},
          {"rates.host_memory_bytes_per_second", "7e9"},
          {"rates.host_updates_per_second", "8e9"},
          {"rates.device_updates_per_second", "9e9"}};
}

void expect(const std::string& path, const std::string& value, const std::string& why)
{
  file_mistakes::fields all = good();
  for (auto& it : all)
    if (it.first == path) it.second = value;
  file_mistakes::expect(parse, all, path, why);
}

}  // namespace

TEST_CASE("a plan of memory is what its file says", "[planner]")
{
  CHECK(parse(file_mistakes::json_of(good())) == example);
}

TEST_CASE("every mistake at every key of a plan of memory is one sentence with file and key", "[planner]")
{
  CHECK(file_mistakes::try_all(parse, good(), "gathers_ahead") == 23 * 12 + 11 + 2 * 11 + 9 + 1);
}

TEST_CASE("a plan of memory that names no gathers ahead has none", "[planner]")
{
  file_mistakes::fields older = good();
  std::erase_if(older, [](const auto& it) { return it.first == "gathers_ahead"; });
  memory_plan expected = example;
  expected.gathers_ahead = 0;
  CHECK(parse(file_mistakes::json_of(older)) == expected);
}

TEST_CASE("a plan of another job, or one that cannot be, is refused at its key", "[planner]")
{
  expect("fingerprint", "8", "is that of another model, training or amount of memory");
  expect("chunk_bytes", "0", "is 0");
  expect("chunk_bytes", "100", "is no multiple of 256");
  expect("chunk_bytes", "18446744073709551616", "more than 64 bits");
  expect("device_capacity", "0", "is 0");
  expect("device_update_share", "1.01", "is above 1");
  expect("gather_units", "0", "is 0");
  expect("gather_units", "1025", "is above 1024");
  expect("gathers_ahead", "1025", "is above 1024");
  expect("gradient", "\"wide\"", "is neither in_place nor separate");
  expect("has_wide_gradients", "\"true\"", "is a text");
  expect("at_peak.values", "101", "more bytes");
  expect("at_peak.states", "18446744073709551615", "more bytes");
  expect("at_peak.free", "39", "fewer bytes");
  expect("host_peak", "201", "is above host_capacity");
  expect("assumed.flops_per_second", "0", "is 0");
  for (const char* key : {"device_flops_per_second", "to_device_bytes_per_second", "to_host_bytes_per_second",
                          "host_updates_per_second", "device_updates_per_second"})
    expect(std::string{"rates."} + key, "0", "is 0");
}

TEST_CASE("a plan that was written is read as it was, to the last bit", "[planner]")
{
  const std::string path = (std::filesystem::temp_directory_path() / "chunkmem_memory_plan_file_test.json").string();
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random{seed};
    const auto number = [&] {
      return (1 + static_cast<double>(random() >> 1)) / (1 + static_cast<double>(random() >> 20));
    };
    const auto size = [&] { return bytes{random() >> 4}; };
    memory_plan plan = example;
    plan.chunk_bytes = bytes{256} * (1 + (random() >> 20));
    plan.at_peak = {size(), size(), size(), size()};
    plan.device_capacity = plan.at_peak.sum();
    plan.host_peak = size();
    plan.host_capacity = plan.host_peak + size();
    plan.device_update_share = static_cast<double>(random()) * 0x1p-64;
    plan.gather_units = 1 + static_cast<std::uint32_t>(random() % 1'024);
    plan.gathers_ahead = static_cast<std::uint32_t>(random() % 1'025);
    plan.step_nanoseconds = random();
    if (random() % 2 == 0) plan.gradient = "in_place", plan.has_wide_gradients = false;
    plan.fingerprint = random();
    plan.assumed = {size(), size(), number(), {number(), number(), number(), number(), 0, 0, number(), 1e300}};
    CAPTURE(seed, to_json(plan));
    REQUIRE(parse_memory_plan(to_json(plan), "it.json", plan.fingerprint) == plan);
    if (seed > 3) continue;
    save_memory_plan(plan, path);
    REQUIRE(load_memory_plan(path, plan.fingerprint) == plan);
  }
  std::filesystem::remove(path);
  CHECK_THROWS_AS(load_memory_plan(path, 7), io_error);
  CHECK_THROWS_WITH(save_memory_plan(example, path + "/there/is/no/such/folder"),
                    ContainsSubstring("opening a memory plan failed"));
}

TEST_CASE("a plan names the gradient policy of its manager", "[planner]")
{
  memory_plan plan = example;
  CHECK(plan.gradients().chosen() == "separate");
  CHECK(plan.gradients().type_for(dtype::bfloat16) == dtype::float32);
  plan.has_wide_gradients = false;
  CHECK(plan.gradients().type_for(dtype::bfloat16) == dtype::bfloat16);
  plan.gradient = "in_place";
  CHECK(plan.gradients().takes_slot());
  plan.has_wide_gradients = true;
  CHECK_THROWS_WITH(parse(to_json(plan)), ContainsSubstring("gradients are in place"));
  plan.gradient = "somewhere";
  plan.has_wide_gradients = false;
  CHECK_THROWS_AS(plan.gradients(), config_error);
}

TEST_CASE("a plan of version 0.1 is refused, with the reason", "[planner]")
{
  file_mistakes::fields old = good();
  std::erase_if(old, [](const auto& it) {
    return it.first == "gradient" || it.first == "has_wide_gradients" || it.first == "layout";
  });
  file_mistakes::expect(parse, old, "gradient", "a planner that cut tensors at the borders of chunks (plan again");
}

TEST_CASE("a saved plan never goes through a link", "[planner]")
{
  support::expect_no_link_is_followed([](const std::string& path) { save_memory_plan(example, path); });
}

}  // namespace memory_plan_file_test
