// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/model_content.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>

#include <span>
#include <string>
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

TEST_CASE("two things of one name cannot be saved", "[checkpoint]")
{
  model it;
  const auto w = it.m.add<float>({2}, cm::role::parameter);
  const auto b = it.m.add<float>({2}, cm::role::buffer);
  it.m.name(w, "w");
  it.m.name(b, "w");
  CHECK_THROWS_AS(content_of(it.m), cm::config_error);
  it.m.name(b, "b");
  CHECK(content_of(it.m).size() == 2);
}

TEST_CASE("names that mean something else in files are refused, and others of that kind are not", "[checkpoint]")
{
  model it;
  const auto w = it.m.add<float>({2}, cm::role::parameter);
  it.m.use(std::vector<cm::list_spec>{{"adam/momentum", cm::dtype::float32}});
  const auto said = [&](std::string_view name) -> std::string {
    it.m.name(w, name);
    try {
      (void)content_of(it.m);
    } catch (const cm::config_error& refused) {
      return refused.what();
    }
    return {};
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
  it.m.state("turn[rank 0 of 2]", std::as_writable_bytes(std::span{&turn, 1}));
  CHECK_FALSE(said("w").empty());
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
