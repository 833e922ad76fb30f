// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/schedule.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/profile/profile_text.hpp>
#include <chunkmem/transfer/plan_text.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <support/catch.hpp>
#include <support/mixed_trainer.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <sstream>
#include <string>

namespace stored_plans_test {

namespace cm = chunkmem;
using namespace chunkmem;

namespace {

/// The policy planned, with a count of its solutions.
class counting {
 public:
  using policy_kind = cm::transfer_kind;
  static constexpr std::string_view name = "counting";
  static constexpr bool plans = true;

  int* solved = nullptr;

  void schedule(const cm::transfer::schedule_input& input, std::vector<cm::transfer::move>& actions)
  {
    solver_.schedule(input, actions);
  }
  [[nodiscard]] static std::vector<cm::transfer::early_load> early_of(const access_record& record,
                                                                      std::span<const std::uint32_t> chunk_of_slot,
                                                                      const cm::transfer::iteration_plan& plan,
                                                                      bytes device, bytes frame)
  {
    return cm::transfer::planned::early_of(record, chunk_of_slot, plan, device, frame);
  }
  [[nodiscard]] cm::transfer::iteration_plan retain(const cm::transfer::retention_request& request)
  {
    ++*solved;
    return solver_.retain(request);
  }

 private:
  cm::transfer::planned solver_;
};

using manager_type = cm::manager<cm::backend::host_arena, counting>;

struct run {
  int solved = 0;
  cm::backend::host_arena memory;
  manager_type m;
  support::mixed::trainer<manager_type, cm::backend::host_arena, float> trainer;

  explicit run(cm::bytes device, cm::bytes host = 1_MiB, cm::bytes chunk = 4_KiB)
      : memory{{.device_capacity = device, .host_capacity = host}},
        m{memory, {.chunk_bytes = chunk}, counting_into(solved)},
        trainer{m, memory, support::mixed::usual_recipe(4)}
  {
  }
  static counting counting_into(int& solved)
  {
    counting made;
    made.solved = &solved;
    return made;
  }
};

/// The files of a first run for the next ones.
struct left_over {
  std::string profile;
  std::string plan;
  support::mixed::outcome values;
};

left_over train_once(cm::bytes device, cm::bytes chunk = 4_KiB)
{
  run first{device, 1_MiB, chunk};
  left_over made;
  (void)first.trainer.train();
  made.values = first.trainer.values();
  CHECK(first.solved == 2);  // training steps, and an evaluation
  std::ostringstream profile;
  profile_text::write(profile, *first.m.profile());
  std::ostringstream plan;
  plan_text::write(plan, first.m.plan());
  made.profile = profile.str();
  made.plan = plan.str();
  return made;
}

void take_profile(run& next, const std::string& text)
{
  std::istringstream in{text};
  next.m.use_profile(profile_text::read(in));
}
transfer::iteration_plan plan_from(const std::string& text)
{
  std::istringstream in{text};
  return plan_text::read(in);
}

std::string refusal(run& next, const transfer::iteration_plan& plan)
{
  return support::refusal<config_error>([&] { next.m.use_plan(plan); });
}

}  // namespace

TEST_CASE("the next run follows the plan of another one from its first iteration on, and solves nothing", "[manager]")
{
  const left_over before = train_once(128_KiB);
  REQUIRE(plan_from(before.plan).retained_until.size() > 10);
  run next{128_KiB};
  take_profile(next, before.profile);
  next.m.use_plan(plan_from(before.plan));
  next.trainer.initialise();
  for (std::uint32_t now = 0; now < 4; ++now) next.trainer.step(now);
  CHECK(next.solved == 0);
  CHECK(next.m.report().divergences == 0);
  CHECK(next.m.report().abandoned_plans == 0);
  CHECK(next.trainer.values().difference(before.values) == "");
  std::ostringstream again;
  plan_text::write(again, next.m.plan());
  transfer::iteration_plan unproven = plan_from(before.plan);
  CHECK(unproven.bound_bytes > 0);
  CHECK(unproven.bound_bytes <= unproven.moved_bytes);
  unproven.moved_bytes = unproven.bound_bytes = 0;  // nobody here solved it
  CHECK(next.m.plan() == unproven);
  CHECK(plan_from(again.str()) == unproven);

  run solving{128_KiB};  // the same without the plan: it has to solve, and moves as many bytes
  take_profile(solving, before.profile);
  solving.trainer.initialise();
  for (std::uint32_t now = 0; now < 4; ++now) solving.trainer.step(now);
  CHECK(solving.solved == 1);
  CHECK(solving.m.report().loaded == next.m.report().loaded);
  CHECK(solving.m.report().written_back == next.m.report().written_back);
}

TEST_CASE("the plan of another run has the frames of its windows too", "[manager]")
{
  const left_over before = train_once(128_KiB, 1_KiB);
  const transfer::iteration_plan plan = plan_from(before.plan);
  REQUIRE_FALSE(plan.places.empty());
  run next{128_KiB, 1_MiB, 1_KiB};
  take_profile(next, before.profile);
  next.m.use_plan(plan);
  next.trainer.initialise();
  report last;
  for (std::uint32_t now = 0; now < 4; ++now) {
    last = next.m.report();
    next.trainer.step(now);
  }
  last = next.m.report().copies_since(last);
  CHECK(next.solved == 0);
  CHECK(next.m.report().abandoned_plans == 0);
  CHECK(next.trainer.values().difference(before.values) == "");
  CHECK(next.m.plan().places == plan.places);
  CHECK(last.loaded.count() + last.written_back.count() <= plan.moved_bytes);
}

TEST_CASE("a plan of another model, layout or capacity is refused in one sentence that names the key", "[manager]")
{
  const left_over before = train_once(128_KiB);
  const transfer::iteration_plan plan = plan_from(before.plan);
  using Catch::Matchers::ContainsSubstring;
  const auto refused_by = [&](cm::bytes device, cm::bytes host, cm::bytes chunk) {
    run next{device, host, chunk};
    take_profile(next, before.profile);
    return refusal(next, plan);
  };
  CHECK(refused_by(128_KiB, 1_MiB, 4_KiB).empty());
  CHECK_THAT(refused_by(132_KiB, 1_MiB, 4_KiB), ContainsSubstring("its device_bytes is 131072 and should be 135168"));
  CHECK_THAT(refused_by(128_KiB, 2_MiB, 4_KiB), ContainsSubstring("its host_bytes"));
  CHECK_THAT(refused_by(128_KiB, 1_MiB, 8_KiB), ContainsSubstring("its record"));
  run next{128_KiB};
  take_profile(next, before.profile);
  transfer::iteration_plan changed = plan;
  changed.variant = 1;
  CHECK_THAT(refusal(next, changed), ContainsSubstring("its variant is 1 and should be 0"));
  changed = plan;
  changed.retained_until.pop_back();
  CHECK_THAT(refusal(next, changed), ContainsSubstring("too many or too few"));
  changed = plan;
  changed.first_use.assign(changed.first_use.size(), 0);
  CHECK_THAT(refusal(next, changed), ContainsSubstring("chunk") && ContainsSubstring("does not use it"));
  CHECK(refusal(next, plan).empty());
}

TEST_CASE("a plan is not believed what it says of itself, and one that is refused leaves the one that is there",
          "[manager]")
{
  const left_over before = train_once(128_KiB);
  run next{128_KiB};
  take_profile(next, before.profile);
  transfer::iteration_plan boasting = plan_from(before.plan);
  boasting.moved_bytes = boasting.bound_bytes = 1;
  next.m.use_plan(boasting);
  next.trainer.initialise();
  for (std::uint32_t now = 0; now < 4; ++now) next.trainer.step(now);
  const transfer::iteration_plan kept = next.m.plan();
  CHECK(kept.moved_bytes == 0);
  CHECK(kept.bound_bytes == 0);
  for (std::uint64_t transfer::iteration_plan::*which :
       {&transfer::iteration_plan::record, &transfer::iteration_plan::device_bytes}) {
    transfer::iteration_plan other = boasting;
    ++(other.*which);
    CHECK_FALSE(refusal(next, other).empty());
    CHECK(next.m.plan() == kept);
  }
  next.trainer.step(4);
  CHECK(next.solved == 0);
}

TEST_CASE("a plan comes after the record that it is for, and outside of iterations", "[manager]")
{
  const left_over before = train_once(128_KiB);
  const transfer::iteration_plan plan = plan_from(before.plan);
  run next{128_KiB};
  CHECK_THROWS_AS(next.m.use_plan(plan), usage_error);
  CHECK_THROWS_AS(next.m.plan(), usage_error);
  take_profile(next, before.profile);
  CHECK_THROWS_AS(next.m.plan(), usage_error);
  next.trainer.initialise();
  {
    auto scope = next.m.iteration("other");
    CHECK_THROWS_AS(next.m.use_plan(plan), usage_error);
  }
  next.m.use_plan(plan);
  next.trainer.step(0);
  CHECK(next.solved == 0);
}

TEST_CASE("a plan that the eviction policy beats says so, and is taken back", "[manager]")
{
  const left_over before = train_once(128_KiB);
  run next{128_KiB};
  take_profile(next, before.profile);
  transfer::iteration_plan plan = plan_from(before.plan);
  plan.clear();
  next.m.use_plan(plan);
  next.trainer.initialise();
  for (std::uint32_t now = 0; now < 4; ++now) next.trainer.step(now);
  CHECK(next.solved == 0);
  CHECK(next.trainer.values().difference(before.values) == "");
  CHECK(next.m.plan() == plan);
}

}  // namespace stored_plans_test
