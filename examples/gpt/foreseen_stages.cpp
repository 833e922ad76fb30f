// SPDX-License-Identifier: Apache-2.0
#include "stage_foresight.hpp"
#include "stage_session.hpp"
#include "stage_trainer.hpp"
#include "step_watch.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/chunkmem.hpp>
#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <cstddef>
#include <optional>

namespace gpt {
namespace {

using chunkmem::collective::simulated_ranks;

constexpr double no_time = 1e30;  // a rate

/// Ranks whose operations take no time.
[[nodiscard]] chunkmem::collective::network_costs instant(std::uint32_t ranks)
{
  return {.of_node = 1,
          .nodes = ranks,
          .network_bytes_per_second = no_time,
          .start_nanoseconds = 0,
          .network_nanoseconds = 0};
}

/// The process groups of one rank on virtual clocks: all other ranks do the same at the same time.
class place_on_clocks {
 public:
  using communicator_type = simulated_ranks;

  place_on_clocks(const training_grid& grid, std::uint32_t stage, std::uint32_t replica)
      : stage_{stage},
        replica_{replica},
        all_{instant(grid.plan.stage_count()), chunkmem::rank_id{stage}},
        replicas_{instant(grid.replicas), chunkmem::rank_id{replica}}
  {
    const std::uint32_t first = grid.plan.owners.front(), last = grid.plan.owners.back();
    if (first != last && (stage == first || stage == last))
      tables_.emplace(instant(2), chunkmem::rank_id{stage == first ? 0U : 1U});
  }
  [[nodiscard]] std::uint32_t stage() const noexcept { return stage_; }
  [[nodiscard]] std::uint32_t replica() const noexcept { return replica_; }
  [[nodiscard]] communicator_type& all() noexcept { return all_; }
  [[nodiscard]] communicator_type& replicas() noexcept { return replicas_; }
  [[nodiscard]] communicator_type* tables() noexcept { return tables_ ? &*tables_ : nullptr; }

 private:
  std::uint32_t stage_;
  std::uint32_t replica_;
  communicator_type all_;
  communicator_type replicas_;
  std::optional<communicator_type> tables_;
};

template <bool has_replicas>
[[nodiscard]] foreseen_steps foresee(const stage_setup& setup, place_on_clocks& here, chunkmem::bytes device,
                                     chunkmem::bytes host)
{
  using manager_type = stage_manager<virtual_clocks, simulated_ranks, has_replicas>;
  clock_rates any;
  any.operations_per_second.fill(no_time);
  any.copies.to_device.bytes_per_second = any.copies.to_host.bytes_per_second = no_time;
  any.updates = {no_time, no_time, no_time, no_time};
  virtual_clocks memory{device, host, any};
  manager_type manager = manager_of_stage<manager_type>(setup, here, memory);
  stage_trainer trainer{manager, setup.chosen.size, setup.grid.plan, here, setup.text, setup.settings(), setup.workers};
  const chunkmem::pipeline::boundary_buffers buffers{setup.grid.plan, here.stage(), setup.inputs()};
  (void)manager.rehearse([&] {
    const auto boundaries = lease_boundaries(manager, buffers);
    trainer.rehearse();
  });
  trainer.fill();
  const step_meter<manager_type> meter{manager};
  step_watch<manager_type> watch{manager, meter};
  trainer.on_update([&](std::uint32_t) {
    watch.end_step();
    watch.begin_step();
  });
  const auto boundaries = lease_boundaries(manager, buffers);
  trainer.begin();
  watch.begin_step();
  for (const chunkmem::pipeline::operation& step : setup.grid.plan.stages[here.stage()]) {
    trainer.run(step);
    if (watch.done() == first_steps::all) break;
  }
  trainer.end();
  return {.fits = watch.done() == first_steps::all, .compared = watch.seen()};
}

}  // namespace

foreseen_steps foresee_stage(const stage_setup& setup, std::uint32_t stage, std::uint32_t replica,
                             chunkmem::bytes device, chunkmem::bytes host)
try {
  place_on_clocks here{setup.grid, stage, replica};
  return setup.grid.replicas > 1 ? foresee<true>(setup, here, device, host) : foresee<false>(setup, here, device, host);
} catch (const chunkmem::out_of_memory&) {
  return {};
}

}  // namespace gpt
