// SPDX-License-Identifier: Apache-2.0
// The existing kinds of steps: a time, a place and an owner. The ctest docs.steps compares the table with its page.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/split_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace step_kinds_test {

using namespace chunkmem;
using optimizer::adam;
using optimizer::step_options;
using one_rank = manager<backend::host_arena, placement::update_share>;
using many_ranks = sharded_model<backend::host_arena, collective::local_threads, placement::update_share>;
using stage = pipeline::stage_step<collective::local_threads>;
using number_of = std::uint32_t (*)(tensor_handle);

struct kinds {
  bool at_once = false;
  bool late = false;
  bool early = false;

  [[nodiscard]] std::string text() const
  {
    std::string all = at_once ? "at once" : "";
    for (const auto& [is_there, name] : {std::pair{late, "late"}, {early, "early"}})
      if (is_there) all += std::string{all.empty() ? "" : ", "} + name;
    return all;
  }
  [[nodiscard]] bool operator==(const kinds&) const = default;
};

/// The constant that early_updates refuses to compile by.
template <class Owner, class Workers>
constexpr bool can_be_early = optimizer::detail::step_taker_of<Owner, adam, Workers>::type::driver_type::undoes;

template <class Owner, class Workers>
kinds of_alone()
{
  return {requires(Owner & m, adam & kernel, Workers & workers){optimizer::step(m, kernel, step_options{}, workers);
}
|| requires(Owner& m, adam& kernel, Workers& workers) { m.step(kernel, step_options{}, workers); },
    requires(optimizer::late_updates<Owner, adam, Workers>& late) { late.step(step_options{}); },
    can_be_early<Owner, Workers>
};  // namespace step_kinds_test
}
template <class Owner, class Workers>
constexpr bool stage_can_be_early()
{
  if constexpr (can_be_early<Owner, Workers>)
    return requires(stage& steps, Owner& m, optimizer::early_updates<Owner, adam, Workers>& early, number_of numbers) {
      steps.take(m, early, step_options{}, numbers);
    };
  return false;
}
template <class Owner, class Workers>
kinds of_stage()
{
  return {requires(stage & steps, Owner & m, adam & kernel, Workers & workers,
                   number_of numbers){steps.take(m, kernel, step_options{}, workers, numbers);
}
, requires(stage& steps, Owner& m, optimizer::late_updates<Owner, adam, Workers>& late, number_of numbers) {
  steps.take(m, late, step_options{}, numbers);
}, stage_can_be_early<Owner, Workers>()
}
;
}

template <class Owner, bool IsStage, class Workers>
kinds of()
{
  if constexpr (IsStage)
    return of_stage<Owner, Workers>();
  else
    return of_alone<Owner, Workers>();
}

template <class Owner, bool IsStage>
std::string row(std::string_view name)
{
  const kinds alone = of<Owner, IsStage, const serial>();
  CHECK((alone == of<Owner, IsStage, optimizer::thread_pool>()));
  const kinds device = of<Owner, IsStage, optimizer::device_updates<Owner, optimizer::loop_launcher>>();
  using split = optimizer::split_updates<Owner, optimizer::loop_launcher>;
  CHECK((device == of<Owner, IsStage, split>()));
  return "| " + std::string{name} + " | " + alone.text() + " | " + device.text() + " |\n";
}

TEST_CASE("steps have these times, places and owners", "[sharding]")
{
  CHECK(row<one_rank, false>("a manager") + row<many_ranks, false>("a model over ranks") +
            row<one_rank, true>("a stage of a pipeline") + row<many_ranks, true>("a stage with replicas") ==
        R"(| a manager | at once, late, early | at once, late |
| a model over ranks | at once, late, early | at once, late |
| a stage of a pipeline | at once, late | at once, late |
| a stage with replicas | at once, late | at once, late |
)");
}

}  // namespace step_kinds_test
