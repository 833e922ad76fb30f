// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/read_elements.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/tensor/list_spec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The options of load_from_stages.
///
///     load_from_stages(here.all(), m, folders, {.copies = {{"head_table", "token_table"}}});
struct load_from_stages_options {
  /// Names of two copies of a tied weight. A checkpoint has one or both: the one that it lacks is filled from the other
  std::vector<std::pair<std::string, std::string>> copies{};
  std::uint64_t newest = UINT64_MAX;  ///< generations with higher numbers are passed over
  checkpoint::loader_limits limits{};
};

namespace detail {

/// One generation in the folders of all stages that saved it.
///
///     const saved_stages saved{folders, 7, limits};
///     if (const auto found = saved.find("embedding"); found.value != nullptr) ...
template <file_folder Folder>
class saved_stages {
 public:
  struct place {
    std::size_t folder = 0;
    const checkpoint::stored_value* value = nullptr;
  };

  /// @throws as generation_reader and stored_index
  saved_stages(std::span<const Folder> folders, std::uint64_t generation, const checkpoint::loader_limits& limits)
  {
    for (const Folder& folder : folders) {
      readers_.emplace_back(folder, generation, limits);
      checkpoint::expect_one_run(folder, generation, readers_.back().content().run);
      tables_.emplace_back(readers_.back().generation());
      for (const std::string& name : readers_.back().content().empty) empty_.insert(name);
    }
  }

  [[nodiscard]] place find(std::string_view name) const
  {
    for (std::size_t folder = 0; folder < tables_.size(); ++folder)
      if (const checkpoint::stored_value* value = tables_[folder].find(name); value != nullptr) return {folder, value};
    return {};
  }
  /// It was saved without bytes.
  [[nodiscard]] bool is_empty(std::string_view name) const { return empty_.contains(name); }
  [[nodiscard]] auto& reader(std::size_t folder) noexcept { return readers_[folder]; }
  [[nodiscard]] const checkpoint::stored_index& table(std::size_t folder) const noexcept { return tables_[folder]; }
  [[nodiscard]] const auto& readers() const noexcept { return readers_; }
  /// Of all folders, each once.
  [[nodiscard]] std::set<std::string_view> names() const
  {
    std::set<std::string_view> all;
    for (const checkpoint::stored_index& table : tables_)
      for (const auto& [name, value] : table.all()) all.insert(name);
    return all;
  }
  /// The bytes of a registered state, which all stages that saved it have to share.
  /// @throws config_error   no stage has it, or two have other bytes
  [[nodiscard]] std::vector<std::byte> state(const checkpoint::model_item& item)
  {
    std::vector<std::byte> found;
    bool has_any = false;
    for (std::size_t folder = 0; folder < tables_.size(); ++folder) {
      const checkpoint::stored_value* const value = tables_[folder].find(item.name);
      if (value == nullptr) continue;
      if (value->extents != item.extents) checkpoint::detail::refuse_model("another size", item.name);
      std::vector<std::byte> bytes_of_one(static_cast<std::size_t>(item.size()));
      checkpoint::read_elements(readers_[folder], *value, 0, item.size(), bytes_of_one.data(), item.type);
      if (has_any && bytes_of_one != found)
        throw config_error{error_text{} << "chunkmem: each stage saved its own bytes of " << item.name
                                        << ", which have no meaning for other stages (load them into as many stages, "
                                           "or make them the same on all stages before they are saved)"};
      found = std::move(bytes_of_one);
      has_any = true;
    }
    if (!has_any) checkpoint::detail::refuse_model("it does not have", item.name);
    return found;
  }

 private:
  std::deque<checkpoint::generation_reader<Folder>> readers_;  // by folder; tables refer to them
  std::deque<checkpoint::stored_index> tables_;
  std::set<std::string, std::less<>> empty_;
};

/// What of a save goes where in this stage. Everything is compared before a tensor is written.
template <class Manager, file_folder Folder>
class stage_content {
 public:
  /// @throws config_error   the save is of another model
  stage_content(Manager& m, saved_stages<Folder>& saved, const load_from_stages_options& options)
      : m_{m}, saved_{saved}, options_{options}
  {
    for (const auto& reader : saved.readers()) checkpoint::match_lists(m, reader.content());
    for (checkpoint::model_item& item : checkpoint::detail::items_of(m))
      item.is_state() ? match_state(item) : match_tensor(std::move(item));
  }

  /// Words with a bit for each name of the save, in order: this stage takes it.
  [[nodiscard]] std::vector<std::uint64_t> taken(const std::set<std::string_view>& names) const
  {
    std::vector<std::uint64_t> words(names.size() / 64 + 1, 0);
    std::size_t index = 0;
    for (const std::string_view name : names) {
      if (taken_.contains(name)) words[index / 64] |= std::uint64_t{1} << index % 64;
      ++index;
    }
    return words;
  }
  /// Fills the manager. @throws as checkpoint::load
  template <class Executor>
  void load(Executor& workers)
  {
    checkpoint::load_scope scope{m_};
    for (const matched& it : matched_) {
      checkpoint::parallel_reader from{saved_.reader(it.folder), workers};
      (void)checkpoint::fill_item(m_, it.item, saved_.table(it.folder), from);
    }
    for (const auto& [to, content] : states_) std::ranges::copy(content, to.begin());
    scope.end();
  }

 private:
  struct matched {
    checkpoint::model_item item;
    std::size_t folder = 0;
  };

  void match_state(const checkpoint::model_item& item)
  {
    std::vector<std::byte> loaded = saved_.state(item);
    const auto check =
        m_.content().check_of_state(std::string_view{item.name}.substr(checkpoint::detail::state_prefix.size()));
    if (check != nullptr) check(loaded);
    states_.emplace_back(item.state, std::move(loaded));
    taken_.insert(item.name);
  }
  void match_tensor(checkpoint::model_item item)
  {
    const std::string tensor = m_.name_of(item.tensor);
    const std::string list{item.name, 0, item.name.size() - tensor.size()};  // "adam/momentum/"
    if (take(item, list, tensor)) return;
    if (is_version(item) && take(item, "", tensor)) return;  // of a version that was not kept: the newest weights
    if (!saved_.is_empty(item.name)) checkpoint::detail::refuse_model("it does not have", item.name);
  }
  /// Takes a tensor of the save, under the name of the weight or of a copy.
  bool take(const checkpoint::model_item& item, const std::string& list, const std::string& tensor)
  {
    if (take_named(item, list + tensor)) return true;
    for (const auto& [one, other] : options_.copies)
      if ((tensor == one && take_named(item, list + other)) || (tensor == other && take_named(item, list + one)))
        return true;
    return false;
  }
  bool take_named(checkpoint::model_item item, const std::string& name)
  {
    const auto found = saved_.find(name);
    if (found.value == nullptr) return false;
    if (found.value->extents != item.extents) checkpoint::detail::refuse_model("another shape", name);
    if (!checkpoint::is_convertible(found.value->type, item.type))
      checkpoint::detail::refuse_model("another element type", name);
    item.pieces.front().name = name;
    matched_.push_back({std::move(item), found.folder});
    taken_.insert(name);
    return true;
  }
  [[nodiscard]] bool is_version(const checkpoint::model_item& item) const
  {
    bool found = false;
    m_.for_each_list([&](list_id list, const list_spec& spec) {
      found = found || (list == item.list && spec.use == list_use::weight);
    });
    return found;
  }

  Manager& m_;
  saved_stages<Folder>& saved_;
  const load_from_stages_options& options_;
  std::vector<matched> matched_;
  std::vector<std::pair<std::span<std::byte>, std::vector<std::byte>>> states_;
  std::set<std::string, std::less<>> taken_;
};

/// Every tensor of a save has a stage that takes it. Versions of weights may be fewer here, and copies too.
/// @throws config_error   on every stage: it has not
template <class Ranks>
void expect_all_taken(Ranks& stages, const std::set<std::string_view>& names, const std::vector<std::uint64_t>& taken,
                      const load_from_stages_options& options)
{
  std::vector<std::uint64_t> all(taken.size() * stages.ranks());
  stages.exchange(taken, all);
  std::size_t index = 0;
  for (const std::string_view name : names) {
    std::uint64_t words = 0;
    for (std::size_t at = index / 64; at < all.size(); at += taken.size()) words |= all[at];
    const auto is_of = [&](const std::string& tensor) { return name == tensor || name.ends_with('/' + tensor); };
    const bool is_copy =
        std::ranges::any_of(options.copies, [&](const auto& it) { return is_of(it.first) || is_of(it.second); });
    if ((words >> index % 64 & 1U) == 0 && !is_copy && !name.starts_with("weights/"))
      checkpoint::detail::refuse_model("no stage here has", name);
    ++index;
  }
}

/// The newest generation up to a number that all folders have. @return   0 if there is none
template <file_folder Folder>
[[nodiscard]] std::uint64_t newest_of_all(std::span<const Folder> folders, std::uint64_t up_to)
{
  std::vector<std::uint64_t> common;
  for (const Folder& folder : folders) {
    const std::vector<std::uint64_t> own = checkpoint::generations_up_to(up_to, checkpoint::generations_in(folder));
    if (&folder == folders.data())
      common = own;
    else
      std::erase_if(common, [&](std::uint64_t it) { return std::ranges::find(own, it) == own.end(); });
  }
  return common.empty() ? 0 : std::ranges::max(common);
}

/// This stage's share of the folders is whole. @return   what is wrong, or an empty text
template <file_folder Folder>
[[nodiscard]] std::string damage(std::span<const Folder> folders, std::uint64_t generation, std::size_t stage,
                                 std::size_t stages, const checkpoint::loader_limits& limits)
{
  try {
    for (std::size_t folder = stage; folder < folders.size(); folder += stages)
      (void)checkpoint::check_generation(folders[folder], generation, limits);
  } catch (const corrupt_data& found) {
    return found.what();
  } catch (const format_error& found) {
    return found.what();
  } catch (const io_error& found) {
    if (checkpoint::detail::is_shortage(found)) throw;
    return found.what();
  }
  return {};
}

}  // namespace detail

/// Loads a training that another number of stages has saved, or stages with other parts. Every stage calls it, and sees
/// the folders of all stages that saved.
///
/// - A tensor is known by its name, which is that of one tensor in the whole model. Tensors of a save lie in any of the
///   folders, and each stage takes its own.
/// - Registered states, such as the count of updates, have the same bytes on all stages that saved.
/// - Weights of a version that was not kept become the newest weights. So a run may go on with more versions, with
///   fewer or with one. With as many versions, and copies of tied weights named, it goes on with the same bits.
/// - Save into new folders: those of other stages are refused.
///
///     std::vector<io::posix_folder> folders;   // of the four stages that saved
///     for (int stage = 0; stage < 4; ++stage) folders.emplace_back("runs/a/stage-" + std::to_string(stage));
///     pipeline::load_from_stages(here.all(), m, std::span<const io::posix_folder>{folders});
///
/// @param stages   a communicator of all stages, of any number   @param m   a manager: replicas of a stage are not
///   loaded
/// @param folders  one for each stage that saved, in any order, the same on every stage
/// @return the generation: the newest that is whole in all folders
/// @throws config_error   on every stage: the save is of another model, a stage lacks something, or no stage has
///   something; nothing was changed
/// @throws io_error       no generation is whole in all folders; and as checkpoint::load, on every stage the error of
///   the first stage that failed; comm_error
/// @complexity   as checkpoint::load for the parts of this stage. Each folder is read once more, by one of the stages,
///   to see whether it is whole
template <class Ranks, class Manager, file_folder Folder, executor Executor = const serial>
checkpoint::loaded_generation load_from_stages(Ranks& stages, Manager& m, std::span<const Folder> folders,
                                               const load_from_stages_options& options = {},
                                               Executor& workers = on_this_thread)
{
  static_assert(
      !requires { m.ranks(); }, "chunkmem: replicas of a stage load into as many stages as saved (load_stages)");
  collective::agree_on(stages, folders.size(),
                       "stages were given other folders to load from (give all of them the same)");
  checkpoint::loaded_generation found;
  for (std::uint64_t up_to = options.newest;;) {
    std::string wrong;
    collective::all_or_none(stages, [&] {
      expects(!folders.empty(), "a training was to be loaded from the folders of no stage");
      found.number = detail::newest_of_all(folders, up_to);
    });
    found.number = std::ranges::min(collective::words_of_all(stages, found.number));
    collective::all_or_none(stages, [&] {
      if (found.number == 0)
        throw io_error{"chunkmem: the folders of the stages that saved have no generation in common that is whole"};
      wrong = detail::damage(folders, found.number, index_of(stages.rank()), stages.ranks(), options.limits);
    });
    if (std::ranges::max(collective::words_of_all(stages, wrong.empty() ? 0 : 1)) == 0) break;
    found.skipped.push_back({found.number, wrong.empty() ? "another stage found it damaged" : wrong});
    up_to = found.number - 1;
  }
  std::optional<detail::saved_stages<Folder>> saved;
  std::optional<detail::stage_content<Manager, Folder>> content;
  std::set<std::string_view> names;
  collective::all_or_none(stages, [&] {
    m.content().expect_states();
    m.content().expect_unpinned();
    saved.emplace(folders, found.number, options.limits);
    names = saved->names();
    content.emplace(m, *saved, options);
  });
  detail::expect_all_taken(stages, names, content->taken(names), options);
  collective::all_or_none(stages, [&] { content->load(workers); });
  return found;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
