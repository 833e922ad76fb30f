// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/model_builder.hpp>

#include "parts_rig.hpp"

#include <chunkmem/placement/policies.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <support/catch.hpp>
#include <support/oracles/record_builder.hpp>

#include <span>

namespace model_builder_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using manager_parts::momentum_and_master;
using manager_parts::parts_rig;

TEST_CASE("the first handle that is resolved ends the declarations, and each resolves to a slot in each list",
          "[manager]")
{
  parts_rig<> it;
  const auto frozen = it.add<float>(100, role::frozen);
  const auto first = it.add<float>(100);
  const auto second = it.add<float>(100);
  it.builder.add_lists(std::span{momentum_and_master}.first(1));
  CHECK_FALSE(it.engine.tensors().is_sealed());
  CHECK(it.builder.slot_of(second) == slot_id{1});
  CHECK(it.engine.tensors().is_sealed());
  CHECK(it.ledger.order().all().size() == 2);
  CHECK(it.builder.slot_of(first) == slot_id{0});
  CHECK(it.builder.slot_in(second, gradient_list) == slot_id{3});
  CHECK(it.builder.slot_in(first, it.engine.tensors().list("momentum")) == slot_id{4});
  CHECK(it.builder.slot_of(frozen) == slot_id{6});
  CHECK_THROWS_AS(it.add<float>(100), usage_error);
  CHECK_THROWS_AS(it.builder.add_lists(std::span{momentum_and_master}.last(1)), usage_error);
  CHECK(it.engine.tensors().tensors() == 3);
  CHECK(it.engine.tensors().lists() == 3);
}

TEST_CASE("a handle that was not made here places nothing, and lists are those of a parameter that has them",
          "[manager]")
{
  parts_rig<> it, other;
  const auto wide = it.add<float>(100);
  const auto frozen = it.add<float>(100, role::frozen);
  const auto foreign = other.add<float>(100);
  it.builder.add_lists(momentum_and_master);
  const auto refuse = [&] {
    CHECK_THROWS_WITH(it.builder.slot_of(foreign), ContainsSubstring("did not make it"));
    CHECK_THROWS_AS(it.builder.slot_of(tensor_handle{}), usage_error);
  };
  refuse();
  CHECK_THROWS_AS(it.builder.slot_of(it.builder.handle_of(tensor_id{2})), usage_error);
  CHECK_FALSE(it.engine.tensors().is_sealed());
  it.builder.prepare();
  refuse();  // also where everything is placed
  CHECK_THROWS_WITH(it.builder.slot_in(frozen, gradient_list), ContainsSubstring("not trained"));
  CHECK_THROWS_WITH(it.builder.slot_in(wide, list_id{4}), ContainsSubstring("does not have"));
  CHECK_THROWS_WITH(it.builder.slot_in(wide, it.engine.tensors().masters()), ContainsSubstring("32-bit"));
}

TEST_CASE("lists are added all or none", "[manager]")
{
  parts_rig<> it;
  const list_spec twice[] = {{"momentum"}, {"variance"}, {"momentum"}};
  CHECK_THROWS_AS(it.builder.add_lists(twice), usage_error);
  CHECK(it.engine.tensors().lists() == 2);
  CHECK_THROWS_AS(it.engine.tensors().list("variance"), usage_error);
  it.builder.add_lists(std::span{twice}.first(2));
  CHECK(it.engine.tensors().list("variance") == list_id{3});
}

TEST_CASE("a model that does not fit is refused at each use, until a rehearsed step is known to fit", "[manager]")
{
  parts_rig<> it{8_KiB, 4_KiB};
  for (int index = 0; index < 4; ++index) it.add<float>(1024);
  const tensor_handle last = it.builder.handle_of(tensor_id{3});
  CHECK_THROWS_WITH(it.builder.seal(), ContainsSubstring("the host capacity is 4096 B") &&
                                           ContainsSubstring("needs at least 8192 B") &&
                                           !ContainsSubstring("the device capacity"));
  CHECK_THROWS_AS(it.builder.slot_of(last), config_error);
  CHECK(it.builder.place().chunks == 32_KiB);  // a rehearsal finds out what fits
  it.engine.rehearsing().begin(it.engine.tensors());
  CHECK(it.builder.slot_of(last) == slot_id{3});
  it.engine.rehearsing().end();
  it.builder.forget_ready();  // it found nothing out
  CHECK_THROWS_AS(it.builder.slot_of(last), config_error);
  it.builder.note_fit();
  CHECK(it.builder.slot_of(last) == slot_id{3});
}

TEST_CASE("gradients in place that no parameter could have are refused while one can be declared", "[manager]")
{
  parts_rig<placement::host_first, gradient::in_place> it;
  const auto wide = it.add<float>(100);
  it.builder.add_lists(momentum_and_master);
  CHECK_THROWS_WITH(it.builder.seal(), ContainsSubstring("gradient::in_place"));
  CHECK_THROWS_AS(it.builder.slot_of(wide), config_error);
  CHECK_FALSE(it.engine.tensors().is_sealed());
  const auto narrow = it.add<bf16>(100);
  it.builder.seal();
  it.lend_weights();
  CHECK(it.engine.places().is_lent(it.builder.slot_of(narrow)));
  CHECK_FALSE(it.engine.places().is_lent(it.builder.slot_of(wide)));
}

TEST_CASE("tensors that lie as they are used first have no slot before a step was seen, and the same slot afterwards",
          "[manager]")
{
  parts_rig<> it{64_KiB, 256_KiB, {.chunk_bytes = 1_KiB, .order = tensor_order::first_use}};
  for (int index = 0; index < 4; ++index) it.add<float>(128, role::frozen);  // two in a chunk
  const tensor_handle last = it.builder.handle_of(tensor_id{3});
  CHECK_THROWS_WITH(it.builder.slot_of(last), ContainsSubstring("first_use"));
  it.builder.place();
  CHECK(it.engine.tensors().chunk_of(slot_id{3}) != it.engine.tensors().chunk_of(slot_id{0}));
  CHECK_THROWS_AS(it.builder.slot_of(last), config_error);
  support::record_builder step;
  for (const std::uint32_t slot : {3U, 0U, 1U, 2U}) step.brief(slot);
  it.builder.learn_order(step.finish({0, 0, 1, 1}, 2));
  CHECK(it.builder.slot_of(last) == slot_id{3});
  CHECK(it.engine.tensors().chunk_of(slot_id{3}) == it.engine.tensors().chunk_of(slot_id{0}));
}

TEST_CASE("states are updated where the leases of iterations leave them room, and leave for a higher tide alone",
          "[manager]")
{
  // 16 KiB of values and gradients, 8 KiB of states, 4 KiB besides
  parts_rig<placement::device_margin> it{28_KiB, 256_KiB, {.chunk_bytes = 4_KiB}, {.share = 1.0}};
  for (int index = 0; index < 2; ++index) it.add<float>(1024);
  it.builder.add_lists(std::span{momentum_and_master}.first(1));
  it.builder.seal();
  const auto on_device_after = [&](bytes leased) {
    {
      const auto scope = it.iterate();
      it.engine.release(it.engine.lease(tier::device, leased.count(), agent::host));
    }
    it.builder.revise_tiers();
    int count = 0;
    for (const slot_id value : ids<slot_id>(2))
      count += it.builder.update_place(value) == memory_location::device ? 1 : 0;
    return count;
  };
  it.builder.revise_tiers();
  CHECK(it.builder.update_place(slot_id{0}) == memory_location::host);  // nothing was measured
  CHECK(on_device_after(4_KiB) == 2);
  CHECK(on_device_after(8_KiB) == 1);
  CHECK(on_device_after(4_KiB) == 1);
  CHECK(on_device_after(12_KiB) == 0);
}

}  // namespace model_builder_test
