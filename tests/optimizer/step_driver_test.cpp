// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step_driver.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>

#include <optional>
#include <string>
#include <vector>

namespace step_driver_test {

namespace cm = chunkmem;
using namespace cm::literals;
using support::any_backend;
using manager = cm::manager<any_backend, support::chosen_gradient>;
using cm::optimizer::step_decision;
using cm::optimizer::detail::update_at_once;

namespace {

/// Writes down what a driver asks of it, and updates nothing.
struct recording_site {
  static constexpr bool has_bytes = true;
  static constexpr bool host_reaches = true;
  static constexpr bool counts_in_kernel = true;

  template <class Work>
  void at_place(cm::memory_location, Work work) const
  {
    work(cm::memory_location::host);
  }
  void begin() const { log->push_back("begin"); }
  template <class Driver>
  void decide(Driver& driver) const
  {
    log->push_back("decide");
    driver.keep({.norm = 3.0, .factor = 0.5F, .decision = decision});
  }
  void await_measures() const {}
  cm::gradient_measure measure(const cm::optimizer::adam&, const std::byte*, cm::dtype, std::uint64_t,
                               cm::memory_location) const
  {
    return {};
  }
  static constexpr bool overwrites(cm::tensor_handle) { return true; }
  void update(const cm::optimizer::adam&, const cm::optimizer::parameter_bytes& all,
              const cm::optimizer::detail::update_request& request, cm::memory_location) const
  {
    log->push_back("update " + std::to_string(all.tensor));
    CHECK(request.transform.factor == 0.5F);
    if (fails_at == all.tensor) throw cm::device_error{"it failed"};
    seen->push_back(all);
    rates->push_back(request.settings.learning_rate);
    *settings = request.settings_of(all.tensor);
  }
  static std::size_t tensors(std::size_t own) { return own; }
  template <class Driver, class Visit>
  static void for_each_missing(Driver& driver, Visit visit)
  {
    cm::optimizer::detail::decided_by_caller::for_each_missing(driver, visit);
  }
  void end(step_decision decided, const cm::optimizer::step_options&) const
  {
    log->push_back(decided == step_decision::update ? "end" : "end skipped");
  }

  std::vector<std::string>* log;
  std::vector<cm::optimizer::parameter_bytes>* seen;
  std::vector<float>* rates;
  cm::optimizer::step_settings* settings;
  step_decision decision = step_decision::update;
  std::optional<std::uint32_t> fails_at{};
};

struct fixture {
  using driver = cm::optimizer::detail::step_driver<manager, cm::optimizer::adam, recording_site>;

  fixture()
  {
    m.use(kernel);
    first = m.add<cm::bf16>({32}, cm::role::parameter);
    frozen = m.add<float>({32}, cm::role::frozen);
    second = m.add<float>({16}, cm::role::parameter, cm::group_id{1});
    for (cm::bf16& value : m.acquire(first, cm::access::write).span()) value = cm::bf16{1.0F};
    for (float& value : m.acquire(second, cm::access::write).span()) value = 1;
  }
  void differentiate()
  {
    for (cm::bf16& value : m.gradient(first).span()) value = cm::bf16{1.0F};
    for (float& value : m.gradient(second).span()) value = 1;
  }
  driver with(recording_site site) { return {m, kernel, site}; }
  [[nodiscard]] std::uint64_t missed(const cm::tensor_handle& weight) const
  {
    return kernel.progress.missed.of(cm::index_of(weight.id));
  }
  recording_site site(step_decision decision = step_decision::update, std::optional<std::uint32_t> fails_at = {})
  {
    return {&log, &seen, &rates, &last_settings, decision, fails_at};
  }

  any_backend memory{cm::backend::host_arena_options{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::adam kernel;
  cm::tensor<cm::bf16> first{};
  cm::tensor<float> frozen{}, second{};
  std::vector<std::string> log;
  std::vector<cm::optimizer::parameter_bytes> seen;
  std::vector<float> rates;
  cm::optimizer::step_settings last_settings;
};

}  // namespace

TEST_CASE("a step begins, decides once, updates each parameter that has a gradient, and ends", "[optimizer]")
{
  fixture it;
  it.differentiate();
  it.m.drop_gradient(it.first);
  auto driver = it.with(it.site());
  const auto outcome = driver.run({}, update_at_once{});
  CHECK(it.log == std::vector<std::string>{"begin", "decide", "update 2", "end"});
  CHECK((outcome == cm::optimizer::step_result::updated && outcome.norm == 3.0));
  CHECK((it.kernel.progress.number == 1 && it.kernel.progress.reached == 0));
  CHECK((it.missed(it.first) == 1 && it.missed(it.frozen) == 0 && it.missed(it.second) == 0));
  CHECK_FALSE(it.m.has_gradient(it.second));
}

TEST_CASE("a step that is skipped drops the gradients and counts no update", "[optimizer]")
{
  fixture it;
  it.differentiate();
  auto driver = it.with(it.site(step_decision::skip));
  CHECK(driver.run({}, update_at_once{}) == cm::optimizer::step_result::skipped_nonfinite);
  CHECK(it.log == std::vector<std::string>{"begin", "decide", "end skipped"});
  CHECK(it.kernel.progress.number == 0);
  CHECK_FALSE(it.m.has_gradient(it.first));
}

TEST_CASE("a parameter without a gradient misses a step once, and only if the step counts", "[optimizer]")
{
  fixture it;
  const auto differentiate_second = [&] {
    for (float& value : it.m.gradient(it.second).span()) value = 1;
  };
  differentiate_second();
  {
    auto driver = it.with(it.site(step_decision::skip));
    (void)driver.run({}, update_at_once{});
    CHECK(it.missed(it.first) == 0);
  }
  differentiate_second();
  {
    auto driver = it.with(it.site(step_decision::update, 2));
    for (int tries = 0; tries < 3; ++tries) CHECK_THROWS_AS(driver.run({}, update_at_once{}), cm::device_error);
    CHECK(it.missed(it.first) == 0);
  }
  {
    it.m.content().begin_load();  // the step is void
    it.m.content().end_load();
    it.differentiate();
    auto driver = it.with(it.site());
    (void)driver.run({}, update_at_once{});
    CHECK((it.kernel.progress.number == 1 && it.missed(it.first) == 0 && it.missed(it.second) == 0));
  }
  differentiate_second();
  {
    auto driver = it.with(it.site(step_decision::update, 2));
    CHECK_THROWS_AS(driver.run({}, update_at_once{}), cm::device_error);
  }
  auto driver = it.with(it.site());
  (void)driver.run({}, update_at_once{});
  CHECK((it.kernel.progress.number == 2 && it.missed(it.first) == 1 && it.missed(it.second) == 0));
  CHECK(it.last_settings.count() == 2);
  it.differentiate();
  (void)driver.run({}, update_at_once{});
  CHECK((it.kernel.progress.number == 3 && it.last_settings.count() == 3));
  for (cm::bf16& value : it.m.gradient(it.first).span()) value = cm::bf16{1.0F};
  (void)driver.run({}, update_at_once{});
  CHECK((it.last_settings.number == 4 && it.last_settings.count() == 3));
  CHECK((it.missed(it.first) == 1 && it.missed(it.second) == 1));
}

TEST_CASE("a step that failed goes on with the parameter that failed, and is not decided again", "[optimizer]")
{
  fixture it;
  it.differentiate();
  {
    auto driver = it.with(it.site(step_decision::update, 2));
    CHECK_THROWS_AS(driver.run({}, update_at_once{}), cm::device_error);
    CHECK(driver.is_decided());
    CHECK_FALSE(driver.wants_decision());
  }
  CHECK(it.log == std::vector<std::string>{"begin", "decide", "update 0", "update 2"});
  CHECK((it.kernel.progress.number == 0 && it.kernel.progress.reached == 1));
  it.log.clear();
  auto driver = it.with(it.site());
  driver.run({}, update_at_once{});
  CHECK(it.log == std::vector<std::string>{"begin", "update 2", "end"});
  CHECK(it.kernel.progress.number == 1);
}

TEST_CASE("a timing decides which updates happen in the call; the others wait and are done once", "[optimizer]")
{
  struct first_only {
    void begin(fixture::driver& driver, fixture::driver::place_type from) const
    {
      driver.make_room_to_wait();
      driver.begin(from);
    }
    void decide(fixture::driver& driver) const { driver.decide(); }
    [[nodiscard]] static bool is_due(std::uint32_t place) { return place == 0; }
    void end(fixture::driver& driver) const
    {
      driver.let_wait(
          [](void* self, cm::slot_id value) {
            std::uint8_t is_done = 0;
            static_cast<fixture::driver*>(self)->update_waiting(cm::index_of(value), is_done, 0.5F, 1);
          },
          &driver);
    }
  };
  fixture it;
  it.differentiate();
  auto driver = it.with(it.site());
  driver.run({}, first_only{});
  CHECK(it.log == std::vector<std::string>{"begin", "decide", "update 0", "end"});
  CHECK(driver.waiting() == 1);
  CHECK(it.kernel.progress.number == 1);  // the step counts already
  driver.finish_waiting();
  CHECK(it.log.back() == "update 2");
  CHECK(driver.waiting() == 0);
  driver.finish_waiting();
  CHECK(it.log.size() == 5);
}

TEST_CASE("an update gets the bytes of one parameter, masters only where they are", "[optimizer]")
{
  fixture it;
  const auto scope = it.m.iteration();
  it.differentiate();
  auto driver = it.with(it.site());
  driver.run({}, update_at_once{});
  REQUIRE(it.seen.size() == 2);
  CHECK((it.seen[0].list_count == 3 && it.seen[1].list_count == 2));
  CHECK((it.seen[0].elements == 32 && it.seen[1].elements == 16));
  CHECK((it.seen[0].value_type == cm::dtype::bfloat16 && it.seen[1].value_type == cm::dtype::float32));
  CHECK((it.seen[0].tensor == index_of(it.first.id) && it.seen[1].tensor == index_of(it.second.id)));
  for (const auto& all : it.seen) {
    CHECK_FALSE(all.fresh_master);
    CHECK((all.value != nullptr && all.gradient != nullptr && all.lists[0].data != nullptr));
  }
}

TEST_CASE("new gradients of parameters that a step has passed are refused", "[optimizer]")
{
  fixture it;
  auto driver = it.with(it.site());
  it.differentiate();
  it.kernel.progress.reached = 1;
  CHECK_THROWS_AS(driver.begin(), cm::usage_error);
  it.kernel.progress.undropped = 1;  // it was updated, and its gradient could not be dropped
  driver.begin();
  CHECK_FALSE(it.m.has_gradient(it.first));
  CHECK(it.m.has_gradient(it.second));
}

TEST_CASE("learning rates come by group where they are given so", "[optimizer]")
{
  const float rates[] = {0.5F, 0.25F};
  for (const bool by_group : {false, true}) {
    fixture it;
    it.differentiate();
    auto driver = it.with(it.site());
    cm::optimizer::step_options options{.learning_rate = 2.0F};
    if (by_group) options.group_rates = rates;
    driver.run(options, update_at_once{});
    CHECK(it.rates == (by_group ? std::vector<float>{0.5F, 0.25F} : std::vector<float>{2.0F, 2.0F}));
  }
  fixture it;
  it.differentiate();
  auto driver = it.with(it.site());
  const cm::optimizer::step_options short_rates{.group_rates = {rates, 1}};
  CHECK_THROWS_AS(driver.run(short_rates, update_at_once{}), cm::usage_error);
  CHECK(it.log.empty());
}

TEST_CASE("a rehearsal begins its step anew and leaves the real progress alone", "[optimizer]")
{
  cm::optimizer::step_progress progress{.number = 5, .reached = 3};
  {
    const cm::optimizer::detail::rehearsal_guard kept{progress, true};
    CHECK((progress.number == 5 && progress.reached == 0));
    progress.reached = 9;
  }
  CHECK(progress.reached == 3);
  {
    const cm::optimizer::detail::rehearsal_guard kept{progress, false};
    progress.reached = 4;
  }
  CHECK(progress.reached == 4);
}

namespace {

/// The masters after a step outside of iterations, which makes them itself, where this copy fails once.
std::vector<float> masters(std::optional<std::uint64_t> failed, std::uint64_t& copies)
{
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 16_KiB, .host_capacity = 256_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::adam kernel;
  m.use(kernel);
  const auto weights = m.add_stacked<cm::bf16>(2, {1000}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 2; ++index)
    for (cm::bf16& value : m.acquire(weights.slice(index), cm::access::write).span())
      value = cm::round_to<cm::bf16>(0.5F);
  for (std::uint32_t index = 0; index < 2; ++index)
    for (cm::bf16& value : m.gradient(weights.slice(index)).span()) value = cm::round_to<cm::bf16>(0.25F);
  memory.set_plan({.copy = failed ? std::optional{memory.copies() + *failed} : std::nullopt});
  const std::uint64_t before = memory.copies();
  try {
    cm::optimizer::step(m, kernel);
  } catch (const cm::device_error&) {
    cm::optimizer::step(m, kernel);
  }
  copies = memory.copies() - before;
  std::vector<float> all;
  for (std::uint32_t index = 0; index < 2; ++index)
    for (const float it :
         m.acquire<float>(weights.slice(index), m.list("master"), cm::access::read, cm::memory_location::host).span())
      all.push_back(it);
  return all;
}

}  // namespace

TEST_CASE("a master that an update makes is not there before its weight is, whichever copy fails", "[optimizer]")
{
  std::uint64_t copies = 0;
  const auto undisturbed = masters({}, copies);
  REQUIRE(copies > 2);
  std::uint64_t ignored = 0;
  for (std::uint64_t index = 0; index < copies; ++index) {
    CAPTURE(index);
    const bool same = masters(index, ignored) == undisturbed;
    CHECK(same);
  }
}

}  // namespace step_driver_test
