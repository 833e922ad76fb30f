// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/missed_updates.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/tensor/tensor_names.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

struct stored_value;

/// Elements of a stored tensor that lie in an item, one after the other.
///
///     for (const item_piece& it : item.pieces) std::cout << it.elements << " of " << it.name << '\n';
struct item_piece {
  std::string name;                    ///< of the tensor
  std::vector<std::uint64_t> extents;  ///< of the whole tensor
  std::uint64_t first = 0;             ///< first element of the piece in the tensor
  std::uint64_t elements = 0;
  std::uint64_t begin = 0;  ///< first element of the piece in the item
  // In a load:
  const stored_value* stored = nullptr;  ///< where the file has the tensor; null: the file lacks it
  bool is_transposed = false;            ///< the file has its columns as rows
  bool begins_anew = false;              ///< it is not loaded from the file

  [[nodiscard]] bool is_whole() const { return elements == size_of_tensor(dtype::uint8, extents).count(); }
};

/// A part of a manager that a checkpoint holds: a tensor in one of its lists, or a registered state.
///
///     for (const model_item& it : content_of(m)) std::cout << it.name << ": " << it.size() << " B\n";
struct model_item {
  std::string name;             ///< in files: "wte", "adam/momentum/wte", "state/data/cursor"
  dtype type = dtype::float32;  ///< of the saved elements
  std::vector<std::uint64_t> extents;
  tensor_handle tensor{};     ///< for a number of one parameter, the parameter's number in the model
  list_id list = value_list;  ///< the saved list
  role part = role::parameter;
  list_id master = list_id::none;  ///< for a 16-bit value: the list of its master, if there is one
  dtype value_type = dtype::float32;
  bool is_filled = true;                      ///< the item has bytes now
  bool starts_at_zero = false;                ///< without bytes the item reads as zeros
  std::span<std::byte> state{};               ///< for a registered state: the caller's bytes
  bool is_constant = false;                   ///< a load leaves the state as it is
  std::span<const std::byte> count_of_all{};  ///< for a number of one parameter: its value where the lists begin anew
  std::size_t length_of_tensor = 0;           ///< for a number of one parameter: length of the tensor's name at its end
  /// its saved pieces, in their order: the item itself; for a rank's shard, runs of tensors
  std::vector<item_piece> pieces{};
  bool is_written = true;  ///< by this rank; false: another rank has the same bytes and writes them

  [[nodiscard]] bool is_state() const noexcept { return state.data() != nullptr; }
  /// The weight of a parameter, or its element in a list: only updates and writes change it.
  [[nodiscard]] bool is_weight_or_list() const noexcept { return !is_state() && part == role::parameter; }
  /// Whether this is a registered number of one parameter, or a constant: a checkpoint without its name has zeros.
  [[nodiscard]] bool may_be_absent() const noexcept { return is_state() && starts_at_zero; }
  /// For a number of one parameter: the prefix of the lists whose updates it counts, "adam/".
  [[nodiscard]] std::string_view kernel_prefix() const noexcept
  {
    std::string_view registered{name};
    registered.remove_prefix(name_rules::state_prefix.size());
    registered.remove_suffix(length_of_tensor + 1);
    return registered.substr(0, registered.rfind('/') + 1);
  }
  /// Whether a save leaves the item out. @pre may_be_absent()
  [[nodiscard]] bool is_zero() const noexcept
  {
    return std::ranges::all_of(state, [](std::byte it) { return it == std::byte{0}; });
  }
  /// Bytes of the item. @throws size_overflow
  [[nodiscard]] std::uint64_t size() const { return size_of_tensor(type, extents).count(); }
};

namespace detail {

inline constexpr std::string_view state_prefix = name_rules::state_prefix;

[[nodiscard]] inline std::vector<std::uint64_t> extents_of(const shape& of)
{
  std::vector<std::uint64_t> extents;
  for (std::size_t axis = 0; axis < of.rank(); ++axis) extents.push_back(of[axis]);
  return extents;
}

/// Adds a parameter's items: its value, or the master in its place, and its states.
template <class Manager>
void add_parameter(Manager& m, tensor_handle it, const tensor_info& info, std::vector<model_item>& items)
{
  const std::string name = m.name_of(it);
  const std::vector<std::uint64_t> extents = extents_of(info.extents);
  model_item value{name, info.type, extents, it};
  value.value_type = info.type;
  value.is_filled = m.is_filled(it, value_list);
  m.for_each_list([&](list_id list, const list_spec& spec) {
    if (!m.is_in(it, list) || spec.use == list_use::scratch) return;
    if (spec.use == list_use::master) {
      value.master = list;
      if (!m.is_filled(it, list)) return;  // not made yet: only the value exists
      value.list = list;
      value.type = spec.type;
      value.is_filled = true;  // also while a gradient lies in the value's bytes
      return;
    }
    model_item state{std::string{spec.name} + '/' + name, spec.type, extents, it, list};
    state.value_type = spec.type;
    state.is_filled = m.is_filled(it, list);
    state.starts_at_zero = true;
    items.push_back(std::move(state));
  });
  items.push_back(std::move(value));
}

/// Sorts items in the order in which the next iteration will change them, among those of equal alignment.
template <class Manager>
void sort_by_change(Manager& m, std::vector<model_item>& items)
{
  const auto places = m.content().places_of_changes();
  struct key {
    std::uint64_t alignment;
    std::uint32_t place;
    std::size_t index;
  };
  std::vector<key> keys;
  keys.reserve(items.size());
  for (const model_item& item : items) {
    const bool changes = !item.is_state() && item.part == role::parameter;
    keys.push_back({size_of(item.type),
                    changes ? places[index_of(m.content().slot_of(item.tensor, item.list))] : UINT32_MAX, keys.size()});
  }
  std::ranges::sort(keys, [](const key& a, const key& b) {
    if (a.alignment != b.alignment) return a.alignment > b.alignment;
    return a.place != b.place ? a.place < b.place : a.index < b.index;
  });
  std::vector<model_item> sorted;
  sorted.reserve(items.size());
  for (const key& it : keys) sorted.push_back(std::move(items[it.index]));
  items = std::move(sorted);
}

/// Sorts items by element size, largest first, so that each lies aligned in its file.
inline void sort_by_alignment(std::vector<model_item>& items)
{
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return size_of(a.type) > size_of(b.type); });
}

inline void refuse_equal_names(const std::vector<model_item>& items)
{
  std::vector<std::string_view> names;
  for (const model_item& item : items) names.push_back(item.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw config_error{error_text{} << "chunkmem: two tensors or states of this model are called " << *twice
                                    << " in a checkpoint (give them different names)"};
}

/// @param more   bytes that files may add before and after the name
/// @throws config_error   in a file the name of this tensor would mean something else
template <class Manager>
void refuse_reserved_name(const Manager& m, std::string_view name, std::size_t more = 0)
{
  name_rules::expect_tensor(name, more);
  name_rules::expect_beside(
      name, [&](auto visit) { m.for_each_list([&](list_id, const list_spec& spec) { visit(spec.name); }); }, more);
}

template <class Manager>
void expect_between(const Manager& m)
{
  expects(!m.is_iterating() && !m.rehearsing(),
          "a checkpoint inside an iteration or a rehearsal: save and load between iterations");
}

/// Adds the registered states that have a number for each parameter: an item for each number.
/// @param for_each_parameter   `for_each_parameter(visit)` calls `visit(tensor, name)` for each parameter of the model,
///   with its number there
template <class Manager, class ForEachParameter>
void add_states_by_tensor(Manager& m, ForEachParameter for_each_parameter, std::vector<model_item>& items)
{
  m.content().states().for_each_by_tensor(
      [&](std::string_view name, missed_updates& missed, std::span<const std::byte> all) {
        std::size_t tensors = 0;
        for_each_parameter(
            [&](std::uint32_t which, const std::string&) { tensors = std::max(tensors, which + std::size_t{1}); });
        missed.make_room(tensors);
        for_each_parameter([&](std::uint32_t which, const std::string& of) {
          model_item state{std::string{name} + '/' + of, dtype::uint8, {}};
          if (missed.of(which) != 0) name_rules::expect_state(state.name);  // others are not written
          state.name.insert(0, state_prefix);
          state.state = missed.bytes_of(which);
          state.extents = {state.state.size()};
          state.tensor.id = tensor_id{which};
          state.starts_at_zero = true;
          state.count_of_all = all;
          state.length_of_tensor = of.size();
          items.push_back(std::move(state));
        });
      });
}

/// All items that a checkpoint of this manager would hold, in the order in which they are written, without a check for
/// gradients. Numbers of parameters are among them, also those that are zero.
/// @param for_each_parameter   as add_states_by_tensor
/// @throws usage_error   inside an iteration or a rehearsal; config_error   two items have one name, or a name means
///   something else in files
template <class Manager, class ForEachParameter>
[[nodiscard]] std::vector<model_item> items_of(Manager& m, ForEachParameter for_each_parameter)
{
  expect_between(m);
  std::vector<model_item> items;
  m.for_each_tensor([&](tensor_handle it, const tensor_info& info) {
    // the bytes of gathered tensors are saved as shards
    if (info.part == role::activation || info.part == role::gathered) return;
    refuse_reserved_name(m, m.name_of(it));
    if (info.part == role::parameter) return add_parameter(m, it, info, items);
    model_item value{m.name_of(it), info.type, extents_of(info.extents), it, value_list, info.part};
    value.value_type = info.type;
    value.is_filled = m.state_of(it) != tensor_state::free;
    items.push_back(std::move(value));
  });
  m.content().states().for_each([&](std::string_view name, std::span<std::byte> content) {
    if (content.empty()) return;
    name_rules::expect_state(name);
    model_item state{std::string{state_prefix} + std::string{name}, dtype::uint8, {content.size()}};
    state.state = content;
    state.starts_at_zero = state.is_constant = m.content().states().is_constant(name);
    items.push_back(std::move(state));
  });
  add_states_by_tensor(m, for_each_parameter, items);
  for (model_item& item : items)
    item.pieces.push_back({item.name, item.extents, 0, size_of_tensor(dtype::uint8, item.extents).count(), 0});
  refuse_equal_names(items);
  sort_by_alignment(items);
  return items;
}
/// The same for a manager that has the whole model.
template <class Manager>
[[nodiscard]] std::vector<model_item> items_of(Manager& m)
{
  return items_of(m, [&m](auto visit) {
    m.for_each_parameter([&](tensor_handle it, const tensor_info&) { visit(index_of(it.id), m.name_of(it)); });
  });
}

/// Removes the states that a save does not store: counts of missed updates and constants that are zero.
inline void leave_out_zeros(std::vector<model_item>& items)
{
  std::erase_if(items, [](const model_item& it) { return it.may_be_absent() && it.is_zero(); });
}

}  // namespace detail

namespace detail {

/// The chunks whose bytes a late update changes. No step may begin between two calls of `has`.
///
///     changing_chunks changing{m};
///     if (changing.has(weight, m.list("adam/momentum"))) promise(weight);
template <class Manager>
class changing_chunks {
 public:
  /// @param m   outlives this
  explicit changing_chunks(Manager& m) : m_{m} {}

  /// Whether the bytes of this list of a parameter lie in one of them. @complexity   O(1), O(parameters) after updates
  [[nodiscard]] bool has(tensor_handle tensor, list_id list)
  {
    if (waiting_ != m_.updates_pending()) find();
    const std::uint32_t chunk = chunk_of(tensor, list);
    return chunk < known_.size() && known_[chunk] != 0;
  }
  [[nodiscard]] std::uint32_t chunk_of(tensor_handle tensor, list_id list) const
  {
    return m_.chunk_of_slot()[index_of(m_.content().slot_of(tensor, list))];
  }

 private:
  void find()
  {
    known_.assign(known_.size(), 0);
    m_.for_each_parameter([&](tensor_handle it, const tensor_info&) {
      if (!m_.updates().waits(it)) return;
      note(it, value_list);
      m_.for_each_list([&](list_id list, const list_spec&) {
        if (m_.is_in(it, list)) note(it, list);
      });
    });
    waiting_ = m_.updates_pending();
  }
  void note(tensor_handle tensor, list_id list)
  {
    const std::uint32_t chunk = chunk_of(tensor, list);
    if (chunk >= known_.size()) known_.resize(chunk + std::size_t{1});
    known_[chunk] = 1;
  }

  Manager& m_;
  std::vector<std::uint8_t> known_;  // by chunk
  std::size_t waiting_ = 0;          // updates, when they were found
};

/// Whether late updates will be done, and make no new lists, so that a save knows all of its bytes before.
template <class Manager>
[[nodiscard]] bool can_save_behind_updates(Manager& m)
{
  bool can = m.updates().pending().is_served();
  if (!can) return false;
  m.for_each_parameter([&](tensor_handle it, const tensor_info&) {
    if (!m.updates().waits(it)) return;
    m.for_each_list([&](list_id list, const list_spec& spec) {
      can = can && (!m.is_in(it, list) || spec.use == list_use::scratch || m.is_filled(it, list));
    });
  });
  return can;
}

}  // namespace detail

/// Prepares a manager for a save: late updates are done, so that all weights are of the same step. @param waits   the
/// updates stay late: the save takes the bytes after them
/// @throws usage_error   inside an iteration or a rehearsal, with gradients that no step has used, or while a step or a
///   load is half done
template <class Manager>
void prepare_to_save(Manager& m, bool waits = false)
{
  m.updates().gradients().expect_no_update("a checkpoint cannot be made");
  m.updates().gradients().expect_no_load("a checkpoint cannot be made");
  detail::expect_between(m);
  if (!waits) m.updates().finish_updates();
  m.for_each_parameter([&](tensor_handle it, const tensor_info&) {
    expects(!m.has_gradient(it),
            "a checkpoint while gradients wait for their step: take the step, or drop_gradients()");
  });
}

/// All items that a checkpoint of this manager holds, in the order in which they are written. Activations and gradients
/// are not saved.
/// @throws as prepare_to_save; config_error   two items have one name
template <class Manager>
[[nodiscard]] std::vector<model_item> content_of(Manager& m)
{
  prepare_to_save(m);
  std::vector<model_item> items = detail::items_of(m);
  detail::leave_out_zeros(items);
  return items;
}
/// A manager as a save, a load and an import see it: a model that one rank has whole. For a model over ranks there is
/// sharding::rank_content, which has the same members.
///
///     manager_content content{m};
///     content.collect();
///     for (const model_item& it : content.items()) std::cout << it.name << '\n';
///
/// No item is divided over ranks, so calls that agree with other ranks do nothing here.
template <class Manager>
class manager_content {
 public:
  explicit manager_content(Manager& m) : m_{m} {}

  [[nodiscard]] collective::self& ranks() noexcept { return alone_; }
  /// The manager of the items' bytes.
  [[nodiscard]] Manager& manager() const noexcept { return m_; }

  /// Makes the items. @throws as detail::items_of
  void collect() { items_ = detail::items_of(m_); }
  /// Sorts the items in the order in which the last iteration changed them, for a save that lends them. After an
  /// iteration that changed none, such as an evaluation, the order stays.
  void sort_by_change() { detail::sort_by_change(m_, items_); }
  [[nodiscard]] const std::vector<model_item>& items() const noexcept { return items_; }
  [[nodiscard]] std::vector<model_item>& items() noexcept { return items_; }
  /// No item of a manager is divided over ranks.
  [[nodiscard]] bool is_own(std::size_t) const noexcept { return true; }
  template <class Visit>
  void for_each_shared(Visit) const
  {
  }
  template <class Visit>
  void for_each_divided(Visit) const
  {
  }

  void finish_updates() {}
  void finish_updates_unless(call_ref<bool()>) {}  // prepare_to_save does them, after its checks
  void finish_updates_of_saves() {}                // expect_unpinned does them
  /// @param lends   late updates stay late where the save can take their bytes afterwards
  /// @throws as checkpoint::prepare_to_save
  void prepare_to_save(bool lends) { checkpoint::prepare_to_save(m_, lends && detail::can_save_behind_updates(m_)); }
  void agree_on_model() {}
  void agree_on_values() {}
  void begin_fill() {}  // see content_session::begin_load
  template <class IsFilled>
  void end_fill(IsFilled)
  {
  }

 private:
  Manager& m_;
  collective::self alone_;
  std::vector<model_item> items_;
};

namespace detail {

template <class Model>
struct content_choice {
  using type = manager_content<Model>;
};
template <class Model>
  requires requires { typename Model::checkpoint_content; }
struct content_choice<Model> {
  using type = typename Model::checkpoint_content;
};

}  // namespace detail

/// The class by which a save, a load and an import see a model: its `checkpoint_content`, or manager_content.
template <class Model>
using content_of_model = typename detail::content_choice<Model>::type;
/// Whether the model is a manager. A model over collective::self is none: its saves follow the rules of ranks.
template <class Model>
inline constexpr bool is_manager = std::is_same_v<content_of_model<Model>, manager_content<Model>>;

namespace detail {

/// A function that reads or writes the bytes of a pinned item.
template <access_choice Access>
using use_of_bytes = call_ref<void(std::span<pinned_as<std::byte, Access>>)>;

/// Calls `use(bytes)` with the bytes of a tensor in a list, in the tier where the thread can reach them.
template <class Manager, access_choice Access>
void with_pinned(Manager& m, const model_item& item, Access mode, memory_location place, use_of_bytes<Access> use)
{
  const auto pin = item.part == role::parameter ? m.acquire_bytes(item.tensor, item.list, mode, place)
                                                : m.acquire_bytes(item.tensor, mode, place);
  const auto all = pin.span();
  use({reinterpret_cast<pinned_as<std::byte, Access>*>(all.data()), all.size()});
}

/// Calls `use` with bytes on the host. Where the host has no room, and the thread can read the device, with bytes
/// there.
template <class Manager, access_choice Access>
void with_bytes(Manager& m, const model_item& item, Access mode, std::type_identity_t<use_of_bytes<Access>> use)
{
  if (item.is_state()) return use(item.state);
  bool used = false;
  try {
    const auto note_use = [&](std::span<pinned_as<std::byte, Access>> content) {
      used = true;
      use(content);
    };
    return with_pinned<Manager, Access>(m, item, mode, memory_location::host, note_use);
  } catch (const out_of_memory&) {
    if (used || !Manager::engine_type::host_addressable) throw;
  }
  with_pinned<Manager, Access>(m, item, mode, memory_location::device, use);
}

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
