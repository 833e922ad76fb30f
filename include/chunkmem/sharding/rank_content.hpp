// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// The content of a model over ranks for a save, a load and an import: one rank's items are made of runs of the model's
/// tensors. checkpoint::manager_content has the same members for a manager.
///
///     rank_content<Model> content{model};
///     content.collect();
///     content.agree_on_names();
///     for (const checkpoint::model_item& it : content.items()) std::cout << it.size() << '\n';
///
/// The items of shares come in the same order on every rank, and so do items that each rank has separately: buffers and
/// registered states.
/// @tparam Model   a sharded_model
template <class Model>
class rank_content {
 public:
  using model_item = checkpoint::model_item;

  explicit rank_content(Model& model) : model_{model} {}

  [[nodiscard]] auto& ranks() const noexcept { return model_.ranks(); }
  /// The manager of this rank's shares, with the bytes of the items.
  [[nodiscard]] auto& manager() const noexcept { return model_.shares(); }

  /// Seals the model, and makes the items. @throws usage_error   inside an iteration; config_error   the name of a
  /// tensor looks like that of a part, or two tensors have one name
  void collect()
  {
    model_.seal();
    items_ = checkpoint::detail::items_of(manager(), [this](auto visit) {
      std::uint32_t tensor = 0;
      model_.for_each_tensor([&](const std::string& name, const shape&, dtype, role part) {
        if (part == role::parameter) visit(tensor, name);
        ++tensor;
      });
    });
    unit_of_.assign(items_.size(), none);
    for (std::uint32_t unit = 0; unit < model_.units().size(); ++unit)
      for (std::size_t index = 0; index < items_.size(); ++index)
        if (!items_[index].is_state() && items_[index].tensor == model_.units()[unit].share) take(index, unit);
    refuse_names();
  }
  [[nodiscard]] const std::vector<model_item>& items() const noexcept { return items_; }
  [[nodiscard]] std::vector<model_item>& items() noexcept { return items_; }
  /// Each rank has its own bytes of this item.
  [[nodiscard]] bool is_own(std::size_t item) const noexcept { return unit_of_[item] == none; }

  /// Calls `visit(name, extents, item)` for each tensor, in each of its lists, that is divided over ranks, also for
  /// tensors without elements on this rank.
  template <class Visit>
  void for_each_shared(Visit visit) const
  {
    for (std::size_t index = 0; index < items_.size(); ++index) {
      if (is_own(index)) continue;
      for (const std::uint32_t planned : model_.plan().units()[unit_of_[index]].tensors) {
        const std::uint32_t tensor = model_.tensor_of_plan(planned);
        visit(prefix(index) + model_.name_of(tensor), checkpoint::detail::extents_of(model_.extents_of(tensor)), index);
      }
    }
  }
  /// The tensors of for_each_shared with elements on more than one rank, in the same order. @param visit   `visit(name,
  /// extents)`
  template <class Visit>
  void for_each_divided(Visit visit) const
  {
    for (std::size_t index = 0; index < items_.size(); ++index) {
      if (is_own(index) || !items_[index].is_filled) continue;
      const std::uint64_t share = model_.plan().share_elements(unit_of_[index]);
      for (const std::uint32_t planned : model_.plan().units()[unit_of_[index]].tensors) {
        const std::uint64_t first = model_.plan().place(planned).first;
        const std::uint64_t elements = model_.plan().elements(planned);
        if (elements == 0 || first / share == (first + elements - 1) / share) continue;
        const std::uint32_t tensor = model_.tensor_of_plan(planned);
        visit(prefix(index) + model_.name_of(tensor), checkpoint::detail::extents_of(model_.extents_of(tensor)));
      }
    }
  }

  // Saves and loads. Every rank makes these calls.

  /// Every save calls it before ranks agree on anything: a rank whose update fails calls again, alone. No rank does
  /// updates alone between iterations: it would begin the next iteration with another record than the other ranks.
  /// @param may_wait   where it is true on every rank, the updates wait on, and the save takes their bytes afterwards
  /// @throws as sharded_model::finish_updates, on every rank
  void finish_updates_unless(call_ref<bool()> may_wait) { updates_wait_ = model_.finish_updates_unless(may_wait); }
  void finish_updates() { model_.finish_updates(); }
  /// Does the updates that a save in the background waits for. @throws as finish_updates
  void finish_updates_of_saves()
  {
    (void)model_.finish_updates_unless([this] { return !manager().content().late_updates().is_read_behind(); });
  }
  /// After finish_updates. @throws as checkpoint::prepare_to_save; comm_error   work of ranks has failed
  void prepare_to_save(bool)
  {
    model_.settle();
    model_.seal();
    checkpoint::prepare_to_save(manager(), updates_wait_);
    model_.expect_no_gradients();
  }
  /// Checks that ranks have the same model, by names and by settings. @throws as agree_on_names and
  /// sharded_model::agree_on_model
  void agree_on_model()
  {
    agree_on_names();
    model_.agree_on_model();
  }
  /// @throws as sharded_model::agree_on_values
  void agree_on_values() { model_.agree_on_values(); }
  /// Before items are written. @throws usage_error   on every rank: a step is half done
  void begin_fill()
  {
    model_.discard_updates();  // before any call runs them: lists that they would fill count as empty
    collective::all_or_none(ranks(), [&] { model_.drop_gradients(); });
  }
  /// Weights are gathered from the items. @param is_filled   `is_filled(name)`: earlier values of these tensors are not
  /// compared   @throws on every rank, as sharded_model::gather_weights
  template <class IsFilled>
  void end_fill(IsFilled is_filled)
  {
    collective::all_or_none(ranks(), [&] { model_.gather_weights(); });  // on all ranks, or on none
    std::uint32_t tensor = 0;
    model_.for_each_tensor([&](const std::string& name, const shape&, dtype, role) {
      if (is_filled(name)) model_.forget_values(tensor);
      ++tensor;
    });
  }

  /// Checks that all ranks have tensors, lists and states of the same names and sizes. Every rank calls it. @throws
  /// config_error   on every rank: the first difference, and the ranks; comm_error
  void agree_on_names()
  {
    const std::vector<std::string> mine = descriptions();
    collective::fingerprint all;
    for (const std::string& it : mine) all.add(it);
    const std::vector<std::uint64_t> words = collective::words_of_all(model_.ranks(), all.value());
    if (std::ranges::all_of(words, [&](std::uint64_t it) { return it == words[0]; })) return;
    collective::named_words named;
    for (std::size_t place = 0; place < mine.size(); ++place) {
      collective::fingerprint word;
      word.add(mine[place]);
      named.add(std::to_string(place), word.value(), mine[place]);
    }
    throw config_error{named.difference(
        model_.ranks(),
        {"ranks have different models", "rank", "declare the same tensors, names, lists and states on every rank"})};
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;

  /// An item of a share: its pieces, and whether this rank writes it. Ranks with the same share each write some of the
  /// units.
  void take(std::size_t index, std::uint32_t unit)
  {
    unit_of_[index] = unit;
    model_item& item = items_[index];
    item.pieces.clear();
    for (const share_run& run : model_.runs_of(model_.units()[unit].share))
      item.pieces.push_back({prefix(index) + model_.name_of(run.tensor),
                             checkpoint::detail::extents_of(model_.extents_of(run.tensor)), run.first, run.elements,
                             run.begin});
    const auto& place_of = model_.plan().division().place_of;
    const std::size_t mine = index_of(model_.ranks().rank());
    const auto copies = std::ranges::count(place_of, place_of[mine]);
    const auto before =
        std::count(place_of.begin(), place_of.begin() + static_cast<std::ptrdiff_t>(mine), place_of[mine]);
    item.is_written = unit % copies == before;
  }
  /// The prefix of the name of a tensor in this list: "adam/momentum/", or empty.
  [[nodiscard]] std::string prefix(std::size_t index) const
  {
    const std::string share = model_.shares().name_of(model_.units()[unit_of_[index]].share);
    return items_[index].name.substr(0, items_[index].name.size() - share.size());
  }
  void refuse_names() const
  {
    model_.for_each_tensor([&](const std::string& name, const shape&, dtype, role) {
      checkpoint::detail::refuse_reserved_name(model_.shares(), name, name_rules::longest_part);
    });
    std::set<std::string> names;
    const auto add = [&](const std::string& name) {
      if (!names.insert(name).second)
        throw config_error{error_text{} << "chunkmem: two things of this model are called " << name
                                        << " in a checkpoint (give tensors other names)"};
    };
    for_each_shared([&](const std::string& name, const auto&, std::size_t) { add(name); });
    for (std::size_t index = 0; index < items_.size(); ++index)
      if (is_own(index)) add(items_[index].name);
  }
  /// Descriptions of all tensors, lists and states.
  [[nodiscard]] std::vector<std::string> descriptions() const
  {
    std::vector<std::string> all;
    const auto add = [&](std::string text, const auto& extents) {
      for (const std::uint64_t extent : extents) text += ' ' + std::to_string(extent);
      all.push_back(std::move(text));
    };
    model_.for_each_tensor([&](const std::string& name, const shape& extents, dtype type, role part) {
      if (part == role::activation) return;
      add(std::string{name_of(part)} + ' ' + name + " of " + std::string{name_of(type)},
          checkpoint::detail::extents_of(extents));
    });
    model_.shares().for_each_list([&](list_id, const list_spec& spec) {
      add("list " + std::string{spec.name}, std::vector<std::uint64_t>{spec.version});
    });
    model_.shares().content().states().for_each([&](std::string_view name, std::span<std::byte> content) {
      add("state " + std::string{name}, std::vector<std::uint64_t>{content.size()});
    });
    return all;
  }

  Model& model_;
  std::vector<model_item> items_;
  std::vector<std::uint32_t> unit_of_;  // by item; none: each rank has its own
  bool updates_wait_ = false;           // through the save
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
