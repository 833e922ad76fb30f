// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/agreed_generation.hpp>
#include <chunkmem/checkpoint/content_match.hpp>
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/own_items.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The options of a load.
///
///     load(m, folder, {.allow_fresh_start = true});
struct load_options {
  /// A folder without a generation, or with only foreign ones, is no error. Look at `skipped` then: a generation of
  /// your own is foreign too once everybody may write to it.
  bool allow_fresh_start = false;
  std::uint64_t newest = UINT64_MAX;  ///< generations with higher numbers are ignored
  /// true: finite numbers beyond the range of a model's tensor become infinite; false: such a load is refused
  bool allow_overflow = false;
  /// Patterns of the names that the generation may lack, with `*` for any characters. Weights, buffers and registered
  /// states with these names are then as the trainer left them, and lists of an optimizer are zeros: a parameter whose
  /// lists are all zeros counts its updates from the first one on. "adam/*" names the lists and the states of a kernel,
  /// "*lora*" all lists of some weights.
  std::vector<std::string> begins_anew{};
  /// The same patterns for names that count as absent from the generation, whether the model has them or not.
  std::vector<std::string> leaves_out{};
  loader_limits limits{};
};

/// The result of a load.
///
///     const loaded_generation found = load(m, folder, {.allow_fresh_start = true});
///     if (found.number == 0) std::cout << "from the beginning\n";
struct loaded_generation {
  std::uint64_t number = 0;                 ///< 0 after a fresh start
  std::vector<skipped_generation> skipped;  ///< newer generations that cannot be used, foreign ones too: why
  rounded_numbers rounded{};                ///< numbers that became zero or infinite in a narrower type
  matched_names names{};                    ///< of the generation and the model: loaded, initialized anew, ignored
};

/// The generations of a list up to number `newest`.
[[nodiscard]] inline std::vector<std::uint64_t> generations_up_to(std::uint64_t newest,
                                                                  std::vector<std::uint64_t> generations)
{
  std::erase_if(generations, [newest](std::uint64_t number) { return number > newest; });
  return generations;
}

namespace detail {

/// Whether a piece of an item stays as it is.
[[nodiscard]] inline bool is_kept(const model_item& item, const item_piece& piece) noexcept
{
  return piece.begins_anew && !item.starts_at_zero;
}

/// Writes all pieces of an item in one list. Elements between pieces, and pieces without bytes in the checkpoint,
/// become zeros. @param value   of a master that is not made yet: pieces that stay are made from it
template <class Manager, element_reader Reader>
void fill_list(Manager& m, const model_item& item, Reader& from, const model_item* value = nullptr)
{
  const bool keeps = std::ranges::any_of(item.pieces, [&](const item_piece& it) { return is_kept(item, it); });
  const std::size_t width = size_of(item.type);
  const write_access how = keeps && value == nullptr ? access::read_write : access::write;
  with_bytes(m, item, how, [&](std::span<std::byte> to) {
    std::uint64_t end = 0;  // of the pieces so far
    const auto fill_until = [&](std::uint64_t element) {
      std::fill(to.begin() + static_cast<std::ptrdiff_t>(end * width),
                to.begin() + static_cast<std::ptrdiff_t>(element * width), std::byte{0});
    };
    for (const item_piece& piece : item.pieces) {
      std::byte* const place = to.data() + piece.begin * width;
      if (is_kept(item, piece) && value != nullptr)
        with_bytes(m, *value, access::read, [&](std::span<const std::byte> all) {
          const std::size_t narrow = size_of(value->type);
          (void)checkpoint::convert(all.subspan(piece.begin * narrow, piece.elements * narrow), value->type, place,
                                    item.type);
        });
      else if (!is_kept(item, piece) && piece.stored == nullptr)
        continue;
      fill_until(piece.begin);
      if (piece.stored != nullptr) (void)read_piece(from, piece, 0, piece.elements, place, item.type);
      end = piece.begin + piece.elements;
    }
    fill_until(to.size() / width);
  });
}

/// Makes a 16-bit value from its master, as its optimizer would. @throws config_error   as narrowing
template <class Manager>
void make_value(Manager& m, const model_item& value, narrowing& found)
{
  model_item master = value;
  master.list = value.master;
  with_bytes(m, master, access::read, [&](std::span<const std::byte> from) {
    with_bytes(m, value, access::write, [&](std::span<std::byte> to) {
      std::uint64_t done = 0;  // elements
      const auto convert_until = [&](std::uint64_t end) {
        const std::size_t begin = done * sizeof(float), size = (end - done) * sizeof(float);
        std::byte* const place = to.data() + done * size_of(value.type);
        done = end;
        return checkpoint::convert(from.subspan(begin, size), dtype::float32, place, value.type);
      };
      for (const item_piece& piece : value.pieces) {
        (void)convert_until(piece.begin);  // elements that are in no file
        found.add(piece.name, convert_until(piece.begin + piece.elements), value.type);
      }
      (void)convert_until(from.size() / sizeof(float));
    });
  });
}

}  // namespace detail

/// Fills an item of a manager from a checkpoint that matches it; not a state. A 16-bit value and its master are both
/// made from the saved bytes, the value as its optimizer would make it.
/// @param found   counts the losses of values that are made from their masters
/// @return   about how many bytes were written
/// @throws as pins, `from` and `found`
/// @complexity   reads the saved bytes once; twice where a value with a master was saved in its own 16 bits
template <class Manager, element_reader Reader>
std::uint64_t fill_item(Manager& m, const model_item& item, Reader& from, narrowing& found)
{
  bool is_stored = item.is_filled && item.pieces.empty();  // else the item stays as it is
  bool has_value_bits = false;                             // which may be those of a NaN that no rounding gives
  for (const item_piece& piece : item.pieces) {
    is_stored = is_stored || piece.stored != nullptr || (item.is_filled && !detail::is_kept(item, piece));
    has_value_bits = has_value_bits || (piece.stored != nullptr && piece.stored->type == item.value_type);
  }
  if (!is_stored) return 0;
  model_item part = item;
  model_item value = item;
  value.list = item.master != list_id::none ? value_list : item.list;
  value.type = item.value_type;
  if (item.master != list_id::none) {
    part.list = item.master;
    part.type = dtype::float32;
    const bool is_made = m.is_filled(item.tensor, item.master);
    detail::fill_list(m, part, from, is_made ? nullptr : &value);
  }
  if (item.master != list_id::none && !has_value_bits)
    detail::make_value(m, value, found);
  else
    detail::fill_list(m, value, from);
  return item.size();
}

/// The registered states of a checkpoint. The model's states change last, by `put`, when all else is loaded.
///
///     loaded_states states{m, items, from};
///     ...
///     states.put();
class loaded_states {
 public:
  /// @param items   outlive this
  /// @throws config_error   the owner of a state refuses its bytes; and the errors of `from`
  template <class Manager, element_reader Reader>
  loaded_states(const Manager& m, const std::vector<model_item>& items, Reader& from)
  {
    for (const model_item& item : items) {
      if (!item.is_state()) continue;
      const item_piece& piece = item.pieces.front();
      if (piece.begins_anew && !item.count_of_all.empty()) anew_.emplace_back(item.state, item.count_of_all);
      const stored_value* const known = piece.stored;
      if (piece.begins_anew || (known == nullptr && !item.may_be_absent())) continue;
      std::vector<std::byte> loaded(static_cast<std::size_t>(item.size()));
      if (known != nullptr) (void)read_elements(from, *known, 0, item.size(), loaded.data(), item.type);
      const auto check = m.content().states().check_of(std::string_view{item.name}.substr(detail::state_prefix.size()));
      if (check != nullptr) check(loaded);
      if (!item.is_constant) all_.emplace_back(item.state, std::move(loaded));
    }
  }

  void put() const noexcept
  {
    for (const auto& [to, content] : all_) std::ranges::copy(content, to.begin());
    for (const auto& [to, content] : anew_) std::ranges::copy(content, to.begin());
  }

 private:
  std::vector<std::pair<std::span<std::byte>, std::span<const std::byte>>> anew_;  // counts; from the count of all
  std::vector<std::pair<std::span<std::byte>, std::vector<std::byte>>> all_;
};

/// The scope in which a load writes into a manager. Without `end`, the tensors that the load would have written have no
/// bytes.
///
///     load_scope scope{m, items};
///     fill_item(...);
///     scope.end();
template <class Manager>
class load_scope {
 public:
  /// @param items   of the load @throws   as content_session::begin_load
  load_scope(Manager& m, const std::vector<model_item>& items) : m_{m}
  {
    std::vector<tensor_handle> kept;
    for (const model_item& item : items)
      if (!item.is_state() && !item.pieces.empty() &&
          std::ranges::all_of(item.pieces, [&](const item_piece& it) { return detail::is_kept(item, it); }))
        kept.push_back(item.tensor);
    m.content().begin_load(kept);
  }
  load_scope(const load_scope&) = delete;
  ~load_scope()
  {
    if (!is_over_) m_.content().abandon_load();
  }

  void end() noexcept
  {
    m_.content().end_load();
    is_over_ = true;
  }

 private:
  Manager& m_;
  bool is_over_ = false;
};

namespace detail {

/// @param has_own   some of the generations are not foreign
[[noreturn]] inline void refuse_folder(const std::vector<skipped_generation>& skipped, bool has_own)
{
  if (skipped.empty())
    throw io_error{"there is no checkpoint in this folder (name another one, or allow a fresh start)"};
  error_text text;
  text << "chunkmem: none of the " << skipped.size() << " generations in this folder is "
       << (has_own ? "whole" : "trusted") << "; the newest, number " << skipped.front().number << ": "
       << skipped.front().why;
  if (has_own) text << " (if another process saves into it with keep = 1 now, try again)";
  throw io_error{text};
}

/// Works on the items of this rank, in rounds, so that no rank waits for long.
/// @param work   `work(item)` returns about how many bytes it read or wrote
template <class Content, class Work>
void for_items(Content& content, Work work)
{
  constexpr std::uint64_t bytes_of_round = std::uint64_t{256} << 20;
  std::size_t next = 0;
  while (!collective::agreed(content.ranks(), [&] {
    for (std::uint64_t done = 0; next < content.items().size() && done < bytes_of_round; ++next)
      done += work(std::as_const(content.items()[next]));
    return next == content.items().size();
  })) {
  }
}
/// Fills the items for which `is_wanted(item)`. @param found   counts the losses of values made from their masters
template <class Content, class IsWanted, element_reader Reader>
void fill_items(Content& content, IsWanted is_wanted, Reader& from, narrowing& found)
{
  narrowing of_copies{true};
  for_items(content, [&](const model_item& item) {
    return is_wanted(item) ? fill_item(content.manager(), item, from, item.is_written ? found : of_copies) : 0;
  });
}
/// Rounds the numbers that will be narrowed, of the items for which `is_wanted(item)`, and writes nothing.
/// @throws config_error   on every rank: finite numbers would become infinite on one
template <class Content, class IsWanted, element_reader Reader>
void check_items(Content& content, IsWanted is_wanted, Reader& from, narrowing& found)
{
  for_items(content, [&](const model_item& item) -> std::uint64_t {
    if (!item.is_written || !is_wanted(item)) return 0;
    check_narrowing(item, from, found);
    return item.size();
  });
}
/// The losses of all ranks together. Every rank has to call this. @throws comm_error
template <class Ranks>
[[nodiscard]] rounded_numbers sum_over_ranks(Ranks& ranks, const rounded_numbers& mine)
{
  if constexpr (collective::is_alone<Ranks>) {
    return mine;
  } else {
    const auto sum = [&](std::uint64_t it) {
      const std::vector<std::uint64_t> all = collective::words_of_all(ranks, it);
      return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
    };
    const std::uint64_t overflows = sum(mine.overflows);
    return {overflows, sum(mine.underflows)};
  }
}

/// Compares a model with a checkpoint, and sets where the bytes of each piece of its items are. @return   the names of
/// both @throws config_error   the checkpoint is of another model
template <class Content>
[[nodiscard]] matched_names match_content(Content& content, const stored_index& index, const manifest& stored,
                                          const match_rules& rules)
{
  const std::uint32_t world = content.ranks().ranks();
  file_match match{index, rules, stored.empty};
  find_own_items(content, index, stored, [&](std::string_view name) { return match.is_left_out(name); });
  match_lists(content.manager(), stored);
  content.for_each_shared([&](const std::string& name, const auto& extents, std::size_t position) {
    match.add(name, extents, content.items()[position].type);
  });
  for (std::size_t position = 0; position < content.items().size(); ++position) {
    if (!content.is_own(position)) continue;
    const model_item& it = content.items()[position];
    // an absent constant is zero where the file has other constants of its kernel
    const bool is_known = !it.is_constant || match.has_some(it.name.substr(0, it.name.rfind('/') + 1));
    const bool may_begin = !is_known && has_name(rules.begins_anew, it.name);
    const absence absent = it.may_be_absent() && !may_begin ? absence::zero : absence::refused;
    if (it.pieces.front().name == it.name) {
      match.add(it.name, it.extents, it.type, absent);
      continue;
    }
    for (std::uint32_t rank = 0; rank < world; ++rank)
      match.add(own_name(it.name, rank, world), it.extents, it.type, absent);
  }
  matched_names names = match.take_names();
  settle_items(content, match, rules);
  match_counts(content, [&](const std::string& name) { return match.begins_anew(name); });
  return names;
}

/// Loads the bytes of a checkpoint into a model that was compared with it. Every rank makes the same calls, and an
/// error is thrown on every rank.
/// @tparam Generation   a generation_reader, or what reads as one
template <class Content, class Generation>
class matched_load {
 public:
  /// All arguments outlive this. The model is not changed yet. @throws as loaded_states, on this rank alone
  matched_load(Content& content, Generation& generation, const matched_names& names)
      : content_{content},
        generation_{generation},
        names_{names},
        states_{content.manager(), content.items(), generation}
  {
  }
  matched_load(const matched_load&) = delete;

  /// Rounds the numbers that will be narrowed, and writes nothing. @param with_masters   also the values that are made
  /// from masters, whose bytes are read once more @throws as check_narrowing
  void check(narrowing& found, bool with_masters)
  {
    const auto is_wanted = [&](const model_item& item) {
      return !item.is_state() && (with_masters || item.master == list_id::none);
    };
    check_items(content_, is_wanted, generation_, found);
  }
  /// Reads blocks straight to their tensors, by `workers`. @throws as fill_item
  template <executor Executor>
  void fill(Executor& workers, narrowing& found)
  {
    content_.begin_fill();
    collective::all_or_none(content_.ranks(), [&] { scope_.emplace(content_.manager(), content_.items()); });
    parallel_reader from{generation_, workers};
    fill_items(
        content_, [](const model_item& item) { return !item.is_state(); }, from, found);
    content_.end_fill(
        [&](const std::string& name) { return std::ranges::find(names_.begun_anew, name) == names_.begun_anew.end(); });
  }
  /// Ends the load. @param run   the training that the model continues
  void end(std::uint64_t run) noexcept
  {
    states_.put();
    scope_->end();
    content_.manager().content().belongs_to(run);
  }

 private:
  using manager_type = std::remove_reference_t<decltype(std::declval<Content&>().manager())>;

  Content& content_;
  Generation& generation_;
  const matched_names& names_;
  loaded_states states_;
  std::optional<load_scope<manager_type>> scope_;
};

/// Loads one generation into a model. Every rank makes the same calls.
template <class Model, file_folder Folder>
class generation_load {
 public:
  using content_type = content_of_model<Model>;

  /// All arguments outlive this. The model is not changed yet. @param declared   its content as it is before any load
  /// @throws corrupt_data, format_error, io_error   the generation is not whole; others as load; all on every rank
  generation_load(content_type& declared, const Folder& folder, std::uint64_t number, const load_options& options)
      : content_{declared}, generation_{open_generation(content_.ranks(), folder, number, options.limits)}
  {
    const match_rules rules = rules_of_load(options.begins_anew, options.leaves_out);
    collective::all_or_none(content_.ranks(), [&] {
      if (index_of(content_.ranks().rank()) == 0) expect_one_run(folder, number, stored().run);
      index_.emplace(generation_.generation());
      names_ = match_content(content_, *index_, stored(), rules);
      load_.emplace(content_, generation_, names_);
      // Damage that is found later would destroy bytes that stay: of a shard, or for an older generation.
      if (!options.begins_anew.empty())
        generation_.check(index_of(content_.ranks().rank()), UINT64_MAX, content_.ranks().ranks());
    });
  }
  generation_load(const generation_load&) = delete;

  [[nodiscard]] const manifest& stored() const noexcept { return generation_.content(); }
  [[nodiscard]] auto& load() noexcept { return *load_; }
  [[nodiscard]] const matched_names& names() const noexcept { return names_; }

 private:
  /// A match names and marks items of shards, so each generation is compared with a copy. A manager has no shards, and
  /// all its items are its own: a match changes none of them.
  std::conditional_t<is_manager<Model>, content_type&, content_type> content_;
  generation_reader<Folder> generation_;
  std::optional<stored_index> index_;
  matched_names names_;
  std::optional<matched_load<content_type, generation_reader<Folder>>> load_;
};

}  // namespace detail

/// A load of a model, step by step: see load. Over ranks every rank makes the same calls in the same order. Stages of a
/// pipeline take each step together.
///
///     model_load loading{m, folder, options};
///     loading.prepare();
///     loading.open(loading.generations(false).front()), loading.fill(workers), loading.end();
template <class Model, file_folder Folder>
class model_load {
 public:
  using content_type = content_of_model<Model>;

  /// All arguments outlive this.
  model_load(Model& model, const Folder& folder, const load_options& options)
      : folder_{folder}, options_{options}, content_{model}
  {
  }
  model_load(const model_load&) = delete;

  /// Compares the models and options of ranks. @throws usage_error   as load, on every rank
  void prepare()
  {
    auto& ranks = content_.ranks();
    content_.finish_updates_of_saves();
    collective::all_or_none(ranks, [&] {
      auto& m = content_.manager();
      expects(!m.is_iterating() && !m.rehearsing(), "a checkpoint cannot be loaded inside an iteration or a rehearsal");
      m.content().states().expect_whole();
      m.content().expect_unpinned();
      if constexpr (is_manager<Model>) detail::older_check_of(m).wait();  // the last save may still remove generations
      content_.collect();
    });
    content_.agree_on_model();
    collective::agree_on(
        ranks, options_.allow_fresh_start ? 1 : 0,
        "some ranks allow a fresh start, and others do not (give all of them the same allow_fresh_start)");
    collective::agree_on(ranks, options_.allow_overflow ? 1 : 0,
                         "some ranks let numbers become infinite, and others do not (give all of them the same "
                         "allow_overflow)");
    collective::agree_on(ranks, detail::word_of_patterns(options_.begins_anew, options_.leaves_out),
                         "ranks differ in begins_anew or leaves_out (give all of them the same begins_anew and "
                         "leaves_out)");
    collective::agree_on(ranks, options_.newest, "ranks have different values of newest (give all of them the same)");
  }
  /// The generations that rank 0 sees, newest first. @param with_foreign   see all_generations_in
  [[nodiscard]] std::vector<std::uint64_t> generations(bool with_foreign)
  {
    return generations_of_first(content_.ranks(), folder_, with_foreign);
  }
  /// Compares a generation with the model. Nothing is changed yet, except by an earlier `fill` that failed.
  void open(std::uint64_t number)
  {
    found_ = narrowing{options_.allow_overflow};
    now_.emplace(content_, folder_, number, options_);
    now_->load().check(found_, false);
  }
  [[nodiscard]] const manifest& stored() const noexcept { return now_->stored(); }
  /// The names of that generation and of the model.
  [[nodiscard]] const matched_names& names() const noexcept { return now_->names(); }
  template <executor Executor>
  void fill(Executor& workers)
  {
    now_->load().fill(workers, found_);
  }
  void end() noexcept { now_->load().end(stored().run); }
  /// The numbers that narrower types have lost in the load, on all ranks together. Every rank has to call this.
  /// @throws comm_error
  [[nodiscard]] rounded_numbers rounded() { return detail::sum_over_ranks(content_.ranks(), found_.total()); }

 private:
  const Folder& folder_;
  const load_options& options_;
  content_type content_;
  narrowing found_{false};
  std::optional<detail::generation_load<Model, Folder>> now_;
};

namespace detail {

/// Loads the newest generation that is whole, by the steps of a model_load. @throws as load
template <class Loading, executor Executor>
[[nodiscard]] loaded_generation load_newest(Loading& loading, const load_options& options, Executor& workers)
{
  const bool has_own = !generations_up_to(options.newest, loading.generations(false)).empty();
  loaded_generation result;
  if (try_newest(generations_up_to(options.newest, loading.generations(true)), result.skipped,
                 [&](std::uint64_t number) {
                   loading.open(number);
                   loading.fill(workers);
                   loading.end();
                   result.number = number;
                 })) {
    result.rounded = loading.rounded();
    result.names = loading.names();
    return result;
  }
  if (!options.allow_fresh_start || has_own) refuse_folder(result.skipped, has_own);
  return result;
}

}  // namespace detail

/// Fills a manager, or a model over ranks, and its registered states from the newest generation that is whole.
///
/// - Declare the model, its lists and its states as when they were saved. Capacity, layout, chunk size, policies and
///   backend may be others. Element types of values and lists may be others too: real numbers are rounded to nearest.
///   Where finite numbers would become infinite, the load is refused, unless `allow_overflow` permits it. `rounded`
///   counts these, and numbers that became zero.
/// - Bytes are read once, straight to their tensors, and verified there. The names, shapes and types of a generation
///   are checked before any of its bytes is written. So are its registered states, which are written last.
/// - Where bytes are damaged, all of the next older generation is loaded. When this returns, all bytes come from one
///   generation.
/// - Where this throws after it began to write, no tensor has bytes: reading one is a usage_error. Optimizer steps and
///   saves are refused until a load succeeds. Registered states are as they were.
/// - Gradients are dropped. An optimizer step that is half done is discarded: the next step is a new one.
///
/// Use:
///
///     io::posix_folder folder{"runs/a"};
///     const auto found = checkpoint::load(m, folder);
///     for (const auto& it : found.skipped) std::cerr << "generation " << it.number << ": " << it.why << '\n';
///
///     optimizer::thread_pool workers{4};
///     checkpoint::load(m, folder, {}, workers);  // four blocks at once
///
/// Over ranks every rank has to call this, with a folder that all of them see. Any number of ranks, or one manager, may
/// have saved. All ranks agree on the generation. Each reads and verifies its shards; weights are gathered before
/// the call returns. Where one rank finds damage, all of them load the next older generation.
///
/// @param workers   read blocks of one tensor at once, where the folder lets them (posix_folder does)
/// @throws config_error    the checkpoint is of another model, the owner of a registered state refuses its bytes, or
///   finite numbers would become infinite; nothing was changed, unless a newer generation was found damaged meanwhile,
///   or a 16-bit weight overflows that is made from its master: then no tensor has bytes. Over ranks also: ranks have
///   different models, or see different files; or each rank saved a state of its own, and the number of ranks differs
/// @throws io_error        there is no whole generation, and no permission for a fresh start
/// @throws usage_error     inside an iteration, or a pin holds a tensor; out_of_memory   no room to write a tensor;
///   device_error; std::bad_alloc   no room for names and states
/// @throws comm_error      a rank is gone, or did not answer within the deadline. Ranks throw other errors together:
///   that of the first that failed
/// @complexity             one pass over the files (of each rank over its own bytes, in whole blocks), a second one
///   over narrowed numbers, and one over the tensors; memory: eight blocks of 4 MiB, the states, and tables of all
///   files
template <class Model, file_folder Folder, executor Executor = const serial>
loaded_generation load(Model& model, const Folder& folder, const load_options& options = {},
                       Executor& workers = on_this_thread)
{
  model_load loading{model, folder, options};
  loading.prepare();
  return detail::load_newest(loading, options, workers);
}
/// Refuses a path in the place of a folder, with a sentence.
template <class Model, class Path, class... Rest>
  requires std::convertible_to<const Path&, std::string>
auto load(Model&, const Path&, const load_options& = {}, const Rest&...)
{
  static_assert(!std::convertible_to<const Path&, std::string>,
                "chunkmem: a checkpoint lies in a folder: write io::posix_folder folder{\"runs/a\"} and "
                "checkpoint::load(m, folder)");
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
