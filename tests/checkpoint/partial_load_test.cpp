// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/load.hpp>

#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/forked_child.hpp>
#include <support/memory_folder.hpp>
#include <support/oracles/dice.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>
#include "small_model.hpp"

namespace partial_load_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;
using element = cm::bf16;

namespace {

constexpr cm::bytes room = 8_MiB;

/// The parts of the model that a trainer declares.
struct setup {
  bool trains_layer = true;
  bool has_lora = false;
  bool has_epoch = false;
  bool has_adam = true;
  std::uint32_t groups = 1;
};

/// A manager with the calls of a model over ranks.
struct stepping_manager : cm::manager<arena> {
  using cm::manager<arena>::manager;
  void step(cm::optimizer::adam& adam, const cm::optimizer::step_options& options)
  {
    (void)cm::optimizer::step(*this, adam, options);
  }
};

template <class Model>
struct trainer {
  struct weight {
    std::string name;
    cm::tensor<element> handle;
    bool is_trained;
  };

  trainer(Model& model, const setup& with) : m{model}, how{with}, rates(std::vector<float>(with.groups, 0.01F))
  {
    if (how.has_adam) m.use(adam), m.use(rates);
    add("embed", {40, 8}, true, 0), add("layer", {5'000}, how.trains_layer, 0);
    add("head", {16}, true, how.groups - 1);
    if (how.has_lora) add("lora.a", {8, 2}, true, 0), add("lora.b", {2, 8}, true, 0);
    m.state("data/cursor", std::as_writable_bytes(std::span{&cursor, 1}));
    if (how.has_epoch) m.state("data/epoch", std::as_writable_bytes(std::span{&epoch, 1}));
  }
  void add(const std::string& name, cm::shape extents, bool is_trained, std::uint32_t group)
  {
    const auto part = is_trained ? cm::role::parameter : cm::role::frozen;
    weights.push_back({name, m.template add<element>(extents, part, cm::group_id{group}), is_trained});
    m.name(weights.back().handle, name);
  }
  void fill(float begin)
  {
    for (const weight& it : weights)
      for (element& value : m.acquire(it.handle, cm::access::write).span())
        value = cm::round_to<element>(begin += 0.0078125F);
  }
  void train(std::uint32_t steps)
  {
    for (; steps > 0; --steps, ++cursor) {
      {
        const auto iteration = m.iteration();
        for (const weight& it : weights) {
          if (!it.is_trained) continue;
          auto pin = m.acquire(it.handle, cm::access::read);
          std::vector<float> slopes;
          for (const element value : pin.span())
            slopes.push_back(cm::to_float(value) - 1.0F + 0.25F * static_cast<float>(cursor % 3));
          auto gradient = m.gradient(std::move(pin));
          for (std::size_t index = 0; index < slopes.size(); ++index)
            gradient.span()[index] = cm::round_to<element>(slopes[index]);
          m.gradient_done(std::move(gradient));
        }
      }
      m.step(adam, {.learning_rate = 0.01F, .clip = {.norm = 0.001F}});
    }
  }
  /// Every bit of the weights and the states.
  [[nodiscard]] std::vector<float> bits()
  {
    std::vector<float> all{static_cast<float>(cursor), static_cast<float>(epoch)};
    for (const weight& it : weights)
      for (const element value : m.acquire(it.handle, cm::access::read).span()) all.push_back(cm::to_float(value));
    return all;
  }

  Model& m;
  setup how;
  cm::optimizer::adam adam;
  cm::optimizer::learning_rates rates;
  std::vector<weight> weights;
  std::uint32_t cursor = 0;
  std::uint32_t epoch = 5;
};

struct alone {
  explicit alone(const setup& how) : tensors{m, how} {}
  arena memory{{.device_capacity = room, .host_capacity = room}};
  stepping_manager m{memory, {.chunk_bytes = 64_KiB}};
  trainer<stepping_manager> tensors;
};

/// The lists of one weight, master first.
using lists_of_weight = std::map<std::string, std::vector<float>>;
lists_of_weight lists_of(alone& from, const trainer<stepping_manager>::weight& it)
{
  lists_of_weight all;
  for (const char* const list : {"master", "adam/momentum", "adam/variance"}) {
    if (!it.is_trained || !from.tensors.how.has_adam) continue;
    const auto pin = from.m.acquire<float>(it.handle, from.m.list(list), cm::access::read, cm::memory_location::host);
    all[list].assign(pin.span().begin(), pin.span().end());
  }
  return all;
}

struct way {
  const char* name;
  setup from, to;
  checkpoint::load_options options;
  std::vector<std::string> with_fresh_states;  ///< weights whose lists begin anew
  std::size_t begun_anew, ignored;             ///< names in the result
};

std::vector<way> all_ways()
{
  const setup usual{};
  return {
      {"a layer unfrozen", {.trains_layer = false}, usual, {.begins_anew = {"adam/*/layer"}}, {"layer"}, 2, 0},
      {"a layer frozen", usual, {.trains_layer = false}, {.leaves_out = {"*/layer"}}, {}, 0, 2},
      {"LoRA added", usual, {.has_lora = true}, {.begins_anew = {"*lora*"}}, {"lora.a", "lora.b"}, 6, 0},
      {"LoRA removed", {.has_lora = true}, usual, {.leaves_out = {"*lora*"}}, {}, 0, 6},
      {"one state more", usual, {.has_epoch = true}, {.begins_anew = {"data/epoch"}}, {}, 1, 0},
      {"one state fewer", {.has_epoch = true}, usual, {.leaves_out = {"state/data/epoch"}}, {}, 0, 1},
      {"weights without states",
       {.has_adam = false},
       usual,
       {.begins_anew = {"adam/*", "learning rates"}},
       {"embed", "layer", "head"},
       9,
       0},
      {"states left behind", usual, {.has_adam = false}, {.leaves_out = {"adam/*", "learning rates"}}, {}, 0, 9},
      {"states for some weights",
       usual,
       usual,
       {.begins_anew = {"adam/*/head"}, .leaves_out = {"adam/*/head"}},
       {"head"},
       2,
       2},
      {"other groups",
       usual,
       {.groups = 2},
       {.begins_anew = {"learning rates"}, .leaves_out = {"learning rates"}},
       {},
       1,
       1},
  };
}

/// Trained for four steps, where it has an optimizer.
template <class Trainer>
void train_before(Trainer& it)
{
  it.fill(0.25F);
  if (it.how.has_adam) it.train(4);
}
void train_before(alone& it)
{
  train_before(it.tensors);
}
/// Goes on for three steps, where it has an optimizer. @return   all bits
template <class Trainer>
std::vector<float> bits_behind(Trainer& it)
{
  if (it.how.has_adam) it.train(3);
  return it.bits();
}

/// The target as a trainer would fill it with the numbers of the other one in memory.
std::vector<float> filled_by_hand(const way& it)
{
  alone from{it.from}, to{it.to};
  train_before(from);
  to.tensors.fill(0.5F);
  const std::uint64_t updates = from.tensors.adam.progress.number;
  const bool keeps_count = it.from.has_adam && it.to.has_adam;
  auto& progress = to.tensors.adam.progress;
  if (keeps_count) progress.number = updates;
  progress.missed.make_room(to.tensors.weights.size());
  std::uint32_t number = 0;
  for (const auto& target : to.tensors.weights) {
    const bool is_fresh = std::ranges::find(it.with_fresh_states, target.name) != it.with_fresh_states.end();
    if (is_fresh && keeps_count) std::memcpy(progress.missed.bytes_of(number).data(), &updates, sizeof updates);
    ++number;
    for (const auto& source : from.tensors.weights) {
      if (source.name != target.name) continue;
      const lists_of_weight lists = lists_of(from, source);
      {
        const auto value = from.m.acquire(source.handle, cm::access::read);
        std::ranges::copy(value.span(), to.m.acquire(target.handle, cm::access::write).span().begin());
      }
      if (!target.is_trained || !it.to.has_adam) continue;
      for (const auto& [list, values] : lists)
        if (list == "master" || !is_fresh)
          std::ranges::copy(
              values, to.m.acquire<float>(target.handle, to.m.list(list), cm::access::write, cm::memory_location::host)
                          .span()
                          .begin());
    }
  }
  to.tensors.cursor = from.tensors.cursor;
  return bits_behind(to.tensors);
}

template <class Work>
std::string on_ranks(std::uint32_t ranks, const setup& how, const cm::sharding::zero& divided, Work work)
{
  std::vector<std::string> said(ranks);
  const cm::collective::thread_group group{ranks};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    said[rank] = support::complaint_of([&] {
      arena memory{{.device_capacity = room, .host_capacity = room}};
      cm::collective::local_threads self{group, cm::rank_id{rank}};
      cm::sharded_model<arena, cm::collective::local_threads> model{
          memory, self, {.chunk_bytes = 16_KiB * ranks}, {.divided = divided}};
      trainer<decltype(model)> tensors{model, how};
      return work(tensors);
    });
  });
  for (const std::string& it : said)
    if (!it.empty()) return it;
  return {};
}

/// A save of one manager after four steps, and one of two ranks.
void save_of_one(const setup& how, memory_folder& folder)
{
  alone from{how};
  train_before(from);
  (void)checkpoint::save(from.m, folder);
}
void save_of_two(const setup& how, const cm::sharding::zero& divided, memory_folder& folder)
{
  CHECK(on_ranks(2, how, divided, [&](auto& tensors) -> std::string {
          train_before(tensors);
          (void)checkpoint::save(tensors.m, folder);
          return {};
        }) == "");
}

int expected_trials = 0, equal_trials = 0;

void compare(const std::vector<float>& found, const std::vector<float>& expected)
{
  ++expected_trials;
  equal_trials += found == expected ? 1 : 0;
  CHECK(found == expected);
}

}  // namespace

TEST_CASE("ten ways to load in part leave the bits of a manager that was filled by hand", "[checkpoint]")
{
  for (const way& it : all_ways()) {
    INFO(it.name);
    const std::vector<float> expected = filled_by_hand(it);
    memory_folder of_one, of_two;
    save_of_one(it.from, of_one);
    save_of_two(it.from, cm::sharding::zero_2, of_two);
    for (memory_folder* const folder : {&of_one, &of_two}) {
      INFO("saved by " << (folder == &of_one ? "one" : "two ranks"));
      {
        alone strict{it.to};
        strict.tensors.fill(0.5F);
        if (it.begun_anew != it.ignored || it.to.groups != it.from.groups)  // else the generation fits as a whole
          CHECK_THROWS_AS(checkpoint::load(strict.m, *folder), cm::config_error);
        alone to{it.to};
        to.tensors.fill(0.5F);
        const auto found = checkpoint::load(to.m, *folder, it.options);
        CHECK(found.names.begun_anew.size() == it.begun_anew);
        CHECK(found.names.ignored.size() == it.ignored);
        CHECK_FALSE(found.names.loaded.empty());
        compare(bits_behind(to.tensors), expected);
      }
      for (const std::uint32_t ranks : {2U, 4U})
        for (const auto& divided : {cm::sharding::zero_1, cm::sharding::zero_3}) {
          INFO("loaded by " << ranks << " ranks");
          std::vector<std::vector<float>> all(ranks);
          CHECK(on_ranks(ranks, it.to, divided, [&](auto& tensors) -> std::string {
                  tensors.fill(0.5F);
                  (void)checkpoint::load(tensors.m, *folder, it.options);
                  all[cm::index_of(tensors.m.ranks().rank())] = bits_behind(tensors);
                  return {};
                }) == "");
          for (const auto& each : all) compare(each, expected);
        }
    }
  }
  support::write_figures(
      "test_checkpoint_partial_loads", "build/bench/bin/test_checkpoint.checkpoint",
      {{"edge.partial_loads_equal_percent", 100.0 * equal_trials / expected_trials, "%", "==", 100}});
}

namespace {

/// File operations of a load fail in turn: all ranks get the error, and the next load succeeds.
/// @param ranks   0: a manager without ranks   @param pace   of the operations that fail in turn
void fail_at_reads(std::uint32_t ranks, std::uint64_t pace)
{
  for (const way& it : all_ways()) {
    INFO(it.name);
    const std::vector<float> expected = filled_by_hand(it);
    memory_folder folder;
    save_of_one(it.from, folder);
    bool is_over = false;
    std::uint64_t failed = 0;
    for (std::uint64_t operation = 0; !is_over; operation += pace) {
      INFO("operation " << operation);
      std::vector<std::uint8_t> threw(std::max(ranks, 1U));
      const auto load_twice = [&](auto& tensors) -> std::string {
        std::uint32_t rank = 0;
        if constexpr (requires { tensors.m.ranks(); }) rank = cm::index_of(tensors.m.ranks().rank());
        tensors.fill(0.5F);
        try {
          (void)checkpoint::load(tensors.m, folder, it.options);
        } catch (const cm::io_error&) {
          threw[rank] = 1;
          (void)checkpoint::load(tensors.m, folder, it.options);
        }
        return bits_behind(tensors) == expected ? "" : "other bits";
      };
      support::faults.arm({support::fault_source::file, operation});
      if (ranks == 0) {
        alone to{it.to};
        CHECK(load_twice(to.tensors) == "");
      } else {
        CHECK(on_ranks(ranks, it.to, cm::sharding::zero_3, load_twice) == "");
      }
      support::faults.disarm();
      CHECK(std::ranges::count(threw, threw[0]) == static_cast<std::ptrdiff_t>(threw.size()));
      is_over = threw[0] == 0;
      failed += threw[0];
      REQUIRE(operation < 1'000);
    }
    CHECK(failed > 0);
  }
}

}  // namespace

TEST_CASE("a load in part that fails at any read leaves what begins anew, and the next one ends right", "[checkpoint]")
{
  fail_at_reads(0, 1);
}

TEST_CASE("a load in part that fails at a read of one rank fails on all, and the next one ends right", "[checkpoint]")
{
  fail_at_reads(2, 9);
}

TEST_CASE("a load in part that fails at any read of any rank fails on all, and the next one ends right",
          "[checkpoint][.slow]")
{
  fail_at_reads(2, 1);
}

namespace {

/// One manager and two ranks load the first generation; lists that begin anew stay as they were.
void expect_first_generation(memory_folder& folder, const way& it)
{
  const std::vector<float> expected = filled_by_hand(it);
  const auto take = [&](auto& tensors) -> std::string {
    tensors.fill(0.5F);
    const auto found = checkpoint::load(tensors.m, folder, it.options);
    return found.number == 1 && bits_behind(tensors) == expected ? "" : "other bits";
  };
  alone to{it.to};
  CHECK(take(to.tensors) == "");
  CHECK(on_ranks(2, it.to, cm::sharding::zero_3, take) == "");
}

}  // namespace

TEST_CASE("behind damage that is found late, an older generation finds what begins anew as it was", "[checkpoint]")
{
  memory_folder folder;
  alone from{{}};
  train_before(from);
  (void)checkpoint::save(from.m, folder);
  from.tensors.train(1);
  (void)checkpoint::save(from.m, folder);
  folder.flip("generation-000002-00000.safetensors", 20'000);
  expect_first_generation(folder, all_ways()[2]);
}

TEST_CASE("an older generation finds what begins anew as it was, also where the damaged one had all of it",
          "[checkpoint]")
{
  memory_folder folder;
  const way it = all_ways()[2];
  save_of_two(it.from, cm::sharding::zero_1, folder);
  CHECK(on_ranks(2, it.to, cm::sharding::zero_1, [&](auto& tensors) -> std::string {
          tensors.fill(0.5F);
          (void)checkpoint::load(tensors.m, folder, it.options);
          (void)checkpoint::save(tensors.m, folder);
          return {};
        }) == "");
  folder.flip("generation-000002-00001.safetensors", 5'000);  // states are in the other file, so this is found late
  expect_first_generation(folder, it);
}

TEST_CASE("a weight that begins anew without bytes is named, also where another rank has all of it", "[checkpoint]")
{
  for (const std::uint64_t elements : {1'024U, 16'384U}) {  // the second: a share each
    memory_folder folder;
    const auto on_two = [&](bool has_both, auto work) {
      std::vector<std::string> said(2);
      const cm::collective::thread_group group{2};
      support::on_ranks(2, [&](std::uint32_t rank) {
        said[rank] = support::refusal<cm::config_error>([&] {
          arena memory{{.device_capacity = room, .host_capacity = room}};
          cm::collective::local_threads self{group, cm::rank_id{rank}};
          cm::sharded_model<arena, cm::collective::local_threads> m{memory, self, {.chunk_bytes = 128_KiB}};
          const auto first = m.add<float>({elements}, cm::role::parameter);
          m.name(first, "first");
          if (has_both) m.name(m.add<float>({elements}, cm::role::parameter), "second");
          work(m, first);
        });
      });
      return said;
    };
    CHECK(on_two(false, [&](auto& m, auto first) {
            for (float& it : m.acquire(first, cm::access::write).span()) it = 1;
            (void)checkpoint::save(m, folder);
          }) == std::vector<std::string>(2));
    for (const std::string& it :
         on_two(true, [&](auto& m, auto) { (void)checkpoint::load(m, folder, {.begins_anew = {"second"}}); }))
      CHECK(it.find("second makes the difference") != std::string::npos);
  }
}

TEST_CASE("states of each rank load on other ranks where they are left out and begin anew", "[checkpoint]")
{
  memory_folder folder;
  CHECK(on_ranks(2, {}, cm::sharding::zero_1, [&](auto& tensors) -> std::string {
          tensors.fill(0.25F);
          tensors.cursor = 7 + cm::index_of(tensors.m.ranks().rank());
          (void)checkpoint::save(tensors.m, folder);
          return {};
        }) == "");
  const checkpoint::load_options options{.begins_anew = {"data/cursor"}, .leaves_out = {"data/cursor"}};
  const auto take = [&](auto& tensors) -> std::string {
    tensors.cursor = 3;
    const auto found = checkpoint::load(tensors.m, folder, options);
    return tensors.cursor == 3 && found.names.begun_anew == std::vector<std::string>{"state/data/cursor"} &&
                   found.names.ignored.size() == 2
               ? ""
               : "other names";
  };
  alone to{{}};
  CHECK_THROWS_AS(checkpoint::load(to.m, folder), cm::config_error);
  CHECK(take(to.tensors) == "");
  CHECK(on_ranks(2, {}, cm::sharding::zero_1, take) == "");
  CHECK(on_ranks(4, {}, cm::sharding::zero_1, take) == "");
}

TEST_CASE("a parameter counts its updates anew where all of its lists begin anew", "[checkpoint]")
{
  memory_folder folder;
  save_of_one({}, folder);
  const auto missed_with = [&](const char* lists) {
    alone to{{}};
    (void)checkpoint::load(to.m, folder, {.begins_anew = {lists}, .leaves_out = {lists}});
    return to.tensors.adam.progress.missed.of(0);
  };
  CHECK(missed_with("adam/*/embed") == 4);
  CHECK(missed_with("adam/momentum/embed") == 0);
}

TEST_CASE("a weight that was saved without bytes may begin anew", "[checkpoint]")
{
  memory_folder folder;
  alone from{{.has_adam = false}}, to{{.has_adam = false}};
  for (const auto& it : from.tensors.weights)
    if (it.name != "head")
      for (element& value : from.m.acquire(it.handle, cm::access::write).span()) value = cm::round_to<element>(1.0F);
  (void)checkpoint::save(from.m, folder);
  to.tensors.fill(0.5F);
  const std::vector<float> before = to.tensors.bits();
  CHECK_THROWS_AS(checkpoint::load(to.m, folder), cm::config_error);
  CHECK(checkpoint::load(to.m, folder, {.begins_anew = {"head"}}).names.begun_anew == std::vector<std::string>{"head"});
  CHECK(to.tensors.bits().back() == before.back());
}

TEST_CASE("a part of the names is named by the error, and ranks agree on what may differ", "[checkpoint]")
{
  memory_folder folder;
  save_of_one({}, folder);
  alone to{{.has_lora = true}};
  to.tensors.fill(0.5F);
  CHECK_THROWS_WITH(checkpoint::load(to.m, folder, {.begins_anew = {"*lora.a"}}),
                    Catch::Matchers::ContainsSubstring("it does not have: adam/momentum/lora.b"));
  CHECK(to.tensors.bits() == [] {
    alone same{{.has_lora = true}};
    same.tensors.fill(0.5F);
    return same.tensors.bits();
  }());
  CHECK(on_ranks(2, {.has_lora = true}, cm::sharding::zero_1, [&](auto& tensors) -> std::string {
          tensors.fill(0.5F);
          checkpoint::load_options options;
          if (cm::index_of(tensors.m.ranks().rank()) == 1) options.begins_anew = {"*lora*"};
          (void)checkpoint::load(tensors.m, folder, options);
          return "it was taken";
        }).find("same begins_anew") != std::string::npos);
}

namespace {

/// Loads in part and saves after each step, until it is killed. Never returns.
[[noreturn]] void go_on_until_killed(const std::string& path, const way& it)
{
  try {
    cm::io::posix_folder folder{path};
    alone to{it.to};
    to.tensors.fill(0.5F);
    (void)checkpoint::load(to.m, folder, it.options);
    for (;;) {
      if (it.to.has_adam)
        to.tensors.train(1);
      else
        ++to.tensors.cursor;
      (void)checkpoint::save(to.m, folder);
    }
  } catch (...) {
  }
  std::_Exit(3);
}

}  // namespace

TEST_CASE("whatever moment a training is killed at that began with a part, it goes on from whole bits", "[checkpoint]")
{
  if (support::thread_sanitized) return;  // children that start threads are not for it
  support::dice dice{5};
  for (const way& it : all_ways()) {
    INFO(it.name);
    const temporary_folder place;
    cm::io::posix_folder folder{place.path()};
    alone from{it.from};
    train_before(from);
    (void)checkpoint::save(from.m, folder);
    (void)checkpoint::finish_save(from.m);
    for (int kill = 0; kill < 5; ++kill) {
      const pid_t child = support::fork_child();
      REQUIRE(child >= 0);
      if (child == 0) go_on_until_killed(place.path(), it);
      ::usleep(500 + dice.below(12'000));
      ::kill(child, SIGKILL);
      int status = 0;
      REQUIRE(::waitpid(child, &status, 0) == child);
      REQUIRE(WIFSIGNALED(status));
      alone again{it.to}, right{it.to};
      again.tensors.fill(0.5F);
      // the first generation is of the other model, and those behind it are of this one
      const auto found = checkpoint::load(again.m, folder, it.options);
      CHECK(found.skipped.empty());
      if (found.number == 1) compare(bits_behind(again.tensors), filled_by_hand(it));
      if (found.number == 1 || it.with_fresh_states == std::vector<std::string>{"head"} || it.to.groups == 2) continue;
      CHECK(found.names.begun_anew.empty());  // the same options take a whole generation whole
      right.tensors.fill(0.25F);
      memory_folder whole;
      (void)checkpoint::save(again.m, whole);
      CHECK(checkpoint::load(right.m, whole).names.loaded == found.names.loaded);
    }
  }
}

}  // namespace partial_load_test
