// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/gradient_store.hpp>

#include "parts_rig.hpp"

#include <chunkmem/tensor/gradient_policies.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>

namespace gradient_store_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr slot_id weight{0}, neighbour{1};

/// The element of a master; no bf16 has this value.
float trained(std::size_t index)
{
  return 0.3F + static_cast<float>(index);
}

/// Two weights of 16 bits that share a chunk, with their masters.
template <class Gradient>
struct fixture {
  using rig_type = manager_parts::parts_rig<placement::host_first, Gradient>;

  fixture()
  {
    for (int index = 0; index < 2; ++index) rig.template add<bf16>(1024);
    rig.builder.add_lists(manager_parts::momentum_and_master);
    rig.builder.prepare();
    for (const slot_id each : {weight, neighbour}) {
      const auto value = rig.template hold<bf16>(each, access::write);
      const auto master = rig.template hold<float>(rig.master_of(each), access::write, memory_location::host);
      for (std::size_t index = 0; index < master.size(); ++index) {
        master.span()[index] = trained(index);
        value.span()[index] = round_to<bf16>(trained(index));
      }
    }
    if (Gradient{}.takes_slot()) rig.lend_weights();
  }
  /// Opens a gradient as a trainer does, and writes it.
  void differentiate(slot_id value)
  {
    gradients.template expect<bf16>(value, 0);
    const typename rig_type::template pin_type<bf16> pin{
        rig.link.get(), [&] { return gradients.open(value, entry_kind::write, agent::host, false); }};
    std::ranges::fill(pin.span(), round_to<bf16>(9.0F));
  }
  [[nodiscard]] bool is_as_trained(slot_id value)
  {
    const auto pin = rig.template hold<const bf16>(value, access::read);
    for (std::size_t index = 0; index < pin.size(); ++index)
      if (to_float(pin.span()[index]) != to_float(round_to<bf16>(trained(index)))) return false;
    return true;
  }

  rig_type rig;
  gradient_store<typename rig_type::engine_type, typename rig_type::builder_type> gradients{rig.engine, rig.builder,
                                                                                            rig.ledger, *rig.link};
};

}  // namespace

TEST_CASE("a gradient is fresh until it is opened and again when it is consumed, with nothing noted of it", "[manager]")
{
  fixture<gradient::separate> it;
  CHECK(it.gradients.is_fresh(weight));
  it.differentiate(weight);
  CHECK_FALSE(it.gradients.is_fresh(weight));
  CHECK(it.gradients.is_fresh(neighbour));
  CHECK(it.rig.ledger.opened() == 1);
  it.rig.ledger.finish(weight, {});
  it.gradients.consume(weight);
  CHECK(it.gradients.is_fresh(weight));
  CHECK(it.rig.ledger.is_open(weight));
  CHECK(it.rig.ledger.measure_of(weight) == nullptr);
  it.gradients.consume(weight);  // passed over
  CHECK(it.is_as_trained(weight));
}

TEST_CASE("a gradient that must not be asked for is refused, and nothing was opened", "[manager]")
{
  fixture<gradient::separate> it;
  CHECK_THROWS_WITH(it.gradients.expect<float>(weight, 0), ContainsSubstring("element type"));
  it.rig.ledger.finish(weight);
  CHECK_THROWS_WITH(it.gradients.expect<bf16>(weight, 0), ContainsSubstring("after gradient_done"));
  it.gradients.expect<bf16>(neighbour, 0);
  it.rig.ledger.begin_update();
  CHECK_THROWS_WITH(it.gradients.expect<bf16>(neighbour, 0), ContainsSubstring("half done"));
  CHECK_THROWS_AS(it.gradients.open_again(weight, entry_kind::write, agent::host), usage_error);
  it.rig.ledger.end_update();
  CHECK(it.rig.ledger.opened() == 0);
  CHECK((it.gradients.is_fresh(weight) && it.gradients.is_fresh(neighbour)));
}

TEST_CASE("a gradient in place takes the bytes of its weight, which is made from its master when it is consumed",
          "[manager]")
{
  fixture<gradient::in_place> it;
  const bf16* const bytes_of_weight = [&] {
    const auto pin = it.rig.hold<const bf16>(weight, access::read);
    return pin.data();
  }();
  it.differentiate(weight);
  CHECK(it.rig.state_of(weight) == tensor_state::gradient);
  const slot_id gradient = it.rig.engine.tensors().gradient_of(weight);
  {
    const auto pin = it.rig.hold<const bf16>(gradient, access::read);
    CHECK(pin.data() == bytes_of_weight);
  }
  CHECK(it.rig.first_of<bf16>(gradient) == 9.0F);
  CHECK(it.rig.state_of(neighbour) == tensor_state::hold);
  it.gradients.consume(weight);
  CHECK(it.rig.state_of(weight) == tensor_state::hold);
  CHECK((it.is_as_trained(weight) && it.is_as_trained(neighbour)));
}

TEST_CASE("a gradient in place is refused while others hold its weight, and where no master could bring it back",
          "[manager]")
{
  fixture<gradient::in_place> it;
  {
    const auto pin = it.rig.hold<const bf16>(weight, access::read);
    CHECK_THROWS_WITH(it.gradients.expect<bf16>(weight, 0), ContainsSubstring("another pin"));
    it.gradients.expect<bf16>(weight, 1);  // who asks holds it
  }
  it.rig.engine.drop(it.rig.master_of(neighbour));
  CHECK_THROWS_WITH(it.gradients.expect<bf16>(neighbour, 0), ContainsSubstring("without a master"));
  CHECK_THROWS_AS(it.gradients.open_again(neighbour, entry_kind::write, agent::host), usage_error);
  CHECK(it.rig.ledger.opened() == 0);
  CHECK(it.rig.state_of(neighbour) == tensor_state::hold);
}

TEST_CASE("an overwrite of a lent weight that is refused leaves its bytes to the gradient, and one can be undone",
          "[manager]")
{
  fixture<gradient::in_place> it;
  it.differentiate(weight);
  {
    const auto pin = it.rig.hold<const bf16>(neighbour, access::read);  // keeps their chunk on the device
    CHECK_THROWS_AS(it.gradients.acquire_over(weight, entry_kind::write_on_host, agent::host), usage_error);
    CHECK(it.rig.state_of(weight) == tensor_state::gradient);
  }
  it.rig.engine.release(it.gradients.acquire_over(weight, entry_kind::write_on_host, agent::host));
  CHECK(it.rig.state_of(weight) == tensor_state::hold);
  it.gradients.take_place(weight);
  CHECK(it.rig.state_of(weight) == tensor_state::gradient);
  it.gradients.consume(weight);
  CHECK(it.is_as_trained(weight));
}

TEST_CASE("a rehearsed gradient takes no weight's bytes, and a rehearsed step that is dropped is none", "[manager]")
{
  fixture<gradient::in_place> it;
  it.rig.engine.rehearsing().begin(it.rig.engine.tensors());
  it.gradients.expect<bf16>(weight, 0);
  it.rig.engine.release(it.gradients.open(weight, entry_kind::write, agent::host, false));
  CHECK_FALSE(it.gradients.is_fresh(weight));
  CHECK(it.rig.state_of(weight) == tensor_state::hold);
  it.gradients.forget_step();
  CHECK(it.gradients.is_fresh(weight));
  it.rig.engine.rehearsing().end();
  CHECK(it.rig.ledger.forgotten() == 0);
  it.differentiate(weight);
  it.gradients.forget_step();
  CHECK(it.rig.ledger.forgotten() == 1);
  CHECK(it.gradients.is_fresh(weight));
  CHECK(it.rig.state_of(weight) == tensor_state::hold);
}

TEST_CASE("a lost device keeps its gradients, and says that it is lost where there are none", "[manager]")
{
  fixture<gradient::separate> it, without;
  it.differentiate(weight);
  it.rig.lose_device();
  without.rig.lose_device();
  CHECK_THROWS_AS(it.gradients.consume_all(), device_error);
  CHECK_FALSE(it.gradients.is_fresh(weight));
  CHECK_THROWS_AS(without.gradients.consume_all(), device_error);
}

}  // namespace gradient_store_test
