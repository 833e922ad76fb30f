// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <support/hostile.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace numerics_cases {

namespace cm = chunkmem;

/// The storage of one parameter.
struct parameter_case {
  cm::dtype value;
  cm::dtype gradient;
  cm::dtype states;
  bool masters;
  bool in_place;  ///< the gradient has the value's bytes, from the second step on
};

inline std::string name_of(const parameter_case& it)
{
  std::string name;
  for (const cm::dtype type : {it.value, it.gradient, it.states}) name.append(cm::name_of(type)).append("/");
  return name.append(it.masters ? "master" : "bare").append(it.in_place ? "/in_place" : "");
}

/// Every kind that is not refused: 22 of them.
inline std::vector<parameter_case> parameter_cases()
{
  using enum cm::dtype;
  std::vector<parameter_case> all;
  for (const cm::dtype states : {float32, bfloat16}) {
    all.push_back({float32, float32, states, true, false});
    for (const cm::dtype value : {bfloat16, float16})
      for (const bool masters : {true, false}) {
        all.push_back({value, value, states, masters, false});
        all.push_back({value, float32, states, masters, false});
        if (masters) all.push_back({value, value, states, true, true});
      }
  }
  return all;
}

/// FNV-1a, 64 bits.
class fingerprint {
 public:
  void add(const std::vector<std::byte>& bytes) noexcept
  {
    for (const std::byte each : bytes) value_ = (value_ ^ static_cast<std::uint64_t>(each)) * 0x100000001b3U;
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

/// Numbers in a type, hostile at every 11th place; made in integers alone.
inline void fill(std::vector<std::byte>& bytes, cm::dtype type, std::uint64_t key)
{
  const std::size_t size = cm::size_of(type);
  for (std::size_t index = 0; index * size < bytes.size(); ++index) {
    const float tame = support::tame(key + index);
    const std::uint16_t half =
        type == cm::dtype::bfloat16 ? cm::round_to<cm::bf16>(tame).bits() : cm::round_to<cm::fp16>(tame).bits();
    const std::uint16_t half_bits = support::hostile_16_bits(key + index, half);
    const float bits = support::hostile(key + index);
    if (size == 2)
      std::memcpy(bytes.data() + 2 * index, &half_bits, 2);
    else
      std::memcpy(bytes.data() + 4 * index, &bits, 4);
  }
}

/// Steps one parameter, hostile in its value and in its gradients, and fingerprints all its bytes.
template <class Kernel, class Executor>
std::uint64_t run_case(const Kernel& kernel, const parameter_case& it, std::size_t elements, std::uint64_t steps,
                       Executor& workers)
{
  std::vector<std::byte> value(elements * cm::size_of(it.value));
  std::vector<std::byte> gradient(elements * cm::size_of(it.gradient));
  std::vector<std::byte> lists[cm::optimizer::max_lists];
  cm::optimizer::parameter_bytes all;
  for (const cm::list_spec& spec : kernel.lists()) {
    if (spec.use == cm::list_use::master && !cm::is_16_bit(it.value)) continue;
    std::vector<std::byte>& list = lists[all.list_count];
    list.resize(elements * cm::size_of(spec.type));
    all.lists[all.list_count++] = {list.data(), spec.type, spec.use};
  }
  fill(value, it.value, 1);
  all.value_type = it.value;
  all.gradient_type = it.gradient;
  all.elements = elements;
  all.tensor = 4;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    fill(gradient, it.gradient, 1'100'000 * step + step % 2);  // hostile where the value was, in steps 1 and 3
    const bool is_over = it.in_place && step > 1;
    if (is_over) value = gradient;
    all.value = value.data();
    all.gradient = is_over ? value.data() : gradient.data();
    all.fresh_master = step == 1 && it.masters && cm::is_16_bit(it.value);
    const cm::optimizer::gradient_transform how{step % 2 == 0 ? 0.3F : 1.0F, step == 3 ? 0.5F : 0.0F};
    cm::optimizer::update_parameter(kernel, all, how, {0.01F, step * step * 1000 - 999}, 42, workers);
  }
  fingerprint print;
  print.add(value);
  for (const std::vector<std::byte>& list : lists) print.add(list);
  return print.value();
}

/// `report(name, fingerprint)` for every kind of parameter and every kernel, by one version of the numerics.
template <cm::optimizer::numerics Rule, class Executor, class Report>
void run_all(cm::optimizer::instruction_set set, std::size_t elements, std::uint64_t steps, Executor& workers,
             Report report)
{
  namespace opt = cm::optimizer;
  for (const parameter_case& it : parameter_cases()) {
    const auto run = [&](const char* kernel_name, const auto& kernel) {
      report(std::string{kernel_name}.append(" ").append(name_of(it)), run_case(kernel, it, elements, steps, workers));
    };
    const opt::adam_storage of_adam{it.states, it.masters, set};
    const opt::sgd_storage of_sgd{it.states, it.masters, set};
    using adam = opt::basic_adam<Rule>;
    using sgd = opt::basic_sgd<Rule>;
    run("adam", adam{{}, of_adam});
    run("adamw", adam{{.weight_decay = 0.1F}, of_adam});
    run("adam_l2", adam{{.weight_decay = 0.1F, .decoupled = false}, of_adam});
    run("sgd", sgd{{.weight_decay = 0.1F}, of_sgd});
    run("sgd_nesterov", sgd{{.nesterov = true}, of_sgd});
    if (it.states == cm::dtype::float32) run("sgd_plain", sgd{{.momentum = 0.0F}, of_sgd});
  }
}

}  // namespace numerics_cases
