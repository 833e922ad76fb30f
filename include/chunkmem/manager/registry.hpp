#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/list_spec.hpp>
#include <chunkmem/tensor/role.hpp>
#include <chunkmem/tensor/shape.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

inline constexpr list_id value_list{0};
inline constexpr list_id gradient_list{1};

/// One tensor in one list: where its bytes are and what may happen to them. 32 bytes.
struct slot {
  static constexpr std::uint32_t nowhere = UINT32_MAX;
  std::uint32_t chunk = nowhere;           ///< nowhere: the tensor is not in this list
  std::uint32_t next_moment = UINT32_MAX;  ///< of its next entry in the record being followed
  std::uint64_t offset = 0;                ///< in its chunk [bytes]
  std::uint64_t size = 0;                  ///< [bytes]
  std::uint32_t pins = 0;
  tensor_state state = tensor_state::free;
  bool starts_at_zero = false;             ///< its first use finds zeros: lists of optimizers
};

static_assert(sizeof(slot) == 32);

/// What a tensor was declared as.
struct tensor_info {
  shape extents;
  dtype type = dtype::float32;
  dtype gradient = dtype::float32;  ///< type of its gradient
  role part = role::parameter;
  group_id group{0};
  std::uint32_t ordinal = 0;  ///< among the parameters, or among all others
};

/// Tensors, lists and slots: what was declared, and where a layout put it.
///
/// Parameters have a slot in each list, other tensors one. Slots are names: where their bytes lie may change. A master list
/// has bytes for 16-bit parameters only.
class registry {
 public:
  std::uint32_t add(const shape& extents, dtype type, role part, group_id group) { return add(extents, type, part, group, type); }
  std::uint32_t add(const shape& extents, dtype type, role part, group_id group, dtype gradient)
  {
    expects(!sealed_, "a tensor was added after the manager was sealed: declare all tensors before the first access");
    expects(part != role::gradient && part != role::optimizer_state,
            "gradients and optimizer states are made by the manager: declare parameters and lists");
    expects(tensors_.size() < UINT32_MAX - 1, "a manager holds fewer than 2^32 tensors");
    (void)(bytes{extents.elements()} * size_of(type));  // too large is refused here, where the caller can see why
    std::uint32_t& ordinal = part == role::parameter ? parameters_ : others_;
    tensors_.push_back({extents, type, gradient, part, group, ordinal});
    ++ordinal;
    if (part == role::parameter) of_parameter_.push_back(tensors() - 1);
    return static_cast<std::uint32_t>(tensors_.size() - 1);
  }

  list_id add_list(const list_spec& spec)
  {
    expects(!sealed_, "a list was added after the manager was sealed: name the optimizer before the first access");
    for (const auto& known : lists_) expects(known.name != spec.name, "two lists have one name");
    const list_id added{lists()};
    if (spec.use == list_use::master) {
      expects(spec.type == dtype::float32, "a master list that is not float32");
      expects(!has_masters(), "two master lists: the lists of one optimizer are enough");
    }
    lists_.push_back({std::string{spec.name}, spec.type, spec.version, spec.use});
    if (spec.use == list_use::master) masters_ = added;
    return added;
  }

  /// Places everything. O(slots). @throws size_overflow, usage_error with nothing sealed
  template <chunk_layout Layout>
  void seal(bytes frame)
  {
    if (sealed_) return;
    build_slots();
    frames_of_chunk_.clear();
    used_.clear();
    for (const role part : {role::parameter, role::frozen, role::buffer, role::activation})
      place<Layout>(frame, value_list, part);
    for (std::uint32_t list = 1; list < lists_.size(); ++list) place<Layout>(frame, list_id{list}, role::parameter);
    chunk_of_slot_.resize(slots_.size());
    std::transform(slots_.begin(), slots_.end(), chunk_of_slot_.begin(), [](const slot& it) { return it.chunk; });
    sealed_ = true;
  }

  [[nodiscard]] bool is_sealed() const noexcept { return sealed_; }
  [[nodiscard]] std::uint32_t lists() const noexcept { return static_cast<std::uint32_t>(lists_.size()); }
  /// Values have the tensor's type, gradients what their policy says, other lists their own.
  [[nodiscard]] dtype type_in(tensor_id id, list_id list) const noexcept
  {
    const tensor_info& it = tensors_[index_of(id)];
    return list == value_list ? it.type : list == gradient_list ? it.gradient : lists_[index_of(list)].type;
  }
  /// A parameter has bytes in this list.
  [[nodiscard]] bool is_in(tensor_id id, list_id list) const noexcept
  {
    return lists_[index_of(list)].use == list_use::state || size_of(tensors_[index_of(id)].type) == 2;
  }
  [[nodiscard]] bool has_masters() const noexcept { return masters_ != list_id::none; }
  [[nodiscard]] list_id masters() const noexcept { return masters_; }  ///< the master list, or none
  /// The master of a parameter's value. @return   slot::nowhere where it has none   @pre sealed
  [[nodiscard]] std::uint32_t master_of(std::uint32_t value_slot) const noexcept
  {
    if (!has_masters() || !is_value_of_parameter(value_slot)) return slot::nowhere;
    const std::uint32_t at = index_of(masters_) * parameters_ + value_slot;
    return slots_[at].chunk == slot::nowhere ? slot::nowhere : at;
  }
  /// In a list of an optimizer.
  [[nodiscard]] bool is_state(std::uint32_t slot) const noexcept { return slot >= 2 * parameters_ && slot < lists() * parameters_; }
  [[nodiscard]] bool is_master(std::uint32_t slot) const noexcept
  {
    return has_masters() && is_state(slot) && slot / parameters_ == index_of(masters_);
  }
  [[nodiscard]] std::uint32_t parameters() const noexcept { return parameters_; }
  /// Of a parameter, by its value's slot.
  [[nodiscard]] dtype value_type(std::uint32_t value_slot) const noexcept { return tensors_[of_parameter_[value_slot]].type; }
  [[nodiscard]] dtype gradient_type(std::uint32_t value_slot) const noexcept { return tensors_[of_parameter_[value_slot]].gradient; }
  [[nodiscard]] bool is_value_of_parameter(std::uint32_t slot) const noexcept { return slot < parameters_; }
  [[nodiscard]] std::uint32_t gradient_of(std::uint32_t value_slot) const noexcept { return parameters_ + value_slot; }
  [[nodiscard]] std::uint32_t tensors() const noexcept { return static_cast<std::uint32_t>(tensors_.size()); }
  [[nodiscard]] const tensor_info& info(tensor_id id) const noexcept { return tensors_[index_of(id)]; }
  [[nodiscard]] std::vector<slot>& slots() noexcept { return slots_; }
  [[nodiscard]] const std::vector<slot>& slots() const noexcept { return slots_; }
  [[nodiscard]] std::span<const std::uint32_t> chunk_of_slot() const noexcept { return chunk_of_slot_; }
  [[nodiscard]] std::span<const std::uint32_t> frames_of_chunk() const noexcept { return frames_of_chunk_; }
  [[nodiscard]] std::span<const std::uint64_t> used() const noexcept { return used_; }  ///< bytes of each chunk

  /// The slot of a tensor in its own values. The hot path. @pre sealed
  [[nodiscard]] std::uint32_t value_slot(tensor_id id) const noexcept { return value_slots_[index_of(id)]; }
  /// @pre sealed, the tensor is a parameter and the list exists
  [[nodiscard]] std::uint32_t slot_in(tensor_id id, list_id list) const noexcept
  {
    return index_of(list) * parameters_ + tensors_[index_of(id)].ordinal;
  }

  /// @throws usage_error   there is no such list
  [[nodiscard]] list_id list(std::string_view name) const
  {
    for (std::uint32_t at = 0; at < lists_.size(); ++at)
      if (lists_[at].name == name) return list_id{at};
    throw usage_error{error_text{} << "chunkmem: there is no list named " << name << " (hand the optimizer's lists to use())"};
  }

  /// Two lists of one element type exchange their bytes by exchanging places: a flip of weight versions. Slots keep
  /// their names, so a record stays true. Calls `exchanged(left, right)` for each pair of slots. O(parameters).
  /// @throws usage_error   not sealed, a tensor of them is pinned, or the element types differ; nothing changed
  template <class Exchanged>
  void exchange(list_id left, list_id right, Exchanged exchanged)
  {
    expects(sealed_, "lists can be exchanged only after the manager was sealed");
    expects(index_of(left) < lists() && index_of(right) < lists(), "a list that this manager does not have");
    for (std::uint32_t id = 0; id < tensors(); ++id)
      expects(tensors_[id].part != role::parameter || type_in(tensor_id{id}, left) == type_in(tensor_id{id}, right),
              "lists of two element types were to be exchanged");
    const std::uint32_t first = index_of(left) * parameters_;
    const std::uint32_t second = index_of(right) * parameters_;
    for (std::uint32_t at = 0; at < parameters_; ++at) {
      expects(slots_[first + at].pins + slots_[second + at].pins == 0, "a list was to be exchanged while a pin holds it");
      expects((slots_[first + at].chunk == slot::nowhere) == (slots_[second + at].chunk == slot::nowhere),
              "a master list was to be exchanged with a list that has more parameters");
    }
    for (std::uint32_t at = 0; at < parameters_; ++at) {
      std::swap(slots_[first + at].next_moment, slots_[second + at].next_moment);  // these two stay with the names
      std::swap(slots_[first + at].starts_at_zero, slots_[second + at].starts_at_zero);
      std::swap(slots_[first + at], slots_[second + at]);
      std::swap(chunk_of_slot_[first + at], chunk_of_slot_[second + at]);
      exchanged(first + at, second + at);
    }
  }

  /// The gradient of a parameter lies there from now on. @pre it is free, without pins
  void move_gradient(std::uint32_t value_slot, std::uint32_t chunk, std::uint64_t offset) noexcept
  {
    slot& it = slots_[gradient_of(value_slot)];
    it.chunk = chunk_of_slot_[gradient_of(value_slot)] = chunk;
    it.offset = offset;
  }

  /// Which tensor and list a slot belongs to, for messages. O(tensors).
  [[nodiscard]] std::pair<tensor_id, std::string_view> describe(std::uint32_t at) const noexcept
  {
    for (std::uint32_t id = 0; id < tensors(); ++id) {
      if (value_slot(tensor_id{id}) == at) return {tensor_id{id}, lists_[0].name};
      if (tensors_[id].part != role::parameter) continue;
      for (std::uint32_t list = 1; list < lists_.size(); ++list)
        if (slot_in(tensor_id{id}, list_id{list}) == at) return {tensor_id{id}, lists_[list].name};
    }
    return {tensor_id::none, "unknown"};
  }

  /// Bytes of all tensors of a role.
  [[nodiscard]] bytes bytes_of(role part) const
  {
    bytes total;
    for (const tensor_info& it : tensors_) {
      if (it.part == part) total += bytes{it.extents.elements()} * size_of(it.type);
      if (it.part != role::parameter) continue;
      if (part == role::gradient) total += bytes{it.extents.elements()} * size_of(it.gradient);
      if (part != role::optimizer_state) continue;
      for (std::uint32_t list = 2; list < lists(); ++list)
        if (is_in(id_of(it), list_id{list})) total += bytes{it.extents.elements()} * size_of(lists_[list].type);
    }
    return total;
  }

 private:
  struct list_info {
    std::string name;
    dtype type = dtype::float32;
    std::uint32_t version = 1;
    list_use use = list_use::state;
  };

  [[nodiscard]] tensor_id id_of(const tensor_info& it) const noexcept
  {
    return tensor_id{static_cast<std::uint32_t>(&it - tensors_.data())};
  }

  void build_slots()
  {
    const std::size_t count = std::size_t{parameters_} * lists_.size() + others_;
    if (count >= UINT32_MAX - 1) throw size_overflow{"slots of a manager", parameters_, lists_.size()};
    slots_.assign(count, slot{});
    const std::size_t others = lists_.size() * parameters_;
    value_slots_.clear();
    for (const tensor_info& it : tensors_)
      value_slots_.push_back(static_cast<std::uint32_t>(it.part == role::parameter ? it.ordinal : others + it.ordinal));
  }

  /// One list of one role, in the order of declaration, into chunks of its own.
  template <class Layout>
  void place(bytes frame, list_id list, role part)
  {
    Layout layout{frame};
    const auto base = static_cast<std::uint32_t>(frames_of_chunk_.size());
    for (std::uint32_t id = 0; id < tensors(); ++id) {
      const tensor_info& it = tensors_[id];
      if (it.part != part || !is_in(tensor_id{id}, list)) continue;
      const bytes size = bytes{it.extents.elements()} * size_of(type_in(tensor_id{id}, list));
      const chunk_place where = layout.place(size);
      slot& target = slots_[list == value_list ? value_slot(tensor_id{id}) : slot_in(tensor_id{id}, list)];
      target.chunk = base + where.chunk;
      target.offset = where.offset;
      target.size = size.count();
      target.starts_at_zero = index_of(list) > 1 && list != masters_;
      if (target.chunk >= frames_of_chunk_.size()) {
        frames_of_chunk_.resize(target.chunk + 1, 1);
        used_.resize(target.chunk + 1, 0);
      }
      frames_of_chunk_[target.chunk] = std::max(frames_of_chunk_[target.chunk], where.frames);
      used_[target.chunk] = std::max(used_[target.chunk], where.offset + align_up(size, tensor_alignment).count());
    }
  }

  std::vector<tensor_info> tensors_;
  std::vector<list_info> lists_{{"value"}, {"gradient"}};
  std::vector<slot> slots_;
  std::vector<std::uint32_t> value_slots_;  // by tensor: parameters list by list, then all others
  std::vector<std::uint32_t> of_parameter_;  // tensors, in the order of parameters
  std::uint32_t parameters_ = 0;
  std::uint32_t others_ = 0;
  list_id masters_ = list_id::none;
  std::vector<std::uint32_t> chunk_of_slot_;
  std::vector<std::uint32_t> frames_of_chunk_;
  std::vector<std::uint64_t> used_;
  bool sealed_ = false;
};

}  // namespace chunkmem::inline v0
