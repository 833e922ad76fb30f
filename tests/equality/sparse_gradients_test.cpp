// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sparse_gradients_test {

namespace cm = chunkmem;
using namespace cm::literals;
using cm::gradient_start;
using support::any_backend;
using support::chosen_gradient;

/// Gradients of tables of which a step touches some rows only, and tensors that are dropped whether they were written
/// or not.

namespace {

constexpr std::uint32_t tables = 6;
constexpr std::uint32_t rows = 1024;

constexpr cm::list_spec lists[] = {{"momentum"}, cm::master_list};

/// What a micro-batch adds to one row of each table.
constexpr std::uint32_t row_of(std::uint32_t table, std::uint32_t micro_batch)
{
  return (table * 37 + micro_batch * 11) % rows;
}

template <class Element, class Kind = float>
struct tables_on {
  using manager = cm::manager<any_backend, chosen_gradient>;
  using kind = Kind;  ///< of gradients

  explicit tables_on(chosen_gradient how, const support::any_options& options)
      : memory{options}, m{memory, {.chunk_bytes = 4_KiB}, how}
  {
    m.use(lists);
    for (std::uint32_t index = 0; index < tables; ++index)
      for (Element& it : m.acquire(weights.slice(index), cm::access::write).span()) it = cm::round_to<Element>(3.0F);
  }

  /// By a pin, or without one, for the calling thread or for the compute stream.
  template <class Gradients>
  void add(Gradients&& gradient, std::uint32_t table, std::uint32_t micro_batch, cm::agent stream)
  {
    CHECK(gradient.beta() == 1.0F);
    if (m.rehearsing()) return;
    kind* const to = gradient.data() + row_of(table, micro_batch);
    const auto work = [to] { *to = cm::round_to<kind>(cm::to_float(*to) + 1.0F); };
    if (stream == cm::agent::host)
      work();
    else
      m.backend().launch(stream, work);
  }
  void differentiate(std::uint32_t micro_batch, bool by_pin, cm::agent stream)
  {
    for (std::uint32_t index = tables; index-- > 0;) {
      const auto it = weights.slice(index);
      if (by_pin)
        add(m.template gradient<kind>(m.acquire(it, cm::access::read, stream), gradient_start::zeros), index,
            micro_batch, stream);
      else
        add(m.template gradient<kind>(it, stream, gradient_start::zeros), index, micro_batch, stream);
    }
  }
  void check(std::uint32_t micro_batches)
  {
    for (std::uint32_t index = 0; index < tables; ++index) {
      std::vector<float> expected(rows, 0.0F);
      for (std::uint32_t which = 0; which < micro_batches; ++which) expected[row_of(index, which)] += 1.0F;
      {
        const auto pin = m.template acquire<kind>(weights.slice(index), cm::gradient_list, cm::access::read,
                                                  cm::memory_location::host);
        const std::span<const kind> found = pin.span();
        for (std::uint32_t row = 0; row < rows; ++row)
          if (cm::to_float(found[row]) != expected[row])
            FAIL("table " << index << ", row " << row << ": " << cm::to_float(found[row]));
      }
      m.drop_gradient(weights.slice(index));
    }
  }

  any_backend memory;
  manager m;
  cm::stacked<Element> weights = m.template add_stacked<Element>(tables, {rows}, cm::role::parameter);
};

}  // namespace

TEST_CASE("a gradient that starts from zeros has them wherever nobody added", "[equality]")
{
  const support::any_options late = support::adversarial_options{.device_capacity = 16_KiB, .host_capacity = 256_KiB};
  const support::any_options threads =
      cm::backend::host_arena_options{.device_capacity = 16_KiB, .host_capacity = 256_KiB, .async_compute = true};
  const bool in_threads = GENERATE(false, true);
  const bool by_pin = GENERATE(true, false);
  const cm::agent stream = GENERATE(cm::agent::host, cm::agent::compute);
  INFO((by_pin ? "by a pin" : "without a pin")
       << (stream == cm::agent::host ? "" : " on a stream") << (in_threads ? ", in threads" : ""));
  tables_on<cm::bf16> it{chosen_gradient{false, true}, in_threads ? threads : late};
  for (int step = 0; step < 4; ++step) {
    auto scope = it.m.iteration(3);
    for (std::uint32_t which = 0; which < 3; ++which) {
      scope.pass(cm::pass::backward, static_cast<std::uint16_t>(which));
      it.differentiate(which, by_pin, stream);
    }
    it.check(3);
  }
  CHECK(it.m.report().divergences == 0);
}

TEST_CASE("so it has where its weight lay", "[equality]")
{
  tables_on<cm::bf16, cm::bf16> it{chosen_gradient{true},
                                   support::adversarial_options{.device_capacity = 16_KiB, .host_capacity = 256_KiB}};
  const bool by_pin = GENERATE(true, false);
  for (int step = 0; step < 4; ++step) {
    const auto scope = it.m.iteration();
    it.differentiate(0, by_pin, cm::agent::compute);
    it.check(1);
    // the second is the first whose gradients lie in their weights' places
    if (step > 1) CHECK(it.m.report().divergences == 1);
  }
  for (std::uint32_t index = 0; index < tables; ++index)
    CHECK(cm::to_float(it.m.acquire(it.weights.slice(index), cm::access::read).span()[5]) == 3.0F);
}

TEST_CASE("where zeros could not be written the gradient is not there, and can be asked for again", "[equality]")
{
  tables_on<float> it{chosen_gradient{},
                      support::adversarial_options{.device_capacity = 64_KiB, .host_capacity = 256_KiB}};
  const auto weight = it.weights.slice(2);
  {
    const auto placed = it.m.acquire(weight, cm::access::read);
  }
  it.memory.set_plan({.copy = it.memory.copies(), .persistent = true});
  CHECK_THROWS_AS(it.m.gradient(weight, cm::agent::host, gradient_start::zeros), cm::device_error);
  it.memory.set_plan({});
  CHECK_FALSE(it.m.has_gradient(weight));
  const auto gradient = it.m.gradient(weight, cm::agent::host, gradient_start::zeros);
  CHECK(gradient.beta() == 1.0F);
  const std::span<const float> found = gradient.span();
  CHECK(std::count(found.begin(), found.end(), 0.0F) == std::ptrdiff_t{rows});
}

TEST_CASE("later writes of a step do not zero again, and without zeros nothing changes", "[equality]")
{
  tables_on<float> it{chosen_gradient{},
                      cm::backend::host_arena_options{.device_capacity = 64_KiB, .host_capacity = 256_KiB}};
  const auto weight = it.weights.slice(1);
  {
    const auto plain = it.m.gradient(weight);
    CHECK(plain.beta() == 0.0F);
    for (float& value : plain.span()) value = 2.0F;
  }
  const auto more = it.m.gradient(weight, cm::agent::host, gradient_start::zeros);
  CHECK(more.beta() == 1.0F);
  CHECK(more.span()[rows - 1] == 2.0F);
}

TEST_CASE("a step may drop what it never wrote, and repeats itself", "[equality]")
{
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 12_KiB, .host_capacity = 64_KiB}};
  cm::manager<any_backend, chosen_gradient> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(4, {1024}, cm::role::buffer);
  const auto outputs = m.add_stacked<float>(4, {1024}, cm::role::activation);
  const auto step = [&](std::uint32_t written) {
    const auto scope = m.iteration();
    for (std::uint32_t index = 0; index < 4; ++index) {
      const auto weight = m.acquire(weights.slice(index), cm::access::read);
      if (index < written) m.acquire(outputs.slice(index), cm::access::write).release();
    }
    for (std::uint32_t index = 0; index < 4; ++index) m.drop(outputs.slice(index));
  };
  m.drop(outputs.slice(0));  // before there is any memory
  CHECK(m.report().in_use[cm::tier::device] == 0_B);
  const cm::memory_requirement need = m.rehearse([&] { step(2); });
  CHECK(need.rehearsed);
  for (std::uint32_t index = 0; index < 4; ++index) m.acquire(weights.slice(index), cm::access::write).release();
  for (std::uint32_t index = 0; index < 4; ++index) m.drop(outputs.slice(index));
  for (int index = 0; index < 6; ++index) step(2);
  CHECK(m.report().divergences == 0);
  CHECK(m.report().iterations == 6);
  CHECK(m.profile()->size() == 4 + 2 + 4);
  step(3);
  CHECK(m.report().divergences == 1);
  for (int index = 0; index < 3; ++index) step(3);
  CHECK(m.report().divergences == 1);
  CHECK(m.report().skipped_moves == 0);
  for (std::uint32_t index = 0; index < 4; ++index) CHECK(m.state_of(outputs.slice(index)) == cm::tensor_state::free);
}

}  // namespace sparse_gradients_test
