// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/check_policy.hpp>
#include <support/catch.hpp>
#include <support/mixed_reference.hpp>
#include <support/mixed_trainer.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace conformance {

/// The mixed trainer in the least device, with a parameter of which the manager is told that it gets no gradient.
/// @return   the difference from its training on plain vectors
template <class Element, class Manager, class Backend, class Options, class... Policies>
[[nodiscard]] std::string train_under(Options options, const support::mixed::recipe& how, bool launched,
                                      const Policies&... policies)
{
  using namespace chunkmem::literals;
  namespace mixed = support::mixed;
  using trainer = mixed::trainer<Manager, Backend, Element>;
  options.device_capacity = options.host_capacity = 2_MiB;
  {
    Backend memory{options};
    Manager m{memory, {.chunk_bytes = 4_KiB}, policies...};
    options.device_capacity = trainer{m, memory, how}.rehearse().smallest_device;
  }
  Backend memory{options};
  const mixed::crew workers = launched ? mixed::crew{chunkmem::agent::compute, memory.adopt()} : mixed::crew{};
  Manager m{memory, {.chunk_bytes = 4_KiB}, policies...};
  trainer run{m, memory, how, workers};
  m.without_gradient(run.weights().template as<Element>(mixed::idle));
  const mixed::outcome found = run.train();
  m.verify();
  return mixed::reference{how}.train().difference(found);
}

namespace detail {

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
  using backend = chunkmem::backend::host_arena;
  for (const bool on_streams : {false, true}) {
    const chunkmem::backend::host_arena_options options{.async_compute = on_streams};
    const support::mixed::recipe how = support::mixed::usual_recipe(3);
    CHECK(train_under<float, chunkmem::manager<backend, Checks>, backend>(options, how, on_streams) == "");
  }
  detail::refuse_under<Checks>();
}

}  // namespace conformance
