// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/any_manager.hpp>
#include <support/catch.hpp>
#include <support/decisions_in.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Random operations on a manager, compared with a model that is only vectors: contents, states, and every error.
namespace random_world {

namespace cm = chunkmem;
using namespace cm::literals;

inline constexpr cm::bytes frame = 1_KiB;

/// The same numbers on every machine.
class dice {
 public:
  explicit dice(std::uint64_t seed) noexcept : state_{seed} {}
  std::uint64_t roll() noexcept
  {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::uint32_t below(std::uint32_t end) noexcept { return static_cast<std::uint32_t>((roll() >> 33) % end); }
  bool one_in(std::uint32_t n) noexcept { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

/// One tensor in one list, as the model sees it. Element i is `base` + i.
struct modelled {
  std::uint32_t chunk = 0;
  std::uint32_t size = 0;  ///< elements
  bool zero_list = false;  ///< its first use finds zeros
  bool zeros = false;      ///< it holds zeros, not the pattern
  float base = 0;
  std::uint32_t pins = 0;
  cm::tensor_state state = cm::tensor_state::free;

  [[nodiscard]] float at(std::uint32_t i) const noexcept { return zeros ? base : base + static_cast<float>(i); }
};

struct chunk_model {
  std::uint32_t frames = 1;
  std::uint32_t device_pins = 0;
  std::uint32_t device_writers = 0;
  std::uint32_t host_pins = 0;
  std::uint32_t host_writers = 0;
};

struct tally {
  std::uint64_t operations = 0;
  std::uint64_t illegal = 0;  ///< refused as the model says
  std::uint64_t accesses = 0;
  std::uint64_t shortages = 0;  ///< out of memory
  std::uint64_t repeated = 0;   ///< iterations that followed their record
  std::uint64_t diverged = 0;
  std::uint64_t loads = 0;

  void operator+=(const tally& other) noexcept
  {
    operations += other.operations;
    illegal += other.illegal;
    accesses += other.accesses;
    shortages += other.shortages;
    repeated += other.repeated;
    diverged += other.diverged;
    loads += other.loads;
  }
};

/// The model places tensors as they are declared.
[[nodiscard]] inline support::policies policies_of(std::uint64_t seed)
{
  using support::every_eviction, support::every_layout;
  return {.eviction = every_eviction{every_eviction::names[seed % every_eviction::names.size()]},
          .layout = every_layout{"append_layout"}};
}

template <class Manager, class Backend>
class world {
 public:
  template <class Options>
  world(const Options& options, std::uint64_t seed, bool launches)
      : memory_{options},
        m_{support::make_manager<Manager>(memory_, {.chunk_bytes = frame}, policies_of(seed))},
        dice_{seed},
        launches_{launches}
  {
    declare();
    dice filling{seed};
    for (std::size_t index = 0; index < slots_.size(); ++index)
      if (!is_short_lived(index)) access(index, cm::access::write, filling);
    release_all();
  }

  /// Runs about `operations` operations and gives everything back.
  tally run(std::uint64_t operations)
  {
    while (sum_.operations < operations) {
      const std::uint64_t script = dice_.roll();
      const std::uint32_t rounds = 1 + dice_.below(8);
      const std::uint32_t length = 20 + dice_.below(60);
      for (std::uint32_t round = 0; round < rounds; ++round) run_iteration(script, length);
      for (std::uint32_t extra = dice_.below(12); extra > 0; --extra) operate(dice_);
      release_all();
      if (dice_.one_in(3)) exchange();
    }
    for (std::size_t index = 0; index < slots_.size(); ++index) compare_state(index);
    finish();
    sum_.loads = m_.report().loads;
    return sum_;
  }

  [[nodiscard]] Backend& memory() noexcept { return memory_; }

 private:
  static constexpr std::uint32_t parameters = 9;
  static constexpr std::uint32_t others = 9;
  using pin = typename Manager::template pin_type<const float>;
  using scope_type = decltype(std::declval<Manager&>().iteration());
  struct held_pin {
    pin held;
    std::size_t slot;
    bool device;
    bool writes;
  };
  struct held_lease {
    cm::lease<typename Manager::engine_type> held;
    float base;
  };

  // Slots: values of parameters, their gradients, their list, then buffers and activations.
  [[nodiscard]] static std::size_t value_of(std::uint32_t parameter) noexcept { return parameter; }
  [[nodiscard]] static std::size_t gradient_of(std::uint32_t parameter) noexcept { return parameters + parameter; }
  [[nodiscard]] static std::size_t list_of(std::uint32_t parameter) noexcept { return 2 * parameters + parameter; }
  [[nodiscard]] static bool is_other(std::size_t slot) noexcept { return slot >= 3 * parameters; }
  [[nodiscard]] static bool is_short_lived(std::size_t slot) noexcept
  {
    return is_other(slot) ? slot % 2 == 0 : slot / parameters == 1;
  }

  void declare()
  {
    const cm::list_spec specs[] = {{"twin", cm::dtype::float32, 1}};
    m_.use(specs);
    constexpr std::uint32_t sizes[] = {256, 10, 700, 64, 100, 300, 256, 5, 500};
    for (const std::uint32_t size : sizes) tensors_.push_back(m_.template add<float>({size}, cm::role::parameter));
    for (std::uint32_t index = 0; index < others; ++index)
      tensors_.push_back(
          m_.template add<float>({sizes[index]}, index % 2 == 0 ? cm::role::buffer : cm::role::activation));
    slots_.resize(3 * parameters + others);
    for (std::uint32_t list = 0; list < 3; ++list) place(list * parameters, sizes, 0, 1);
    place(3 * parameters, sizes, 0, 2);
    place(3 * parameters, sizes, 1, 2);
    for (std::uint32_t index = 0; index < parameters; ++index) slots_[list_of(index)].zero_list = true;
    twin_ = m_.list("twin");
  }

  /// The layout by itself, not asked of the manager.
  template <class Sizes>
  void place(std::size_t first, const Sizes& sizes, std::uint32_t begin, std::uint32_t stride)
  {
    cm::append_layout layout;
    layout.reset(frame);
    const auto base = static_cast<std::uint32_t>(chunks_.size());
    for (std::uint32_t index = begin; index < others; index += stride) {
      const cm::chunk_place where = layout.place(cm::bytes{std::uint64_t{sizes[index]} * 4});
      modelled& slot = slots_[first + index];
      slot.chunk = base + where.chunk;
      slot.size = sizes[index];
      if (slot.chunk >= chunks_.size()) chunks_.resize(slot.chunk + 1);
      chunks_[slot.chunk].frames = std::max(chunks_[slot.chunk].frames, where.frames);
    }
  }

  void run_iteration(std::uint64_t script, std::uint32_t length)
  {
    release_all();
    dice steps{script};
    const std::uint32_t stray = dice_.one_in(3) ? dice_.below(length) : length;  // from here on something else happens
    inside_ = true;
    {
      auto scope = m_.iteration(script % 3 == 0 ? "eval" : "train", 2);
      for (std::uint32_t step = 0; step < length; ++step) {
        if (step == stray) steps = dice{dice_.roll()};
        if (steps.one_in(12)) change_pass(scope, steps);
        operate(steps);
      }
      for (const std::uint32_t micro_batch : {0U, 1U}) scope.pass(pass_, micro_batch);  // each has to be named
      release_all();
      for (std::size_t slot = 0; slot < slots_.size(); ++slot)
        // as a trainer leaves a step
        if (is_short_lived(slot) && slots_[slot].state != cm::tensor_state::free) drop(slot);
    }
    inside_ = false;
    pass_ = cm::pass::none;
    ++(m_.drifted() ? sum_.diverged : sum_.repeated);
  }

  template <class Scope>
  void change_pass(Scope& scope, dice& steps)
  {
    if (steps.one_in(4)) return refuse([&] { scope.pass(cm::pass::forward, 2); });
    const auto next = static_cast<cm::pass>(steps.below(3));
    scope.pass(next, steps.below(2));
    pass_ = next;
  }

  void operate(dice& steps)
  {
    ++sum_.operations;
    const std::uint32_t what = steps.below(100);
    if (what < 48) return access(pick(steps), static_cast<cm::access_mode>(steps.below(3)), steps);
    if (what < 68) return pins_.empty() ? void() : release(steps.below(static_cast<std::uint32_t>(pins_.size())));
    if (what < 74) return lease(steps);
    if (what < 80) return leases_.empty() ? void() : end_lease(steps.below(static_cast<std::uint32_t>(leases_.size())));
    if (what < 85) {
      const std::size_t index = pick(steps);  // mostly what a trainer drops: gradients and activations
      if (steps.one_in(6) || slots_[index].pins > 0 || is_short_lived(index)) drop(index);
      return;
    }
    if (what < 89) return gradient(steps.below(parameters));
    mistake(steps);
  }

  [[nodiscard]] std::size_t pick(dice& steps) noexcept
  {
    return steps.below(static_cast<std::uint32_t>(slots_.size()));
  }

  // Accesses.

  void access(std::size_t index, cm::access how, dice& steps)
  {
    modelled& slot = slots_[index];
    const std::uint32_t value = steps.below(1000);
    const bool on_host = steps.one_in(4);
    const bool by_kernel = launches_ && !on_host && !is_listed(index) && steps.one_in(2);
    const bool keep = pins_.size() < 5 && steps.one_in(2);
    const bool fresh = slot.state == cm::tensor_state::free;
    chunk_model& chunk = chunks_[slot.chunk];
    const bool writing = cm::writes(how) || (fresh && slot.zero_list);
    ++sum_.accesses;
    if (fresh && how != cm::access::write && !slot.zero_list)
      return refuse([&] { (void)acquire(index, how, on_host, by_kernel); });
    const bool clash = on_host ? (chunk.device_pins > 0 && writing) || chunk.device_writers > 0
                               : chunk.host_writers > 0 || (writing && chunk.host_pins > 0);
    if (clash) return refuse([&] { (void)acquire(index, how, on_host, by_kernel); });
    std::optional<pin> got;
    try {
      got.emplace(acquire(index, how, on_host, by_kernel));
    } catch (const cm::usage_error&) {
      // whether the host's copy is still good is the manager's business
      REQUIRE((on_host && chunk.device_pins > 0));
      return;
    } catch (const cm::out_of_memory& shortage) {
      return note_shortage(shortage, chunk.frames, on_host);
    }
    if (fresh) {
      slot.zeros = slot.zero_list && how != cm::access::write;
      if (slot.zeros) slot.base = 0;
    }
    slot.state = cm::tensor_state::compute;
    ++slot.pins;
    if (by_kernel) {
      work_by_kernel(slot, got->data_without_const(), how, static_cast<float>(value));
    } else {
      work(slot, got->span(), cm::writes(how) ? got->writable() : std::span<float>{}, how, static_cast<float>(value));
    }
    compare_state(index);
    ++(on_host ? chunk.host_pins : chunk.device_pins);
    if (writing) ++(on_host ? chunk.host_writers : chunk.device_writers);
    pins_.push_back({std::move(*got), index, !on_host, writing});
    if (by_kernel || !keep) release(pins_.size() - 1);
  }

  [[nodiscard]] static bool is_listed(std::size_t index) noexcept
  {
    return index >= parameters && index < 3 * parameters;
  }

  pin acquire(std::size_t index, cm::access how, bool on_host, bool by_kernel)
  {
    const cm::memory_location place = on_host ? cm::memory_location::host : cm::memory_location::device;
    if (is_listed(index)) {
      const cm::list_id list = index < 2 * parameters ? cm::gradient_list : twin_;
      return m_.template acquire<float>(tensors_[index % parameters], list, how, place);
    }
    const auto tensor = tensors_[is_other(index) ? index - 2 * parameters : index];
    if (by_kernel) return m_.acquire(tensor, how, cm::agent::compute);
    return m_.acquire(tensor, how, place);
  }

  void work(modelled& slot, std::span<const float> values, std::span<float> to, cm::access how, float value)
  {
    REQUIRE(values.size() == slot.size);
    if (how != cm::access::write) check(slot, values.data());
    if (how == cm::access::write) {
      slot.base = value;
      slot.zeros = false;
    }
    if (how == cm::access::read_write) slot.base += 1;
    if (how != cm::access::read)
      for (std::uint32_t i = 0; i < slot.size; ++i) to[i] = slot.at(i);
  }

  void check(const modelled& slot, const float* values) const
  {
    std::uint32_t wrong = 0;
    for (std::uint32_t i = 0; i < slot.size; ++i) wrong += values[i] == slot.at(i) ? 0U : 1U;
    REQUIRE(wrong == 0);
  }

  void work_by_kernel(modelled& slot, float* values, cm::access how, float value)
  {
    const modelled before = slot;
    if (how == cm::access::write) {
      slot.base = value;
      slot.zeros = false;
    }
    if (how == cm::access::read_write) slot.base += 1;
    memory_.launch(cm::agent::compute,
                   [values, how, wrong = &wrong_, size = slot.size, old = before.base, fresh = slot.base,
                    step_before = before.zeros ? 0.0F : 1.0F, step = slot.zeros ? 0.0F : 1.0F]() noexcept {
                     if (how != cm::access::write)
                       for (std::uint32_t i = 0; i < size; ++i)
                         if (values[i] != old + step_before * static_cast<float>(i))
                           wrong->fetch_add(1, std::memory_order_relaxed);
                     if (how != cm::access::read)
                       for (std::uint32_t i = 0; i < size; ++i) values[i] = fresh + step * static_cast<float>(i);
                   });
  }

  void release(std::size_t which)
  {
    held_pin& it = pins_[which];
    modelled& slot = slots_[it.slot];
    if (it.held.is_live() && it.device && !launches_) check(slot, it.held.data());
    it.held.release();
    if (which % 4 == 0) refuse([&] { (void)it.held.data(); });
    chunk_model& chunk = chunks_[slot.chunk];
    --(it.device ? chunk.device_pins : chunk.host_pins);
    if (it.writes) --(it.device ? chunk.device_writers : chunk.host_writers);
    if (--slot.pins == 0) slot.state = cm::tensor_state::hold;
    compare_state(it.slot);
    pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void release_all()
  {
    while (!pins_.empty()) release(dice_.below(static_cast<std::uint32_t>(pins_.size())));
    while (!leases_.empty()) end_lease(leases_.size() - 1);
  }

  void lease(dice& steps)
  {
    const cm::tier where = steps.one_in(5) ? cm::tier::host : cm::tier::device;
    const cm::bytes size{1 + steps.below(where == cm::tier::host ? 500 : 1800)};
    if (leases_.size() >= 3) return;
    try {
      leases_.push_back({m_.lease(where, size), static_cast<float>(steps.below(1000))});
    } catch (const cm::out_of_memory& shortage) {
      return note_shortage(shortage, 2, where == cm::tier::host);
    }
    for (float& value : leases_.back().held.template span<float>()) value = leases_.back().base;
  }

  void end_lease(std::size_t which)
  {
    for (const float value : leases_[which].held.template span<float>()) REQUIRE(value == leases_[which].base);
    leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void drop(std::size_t index)
  {
    modelled& slot = slots_[index];
    if (index >= 2 * parameters && !is_other(index)) return;  // lists cannot be dropped
    if (index >= parameters && index < 2 * parameters) {
      const auto tensor = tensors_[index - parameters];
      REQUIRE(m_.has_gradient(tensor) == (slot.state != cm::tensor_state::free));
      if (slot.pins > 0) return refuse([&] { m_.drop_gradient(tensor); });
      m_.drop_gradient(tensor);
    } else {
      const auto tensor = tensors_[is_other(index) ? index - 2 * parameters : index];
      if (slot.pins > 0) return refuse([&] { m_.drop(tensor); });
      m_.drop(tensor);
    }
    slot.state = cm::tensor_state::free;
    compare_state(index);
  }

  void gradient(std::uint32_t parameter)
  {
    modelled& slot = slots_[gradient_of(parameter)];
    if (chunks_[slot.chunk].host_pins > 0) return refuse([&] { (void)m_.gradient(tensors_[parameter]); });
    const bool fresh = slot.state == cm::tensor_state::free;
    try {
      const auto got = m_.gradient(tensors_[parameter]);
      REQUIRE(got.beta() == (fresh ? 0.0F : 1.0F));
      if (fresh) slot.zeros = false;
      work(slot, got.span(), got.span(), fresh ? cm::access::write : cm::access::read_write, 3);
      slot.state = cm::tensor_state::compute;
    } catch (const cm::out_of_memory& shortage) {
      return note_shortage(shortage, chunks_[slot.chunk].frames, false);
    }
    if (slot.pins == 0) slot.state = cm::tensor_state::hold;
  }

  /// Weights and their twins change places; between iterations and without pins.
  void exchange()
  {
    m_.exchange(cm::value_list, twin_);
    for (std::uint32_t index = 0; index < parameters; ++index) {
      std::swap(slots_[value_of(index)], slots_[list_of(index)]);
      std::swap(slots_[value_of(index)].zero_list, slots_[list_of(index)].zero_list);
    }
  }

  // Mistakes.

  void refuse(const std::function<void()>& call)
  {
    ++sum_.illegal;
    const std::string before = support::decisions_in(m_.report());
    REQUIRE_THROWS_AS(call(), cm::usage_error);
    REQUIRE(support::decisions_in(m_.report()) == before);
  }

  void mistake(dice& steps)
  {
    switch (steps.below(8)) {
      case 0: return refuse([&] { (void)m_.acquire(cm::tensor<float>{}, cm::access::write); });
      case 1:
        return refuse([&] {
          (void)m_.acquire(cm::tensor<float>{{tensors_[0].id, tensors_[0].owner + 2}}, cm::access::write);
        });
      case 2: return refuse([&] { (void)m_.lease(cm::tier::device, 0_B); });
      case 3: return refuse([&] { (void)m_.acquire(tensors_[1], cm::access::write, static_cast<cm::agent>(6)); });
      case 4:
        return refuse([&] {
          (void)m_.template acquire<float>(tensors_[1], cm::list_id{9}, cm::access::read, cm::memory_location::host);
        });
      case 5: return refuse([&] { (void)m_.gradient(tensors_[parameters + 1]); });
      case 6: return inside_ ? refuse([&] { (void)m_.iteration(); }) : refuse([&] { (void)m_.iteration("train", 0); });
      default:
        return inside_ ? refuse([&] { m_.exchange(cm::value_list, twin_); })
                       : refuse([&] { m_.exchange(cm::value_list, cm::list_id{7}); });
    }
  }

  /// Out of memory is right only where pins and leases are in the way; the message names the tier and its numbers.
  void note_shortage(const cm::out_of_memory& refused, std::uint32_t frames, bool on_host)
  {
    ++sum_.shortages;
    const cm::memory_shortage& it = refused.shortage();
    REQUIRE(it.capacity <= m_.report().capacity[it.where].count());
    if (it.where == cm::tier::host || on_host) return;  // host room depends on what the manager keeps there
    std::uint64_t pinned = 0;
    for (const chunk_model& chunk : chunks_) pinned += chunk.device_pins > 0 ? chunk.frames : 0;
    for (const held_lease& lease : leases_) pinned += lease.held.size().count() / frame.count() + 2;
    // a window needs neighbours: each pin can spoil as many places as the window is long
    const std::uint64_t spoilt = pinned + (frames - 1) * (pins_.size() + leases_.size() + 1);
    REQUIRE(spoilt + frames > it.capacity / frame.count());
    REQUIRE((pinned > 0 || !leases_.empty()));
  }

  void compare_state(std::size_t index)
  {
    if (is_listed(index)) {
      if (index < 2 * parameters)
        REQUIRE(m_.has_gradient(tensors_[index - parameters]) == (slots_[index].state != cm::tensor_state::free));
      return;
    }
    REQUIRE(m_.state_of(tensors_[is_other(index) ? index - 2 * parameters : index]) == slots_[index].state);
  }

  void finish()
  {
    for (std::size_t index = 0; index < slots_.size(); ++index) {
      if (slots_[index].state == cm::tensor_state::free) continue;
      try {
        const pin last = acquire(index, cm::access::read, false, false);
        check(slots_[index], last.data());
      } catch (const cm::out_of_memory& shortage) {
        note_shortage(shortage, chunks_[slots_[index].chunk].frames, false);
      }
    }
    REQUIRE(wrong_.load() == 0);
    const cm::report seen = m_.report();
    for (const cm::tier where : {cm::tier::device, cm::tier::host}) REQUIRE(seen.peak[where] <= seen.capacity[where]);
  }

  Backend memory_;
  std::atomic<std::uint64_t> wrong_{0};  // before the manager: kernels may still run when it ends
  Manager m_;
  dice dice_;
  bool launches_;
  bool inside_ = false;
  cm::pass pass_ = cm::pass::none;
  cm::list_id twin_{};
  std::vector<cm::tensor<float>> tensors_;
  std::vector<modelled> slots_;
  std::vector<chunk_model> chunks_;
  std::vector<held_pin> pins_;
  std::vector<held_lease> leases_;
  tally sum_;
};

}  // namespace random_world
