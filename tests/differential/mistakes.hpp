// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter_base.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace differential {
namespace {

/// Calls that are wrong in every state of a manager.
template <class World>
class mistake_maker {
  using engine = typename World::manager::engine_type;
  using float_pin = typename World::manager::template pin_type<float>;
  using float_gradient = cm::gradient_pin<float, engine>;

 public:
  answer make(std::uint32_t which, house<World>& home, const setting& it, const std::vector<cm::tensor_handle>& handles)
  {
    auto& m = home.m;
    const cm::tensor<float> weight{handles[1]};
    constexpr std::uint64_t too_many[] = {1, 1, 1, 1, 1, 1, 1};
    switch (which) {
      case 0: return ask([] { (void)float_pin{}.size(); });
      case 1: return ask([] { (void)cm::lease<engine>{}.size(); });
      case 2: return ask([&] { m.template add<float>({4}, cm::role::parameter); });
      case 3: return ask([&] { m.use(std::array{cm::list_spec{"late"}}); });
      case 4: return ask([&] { m.state("cursor", {}); });
      case 5: return ask([&] { (void)m.list("nobody"); });
      case 6: return ask([&] { m.lease(cm::tier::device, cm::bytes{0}).release(); });
      case 7: return ask([&] { (void)cm::stacked<float>{weight, 2}.slice(2); });
      case 8: return ask([&] { (void)cm::shape{std::span{too_many}}; });
      case 9: return ask([&] { (void)m.template add_stacked<float>(0, {4}, cm::role::parameter); });
      case 10: return ask([&] { (void)m.gradient(std::move(stranger(it).pin)); });
      case 11: return ask([&] { m.gradient_done(std::move(stranger(it).gradient)); });
      case 12: return ended_iteration(it);
      case 13: return outlived(it);
      case 14: return ask([&] { m.drop(stranger(it).weight); });
      case 15: return ask([&] { m.lease(cm::tier::device, cm::bytes{1}, cm::agent::to_host).release(); });
      case 16: return ask([&] { m.lease(cm::no_tier, cm::bytes{1}).release(); });
      case 17: return ask([&] { auto never = m.iteration(0); });
      case 18: return ask([&] { auto never = m.iteration(65'536); });
      case 19: return ask([&] { m.gradient_done(weight, static_cast<cm::agent>(7)); });
      case 20: return ask([&] { house<World> never{small(it), cm::bytes{100}, false}; });
      case 21: return too_small(it);
      case 22: return ask([&] { without_masters(it); });
      default: return ask([] { (void)support::every_eviction{"nobody"}; });
    }
  }

 private:
  /// Another manager, with a pin and a gradient.
  struct another {
    explicit another(const setting& it)
        : home{small(it)},
          weight{home.m.template add<float>({4}, cm::role::parameter)},
          pin{home.m.acquire(weight, cm::access::write)},
          gradient{home.m.gradient(weight)}
    {
    }
    house<World> home;
    cm::tensor<float> weight;
    float_pin pin;
    float_gradient gradient;
  };

  [[nodiscard]] static setting small(const setting& it)
  {
    setting result = it;
    result.planted = bug::none;
    result.frame = 256;
    result.device_frames = result.host_frames = 4;
    result.in_place = result.wide = false;
    result.faults = 0;
    return result;
  }
  another& stranger(const setting& it)
  {
    if (!stranger_) stranger_.emplace(small(it));
    return *stranger_;
  }
  answer ended_iteration(const setting& it)
  {
    auto scope = stranger(it).home.m.iteration();
    scope.end();
    return ask([&] { scope.pass(cm::pass::forward); });
  }
  static answer outlived(const setting& it)
  {
    std::optional<another> home{std::in_place, small(it)};
    const float_pin survivor = std::move(home->pin);
    home.reset();
    return ask([&] { (void)survivor.data(); });
  }
  static answer too_small(const setting& it)
  {
    house<World> home{small(it)};
    home.m.template add<float>({2000}, cm::role::parameter);
    return ask([&] { (void)home.m.seal(); });
  }
  static void without_masters(const setting& it)
  {
    house<World> home{small(it), cm::bytes{256}, true};
    home.m.template add<cm::bf16>({4}, cm::role::parameter);
    (void)home.m.seal();
  }

  std::optional<another> stranger_;
};

}  // namespace
}  // namespace differential
