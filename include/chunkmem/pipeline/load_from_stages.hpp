// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/content_match.hpp>
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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
  /// Names of two copies of a tied weight. A checkpoint has one or both, and so have the stages. A copy that the
  /// checkpoint lacks is filled from the other one
  std::vector<std::pair<std::string, std::string>> copies{};
  std::uint64_t newest = UINT64_MAX;       ///< generations with higher numbers are skipped
  bool allow_overflow = false;             ///< as load_options
  std::vector<std::string> begins_anew{};  ///< as load_options
  std::vector<std::string> leaves_out{};   ///< as load_options
  checkpoint::loader_limits limits{};
};

namespace detail {

/// A tensor in files: "adam/momentum/embedding" has the list "adam/momentum".
struct stored_name {
  std::string_view list;  ///< empty: the value, or its master
  std::string_view tensor;
};

/// One generation in the folders of all stages that saved it. Each tensor lies in one of them.
///
///     const saved_stages saved{folders, 7, limits};
///     if (const auto* found = saved.index().find("embedding"); found != nullptr) ...
template <file_folder Folder>
class saved_stages {
 public:
  /// @throws as generation_reader and stored_index; config_error   folders of several trainings, or a tensor is in two
  saved_stages(std::span<const Folder> folders, std::uint64_t generation, const checkpoint::loader_limits& limits,
               std::span<const std::string> leaves_out)
  {
    for (const Folder& folder : folders) {
      const checkpoint::manifest& content = readers_.emplace_back(folder, generation, limits).content();
      if (content.run != readers_.front().content().run)
        throw config_error{error_text{} << "chunkmem: stages of two trainings cannot be loaded together: run "
                                        << content.run << " and run " << readers_.front().content().run
                                        << " (name the folders of one training)"};
      expect_stage(generation, content, folders.size());
      checkpoint::expect_one_run(folder, generation, content.run);
      for (const checkpoint::stored_list& it : content.lists) lists_.insert(it.name);
      for (const std::string& name : content.empty) expect_new(empty_.insert(name).second, name);
      const checkpoint::stored_index& table = tables_.emplace_back(readers_.back().generation());
      for (const std::string_view name : all_.join(table, files_)) expect_new(false, name);
      for (const auto& [name, value] : table.all())
        (checkpoint::detail::has_name(leaves_out, name) ? left_out_ : names_).insert(name);
      first_file_.push_back(files_);
      files_ += static_cast<std::uint32_t>(content.files.size());
    }
  }

  /// The index of all folders; for a state in several folders, of the first one.
  [[nodiscard]] const checkpoint::stored_index& index() const noexcept { return all_; }
  /// As generation_reader::read. @param file   counted from the first file of the first folder
  template <executor Executor = const serial>
  void read(std::uint32_t file, std::uint64_t begin, std::span<std::byte> to, Executor& workers = on_this_thread)
  {
    const auto behind = std::ranges::upper_bound(first_file_, file);
    readers_[static_cast<std::size_t>(behind - first_file_.begin()) - 1].read(file - *(behind - 1), begin, to, workers);
  }
  /// A tensor of this name was saved without bytes.
  [[nodiscard]] bool is_empty(std::string_view name) const { return empty_.contains(name); }
  [[nodiscard]] const auto& readers() const noexcept { return readers_; }
  /// The names of all tensors and states with bytes, each once.
  [[nodiscard]] const std::set<std::string_view>& names() const noexcept { return names_; }
  /// The names that are left out.
  [[nodiscard]] std::vector<std::string> left_out() const { return {left_out_.begin(), left_out_.end()}; }
  [[nodiscard]] stored_name split(std::string_view name) const
  {
    std::size_t longest = 0;
    for (const std::string& list : lists_)
      if (name.size() > list.size() && name.starts_with(list) && name[list.size()] == '/')
        longest = std::max(longest, list.size());
    return {name.substr(0, longest), longest == 0 ? name : name.substr(longest + 1)};
  }
  /// The bytes of a registered state, equal in all stages that saved it. @param name   its name in the save
  /// @throws config_error   no stage has it, or two have other bytes
  [[nodiscard]] std::vector<std::byte> state(const checkpoint::model_item& item, const std::string& name)
  {
    std::vector<std::byte> found;
    bool has_any = false;
    for (std::size_t folder = 0; folder < tables_.size(); ++folder) {
      const checkpoint::stored_value* const value = tables_[folder].find(name);
      if (value == nullptr) continue;
      if (value->extents != item.extents) checkpoint::detail::refuse_model("another size", name);
      std::vector<std::byte> bytes_of_one(static_cast<std::size_t>(item.size()));
      (void)checkpoint::read_elements(readers_[folder], *value, 0, item.size(), bytes_of_one.data(), item.type);
      if (has_any && bytes_of_one != found)
        throw config_error{error_text{} << "chunkmem: each stage saved its own bytes of " << name
                                        << ", which have no meaning for other stages (load them into as many stages, "
                                           "or make them the same on all stages before they are saved)"};
      found = std::move(bytes_of_one);
      has_any = true;
    }
    if (!has_any) checkpoint::detail::refuse_model("it does not have", name);
    return found;
  }

 private:
  /// Folders with the number of a stage are those of all stages of one save. @throws config_error
  void expect_stage(std::uint64_t generation, const checkpoint::manifest& content, std::size_t folders) const
  {
    const std::optional<checkpoint::stored_stage>& own = content.stage;
    const std::optional<checkpoint::stored_stage>& first = readers_.front().content().stage;
    const std::size_t index = readers_.size() - 1;
    const auto refuse = [&](auto... what) {
      error_text text;
      text << "chunkmem: folder " << index << " of the folders to load";
      (text << ... << what);
      throw config_error{text << " (name the folders of all stages of one training, each once)"};
    };
    if (own.has_value() != first.has_value() || (own && own->save != first->save))
      refuse(" has a generation ", generation, " of another save than folder 0");
    if (!own) return;
    if (own->count != folders)
      refuse(" is that of stage ", std::uint64_t{own->number}, " of ", std::uint64_t{own->count},
             ", and the folders are ", std::uint64_t{folders});
    for (std::size_t other = 0; other < index; ++other)
      if (readers_[other].content().stage->number == own->number)
        refuse(" is that of stage ", std::uint64_t{own->number}, ", as folder ", std::uint64_t{other});
  }
  static void expect_new(bool is_new, std::string_view name)
  {
    if (is_new || name.starts_with(checkpoint::detail::state_prefix)) return;
    throw config_error{error_text{} << "chunkmem: two stages saved a tensor with the name " << name
                                    << " (give each tensor a name that no other one of the whole model has)"};
  }

  std::deque<checkpoint::generation_reader<Folder>> readers_;  // by folder; tables refer to them
  std::deque<checkpoint::stored_index> tables_;
  std::vector<std::uint32_t> first_file_;  // of each folder
  std::uint32_t files_ = 0;                // of all folders so far
  checkpoint::stored_index all_{std::vector<checkpoint::stored_tensor>{}, 0};
  std::set<std::string_view> names_;
  std::set<std::string_view> left_out_;
  std::set<std::string, std::less<>> empty_;
  std::set<std::string> lists_;
};

/// "state/adam/missed/head" with the tensor "table" for "head"; empty where it is of another tensor.
[[nodiscard]] inline std::string with_other_end(std::string_view name, std::string_view tensor, std::string_view other)
{
  if (name.size() <= tensor.size() || !name.ends_with(tensor) || name[name.size() - tensor.size() - 1] != '/')
    return {};
  return std::string{name.substr(0, name.size() - tensor.size())} + std::string{other};
}

/// The tensors and states of a save for this stage, as the content of its manager for a load. All are compared before a
/// tensor is written.
template <class Ranks, class Manager, file_folder Folder>
class stage_content {
 public:
  /// @throws config_error   the save is of another model
  stage_content(Ranks& stages, Manager& m, saved_stages<Folder>& saved, const load_from_stages_options& options)
      : stages_{stages}, m_{m}, saved_{saved}, options_{options}
  {
    for (const auto& reader : saved.readers()) checkpoint::match_lists(m, reader.content());
    for (checkpoint::model_item& item : checkpoint::detail::items_of(m))
      item.is_state() ? match_state(std::move(item)) : match_tensor(std::move(item));
    checkpoint::detail::match_counts(*this, [&](const std::string& name) { return match_.begins_anew(name); });
  }

  /// All stages.
  [[nodiscard]] Ranks& ranks() const noexcept { return stages_; }
  [[nodiscard]] Manager& manager() const noexcept { return m_; }
  [[nodiscard]] const std::vector<checkpoint::model_item>& items() const noexcept { return items_; }
  [[nodiscard]] std::vector<checkpoint::model_item>& items() noexcept { return items_; }
  /// The names of this stage and of the save.
  [[nodiscard]] const checkpoint::matched_names& names() const noexcept { return match_.names(); }
  void begin_fill() {}
  template <class IsFilled>
  void end_fill(IsFilled)
  {
  }
  /// The names of the save that this stage takes.
  [[nodiscard]] const std::set<std::string, std::less<>>& taken() const noexcept { return taken_; }

 private:
  void match_state(checkpoint::model_item item)
  {
    const std::string_view name = std::string_view{item.name}.substr(checkpoint::detail::state_prefix.size());
    const std::string stored = stored_name_of(item);
    const bool may_begin = !item.may_be_absent() || (item.is_constant && !has_kernel(item.name));
    if (may_begin && !has(stored) && checkpoint::detail::has_name(options_.begins_anew, item.name))
      return add(std::move(item), stored);
    if (stored.empty()) return items_.push_back(std::move(item));  // the save has a zero
    const std::vector<std::byte> loaded = saved_.state(item, stored);
    const auto is_zero = [](std::byte it) { return it == std::byte{0}; };
    if (name == weight_versions_state && !std::all_of(loaded.end() - sizeof(std::uint32_t), loaded.end(), is_zero))
      throw config_error{
          "a version of the weights was saved before its update was done, so other stages cannot continue from it "
          "(save "
          "after the update)"};
    add(std::move(item), stored);
  }
  [[nodiscard]] bool has(std::string_view name) const { return match_.find(name) != nullptr; }
  /// @param stored   the name of the item in the save; where the save does not have it, the item starts from its
  ///   initial value
  void add(checkpoint::model_item item, const std::string& stored)
  {
    match_.add(item.name, item.extents, item.type, checkpoint::detail::absence::refused, stored);
    item.pieces.front().stored = match_.find(stored);
    item.pieces.front().begins_anew = match_.begins_anew(item.name);
    if (item.pieces.front().stored != nullptr) taken_.insert(stored);
    items_.push_back(std::move(item));
  }
  /// The save has other states of the kernel, "state/adam/...", so a constant that it does not name is zero there.
  [[nodiscard]] bool has_kernel(const std::string& constant) const
  {
    const std::string begin = constant.substr(0, constant.rfind('/') + 1);
    const auto found = saved_.names().lower_bound(begin);
    return found != saved_.names().end() && found->starts_with(begin);
  }
  /// The name of an item in the save, for a number of one parameter also that of a copy; empty where the save has a
  /// zero.
  [[nodiscard]] std::string stored_name_of(const checkpoint::model_item& item) const
  {
    if (!item.may_be_absent()) return item.name;
    if (item.is_constant) return has(item.name) ? item.name : std::string{};
    const std::string tensor = m_.name_of(item.tensor);
    return stored_of(names_of(std::string{item.name, 0, item.name.size() - tensor.size()}, tensor));
  }
  /// The first of the names that the save has; else empty.
  [[nodiscard]] std::string stored_of(const std::vector<std::string>& names) const
  {
    const auto found = std::ranges::find_if(names, [&](const std::string& it) { return has(it); });
    return found == names.end() ? std::string{} : *found;
  }
  void match_tensor(checkpoint::model_item item)
  {
    const std::string tensor = m_.name_of(item.tensor);
    if (is_default_name(tensor))
      throw config_error{error_text{} << "chunkmem: stages load tensors by name, and " << tensor
                                      << " has none (give each tensor a name with `name`, before it is saved)"};
    const std::string list{item.name, 0, item.name.size() - tensor.size()};  // "adam/momentum/"
    const std::vector<std::string> names = names_of(list, tensor);
    std::string stored = stored_of(names);
    if (stored.empty() && is_version(item))
      stored = stored_of(names_of("", tensor));  // a version that was not kept: the newest weights
    if (stored.empty() && std::ranges::any_of(names, [&](const std::string& it) { return saved_.is_empty(it); }))
      return begin_at_zero(std::move(item));
    add(std::move(item), stored);
  }
  /// The save has no bytes of an item: a state of a trainer that was already at a later step becomes zero.
  void begin_at_zero(checkpoint::model_item item)
  {
    if (!item.is_filled) return;
    if (!item.starts_at_zero) checkpoint::detail::refuse_model("it was saved without bytes for", item.name);
    items_.push_back(std::move(item));
  }
  [[nodiscard]] static bool is_default_name(std::string_view name)
  {
    constexpr std::string_view prefix = "tensor.";
    return name.starts_with(prefix) && name.find_first_not_of("0123456789", prefix.size()) == name.npos;
  }
  /// The possible names of a tensor in the save: its own, and that of a copy.
  [[nodiscard]] std::vector<std::string> names_of(const std::string& list, const std::string& tensor) const
  {
    std::vector<std::string> all{list + tensor};
    for (const auto& [one, other] : options_.copies) {
      if (tensor == one) all.push_back(list + other);
      if (tensor == other) all.push_back(list + one);
    }
    return all;
  }
  [[nodiscard]] bool is_version(const checkpoint::model_item& item) const
  {
    bool found = false;
    m_.for_each_list([&](list_id list, const list_spec& spec) {
      found = found || (list == item.list && spec.use == list_use::weight);
    });
    return found;
  }

  Ranks& stages_;
  Manager& m_;
  saved_stages<Folder>& saved_;
  const load_from_stages_options& options_;
  checkpoint::detail::match_rules rules_ = checkpoint::detail::rules_of_load(options_.begins_anew, options_.leaves_out);
  checkpoint::file_match match_{saved_.index(), rules_};
  std::vector<checkpoint::model_item> items_;
  std::set<std::string, std::less<>> taken_;
};

/// The number of stages that take each name of a save. Every stage calls it. @throws comm_error
template <class Ranks>
[[nodiscard]] std::map<std::string_view, std::uint32_t> takers(Ranks& stages, const std::set<std::string_view>& names,
                                                               const std::set<std::string, std::less<>>& taken)
{
  std::vector<std::uint64_t> words(names.size() / 64 + 1, 0);  // a bit for each name
  std::size_t index = 0;
  for (const std::string_view name : names) {
    if (taken.contains(name)) words[index / 64] |= std::uint64_t{1} << index % 64;
    ++index;
  }
  std::vector<std::uint64_t> all(words.size() * stages.ranks());
  stages.exchange(words, all);
  std::map<std::string_view, std::uint32_t> counts;
  index = 0;
  for (const std::string_view name : names) {
    for (std::size_t at = index / 64; at < all.size(); at += words.size())
      counts[name] += static_cast<std::uint32_t>(all[at] >> index % 64 & 1U);
    ++index;
  }
  return counts;
}

/// Checks that one stage takes each tensor of a save. A copy of a tied weight may have no taker or several, and an
/// older version none. @throws config_error   on every stage: a tensor has no taker, or several
template <file_folder Folder>
void expect_one_taker(const saved_stages<Folder>& saved, const std::map<std::string_view, std::uint32_t>& counts,
                      const load_from_stages_options& options)
{
  for (const auto& [name, count] : counts) {
    if (name.starts_with(checkpoint::detail::state_prefix)) {
      const auto is_taken = [&](const std::string& copy) {
        const auto known = counts.find(copy);
        return known != counts.end() && known->second != 0;
      };
      const bool has_taken_copy = std::ranges::any_of(options.copies, [&](const auto& it) {
        return is_taken(with_other_end(name, it.first, it.second)) ||
               is_taken(with_other_end(name, it.second, it.first));
      });
      if (count == 0 && !has_taken_copy) checkpoint::detail::refuse_model("no stage here has", name);
      continue;
    }
    const stored_name parts = saved.split(name);
    if (parts.list.starts_with("weights/") && count < 2) continue;  // a version that is not kept here
    std::string_view partner;
    for (const auto& [one, other] : options.copies)
      if (parts.tensor == one || parts.tensor == other) partner = parts.tensor == one ? other : one;
    if (!partner.empty()) {
      const std::string other = std::string{parts.list} + (parts.list.empty() ? "" : "/") + std::string{partner};
      const auto known = counts.find(other);
      if (count == 0 && (known == counts.end() || known->second == 0))
        checkpoint::detail::refuse_model("no stage here has", name);
      continue;
    }
    if (count > 1) checkpoint::detail::refuse_model("two stages here have", name);
    if (count == 0) checkpoint::detail::refuse_model("no stage here has", name);
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

/// Checks that all stages see one generation in one list of folders. Every stage calls it. @throws config_error   on
/// every stage: they see different ones; comm_error
template <class Ranks, file_folder Folder>
void expect_same_folders(Ranks& stages, const saved_stages<Folder>& saved)
{
  std::vector<std::uint64_t> own;
  for (const auto& reader : saved.readers()) {
    const std::string text = checkpoint::write_manifest(reader.content());
    own.push_back(io::checksum_of(std::as_bytes(std::span{text})));
  }
  std::vector<std::uint64_t> all(own.size() * stages.ranks());
  stages.exchange(own, all);
  for (std::size_t index = own.size(); index < all.size(); ++index)
    if (all[index] != all[index % own.size()])
      throw config_error{error_text{} << "chunkmem: folder " << index % own.size()
                                      << " of the folders to load is another one on stage " << index / own.size()
                                      << " than on stage 0 (give all stages the same folders in one order)"};
}

}  // namespace detail

/// Loads a training that was saved by another number of stages, or by stages with other parts. Every stage calls it,
/// and sees the folders of all stages of the save.
///
/// - A tensor is identified by its name. So each tensor needs a name (`m.name`) that is unique in the whole model.
///   Tensors of a save may be in any of the folders, and each stage takes its own.
/// - Registered states, such as the count of updates, have the same bytes on all stages that saved. A state without
///   bytes in the save is refused, and so is a saved state that no stage has now.
/// - Weights of a version that was not kept become the newest weights. So a run may continue with more, fewer or one
///   version. With the same number of versions, and with copies of tied weights named, it continues with the same bits.
/// - Save into new folders: folders of other stages are refused.
///
///     std::vector<io::posix_folder> folders;   // of the four stages that saved
///     for (int stage = 0; stage < 4; ++stage) folders.emplace_back("runs/a/stage-" + std::to_string(stage));
///     pipeline::load_from_stages(here.all(), m, std::span<const io::posix_folder>{folders});
///
/// @param stages   a communicator of all stages   @param m   a manager: replicas of a stage are not loaded
/// @param folders  one for each stage that saved, in any order, the same on every stage. Folders of two trainings or
///   two saves, two folders of one stage, or different folders on another stage are refused. Generations of version 0.1
///   have no number of their stage and save: for these only the training and the folders of each stage are compared
/// @return the generation: the newest that is complete in all folders, and that all stages have read. Where one stage
///   finds damage, all load the next older one. `rounded` is of the parts of this stage
/// @throws config_error   on every stage: the save is of another model, a stage has a tensor that the save lacks, or
///   the reverse, or finite numbers would become infinite on a stage; nothing was changed
/// @throws io_error       no generation is complete in all folders; and as checkpoint::load, on every stage the error
///   of the first stage that failed; comm_error
/// @complexity   as checkpoint::load for the parts of this stage. Each stage reads the manifests, tables and registered
///   states of all folders. Each folder is read once more, by one of the stages, to verify that it is complete
template <class Ranks, class Manager, file_folder Folder, executor Executor = const serial>
checkpoint::loaded_generation load_from_stages(Ranks& stages, Manager& m, std::span<const Folder> folders,
                                               const load_from_stages_options& options = {},
                                               Executor& workers = on_this_thread)
{
  static_assert(
      !requires { m.ranks(); }, "chunkmem: replicas of a stage load into as many stages as saved (load_stages)");
  collective::agree_on(stages, folders.size(),
                       "stages were given different folders to load from (give all of them the same)");
  collective::agree_on(stages, checkpoint::detail::word_of_patterns(options.begins_anew, options.leaves_out),
                       "stages have different begins_anew or leaves_out (give all of them the same begins_anew and "
                       "leaves_out)");
  collective::all_or_none(stages, [&] { checkpoint::detail::older_check_of(m).wait(); });
  checkpoint::loaded_generation found;
  for (std::uint64_t up_to = options.newest;;) {
    collective::all_or_none(stages, [&] {
      expects(!folders.empty(), "a training cannot be loaded without folders");
      found.number = detail::newest_of_all(folders, up_to);
    });
    found.number = std::ranges::min(collective::words_of_all(stages, found.number));
    collective::all_or_none(stages, [&] {
      if (found.number == 0)
        throw io_error{error_text{} << "chunkmem: the folders of the stages that saved have no generation in common"
                                    << (found.skipped.empty() ? "" : " that is whole; the newest: ")
                                    << (found.skipped.empty() ? "" : found.skipped.front().why)
                                    << " (name the folder of each stage)"};
    });
    const auto attempt = [&](std::uint64_t number) {
      std::optional<detail::saved_stages<Folder>> saved;
      std::optional<detail::stage_content<Ranks, Manager, Folder>> content;
      collective::all_or_none(stages, [&] {  // each stage verifies some of the folders
        for (std::size_t folder = index_of(stages.rank()); folder < folders.size(); folder += stages.ranks())
          (void)checkpoint::check_generation(folders[folder], number, options.limits);
      });
      collective::all_or_none(stages, [&] {
        m.content().states().expect_whole();
        m.content().expect_unpinned();
        saved.emplace(folders, number, options.limits, options.leaves_out);
      });
      detail::expect_same_folders(stages, *saved);
      collective::all_or_none(stages, [&] { content.emplace(stages, m, *saved, options); });
      detail::expect_one_taker(*saved, detail::takers(stages, saved->names(), content->taken()), options);
      std::optional<
          checkpoint::detail::matched_load<detail::stage_content<Ranks, Manager, Folder>, detail::saved_stages<Folder>>>
          loading;
      collective::all_or_none(stages, [&] { loading.emplace(*content, *saved, content->names()); });
      checkpoint::narrowing narrowed{options.allow_overflow}, again{true};
      loading->check(narrowed, true);
      found.rounded = narrowed.total();
      found.names = content->names();
      found.names.ignored = saved->left_out();
      loading->fill(workers, again);
      loading->end(0);  // its saves go to new folders
    };
    if (checkpoint::try_newest({found.number}, found.skipped, attempt)) break;
    up_to = found.number - 1;
  }
  return found;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
