// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/tensor/tensor_names.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// The tensors of a sharded_model, in the order of their declaration: the type and the place of each.
///
///     model_tensors known;
///     known.make_room();
///     const tensor_handle weight = known.add({.part = role::parameter, .planned = 0, .elements = 64});
///     known.name(weight, "embedding");
class model_tensors {
 public:
  struct entry {
    role part = role::parameter;
    dtype type = dtype::float32;
    tensor_handle own{};        ///< in the manager of this rank, for tensors that are not sharded
    std::uint32_t planned = 0;  ///< number in the plan, for sharded tensors
    std::uint64_t elements = 0;
    shape extents{};
  };

  model_tensors() = default;
  model_tensors(const model_tensors&) = delete;  // its address distinguishes its tensors from those of another model
  model_tensors& operator=(const model_tensors&) = delete;

  /// Weights, trained or frozen, are sharded; tensors that a rank computes from its own data are not.
  [[nodiscard]] static constexpr bool is_sharded(role part) noexcept
  {
    return part == role::parameter || part == role::frozen;
  }

  /// Makes room for one more tensor, so that the plan and this list cannot differ. @throws std::bad_alloc
  void make_room()
  {
    if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size() + 8);
    if (of_plan_.size() == of_plan_.capacity()) of_plan_.reserve(2 * of_plan_.size() + 8);
  }
  /// @pre make_room() was called for it
  tensor_handle add(entry&& fresh) noexcept
  {
    const std::uint32_t index = size();
    if (is_sharded(fresh.part)) of_plan_.push_back(index);
    entries_.push_back(std::move(fresh));
    return handle_of(index);
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(entries_.size()); }
  /// The tensor is of this model.
  [[nodiscard]] bool has(tensor_handle wanted) const noexcept
  {
    return wanted.owner == owner() && chunkmem::index_of(wanted.id) < size();
  }
  /// @throws usage_error   the tensor is another model's
  [[nodiscard]] std::uint32_t index_of(tensor_handle wanted) const
  {
    const std::uint32_t index = chunkmem::index_of(wanted.id);
    expects(has(wanted), "a tensor was used with a model that did not make it");
    return index;
  }
  /// @throws usage_error   the tensor is another model's
  [[nodiscard]] entry& of(tensor_handle wanted) { return entries_[index_of(wanted)]; }
  [[nodiscard]] const entry& of(tensor_handle wanted) const { return entries_[index_of(wanted)]; }
  /// @param tensor   by its number in the order of declaration
  [[nodiscard]] const entry& operator[](std::uint32_t tensor) const noexcept { return entries_[tensor]; }
  /// @param planned   by its number in the plan
  [[nodiscard]] std::uint32_t tensor_of_plan(std::uint32_t planned) const noexcept { return of_plan_[planned]; }
  [[nodiscard]] tensor_handle handle_of(std::uint32_t tensor) const noexcept { return {tensor_id{tensor}, owner()}; }
  /// Sets a name; an empty text removes it. @throws config_error   another tensor has this name; usage_error   as
  /// index_of
  /// @param is_sealed   all tensors are declared. Guarantee: strong. @throws config_error   another tensor has this
  ///   name
  void name(tensor_handle wanted, std::string_view text, bool is_sealed = false)
  {
    const std::uint32_t tensor = index_of(wanted);
    std::string before{names_.of(tensor)};
    names_.set(tensor, text);
    if (!is_sealed) return;
    try {
      expect_distinct_names();
    } catch (...) {
      names_.set(tensor, before);
      throw;
    }
  }
  /// The name of a tensor, or "tensor.<number>", as on a single rank.
  [[nodiscard]] std::string name_of(std::uint32_t tensor) const { return names_.name_of(tensor); }
  /// @throws config_error   a tensor has the default name of another one
  void expect_distinct_names() const
  {
    names_.expect_distinct(
        [this](std::uint32_t tensor) { return tensor < size() && entries_[tensor].part != role::activation; });
  }
  /// @throws usage_error   a parameter has another element type than the versions of its weights
  void expect_type(dtype type) const
  {
    for (const entry& it : entries_)
      expects(it.part != role::parameter || it.type == type, "a weight has another element type than its versions");
  }

 private:
  [[nodiscard]] std::uint32_t owner() const noexcept
  {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(this) >> 3) | 1U;
  }

  std::vector<entry> entries_;
  tensor_names names_;
  std::vector<std::uint32_t> of_plan_;  // by tensor of the plan
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
