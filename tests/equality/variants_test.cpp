// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>
#include <support/own_policies.hpp>

#include <cstddef>
#include <string_view>

namespace variants_test {

using namespace equality;
using support::device_only;
using support::one_each_layout;

namespace {

const support::any_options late =
    support::adversarial_options{.when = support::schedule::latest, .async_compute = true};
const support::any_options random_times = support::adversarial_options{.async_compute = true};

/// Counts the copied bytes, copies in two pieces, and keeps every byte inverted on the host. A user-defined mover.
///
/// Inverting is a launch after the copy, on the agent that copies, so that it works with any crew.
class inverting_mover {
 public:
  using policy_kind = cm::mover_kind;
  static constexpr std::string_view name = "inverting_mover";
  struct counts {
    std::uint64_t brought = 0;
    std::uint64_t taken = 0;
  };
  explicit inverting_mover(counts& passed) noexcept : passed_{&passed} {}

  template <class Backend>
  void bring(Backend& backend, std::byte* to, const std::byte* from, cm::bytes size, cm::agent stream)
  {
    move(backend, to, from, size, stream);
    passed_->brought += size.count();
  }
  template <class Backend>
  void take(Backend& backend, std::byte* to, const std::byte* from, cm::bytes size, cm::agent stream)
  {
    move(backend, to, from, size, stream);
    passed_->taken += size.count();
  }

 private:
  template <class Backend>
  static void move(Backend& backend, std::byte* to, const std::byte* from, cm::bytes size, cm::agent stream)
  {
    const cm::bytes half = cm::align_up(cm::bytes{size.count() / 2}, cm::tensor_alignment);
    backend.copy(to, from, half, stream);
    if (half < size) backend.copy(to + half.count(), from + half.count(), size - half, stream);
    backend.launch(stream, [to, count = size.count()]() noexcept {
      for (std::uint64_t index = 0; index < count; ++index) to[index] = ~to[index];
    });
  }

  counts* passed_;
};

template <class Manager>
void run_at_every_size(support::any_options options, const manner& how, const policies& with = {})
{
  options.host_capacity = plenty;
  const cm::memory_requirement need = need_of<Manager, any_backend>(options, plenty, with);
  for (const size capacity : {size::smallest, size::half_more, size::unlimited}) {
    INFO("size " << static_cast<int>(capacity));
    options.device_capacity = device_for(capacity, need);
    run_and_compare<Manager, any_backend>(options, how, with);
  }
}

/// Both backends, with a placement that knows the peak of leases before the first step.
void run_with_placement(const support::every_placement& states)
{
  policies with;
  with.placement = states;
  run_at_every_size<ahead_manager>(cm::backend::host_arena_options{}, {.rehearses = true}, with);
  run_at_every_size<ahead_manager>(late, {.launched = true, .rehearses = true}, with);
}

}  // namespace

TEST_CASE("an optimizer that updates on the device gives the same bits", "[equality]")
{
  run_with_placement(support::every_placement{device_only{}});
  run_at_every_size<cm::manager<any_backend, device_only>>(late, {.launched = true});  // this one measures nothing
}

TEST_CASE("states that ride in the margin, or lie in a fixed part of the device, give the same bits", "[equality]")
{
  for (const std::string_view which : {"device_margin", "fixed_split"}) {
    INFO(which);
    run_with_placement(support::every_placement{which});
  }
}

TEST_CASE("a layout of one's own gives the same bits", "[equality]")
{
  run_at_every_size<cm::manager<any_backend, support::chosen_gradient, one_each_layout>>(random_times,
                                                                                         {.launched = true});
}

TEST_CASE("best fit, which puts others into the rest of windows, gives the same bits", "[equality]")
{
  policies with;
  with.layout = support::every_layout{cm::best_fit_layout{}};
  run_at_every_size<ahead_manager>(random_times, {.launched = true}, with);
}

TEST_CASE("a host with the least room that the rehearsal names gives the same bits", "[equality]")
{
  for (const std::string_view which : {"lru", "belady"}) {
    const policies with = evicting(which);
    support::any_options options =
        support::adversarial_options{.host_capacity = plenty, .seed = 7, .async_compute = true};
    const cm::memory_requirement open = need_of<ahead_manager, any_backend>(options, plenty, with);
    for (const size capacity : {size::smallest, size::half_more, size::unlimited}) {
      options.device_capacity = device_for(capacity, open);
      const cm::memory_requirement need = need_of<ahead_manager, any_backend>(options, options.device_capacity, with);
      INFO("device " << options.device_capacity.count() << " B, host " << need.smallest_host.count() << " B, eviction "
                     << which);
      options.host_capacity = need.smallest_host;
      for (const bool launched : {false, true})
        run_and_compare<ahead_manager, any_backend>(options, {launched, false}, with);
    }
  }
}

TEST_CASE("bytes that a mover changes on the way come back as they were", "[equality]")
{
  // The host's own view of a chunk is inverted, so only work on the device is compared: a walk over weights.
  using manager = cm::manager<any_backend, inverting_mover>;
  for (const auto when : {support::schedule::latest, support::schedule::earliest, support::schedule::random}) {
    inverting_mover::counts passed;
    any_backend memory{support::adversarial_options{
        .device_capacity = 4 * frame, .host_capacity = plenty, .when = when, .async_compute = true}};
    manager m{memory, {.chunk_bytes = frame}, inverting_mover{passed}};
    const auto weights = m.add_stacked<float>(12, {1000}, cm::role::parameter);
    for (std::uint32_t index = 0; index < 12; ++index) {
      const auto pin = m.acquire(weights.slice(index), cm::access::write);
      for (float& value : pin.span()) value = static_cast<float>(index);
    }
    for (int step = 0; step < 5; ++step) {
      auto scope = m.iteration();
      for (std::uint32_t index = 0; index < 12; ++index) {
        const auto pin = m.acquire(weights.slice(index), cm::access::read_write, cm::agent::compute);
        memory.launch(cm::agent::compute, [values = pin.data()] {
          for (int i = 0; i < 1000; ++i) values[i] += 1;
        });
      }
    }
    for (std::uint32_t index = 0; index < 12; ++index) {
      const auto pin = m.acquire(weights.slice(index), cm::access::read);
      for (const float value : pin.span()) REQUIRE(value == static_cast<float>(index + 5));
    }
    CHECK(passed.brought == m.report().loaded.count());
    CHECK(passed.taken == m.report().written_back.count());
    CHECK(passed.taken > 0);
    memory.drain();
    CHECK(memory.faults().empty());
  }
}

TEST_CASE("lists that are exchanged flip the weights without a copy", "[equality]")
{
  any_backend memory{support::adversarial_options{
      .device_capacity = 3 * frame, .host_capacity = plenty, .when = support::schedule::latest}};
  ahead_manager m = make<ahead_manager>(memory, {});
  const cm::list_spec shadow[] = {{"shadow", cm::dtype::float32, 1}};
  m.use(shadow);
  const auto weights = m.add_stacked<float>(8, {1024}, cm::role::parameter);
  const cm::list_id list = m.list("shadow");
  for (std::uint32_t index = 0; index < 8; ++index) {
    for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = static_cast<float>(index);
    const auto pin = m.acquire<float>(weights.slice(index), list, cm::access::write, cm::memory_location::host);
    for (float& value : pin.span()) value = -1 - static_cast<float>(index);
  }
  std::uint64_t before = 0;
  for (int step = 0; step < 8; ++step) {
    {
      auto scope = m.iteration();
      for (std::uint32_t index = 0; index < 8; ++index) {
        const float expected = step % 2 == 0 ? static_cast<float>(index) : -1 - static_cast<float>(index);
        REQUIRE(m.acquire(weights.slice(index), cm::access::read).span()[1023] == expected);
      }
    }
    before = m.report().loads + m.report().write_backs;
    m.exchange(cm::value_list, list);
    CHECK(m.report().loads + m.report().write_backs == before);
  }
  CHECK(m.report().divergences == 0);
  memory.drain();
  CHECK(memory.faults().empty());
}

TEST_CASE("inference from weights larger than the device reads what was written", "[equality]")
{
  using manager = cm::manager<any_backend, cm::inference_rules>;
  any_backend memory{support::adversarial_options{
      .device_capacity = 3 * frame, .host_capacity = plenty, .when = support::schedule::latest}};
  manager m{memory, {.chunk_bytes = frame}};
  const auto weights = m.add_stacked<float>(10, {900}, cm::role::buffer);
  for (std::uint32_t index = 0; index < 10; ++index)
    for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = static_cast<float>(index);
  std::uint64_t written = 0;
  for (int step = 0; step < 4; ++step) {
    auto scope = m.iteration();
    if (step == 1) written = m.report().write_backs;
    for (std::uint32_t index = 0; index < 10; ++index)
      REQUIRE(m.acquire(weights.slice(index), cm::access::read).span()[899] == static_cast<float>(index));
  }
  CHECK(m.report().write_backs == written);  // what is only read leaves free
  CHECK(m.report().loads >= 4 * 7);
}

}  // namespace variants_test
