// SPDX-License-Identifier: Apache-2.0
// Saves over ranks that lend, behind late updates: random trainings, in which ranks do random things before the save
// ends.
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/collective/local_threads.hpp>

#include "checkpoint_rig.hpp"

#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/pipeline/stage_files.hpp>
#include <support/fault_control.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_training.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace saves_behind_updates_test {

using namespace rank_checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::optimizer::adam;
using support::memory_folder;
using support::ranks::job;

namespace {

/// Late steps whose updates run on the device.
class device_steps {
 public:
  device_steps(model_type& model, adam& kernel, const job&)
      : m_{model}, on_device_{model}, late_{model, kernel, on_device_}
  {
  }
  cm::optimizer::step_outcome take(const cm::optimizer::step_options& options) { return late_.step(options); }
  void finish() { m_.finish_updates(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return late_.waiting(); }
  [[nodiscard]] static std::size_t early() noexcept { return 0; }

 private:
  using workers = cm::optimizer::device_updates<model_type, cm::optimizer::loop_launcher>;

  model_type& m_;
  workers on_device_;
  cm::optimizer::late_updates<model_type, adam, workers> late_;
};

/// Late steps whose workers fail when they are told to, and whose object may end before the others.
class failing_steps {
 public:
  failing_steps(model_type& model, adam& kernel, const job&) : m_{model}
  {
    late_.emplace(model, kernel, workers_);
    of_this_rank = this;
  }
  cm::optimizer::step_outcome take(const cm::optimizer::step_options& options) { return late_->step(options); }
  void finish() { m_.finish_updates(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return late_->waiting(); }
  [[nodiscard]] static std::size_t early() noexcept { return 0; }
  static void end() { of_this_rank->late_.reset(); }

  static inline thread_local int fails_after = -1;  ///< updates of this rank, then one fails; negative: none

 private:
  struct workers {
    [[nodiscard]] unsigned threads() const
    {
      if (fails_after >= 0 && fails_after-- == 0) throw cm::device_error{"no thread for an update"};
      return 1;
    }
    template <class Work>
    void run(unsigned parts, Work&& work) const
    {
      for (unsigned part = 0; part < parts; ++part) work(part);
    }
  };

  static inline thread_local failing_steps* of_this_rank = nullptr;

  model_type& m_;
  workers workers_;
  std::optional<cm::optimizer::late_updates<model_type, adam, const workers>> late_;
};

template <class Steps>
using trainer = support::ranks::one_of_many<float, model_type, adam, Steps>;
using host_steps = support::ranks::steps_of_ranks<model_type, adam>;

constexpr std::uint32_t most_steps = 14;

std::uint32_t draw(std::mt19937& random, std::size_t below)
{
  return static_cast<std::uint32_t>(random() % below);
}

struct plan {
  explicit plan(std::uint32_t seed) : random{seed}
  {
    constexpr cm::sharding::zero stages[] = {cm::sharding::zero_1, cm::sharding::zero_2, cm::sharding::zero_3,
                                             cm::sharding::zero_3_reduce_last};
    how.ranks = 1 + seed % 5;
    how.steps = most_steps;
    how.divided = stages[draw(random, std::size(stages))];
    how.of_node = how.ranks % 2 == 0 && draw(random, 2) == 0 ? how.ranks / 2 : 0;
    how.clip = 1;
    how.frames = (how.ranks == 1 || how.of_node == 1 ? 64 : 24) + 10 * (draw(random, 5));
    how.when = support::ranks::updates::late;
    how.has_long_units = draw(random, 2) == 0;
    saved_at = 2 + draw(random, 3);
    options = {.files = {.file_size = 50_KiB * (1 + draw(random, 9)), .round = 20_KiB},
               .buffer = cm::bytes{std::uint64_t{4'096} << 3 * (draw(random, 5))},
               .lends = true,
               .copying_threads = draw(random, 3) == 0 ? 1U : 0U};
    transfer = draw(random, 2) == 0 ? "planned" : "lookahead";
  }

  std::mt19937 random;
  job how;
  std::uint32_t saved_at = 0;
  checkpoint::async_save_options options;
  std::string_view transfer;
};

/// Trains on ranks until the save, and calls `work(here, model, trainer, random)`, with one sequence of random numbers
/// for all ranks. The trainer compares its weights with those of one rank.
template <class Steps, class Work>
void train(plan of, const support::ranks::history<float>& values, Work work)
{
  cm::sharding::thread_ranks{of.how.ranks, of.how.of_node == 0 ? of.how.ranks : of.how.of_node}.run(
      [&](cm::sharding::thread_ranks::place& here) {
        arena memory{
            {.device_capacity = of.how.frame_bytes() * of.how.frames, .host_capacity = of.how.frame_bytes() * 256}};
        const bool on_device = std::is_same_v<Steps, device_steps>;
        model_type model{memory,
                         here.process_groups(),
                         {.chunk_bytes = of.how.frame_bytes()},
                         {.divided = of.how.divided, .unit_bytes = of.how.unit_bytes()},
                         support::every_eviction{"belady"},
                         support::every_layout{"size_class_layout"},
                         support::every_placement{on_device ? "device_margin" : "optimizer_on_host"},
                         support::every_transfer{of.transfer}};
        trainer<Steps> it{model, adam{{}}, of.how, values};
        it.fill();
        model.seal();
        model.shares().content().belongs_to(1);
        std::mt19937 random = of.random;
        for (std::uint32_t step = 0; step < of.saved_at; ++step) it.step(step);
        work(here, model, it, random);
        expect(it.complaint.empty(), it.complaint);
      });
}

/// @return   whether updates waited when the save began
template <class Steps>
bool save_and_go_on(std::uint32_t seed)
{
  const plan of{seed};
  INFO("seed " << seed << ", " << of.how.ranks << " ranks, nodes of " << of.how.of_node << ", buffer "
               << of.options.buffer.count() << " B");
  const support::ranks::one_rank<float, adam> one{of.how, adam{{}}};
  memory_folder right, folder, others;
  train<Steps>(of, one.values, [&](auto&, model_type& model, auto&, auto&) {
    model.finish_updates();
    (void)checkpoint::save(model, right, of.options.files);
  });
  std::atomic<std::uint32_t> waited = 0;
  train<Steps>(of, one.values, [&](auto& here, model_type& model, auto& it, std::mt19937& random) {
    auto pending = checkpoint::save_async(model, folder, of.options);
    if (model.shares().updates_pending() > 0) ++waited;
    std::uint32_t now = of.saved_at;
    for (auto left = draw(random, 7); left-- > 0;) {
      const std::uint32_t which = draw(random, of.how.ranks);
      switch (draw(random, 9)) {
        case 0: it.check_all(now); break;
        case 1: model.finish_updates(); break;
        case 2:
          if (here.rank() == which) pending.detach();
          break;
        case 3: (void)pending.is_over(); break;
        case 4: model.drop_gradients(); break;
        case 5: (void)checkpoint::save(model, others); break;
        default: it.step(now++);
      }
    }
    (void)pending.wait();
    it.step(now++);
    it.check_all(now);
  });
  REQUIRE((waited == 0 || waited == of.how.ranks));
  if (std::is_same_v<Steps, device_steps> && of.how.of_node != 0) REQUIRE(waited == 0);  // shares with copies
  REQUIRE(folder.names() == right.names());
  for (const auto& name : right.names()) REQUIRE(folder.content_of(name) == right.content_of(name));
  return waited > 0;
}

void save_with_seeds(std::uint32_t seeds)
{
  std::uint32_t on_host = 0, on_device = 0;
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    on_host += save_and_go_on<host_steps>(seed) ? 1U : 0U;
    on_device += save_and_go_on<device_steps>(seed) ? 1U : 0U;
  }
  CHECK(on_host > seeds / 3);
  CHECK(on_device > seeds / 5);
}

/// Three ranks that train late, with a save of the second step in `first`.
template <class Steps = host_steps, class Between>
void go_on_between(memory_folder& first, memory_folder& folder, Between between)
{
  plan of{2};
  of.saved_at = 3;
  of.how.of_node = 0;
  of.options.buffer = 1_MiB;
  const support::ranks::one_rank<float, adam> one{of.how, adam{{}}};
  train<Steps>(of, one.values, [&](auto& here, model_type& model, auto& it, auto&) {
    (void)checkpoint::save(model, first);
    it.step(of.saved_at);
    expect(model.shares().updates_pending() > 0, "nothing waits");
    between(here, model, it, of.saved_at, [&] { return checkpoint::save_async(model, folder, of.options); });
  });
}

}  // namespace

TEST_CASE("whatever ranks do behind a save, its files are those of finished updates", "[sharding]")
{
  save_with_seeds(support::sanitized ? 5 : 20);
}

TEST_CASE("so they are with five hundred seeds", "[sharding][.slow]")
{
  save_with_seeds(500);
}

TEST_CASE("a load does the updates that a save of ranks waits for", "[sharding]")
{
  memory_folder first, folder;
  go_on_between(first, folder, [&](auto&, model_type& model, auto& it, std::uint32_t saved, auto save) {
    auto pending = save();
    expect(model.shares().updates_pending() > 0, "the save did them");
    (void)checkpoint::load(model, first);
    it.check_all(saved);
    expect(pending.wait().number == 1, "another generation");
    (void)checkpoint::load(model, folder);
    it.check_all(saved + 1);
    it.step(saved + 1);
    it.check_all(saved + 2);
  });
}

TEST_CASE("a save of ranks that is given up behind late updates leaves them waiting", "[sharding]")
{
  memory_folder first, folder;
  go_on_between(first, folder, [&](auto&, model_type& model, auto& it, std::uint32_t saved, auto save) {
    {
      auto pending = save();
      expect(!pending.is_over(), "it is over");
    }
    expect(model.shares().updates_pending() > 0, "a rank did them alone");
    it.step(saved + 1);
    auto pending = save();
    it.check_all(saved + 2);
    (void)pending.wait();
    (void)checkpoint::load(model, folder);
    it.check_all(saved + 2);
  });
}

TEST_CASE("the last late update ends the pins of a save that was detached, so that another save may lend", "[sharding]")
{
  memory_folder first, folder, second;
  go_on_between(first, folder, [&](auto& here, model_type& model, auto& it, std::uint32_t saved, auto save) {
    auto pending = save();
    pending.detach();
    expect(model.shares().updates_pending() > 0, "a rank did them alone");
    it.step(saved + 1);
    auto next = checkpoint::save_async(model, second, {.buffer = 1_MiB, .lends = true});
    if (here.rank() == 0) pending.detach();  // again, which changes nothing
    (void)pending.wait();
    (void)next.wait();
    it.check_all(saved + 2);
    (void)checkpoint::load(model, folder);
    it.check_all(saved + 1);
    (void)checkpoint::load(model, second);
    it.check_all(saved + 2);
  });
}

TEST_CASE("a rank whose late update fails in a save, its wait or a load calls again, alone", "[sharding]")
{
  for (int which = 0; which < 6; ++which)
    for (int after = 0; after < 3; ++after) {
      INFO("call " << which << ", after " << after << " updates");
      memory_folder first, folder;
      std::atomic<int> failures = 0;
      const cm::collective::thread_group stages{3, {.deadline = 5'000'000'000}};  // one stage with three replicas
      go_on_between<failing_steps>(
          first, folder, [&](auto& here, model_type& model, auto& it, std::uint32_t saved, auto save) {
            const auto again = [&](auto call) {
              failing_steps::fails_after = here.rank() == 1 ? after : -1;
              for (;;) {
                try {
                  return call();
                } catch (const cm::device_error&) {
                  ++failures;
                }
              }
            };
            const auto save_and_wait = [&] { return checkpoint::save_async(model, folder).wait().number; };
            std::optional<checkpoint::pending_save> pending;
            if (which > 1 && which != 4) pending.emplace(save());
            cm::collective::local_threads all{stages, cm::rank_id{here.rank()}};
            if (which == 0)
              expect(again([&] { return checkpoint::save(model, folder).number; }) == 1, "another number");
            if (which == 1) expect(again(save_and_wait) == 1, "another number");
            if (which == 2) expect(again([&] { return pending->wait().number; }) == 1, "another number");
            if (which == 4)
              expect(again([&] { return cm::pipeline::save_stages(all, model, folder).number; }) == 1,
                     "another number");
            if (which == 3 || which == 5) {
              (void)again([&] {
                return which == 3 ? checkpoint::load(model, first).number
                                  : cm::pipeline::load_stages(all, model, first).number;
              });
              it.check_all(saved);
              expect(pending->wait().number == 1, "another number");
            }
            (void)checkpoint::load(model, folder);
            it.check_all(saved + 1);
            it.step(saved + 1);
            it.check_all(saved + 2);
          });
      CHECK(failures == 1);
    }
}

TEST_CASE("where the object of late updates has ended on one rank, a save and its wait say so on all", "[sharding]")
{
  for (const bool ends_before : {true, false}) {
    memory_folder first, folder;
    go_on_between<failing_steps>(
        first, folder, [&](auto& here, model_type& model, auto& it, std::uint32_t saved, auto save) {
          std::optional<checkpoint::pending_save> pending;
          if (!ends_before) pending.emplace(save());
          if (here.rank() == 1) failing_steps::end();
          for (int call = 0; call < 2; ++call) {
            const std::string said = support::refusal<cm::usage_error>([&] {
              if (ends_before) pending.emplace(save());
              (void)pending->wait();
            });
            expect(said.find("although its late_updates ended") != said.npos, "another error: " + said);
          }
          pending.reset();
          (void)checkpoint::load(model, first);
          it.check_all(saved);
        });
  }
}

TEST_CASE("a write behind a save does the same late updates on each rank, also where another one writes its share",
          "[sharding]")
{
  memory_folder folder;
  cm::sharding::thread_ranks{2, 1}.run([&](cm::sharding::thread_ranks::place& here) {
    arena memory{{.device_capacity = room, .host_capacity = room}};
    model_type model{memory, here.process_groups(), {.chunk_bytes = 64_KiB}, {.divided = cm::sharding::zero_3}};
    adam kernel;
    model.use(kernel);
    const auto first = model.add<float>({16'384}, cm::role::parameter);
    const auto second = model.add<float>({16'384}, cm::role::parameter);
    const auto fill = [&](auto weight) { std::ranges::fill(model.acquire(weight, cm::access::write).span(), 1.0F); };
    fill(first), fill(second);
    cm::optimizer::late_updates late{model, kernel};
    for (int step = 0; step < 2; ++step) {
      const auto scope = model.iteration();
      for (const auto weight : {first, second})
        std::ranges::fill(model.gradient(model.acquire(weight, cm::access::read)).span(), 1.0F);
      (void)late.step({.clip = {.norm = 1}});
    }
    auto pending = checkpoint::save_async(model, folder, {.lends = true});
    expect(late.waiting() == 2, "nothing waits");
    fill(first);
    expect(late.waiting() == 0, "some updates wait on one rank");
    (void)pending.wait();
  });
}

TEST_CASE("a disk that fails under late updates is an error of all ranks, which train on", "[sharding]")
{
  std::uint32_t failures = 0;
  for (std::uint64_t operation = 0; operation < 60; operation += 4) {
    INFO(operation);
    memory_folder first, folder;
    std::atomic<std::uint32_t> failed = 0;
    go_on_between(first, folder, [&](auto& here, model_type& model, auto& it, std::uint32_t saved, auto save) {
      if (here.rank() == 1) support::faults.arm({support::fault_source::file, operation});
      try {
        auto pending = save();
        it.step(saved + 1);
        (void)pending.wait();
      } catch (const cm::io_error&) {
        ++failed;
      }
      cm::collective::all_or_none(here.all(), [] {});
      if (here.rank() == 1) support::faults.disarm();
      cm::collective::all_or_none(here.all(), [] {});
      model.finish_updates();
      (void)checkpoint::save(model, folder);
    });
    CHECK((failed == 0 || failed == 3));
    failures += failed;
  }
  CHECK(failures > 10);
}

}  // namespace saves_behind_updates_test
