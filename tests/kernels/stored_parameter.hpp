// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <support/hostile.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace kernels {

namespace cm = chunkmem;
namespace opt = chunkmem::optimizer;

/// Bytes that begin at a chosen distance from a multiple of 16.
class placed_bytes {
 public:
  placed_bytes() = default;
  placed_bytes(std::size_t size, std::size_t distance) : words_(size / 16 + 3), size_{size}, distance_{distance} {}

  [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()) + distance_; }
  [[nodiscard]] const std::byte* data() const { return reinterpret_cast<const std::byte*>(words_.data()) + distance_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool operator==(const placed_bytes& other) const
  {
    return size_ == other.size_ && (size_ == 0 || std::memcmp(data(), other.data(), size_) == 0);
  }

 private:
  struct alignas(16) word {
    std::byte bytes[16] = {};
  };
  std::vector<word> words_;
  std::size_t size_ = 0;
  std::size_t distance_ = 0;
};

/// The storage of one parameter.
struct parameter_case {
  cm::dtype value;
  cm::dtype gradient;
  bool in_place;  ///< the gradient has the value's bytes, from the second step on
};

/// Every kind for a kernel with or without masters.
[[nodiscard]] inline std::vector<parameter_case> parameter_cases(bool with_masters)
{
  using enum cm::dtype;
  std::vector<parameter_case> all{{float32, float32, false}};
  for (const cm::dtype value : {bfloat16, float16}) {
    all.push_back({value, value, false});
    all.push_back({value, float32, false});
    if (with_masters) all.push_back({value, value, true});
  }
  return all;
}

[[nodiscard]] inline std::string name_of(const parameter_case& it)
{
  std::string name;
  return name.append(cm::name_of(it.value))
      .append("/")
      .append(cm::name_of(it.gradient))
      .append(it.in_place ? "/in place" : "");
}

/// Numbers in a type: hostile at every 11th place, or at every place where `all_hostile`.
inline void fill(placed_bytes& bytes, cm::dtype type, std::uint64_t key, bool all_hostile = false)
{
  const std::size_t size = cm::size_of(type);
  for (std::size_t index = 0; index * size < bytes.size(); ++index) {
    const std::uint64_t here = all_hostile ? (key + index) * 11 : key + index;
    const float wide = support::hostile(here);
    const float tame = support::tame(here);
    std::uint16_t half =
        type == cm::dtype::bfloat16 ? cm::round_to<cm::bf16>(tame).bits() : cm::round_to<cm::fp16>(tame).bits();
    half = support::hostile_16_bits(here, half);
    if (size == 2)
      std::memcpy(bytes.data() + 2 * index, &half, 2);
    else
      std::memcpy(bytes.data() + 4 * index, &wide, 4);
  }
}

/// One parameter with all its lists, as a kernel takes them.
struct stored_parameter {
  template <class Kernel>
  stored_parameter(const Kernel& kernel, const parameter_case& what, std::size_t count, std::size_t distance = 0)
      : how{what},
        elements{count},
        value{count * cm::size_of(what.value), distance},
        gradient{count * cm::size_of(what.gradient), distance}
  {
    fill(value, how.value, 1);
    for (const cm::list_spec& spec : kernel.lists()) {
      if (spec.use == cm::list_use::master && !cm::is_16_bit(how.value)) continue;
      specs.push_back(spec);
      lists.emplace_back(count * cm::size_of(spec.type), distance);
    }
  }

  /// A gradient for this step, where it belongs.
  void differentiate(std::uint64_t step, bool all_hostile = false)
  {
    placed_bytes& target = is_over(step) ? value : gradient;
    fill(target, how.gradient, 1'100'000 * step + step % 2, all_hostile);
  }
  [[nodiscard]] bool is_over(std::uint64_t step) const noexcept { return how.in_place && step > 1; }
  [[nodiscard]] opt::parameter_bytes describe(std::uint64_t step)
  {
    opt::parameter_bytes all;
    all.value = value.data();
    all.value_type = how.value;
    all.gradient = is_over(step) ? value.data() : gradient.data();
    all.gradient_type = how.gradient;
    for (std::size_t index = 0; index < lists.size(); ++index) {
      all.lists[all.list_count++] = {lists[index].data(), specs[index].type, specs[index].use};
      all.fresh_master |= step == 1 && specs[index].use == cm::list_use::master;
    }
    all.elements = elements;
    all.tensor = 4;
    return all;
  }
  [[nodiscard]] bool operator==(const stored_parameter& other) const
  {
    return value == other.value && lists == other.lists;
  }

  parameter_case how;
  std::size_t elements;
  placed_bytes value, gradient;
  std::vector<cm::list_spec> specs;
  std::vector<placed_bytes> lists;
};

/// The update of one parameter by a body, run in a loop.
template <class Kernel>
void update_by_kernel(const Kernel& kernel, const opt::parameter_bytes& all, const opt::gradient_transform& how,
                      const opt::step_settings& settings, std::uint64_t seed, bool is_overwritten,
                      opt::step_decision decision = opt::step_decision::update)
{
  using factors_type = typename Kernel::device_factors;
  opt::device_step_state state;
  state.number = settings.number - 1;
  state.factor = how.factor;
  state.decision = decision;
  const factors_type factors{kernel.options(settings.group), settings};
  const opt::device_parameter it = opt::on_device(all, is_overwritten);
  kernel.with_arithmetic(settings.group, [&]<class Work>(std::type_identity<Work>) {
    opt::loop_launcher::run(opt::update_kernel<Work, factors_type>{it, &state, &factors, seed, how.limit});
  });
}

/// Four steps over hostile numbers, by `update_parameter` and by `update(kernel, parameter, how, settings, seed,
/// is_overwritten)`. @param compare   `compare(host, device, step)` after each
template <class Kernel, class Update, class Compare>
void update_on_both(const Kernel& kernel, const parameter_case& what, std::size_t elements, std::size_t distance,
                    Update update, Compare compare)
{
  cm::serial alone;
  stored_parameter host{kernel, what, elements, distance};
  stored_parameter device{kernel, what, elements, distance};
  for (std::uint64_t step = 1; step <= 4; ++step) {
    const opt::gradient_transform how{step % 2 == 0 ? 0.3F : 1.0F, step == 3 ? 0.5F : 0.0F};
    const opt::step_settings settings{0.01F, step * step * 1000 - 999};
    host.differentiate(step);
    device.differentiate(step);
    opt::update_parameter(kernel, host.describe(step), how, settings, 42, alone);
    update(kernel, device.describe(step), how, settings, std::uint64_t{42}, device.is_over(step));
    compare(host, device, step);
  }
}

/// `visit(name, kernel, has_masters)` for every arithmetic that has a device form, with every storage.
template <class Visit>
void for_each_kernel(Visit visit)
{
  for (const cm::dtype states : {cm::dtype::float32, cm::dtype::bfloat16})
    for (const bool masters : {true, false}) {
      const opt::adam_storage of_adam{.moments = states, .masters = masters};
      const opt::sgd_storage of_sgd{.momentum = states, .masters = masters};
      visit("adamw", opt::adam{{.weight_decay = 0.1F}, of_adam}, masters);
      visit("adam with L2", opt::adam{{.weight_decay = 0.1F, .decoupled = false}, of_adam}, masters);
      visit("sgd", opt::sgd{{.weight_decay = 0.1F, .dampening = 0.1F}, of_sgd}, masters);
      visit("sgd, nesterov", opt::sgd{{.nesterov = true}, of_sgd}, masters);
      if (states == cm::dtype::float32) visit("sgd, plain", opt::sgd{{.momentum = 0.0F}, of_sgd}, masters);
    }
}

}  // namespace kernels
