// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <string>
#include <vector>
#include "small_model.hpp"

namespace tensors_of_no_extent_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;

namespace {

constexpr cm::bytes room = 4_MiB;

/// A weight, a single number, one number in a row, tensors without elements of each role, and a count of batches.
template <class Model, class Element>
struct declared {
  explicit declared(Model& model) : m{model}
  {
    m.use(adam);
    m.name(weight, "weight"), m.name(scale, "logit_scale"), m.name(row, "row"), m.name(nothing, "nothing");
    m.name(fixed, "fixed"), m.name(batches, "num_batches_tracked"), m.name(table, "table");
  }
  void fill()
  {
    float next = 0.25F;
    for (auto* const each : {&weight, &scale, &row, &nothing, &fixed})
      for (Element& it : m.acquire(*each, cm::access::write).span()) it = cm::round_to<Element>(next += 0.125F);
    m.acquire(batches, cm::access::write).span()[0] = 7;
    (void)m.acquire(table, cm::access::write);
  }
  void train(int steps)
  {
    for (int step = 0; step < steps; ++step) {
      {
        const auto iteration = m.iteration();
        for (const auto each : {weight, scale, row, nothing}) {
          auto pin = m.acquire(each, cm::access::read);
          std::vector<float> slopes;
          for (const Element it : pin.span()) slopes.push_back(2.0F * cm::to_float(it) - 1.0F);
          auto slope = m.gradient(std::move(pin));
          for (std::size_t index = 0; index < slopes.size(); ++index)
            slope.span()[index] = cm::round_to<Element>(slopes[index]);
          m.gradient_done(std::move(slope));
        }
      }
      (void)m.step(adam, cm::optimizer::step_options{.learning_rate = 0.01F, .clip = {.norm = 1.0F}});
      ++m.acquire(batches, cm::access::read_write).span()[0];
    }
  }
  [[nodiscard]] std::vector<float> values()
  {
    std::vector<float> all;
    for (const auto each : {weight, scale, row, nothing, fixed})
      for (const Element it : m.acquire(each, cm::access::read).span()) all.push_back(cm::to_float(it));
    all.push_back(static_cast<float>(m.acquire(batches, cm::access::read).span()[0]));
    return all;
  }

  Model& m;
  cm::optimizer::adam adam;
  cm::tensor<Element> weight = m.template add<Element>({5'000}, cm::role::parameter);
  cm::tensor<Element> scale = m.template add<Element>({}, cm::role::parameter);
  cm::tensor<Element> row = m.template add<Element>({1}, cm::role::parameter);
  cm::tensor<Element> nothing = m.template add<Element>({0, 3}, cm::role::parameter);
  cm::tensor<Element> fixed = m.template add<Element>({2, 0}, cm::role::frozen);
  cm::tensor<std::int64_t> batches = m.template add<std::int64_t>({}, cm::role::buffer);
  cm::tensor<std::uint8_t> table = m.template add<std::uint8_t>({0}, cm::role::buffer);
};

std::vector<std::byte> content_of(const memory_folder& folder)
{
  const auto file = folder.open("weights");
  std::vector<std::byte> all(static_cast<std::size_t>(file.size()));
  (void)file.read(0, all);
  return all;
}

/// A manager with the call of a model over ranks.
template <class... Policies>
struct stepping_manager : cm::manager<arena, Policies...> {
  using whole_type = cm::manager<arena, Policies...>;
  stepping_manager(arena& memory, const cm::manager_options& options) : whole_type{memory, options} {}
  void step(cm::optimizer::adam& adam, const cm::optimizer::step_options& options)
  {
    (void)cm::optimizer::step(*this, adam, options);
  }
};

template <class Element, class... Policies>
struct alone {
  explicit alone(cm::bytes device = room) : memory{{.device_capacity = device, .host_capacity = room}} {}
  arena memory;
  stepping_manager<Policies...> m{memory, {.chunk_bytes = 64_KiB}};
  declared<stepping_manager<Policies...>, Element> tensors{m};
};

template <class Element, class... Policies>
std::vector<float> trained(cm::bytes device, int steps)
{
  alone<Element, Policies...> one{device};
  one.tensors.fill();
  one.tensors.train(steps);
  return one.tensors.values();
}

/// Calls `work(tensors)` on each rank, which returns its complaint. @return   the first complaint
template <class Element, class Work>
std::string on_ranks(std::uint32_t ranks, const cm::sharding::zero& divided, Work work)
{
  std::vector<std::string> said(ranks);
  const cm::collective::thread_group group{ranks};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    said[rank] = support::complaint_of([&] {
      arena memory{{.device_capacity = room, .host_capacity = room}};
      cm::collective::local_threads self{group, cm::rank_id{rank}};
      cm::sharded_model<arena, cm::collective::local_threads> model{
          memory, self, {.chunk_bytes = 64_KiB * ranks}, {.divided = divided}};
      declared<decltype(model), Element> tensors{model};
      return work(tensors);
    });
  });
  for (const std::string& it : said)
    if (!it.empty()) return it;
  return {};
}

}  // namespace

TEST_CASE("single numbers train like rows of one, and tensors without elements change nothing", "[checkpoint]")
{
  alone<float> one;
  one.tensors.fill();
  CHECK(one.m.acquire(one.tensors.scale, cm::access::read).span().size() == 1);
  CHECK(one.m.acquire(one.tensors.nothing, cm::access::read).span().empty());
  CHECK(one.m.info(one.tensors.scale).extents.rank() == 0);
  one.tensors.train(6);
  const std::vector<float> all = one.tensors.values();
  CHECK(all.back() == 13);
  CHECK(trained<float>(192_KiB, 6) == all);
  CHECK(trained<float, cm::append_layout>(256_KiB, 6) == all);
  CHECK(trained<float, cm::best_fit_layout>(room, 6) == all);
  CHECK(trained<cm::bf16>(room, 6) == trained<cm::bf16, cm::gradient::in_place>(room, 6));
}

TEST_CASE("tensors of no extent and of no elements are saved, loaded, exported and imported with their extents",
          "[checkpoint]")
{
  alone<cm::bf16> first;
  first.tensors.fill();
  first.tensors.train(3);
  memory_folder saved, behind, file;
  (void)checkpoint::save(first.m, saved);
  {
    auto saving = checkpoint::save_async(first.m, behind, {.lends = true});
    (void)saving.wait();
  }
  checkpoint::export_values(first.m, file, "weights");
  first.tensors.train(2);
  for (memory_folder* const folder : {&saved, &behind}) {
    alone<cm::bf16> next;
    CHECK(checkpoint::load(next.m, *folder).number == 1);
    next.tensors.train(2);
    CHECK(next.tensors.values() == first.tensors.values());
  }
  alone<cm::bf16> other;
  CHECK(checkpoint::import_values(other.m, file, "weights").tensors == 7);
  memory_folder again;
  checkpoint::export_values(other.m, again, "weights");
  CHECK(content_of(again) == content_of(file));
  (void)checkpoint::export_generation(saved, again, "weights", {.type = cm::dtype::bfloat16});
  CHECK(checkpoint::import_values(other.m, again, "weights").tensors == 7);
}

TEST_CASE("a model of nothing but empty tensors is saved and loaded", "[checkpoint]")
{
  memory_folder folder;
  for (const bool is_saved : {false, true}) {
    arena memory{{.device_capacity = room, .host_capacity = room}};
    cm::manager<arena> m{memory, {.chunk_bytes = 64_KiB}};
    const auto nothing = m.add<float>({3, 0}, cm::role::frozen);
    m.name(nothing, "nothing");
    if (is_saved) {
      CHECK(checkpoint::load(m, folder).number == 1);
    } else {
      (void)m.acquire(nothing, cm::access::write);
      (void)checkpoint::save(m, folder);
    }
    CHECK(m.acquire(nothing, cm::access::read).span().empty());
  }
}

TEST_CASE("extents of a file tell a single number from a row of one", "[checkpoint]")
{
  alone<float> first;
  first.tensors.fill();
  memory_folder file;
  checkpoint::export_values(first.m, file, "weights");
  arena memory{{.device_capacity = room, .host_capacity = room}};
  cm::manager<arena> m{memory, {.chunk_bytes = 64_KiB}};
  const auto scale = m.add<float>({1}, cm::role::frozen);
  m.name(scale, "logit_scale");
  CHECK_THROWS_AS(checkpoint::import_values(m, file, "weights", {.takes_part = true}), cm::config_error);
}

TEST_CASE("ranks train, save and load tensors of no extent and of no elements with the bits of one", "[checkpoint]")
{
  alone<float> one;
  one.tensors.fill();
  one.tensors.train(2);
  const std::vector<float> before = one.tensors.values();
  memory_folder of_one;
  (void)checkpoint::save(one.m, of_one);
  one.tensors.train(2);
  const std::vector<float> expected = one.tensors.values();
  for (const auto& divided : {cm::sharding::zero_1, cm::sharding::zero_2, cm::sharding::zero_3})
    for (const std::uint32_t ranks : {1U, 2U, 4U}) {
      INFO("saved by " << ranks);
      memory_folder folder;
      CHECK(on_ranks<float>(ranks, divided, [&](auto& tensors) -> std::string {
              tensors.fill();
              tensors.train(2);
              if (tensors.values() != before) return "other values after two steps";
              (void)checkpoint::save(tensors.m, folder);
              tensors.train(2);
              return tensors.values() == expected ? "" : "other values after four steps";
            }) == "");
      const auto goes_on = [&](auto& tensors) -> std::string {
        (void)checkpoint::load(tensors.m, folder);
        tensors.train(2);
        return tensors.values() == expected ? "" : "other values behind a load";
      };
      CHECK(on_ranks<float>(ranks == 1 ? 4 : ranks / 2, divided, goes_on) == "");
      alone<float> next;
      CHECK(goes_on(next.tensors) == "");
    }
}

}  // namespace tensors_of_no_extent_test
