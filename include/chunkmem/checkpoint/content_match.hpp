// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/file_name_rule.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/own_items.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Comparison of a model with a file: file_match compares names, shapes and types, and match_content finds the bytes of
// each item of the model. Loads and imports use both.

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The names of a file and of a model after a load or an import: loaded, initialized anew, ignored.
///
///     for (const std::string& it : checkpoint::load(m, folder, {.begins_anew = {"*lora*"}}).names.begun_anew)
///       std::cout << it << " is as it was filled\n";
struct matched_names {
  std::vector<std::string> loaded;
  /// names of the model that are not loaded from the file: weights, buffers and registered states are as the trainer
  /// left them, and lists of an optimizer are zeros
  std::vector<std::string> begun_anew;
  std::vector<std::string> ignored;  ///< names of the file that are not loaded
};

namespace detail {

/// The permitted differences between a model and a file. The names outlive this object.
struct match_rules {
  std::string_view source;                     ///< "this checkpoint", or the file's name
  std::string_view remedy;                     ///< against names that only one of the two has
  std::string_view remedy_of_shape;            ///< against another shape or type
  std::span<const std::string> begins_anew{};  ///< names that the file may lack
  std::span<const std::string> leaves_out{};   ///< names of the file that count as if they were not there
  bool takes_part = false;                     ///< either of the two may lack any names
  std::span<const file_name_rule> names{};     ///< of tensors in the file
};

[[noreturn]] inline void refuse_match(const match_rules& rules, std::string_view what, std::string_view name)
{
  throw config_error{error_text{} << "chunkmem: " << rules.source << " is not of this model: " << what << ": " << name
                                  << " (" << rules.remedy << ")"};
}

inline constexpr match_rules of_checkpoint{
    "this checkpoint",
    "declare the model, its lists and states as when it was saved, or let the load begin it anew or leave it out",
    "declare it as when it was saved, or let the load leave it out and begin it anew"};

/// The rules of a load with these options. The names outlive the rules.
[[nodiscard]] inline match_rules rules_of_load(std::span<const std::string> begins_anew,
                                               std::span<const std::string> leaves_out)
{
  match_rules rules = of_checkpoint;
  rules.begins_anew = begins_anew;
  rules.leaves_out = leaves_out;
  return rules;
}

[[noreturn]] inline void refuse_model(std::string_view what, std::string_view name)
{
  refuse_match(of_checkpoint, what, name);
}

/// Whether a pattern of the list matches this name. A registered state is named with or without "state/", and the bytes
/// of one rank with or without "[rank 1 of 4]".
[[nodiscard]] inline bool has_name(std::span<const std::string> patterns, std::string_view name)
{
  const auto has = [&](std::string_view form) {
    const std::string_view state = form.starts_with(state_prefix) ? form.substr(state_prefix.size()) : form;
    return std::ranges::any_of(patterns,
                               [&](const std::string& it) { return has_form(form, it) || has_form(state, it); });
  };
  const std::size_t rank = name_rules::looks_divided(name) ? name.rfind("[rank ") : name.npos;
  return has(name) || (rank != name.npos && has(name.substr(0, rank)));
}

/// The answer to a tensor of the model that the file lacks.
enum class absence : std::uint8_t {
  refused,  ///< unless the rules let it begin anew
  zero,     ///< the tensor becomes zero
  stays,    ///< the tensor stays as it is
};

[[nodiscard]] inline std::string shape_text(std::span<const std::uint64_t> extents)
{
  std::string text{"["};
  for (const std::uint64_t it : extents) text += (text.size() > 1 ? "," : "") + std::to_string(it);
  return text + ']';
}

}  // namespace detail

/// Compares the names, shapes and types of a model with those of a file.
///
///     file_match match{index, rules};
///     match.add("wte", {50'257, 768}, dtype::float32);
///     const matched_names names = match.take_names();
class file_match {
 public:
  /// All arguments outlive this. @param empty   names that were saved without bytes
  file_match(const stored_index& index, const detail::match_rules& rules, std::span<const std::string> empty = {})
      : index_{index}, rules_{rules}, empty_(empty.begin(), empty.end())
  {
    for (const auto& [name, value] : index.all()) (is_left_out(name) ? left_out_ : left_).insert(name);
  }

  /// Adds a tensor, a list of one or a state of the model. @throws config_error   the file lacks it, or has it with
  /// another shape or type
  /// @param in_file   the name of its bytes in the file, where that is another tensor's: a copy, or a version
  void add(std::string_view name, const std::vector<std::uint64_t>& extents, dtype type,
           detail::absence absent = detail::absence::refused, std::string_view in_file = {})
  {
    const detail::place_in_file place = detail::place_of(in_file.empty() ? name : in_file, rules_.names);
    const stored_value* const known = find(place.name);
    if (known == nullptr) {
      const bool may_begin = detail::has_name(rules_.begins_anew, name);
      if (absent == detail::absence::zero || (empty_.contains(name) && !may_begin)) return;
      if (absent == detail::absence::refused) {
        if (!rules_.takes_part && !may_begin) refuse_match(rules_, "it does not have", place.name);
        names_.begun_anew.emplace_back(name);
      }
      anew_.emplace(name);
      return;
    }
    left_.erase(place.name);
    std::vector<std::uint64_t> there = known->extents;
    if (place.is_transposed) std::ranges::reverse(there);
    if (there != extents || (place.is_transposed && extents.size() != 2))
      refuse("another shape", place, *known, type, extents);
    if (!is_convertible(*known, type)) refuse("another element type", place, *known, type, extents);
    names_.loaded.emplace_back(name);
  }
  /// The names so far, without the ignored ones of the file.
  [[nodiscard]] const matched_names& names() const noexcept { return names_; }
  /// The names, once all of the model was added. @throws config_error   the file has names that the model lacks
  [[nodiscard]] matched_names take_names()
  {
    if (!left_.empty() && !rules_.takes_part) refuse_match(rules_, "this model does not have", *left_.begin());
    left_.merge(left_out_);
    names_.ignored.assign(left_.begin(), left_.end());
    return std::move(names_);
  }

  /// @param name   in the file   @return   null where the file lacks the name, or where it is left out
  [[nodiscard]] const stored_value* find(std::string_view name) const
  {
    return is_left_out(name) ? nullptr : index_.find(name);
  }
  /// Whether the file has a name with this beginning.
  [[nodiscard]] bool has_some(std::string_view begin) const
  {
    return std::ranges::any_of(index_.all(),
                               [&](const auto& it) { return it.first.starts_with(begin) && !is_left_out(it.first); });
  }
  /// Whether a name of the file counts as absent.
  [[nodiscard]] bool is_left_out(std::string_view name) const { return detail::has_name(rules_.leaves_out, name); }
  /// Whether a tensor, a list of one or a state of the model is not loaded from the file. @pre it was added
  [[nodiscard]] bool begins_anew(std::string_view name) const { return anew_.contains(name); }
  /// Sets where the bytes of a piece of an item are. @pre its name was added
  void find_piece(item_piece& piece) const
  {
    const detail::place_in_file place = detail::place_of(piece.name, rules_.names);
    piece.stored = begins_anew(piece.name) ? nullptr : find(place.name);
    piece.is_transposed = place.is_transposed;
    piece.begins_anew = begins_anew(piece.name);
  }

 private:
  [[noreturn]] void refuse(std::string_view what, const detail::place_in_file& place, const stored_value& known,
                           dtype type, const std::vector<std::uint64_t>& extents) const
  {
    throw config_error{
        error_text{} << "chunkmem: " << rules_.source << " is not of this model: " << what << ": " << place.name
                     << " of " << known.type_name() << " " << detail::shape_text(known.extents) << " there, "
                     << name_of(type) << " " << detail::shape_text(extents) << " here"
                     << (place.is_transposed ? ", transposed" : "") << " (" << rules_.remedy_of_shape << ")"};
  }

  const stored_index& index_;
  const detail::match_rules& rules_;
  std::set<std::string_view> empty_;
  std::set<std::string_view> left_, left_out_;
  std::set<std::string, std::less<>> anew_;
  matched_names names_;
};

/// Compares the versions of lists with equal names. @throws config_error   they have different meanings
template <class Manager>
void match_lists(const Manager& m, const manifest& stored)
{
  m.for_each_list([&](list_id, const list_spec& spec) {
    for (const stored_list& it : stored.lists)
      if (it.name == spec.name && it.version != spec.version)
        detail::refuse_model("another version of a list", it.name);
  });
}

namespace detail {

/// Checks that all weights of a unit come from the file, or that the others are filled already. The shards of all ranks
/// are checked: a rank may have no element of the weight that is missing. @throws config_error   a weight would have no
/// bytes
template <class Content>
void expect_whole_items(const Content& content, const file_match& match, const match_rules& rules)
{
  struct unit {
    bool has_any = false;
    std::string anew, empty;  // a name
  };
  std::vector<unit> units(content.items().size());
  const auto add = [&](const std::string& name, std::size_t position) {
    unit& it = units[position];
    if (match.begins_anew(name))
      it.anew = name;
    else if (match.find(place_of(name, rules.names).name) != nullptr)
      it.has_any = true;
    else
      it.empty = name;
  };
  content.for_each_shared([&](const std::string& name, const auto&, std::size_t position) { add(name, position); });
  for (std::size_t position = 0; position < units.size(); ++position) {
    const model_item& item = content.items()[position];
    if (item.is_state() || item.starts_at_zero) continue;
    if (content.is_own(position)) add(item.pieces.front().name, position);
    const unit& it = units[position];
    if (!it.anew.empty() && it.has_any && !item.is_filled)
      throw config_error{error_text{} << "chunkmem: over ranks the weights that lie in one unit all come from a file, "
                                         "or the others are filled before, and "
                                      << it.anew << " makes the difference (fill weights that begin anew, then load)"};
    if (!it.empty.empty() && (it.has_any || item.is_filled))
      refuse_match(rules, "it was saved without bytes for", it.empty);
  }
}

/// Sets where the bytes of each piece of the items are. @throws as expect_whole_items
template <class Content>
void settle_items(Content& content, const file_match& match, const match_rules& rules)
{
  for (model_item& item : content.items())
    for (item_piece& piece : item.pieces) match.find_piece(piece);
  expect_whole_items(content, match, rules);
  // a share of padding alone counts as filled too
  content.for_each_shared([&](const std::string& name, const auto&, std::size_t position) {
    if (match.find(place_of(name, rules.names).name) != nullptr) content.items()[position].is_filled = true;
  });
}

/// A hash of patterns and rules of names, which ranks compare.
[[nodiscard]] inline std::uint64_t word_of_patterns(std::span<const std::string> one,
                                                    std::span<const std::string> other,
                                                    std::span<const file_name_rule> names = {})
{
  collective::fingerprint all;
  for (const std::span<const std::string> list : {one, other}) {
    all.add(list.size());
    for (const std::string& it : list) all.add(it);
  }
  for (const file_name_rule& it : names) {
    all.add(it.tensor);
    all.add(it.in_file);
    all.add(std::uint64_t{it.is_transposed});
  }
  return all.value();
}

/// Sets the update counts of parameters. A parameter whose lists are all initialized anew has had no update: it missed
/// all that are counted. Where one list is loaded, the count is loaded too.
/// @param begins_anew   `begins_anew(name)`: whether this list of a tensor, or this tensor, is initialized anew
template <class Content, class BeginsAnew>
void match_counts(Content& content, BeginsAnew begins_anew)
{
  for (model_item& item : content.items()) {
    if (item.count_of_all.empty()) continue;
    const std::string_view tensor = std::string_view{item.name}.substr(item.name.size() - item.length_of_tensor);
    const std::string_view kernel = item.kernel_prefix();
    bool has_lists = false, is_anew = true;
    content.manager().for_each_list([&](list_id, const list_spec& spec) {
      if (spec.use != list_use::state || !spec.name.starts_with(kernel)) return;
      has_lists = true;
      is_anew = is_anew && begins_anew(std::string{spec.name} + '/' + std::string{tensor});
    });
    item.pieces.front().begins_anew = has_lists ? is_anew : begins_anew(std::string{tensor});
  }
}

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
