// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_async.hpp>

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/every_policy.hpp>
#include <support/gated_folder.hpp>
#include <support/memory_folder.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "small_model.hpp"

namespace save_behind_updates_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::optimizer::late_updates;
using support::gated_folder;
using support::memory_folder;

namespace {

constexpr std::uint32_t weights = 8;

/// Updates happen on the device, where the states then lie.
struct states_on_device : cm::placement::update_share {
  states_on_device() : update_share{1.0} {}
};

/// Seven weights with late updates, one of which no forward pass uses, and a frozen one. Small weights share chunks.
/// Gradients depend on the values of the weights.
template <class Backend, class Element, class... Policies>
struct training {
  using manager_type = cm::manager<Backend, support::chosen_gradient, Policies...>;
  using kernel_type = cm::optimizer::adam;

  explicit training(support::chosen_gradient how = {}, cm::bytes device = 40_KiB, cm::bytes host = 1_MiB)
      : memory{{.device_capacity = device, .host_capacity = host}},
        m{memory, {.chunk_bytes = 4_KiB}, how, Policies{}...}
  {
    m.use(kernel);
    m.content().belongs_to(1);
    for (std::uint32_t index = 0; index < weights; ++index)
      all.push_back(
          m.template add<Element>({index < 4 ? 900U : 90U}, index == 5 ? cm::role::frozen : cm::role::parameter));
    late.emplace(m, kernel);
    for (std::uint32_t index = 0; index < weights; ++index) {
      const auto pin = m.acquire(all[index], cm::access::write);
      for (std::size_t at = 0; at < pin.size(); ++at)
        pin.span()[at] = cm::round_to<Element>(0.01F * static_cast<float>((at * 7 + index) % 19));
    }
  }
  float forward()
  {
    float sum = 0;
    for (std::uint32_t index = 0; index < weights; ++index) {
      if (index == 6) continue;
      const auto pin = m.acquire(all[index], cm::access::read);
      for (const Element& it : pin.span()) sum += cm::to_float(it);
    }
    return sum;
  }
  void step()
  {
    const auto scope = m.iteration();
    const float loss = forward();
    losses.push_back(loss);
    for (std::uint32_t index = weights; index-- > 0;) {
      if (index == 5 || index == idle) continue;
      auto gradient = m.gradient(all[index]);
      for (std::size_t at = 0; at < gradient.size(); ++at)
        gradient.span()[at] = cm::round_to<Element>(1e-3F * loss * static_cast<float>((at + index) % 5));
    }
    (void)late->step({.learning_rate = 0.02F, .clip = {.norm = 1.0F}, .seed = 5});
  }
  void steps(int count)
  {
    for (int now = 0; now < count; ++now) step();
  }

  Backend memory;
  manager_type m;
  kernel_type kernel{};
  std::vector<cm::tensor<Element>> all;
  std::optional<late_updates<manager_type, kernel_type>> late;
  std::vector<float> losses;
  std::uint32_t idle = weights;  // has no gradient in the next step
};

template <class Folder>
std::map<std::string, memory_folder::content> files_of(const Folder& folder)
{
  std::map<std::string, memory_folder::content> all;
  for (const std::string& name : folder.names()) all[name] = folder.content_of(name);
  return all;
}

constexpr int before = 5;
constexpr int after = 3;

/// The save that finishes the updates first.
template <class Training>
std::map<std::string, memory_folder::content> right_files(const checkpoint::async_save_options& options,
                                                          support::chosen_gradient how = {})
{
  Training run{how};
  memory_folder folder;
  run.steps(before);
  run.late->finish();
  CHECK(checkpoint::save_async(run.m, folder, options).wait().number == 1);
  return files_of(folder);
}

/// Saves while updates wait, and trains on. @param opens   before this step of those behind the save, the disk begins
template <class Training>
void save_while_updates_wait(checkpoint::async_save_options options, int opens, support::chosen_gradient how = {})
{
  options.lends = true;
  Training plain{how};
  plain.steps(before + after);
  Training run{how};
  gated_folder folder;
  run.steps(before);
  const std::size_t waiting = run.late->waiting();
  CHECK(waiting == weights - 1);
  folder.set_open(opens == 0);
  auto pending = checkpoint::save_async(run.m, folder, options);
  CHECK(run.late->waiting() == waiting);
  CHECK_FALSE(pending.is_over());
  for (int now = 0; now < after; ++now) {
    if (now == opens) folder.set_open(true);
    run.step();
  }
  folder.set_open(true);
  CHECK(pending.wait().number == 1);
  CHECK(pending.most_buffered() <= options.buffer);
  CHECK(files_of(folder) == right_files<Training>(options, how));
  CHECK(run.losses == plain.losses);
  CHECK(run.m.report().divergences == plain.m.report().divergences);
  CHECK(run.m.report().loads == plain.m.report().loads);
}

template <class Backend, class Element, class... Policies>
void save_in_many_ways()
{
  using trainer = training<Backend, Element, Policies...>;
  for (const cm::bytes buffer : {4_KiB, 20_KiB, 1_MiB})
    for (const cm::bytes file : {10_KiB, 1_MiB})
      for (const std::uint32_t copying : {0U, 2U}) {
        if (support::sanitized && (file == 10_KiB) != (copying == 0)) continue;
        INFO("buffer of " << buffer.count() << " B, files of " << file.count() << " B, " << copying << " threads");
        const checkpoint::async_save_options options{
            .files = {.file_size = file}, .buffer = buffer, .lends = true, .copying_threads = copying};
        save_while_updates_wait<trainer>(options, 0);
        if (buffer == 1_MiB) save_while_updates_wait<trainer>(options, 1);
        if (cm::is_16_bit(cm::dtype_of<Element>))
          save_while_updates_wait<trainer>(options, 0, support::chosen_gradient{true});
      }
}

/// A save behind updates of which one weight had none. @param idle   that weight
template <class Element>
void end_in_every_way(std::uint32_t idle)
{
  using trainer = training<arena, Element>;
  const checkpoint::async_save_options options{.buffer = 4_KiB, .lends = true};
  const auto train_with_idle_weight = [idle](trainer& run) {
    run.steps(before);
    run.m.without_gradient(run.all[idle]);
    run.idle = idle;
    run.step();
  };
  trainer finished;
  memory_folder of_finished;
  train_with_idle_weight(finished);
  finished.late->finish();
  CHECK(checkpoint::save_async(finished.m, of_finished, options).wait().number == 1);
  const auto right = files_of(of_finished);
  enum : int { waits, detaches, loads, ends, writes_weight, writes_idle, writes_state, evaluates };
  for (const int how : {waits, detaches, loads, ends, writes_weight, writes_idle, writes_state, evaluates}) {
    INFO("way " << how << ", weight " << idle << " is idle");
    trainer run;
    const auto fill = [&](cm::tensor<Element> weight) {
      std::ranges::fill(run.m.acquire(weight, cm::access::write, cm::memory_location::host).span(),
                        cm::round_to<Element>(7.0F));
    };
    memory_folder folder;
    train_with_idle_weight(run);
    {
      auto pending = checkpoint::save_async(run.m, folder, options);
      CHECK(run.late->waiting() == weights - 2);
      if (how == detaches) pending.detach();
      if (how == writes_weight) fill(run.all[2]);
      if (how == writes_idle) fill(run.all[idle]);
      if (how == writes_state)
        std::ranges::fill(run.m
                              .template acquire<float>(run.all[idle], run.m.list("adam/momentum"),
                                                       cm::access::read_write, cm::memory_location::host)
                              .span(),
                          7.0F);
      if (how == evaluates) {
        const auto scope = run.m.iteration("eval");
        (void)run.forward();
        CHECK(run.late->waiting() == 0);  // of the weight that is not used too: it shares its chunk
      }
      if (how == loads) {
        memory_folder other;
        trainer first;
        (void)checkpoint::save(first.m, other);
        (void)checkpoint::load(run.m, other);
      }
      if (how == detaches || how == loads || how == writes_idle) CHECK(run.late->waiting() == 0);
      if (how != ends) CHECK(pending.wait().number == 1);
    }
    CHECK(run.late->waiting() == 0);
    CHECK(files_of(folder) == right);
  }
}

}  // namespace

TEST_CASE("a save takes bytes behind the late updates of the next pass, and its files are those of finished updates",
          "[checkpoint]")
{
  save_in_many_ways<arena, float>();
  save_in_many_ways<arena, cm::bf16>();
  save_in_many_ways<arena, float, support::every_eviction, cm::transfer::planned>();
  save_in_many_ways<support::adversarial, cm::bf16>();
  save_in_many_ways<arena, cm::bf16, states_on_device>();
  training<arena, cm::bf16, states_on_device> on_device;
  CHECK(on_device.m.updates().place_of_update(on_device.all[0]) == cm::memory_location::device);
}

TEST_CASE("the end of a save, a load and writes of the trainer do the updates that a save waits for", "[checkpoint]")
{
  for (const std::uint32_t idle : {3U, 4U}) {  // alone in its chunk, and beside weights whose updates wait
    end_in_every_way<float>(idle);
    end_in_every_way<cm::bf16>(idle);
  }
}

TEST_CASE("where the host has no room for states of the device, a save copies them behind the last update",
          "[checkpoint]")
{
  using trainer = training<arena, float, states_on_device>;
  for (const cm::bytes buffer : {4_KiB, 1_MiB}) {
    const checkpoint::async_save_options options{.buffer = buffer, .lends = true};
    trainer run{{}, 128_KiB, 16_KiB};
    memory_folder folder;
    run.steps(before);
    auto pending = checkpoint::save_async(run.m, folder, options);
    CHECK(run.late->waiting() == weights - 1);
    run.steps(after);
    CHECK(pending.wait().number == 1);
    CHECK(pending.most_buffered() <= buffer);
    CHECK(files_of(folder) == right_files<trainer>(options));
  }
}

TEST_CASE("an update that finds no room in the wait for a save ends no save", "[checkpoint]")
{
  using trainer = training<arena, float, states_on_device>;
  const checkpoint::async_save_options options{.lends = true};
  trainer run;
  memory_folder folder;
  run.steps(before);
  auto pending = checkpoint::save_async(run.m, folder, options);
  {
    const auto others = run.m.lease(cm::tier::device, 36_KiB);
    CHECK_THROWS_AS(pending.wait(), cm::out_of_memory);
    CHECK(run.late->waiting() > 0);
  }
  CHECK(pending.wait().number == 1);
  CHECK(files_of(folder) == right_files<trainer>(options));
}

TEST_CASE("a promise that no update keeps is an error of the wait", "[checkpoint]")
{
  training<arena, float> run;
  run.steps(before);
  checkpoint::detail::lending_writer writer{run.m, std::make_shared<checkpoint::detail::save_queue>(4'096)};
  std::size_t promised = 0;
  for (const auto& item : checkpoint::detail::items_of(run.m)) promised += writer.comes_later(run.m, item) ? 1U : 0U;
  CHECK(promised > weights);
  run.m.updates().pending().discard();
  CHECK_THROWS_AS(writer.wait(), cm::usage_error);
}

TEST_CASE("a save that copies all of its bytes, and one behind the first step, finish late updates first",
          "[checkpoint]")
{
  for (const bool lends : {false, true}) {
    training<arena, cm::bf16> run;
    memory_folder folder;
    run.steps(lends ? 1 : before);  // the first updates make states
    auto pending = checkpoint::save_async(run.m, folder, {.lends = lends});
    CHECK(run.late->waiting() == 0);
    CHECK(pending.wait().number == 1);
  }
}

TEST_CASE("a save whose late updates are lost ends with an error, and the training goes on", "[checkpoint]")
{
  training<arena, float> run;
  memory_folder folder;
  memory_folder other;
  run.steps(2);
  (void)checkpoint::save(run.m, other);
  const std::vector<float> until = run.losses;
  run.steps(1);
  {
    auto pending = checkpoint::save_async(run.m, folder, {.lends = true});
    run.late.reset();
    CHECK_THROWS_AS(pending.wait(), cm::usage_error);
    CHECK(checkpoint::generations_in(folder).empty());
  }
  run.late.emplace(run.m, run.kernel);
  (void)checkpoint::load(run.m, other);
  run.steps(1);
  CHECK(run.losses[3] == run.losses[2]);
}

}  // namespace save_behind_updates_test
