// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/check_policy.hpp>
#include <support/catch.hpp>
#include <support/toy_trainer.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace conformance {

namespace detail {

/// The toy trainer with these checks, in the least device. @return   the difference from its training on plain vectors
template <chunkmem::check_policy Checks>
[[nodiscard]] std::string train_under(bool on_streams)
{
  using namespace chunkmem::literals;
  namespace toy = support::toy;
  using backend = chunkmem::backend::host_arena;
  using manager = chunkmem::manager<backend, Checks>;
  constexpr std::uint32_t steps = 3;
  chunkmem::backend::host_arena_options options{
      .device_capacity = 512_KiB, .host_capacity = 512_KiB, .async_compute = on_streams};
  {
    backend memory{options};
    manager m{memory, {.chunk_bytes = 4_KiB}};
    options.device_capacity = toy::toy_trainer<manager, backend>{m, memory}.rehearse().smallest_device;
  }
  backend memory{options};
  const toy::crew workers = on_streams ? toy::crew{chunkmem::agent::compute, memory.adopt()} : toy::crew{};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  toy::toy_trainer<manager, backend> trainer{m, memory, workers};
  m.without_gradient(trainer.parameters().back());  // no step uses it
  const toy::outcome found = trainer.train(steps);
  m.verify();
  return toy::plain_model{}.train(steps, true).difference(found);
}

/// A manager refuses the same calls as without checks, with the same class of error, and goes on.
template <chunkmem::check_policy Checks>
void refuse_under()
{
  using namespace chunkmem::literals;
  chunkmem::backend::host_arena memory{{.device_capacity = 4_KiB, .host_capacity = 8_KiB}};
  chunkmem::manager<chunkmem::backend::host_arena, Checks> m{memory, {.chunk_bytes = 4_KiB}};
  const auto w = m.template add<float>({1024}, chunkmem::role::parameter);
  const auto x = m.template add<float>({1024}, chunkmem::role::activation);
  CHECK_THROWS_AS(m.acquire(w, chunkmem::access::read), chunkmem::usage_error);
  {
    const auto pin = m.acquire(w, chunkmem::access::write);
    for (float& value : pin.span()) value = 3.0F;
    CHECK_THROWS_AS(m.acquire(x, chunkmem::access::write), chunkmem::out_of_memory);
    CHECK_THROWS_AS(m.lease(chunkmem::tier::device, 256_B), chunkmem::out_of_memory);
    CHECK_THROWS_AS(m.drop(w), chunkmem::usage_error);
  }
  CHECK(m.acquire(w, chunkmem::access::read).span()[1023] == 3.0F);
  CHECK_NOTHROW(m.verify());
}

}  // namespace detail

/// The laws of check_policy: a trainer without mistakes gets no error, has the bits that it has without checks, and
/// gets the same refusals.
template <chunkmem::check_policy Checks>
void check_policy_laws()
{
  STATIC_REQUIRE(std::default_initializable<typename Checks::part>);
  STATIC_REQUIRE(std::default_initializable<typename Checks::part::place_type>);
  CHECK_FALSE(std::string_view{Checks::name}.empty());
  CHECK(detail::train_under<Checks>(false) == "");
  CHECK(detail::train_under<Checks>(true) == "");
  detail::refuse_under<Checks>();
}

}  // namespace conformance
