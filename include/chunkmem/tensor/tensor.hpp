// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>

// The properties of a tensor: role, shape, access, pass, list_spec. Then its handles, tensor_handle and tensor, and its
// label in a message.

namespace chunkmem::inline v0 {

/// The purpose of a tensor. Placement depends on it, and an optimizer updates parameters only.
enum class role : std::uint8_t {
  parameter,        ///< trained: has a gradient and the lists of the optimizer
  gradient,         ///< made by the manager, one for each parameter
  optimizer_state,  ///< made by the manager, one for each parameter and list
  buffer,           ///< saved, never optimised: running statistics, tables
  activation,       ///< lives from a forward pass to its backward pass
  frozen,           ///< a weight that is not trained: no gradient, no states
  /// gathered on the device from the shares of all ranks; the host has only a share, in another tensor
  gathered,
};

inline constexpr std::size_t role_count = 7;

[[nodiscard]] constexpr std::string_view name_of(role part) noexcept
{
  constexpr std::string_view names[role_count] = {"parameter",  "gradient", "optimizer_state", "buffer",
                                                  "activation", "frozen",   "gathered"};
  return names[static_cast<std::size_t>(part)];
}

/// Extents of a tensor, row-major, at most six. A single number has none, and an extent of zero makes a tensor without
/// elements, whose pins are empty.
///
///     const shape weight{1'024, 4'096};
///     const std::uint64_t elements = weight.elements();  // 4194304
///     const shape number{};                              // one element
///
/// @throws usage_error     more than six extents
/// @throws size_overflow   the number of elements needs more than 64 bits
class shape {
 public:
  static constexpr std::size_t max_rank = 6;

  constexpr shape(std::initializer_list<std::uint64_t> extents) : shape{std::span{extents.begin(), extents.size()}} {}

  explicit constexpr shape(std::span<const std::uint64_t> extents) : rank_{extents.size()}
  {
    expects(rank_ <= max_rank, "a shape has at most six extents");
    bytes total{1};
    for (std::size_t axis = 0; axis < rank_; ++axis) {
      extents_[axis] = extents[axis];
      total *= extents[axis];
    }
    elements_ = total.count();
  }

  [[nodiscard]] constexpr std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] constexpr std::uint64_t elements() const noexcept { return elements_; }
  /// @throws usage_error   `axis` is not below the rank
  [[nodiscard]] constexpr std::uint64_t operator[](std::size_t axis) const
  {
    expects(axis < rank_, "a shape does not have this axis");
    return extents_[axis];
  }
  [[nodiscard]] constexpr bool operator==(const shape&) const noexcept = default;

 private:
  std::uint64_t extents_[max_rank] = {};
  std::size_t rank_ = 0;
  std::uint64_t elements_ = 0;
};

/// The three ways to use the bytes of a pin, as a number for logs, records and switches.
enum class access_mode : std::uint8_t { read, read_write, write };

class write_access;

/// The use of the bytes by the holder of a pin.
///
/// `access::read` and every variable of this type give a const pin. `access::read_write` and `access::write` have
/// another type, so the compiler knows that their pins are writable. Where a variable holds a mode that writes,
/// `pin::writable()` gives the elements. A template parameter takes `access_mode`, and its pins are const too.
class access {
 public:
  static const access read;              ///< bytes stay as they are; a valid copy elsewhere stays valid
  static const write_access read_write;  ///< updated: every other copy becomes invalid
  static const write_access write;       ///< overwritten from the first byte to the last; nothing is loaded

  /// @throws usage_error   the number is none of the three modes
  constexpr access(access_mode mode) : mode_{mode}
  {
    if (mode > access_mode::write) throw usage_error{"an access that is none of read, read_write and write"};
  }
  constexpr operator access_mode() const noexcept { return mode_; }

 private:
  access_mode mode_;
};

/// The type of `access::read_write` and `access::write`, and of a choice between the two at run time.
///
///     const write_access how = adds ? access::read_write : access::write;
class write_access : public access {
  friend class access;
  constexpr explicit write_access(access_mode mode) : access{mode} {}
};

inline constexpr access access::read{access_mode::read};
inline constexpr write_access access::read_write{access_mode::read_write};
inline constexpr write_access access::write{access_mode::write};

/// `access` or `write_access`.
template <class Access>
concept access_choice = std::is_convertible_v<Access, access>;

/// The element type of a pin: const, unless every mode that `Access` can hold writes.
template <class Element, access_choice Access>
using pinned_as = std::conditional_t<std::is_same_v<Access, write_access>, Element, const Element>;

/// The place of the bytes of a pin.
enum class memory_location : std::uint8_t { device, host };

/// The present part of a training step, as named by the trainer.
enum class pass : std::uint8_t { none, forward, backward };

[[nodiscard]] constexpr std::string_view name_of(access_mode mode) noexcept
{
  constexpr std::string_view names[] = {"read", "read_write", "write"};
  return names[static_cast<int>(mode)];
}

[[nodiscard]] constexpr bool writes(access_mode mode) noexcept
{
  return mode != access_mode::read;
}

/// The purpose of a list.
enum class list_use : std::uint8_t {
  state,    ///< of an optimizer: a fresh one is zero
  master,   ///< the value in full precision, for 16-bit parameters alone; a fresh one is the value
  weight,   ///< an older version of the value. Ranks gather it like the value
  scratch,  ///< void after a load: checkpoints leave it out
};

/// A list has one number for each number of each parameter: a momentum, a variance, a master copy.
///
///     const list_spec lists[] = {{.name = "mine/average"}, {.name = "mine/sign", .type = dtype::uint8}};
///     m.use(lists);
///
/// Lists are data: an optimizer names them, and the manager keeps them without knowledge of the optimizer.
struct list_spec {
  std::string_view name;        ///< unique in a manager, such as "adam/momentum"; outlives the manager
  dtype type = dtype::float32;  ///< its size is the bytes for each parameter; a master is float32
  std::uint32_t version = 1;    ///< of the meaning of its bytes, for checkpoints
  list_use use = list_use::state;
};

/// The master list that every optimizer for 16-bit parameters shares.
inline constexpr list_spec master_list{"master", dtype::float32, 1, list_use::master};

/// A tensor of a manager, without its element type, for untyped code.
///
///     m.for_each_tensor([&](tensor_handle it, const tensor_info&) { std::cout << m.name_of(it) << '\n'; });
///
/// Stays valid when chunks move, grow or are laid out again. `owner` identifies the manager, so that a handle of one is
/// never used with another.
struct tensor_handle {
  tensor_id id = tensor_id::none;
  std::uint32_t owner = 0;

  [[nodiscard]] constexpr bool operator==(const tensor_handle&) const noexcept = default;
};

/// A tensor of a manager. Eight bytes, trivially copyable, no ownership.
///
///     const tensor<float> weight = m.add<float>({1'024, 1'024}, role::parameter);
template <element Element>
struct tensor : tensor_handle {
  using element_type = Element;
};

static_assert(sizeof(tensor<float>) == 8 && std::is_trivially_copyable_v<tensor<float>>);

/// The name in messages of a tensor's bytes in a list. The views belong to the manager.
///
///     throw usage_error{error_text{} << "chunkmem: " << tensor_label{id, "embedding", "value"} << " was not written"};
struct tensor_label {
  tensor_id tensor = tensor_id::none;
  std::string_view name;  ///< empty where the trainer gave none
  std::string_view list;  ///< such as "value" or "gradient"

  /// "tensor 'embedding' (value)"; without a name, "tensor 12 (value)".
  friend error_text& operator<<(error_text& text, const tensor_label& label) noexcept
  {
    text << "tensor ";
    if (label.name.empty())
      text << index_of(label.tensor);
    else
      text << "'" << label.name << "'";
    return text << " (" << label.list << ")";
  }
};

}  // namespace chunkmem::inline v0
