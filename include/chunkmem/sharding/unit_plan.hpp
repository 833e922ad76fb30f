// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/sharding/unit_division.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// The place of a tensor in the units of a plan.
///
///     const unit_place place = plan.place(0);
///     std::cout << "element " << place.first << " of unit " << place.unit << '\n';
struct unit_place {
  std::uint32_t unit = 0;
  std::uint64_t first = 0;  ///< element of the unit at which the tensor begins, a multiple of `measure_block`
};

/// The tensors that are gathered together: of one element type and one group, all of them trained or none, in whole
/// frames.
///
///     for (const unit& it : plan.units()) std::cout << it.tensors.size() << " tensors\n";
struct unit {
  std::uint32_t first = 0;   ///< chunk, of the list of its kind
  std::uint32_t chunks = 1;  ///< of that list
  dtype type = dtype::float32;
  group_id group{0};
  bool trained = true;
  std::uint64_t elements = 0;          ///< of whole frames, padding included
  std::vector<std::uint32_t> tensors;  ///< numbers, in the order of their places
};

/// A run of a tensor that one rank owns.
///
///     for (const tensor_part& it : plan.parts(0, rank_id{0})) std::cout << it.tensor << ": " << it.elements << '\n';
struct tensor_part {
  std::uint32_t tensor = 0;
  std::uint64_t first = 0;  ///< element of the tensor at which the run begins, a multiple of `measure_block`
  std::uint64_t begin = 0;  ///< element of the unit at which the run begins
  std::uint64_t elements = 0;
};

/// Places tensors in units that W ranks can divide without cutting a block of `measure_block` elements. Plain numbers.
///
///     unit_plan<append_layout> plan;
///     const std::uint32_t weight = plan.add(dtype::float32, group_id{0}, true, 5'000);
///     plan.seal(48_KiB, 3);
///     const unit_place place = plan.place(weight);
///
/// So the norm of all gradients is the sum of the same blocks, in the same order, for any number of ranks. Padding:
/// less than a block for each tensor, and the unused end of a unit. Cost: that of the layout.
template <chunk_layout Layout>
class unit_plan {
 public:
  explicit unit_plan(Layout layout = {}) : layout_{std::move(layout)} {}

  /// @return   the tensor's number, counted from 0   @throws usage_error   sealed already
  std::uint32_t add(dtype type, group_id group, bool trained, std::uint64_t elements)
  {
    expects(!sealed_, "a tensor was added after its units were planned");
    tensors_.push_back({type, group, trained, elements, {}});
    return static_cast<std::uint32_t>(tensors_.size() - 1);
  }

  /// @param frame   size of a unit whose tensors are no larger: of a chunk, or of several
  /// @throws config_error   the shares do not divide a frame into whole blocks of every element type, or a tensor is
  ///                        larger than a frame where chunks are gathered by groups; usage_error   a layout that cuts
  ///                        blocks, sealed already; size_overflow. Not sealed after a throw
  void seal(bytes frame, unit_division division)
  {
    expects(!sealed_, "units were planned twice");
    const std::uint64_t grain =
        (bytes{std::uint64_t{division.shares / division.chunks} * measure_block} * sizeof(float)).count();
    if (frame.count() == 0 || frame.count() % grain != 0)
      throw config_error{
          error_text{} << "chunkmem: chunk_bytes, or unit_bytes where it is given, is " << frame.count() << " B, which "
                       << division.shares / division.chunks << " ranks cannot divide into blocks of " << measure_block
                       << " elements (use "
                       << align_up(bytes{std::max(frame.count(), std::uint64_t{1})}, bytes{grain}).count() << ")"};
    division_ = std::move(division);
    units_.clear();  // of a call that failed
    for (std::size_t first = 0; first < tensors_.size(); ++first)
      if (is_first_of_kind(first)) place_kind(first, frame);
    for (std::uint32_t index = 0; index < tensors_.size(); ++index)
      units_[tensors_[index].place.unit].tensors.push_back(index);
    for (unit& it : units_)
      std::ranges::sort(it.tensors, {}, [this](std::uint32_t index) { return tensors_[index].place.first; });
    sealed_ = true;
  }
  void seal(bytes frame, std::uint32_t ranks) { seal(frame, unit_division::even(ranks)); }

  [[nodiscard]] std::uint32_t tensors() const noexcept { return static_cast<std::uint32_t>(tensors_.size()); }
  [[nodiscard]] std::uint64_t elements(std::uint32_t tensor) const noexcept { return tensors_[tensor].elements; }
  [[nodiscard]] unit_place place(std::uint32_t tensor) const noexcept { return tensors_[tensor].place; }
  [[nodiscard]] std::span<const unit> units() const noexcept { return units_; }
  [[nodiscard]] const unit_division& division() const noexcept { return division_; }

  /// Elements [begin, end) of a unit that a rank owns; as many as every other rank. @pre sealed
  [[nodiscard]] std::uint64_t share_begin(std::uint32_t index, rank_id rank) const noexcept
  {
    return share_elements(index) * division_.place_of[index_of(rank)];
  }
  [[nodiscard]] std::uint64_t share_end(std::uint32_t index, rank_id rank) const noexcept
  {
    return share_begin(index, rank) + share_elements(index);
  }
  [[nodiscard]] std::uint64_t share_elements(std::uint32_t index) const noexcept
  {
    return units_[index].elements / division_.shares;
  }
  /// Calls `visit(part)` for a rank's part of each tensor of a unit, in the order of places; empty parts are left out.
  /// A tensor without elements has one owner too: the rank that owns its place.
  template <class Visit>
  void for_each_part(std::uint32_t index, rank_id rank, Visit visit) const
  {
    for (const std::uint32_t tensor : units_[index].tensors) {
      const std::uint64_t place = tensors_[tensor].place.first;
      const std::uint64_t begin = std::max(place, share_begin(index, rank));
      const std::uint64_t end = std::min(place + tensors_[tensor].elements, share_end(index, rank));
      const bool owns_place = tensors_[tensor].elements == 0 && begin == place && place < share_end(index, rank);
      if (begin < end || owns_place) visit(tensor_part{tensor, begin - place, begin, end - begin});
    }
  }
  /// All parts of for_each_part. Allocates.
  [[nodiscard]] std::vector<tensor_part> parts(std::uint32_t index, rank_id rank) const
  {
    std::vector<tensor_part> result;
    for_each_part(index, rank, [&](const tensor_part& part) { result.push_back(part); });
    return result;
  }
  /// Elements of all units that belong to no tensor.
  [[nodiscard]] std::uint64_t padding() const noexcept
  {
    std::uint64_t all = 0;
    for (const unit& it : units_) all += it.elements;
    for (const planned& it : tensors_) all -= it.elements;
    return all;
  }

 private:
  struct planned {
    dtype type;
    group_id group;
    bool trained;
    std::uint64_t elements;
    unit_place place;
  };

  [[nodiscard]] static bool are_alike(const planned& left, const planned& right) noexcept
  {
    return left.type == right.type && left.group == right.group && left.trained == right.trained;
  }
  [[nodiscard]] bool is_first_of_kind(std::size_t index) const noexcept
  {
    return std::none_of(tensors_.begin(), tensors_.begin() + static_cast<std::ptrdiff_t>(index),
                        [&](const planned& it) { return are_alike(it, tensors_[index]); });
  }

  void place_kind(std::size_t first, bytes frame)
  {
    const planned kind = tensors_[first];
    const std::uint64_t size = size_of(kind.type);
    std::vector<std::size_t> members;
    std::vector<bytes> sizes;
    for (std::size_t index = first; index < tensors_.size(); ++index) {
      if (!are_alike(tensors_[index], kind)) continue;
      members.push_back(index);
      // a tensor without elements has a place too, so that one rank owns it
      const std::uint64_t elements = std::max(tensors_[index].elements, std::uint64_t{1});
      sizes.push_back(align_up(bytes{elements}, bytes{measure_block}) * size);
    }
    std::vector<chunk_place> places(sizes.size());
    Layout layout = layout_;
    layout.reset(frame);
    place_all(layout, sizes, places);
    const auto base = static_cast<std::uint32_t>(units_.size());
    std::uint32_t chunks = 0;
    for (std::size_t index = 0; index < members.size(); ++index) {
      const chunk_place& it = places[index];
      expects(it.offset % (measure_block * size) == 0,
              "a layout of units that does not place whole blocks after whole blocks");
      if (division_.chunks > 1 && it.frames > 1) refuse_frame_run(it.frames * frame);
      chunks = std::max(chunks, it.chunk + 1);
      const std::uint32_t where = base + it.chunk / division_.chunks;
      while (where >= units_.size())
        units_.push_back({static_cast<std::uint32_t>(units_.size() - base) * division_.chunks,
                          0,
                          kind.type,
                          kind.group,
                          kind.trained,
                          0,
                          {}});
      const std::uint64_t frames = division_.chunks > 1 ? division_.chunks : it.frames;
      units_[where].elements = std::max(units_[where].elements, (frames * frame).count() / size);
      tensors_[members[index]].place = {where,
                                        (frame * (it.chunk % division_.chunks)).count() / size + it.offset / size};
    }
    for (std::size_t index = base; index < units_.size(); ++index) units_[index].chunks = chunks;
  }
  [[noreturn]] static void refuse_frame_run(bytes needed)
  {
    throw config_error{error_text{} << "chunkmem: a tensor is larger than a chunk, and this ownership gathers groups "
                                       "of chunks (use chunk_bytes of "
                                    << needed.count() << ", or ownership::sharded)"};
  }

  Layout layout_;
  std::vector<planned> tensors_;
  std::vector<unit> units_;
  unit_division division_;
  bool sealed_ = false;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
