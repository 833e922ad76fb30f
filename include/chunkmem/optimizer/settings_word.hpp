// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/optimizer/clipping.hpp>
#include <chunkmem/optimizer/loss_scale.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/setting.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/list_spec.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// A loss scale: what a step divides by, and what decides the next values.
template <class Visit>
void for_each_setting_of_scale(const loss_scale* scale, Visit& visit)
{
  visit(setting{"loss scale", scale == nullptr ? "none" : scale->is_dynamic() ? "dynamic" : "fixed"});
  if (scale == nullptr) return;
  visit(setting{"value of the loss scale", scale->scale()});
  if (!scale->is_dynamic()) return;
  const loss_scale_options& options = scale->options();
  visit(setting{"window of the loss scale", options.window});
  visit(setting{"growth of the loss scale", options.growth});
  visit(setting{"backoff of the loss scale", options.backoff});
  visit(setting{"smallest loss scale", options.smallest});
  visit(setting{"largest loss scale", options.largest});
  visit(setting{"updates in a row of the loss scale", scale->updates_in_a_row()});
}

}  // namespace detail

/// Calls `visit(setting)` for all that decides what a step makes of gradients: its options, its loss scale, and the
/// kernel with its lists. Ranks that train together have the same ones, in the same order.
template <optimizer_kernel Kernel, class Visit>
void for_each_setting(const step_options& options, Kernel& kernel, Visit visit)
{
  if (options.group_rates.empty()) visit(setting{"learning rate", options.learning_rate});
  for (std::size_t group = 0; group < options.group_rates.size(); ++group)
    visit(setting{"learning rate", options.group_rates[group]}.in(group_id{static_cast<std::uint32_t>(group)}));
  constexpr std::string_view orders[] = {"l1", "l2", "linf"};
  visit(setting{"clip.norm", options.clip.norm});
  visit(setting{"clip.order", orders[static_cast<std::size_t>(options.clip.order)]});
  visit(setting{"clip.value", options.clip.value});
  visit(setting{"skip_nonfinite", options.skip_nonfinite});
  visit(setting{"seed", options.seed});
  detail::for_each_setting_of_scale(options.loss_scale, visit);
  visit(setting{"optimizer kernel", std::string_view{Kernel::name}});
  for (const list_spec& list : kernel.lists()) visit(setting{list.name, name_of(list.type)});
  if constexpr (names_settings<Kernel>) static_cast<const Kernel&>(kernel).for_each_setting(visit);
}

/// All of them as one word. O(settings), allocates nothing.
template <optimizer_kernel Kernel>
[[nodiscard]] std::uint64_t settings_word(const step_options& options, Kernel& kernel)
{
  collective::fingerprint all;
  for_each_setting(options, kernel, [&](const setting& it) { all.add(it.word()); });
  return all.value();
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
