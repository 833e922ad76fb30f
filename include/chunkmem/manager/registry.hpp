// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/tensor/tensor_names.hpp>
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

/// One tensor in one list: the place of its bytes and its state. 32 bytes.
///
///     const slot& it = tensors[id];
///     std::byte* const begin = chunk + it.offset;
struct slot {
  chunk_id chunk = chunk_id::none;               ///< none: the tensor is not in this list
  std::uint32_t next_access_index = UINT32_MAX;  ///< of its next entry in the record being followed
  std::uint64_t offset = 0;                      ///< in its chunk [bytes]
  std::uint64_t size = 0;                        ///< [bytes]
  std::uint32_t pins = 0;
  tensor_state state = tensor_state::free;
  bool starts_at_zero = false;  ///< its first use finds zeros: lists of optimizers
  std::uint16_t host_pins = 0;  ///< pins on the host among them

  [[nodiscard]] std::uint32_t pins_in(memory_location place) const noexcept
  {
    return place == memory_location::host ? host_pins : pins - host_pins;
  }
};

static_assert(sizeof(slot) == 32);

/// Slots and the chunks they lie in.
///
///     table.place(order, append_layout{}, 4_MiB);
struct slot_table {
  sequence<slot> slots;
  sequence<std::uint32_t> chunk_of_slot;
  sequence<std::uint32_t> frames_of_chunk;
  sequence<std::uint64_t> used;  ///< bytes of each chunk

  /// Places slots of known sizes, in this order, into fresh chunks after the present ones. O(slots).
  /// @throws the errors of the layout; chunks and places are then undefined
  template <chunk_layout Layout>
  void place(std::span<const slot_id> order, Layout layout, bytes frame)
  {
    sequence<bytes> sizes;
    sizes.reserve(order.size());
    for (const slot_id each : order) sizes.push_back(bytes{slots[index_of(each)].size});
    sequence<chunk_place> places(sizes.size());
    layout.reset(frame);
    place_all(layout, sizes, places);
    const auto base = static_cast<std::uint32_t>(frames_of_chunk.size());
    for (std::size_t index = 0; index < order.size(); ++index) {
      slot& target = slots[index_of(order[index])];
      const std::uint32_t chunk = base + places[index].chunk;
      target.chunk = chunk_id{chunk};
      target.offset = places[index].offset;
      if (chunk >= frames_of_chunk.size()) {
        frames_of_chunk.resize(chunk + 1, 1);
        used.resize(chunk + 1, 0);
      }
      frames_of_chunk[chunk] = std::max(frames_of_chunk[chunk], places[index].frames);
      used[chunk] = std::max(used[chunk], target.offset + align_up(sizes[index], tensor_alignment).count());
    }
  }

  /// After the last list was placed. O(slots).
  void finish()
  {
    chunk_of_slot.resize(slots.size());
    std::transform(slots.begin(), slots.end(), chunk_of_slot.begin(),
                   [](const slot& slot_state) { return index_of(slot_state.chunk); });
  }
};

/// Tensors of one shape, one for each layer, declared together.
///
///     const stacked<float> weights = m.add_stacked<float>(12, {1'024, 1'024}, role::parameter);
///     const tensor<float> of_last_layer = weights.slice(11);
template <element Element>
struct stacked {
  tensor<Element> first;
  std::uint32_t layers = 0;

  /// The tensor of a layer. @throws usage_error   there is no such layer
  [[nodiscard]] constexpr tensor<Element> slice(std::uint32_t layer) const
  {
    if (layer >= layers)
      throw usage_error{error_text{} << "chunkmem: layer " << layer << " of a stack of " << layers
                                     << " tensors (layers count from 0)"};
    return {{tensor_id{index_of(first.id) + layer}, first.owner}};
  }
};

inline constexpr list_id value_list{0};
inline constexpr list_id gradient_list{1};

/// The declaration of a tensor.
///
///     bytes all;
///     m.for_each_parameter([&](tensor_handle, const tensor_info& info) {
///       all += bytes{info.extents.elements()} * size_of(info.type);
///     });
struct tensor_info {
  shape extents;
  dtype type = dtype::float32;
  dtype gradient = dtype::float32;  ///< type of its gradient
  role part = role::parameter;
  group_id group{0};
  std::uint32_t ordinal = 0;  ///< among the parameters, or among all others
};

/// Tensors, lists and slots: the declarations, and the places that a layout gave them.
///
///     registry tensors;
///     const tensor_id weight = tensors.add({1'024, 1'024}, dtype::float32, role::parameter, group_id{0});
///     tensors.seal(append_layout{}, 4_MiB);
///     const chunk_id chunk = tensors.chunk_of(weight);
///
/// Parameters have a slot in each list, other tensors one. A slot is a number: the place of its bytes may change. A
/// master list has bytes for 16-bit parameters only.
class registry {
 public:
  tensor_id add(const shape& extents, dtype type, role part, group_id group)
  {
    return add(extents, type, part, group, type);
  }
  tensor_id add(const shape& extents, dtype type, role part, group_id group, dtype gradient)
  {
    expects(!sealed_, "a tensor was added after the manager was sealed: declare all tensors before the first access");
    expects(part != role::gradient && part != role::optimizer_state,
            "gradients and optimizer states are made by the manager: declare parameters and lists");
    expects(tensors_.size() < UINT32_MAX - 1, "a manager holds fewer than 2^32 tensors");
    if (takes_steps_ && part == role::parameter && !is_updated(type)) refuse_type(tensor_id{tensors()}, type);
    (void)(bytes{extents.elements()} * size_of(type));  // too large is refused here, where the caller can see why
    std::uint32_t& ordinal = part == role::parameter ? parameters_ : others_;
    tensors_.push_back({extents, type, gradient, part, group, ordinal});
    ++ordinal;
    return tensor_id{static_cast<std::uint32_t>(tensors_.size() - 1)};
  }
  /// The next `count` calls of `add` allocate nothing.
  void make_room(std::size_t count)
  {
    if (tensors_.capacity() - tensors_.size() < count) tensors_.reserve(2 * tensors_.size() + count);
  }

  /// An optimizer will update the parameters. @throws usage_error   a parameter has a type that no optimizer updates
  void expect_updated() const
  {
    for (std::uint32_t id = 0; id < tensors(); ++id)
      if (tensors_[id].part == role::parameter && !is_updated(tensors_[id].type))
        refuse_type(tensor_id{id}, tensors_[id].type);
  }
  /// From here on, a parameter of such a type is refused. @pre expect_updated
  void take_steps() noexcept { takes_steps_ = true; }

  list_id add_list(const list_spec& spec)
  {
    expects(!sealed_, "a list was added after the manager was sealed: name the optimizer before the first access");
    for (const auto& known : lists_)
      if (known.name == spec.name)
        throw usage_error{error_text{} << "chunkmem: two lists have one name, " << spec.name
                                       << " (call use once, or give the lists other names)"};
    name_rules::expect_list(spec.name);
    for (std::uint32_t id = 0; id < tensors(); ++id)
      if (is_stored(tensor_id{id}) && !names_.of(id).empty()) expect_beside_lists(names_.of(id), spec.name);
    const list_id added{lists()};
    if (spec.use == list_use::master) {
      expects(spec.type == dtype::float32, "a master list that is not float32");
      expects(!has_masters(), "two master lists: the lists of one optimizer are enough");
    }
    lists_.push_back({std::string{spec.name}, spec.type, spec.version, spec.use});
    if (spec.use == list_use::master) masters_ = added;
    return added;
  }

  /// Places all tensors with copies of a layout, in the order of declaration. O(slots) calls of the layout.
  /// @throws size_overflow, usage_error with nothing sealed; the errors of the layout
  template <chunk_layout Layout>
  void seal(const Layout& prototype, bytes frame)
  {
    if (sealed_) return;
    expect_distinct_names();
    build_slots();
    place_in_order({}, prototype, frame);
    order_.clear();
    for (const list_id each : ids<list_id>(lists())) order_.push_back(each);
    sealed_ = true;
  }

  /// Places all tensors again, in the order of first use: tensors that are used together lie together. Unused tensors
  /// (UINT32_MAX) come last; equal keys stay in the order of declaration.
  /// @param first_use   by slot, such as the access of its first access
  /// @pre nothing is allocated yet, and no slot was moved
  /// @throws usage_error   not sealed, pinned, or not one number for each slot; the errors of the layout. State
  ///   unchanged
  template <chunk_layout Layout>
  void place_by_use(std::span<const std::uint32_t> first_use, const Layout& prototype, bytes frame)
  {
    expects(sealed_, "tensors can be placed again only after the manager was sealed");
    expects(first_use.size() == table_.slots.size(), "placing by use needs one number for each slot");
    for (const slot& slot_state : table_.slots)
      expects(slot_state.pins == 0, "tensors cannot be placed again while a pin holds one");
    place_in_order(first_use, prototype, frame);
  }

  /// Calls `visit(sizes)` for each list of each role: the bytes of its tensors, in the order of declaration; values
  /// first.
  template <class Visit>
  void for_each_group(Visit visit) const
  {
    const auto sizes_of = [&](list_id list, role part) {
      sequence<bytes> sizes;
      for (std::uint32_t id = 0; id < tensors(); ++id)
        if (tensors_[id].part == part && is_in(tensor_id{id}, list))
          sizes.push_back(bytes{tensors_[id].extents.elements()} * size_of(type_in(tensor_id{id}, list)));
      return sizes;
    };
    for (const role part : {role::parameter, role::frozen, role::buffer, role::activation, role::gathered})
      visit(sizes_of(value_list, part));
    for (std::uint32_t list = 1; list < lists_.size(); ++list) visit(sizes_of(list_id{list}, role::parameter));
  }

  [[nodiscard]] bool is_sealed() const noexcept { return sealed_; }
  [[nodiscard]] std::uint32_t lists() const noexcept { return static_cast<std::uint32_t>(lists_.size()); }
  /// Values have the tensor's type, gradients the type of their policy, other lists their own.
  [[nodiscard]] dtype type_in(tensor_id id, list_id list) const noexcept
  {
    const tensor_info& info = tensors_[index_of(id)];
    return list == value_list ? info.type : list == gradient_list ? info.gradient : lists_[index_of(list)].type;
  }
  /// A parameter has bytes in this list.
  [[nodiscard]] bool is_in(tensor_id id, list_id list) const noexcept
  {
    return lists_[index_of(list)].use != list_use::master || size_of(tensors_[index_of(id)].type) == 2;
  }
  [[nodiscard]] list_spec spec_of(list_id list) const noexcept { return lists_[index_of(list)].spec(); }
  [[nodiscard]] bool has_masters() const noexcept { return masters_ != list_id::none; }
  [[nodiscard]] list_id masters() const noexcept { return masters_; }  ///< the master list, or none
  /// The master of a parameter's value. @return   none where it has none   @pre sealed
  [[nodiscard]] slot_id master_of(slot_id value_slot) const noexcept
  {
    if (!has_masters() || !is_value_of_parameter(value_slot)) return slot_id::none;
    const slot_id master = slot_of(masters_, index_of(value_slot));
    return (*this)[master].chunk == chunk_id::none ? slot_id::none : master;
  }
  /// The slot is in a list of an optimizer.
  [[nodiscard]] bool is_state(slot_id slot) const noexcept
  {
    return index_of(slot) >= 2 * parameters_ && is_of_parameter(slot);
  }
  [[nodiscard]] bool is_master(slot_id slot) const noexcept
  {
    return has_masters() && is_state(slot) && index_of(slot) / parameters_ == index_of(masters_);
  }
  /// Other ranks change its bytes while it has no pins. O(tensors).
  [[nodiscard]] bool is_gathered(slot_id slot) const noexcept
  {
    return !is_of_parameter(slot) && std::any_of(tensors_.begin(), tensors_.end(), [&](const tensor_info& info) {
      return info.part == role::gathered && value_slot(id_of(info)) == slot;
    });
  }
  [[nodiscard]] std::uint32_t parameters() const noexcept { return parameters_; }
  [[nodiscard]] tensor_id parameter(std::uint32_t ordinal) const noexcept { return of_parameter_[ordinal]; }
  /// The element type of a parameter, by the slot of its value.
  [[nodiscard]] dtype value_type(slot_id value_slot) const noexcept
  {
    return info(parameter(index_of(value_slot))).type;
  }
  [[nodiscard]] dtype gradient_type(slot_id value_slot) const noexcept
  {
    return info(parameter(index_of(value_slot))).gradient;
  }
  [[nodiscard]] bool is_value_of_parameter(slot_id slot) const noexcept { return index_of(slot) < parameters_; }
  [[nodiscard]] bool is_gradient(slot_id slot) const noexcept
  {
    return index_of(slot) >= parameters_ && index_of(slot) < 2 * parameters_;
  }
  /// The slot is of a parameter, in any list.
  [[nodiscard]] bool is_of_parameter(slot_id slot) const noexcept { return index_of(slot) < lists() * parameters_; }
  /// The value of the parameter that has this slot in some list. @pre is_of_parameter
  [[nodiscard]] slot_id value_of(slot_id slot) const noexcept { return slot_id{index_of(slot) % parameters_}; }
  [[nodiscard]] slot_id gradient_of(slot_id value_slot) const noexcept
  {
    return slot_id{parameters_ + index_of(value_slot)};
  }
  [[nodiscard]] std::uint32_t tensors() const noexcept { return static_cast<std::uint32_t>(tensors_.size()); }
  [[nodiscard]] const tensor_info& info(tensor_id id) const noexcept { return tensors_[index_of(id)]; }
  [[nodiscard]] slot& operator[](slot_id id) noexcept { return table_.slots[index_of(id)]; }
  [[nodiscard]] const slot& operator[](slot_id id) const noexcept { return table_.slots[index_of(id)]; }
  [[nodiscard]] id_range<slot_id> slot_ids() const noexcept
  {
    return ids<slot_id>(static_cast<std::uint32_t>(table_.slots.size()));
  }
  [[nodiscard]] sequence<slot>& slots() noexcept { return table_.slots; }
  [[nodiscard]] const sequence<slot>& slots() const noexcept { return table_.slots; }
  /// The chunk of each slot as plain numbers, for records and plans.
  [[nodiscard]] std::span<const std::uint32_t> chunk_of_slot() const noexcept { return table_.chunk_of_slot; }
  [[nodiscard]] std::span<const std::uint32_t> frames_of_chunk() const noexcept { return table_.frames_of_chunk; }
  [[nodiscard]] std::span<const std::uint64_t> used() const noexcept { return table_.used; }  ///< bytes of each chunk
  /// The frames of all chunks together.
  [[nodiscard]] std::uint64_t total_frames() const noexcept
  {
    std::uint64_t all = 0;
    for (const std::uint32_t frames : table_.frames_of_chunk) all += frames;
    return all;
  }
  /// Frames of the largest chunk, at least 1.
  [[nodiscard]] std::uint32_t longest_frame_run() const noexcept
  {
    std::uint32_t longest = 1;
    for (const std::uint32_t frames : table_.frames_of_chunk) longest = std::max(longest, frames);
    return longest;
  }
  /// The chunk that holds the values of a tensor. @pre sealed
  [[nodiscard]] chunk_id chunk_of(tensor_id id) const noexcept { return chunk_of(value_slot(id)); }
  [[nodiscard]] chunk_id chunk_of(slot_id id) const noexcept { return (*this)[id].chunk; }

  /// The slot of a tensor in its own values. The hot path. @pre sealed
  [[nodiscard]] slot_id value_slot(tensor_id id) const noexcept { return value_slots_[index_of(id)]; }
  /// @pre sealed, the tensor is a parameter and the list exists
  [[nodiscard]] slot_id slot_in(tensor_id id, list_id list) const noexcept
  {
    return slot_of(list, tensors_[index_of(id)].ordinal);
  }

  /// @throws usage_error   there is no such list
  [[nodiscard]] list_id list(std::string_view name) const
  {
    for (std::uint32_t index = 0; index < lists_.size(); ++index)
      if (lists_[index].name == name) return list_id{index};
    error_text text;
    text << "chunkmem: there is no list named '" << name << "'";
    if (lists_.size() == 2)
      throw usage_error{text << " (call use with the optimizer first; the only lists are value and gradient)"};
    text << " (there are ";
    for (std::size_t index = 0; index < lists_.size(); ++index)
      text << (index == 0 ? "" : index + 1 < lists_.size() ? ", " : " and ") << lists_[index].name;
    throw usage_error{text << ")"};
  }

  /// @throws usage_error   not sealed, no such list, a tensor in them is pinned, or the element types differ
  void expect_exchangeable(list_id left, list_id right) const
  {
    expects(sealed_, "lists can be exchanged only after the manager was sealed");
    expects(index_of(left) < lists() && index_of(right) < lists(), "a list that this manager does not have");
    for (std::uint32_t id = 0; id < tensors(); ++id)
      expects(tensors_[id].part != role::parameter || type_in(tensor_id{id}, left) == type_in(tensor_id{id}, right),
              "lists of two element types cannot be exchanged");
    for (std::uint32_t index = 0; index < parameters_; ++index) {
      const slot& first = (*this)[slot_of(left, index)];
      const slot& second = (*this)[slot_of(right, index)];
      expects(first.pins + second.pins == 0, "a list cannot be exchanged while a pin holds it");
      expects((first.chunk == chunk_id::none) == (second.chunk == chunk_id::none),
              "a master list cannot be exchanged with a list that has more parameters");
    }
  }
  /// Two lists of one element type exchange their bytes by exchanging places: a flip of weight versions. Slots keep
  /// their numbers, so a record stays valid. Calls `exchanged(left, right)` for each pair of slots. O(parameters).
  /// @pre expect_exchangeable
  template <class Exchanged>
  void exchange(list_id left, list_id right, Exchanged exchanged)
  {
    for (std::uint32_t index = 0; index < parameters_; ++index) {
      const slot_id first = slot_of(left, index);
      const slot_id second = slot_of(right, index);
      exchange(first, second);
      exchanged(first, second);
    }
    std::swap(order_[index_of(left)], order_[index_of(right)]);
  }
  /// Two slots of one size exchange their bytes. Their numbers stay. @pre no pins
  void exchange(slot_id first, slot_id second) noexcept
  {
    // these two stay with the numbers
    std::swap((*this)[first].next_access_index, (*this)[second].next_access_index);
    std::swap((*this)[first].starts_at_zero, (*this)[second].starts_at_zero);
    std::swap((*this)[first], (*this)[second]);
    std::swap(table_.chunk_of_slot[index_of(first)], table_.chunk_of_slot[index_of(second)]);
  }
  /// By list: the list whose bytes it has after all exchanges. Empty before the manager is sealed.
  [[nodiscard]] std::span<const list_id> order() const noexcept { return std::span{order_}; }
  /// The order after an exchange of these two. Valid until the next call. @pre sealed, and the lists exist
  [[nodiscard]] std::span<const list_id> order_after(list_id left, list_id right)
  {
    next_order_ = order_;
    std::swap(next_order_[index_of(left)], next_order_[index_of(right)]);
    return std::span{next_order_};
  }

  /// The gradient of a parameter lies there from now on. @pre it is free, without pins
  void move_gradient(slot_id value_slot, chunk_id chunk, std::uint64_t offset) noexcept
  {
    const slot_id gradient = gradient_of(value_slot);
    slot& slot_state = (*this)[gradient];
    slot_state.chunk = chunk;
    table_.chunk_of_slot[index_of(gradient)] = index_of(chunk);
    slot_state.offset = offset;
  }

  /// Sets the name of a tensor in files and messages; an empty text removes the name. Guarantee: strong. @throws
  /// config_error   another tensor has this name, or no checkpoint could hold it
  void name(tensor_id id, std::string_view text)
  {
    if (!text.empty() && is_stored(id)) {
      name_rules::expect_tensor(text);
      expect_beside_lists(text);
    }
    const std::string before{names_.of(index_of(id))};
    names_.set(index_of(id), text);
    if (!sealed_) return;
    try {
      expect_distinct_names();
    } catch (...) {
      names_.set(index_of(id), before);
      throw;
    }
  }
  /// By tensor, as far as names were given.
  [[nodiscard]] std::span<const std::string> names() const noexcept { return names_.all(); }

  /// The name of a tensor in files, or "tensor.<number>". Allocates
  [[nodiscard]] std::string name_of(tensor_id id) const { return names_.name_of(index_of(id)); }
  /// The name for messages, in quotes. Allocates nothing.
  void write_name(tensor_id id, error_text& text) const noexcept
  {
    if (const std::string_view name = names_.of(index_of(id)); !name.empty())
      text << "'" << name << "'";
    else
      text << "tensor." << index_of(id);
  }
  /// For messages: "tensor 'embedding' (value)", or "tensor 12 (gradient)" where it has no name. O(tensors).
  [[nodiscard]] tensor_label label(slot_id slot) const noexcept
  {
    const auto [id, list] = describe(slot);
    return {id, names_.of(index_of(id)), list};
  }
  /// Throws where a call about a tensor broke a precondition. @throws usage_error   `condition` is false; names the
  /// tensor
  void expects_of(slot_id slot, bool condition, std::string_view what) const
  {
    if (!condition) [[unlikely]]
      refuse(slot, what);
  }
  [[noreturn, gnu::noinline, gnu::cold]] void refuse(slot_id slot, std::string_view what) const
  {
    throw usage_error{error_text{} << "chunkmem: " << label(slot) << ": " << what};
  }

  /// Which tensor and list a slot belongs to. O(tensors).
  [[nodiscard]] std::pair<tensor_id, std::string_view> describe(slot_id slot) const noexcept
  {
    for (std::uint32_t id = 0; id < tensors(); ++id) {
      if (value_slot(tensor_id{id}) == slot) return {tensor_id{id}, lists_[0].name};
      if (tensors_[id].part != role::parameter) continue;
      for (std::uint32_t list = 1; list < lists_.size(); ++list)
        if (slot_in(tensor_id{id}, list_id{list}) == slot) return {tensor_id{id}, lists_[list].name};
    }
    return {tensor_id::none, "unknown"};
  }

  /// Bytes of all tensors of a role.
  [[nodiscard]] bytes bytes_of(role part) const
  {
    bytes total;
    for (const tensor_info& info : tensors_) {
      if (info.part == part) total += bytes{info.extents.elements()} * size_of(info.type);
      if (info.part != role::parameter) continue;
      if (part == role::gradient) total += bytes{info.extents.elements()} * size_of(info.gradient);
      if (part != role::optimizer_state) continue;
      for (std::uint32_t list = 2; list < lists(); ++list)
        if (is_in(id_of(info), list_id{list})) total += bytes{info.extents.elements()} * size_of(lists_[list].type);
    }
    return total;
  }

 private:
  struct list_info {
    std::string name;
    dtype type = dtype::float32;
    std::uint32_t version = 1;
    list_use use = list_use::state;
    [[nodiscard]] list_spec spec() const noexcept { return {name, type, version, use}; }
  };

  [[nodiscard]] tensor_id id_of(const tensor_info& info) const noexcept
  {
    return tensor_id{static_cast<std::uint32_t>(&info - tensors_.data())};
  }

  [[nodiscard]] static bool is_updated(dtype type) noexcept
  {
    return type == dtype::float32 || type == dtype::bfloat16 || type == dtype::float16;
  }
  [[noreturn]] void refuse_type(tensor_id id, dtype type) const
  {
    error_text text;
    text << "chunkmem: ";
    write_name(id, text);
    throw usage_error{text << " is a parameter of " << chunkmem::name_of(type)
                           << " in a manager with an optimizer, which updates float32, bfloat16 and float16 (declare "
                              "it with role::frozen or role::buffer)"};
  }

  /// A checkpoint holds the tensor. Gathered tensors are saved as shares.
  [[nodiscard]] bool is_stored(tensor_id id) const noexcept
  {
    const role part = tensors_[index_of(id)].part;
    return part != role::activation && part != role::gathered;
  }
  /// @param more   a list that is still to be added   @throws config_error   see name_rules
  void expect_beside_lists(std::string_view name, std::string_view more = {}) const
  {
    name_rules::expect_beside(name, [&](auto visit) {
      for (std::size_t list = 2; list < lists_.size(); ++list) visit(std::string_view{lists_[list].name});
      if (!more.empty()) visit(more);
    });
  }
  void expect_distinct_names() const
  {
    names_.expect_distinct([this](std::uint32_t id) { return id < tensors() && is_stored(tensor_id{id}); });
  }

  /// @param ordinal   among the parameters
  [[nodiscard]] slot_id slot_of(list_id list, std::uint32_t ordinal) const noexcept
  {
    return slot_id{index_of(list) * parameters_ + ordinal};
  }

  void build_slots()
  {
    const std::size_t count = std::size_t{parameters_} * lists_.size() + others_;
    if (count >= UINT32_MAX - 1) throw size_overflow{"slots of a manager", parameters_, lists_.size()};
    table_.slots.assign(count, slot{});
    of_parameter_.resize(parameters_);
    value_slots_.clear();
    for (const tensor_info& info : tensors_) {
      value_slots_.push_back(slot_of(info.part == role::parameter ? value_list : list_id{lists()}, info.ordinal));
      if (info.part == role::parameter) of_parameter_[info.ordinal] = id_of(info);
    }
  }

  /// Places each list of each role into chunks of its own; the places are unchanged where the layout throws.
  template <class Layout>
  void place_in_order(std::span<const std::uint32_t> first_use, const Layout& prototype, bytes frame)
  {
    slot_table fresh{table_.slots, {}, {}, {}};
    const auto place = [&](list_id list, role part) {
      sequence<slot_id> order = size_slots(fresh.slots, list, part);
      if (!first_use.empty())
        sort_records(std::span{order}, [&](slot_id a, slot_id b) {
          const std::uint32_t left = first_use[index_of(a)];
          const std::uint32_t right = first_use[index_of(b)];
          return left != right ? left < right : a < b;
        });
      fresh.place(order, prototype, frame);
    };
    for (const role part : {role::parameter, role::frozen, role::buffer, role::activation, role::gathered})
      place(value_list, part);
    for (std::uint32_t list = 1; list < lists_.size(); ++list) place(list_id{list}, role::parameter);
    fresh.finish();
    std::swap(table_, fresh);
  }

  /// The slots of one list and role, in the order of declaration.
  sequence<slot_id> size_slots(sequence<slot>& slots, list_id list, role part) const
  {
    sequence<slot_id> order;
    for (std::uint32_t id = 0; id < tensors(); ++id) {
      if (tensors_[id].part != part || !is_in(tensor_id{id}, list)) continue;
      order.push_back(list == value_list ? value_slot(tensor_id{id}) : slot_in(tensor_id{id}, list));
      slot& slot_state = slots[index_of(order.back())];
      slot_state.size = (bytes{tensors_[id].extents.elements()} * size_of(type_in(tensor_id{id}, list))).count();
      slot_state.starts_at_zero = index_of(list) > 1 && list != masters_;
    }
    return order;
  }

  sequence<tensor_info> tensors_;
  tensor_names names_;
  std::vector<list_info> lists_{{"value"}, {"gradient"}};
  slot_table table_;
  sequence<slot_id> value_slots_;     // by tensor: parameters list by list, then all others
  sequence<tensor_id> of_parameter_;  // in the order of parameters
  sequence<list_id> order_;           // by list: the list whose bytes it has
  sequence<list_id> next_order_;      // kept for its memory
  std::uint32_t parameters_ = 0;
  std::uint32_t others_ = 0;
  list_id masters_ = list_id::none;
  bool takes_steps_ = false;
  bool sealed_ = false;
};

}  // namespace chunkmem::inline v0
