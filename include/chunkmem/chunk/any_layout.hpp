// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/arranging_layout.hpp>
#include <chunkmem/chunk/place_all.hpp>
#include <chunkmem/chunk/reusing_layout.hpp>
#include <chunkmem/chunk/searchable_layout.hpp>
#include <chunkmem/core/policy_choice.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

/// A layout chosen when the program runs: `any_layout<append_layout, size_class_layout>{"size_class_layout"}`.
///
/// It arranges as the chosen one does, or one by one where that cannot arrange; it gives places back, and can be
/// searched, where all of the list can. Cost: one indirect call more for each tensor.
template <chunk_layout... Layouts>
class any_layout : public policy_choice<Layouts...> {
 public:
  static constexpr std::string_view name = "any_layout";
  using policy_choice<Layouts...>::policy_choice;

  void reset(bytes frame)
  {
    this->ask([&](auto& it) { it.reset(frame); });
  }
  chunk_place place(bytes size)
  {
    return this->ask([&](auto& it) { return it.place(size); });
  }
  void arrange(std::span<const bytes> sizes, std::span<chunk_place> places)
  {
    this->ask([&](auto& it) { place_all(it, sizes, places); });
  }
  void erase(const chunk_place& place, bytes size)
    requires(reusing_layout<Layouts> && ...)
  {
    this->ask([&](auto& it) { it.erase(place, size); });
  }
  bool place_together(std::span<const bytes> sizes, std::span<chunk_place> places)
    requires(reusing_layout<Layouts> && ...)
  {
    return this->ask([&](auto& it) { return it.place_together(sizes, places); });
  }
  [[nodiscard]] bytes changes_at() const
    requires(searchable_layout<Layouts> && ...)
  {
    return this->ask([](const auto& it) { return it.changes_at(); });
  }
};

}  // namespace chunkmem::inline v0
