// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/sharded_model.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/optimizer/adam.hpp>

#include <support/catch.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace declaring_on_ranks_test {

using namespace chunkmem;
using model_type = sharded_model<backend::host_arena, collective::self>;

struct rig {
  backend::host_arena memory{{.device_capacity = bytes{1U << 20U}, .host_capacity = bytes{1U << 20U}}};
  collective::self alone;
};

TEST_CASE("mistakes in declarations are refused in words", "[sharding]")
{
  rig it;
  rig another;  // a backend has agents for two models
  CHECK_THROWS_AS((model_type{it.memory, it.alone, {.chunk_bytes = least_waste_chunks}}), config_error);
  model_type m{it.memory, it.alone, {.chunk_bytes = bytes{65536}}};
  model_type other{another.memory, another.alone, {.chunk_bytes = bytes{65536}}};
  CHECK_THROWS_AS(m.add<std::int32_t>({4}, role::parameter), usage_error);
  CHECK_THROWS_AS(m.add_stacked<float>(0, {4}, role::parameter), usage_error);
  const auto weight = m.add<float>({4}, role::parameter);
  const auto stack = m.add_stacked<float>(3, {4}, role::frozen);
  CHECK(stack.slice(2).id == tensor_id{3});
  CHECK_THROWS_AS(other.acquire(weight, access::write), usage_error);
  m.seal();
  m.seal();
  CHECK_THROWS_AS(m.add<float>({4}, role::parameter), usage_error);
  CHECK_THROWS_AS(m.gradient(stack.slice(0)), usage_error);
  CHECK_THROWS_AS(m.drop(weight), usage_error);
  CHECK_THROWS_AS(m.acquire(weight, access::read_write), usage_error);
  model_type uneven{another.memory, another.alone, {.chunk_bytes = bytes{65536 + 256}}};
  (void)uneven.add<float>({4}, role::parameter);
  CHECK_THROWS_AS(uneven.seal(), config_error);
}

TEST_CASE("a name that no checkpoint can hold is refused where it is declared, also over ranks", "[sharding]")
{
  rig it;
  model_type m{it.memory, it.alone, {.chunk_bytes = bytes{65536}}};
  const auto weight = m.add<float>({4}, role::parameter);
  const auto buffer = m.add<float>({4}, role::buffer);
  const auto scratch = m.add<float>({4}, role::activation);
  static constexpr list_spec momenta[] = {{"momentum"}};
  m.use(momenta);
  for (const std::string& name : {std::string{"state/x"}, std::string{"x[0:7]"}, std::string{"x[rank 1 of 2]"},
                                  std::string{"momentum/x"}, std::string{"__metadata__"}, std::string{"\x80"},
                                  std::string(4050, 'n')}) {  // ranks put the numbers of a part behind it
    INFO(name);
    CHECK_THROWS_AS(m.name(weight, name), config_error);
    CHECK_THROWS_AS(m.name(buffer, name), config_error);
  }
  m.name(weight, "weight");
  CHECK_THROWS_AS(m.name(buffer, "weight"), config_error);
  CHECK_THROWS_AS(m.name(buffer, "unit.0"), config_error);
  m.name(buffer, "unit.a");
  m.name(scratch, "momentum/scratch");  // activations are not saved
  CHECK((m.name_of(weight) == "weight" && m.name_of(buffer) == "unit.a"));
  m.name(weight, "tensor.3");
  const auto last = m.add<float>({4}, role::parameter);
  CHECK_THROWS_AS(m.seal(), config_error);
  m.name(last, "later/x");
  static constexpr list_spec more[] = {{"later"}};
  m.use(more);
  CHECK_THROWS_AS(m.seal(), config_error);
  m.name(last, "last");
  m.seal();
}

TEST_CASE("ranks that cannot decide alike are told so before they move a byte", "[sharding]")
{
  const auto tensors = [](const std::string& other) {
    return "tensors: " + other + " on rank 1, and parameter tensor.0 of float32 4 in unit 0, group 0 on rank 0 (";
  };
  const std::array<std::string, 8> sentences{"",
                                             "capacities of the device: rank 1 and rank 0",
                                             tensors("parameter tensor.0 of float32 70000 in unit 0, group 0"),
                                             tensors("parameter tensor.0 of float32 4 in unit 0, group 1"),
                                             "sharding_options: rank 1 and rank 0",
                                             tensors("parameter tensor.0 of float32 2 2 in unit 0, group 0"),
                                             tensors("frozen tensor.0 of float32 4 in unit 0, group 0"),
                                             "sharding_options: rank 1 and rank 0"};
  for (std::size_t difference = 0; difference < sentences.size(); ++difference) {
    std::vector<std::string> said(2);
    const collective::thread_group group{2, {}};
    support::on_ranks(2, [&](std::uint32_t rank) {
      const auto is = [&](std::size_t which) { return difference == which && rank == 1; };
      const std::uint64_t room = (is(1) ? 2U : 1U) << 20U;
      backend::host_arena memory{{.device_capacity = bytes{room}, .host_capacity = bytes{1U << 20U}}};
      collective::local_threads here{group, rank_id{rank}};
      sharded_model<backend::host_arena, collective::local_threads> m{
          memory,
          here,
          {.chunk_bytes = bytes{65536}},
          {.sum_scale = is(4) ? 0.5F : 1.0F, .unit_bytes = bytes{is(7) ? 131'072U : 0U}}};
      (void)m.add<float>(is(5) ? shape{2, 2} : shape{is(2) ? 70'000U : 4U}, is(6) ? role::frozen : role::parameter,
                         group_id{is(3) ? 1U : 0U});
      said[rank] = support::refusal<usage_error>([&] { const auto scope = m.iteration(); });
    });
    INFO(difference);
    for (const std::string& it : said) {
      INFO(it);
      CHECK((difference == 0 ? it.empty() : it.starts_with("chunkmem: ranks have different " + sentences[difference])));
    }
  }
}

TEST_CASE("units of parts of chunks are refused, with the next size of whole ones", "[sharding]")
{
  const collective::thread_group group{1, {}};
  collective::local_threads here{group, rank_id{0}};
  backend::host_arena memory{{.device_capacity = bytes{1U << 20U}, .host_capacity = bytes{1U << 20U}}};
  sharded_model<backend::host_arena, collective::local_threads> m{
      memory, here, {.chunk_bytes = bytes{65'536}}, {.unit_bytes = bytes{65'537}}};
  (void)m.add<float>({4}, role::parameter);
  CHECK_THROWS_WITH(m.seal(),
                    "chunkmem: unit_bytes is 65537 B, which is no multiple of chunk_bytes, 65536 B (use 131072, or 0 "
                    "for units of a chunk)");
}

TEST_CASE("units of several chunks have tensors that fit into none of them together", "[sharding]")
{
  const collective::thread_group group{1, {}};
  collective::local_threads here{group, rank_id{0}};
  backend::host_arena memory{{.device_capacity = bytes{1U << 20U}, .host_capacity = bytes{1U << 20U}}};
  sharded_model<backend::host_arena, collective::local_threads> m{
      memory, here, {.chunk_bytes = bytes{16'384}}, {.unit_bytes = bytes{65'536}}};
  for (int index = 0; index < 4; ++index) (void)m.add<float>({4'096}, role::parameter);
  (void)m.seal();
  CHECK(m.units().size() == 1);
  CHECK(m.plan().units()[0].elements == 16'384);
}

}  // namespace declaring_on_ranks_test
