// SPDX-License-Identifier: Apache-2.0
// Saves and loads of stages, of ranks and of stages with replicas, in which one part fails, dies or reads a bad block,
// at each operation on its files in turn.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/pipeline/stage_files.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/managed_weights.hpp>
#include <support/simulated_folder.hpp>

#include "fault_oracle.hpp"
#include "part_folder.hpp"

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stage_faults_test {

using namespace chunkmem;
using fault_oracle::part_end;
using pipeline_test::part_folder;
using support::disk_content;
using support::disk_faults;

namespace {

/// The parts of a training: each stage has a folder, which its replicas share.
struct grid {
  std::uint32_t stages = 2;
  std::uint32_t replicas = 1;
  bool is_pipeline = true;  ///< else one stage, whose ranks save and load alone
  bool in_background = false;
  bool is_one_group = false;  ///< of all ranks, else a group for each pipeline
};

/// The calls of a part.
struct part {
  std::function<void(float)> fill;
  std::function<float()> value;
  std::function<std::uint64_t(const checkpoint::save_options&)> save;
  std::function<std::uint64_t(const checkpoint::load_options&)> load;
};

template <class Manager, class Tensor>
void add_values(Manager& m, Tensor weight, part& it)
{
  it.fill = [&m, weight](float value) { std::ranges::fill(m.acquire(weight, access::write).span(), value); };
  it.value = [&m, weight] {
    const auto pin = m.acquire(weight, access::read);
    const float first = pin.span()[0];
    return std::ranges::count(pin.span(), first) == static_cast<std::ptrdiff_t>(pin.span().size()) ? first : -1;
  };
}

/// Calls `work(part, rank)` for each rank of the grid, on a thread of its own. @return   how each ended
std::vector<part_end> on_parts(const grid& how, std::vector<part_folder>& folders,
                               call_ref<std::uint64_t(part& it, std::uint32_t rank)> work)
{
  std::vector<part_end> ends(how.stages * how.replicas);
  std::deque<collective::thread_group> pipelines, replicas;
  for (std::uint32_t each = 0; each < how.replicas; ++each) pipelines.emplace_back(how.stages);
  for (std::uint32_t each = 0; each < how.stages; ++each) replicas.emplace_back(how.replicas);
  collective::thread_group everyone{how.stages * how.replicas};
  collective::run_threads(how.stages * how.replicas, [&](std::uint32_t rank) {
    const std::uint32_t stage = rank % how.stages;
    const std::uint32_t replica = rank / how.stages;
    part_folder& folder = folders[stage];
    collective::local_threads stages{how.is_one_group ? everyone : pipelines[replica],
                                     rank_id{how.is_one_group ? rank : stage}};
    collective::local_threads others{replicas[stage], rank_id{replica}};
    part_end& end = ends[rank];
    part it;
    const auto run = [&] {
      try {
        end.number = work(it, rank);
        end.value = it.value();
        end.how = part_end::kind::done;
      } catch (const support::power_cut&) {
        end.how = part_end::kind::died;
      } catch (const error&) {
        end.how = part_end::kind::refused;
      }
    };
    if (how.replicas == 1) {
      support::managed_layers<float> layers{4};
      layers.declare(stage);
      auto& m = layers.m();
      add_values(m, layers[stage], it);
      it.save = [&](const auto& options) { return pipeline::save_stages(stages, m, folder, options).number; };
      it.load = [&](const auto& options) {
        return pipeline::load_stages(stages, m, std::as_const(folder), options).number;
      };
      return run();
    }
    backend::host_arena memory{{.device_capacity = bytes{1 << 18}, .host_capacity = bytes{1 << 18}}};
    sharded_model<backend::host_arena, collective::local_threads> m{memory, others, {.chunk_bytes = bytes{1 << 15}}};
    const auto weight = m.add<float>({5'000}, role::parameter);
    m.name(weight, "weight");
    add_values(m, weight, it);
    it.save = [&](const checkpoint::save_options& options) {
      if (how.in_background) return checkpoint::save_async(m, folder, {.files = options}).wait().number;
      return how.is_pipeline ? pipeline::save_stages(stages, m, folder, options).number
                             : checkpoint::save(m, folder, options).number;
    };
    it.load = [&](const checkpoint::load_options& options) {
      return how.is_pipeline ? pipeline::load_stages(stages, m, std::as_const(folder), options).number
                             : checkpoint::load(m, std::as_const(folder), options).number;
    };
    run();
  });
  return ends;
}

std::vector<part_folder> folders_of(const std::vector<disk_content>& contents)
{
  std::vector<part_folder> folders;
  for (const disk_content& it : contents) folders.emplace_back(it);
  return folders;
}
std::vector<std::vector<std::string>> names_in(const std::vector<part_folder>& folders)
{
  std::vector<std::vector<std::string>> names;
  for (const part_folder& it : folders) names.push_back(it.names());
  return names;
}
bool all_done(const std::vector<part_end>& ends)
{
  return std::ranges::all_of(ends, [](const part_end& it) { return it.how == part_end::kind::done; });
}

/// Trouble in one folder.
struct trouble {
  std::uint32_t stage = 0;
  disk_faults faults{};
  std::optional<std::uint64_t> bad_read{};
};

/// A training that was saved a few times, the i-th time with the value i, and its results.
class sweep {
 public:
  sweep(const grid& how, const checkpoint::save_options& options)
      : how_{how}, options_{options}, saved_(1, std::vector<disk_content>(how.stages))
  {
    for (std::uint32_t save = 1; save <= most_saves; ++save) {
      std::vector<part_folder> folders = folders_of(saved_.back());
      const auto ends =
          on_parts(how_, folders, [&](part& it, std::uint32_t) { return save_next(it, save - 1, [] {}); });
      REQUIRE(all_done(ends));
      known_[ends[0].number] = static_cast<float>(save);
      histories_.push_back(known_);
      saved_.emplace_back();
      for (const part_folder& it : folders) saved_.back().push_back(it.disk().content());
    }
  }

  /// The save behind so many others is in trouble. @return   operations of the folder in trouble
  std::uint64_t save(std::uint32_t before, const trouble& what, std::size_t variants)
  {
    std::vector<part_folder> folders = folders_of(saved_[before]);
    std::barrier armed{static_cast<std::ptrdiff_t>(how_.stages * how_.replicas),
                       [&]() noexcept { folders[what.stage].set_faults(what.faults, what.bad_read); }};
    const auto ends = on_parts(how_, folders, [&](part& it, std::uint32_t) {
      return save_next(it, before, [&] { armed.arrive_and_wait(); });
    });
    const std::uint64_t operations = folders[what.stage].operations();
    if (!fault_oracle::is_uniform(ends) && !what.faults.cut_at) report("a save is there for some", what, before);
    std::vector<std::vector<disk_content>> left{{}};
    for (const part_folder& it : folders) left.back().push_back(it.disk().content());
    if (what.faults.cut_at) add_cuts(folders[what.stage].disk(), what.stage, variants, left);
    for (const std::vector<disk_content>& it : left) {
      look_after_save(it, before, what);
      go_on(it, what, before);
    }
    return operations;
  }
  /// A load behind so many saves is in trouble. @return   operations of the folder in trouble, and its reads
  std::pair<std::uint64_t, std::uint64_t> load(std::uint32_t before, const trouble& what)
  {
    std::vector<part_folder> folders = folders_of(saved_[before]);
    folders[what.stage].set_faults(what.faults, what.bad_read);
    const auto ends = on_parts(how_, folders, [](part& it, std::uint32_t) { return it.load({}); });
    const bool must_load = what.bad_read && before > 1 && options_.keep > 1;
    ++cases_;
    if (const std::string wrong = fault_oracle::wrong_in_load(histories_[before - 1], must_load, ends); !wrong.empty())
      report(wrong + " (a load)", what, before);
    return {folders[what.stage].operations(), folders[what.stage].reads()};
  }

  [[nodiscard]] std::uint64_t cases() const { return cases_; }
  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

  static constexpr std::uint32_t most_saves = 3;

 private:
  /// So many of the newest generations have to stay, whatever happens to a save.
  [[nodiscard]] std::uint32_t promised() const
  {
    return options_.keep_while_writing > 0 ? options_.keep_while_writing : options_.keep;
  }
  template <class Before>
  std::uint64_t save_next(part& it, std::uint32_t before, Before call) const
  {
    it.fill(0);
    (void)it.load({.allow_fresh_start = before == 0});
    it.fill(static_cast<float>(before + 1));
    call();
    return it.save(options_);
  }
  /// Disks that the cut may leave, as many as asked for.
  void add_cuts(const support::simulated_folder& disk, std::uint32_t stage, std::size_t variants,
                std::vector<std::vector<disk_content>>& left) const
  {
    std::vector<disk_content> all;
    disk.each_after_cut([&](const support::simulated_folder& it) {
      all.push_back(it.content());
      return all.size() < 512;
    });
    std::vector<disk_content> others = left.front();
    left.clear();
    const std::size_t step = std::max<std::size_t>(1, all.size() / variants);
    for (std::size_t index = 0; index < all.size(); index += step) {
      others[stage] = all[index];
      left.push_back(others);
    }
  }
  void look_after_save(const std::vector<disk_content>& left, std::uint32_t before, const trouble& what)
  {
    std::vector<part_folder> folders = folders_of(left);
    const auto names = names_in(folders);
    const auto loads = on_parts(how_, folders, [](part& it, std::uint32_t) { return it.load({}); });
    const fault_oracle::history none;
    ++cases_;
    if (const std::string wrong = fault_oracle::wrong_after_save(names, before == 0 ? none : histories_[before - 1],
                                                                 static_cast<float>(before + 1), promised(), loads);
        !wrong.empty())
      report(wrong, what, before);
  }
  /// The training goes on, or begins anew: it is saved and loads.
  void go_on(const std::vector<disk_content>& left, const trouble& what, std::uint32_t before)
  {
    std::vector<part_folder> folders = folders_of(left);
    const auto saves = on_parts(how_, folders, [&](part& it, std::uint32_t) {
      (void)it.load({.allow_fresh_start = true});
      it.fill(100);
      return it.save(options_);
    });
    const auto loads = on_parts(how_, folders, [](part& it, std::uint32_t) { return it.load({}); });
    ++cases_;
    const bool is_right = all_done(saves) && std::ranges::all_of(loads, [&](const part_end& it) {
                            return it.how == part_end::kind::done && it.value == 100 && it.number == saves[0].number;
                          });
    if (!is_right) report("it cannot go on", what, before);
  }
  void report(const std::string& wrong, const trouble& what, std::uint32_t before)
  {
    ++wrong_;
    const std::uint64_t at = what.faults.cut_at.value_or(what.faults.at.value_or(what.bad_read.value_or(0)));
    UNSCOPED_INFO(wrong << ": " << how_.stages << " stages, " << how_.replicas << " replicas, keep " << options_.keep
                        << ", behind " << before << " saves, folder " << what.stage << ", "
                        << (what.faults.cut_at ? "cut"
                            : what.faults.at   ? "failure"
                                               : "bad read")
                        << " at " << at << (what.faults.retained ? " and on" : ""));
    CHECK(wrong.empty());
  }

  grid how_;
  checkpoint::save_options options_;
  std::vector<std::vector<disk_content>> saved_;  // behind so many saves, by stage
  fault_oracle::history known_;
  std::vector<fault_oracle::history> histories_;
  std::uint64_t cases_ = 0;
  std::uint64_t wrong_ = 0;
};

struct outcome {
  std::uint64_t cases = 0;
  std::uint64_t wrong = 0;
};

/// Every kind of trouble at every `stride`-th operation of each folder. @param some   of the kinds, grids, options and
/// folders: each so many-th of their combinations   @param variants   disks that a cut leaves
outcome sweep_all(const std::vector<grid>& grids, std::uint64_t some, std::uint64_t stride, std::size_t variants)
{
  outcome found;
  std::uint64_t turn = 0;  // so that a stride meets other operations each time
  const auto each_of = [&](auto trial) {
    if (turn++ % some != 0) return;
    for (std::uint64_t at = turn / some % stride; trial(at); at += stride) {
    }
  };
  for (const grid& how : grids)
    for (const checkpoint::save_options& options :
         {checkpoint::save_options{.keep = 1}, checkpoint::save_options{.keep = 2}, checkpoint::save_options{.keep = 3},
          checkpoint::save_options{.keep = 2, .keep_while_writing = 1}}) {
      sweep it{how, options};
      for (std::uint32_t stage = 0; stage < how.stages; ++stage) {
        for (const std::uint32_t before : {0U, 1U, sweep::most_saves}) {
          for (const bool retained : {false, true})
            each_of([&](std::uint64_t at) {
              return it.save(before, {stage, {.at = at, .number = ENOSPC, .retained = retained}}, variants) > at;
            });
          each_of([&](std::uint64_t at) { return it.save(before, {stage, {.cut_at = at}}, variants) >= at; });
          each_of([&](std::uint64_t at) {
            trouble what{stage, {}, at};
            return it.save(before, what, variants) > 0 && at < 40;
          });
        }
        for (const std::uint32_t before : {1U, sweep::most_saves}) {
          each_of([&](std::uint64_t at) { return it.load(before, {stage, {.at = at}}).first > at; });
          each_of([&](std::uint64_t at) { return it.load(before, {stage, {.cut_at = at}}).first >= at; });
          each_of([&](std::uint64_t at) { return it.load(before, {stage, {}, at}).second > at; });
        }
      }
      found.cases += it.cases();
      found.wrong += it.wrong();
    }
  return found;
}

const std::vector<grid> all_grids{
    {.stages = 2},
    {.stages = 3},
    {.stages = 1, .replicas = 2, .is_pipeline = false},
    {.stages = 1, .replicas = 2, .is_pipeline = false, .in_background = true},
    {.stages = 2, .replicas = 2},
    {.stages = 2, .replicas = 2, .is_one_group = true},
};

void write_figure(const outcome& found)
{
  support::write_figures("test_pipeline.files", "ctest --preset test -R pipeline.files",
                         {{"checkpoint.stage_faults_mixed_or_lost", found.wrong, "cases", "==", 0}});
}

}  // namespace

TEST_CASE("where one part fails, dies or reads a bad block, all parts load one generation, and none is lost",
          "[pipeline]")
{
  const outcome found = sweep_all(all_grids, 7, 29, 2);
  CHECK(found.cases > 300);
  CHECK(found.wrong == 0);
  write_figure(found);
}

TEST_CASE("the same at every operation, with every disk that a power cut leaves", "[pipeline][.slow]")
{
  const outcome found = sweep_all(all_grids, 1, 1, 512);
  CHECK(found.cases > 10'000);
  CHECK(found.wrong == 0);
  write_figure(found);
}

}  // namespace stage_faults_test
