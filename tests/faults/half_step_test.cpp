// SPDX-License-Identifier: Apache-2.0
#include "patient.hpp"

#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace half_step_test {

/// A copy fails in an optimizer step, so that some parameters have the update and others do not. Then a checkpoint is
/// asked for, gradients are to be dropped, or a checkpoint is loaded: never a mixture, and in the end the bits of a run
/// that nothing disturbed.

using namespace fault_sweeps;
using cm::optimizer::adam;
using support::fault_source;
using support::faults;

namespace {

constexpr std::uint32_t layers = 6;                   // of each type
constexpr std::uint32_t saved_after = 2, in_all = 4;  // steps
/// Under a sanitizer only some calls fail: of the few copies of a step every second, and of the operations on files
/// every seventh, since each file has the same few of them.
constexpr std::uint64_t copy_pace = support::sanitized ? 2 : 1;
constexpr std::uint64_t file_pace = support::sanitized ? 7 : 1;

/// The optimizer: `step`, or a device_optimizer.
template <class Manager>
struct on_host {
  explicit on_host(Manager& owner) : m{owner} { m.use(kernel); }
  void step() { (void)cm::optimizer::step(m, kernel, {.learning_rate = 1e-2F, .clip = {.norm = 1.0F}}); }
  [[nodiscard]] const cm::optimizer::step_progress& progress() const { return kernel.progress; }
  Manager& m;
  adam kernel{{.weight_decay = 0.1F}};
};
template <class Manager>
struct on_device {
  explicit on_device(Manager& owner)
      : optimizer{
            owner, adam{{.weight_decay = 0.1F}}, {}, cm::optimizer::loss_scale::dynamic({.initial = 8.0F, .window = 1})}
  {
  }
  void step() { optimizer.step({.learning_rate = 1e-2F, .clip = {.norm = 1.0F}}); }
  [[nodiscard]] const cm::optimizer::step_progress& progress() const { return optimizer.kernel().progress; }
  cm::optimizer::device_optimizer<Manager, adam, cm::optimizer::loop_launcher> optimizer;
};

template <class Manager>
struct on_host_later : on_host<Manager> {
  using on_host<Manager>::on_host;
  void step() { (void)late.step({.learning_rate = 1e-2F, .clip = {.norm = 1.0F}}); }
  cm::optimizer::late_updates<Manager, adam> late{this->m, this->kernel};
};

/// A few parameters with masters and a few of 32 bits; all gradients wait on the device, and their update is on the
/// host or there.
template <template <class> class Updates>
struct training {
  using manager = cm::manager<backend, support::chosen_gradient>;

  explicit training(bool in_place = false) : m{memory, {.chunk_bytes = 4_KiB}, support::chosen_gradient{in_place}}
  {
    for (std::uint32_t index = 0; index < layers; ++index)
      weights.push_back(m.template add<cm::bf16>({1'000}, cm::role::parameter));
    for (std::uint32_t index = 0; index < layers; ++index)
      wide.push_back(m.template add<float>({1'000}, cm::role::parameter));
    optimizer.emplace(m);
    m.state("cursor", std::as_writable_bytes(std::span{&cursor, 1}));
  }
  void fill()
  {
    for (const auto& it : weights)
      for (auto& value : m.acquire(it, cm::access::write).span()) value = cm::round_to<cm::bf16>(0.5F);
    for (const auto& it : wide)
      for (float& value : m.acquire(it, cm::access::write).span()) value = 0.25F;
  }
  template <class Element>
  void differentiate(cm::tensor<Element> weight, std::uint32_t index)
  {
    auto gradient = m.gradient(m.acquire(weight, cm::access::read));
    for (std::size_t i = 0; i < gradient.span().size(); ++i)
      gradient.span()[i] =
          cm::round_to<Element>(0.01F * static_cast<float>((i + index) % 7 + 1) * static_cast<float>(cursor + 1));
    m.gradient_done(std::move(gradient));
  }
  void differentiate()
  {
    for (std::uint32_t index = 0; index < layers; ++index) {
      if (cursor == saved_after && index == 0) continue;  // the disturbed step passes one over before its first update
      differentiate(weights[index], index);
    }
    for (std::uint32_t index = 0; index < layers; ++index) differentiate(wide[index], index);
  }
  void train(std::uint32_t until)
  {
    while (cursor < until) {
      const auto scope = m.iteration();
      differentiate();
      optimizer->step();
      ++cursor;
    }
  }
  /// A step whose copies fail from the k-th on. @return   it failed
  bool fails(std::uint64_t k)
  {
    const auto scope = m.iteration();
    differentiate();
    faults.arm({fault_source::copy, k, true});
    try {
      optimizer->step();
    } catch (const cm::device_error&) {
      faults.disarm();
      return true;
    }
    faults.disarm();
    return false;
  }
  void cut_short()
  {
    for (std::uint64_t k = 0; optimizer->progress().reached < 2; ++k) {
      m.drop_gradients();
      REQUIRE(fails(k));
    }
  }
  [[nodiscard]] bool is_half_done() const { return optimizer->progress().reached > (cursor == saved_after ? 1U : 0U); }

  /// All that a checkpoint holds, as its bytes.
  [[nodiscard]] std::vector<std::byte> everything()
  {
    support::memory_folder folder;
    (void)cm::checkpoint::save(m, folder);
    return folder.last_of(".safetensors");
  }

  backend memory{cm::backend::host_arena_options{.device_capacity = 256_KiB, .host_capacity = 1_MiB}};
  manager m;
  std::vector<cm::tensor<cm::bf16>> weights;
  std::vector<cm::tensor<float>> wide;
  std::optional<Updates<manager>> optimizer;
  std::uint32_t cursor = 0;
};

template <class Training>
void refuses_checkpoints(Training& it)
{
  support::memory_folder none;
  CHECK_THROWS_AS(cm::checkpoint::save(it.m, none), cm::usage_error);
  CHECK_THROWS_AS(cm::checkpoint::save_async(it.m, none), cm::usage_error);
  CHECK_THROWS_AS(cm::checkpoint::export_values(it.m, none, "weights"), cm::usage_error);
  CHECK(none.last_of(".safetensors").empty());
}

template <class Training>
[[nodiscard]] bool is_savable(Training& it)
{
  support::memory_folder other;
  try {
    (void)cm::checkpoint::save(it.m, other);
    return true;
  } catch (const cm::usage_error&) {
    return false;
  }
}

/// Disturbs the third step at every copy and calls `then(training, folder)`, which has to leave a run at its end.
template <class Training>
void disturb(bool in_place, std::type_identity_t<cm::call_ref<void(Training&, const support::memory_folder&)>> then)
{
  support::memory_folder folder;
  std::vector<std::byte> expected;
  {
    Training it{in_place};
    it.fill();
    it.train(saved_after);
    (void)cm::checkpoint::save(it.m, folder);
    it.train(in_all);
    expected = it.everything();
  }
  std::set<std::uint32_t> reached;
  for (std::uint64_t k = 0;; k += copy_pace) {
    INFO("copy " << k);
    Training it{in_place};
    (void)cm::checkpoint::load(it.m, folder);
    if (!it.fails(k)) break;
    reached.insert(it.optimizer->progress().reached);
    then(it, folder);
    const bool same = it.everything() == expected;
    REQUIRE(same);
  }
  // the gradients of two in 16 bits share a chunk, and come with one copy
  CHECK(reached.size() >= layers / copy_pace);
}

template <class Training>
void load_and_go_on(bool in_place)
{
  disturb<Training>(in_place, [](Training& it, const support::memory_folder& folder) {
    (void)cm::checkpoint::load(it.m, folder);
    CHECK(it.cursor == saved_after);
    it.train(in_all);
  });
}

template <class Training>
void refuse_and_step_again(bool in_place)
{
  disturb<Training>(in_place, [](Training& it, const support::memory_folder&) {
    refuses_checkpoints(it);
    if (it.is_half_done()) {
      CHECK_THROWS_AS(it.m.drop_gradients(), cm::usage_error);
      CHECK_THROWS_AS(it.m.drop_gradient(it.weights.back()), cm::usage_error);
      CHECK_THROWS_AS(it.m.gradient(it.weights.front()), cm::usage_error);
      refuses_checkpoints(it);
    }
    it.optimizer->step();
    ++it.cursor;
    it.train(in_all);
  });
}

/// A step that has updated nothing yet may be dropped, and begins anew with other gradients.
template <class Training>
void drop_where_nothing_is_updated(bool in_place)
{
  int dropped = 0;
  disturb<Training>(in_place, [&](Training& it, const support::memory_folder& folder) {
    if (it.is_half_done()) {
      (void)cm::checkpoint::load(it.m, folder);
    } else {
      it.m.drop_gradients();
      support::memory_folder other;
      (void)cm::checkpoint::save(it.m, other);
      ++dropped;
    }
    it.train(in_all);
  });
  CHECK(dropped > 0);
}

}  // namespace

TEST_CASE("a step that was cut short is void after a load, and the bits are those of the run that was saved",
          "[faults]")
{
  SECTION("on the host") load_and_go_on<training<on_host>>(false);
  SECTION("on the host, of gradients in place") load_and_go_on<training<on_host>>(true);
  SECTION("on the device") load_and_go_on<training<on_device>>(false);
}

TEST_CASE("a step that was cut short is neither saved nor dropped, and the next call finishes it", "[faults]")
{
  SECTION("on the host") refuse_and_step_again<training<on_host>>(false);
  SECTION("on the host, of gradients in place") refuse_and_step_again<training<on_host>>(true);
  SECTION("on the device") refuse_and_step_again<training<on_device>>(false);
}

TEST_CASE("a step that was cut short before its first update is forgotten with its gradients", "[faults]")
{
  SECTION("on the host") drop_where_nothing_is_updated<training<on_host>>(false);
  SECTION("on the host, of gradients in place") drop_where_nothing_is_updated<training<on_host>>(true);
  SECTION("on the device") drop_where_nothing_is_updated<training<on_device>>(false);
}

TEST_CASE("a half-done step says what to do, and a rehearsal in between changes nothing", "[faults]")
{
  training<on_host> it, undisturbed;
  undisturbed.fill();
  undisturbed.train(2);
  it.fill();
  it.train(1);
  it.cut_short();
  const double norm = it.optimizer->progress().norm;
  const auto says = [&](auto call) { return support::refusal<cm::usage_error>(call); };
  support::memory_folder folder;
  const std::string rest =
      " while an optimizer step is half done (call step again; over one rank a load outside of the iteration ends it "
      "too)";
  CHECK(says([&] { (void)cm::checkpoint::save(it.m, folder); }) == "chunkmem: a checkpoint cannot be made" + rest);
  CHECK(says([&] { it.m.drop_gradients(); }) == "chunkmem: gradients cannot be dropped" + rest);
  it.m.rehearse([&] {
    const auto scope = it.m.iteration();
    it.m.drop_gradients();
    it.differentiate();
    it.optimizer->step();
  });
  CHECK(says([&] { it.m.drop_gradients(); }) == "chunkmem: gradients cannot be dropped" + rest);
  CHECK(it.optimizer->progress().norm == norm);
  it.optimizer->step();
  ++it.cursor;
  it.m.drop_gradients();
  const bool same = it.everything() == undisturbed.everything();
  CHECK(same);
}

TEST_CASE("updates that wait are in a checkpoint, however often a copy fails on the way, and a load makes them void",
          "[faults]")
{
  const bool in_place = GENERATE(false, true);
  CAPTURE(in_place);
  support::memory_folder folder;
  std::vector<std::byte> expected;
  {
    training<on_host> it{in_place};
    it.fill();
    it.train(saved_after);
    (void)cm::checkpoint::save(it.m, folder);
    it.train(in_all);
    expected = it.everything();
  }
  std::uint64_t failures = 0;
  for (std::uint64_t k = 0;; ++k) {
    INFO("copy " << k);
    training<on_host_later> it{in_place};
    it.fill();
    it.train(in_all);
    REQUIRE(it.m.updates_pending() > 0);
    faults.arm({fault_source::copy, k, true});
    std::vector<std::byte> saved;
    try {
      saved = it.everything();
    } catch (const cm::device_error&) {
      ++failures;
    }
    faults.disarm();
    if (failures == k) {  // none failed any more
      CHECK(it.m.updates_pending() == 0);
      CHECK(saved == expected);
      break;
    }
    const bool same = it.everything() == expected;
    REQUIRE(same);
  }
  CHECK(failures >= layers);
  {
    training<on_host_later> it{in_place};
    it.fill();
    it.train(1);
    (void)cm::checkpoint::load(it.m, folder);
    CHECK(it.m.updates_pending() == 0);
    CHECK(it.cursor == saved_after);
    it.train(in_all);
    const bool same = it.everything() == expected;
    CHECK(same);
  }
  training<on_host> it{in_place};
  it.fill();
  {
    cm::optimizer::late_updates late{it.m, it.optimizer->kernel};
    {
      const auto scope = it.m.iteration();
      it.differentiate();
      (void)late.step();
    }
  }
  refuses_checkpoints(it);  // nobody can do what waits
  (void)cm::checkpoint::load(it.m, folder);
  it.train(in_all);
  const bool same = it.everything() == expected;
  CHECK(same);
}

TEST_CASE("a load that is cut short leaves nothing that could be saved or trained", "[faults]")
{
  using training_type = training<on_host>;
  support::memory_folder folder;
  std::vector<std::byte> expected;
  {
    training_type it;
    it.fill();
    it.train(saved_after);
    (void)cm::checkpoint::save(it.m, folder, {.file_size = 1_B});  // more files than stay in memory
    it.train(in_all);
    expected = it.everything();
  }
  int before = 0, cut = 0;
  for (std::uint64_t k = 0;; k += file_pace) {
    INFO("file operation " << k);
    training_type it;
    it.fill();
    it.train(saved_after + 1);
    faults.arm({fault_source::file, k, true});
    bool failed = false;
    try {
      (void)cm::checkpoint::load(it.m, folder);
    } catch (const cm::error&) {
      failed = true;
    }
    faults.disarm();
    if (!failed) break;
    if (is_savable(it)) {
      ++before;  // nothing was overwritten: it goes on with what it has
    } else {
      ++cut;
      refuses_checkpoints(it);
      CHECK_THROWS_AS(it.optimizer->step(), cm::usage_error);
      (void)cm::checkpoint::load(it.m, folder);
    }
    it.train(in_all);
    const bool same = it.everything() == expected;
    REQUIRE(same);
  }
  CAPTURE(before, cut);
  CHECK((before > 3 && cut > 3));
}

TEST_CASE("a load that is refused leaves gradients, and a half-done step, as they were", "[faults]")
{
  training<on_host> undisturbed{true}, it{true};
  for (auto* each : {&undisturbed, &it}) {
    each->fill();
    each->train(1);
  }
  undisturbed.train(2);
  it.cut_short();
  support::memory_folder other;
  CHECK_THROWS_AS(cm::checkpoint::load(it.m, other), cm::io_error);
  {
    training<on_host> larger{true};
    const auto table = larger.m.add<float>({3}, cm::role::buffer);
    for (float& value : larger.m.acquire(table, cm::access::write).span()) value = 1.0F;
    larger.fill();
    larger.train(1);
    (void)cm::checkpoint::save(larger.m, other);
  }
  CHECK_THROWS_AS(cm::checkpoint::load(it.m, other), cm::config_error);
  it.optimizer->step();
  ++it.cursor;
  const bool same = it.everything() == undisturbed.everything();
  CHECK(same);
}

}  // namespace half_step_test
