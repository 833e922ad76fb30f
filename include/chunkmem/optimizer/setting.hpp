// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/core/error_text.hpp>
#include <chunkmem/core/ids.hpp>

#include <bit>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace optimizer {

/// One setting of an optimizer, as ranks and stages compare it in every step: by its bits.
///
///     template <class Visit>
///     void for_each_setting(Visit visit) const
///     {
///       visit(optimizer::setting{"sharpness", sharpness_});
///     }
///
/// It refers to the texts that it is made of, and allocates nothing.
class setting {
 public:
  constexpr setting(std::string_view name, float value) noexcept
      : name_{name}, bits_{std::bit_cast<std::uint32_t>(value)}, kind_{kind::single}
  {
  }
  constexpr setting(std::string_view name, double value) noexcept
      : name_{name}, bits_{std::bit_cast<std::uint64_t>(value)}, kind_{kind::number}
  {
  }
  template <std::integral Number>
  constexpr setting(std::string_view name, Number value) noexcept
      : name_{name}, bits_{static_cast<std::uint64_t>(value)}, kind_{kind_of(value)}
  {
  }
  constexpr setting(std::string_view name, bool value) noexcept
      : setting{name, std::string_view{value ? "true" : "false"}}
  {
  }
  /// A choice by its name, such as that of an element type.
  constexpr setting(std::string_view name, std::string_view choice) noexcept
      : name_{name}, choice_{choice}, kind_{kind::choice}
  {
  }
  constexpr setting(std::string_view name, const char* choice) noexcept : setting{name, std::string_view{choice}} {}

  /// The same of one group of parameters.
  [[nodiscard]] constexpr setting in(group_id group) const noexcept
  {
    setting result{*this};
    result.group_ = std::uint64_t{index_of(group)} + 1;
    return result;
  }

  /// None: of all groups.
  [[nodiscard]] constexpr std::optional<group_id> group() const noexcept
  {
    if (group_ == 0) return std::nullopt;
    return group_id{static_cast<std::uint32_t>(group_ - 1)};
  }
  /// Such as "beta1 of group 2".
  [[nodiscard]] std::string name() const
  {
    error_text all;
    all << name_;
    if (group_ != 0) all << " of group " << group_ - 1;
    return std::string{all.view()};
  }
  /// The name, the group and the value in one word.
  [[nodiscard]] constexpr std::uint64_t word() const noexcept
  {
    collective::fingerprint all;
    all.add(name_);
    all.add(choice_);
    all.add(group_);
    all.add(static_cast<std::uint64_t>(kind_));
    all.add(bits_);
    return all.value();
  }
  /// Such as "beta1 of group 2 = 0.9".
  [[nodiscard]] std::string text() const
  {
    error_text all;
    all << name() << " = ";
    switch (kind_) {
      case kind::single: all << std::bit_cast<float>(static_cast<std::uint32_t>(bits_)); break;
      case kind::number: all << std::bit_cast<double>(bits_); break;
      case kind::count: all << bits_; break;
      case kind::negative: all << "-" << 0 - bits_; break;
      case kind::choice: all << choice_; break;
    }
    return std::string{all.view()};
  }

 private:
  enum class kind : std::uint8_t { count, negative, single, number, choice };
  template <class Number>
  [[nodiscard]] static constexpr kind kind_of(Number value) noexcept
  {
    if constexpr (std::is_signed_v<Number>)
      return value < 0 ? kind::negative : kind::count;
    else
      return kind::count;
  }

  std::string_view name_;
  std::string_view choice_{};
  std::uint64_t bits_ = 0;
  std::uint64_t group_ = 0;  // number of the group from 1 on; 0: of all
  kind kind_ = kind::count;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
