// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/model_content.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace model_content_test {

namespace cm = chunkmem;
using namespace cm::literals;
using cm::checkpoint::content_of;
using cm::checkpoint::model_item;

namespace {

struct model {
  cm::backend::host_arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 4_KiB}};
};

std::vector<std::string> names_of(const std::vector<model_item>& items)
{
  std::vector<std::string> names;
  for (const model_item& it : items) names.push_back(it.name);
  return names;
}

}  // namespace

TEST_CASE("a checkpoint holds values, masters in their stead, lists and states", "[checkpoint]")
{
  model it;
  const auto w = it.m.add<cm::bf16>({2, 3}, cm::role::parameter);
  (void)it.m.add<float>({4}, cm::role::parameter);
  const auto table = it.m.add<std::int64_t>({5}, cm::role::buffer);
  (void)it.m.add<float>({9}, cm::role::activation);
  it.m.name(w, "w");
  it.m.name(table, "table");
  it.m.use(std::vector<cm::list_spec>{cm::master_list, {"momentum", cm::dtype::bfloat16}});
  int turn = 4;
  it.m.state("turn", std::as_writable_bytes(std::span{&turn, 1}));
  it.m.state("nothing", {});
  CHECK(names_of(content_of(it.m)) ==
        std::vector<std::string>{"table", "tensor.1", "momentum/w", "w", "momentum/tensor.1", "state/turn"});
  for (const model_item& item : content_of(it.m)) CHECK(item.is_filled == item.is_state());

  for (auto& value : it.m.acquire(w, cm::access::write).span()) value = cm::round_to<cm::bf16>(1.0F);
  {
    const auto scope = it.m.iteration();
  }  // makes the master
  const std::vector<model_item> items = content_of(it.m);
  CHECK(names_of(items) ==
        std::vector<std::string>{"table", "w", "tensor.1", "momentum/w", "momentum/tensor.1", "state/turn"});
  CHECK(items[1].type == cm::dtype::float32);
  CHECK(items[1].value_type == cm::dtype::bfloat16);
  CHECK(items[1].list == it.m.list("master"));
  CHECK(items[1].extents == std::vector<std::uint64_t>{2, 3});
  CHECK(items[3].starts_at_zero);
  CHECK(items[5].size() == sizeof turn);
}

TEST_CASE("two things of one name cannot be declared", "[checkpoint]")
{
  model it;
  const auto w = it.m.add<float>({2}, cm::role::parameter);
  const auto b = it.m.add<float>({2}, cm::role::buffer);
  it.m.name(w, "w");
  CHECK_THROWS_AS(it.m.name(b, "w"), cm::config_error);
  it.m.name(b, "b");
  CHECK(content_of(it.m).size() == 2);
}

TEST_CASE("names that mean something else in files are refused, and others of that kind are not", "[checkpoint]")
{
  model it;
  const auto w = it.m.add<float>({2}, cm::role::parameter);
  it.m.use(std::vector<cm::list_spec>{{"adam/momentum", cm::dtype::float32}});
  const auto said = [&](std::string_view name) -> std::string {
    return support::refusal<cm::config_error>([&] {
      it.m.name(w, name);
      (void)content_of(it.m);
    });
  };
  for (const char* const name :
       {"state/w", "adam/momentum/w", "w[0:8]", "w[17:23]", "layers[3][0:1]", "w[rank 1 of 2]", "w[rank 12 of 345]"}) {
    INFO(name);
    CHECK(said(name).find("(choose another name)") != std::string::npos);
  }
  for (const char* const name : {"states/w", "adam/momentum", "adam/other/w", "layers[3]", "w[:]", "w[0:]", "w[a:b]",
                                 "w[rank of ]", "w[0:8]x", "]", "[", "w]"}) {
    INFO(name);
    CHECK(said(name).empty());
  }
  CHECK(said("w").empty());
  int turn = 0;
  CHECK_THROWS_AS(it.m.state("turn[rank 0 of 2]", std::as_writable_bytes(std::span{&turn, 1})), cm::config_error);
  it.m.state("turn", std::as_writable_bytes(std::span{&turn, 1}));
  CHECK(said("w").empty());
}

TEST_CASE("whatever names are declared can be saved, each under a name of its own", "[checkpoint]")
{
  // names of pieces that mean something in files, in random order, for tensors, lists and states
  constexpr std::string_view pieces[] = {"a",        "b",    "/",     "state", "[",     "]",       "0",
                                         "7",        ":",    "rank ", " of ",  "[0:7]", "tensor.", "__metadata__",
                                         "\xc3\xa9", "\xc3", "a/",    "b/"};
  std::uint64_t dice = 7;
  const auto roll = [&](std::uint64_t below) {
    dice = dice * 6364136223846793005U + 1442695040888963407U;
    return (dice >> 33U) % below;
  };
  const auto any_name = [&] {
    std::string name;
    for (std::uint64_t left = 1 + roll(4); left > 0; --left) name += pieces[roll(std::size(pieces))];
    return name;
  };
  std::uint64_t refused = 0;
  for (int round = 0; round < (support::sanitized ? 60 : 300); ++round) {
    model it;
    std::vector<cm::tensor<float>> tensors;
    for (int index = 0; index < 6; ++index)
      tensors.push_back(it.m.add<float>({2}, index < 4 ? cm::role::parameter : cm::role::buffer));
    std::array<std::byte, 4> content{};
    std::vector<std::string> lists;  // their names outlive the manager
    lists.reserve(8);
    const auto declare = [&](auto call) {
      try {
        call();
      } catch (const cm::config_error&) {
        ++refused;
      } catch (const cm::usage_error&) {  // a list or a state twice
        ++refused;
      }
    };
    for (int call = 0; call < 10; ++call) {
      const std::uint64_t what = roll(4);
      if (what == 0 && lists.size() < 8)
        declare([&] { it.m.use(std::array{cm::list_spec{lists.emplace_back(any_name())}}); });
      else if (what == 1)
        declare([&] { it.m.state(any_name(), content); });
      else
        declare([&] { it.m.name(tensors[roll(tensors.size())], any_name()); });
    }
    try {
      (void)it.m.seal();
    } catch (const cm::config_error&) {
      ++refused;
      continue;
    }
    const std::vector<model_item> items = content_of(it.m);  // refuses two of one name
    for (const model_item& item : items) {
      std::vector<cm::checkpoint::stored_tensor> table(1);
      table[0].name = item.name;
      table[0].extents = {2};
      table[0].end = 8;
      const std::string header = cm::checkpoint::write_table(table);  // refuses what no loader takes
      CHECK(cm::checkpoint::read_table(std::string_view{header}.substr(8), 8)[0].name == item.name);
      CHECK_FALSE(cm::checkpoint::part_of_name(item.name).has_value());
      if (!item.is_state()) CHECK_FALSE(item.name.starts_with("state/"));
    }
  }
  CHECK(refused > (support::sanitized ? 20 : 100));
}

TEST_CASE("what waits for its step is not saved", "[checkpoint]")
{
  model it;
  const auto w = it.m.add<float>({2}, cm::role::parameter);
  for (float& value : it.m.acquire(w, cm::access::write).span()) value = 1.0F;
  {
    const auto scope = it.m.iteration();
    CHECK_THROWS_AS(content_of(it.m), cm::usage_error);
    for (float& value : it.m.gradient(w).span()) value = 1.0F;
  }
  CHECK_THROWS_AS(content_of(it.m), cm::usage_error);
  it.m.drop_gradients();
  CHECK(content_of(it.m).size() == 1);
}

}  // namespace model_content_test
