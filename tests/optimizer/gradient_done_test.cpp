// SPDX-License-Identifier: Apache-2.0
// The time when gradients are measured: with their last write, or in the step.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/placement/placements.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace gradient_done_test {

namespace cm = chunkmem;
using namespace cm::literals;

namespace {

enum class named { by_pin, by_handle, by_the_step };

/// Eight weights of a chunk each, on a device with room for five, where updates work.
class trainer {
 public:
  trainer()
  {
    m_.use(adam_);
    for (std::size_t index = 0; index < weights_.size(); ++index)
      std::ranges::fill(m_.acquire(weights_[index], cm::access::write, cm::memory_location::host).span(),
                        static_cast<float>(index));
  }

  /// Chunks that a step with a norm loads, of gradients that left the device before.
  std::uint64_t loads_of_a_step(named how)
  {
    auto iteration = m_.iteration();
    for (const cm::tensor<float> weight : weights_) {
      auto gradient = m_.gradient(weight);
      std::ranges::fill(gradient.span(), 1.0F);
      if (how == named::by_pin) m_.gradient_done(std::move(gradient));
      gradient.release();
      if (how == named::by_handle) m_.gradient_done(weight);
    }
    const std::uint64_t before = m_.report().loads;
    CHECK(cm::optimizer::step(m_, adam_, {.learning_rate = 1e-3F, .clip = {.norm = 1.0F}}).norm ==
          Catch::Approx(std::sqrt(8.0 * 256)));
    return m_.report().loads - before;
  }

 private:
  cm::backend::host_arena memory_{{.device_capacity = 5_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena, cm::placement::update_share> m_{
      memory_, {.chunk_bytes = 1_KiB}, cm::placement::update_share{.device_share = 1.0}};
  cm::optimizer::adam adam_{};
  std::array<cm::tensor<float>, 8> weights_{[this] {
    std::array<cm::tensor<float>, 8> all;
    for (cm::tensor<float>& it : all) it = m_.add<float>({256}, cm::role::parameter);
    return all;
  }()};
};

}  // namespace

TEST_CASE("a gradient that is done is measured while it is there, named by its pin or by its weight", "[optimizer]")
{
  const std::uint64_t by_pin = trainer{}.loads_of_a_step(named::by_pin);
  CHECK(trainer{}.loads_of_a_step(named::by_handle) == by_pin);
  CHECK(trainer{}.loads_of_a_step(named::by_the_step) >= by_pin + 3);  // five of eight are still there
}

}  // namespace gradient_done_test
