// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/decide_body.hpp>

#include <chunkmem/optimizer/loop_launcher.hpp>
#include <support/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace decide_body_test {

using chunkmem::gradient_measure;
using namespace chunkmem::optimizer;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// The decision by the formulas of docs/numerics.md.
void check_decision(const std::vector<gradient_measure>& measures, const clipping& clip, bool may_skip, float scale)
{
  device_step_state state;
  state.loss.scale = scale;
  loop_launcher::run(decide_body{measures.data(), measures.size(), clip, may_skip, &state});
  gradient_measure all;
  for (const gradient_measure& each : measures) all.add(each);
  double norm = clip.order == norm_order::l1 ? all.magnitudes : std::sqrt(all.squares);
  if (clip.order == norm_order::linf) norm = static_cast<double>(all.largest);
  norm /= static_cast<double>(scale);
  float factor = 1.0F;
  if (all.finite && clip.norm > 0.0F)
    factor = static_cast<float>(std::fmin(1.0, static_cast<double>(clip.norm) / (norm + 1e-6)));
  CHECK(std::memcmp(&state.norm, &norm, 8) == 0);
  CHECK(state.factor == static_cast<float>(static_cast<double>(factor) / static_cast<double>(scale)));
  CHECK(state.decision == (may_skip && !all.finite ? step_decision::skip : step_decision::update));
  CHECK(state.total.squares == all.squares);
  CHECK(state.total.finite == all.finite);
}

}  // namespace

TEST_CASE("a decision is that of the formulas, for each norm, limit and loss scale", "[optimizer]")
{
  const std::vector<std::vector<gradient_measure>> gradients{
      {},
      {{0.25, 0.5, 0.5F, true}},
      {{1e-3, 1e-2, 1e-2F, true}, {}, {123.456, 77.7, 9.9F, true}},
      {{1e30, 1e20, 1e15F, true}, {1e-40, 1e-20, 1e-20F, true}},
      {{1.0, 1.0, 1.0F, true}, {infinite, infinite, std::numeric_limits<float>::infinity(), false}},
  };
  for (const auto& measures : gradients)
    for (const norm_order order : {norm_order::l1, norm_order::l2, norm_order::linf})
      for (const float limit : {0.0F, 1e-40F, 0.37F, 1e9F})
        for (const float scale : {1.0F, 65536.0F, 1234.5F})
          for (const bool may_skip : {true, false})
            check_decision(measures, {.norm = limit, .order = order}, may_skip, scale);
}

TEST_CASE("a decision that is taken again is the same", "[optimizer]")
{
  const std::vector<gradient_measure> measures{{2.0, 3.0, 1.0F, true}};
  device_step_state state;
  const decide_body body{measures.data(), 1, {.norm = 0.5F}, true, &state};
  loop_launcher::run(body);
  const device_step_state first = state;
  loop_launcher::run(body);
  CHECK((state.factor == first.factor && state.norm == first.norm && state.total.squares == first.total.squares));
}

}  // namespace decide_body_test
