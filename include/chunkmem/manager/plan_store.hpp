// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/iteration_planner.hpp>
#include <chunkmem/transfer/stored_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// Gives away what was solved for recorded iterations, and takes it back in another run. Not for users: see manager.
template <class Core>
class plan_store : public Core {
 public:
  using Core::Core;

  /// @throws usage_error   iterations of this name were not planned yet
  [[nodiscard]] transfer::stored_plan stored_plan_of(std::string_view name) const
  {
    const std::size_t index = recorder_.index_of(name);
    if (index >= plans_.size() || !plans_[index].tuned)
      throw usage_error{error_text{} << "chunkmem: iterations named " << name
                                     << " have no plan yet (run two of them before)"};
    const auto& plan = plans_[index];
    transfer::stored_plan made = empty_plan(*recorder_.find(name));
    made.moved_bytes = plan.moved_bytes;
    made.bound_bytes = plan.bound_bytes;
    made.variant = plan.variant;
    made.stays_until = plan.stays_until;
    made.first_use = plan.first_use;
    made.borders = plan.borders;
    made.device_only = plan.device_only;
    return made;
  }

  /// The next iteration of this name is planned from it. What it says that it moves, and the least that any moves, is
  /// not taken over: the certificate stayed where it was solved. Guarantee: a plan that is refused leaves those that
  /// are there; before that, gradients go where the records want them and what waits is updated, as at the beginning of
  /// an iteration. Where memory ends, the record is solved anew.
  /// @throws config_error   it is for another iteration, layout of chunks or capacity   @throws usage_error   there is
  ///                        no record of this name, or an iteration is running; out_of_memory   arenas cannot be
  ///                        allocated
  void use_stored_plan(const transfer::stored_plan& given, std::string_view name)
  {
    expects(!this->is_inside(), "a plan was given to a manager in the middle of an iteration");
    const std::size_t index = recorder_.index_of(name);
    expects(index != recorder_.none,
            "a plan was given for iterations that have no record: give their profile before, or run one");
    this->ensure_arenas();
    if (this->places_.is_pending()) this->settle_gradients();
    const access_record& record = *recorder_.find(name);
    const transfer::stored_plan wanted = empty_plan(record);
    expect_same("record", given.record, wanted.record);
    expect_same("frame_bytes", given.frame_bytes, wanted.frame_bytes);
    expect_same("device_bytes", given.device_bytes, wanted.device_bytes);
    expect_same("host_bytes", given.host_bytes, wanted.host_bytes);
    if (given.variant >= residency_.variants()) expect_same("variant", given.variant, residency_.variants() - 1);
    transfer::expect_plan_fits(given, record, this->registry_.chunk_of_slot(), residency_.chunks());
    if (plans_.size() <= index) plans_.resize(index + 1);
    auto& plan = plans_[index];
    transfer::retention wanted_stays{given.stays_until, given.first_use, given.borders, 0, 0, given.device_only};
    const auto early = this->planner_.early_of(record, this->registry_.chunk_of_slot(), wanted_stays,
                                               bytes{given.device_bytes}, bytes{given.frame_bytes});
    wanted_stays.early = early;
    this->steady_ = false;
    plan.forget();
    plan.keep(wanted_stays);
    plan.variant = given.variant;
    plan.tuned = true;
  }

 protected:
  using Core::recorder_, Core::plans_, Core::residency_;

 private:
  /// Of this record, in the room that there is.
  [[nodiscard]] transfer::stored_plan empty_plan(const access_record& record) const
  {
    transfer::stored_plan made;
    made.record = transfer::fingerprint_of(record, this->registry_.chunk_of_slot(), this->registry_.frames_of_chunk());
    made.frame_bytes = residency_.space(tier::device).frame_bytes();
    made.device_bytes = residency_.space(tier::device).capacity();
    made.host_bytes = residency_.space(tier::host).capacity();
    return made;
  }

  static void expect_same(std::string_view key, std::uint64_t given, std::uint64_t wanted)
  {
    if (given != wanted)
      throw config_error{error_text{} << "chunkmem: a plan is for another model or another capacity: its " << key
                                      << " is " << given << " and should be " << wanted
                                      << " (leave it out, and save the plan of this run)"};
  }
};

}  // namespace chunkmem::inline v0
