// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/trace/trace_sink.hpp>
#include <support/forked_child.hpp>
#include <support/refusal.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

/// Mistakes of a trainer that version 0.1 did not report, one function each: the library's answer, or "" for silence.
namespace mistakes {

namespace cm = chunkmem;
using namespace cm::literals;

/// Blocks the first lease until it may go on, so that a test decides when a second thread comes.
class gate_sink {
 public:
  using policy_kind = cm::sink_kind;
  static constexpr std::string_view name = "gate_sink";
  struct gate {
    std::atomic<bool> is_inside{false};
    std::atomic<bool> may_go{false};
  };

  gate_sink() = default;
  explicit gate_sink(gate& it) noexcept : gate_{&it} {}
  void record(const cm::trace_event& event) noexcept
  {
    if (gate_ == nullptr || event.what != cm::trace_event_kind::lease) return;
    gate_->is_inside = true;
    gate_->is_inside.notify_all();
    gate_->may_go.wait(false);
  }

 private:
  gate* gate_ = nullptr;
};

/// Four weights of 250 floats, which share a chunk, in a device of two frames.
template <class... Policies>
struct rig {
  using manager = cm::manager<cm::backend::host_arena, cm::checks::full, Policies...>;

  cm::backend::host_arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  manager m;
  cm::optimizer::sgd sgd;
  cm::stacked<float> weights;

  template <class... Given>
  explicit rig(Given... given) : m{memory, {.chunk_bytes = 4_KiB}, given...}
  {
    m.use(sgd);
    weights = m.template add_stacked<float>(4, {250}, cm::role::parameter);
    constexpr std::string_view names[] = {"wte", "wpe", "up", "down"};
    for (std::uint32_t index = 0; index < 4; ++index) m.name(weights.slice(index), names[index]);
    for (std::uint32_t index = 0; index < 4; ++index) {
      const auto pin = m.acquire(weights.slice(index), cm::access::write);
      for (float& value : pin.span()) value = 1.0F;
    }
  }

  /// A gradient of ones for each weight from this one on.
  void write_gradients(std::uint32_t first)
  {
    for (std::uint32_t index = first; index < 4; ++index) {
      auto gradient = m.gradient(weights.slice(index));
      for (float& value : gradient.span()) value = gradient.beta() * value + 1.0F;
      if (gradient.beta() == 0)
        for (float& value : gradient.span()) value = 1.0F;
      m.gradient_done(std::move(gradient));
    }
  }
};

/// The text of a usage_error, or "" where none was thrown.
template <class Work>
std::string answer_of(Work work)
{
  return support::refusal<cm::usage_error>(work);
}

/// Without the address sanitizer, which would end the program here; that it guards the byte is another question.
[[gnu::noinline, gnu::no_sanitize_address]] inline void write_unseen(const float* to, float value)
{
  *const_cast<volatile float*>(to) = value;
}

[[nodiscard, gnu::noinline, gnu::no_sanitize_address]] inline bool holds_nan(const float* at)
{
  const float value = *const_cast<const volatile float*>(at);
  return value != value;
}

inline std::string write_through_a_read_pin()
{
  rig<> it;
  {
    const auto pin = it.m.acquire(it.weights.slice(0), cm::access::read);
    write_unseen(pin.data() + 3, 2.0F);
  }
  return answer_of([&] { (void)it.m.acquire(it.weights.slice(1), cm::access::read); });
}

inline std::string write_through_a_kept_pointer()
{
  rig<> it;
  const float* const kept = it.m.acquire(it.weights.slice(0), cm::access::read).span().data();
  write_unseen(kept + 7, 5.0F);
  return answer_of([&] {
    (void)it.m.acquire(it.weights.slice(0), cm::access::read);
    it.m.verify();
  });
}

inline std::string write_past_the_end_of_a_tensor()
{
  rig<> it;
  {
    const auto pin = it.m.acquire(it.weights.slice(0), cm::access::read_write);
    write_unseen(pin.data() + 256, 5.0F);  // the next tensor begins at the next multiple of 256 B
  }
  return answer_of([&] { it.m.verify(); });
}

inline std::string some_elements_of_a_gradient()
{
  rig<> it;
  const auto scope = it.m.iteration();
  auto gradient = it.m.gradient(it.weights.slice(2));
  if (gradient.beta() == 0)
    for (std::size_t index = 0; index < 100; ++index) gradient.span()[index] = 1.0F;
  return answer_of([&] { it.m.gradient_done(std::move(gradient)); });
}

inline std::string a_gradient_that_is_opened_and_not_written()
{
  rig<> it;
  const auto scope = it.m.iteration();
  it.write_gradients(1);
  (void)it.m.gradient(it.weights.slice(0)).beta();
  return answer_of([&] { cm::optimizer::step(it.m, it.sgd); });
}

inline std::string a_gradient_added_to_without_beta()
{
  rig<> it;
  const auto scope = it.m.iteration();
  auto gradient = it.m.gradient(it.weights.slice(3));
  for (float& value : gradient.span()) value = 1.0F;
  return answer_of([&] { it.m.gradient_done(std::move(gradient)); });
}

inline std::string a_weight_without_a_gradient()
{
  rig<> it;
  const auto scope = it.m.iteration();
  it.write_gradients(2);
  return answer_of([&] { cm::optimizer::step(it.m, it.sgd); });
}

inline std::string two_threads_in_one_manager()
{
  gate_sink::gate gate;
  rig<gate_sink> it{gate_sink{gate}};
  std::thread other{[&] { (void)it.m.lease(cm::tier::host, 256_B); }};
  gate.is_inside.wait(false);
  const std::string answer = answer_of([&] { (void)it.m.acquire(it.weights.slice(0), cm::access::read); });
  gate.may_go = true;
  gate.may_go.notify_all();
  other.join();
  return answer;
}

/// Version 0.1 took the float for an integer of bits, and stored 0001.
inline std::string a_float_taken_for_the_bits_of_a_bf16()
{
  static_assert(!std::is_convertible_v<float, cm::bf16> && !std::is_constructible_v<cm::bf16, int>);
  const bool is_right = static_cast<float>(cm::bf16(1.5F)) == 1.5F && static_cast<float>(cm::bf16{1.5F}) == 1.5F &&
                        static_cast<float>(static_cast<cm::bf16>(1.5F)) == 1.5F;
  return is_right ? "the float is converted, and an integer does not compile" : "";
}

/// A trainer that registers nothing by hand: the count of updates is saved, or the save is silent about its loss.
inline std::string a_restart_without_the_optimizers_state()
{
  rig<> it;
  std::string answer;
  it.m.content().states().for_each([&](std::string_view name, std::span<std::byte> content) {
    if (content.data() == reinterpret_cast<std::byte*>(&it.sgd.progress.number)) answer = name;
  });
  return answer;
}

inline std::string learning_rates_that_are_no_numbers()
{
  rig<> it;
  const auto scope = it.m.iteration();
  it.write_gradients(0);
  std::string all;
  for (const float rate : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.0F}) {
    const std::string one = answer_of([&] { cm::optimizer::step(it.m, it.sgd, {.learning_rate = rate}); });
    if (one.empty()) return {};
    all += one;
  }
  return all;
}

inline std::string fewer_micro_batches_than_begun()
{
  rig<> it;
  auto iteration = it.m.iteration(4);
  for (const std::uint32_t named : {0U, 1U}) iteration.pass(cm::pass::forward, named);
  return answer_of([&] { iteration.end(); });
}

inline std::string a_kernel_that_was_not_declared()
{
  rig<> it;
  cm::optimizer::sgd other;
  const auto scope = it.m.iteration();
  it.write_gradients(0);
  return answer_of([&] { cm::optimizer::step(it.m, other); });
}

inline std::string one_kernel_over_two_managers()
{
  rig<> it;
  rig<> second;
  const auto scope = second.m.iteration();
  second.write_gradients(0);
  return answer_of([&] { cm::optimizer::step(second.m, it.sgd); });
}

/// The child has no workers: a copy would wait for ever.
inline std::string a_forked_child_that_trains()
{
  rig<> it;
  const int result = support::result_in_child([&] {
    const bool refused = support::is_refused_to_children([&] {
      for (std::uint32_t index = 0; index < 4; ++index)
        (void)it.m.acquire(it.weights.slice(index), cm::access::read, cm::memory_location::host);
    });
    return refused ? 0 : 1;
  });
  return result == 0 ? "a typed error in the child" : "";
}

inline std::string an_access_that_is_none_of_the_three()
{
  return answer_of([] { (void)cm::access{static_cast<cm::access_mode>(7)}; });
}

inline std::string a_number_of_steps_that_cannot_be()
{
  rig<> it;
  const auto scope = it.m.iteration();
  it.write_gradients(0);
  it.sgd.progress.number = UINT64_MAX;
  return answer_of([&] { cm::optimizer::step(it.m, it.sgd); });
}

}  // namespace mistakes
