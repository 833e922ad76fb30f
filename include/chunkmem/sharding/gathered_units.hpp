// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/sharding/share_runs.hpp>
#include <chunkmem/sharding/unit_plan.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// The tensors of a unit in a manager.
///
///     for (const unit_tensors& it : units.all()) std::cout << it.elements << " elements\n";
struct unit_tensors {
  /// An older version of the weights, gathered from shares in a list.
  struct version {
    list_id from{0};
    tensor<std::uint8_t> whole;
  };

  tensor<std::uint8_t> whole;      ///< gathered: the weights
  std::vector<version> versions;   ///< older versions; of trained units
  tensor<std::uint8_t> gradients;  ///< this rank's gradients before the sum; of trained units
  tensor_handle share;             ///< this rank's share of the weights: a parameter, or frozen
  dtype type = dtype::float32;     ///< of its weights
  dtype gradient_type = dtype::float32;
  bool is_trained = true;
  /// the gathered weights stay on this rank, on the device or the host, and are gathered after updates
  bool is_kept = false;
  std::uint64_t elements = 0;     ///< of the whole, padding included
  std::uint64_t share_begin = 0;  ///< element of the whole at which the share begins
  std::uint64_t share_elements = 0;
  std::vector<tensor_part> parts;  ///< the parts of tensors in the share, in the order of their places

  /// Calls `visit(whole)` for each version of the weights.
  template <class Visit>
  void for_each_whole(Visit visit) const
  {
    visit(whole);
    for (const version& it : versions) visit(it.whole);
  }
  /// @throws usage_error   the list has no weights of this unit
  [[nodiscard]] tensor<std::uint8_t> whole_in(list_id list) const
  {
    if (list == value_list) return whole;
    const auto it = std::ranges::find(versions, list, &version::from);
    expects(it != versions.end(), "a weight was read in a list that has no weights of it");
    return it->whole;
  }
};

/// Calls `work(Element{})` for the element type of trained and frozen weights.
/// @throws usage_error   another type
template <class Work>
decltype(auto) with_element(dtype type, Work work)
{
  switch (type) {
    case dtype::bfloat16: return work(bf16{});
    case dtype::float16: return work(fp16{});
    case dtype::float32: return work(float{});
    default: throw usage_error{"sharded weights are float32, bfloat16 or float16 (declare others as buffers)"};
  }
}

inline constexpr std::string_view unit_prefix = "unit.";  ///< of the names of shares in the manager of a rank

/// @throws config_error   a tensor that only this rank has would have the name of a share
inline void expect_no_unit_name(std::string_view name)
{
  if (name.size() > unit_prefix.size() && name.starts_with(unit_prefix) &&
      name.find_first_not_of("0123456789", unit_prefix.size()) == name.npos)
    throw config_error{error_text{} << "chunkmem: a sharded model has shares with the name of this tensor, " << name
                                    << " (choose another name)"};
}

/// Declares the units of a plan in a manager of one rank: each whole, its gradients, and the share that this rank owns.
///
///     gathered_units units;
///     const auto same = [](auto it) { return it; };
///     units.declare(m, plan, rank, false, same, same);  // gradients as their weights, tensors as in the plan
///
/// Every rank declares tensors of the same sizes in the same order, so that all managers decide alike. Memory: on the
/// host the rank's shares, and on the device gathered units only while they are used; where they are kept, all of them.
class gathered_units {
 public:
  /// @param keeps           gathered weights are ordinary chunks; else they have no place on the host, and each load
  ///   gathers them
  /// @param gradient_type   `gradient_type(dtype)`: the gradient type for a weight of this type
  /// @param id_of           `id_of(tensor)`: the number on a single rank of a tensor of the plan
  /// @throws the errors of declarations
  template <class Manager, class Plan, class GradientType, class IdOf>
  void declare(Manager& m, const Plan& plan, rank_id rank, bool keeps, GradientType gradient_type, IdOf id_of)
  {
    for (std::uint32_t index = 0; index < plan.units().size(); ++index) {
      const unit& from = plan.units()[index];
      unit_tensors it;
      it.type = from.type;
      it.gradient_type = gradient_type(from.type);
      it.is_trained = from.trained;
      it.is_kept = keeps;
      it.elements = from.elements;
      it.share_begin = plan.share_begin(index, rank);
      it.share_elements = plan.share_end(index, rank) - it.share_begin;
      it.parts = plan.parts(index, rank);
      declare_tensors(m, it, from.group, index, static_cast<std::uint32_t>(plan.units().size()), id_of);
      if (it.is_trained) trained_.push_back(index);
      units_.push_back(std::move(it));
    }
  }

  [[nodiscard]] std::span<const unit_tensors> all() const noexcept { return units_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(units_.size()); }
  [[nodiscard]] const unit_tensors& operator[](std::uint32_t index) const noexcept { return units_[index]; }
  /// The unit whose share is this parameter of the manager: shares of trained units are the only ones. O(1)
  [[nodiscard]] std::uint32_t trained(std::uint32_t ordinal) const noexcept { return trained_[ordinal]; }
  /// The number of trained units.
  [[nodiscard]] std::uint32_t trained() const noexcept { return static_cast<std::uint32_t>(trained_.size()); }
  /// The tensors of the model in each share.
  [[nodiscard]] share_runs& runs() noexcept { return runs_; }
  [[nodiscard]] const share_runs& runs() const noexcept { return runs_; }
  /// The part of a tensor in this rank's share, or null. O(tensors of the unit)
  [[nodiscard]] const tensor_part* part_of(std::uint32_t unit, std::uint32_t tensor) const noexcept
  {
    for (const tensor_part& it : units_[unit].parts)
      if (it.tensor == tensor) return &it;
    return nullptr;
  }

 private:
  template <class Manager, class IdOf>
  void declare_tensors(Manager& m, unit_tensors& it, group_id group, std::uint32_t index, std::uint32_t units,
                       IdOf& id_of)
  {
    it.whole = add_whole(m, it, index);
    std::uint32_t label = index;
    m.for_each_list([&](list_id list, const list_spec& spec) {
      if (spec.use != list_use::weight) return;
      label += units;  // so that gathers of different versions have different labels
      if (it.is_trained) it.versions.push_back({list, add_whole(m, it, label)});
    });
    if (it.is_trained) {
      it.gradients = m.template add<std::uint8_t>({it.elements * size_of(it.gradient_type)}, role::activation);
      m.gathered().tensors().add_summed(it.gradients.id);
    }
    it.share = with_element(it.type, [&]<class Element>(Element) -> tensor_handle {
      return m.template add<Element>({it.share_elements}, it.is_trained ? role::parameter : role::frozen, group);
    });
    m.name(it.share, std::string{unit_prefix} + std::to_string(index));
    m.gathered().tensors().derive(it.whole.id, it.share.id, it.share_begin * size_of(it.type));
    for (const unit_tensors::version& each : it.versions)
      m.gathered().tensors().derive(each.whole.id, it.share.id, it.share_begin * size_of(it.type), each.from);
    std::vector<share_run> runs;
    for (const tensor_part& part : it.parts)
      runs.push_back({part.begin - it.share_begin, part.elements, id_of(part.tensor), part.first, false});
    runs_.divide(it.share, std::move(runs));
  }

  template <class Manager>
  static tensor<std::uint8_t> add_whole(Manager& m, const unit_tensors& it, std::uint32_t label)
  {
    const auto whole = m.template add<std::uint8_t>({it.elements * size_of(it.type)}, role::gathered);
    m.gathered().tensors().add(whole.id, label, it.is_kept);
    return whole;
  }

  std::vector<unit_tensors> units_;
  std::vector<std::uint32_t> trained_;  // units, by ordinal of their shares among the parameters
  share_runs runs_;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
