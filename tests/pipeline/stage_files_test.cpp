// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_files.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <support/catch.hpp>
#include <support/managed_weights.hpp>
#include <support/memory_folder.hpp>
#include <support/oracles/dice.hpp>
#include <support/sanitized.hpp>

#include "schedule_runs.hpp"

#include <cerrno>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stage_files_test {

using namespace pipeline_test;
using Catch::Matchers::ContainsSubstring;
using chunkmem::pipeline::schedule;  // not that of a manager
using support::managed_recipe;
using support::vector_type;
using support::width;

namespace {

/// A folder that may have no room for another file.
struct small_folder : support::memory_folder {
  [[nodiscard]] writer create(std::string_view name)
  {
    if (is_full || (name.find("-00000.safetensors") != name.npos && size() > most_before))
      throw io::failed("creating", name, ENOSPC);
    return memory_folder::create(name);
  }
  /// As a save that does not end leaves it.
  void claim(std::string_view number)
  {
    (void)memory_folder::create("generation-" + std::string{number} + ".claim.tmp");
  }
  [[nodiscard]] std::size_t size() const
  {
    std::size_t all = 0;
    for (const std::string& name : names()) all += content_of(name).size();
    return all;
  }
  /// The same files.
  [[nodiscard]] small_folder copy() const
  {
    small_folder made;
    for (const std::string& name : names()) {
      auto file = made.create(name);
      const content bytes = content_of(name);
      CHECK(file.write(bytes) == bytes.size());
    }
    return made;
  }
  bool is_full = false;
  std::size_t most_before = SIZE_MAX;  ///< bytes that are there when a file is begun
};
using folders = std::vector<small_folder>;

using weights_type = support::managed_weights<bf16, optimizer::adam, collective::local_threads>;

/// Throws at one of its calls.
struct breaking_stage : support::stage_of_layers<weights_type> {
  using support::stage_of_layers<weights_type>::stage_of_layers;

  void forward(const forward_run& run)
  {
    count();
    stage_of_layers::forward(run);
  }
  void backward(const backward_run& run)
  {
    count();
    stage_of_layers::backward(run);
  }
  void update(const operation& step)
  {
    count();
    stage_of_layers::update(step);
  }

  std::uint32_t calls_left = UINT32_MAX;

 private:
  void count()
  {
    if (calls_left-- == 0) throw std::domain_error{"a stage broke"};
  }
};

const optimizer::adam kernel{{.weight_decay = 0.01F}, {.masters = true}};

/// Where a training breaks.
struct breakage {
  std::uint32_t stage = UINT32_MAX;
  std::uint32_t call = 0;
};

struct trained {
  std::vector<vector_type> weights;
  std::uint32_t first_batch = 0;
};

/// Goes on from the checkpoints in the folders, and saves after every second batch.
/// @throws std::domain_error   it broke; each other stage ended with a comm_error, or was through
trained train(const schedule& plan, folders& saved, const managed_recipe& how, const breakage& at = {})
{
  trained found{.weights = std::vector<vector_type>(plan.part_count())};
  const std::vector<bytes> inputs(plan.part_count(), bytes{width * sizeof(float)});
  thread_stages{plan}.run([&](thread_stages::place& here) {
    small_folder& folder = saved[here.stage()];
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = buffers.size() + bytes{4'096}}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, buffers.size() + bytes{1}),
                                          buffers.size().count()};
    auto links = here.links(memory);
    breaking_stage stage{plan, here.stage(), here.all(), kernel, how, 2U};
    if (here.stage() == at.stage) stage.calls_left = at.call;
    weights_type& weights = stage.weights();
    weights.outside([&] { (void)load_stages(here.all(), weights.m(), folder, {.allow_fresh_start = true}); });
    weights.between = [&] {
      if (weights.updates() % 2 == 0) (void)save_stages(here.all(), weights.m(), folder);
    };
    if (here.stage() == 0) found.first_batch = weights.updates();
    stage_runner runner{plan, links, memory, buffers, boundaries};
    runner.run(stage, weights.updates());
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == here.stage()) found.weights[part] = weights.newest(part);
  });
  return found;
}

/// The number of the generation that a call gave, or the sentence of its error.
template <class Call>
std::string answer_of(Call call)
{
  try {
    return std::to_string(call().number);
  } catch (const usage_error& refused) {
    return std::string{"usage: "} + refused.what();
  } catch (const std::exception& failed) {
    return failed.what();
  }
}

/// The answers of each stage, call by call.
using answers = std::vector<std::vector<std::string>>;

/// One stage each in a thread, with a manager and a folder. @param work   `work(place, manager, folder)` gives answers
using manager_type = support::manager_of_layers;
using work_of_stage =
    call_ref<std::vector<std::string>(thread_stages::place& here, manager_type& m, small_folder& folder)>;
answers on_two_stages(folders& saved, work_of_stage work)
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  answers found(2);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    support::managed_layers<float> layers{8};
    layers.declare(here.stage());
    layers.fill();
    found[here.stage()] = work(here, layers.m(), saved[here.stage()]);
  });
  return found;
}
void both_say(const answers& found, std::size_t call, const std::string& part)
{
  for (const std::vector<std::string>& stage : found) CHECK_THAT(stage.at(call), ContainsSubstring(part));
}
template <class Place, class Manager>
std::string save(Place& here, Manager& m, small_folder& folder, const checkpoint::save_options& options = {})
{
  return answer_of([&] { return save_stages(here.all(), m, folder, options); });
}
template <class Place, class Manager>
std::string load(Place& here, Manager& m, const small_folder& folder, const checkpoint::load_options& options = {})
{
  return answer_of([&] { return load_stages(here.all(), m, folder, options); });
}

std::uint64_t newest_of(const small_folder& folder)
{
  const std::vector<std::uint64_t> all = checkpoint::generations_in(folder);
  return all.empty() ? 0 : all.front();
}

/// A part with two versions of its weight, and a folder.
struct one_part_in_versions {
  support::managed_layers<bf16> layers{64};
  pipeline::weight_versions<support::manager_of_layers> versions{layers.m(), 2, dtype::bfloat16};
  optimizer::adam adam = kernel;
  support::memory_folder folder{};

  one_part_in_versions()
  {
    layers.declare(0);
    layers.m().use(adam);
    layers.fill();
    versions.start();
  }
};

}  // namespace

TEST_CASE("a training that breaks at any call goes on from its last checkpoint with the same bits", "[pipeline]")
{
  const managed_recipe how{.options = {.learning_rate = 0.05F, .clip = {.norm = 0.5F}}};
  for (const schedule& plan :
       {make_schedule(pipedream_2bw{}, {.stages = 3, .micro_batches = 4, .batches = 7}),
        make_schedule(pipedream_2bw{.versions = 3}, {.stages = 3, .micro_batches = 2, .batches = 7}),
        make_schedule(pipedream_2bw{.for_all_stages = true}, {.stages = 3, .micro_batches = 4, .batches = 7}),
        make_schedule(one_f_one_b{}, {.stages = 3, .micro_batches = 4, .batches = 7})}) {
    const std::vector<vector_type> expected = support::train_managed_alone<bf16>(plan, kernel, how);
    support::dice dice{11};
    int resumed = 0;
    for (int trial = 0; trial < (support::sanitized ? 4 : 20); ++trial) {
      const breakage at{dice.below(3), dice.below(2 * plan.all_micro_batches() + plan.batches)};
      CAPTURE(plan.name, plan.versions, trial, at.stage, at.call);
      folders saved(3);
      CHECK_THROWS_AS(train(plan, saved, how, at), std::domain_error);
      const trained found = train(plan, saved, how);
      CHECK(found.weights == expected);
      resumed += found.first_batch > 0 ? 1 : 0;
    }
    CHECK(resumed > 0);
  }
}

TEST_CASE("stages that are one generation apart load the older one, and save under one number again", "[pipeline]")
{
  folders saved(2);
  on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    std::vector<std::string> all;
    for (int number = 0; number < 3; ++number) all.push_back(save(here, m, folder));
    if (here.stage() == 1) (void)checkpoint::save(m, folder);  // a power cut in the middle
    folder.claim("000004");
    return all;
  });
  CHECK(newest_of(saved[0]) == 3);
  CHECK(newest_of(saved[1]) == 4);
  const answers together = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    return std::vector{load(here, m, folder), save(here, m, folder)};
  });
  CHECK(together == answers{{"3", "4"}, {"3", "4"}});
  CHECK(newest_of(saved[0]) == 4);
  CHECK(newest_of(saved[1]) == 4);
  const answers apart = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    std::vector<std::string> all{load(here, m, folder)};
    if (here.stage() == 0)
      for (int number = 0; number < 2; ++number) (void)checkpoint::save(m, folder);
    all.push_back(save(here, m, folder));
    all.push_back(load(here, m, folder));
    return all;
  });
  both_say(apart, 0, "4");
  both_say(apart, 1, "give each stage the folder that it had");
  both_say(apart, 2, "give each stage the folder that it had");
}

TEST_CASE("where one stage cannot save, no stage has the generation", "[pipeline]")
{
  folders saved(2);
  std::vector<std::uint64_t> newest(2);
  const answers found = on_two_stages(saved, [&](auto& here, auto& m, auto& folder) {
    std::vector<std::string> all{save(here, m, folder)};
    folder.is_full = here.stage() == 0;
    all.push_back(save(here, m, folder));
    newest[here.stage()] = newest_of(folder);
    folder.is_full = false;
    all.push_back(save(here, m, folder));
    all.push_back(save(here, m, folder, {.keep = 1}));
    return all;
  });
  both_say(found, 0, "1");
  both_say(found, 1, "creating");
  CHECK(newest == std::vector<std::uint64_t>{1, 1});
  both_say(found, 2, "2");
  both_say(found, 3, "3");
}

TEST_CASE("stages without any checkpoint start afresh where that is allowed, all or none", "[pipeline]")
{
  folders saved(2);
  const answers fresh = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    std::vector<std::string> all{load(here, m, folder, {.allow_fresh_start = true}), load(here, m, folder)};
    if (here.stage() == 0) (void)checkpoint::save(m, folder);
    return all;
  });
  both_say(fresh, 0, "0");
  both_say(fresh, 1, "there is no checkpoint in this folder");
  const answers half = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    return std::vector{load(here, m, folder, {.allow_fresh_start = true})};
  });
  both_say(half, 0, "give each stage the folder that it had");
}

TEST_CASE("a load takes the newest generation that is whole on every stage, up to a number", "[pipeline]")
{
  folders saved(2);
  on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    std::vector<std::string> all;
    for (int number = 0; number < 4; ++number) all.push_back(save(here, m, folder, {.keep = 9}));
    return all;
  });
  const answers limited = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    return std::vector{load(here, m, folder, {.newest = 3}), load(here, m, folder, {.newest = here.stage() + 1U})};
  });
  both_say(limited, 0, "3");
  both_say(limited, 1, "different values of newest");
  saved[0].flip("generation-000004.manifest", 40);
  saved[1].flip("generation-000003.manifest", 40);
  const answers damaged = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    return std::vector{load(here, m, folder), save(here, m, folder, {.keep = 9})};
  });
  CHECK(damaged == answers{{"2", "5"}, {"2", "5"}});
}

TEST_CASE("a save that fails on one stage leaves what all stages had, and it loads when the newest is damaged",
          "[pipeline]")
{
  for (const std::uint32_t keep : {1U, 2U, 3U})
    for (const std::uint32_t broken : {0U, 1U}) {
      CAPTURE(keep, broken);
      folders saved(2);
      const answers found = on_two_stages(saved, [&](auto& here, auto& m, auto& folder) {
        std::vector<std::string> all;
        for (int number = 0; number < 3; ++number) all.push_back(save(here, m, folder, {.keep = keep}));
        folder.is_full = here.stage() == broken;
        all.push_back(save(here, m, folder, {.keep = keep}));
        folder.is_full = false;
        return all;
      });
      both_say(found, 3, "no room is left");
      for (small_folder& each : saved) CHECK(checkpoint::generations_in(each).size() == keep);
      const std::string newest = "generation-000003-00000.safetensors";
      saved[broken].flip(newest, saved[broken].content_of(newest).size() - 4);
      const answers loaded =
          on_two_stages(saved, [](auto& here, auto& m, auto& folder) { return std::vector{load(here, m, folder)}; });
      both_say(loaded, 0, keep == 1 ? "number 3: " : "2");
    }
}

TEST_CASE("a damaged generation of one stage counts on no stage", "[pipeline]")
{
  folders saved(2);
  const answers found = on_two_stages(saved, [&](auto& here, auto& m, auto& folder) {
    std::vector<std::string> all{save(here, m, folder), save(here, m, folder)};
    const std::string second = "generation-000002-00000.safetensors";
    if (here.stage() == 1) folder.flip(second, folder.content_of(second).size() - 4);
    all.push_back(save(here, m, folder));
    return all;
  });
  both_say(found, 2, "3");
  for (const small_folder& each : saved) CHECK(checkpoint::generations_in(each) == std::vector<std::uint64_t>{3, 2, 1});
}

TEST_CASE("folders of two trainings are neither loaded nor saved together, and the error names both", "[pipeline]")
{
  folders one(2), other(2);
  for (folders* each : {&one, &other})
    on_two_stages(*each, [](auto& here, auto& m, auto& folder) { return std::vector{save(here, m, folder)}; });
  std::swap(one[1], other[1]);
  std::vector<std::string> runs(2);
  const answers found = on_two_stages(one, [&](auto& here, auto& m, auto& folder) {
    std::vector<std::string> all{load(here, m, folder)};
    (void)checkpoint::load(m, std::as_const(folder));  // each alone
    runs[here.stage()] = std::to_string(m.content().run());
    all.push_back(save(here, m, folder));
    return all;
  });
  for (const std::size_t call : {0U, 1U}) {
    both_say(found, call, "two trainings are mixed: stage 0");
    for (const std::string& run : runs) both_say(found, call, run);
  }
  both_say(on_two_stages(other,
                         [&](auto& here, auto& m, auto& folder) {
                           if (here.stage() == 0) (void)checkpoint::load(m, std::as_const(folder));
                           return std::vector{save(here, m, folder)};
                         }),
           0, "stage 1 goes on with run 0");
}

TEST_CASE("swapped folders of two stages are refused, also where their tensors look alike", "[pipeline]")
{
  const auto look_alike = [](auto& m) {
    m.for_each_parameter([&](tensor_handle it, const auto&) { m.name(tensor<float>{it}, ""); });
  };
  folders saved(2);
  on_two_stages(saved, [&](auto& here, auto& m, auto& folder) {
    look_alike(m);
    return std::vector{save(here, m, folder)};
  });
  small_folder first = saved[0].copy();
  small_folder second = saved[1].copy();
  std::swap(saved[0], saved[1]);
  const answers found = on_two_stages(saved, [&](auto& here, auto& m, auto& folder) {
    look_alike(m);
    std::vector<std::string> all{load(here, m, folder)};
    all.push_back(load(here, m, here.stage() == 0 ? first : second));
    all.push_back(save(here, m, folder));
    return all;
  });
  both_say(found, 0, "this is stage 0 of 2, and generation 1 of its folder is of stage 1 of 2");
  both_say(found, 1, "1");
  both_say(found, 2, "this is stage 0 of 2, and generation 1 of its folder is of stage 1 of 2");
}

TEST_CASE("generations of one number and of two saves are not loaded together", "[pipeline]")
{
  folders saved(2), copied(2);
  on_two_stages(saved, [](auto& here, auto& m, auto& folder) { return std::vector{save(here, m, folder)}; });
  for (const std::size_t stage : {0U, 1U}) copied[stage] = saved[stage].copy();
  const auto go_on = [](folders& with, float value) {
    both_say(on_two_stages(with,
                           [&](auto& here, auto& m, auto& folder) {
                             (void)load(here, m, folder);
                             m.for_each_parameter([&](tensor_handle it, const auto&) {
                               m.acquire(tensor<float>{it}, access::write).span()[0] = value;
                             });
                             return std::vector{save(here, m, folder)};
                           }),
             0, "2");
  };
  go_on(saved, 1);
  go_on(copied, 2);
  std::swap(saved[1], copied[1]);
  both_say(on_two_stages(saved, [](auto& here, auto& m, auto& folder) { return std::vector{load(here, m, folder)}; }),
           0, "generation 2 of stage 0 and that of stage 1 are not of one save");
}

TEST_CASE("generations that do not say of which stage they are load, if they are of one training", "[pipeline]")
{
  folders saved(2);
  const answers found = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    m.content().belongs_to(7);
    (void)checkpoint::save(m, folder);
    return std::vector{load(here, m, folder), save(here, m, folder), load(here, m, folder)};
  });
  CHECK(found == answers{{"1", "2", "2"}, {"1", "2", "2"}});
}

TEST_CASE("a first save that did not end on all stages is passed over, and the training begins", "[pipeline]")
{
  for (const std::size_t killed : {0U, 1U}) {
    CAPTURE(killed);
    folders saved(2);
    on_two_stages(saved, [](auto& here, auto& m, auto& folder) { return std::vector{save(here, m, folder)}; });
    CHECK(saved[killed].remove("generation-000001.manifest"));
    for (small_folder& each : saved) each.claim("000001");
    const answers found = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
      std::vector<std::string> all{load(here, m, folder)};
      all.push_back(answer_of([&] {
        auto begun = load_stages(here.all(), m, std::as_const(folder), {.allow_fresh_start = true});
        begun.number = 100 + begun.skipped.size();
        return begun;
      }));
      all.push_back(save(here, m, folder));
      all.push_back(load(here, m, folder));
      return all;
    });
    both_say(found, 0, "stage " + std::to_string(killed) + " does not have it");
    both_say(found, 0, "allow a fresh start");
    both_say(found, 1, "101");
    CHECK(found[0][2] == found[0][3]);
    CHECK(found[0] == found[1]);
  }
}

TEST_CASE("a training does not begin anew where one stage lost the manifest of the only generation", "[pipeline]")
{
  for (const std::size_t lost : {0U, 1U})
    for (const bool is_claimed : {false, true}) {
      CAPTURE(lost, is_claimed);
      folders saved(2);
      on_two_stages(saved, [](auto& here, auto& m, auto& folder) { return std::vector{save(here, m, folder)}; });
      const small_folder whole = saved[lost].copy();
      CHECK(saved[lost].remove("generation-000001.manifest"));
      if (is_claimed) saved[lost].claim("000001");  // as in a folder of another training, whose first save did not end
      const std::vector<std::vector<std::string>> names{saved[0].names(), saved[1].names()};
      const answers found = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
        std::vector<std::string> all{load(here, m, folder, {.allow_fresh_start = true})};
        all.push_back(save(here, m, folder));
        return all;
      });
      for (const std::size_t call : {0U, 1U}) both_say(found, call, "the folder that it had, with all its files");
      CHECK(std::vector{saved[0].names(), saved[1].names()} == names);
      saved[lost] = whole.copy();
      both_say(
          on_two_stages(saved, [](auto& here, auto& m, auto& folder) { return std::vector{load(here, m, folder)}; }), 0,
          "1");
    }
}

TEST_CASE("a generation whose manifest one stage lost stays on the others until newer ones replace it", "[pipeline]")
{
  folders saved(2);
  std::vector<std::vector<std::uint64_t>> left;
  const answers found = on_two_stages(saved, [&](auto& here, auto& m, auto& folder) {
    std::vector<std::string> all;
    for (int number = 0; number < 3; ++number) all.push_back(save(here, m, folder));
    if (here.stage() == 1) CHECK(folder.remove("generation-000003.manifest"));
    all.push_back(load(here, m, folder));
    for (const std::size_t most : {std::size_t{0}, SIZE_MAX, SIZE_MAX}) {
      if (here.stage() == 1) folder.most_before = most;
      all.push_back(save(here, m, folder));
      if (here.stage() == 0) left.push_back(checkpoint::generations_in(folder));
    }
    return all;
  });
  both_say(found, 3, "2");
  both_say(found, 4, "no room is left");
  both_say(found, 5, "4");
  both_say(found, 6, "5");
  CHECK(left == std::vector<std::vector<std::uint64_t>>{{3, 2}, {4, 3, 2}, {5, 4}});
}

TEST_CASE("generations go before the claims that prove that their save did not end", "[pipeline]")
{
  folders saved(2);
  on_two_stages(saved, [](auto& here, auto& m, auto& folder) { return std::vector{save(here, m, folder)}; });
  saved[0].claim("000001");
  checkpoint::remove_generations(saved[0], {1});
  CHECK(saved[0].names() == std::vector<std::string>{"generation-000001.claim.tmp"});
  CHECK(checkpoint::remove_leftovers(saved[0]) == 1);
}

TEST_CASE("a disk with room for less than keep + 1 generations says how to save, and that works", "[pipeline]")
{
  folders saved(2);
  const answers found = on_two_stages(saved, [](auto& here, auto& m, auto& folder) {
    std::vector<std::string> all{save(here, m, folder)};
    folder.most_before = folder.size() * 3 / 2;  // room for 2.5
    for (int number = 0; number < 2; ++number) all.push_back(save(here, m, folder));
    const checkpoint::save_options with_room{.keep = 2, .keep_while_writing = 1};
    for (int number = 0; number < 3; ++number) all.push_back(save(here, m, folder, with_room));
    folder.is_full = here.stage() == 1;
    all.push_back(save(here, m, folder, with_room));
    all.push_back(load(here, m, folder));
    return all;
  });
  both_say(found, 1, "2");
  both_say(found, 2, "2 older generations stay until this one is complete");
  both_say(found, 2, "keep_while_writing = 1");
  for (const std::size_t number : {3U, 4U, 5U}) both_say(found, number, std::to_string(number));
  both_say(found, 6, "no room is left");
  both_say(found, 7, "5");
  for (const small_folder& each : saved) CHECK(checkpoint::generations_in(each).front() == 5);

  small_folder alone;
  support::managed_layers<float> layers{8};
  layers.declare(0);
  layers.fill();
  (void)checkpoint::save(layers.m(), alone);
  alone.most_before = alone.size() * 3 / 2;
  (void)checkpoint::save(layers.m(), alone);
  CHECK_THAT(answer_of([&] { return checkpoint::save(layers.m(), alone); }),
             ContainsSubstring("keep_while_writing = 1"));
  for (std::uint64_t number = 3; number < 6; ++number)
    CHECK(checkpoint::save(layers.m(), alone, {.keep_while_writing = 1}).number == number);
}

TEST_CASE("versions of weights of replicas load into another number of replicas", "[pipeline]")
{
  support::memory_folder folder;
  const auto train_on = [&](std::uint32_t replicas, sharding::zero divided, std::uint32_t batches, bool loads) {
    collective::thread_group group{replicas};
    std::vector<std::vector<float>> newest(replicas), oldest(replicas);
    collective::run_threads(replicas, [&](std::uint32_t rank) {
      collective::local_threads ranks{group, rank_id{rank}};
      backend::host_arena memory{{.device_capacity = bytes{1 << 18}, .host_capacity = bytes{1 << 20}}};
      using model_type = sharded_model<backend::host_arena, collective::local_threads>;
      model_type m{memory, ranks, {.chunk_bytes = bytes{1 << 14} * replicas}, {.divided = divided}};
      optimizer::adam adam{{}, {.masters = true}};
      m.use(adam);
      pipeline::weight_versions<model_type> versions{m, 2, dtype::bfloat16};
      const auto weight = m.add<bf16>({2'000}, role::parameter);
      for (bf16& it : m.acquire(weight, access::write).span()) it = bf16{1.0F};
      versions.start();
      if (loads) (void)checkpoint::load(m, folder);
      for (std::uint32_t batch = 0; batch < batches; ++batch) {
        {
          const auto scope = m.iteration();
          auto gradient = m.gradient(weight);
          for (std::size_t index = 0; index < gradient.size(); ++index)
            gradient.span()[index] = bf16{rank == 0 ? static_cast<float>(1 + (index + versions.newest()) % 7) : 0.0F};
          m.gradient_done(std::move(gradient));
        }
        versions.flip();
        const auto scope = m.iteration("update");
        (void)versions.update([&] { return m.step(adam, {.learning_rate = 0.1F}); });
      }
      if (!loads) (void)checkpoint::save(m, folder);
      const auto numbers = [&](std::uint32_t version) {
        std::vector<float> all;
        const auto pin = versions.acquire(weight, version);
        for (const bf16 it : pin.span()) all.push_back(to_float(it));
        return all;
      };
      newest[rank] = numbers(versions.newest());
      oldest[rank] = numbers(versions.newest() - 1);
    });
    newest.insert(newest.end(), oldest.begin(), oldest.end());
    return newest;
  };
  const auto longer = train_on(2, sharding::zero_1, 5, false);
  folder = {};
  const auto saved = train_on(2, sharding::zero_1, 3, false);
  CHECK(saved[0] == saved[1]);
  CHECK(saved[0] != saved[2]);
  for (const sharding::zero divided : {sharding::zero_1, sharding::zero_3})
    for (const std::uint32_t replicas : {1U, 2U, 3U}) {
      CAPTURE(divided.parameters, replicas);
      const auto loaded = train_on(replicas, divided, 0, true);
      for (std::uint32_t rank = 0; rank < replicas; ++rank) {
        CHECK(loaded[rank] == saved[0]);
        CHECK(loaded[replicas + rank] == saved[2]);
      }
      const auto later = train_on(replicas, divided, 2, true);
      CHECK(later[0] == longer[0]);
      CHECK(later[replicas] == longer[2]);
    }
}

TEST_CASE("an update that was saved before it was done is done behind the load", "[pipeline]")
{
  one_part_in_versions rig;
  auto& [layers, versions, adam, folder] = rig;
  int steps = 0;
  const auto update = [&] {
    layers.set_gradient(0, vector_type(width * width, 1));
    (void)versions.update([&] {
      ++steps;
      return optimizer::step(layers.m(), adam, {.learning_rate = 0.1F});
    });
    return layers.read(versions.acquire(layers[0], versions.newest()));
  };
  {
    const auto scope = layers.m().iteration();
  }
  versions.flip();
  (void)checkpoint::save(layers.m(), folder);
  const auto scope = [&] { return layers.m().iteration(); };
  vector_type first;
  {
    const auto it = scope();
    first = update();
  }
  (void)checkpoint::load(layers.m(), folder);
  const auto it = scope();
  CHECK(update() == first);
  CHECK(steps == 2);
}

TEST_CASE("a load ends an update that was not finished", "[pipeline]")
{
  one_part_in_versions rig;
  auto& [layers, versions, adam, folder] = rig;
  {
    const auto scope = layers.m().iteration();
  }
  (void)checkpoint::save(layers.m(), folder);
  const auto newest = [&] { return layers.read(versions.acquire(layers[0], versions.newest())); };
  const vector_type before = newest();
  versions.flip();
  CHECK_THROWS_AS(newest(), usage_error);
  (void)checkpoint::load(layers.m(), folder);
  CHECK(newest() == before);
  {
    const auto scope = layers.m().iteration();
  }
  CHECK_NOTHROW(versions.flip());
}

TEST_CASE("a stage over one rank tells its save by the rule for replicas, as generations of before do", "[pipeline]")
{
  using memory_type = backend::host_arena;
  support::memory_folder folder;
  memory_type memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  collective::self alone, stages;
  sharded_model<memory_type, collective::self> m{memory, alone, {.chunk_bytes = 64_KiB}};
  const auto weight = m.add<float>({300}, role::parameter);
  m.name(weight, "w");
  for (float& it : m.acquire(weight, access::write).span()) it = 2;
  (void)pipeline::save_stages(stages, m, folder);
  const auto found = checkpoint::check_generation(folder, 1);
  collective::fingerprint own, stage, all;
  for (const checkpoint::stored_file& it : found.content().files) {
    own.add(it.size);
    for (const std::uint64_t sum : it.sums) own.add(sum);
  }
  stage.add(own.value());
  all.add(stage.value());
  REQUIRE(found.content().stage);
  CHECK(found.content().stage->save == all.value());
}

}  // namespace stage_files_test
