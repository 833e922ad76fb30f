// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/faulty.hpp>
#include <support/memory_folder.hpp>
#include <support/sanitized.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace single_calls_test {

/// Every call of a trainer is tried again by itself where there was no memory for it: what it promises to leave as it
/// was is as it was, and in the end everything is where it is when nothing fails.

namespace cm = chunkmem;
using namespace cm::literals;
using support::fault_source;
using backend = support::faulty<cm::backend::host_arena>;
using manager = cm::manager<backend, support::chosen_gradient>;

namespace {

constexpr std::uint32_t layers = 4;
constexpr std::uint64_t rows = 24;
constexpr std::uint64_t columns = 32;

/// The state that a call may leave where it throws.
enum class promise : std::uint8_t { strong, basic };

/// Not inlined: g++ 12 takes the options for pointed to after their end.
[[nodiscard, gnu::noinline]] cm::optimizer::adam decaying()
{
  return cm::optimizer::adam{{.weight_decay = 0.01F}};
}

class trainer {
 public:
  trainer(bool in_place, cm::bytes device) : in_place_{in_place}, device_{device} {}

  /// @return   values, states and masters, and what was needed
  std::string run()
  {
    set_up();
    declare();
    call(promise::strong, [this] { need_ = m->seal(); });
    call(promise::strong, [this] { need_ = m->rehearse([this] { whole_step(); }); });
    fill();
    for (int now = 0; now < 3; ++now) step();
    call(promise::basic, [this] { m->iteration("eval").end(); });
    call(promise::basic, [this] { cm::checkpoint::save(*m, *folder); });
    call(promise::basic, [this] { cm::checkpoint::load(*m, *folder); });
    support::faults.disarm();
    const cm::access_record profile = *m->profile();
    const std::string first = text();
    support::faults.resume();
    follow(profile);
    support::faults.disarm();
    return first + text();
  }

  std::string broken;  ///< the first promise that was not kept
  int errors = 0;

 private:
  /// A manager and a trainer without any declaration yet.
  void set_up()
  {
    call(promise::basic, [this] {
      m.reset();
      memory.reset();
      if (!folder) folder.emplace();
      memory.emplace(cm::backend::host_arena_options{device_, 1_MiB});
      m.emplace(*memory, cm::manager_options{.chunk_bytes = 2_KiB}, support::chosen_gradient{in_place_});
    });
    kernel.emplace(decaying());  // one belongs to its first manager
    is_sealed_ = false;
    need_ = {};
  }
  void declare()
  {
    call(promise::strong, [this] { m->use(*kernel); });
    call(promise::strong, [this] { weights = m->add_stacked<cm::bf16>(layers, {rows, columns}, cm::role::parameter); });
    call(promise::strong, [this] { bias = m->add<float>({columns}, cm::role::parameter, cm::group_id{1}); });
    call(promise::strong, [this] { frozen = m->add<cm::bf16>({columns}, cm::role::frozen); });
    call(promise::strong, [this] { flow = m->add<float>({columns}, cm::role::activation); });
    call(promise::strong, [this] { m->name(bias, "a name that is longer than what a string holds inside"); });
    call(promise::strong, [this] {
      m->state("how many updates the optimizer has done so far",
               std::as_writable_bytes(std::span{&kernel->progress.number, 1}));
    });
  }

  void fill()
  {
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      call(promise::strong, [&] {
        const auto pin = m->acquire(weights.slice(layer), cm::access::write);
        for (std::size_t index = 0; index < pin.size(); ++index)
          pin.span()[index] = cm::round_to<cm::bf16>(0.01F * static_cast<float>(index % 97) - 0.3F);
      });
    call(promise::strong, [this] {
      const auto pin = m->acquire(bias, cm::access::write);
      for (float& it : pin.span()) it = 0.5F;
    });
    call(promise::strong, [this] {
      const auto pin = m->acquire(frozen, cm::access::write, cm::memory_location::host);
      for (cm::bf16& it : pin.span()) it = cm::round_to<cm::bf16>(2.0F);
    });
  }

  /// Without any care, for the rehearsal.
  void whole_step()
  {
    const auto scope = m->iteration();
    forward();
    for (std::uint32_t layer = layers; layer-- > 0;) differentiate(weights.slice(layer));
    differentiate(bias);
    m->drop(flow);
    (void)cm::optimizer::step(*m, *kernel, {.learning_rate = 0.1F, .clip = {.norm = 1.0F}});
  }

  /// One call after the other.
  void step()
  {
    std::optional<cm::iteration<manager::engine_type>> scope;
    call(promise::basic, [&] { begin(scope); });
    call(promise::basic, [this] { forward(); });
    for (std::uint32_t layer = layers; layer-- > 0;) call(promise::basic, [&] { differentiate(weights.slice(layer)); });
    call(promise::basic, [this] { differentiate(bias); });
    call(promise::basic, [this] { m->drop(flow); });
    call(promise::basic,
         [this] { (void)cm::optimizer::step(*m, *kernel, {.learning_rate = 0.1F, .clip = {.norm = 1.0F}}); });
    // its record is lost where there is no memory for it; the next one is recorded again
    call(promise::basic, [&] { scope->end(); });
  }
  /// Nothing that is pinned stays so where it throws, and nothing is done before all is there.
  void forward()
  {
    const auto work = m->lease(cm::tier::device, 3_KiB);
    const auto out = m->acquire(flow, cm::access::write);
    const auto scale = m->acquire(frozen, cm::access::read);
    const auto first = m->acquire(weights.slice(0), cm::access::read);
    const auto last = m->acquire(weights.slice(layers - 1), cm::access::read);
    if (m->rehearsing()) return;
    for (std::size_t index = 0; index < columns; ++index)
      out.span()[index] =
          cm::to_float(scale.span()[index]) * cm::to_float(first.span()[index]) + cm::to_float(last.span()[index]);
  }
  template <class Kind>
  void differentiate(cm::tensor<Kind> weight)
  {
    if (m->has_gradient(weight)) return;  // it was begun by a call that failed behind it
    const auto in = m->acquire(flow, cm::access::read);
    auto held = m->acquire(weight, cm::access::read);
    const auto slope = m->gradient(std::move(held));
    if (m->rehearsing()) return;
    for (std::size_t index = 0; index < slope.size(); ++index) {
      const float value = in.span()[index % columns] * 0.125F + static_cast<float>(index % 5);
      if constexpr (std::is_same_v<Kind, float>)
        slope.span()[index] = value;
      else
        slope.span()[index] = cm::round_to<Kind>(value);
    }
  }
  void begin(std::optional<cm::iteration<manager::engine_type>>& scope)
  {
    struct in_place_iteration {
      manager& m;
      operator cm::iteration<manager::engine_type>() const { return m.iteration(); }
    };
    scope.emplace(in_place_iteration{*m});
  }

  /// Another manager takes the profile of the first one and its checkpoint.
  void follow(const cm::access_record& profile)
  {
    set_up();
    declare();
    call(promise::strong, [&] { m->use_profile(profile); });
    call(promise::basic, [this] { cm::checkpoint::load(*m, *folder); });
    step();
  }

  template <class Work>
  void call(promise what, Work work)
  {
    while (true) {
      support::faults.disarm();
      const std::string before = what == promise::strong ? state() : "";
      support::faults.resume();
      try {
        work();
        break;
      } catch (const std::bad_alloc&) {
        if (++errors == 2) support::faults.repair();
        if (errors > 20) throw;
      }
      support::faults.disarm();
      if (what == promise::strong && broken.empty() && state() != before) broken = before + " became " + state();
      support::faults.resume();
    }
    is_sealed_ = is_sealed_ || need_.smallest_device.count() > 0;
  }

  /// The public state of a manager, read without changing it.
  [[nodiscard]] std::string state()
  {
    if (!m) return "";
    std::string all = m->report().json();
    m->for_each_tensor([&](cm::tensor_handle it, const cm::tensor_info& info) {
      all += "\n" + m->name_of(it) + " " + std::to_string(info.extents.elements()) + " ordinal " +
             std::to_string(info.ordinal);
      if (is_sealed_) all += " state " + std::to_string(static_cast<int>(m->state_of(it)));
    });
    m->for_each_list([&](cm::list_id, const cm::list_spec& spec) { all += "\n" + std::string{spec.name}; });
    m->content().states().for_each(
        [&](std::string_view name, std::span<std::byte>) { all += "\n" + std::string{name}; });
    return all;
  }
  [[nodiscard]] std::string text()
  {
    std::string all =
        "needs " + std::to_string(need_.smallest_device.count()) + " " + std::to_string(need_.smallest_host.count());
    m->for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info&) {
      const std::array lists{cm::value_list, m->list("master"), m->list("adam/momentum"), m->list("adam/variance")};
      for (const cm::list_id list : lists) {
        if (!m->is_in(it, list)) continue;
        const auto pin = m->acquire_bytes(it, list, cm::access::read, cm::memory_location::host);
        all += "\n";
        for (const std::uint8_t byte : pin.span()) all += static_cast<char>(byte);
      }
    });
    return all + "\nupdates " + std::to_string(kernel->progress.number);
  }

  bool in_place_;
  cm::bytes device_;
  std::optional<cm::optimizer::adam> kernel;
  cm::stacked<cm::bf16> weights{};
  cm::tensor<float> bias{}, flow{};
  cm::tensor<cm::bf16> frozen{};
  cm::memory_requirement need_{};
  bool is_sealed_ = false;

 public:
  std::optional<support::memory_folder> folder;
  std::optional<backend> memory;
  std::optional<manager> m;
};

void fail_every_allocation(bool in_place, cm::bytes device, std::uint64_t stride)
{
  std::string expected;
  {
    trainer quiet{in_place, device};
    support::faults.arm({});
    expected = quiet.run();
    REQUIRE(quiet.errors == 0);
  }
  const std::uint64_t calls = support::faults.calls(fault_source::heap);
  REQUIRE(calls > 500);
  std::uint64_t runs = 0;
  std::uint64_t caught = 0;
  for (std::uint64_t index = 0; index < calls; index += stride, ++runs) {
    INFO((in_place ? "in place" : "separate") << ", allocation " << index << " of " << calls);
    const std::int64_t blocks = support::live_blocks;
    const std::int64_t arenas = support::live_arenas;
    bool same = false;
    std::string broken;
    int errors = 0;
    {
      trainer it{in_place, device};
      support::faults.arm({fault_source::heap, index, runs % 2 == 1});
      const std::string left = it.run();
      same = left == expected;
      broken = it.broken;
      errors = it.errors;
    }
    const std::int64_t left_blocks = support::live_blocks - blocks - (broken.empty() ? 0 : 1);
    CHECK(left_blocks == 0);
    CHECK(support::live_arenas == arenas);
    REQUIRE(broken == "");
    REQUIRE(same);
    REQUIRE(support::faults.struck() > 0);
    caught += errors > 0 ? 1 : 0;
  }
  CHECK(caught * 20 > runs * 19);  // std::stable_sort does without
  std::cout << (in_place ? "in place" : "separate") << ", " << device.count() << " B: " << runs << " of " << calls
            << " allocations failed, each in a run of its own, and the call was tried again\n";
}

}  // namespace

TEST_CASE("a call without memory leaves everything as it was, and is tried again", "[faults]")
{
  fail_every_allocation(false, 1_MiB, support::sanitized ? 101 : 3);
  fail_every_allocation(true, 1_MiB, support::sanitized ? 131 : 5);
}

TEST_CASE("so it is at every call, and where chunks have to leave", "[faults][.slow]")
{
  for (const bool in_place : {false, true})
    for (const cm::bytes device : {1_MiB, 24_KiB}) fail_every_allocation(in_place, device, 1);
}

}  // namespace single_calls_test
