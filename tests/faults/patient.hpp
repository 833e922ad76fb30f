// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/chosen_gradient.hpp>
#include <support/every_policy.hpp>
#include <support/faulty.hpp>
#include <support/memory_folder.hpp>
#include <support/mixed_reference.hpp>
#include <support/mixed_trainer.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// A trainer that follows the documentation after each error, from the first constructor to the last value read back.
namespace fault_sweeps {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using backend = support::faulty<cm::backend::host_arena>;
using pool = cm::optimizer::thread_pool;

/// Where and how a training runs.
struct setting {
  mixed::recipe how{};
  bool in_place = false;
  cm::bytes device = 1_MiB;
  cm::bytes host = 1_MiB;
  bool rehearses = true;
  bool launched = false;    ///< kernels on streams of their own
  bool same_scope = false;  ///< a failed update is called again inside its iteration, not in a new one
  std::string_view eviction = "belady";
  std::string_view transfer = "lookahead";
  std::string_view placement = "optimizer_on_host";
};

/// The network in 16 bits with masters, or in float32 with the same trainer: accumulation, skipped steps, gradients in
/// place.
template <class Element>
struct mixed_training {
  using transfers = cm::transfer::any_transfer<cm::transfer::lookahead, cm::transfer::no_prefetch>;
  using placements = cm::placement::any_placement<cm::placement::optimizer_on_host, cm::placement::device_margin>;
  using manager = cm::manager<backend, support::chosen_gradient, support::every_eviction, transfers, placements>;
  using trainer = mixed::trainer<manager, backend, Element, pool>;
  using outcome = mixed::outcome;

  static outcome expected(const setting& it) { return mixed::reference{it.how}.train(); }
  static void make(std::optional<manager>& m, backend& memory, const setting& it)
  {
    m.emplace(memory, cm::manager_options{.chunk_bytes = 4_KiB}, support::chosen_gradient{it.in_place},
              support::every_eviction{it.eviction}, transfers{it.transfer}, placements{it.placement});
  }
  static void make(std::optional<trainer>& run, manager& m, backend& memory, const setting& it, pool& workers)
  {
    const mixed::crew crew = it.launched ? mixed::crew{cm::agent::compute, memory.adopt()} : mixed::crew{};
    run.emplace(m, memory, it.how, crew, workers);
    run->reserve();
  }
};

/// A training whose steps are asked for one by one.
template <class Training>
class patient {
 public:
  using manager = typename Training::manager;
  using trainer = typename Training::trainer;
  using outcome = typename Training::outcome;

  explicit patient(const setting& it) : how_{it} {}

  /// The need of the training, apart from the given device.
  cm::memory_requirement rehearse()
  {
    make();
    return run->rehearse();
  }

  /// @return   the results of the training
  outcome train()
  {
    until_done([this] { make(); }, [this] { unmake(); });
    if (how_.rehearses) until_done([this] { run->rehearse(); });
    until_done([this] { run->initialise(); });
    for (std::uint32_t now = 0; now < how_.how.steps; ++now) {
      step(now);
      if (how_.how.evaluates_after(now))
        until_done([this, now] { run->evaluate(now); }, [this] { run->forget_step(); });
      if (now == 1) until_done([this] { cm::checkpoint::save(*m, *folder); });
    }
    std::optional<outcome> result;
    until_done([&] { result = run->collect(); });
    return std::move(*result);
  }

  std::optional<support::memory_folder> folder;
  std::optional<backend> memory;
  std::optional<pool> workers;
  std::optional<manager> m;
  std::optional<trainer> run;
  int errors = 0;

 private:
  static constexpr int too_many = 40;

  void make()
  {
    folder.emplace();
    memory.emplace(cm::backend::host_arena_options{how_.device, how_.host, how_.launched});
    workers.emplace(2U);
    Training::make(m, *memory, how_);
    Training::make(run, *m, *memory, how_, *workers);
  }
  void unmake() noexcept
  {
    run.reset();
    m.reset();
    workers.reset();
    memory.reset();
    folder.reset();
  }

  template <class Work>
  void until_done(Work work)
  {
    until_done(work, [] {});
  }
  /// Only errors of the documented kinds are handled; any other ends the run.
  template <class Work, class Repair>
  void until_done(Work work, Repair repair)
  {
    while (!is_done(work))
      while (!is_done(repair)) {
      }
  }
  template <class Work>
  bool is_done(Work& work)
  {
    try {
      work();
      return true;
    } catch (const cm::device_error&) {
      count();
    } catch (const cm::io_error&) {
      count();
    } catch (const std::bad_alloc&) {  // out_of_memory too
      count();
    }
    return false;
  }
  void count()
  {
    if (++errors == 2) support::faults.repair();  // the first retry still fails where a fault stays
    if (errors == too_many) throw std::runtime_error{"the same error for ever"};
  }

  /// A failed pass is forgotten and run again; a failed update is called again, here or in a new iteration.
  void step(std::uint32_t now)
  {
    bool updating = false;
    std::uint32_t turns = 0;
    until_done(
        [&] {
          auto scope = m->iteration(updating ? 1 : how_.how.micro_batches);  // an update alone has no micro-batches
          if (!updating)
            for (turns = 0; turns < how_.how.micro_batches; ++turns) run->forward_and_backward(scope, now, turns);
          updating = true;
          if (how_.same_scope)
            until_done([this] { run->update(); });
          else
            run->update();
        },
        [&] {
          if (updating) return;
          for (; turns > 0; --turns) run->forget_last_loss();
          run->forget_step();
        });
  }

  setting how_;
};

/// The result of one run.
struct run_result {
  std::string difference;    ///< from the undisturbed one, or what was thrown
  std::uint64_t struck = 0;  ///< calls that failed
  int errors = 0;            ///< that the trainer saw
  std::int64_t leaked_blocks = 0;
  std::int64_t leaked_arenas = 0;

  /// An error came, every bit is right all the same, and nothing leaked. A run without an error shows nothing.
  [[nodiscard]] bool is_survived() const noexcept
  {
    return struck > 0 && difference.empty() && leaked_blocks == 0 && leaked_arenas == 0;
  }
};

/// Trains once with the given faults, and leaves nothing behind.
template <class Training>
run_result run_with(const setting& how, const typename Training::outcome& expected, const std::vector<std::byte>& saved,
                    const support::fault_point& first, const support::fault_point& second = {})
{
  run_result result;
  const std::int64_t blocks = support::live_blocks;
  const std::int64_t arenas = support::live_arenas;
  {
    patient<Training> it{how};
    support::faults.arm(first, second);
    std::optional<typename Training::outcome> left;
    std::exception_ptr other;
    try {
      left = it.train();
    } catch (...) {
      other = std::current_exception();
    }
    support::faults.disarm();
    try {
      if (other != nullptr) std::rethrow_exception(other);
      result.difference = expected.difference(*left);
      if (result.difference.empty() && it.folder->last_of(".safetensors") != saved)
        result.difference = "the checkpoint";
    } catch (const std::exception& error) {
      result.difference = std::string{"thrown: "} + error.what();
    }
    result.errors = it.errors;
    result.struck = support::faults.struck();
  }
  result.leaked_blocks = support::live_blocks - blocks - (result.difference.capacity() > 15 ? 1 : 0);
  result.leaked_arenas = support::live_arenas - arenas;
  return result;
}

}  // namespace fault_sweeps
