// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/sharding/own_items.hpp>
#include <chunkmem/sharding/rank_check.hpp>
#include <chunkmem/sharding/rank_content.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

namespace detail {

/// Works on items of this rank, in rounds, so that nobody waits for long. @param items   numbers of those
/// @param work   `work(item)` returns about how many bytes it read or wrote
template <class Model, class Work>
void for_items_over_ranks(Model& model, const rank_content<Model>& content, const std::vector<std::size_t>& items,
                          Work work)
{
  constexpr std::uint64_t bytes_of_round = std::uint64_t{256} << 20;
  std::size_t next = 0;
  while (!collective::agreed(model.ranks(), [&] {
    for (std::uint64_t done = 0; next < items.size() && done < bytes_of_round; ++next)
      done += work(content.items()[items[next]]);
    return next == items.size();
  })) {
  }
}
/// Fills items of this rank. @param found   takes in what values lose that are made from their masters
template <class Model, class Reader>
void fill_over_ranks(Model& model, const rank_content<Model>& content, const std::vector<std::size_t>& items,
                     const checkpoint::stored_index& index, Reader& from, checkpoint::narrowing& found)
{
  checkpoint::narrowing of_copies{true};
  for_items_over_ranks(model, content, items, [&](const checkpoint::model_item& item) {
    return checkpoint::fill_item(model.shares(), item, index, from, item.is_written ? found : of_copies);
  });
}
/// Rounds what will be narrowed, and writes nothing. @param has_masters   values with masters too
/// @throws config_error   on every rank: finite numbers would become infinite on one
template <class Model, class Reader>
void check_narrowing_over_ranks(Model& model, const rank_content<Model>& content, const std::vector<std::size_t>& items,
                                const checkpoint::stored_index& index, Reader& from, bool has_masters,
                                checkpoint::narrowing& found)
{
  for_items_over_ranks(model, content, items, [&](const checkpoint::model_item& item) -> std::uint64_t {
    if (!item.is_written || (item.master != list_id::none && !has_masters)) return 0;
    checkpoint::check_narrowing(item, index, from, found);
    return item.size();
  });
}
/// What all ranks have lost together. Every rank has to call it. @throws comm_error
template <class Ranks>
[[nodiscard]] checkpoint::rounded_numbers sum_over_ranks(Ranks& ranks, const checkpoint::rounded_numbers& mine)
{
  const auto sum = [&](std::uint64_t it) {
    const std::vector<std::uint64_t> all = collective::words_of_all(ranks, it);
    return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
  };
  const std::uint64_t overflows = sum(mine.overflows);
  return {overflows, sum(mine.underflows)};
}

/// @throws config_error   on every rank: it is no checkpoint of this model
template <class Model>
void match_over_ranks(Model& model, rank_content<Model>& content, const checkpoint::stored_index& index,
                      const checkpoint::manifest& stored)
{
  find_own_items(model, content, index, stored);
  checkpoint::match_lists(model.shares(), stored);
  const auto names = [&](auto visit) {
    content.for_each_shared([&](const std::string& name, const auto& extents, std::size_t) { visit(name, extents); });
    for (std::size_t position = 0; position < content.items().size(); ++position) {
      if (!content.is_own(position)) continue;
      const checkpoint::model_item& it = content.items()[position];
      const bool is_common = it.pieces.front().name == it.name;
      for (std::uint32_t rank = 0; rank < (is_common ? 1 : model.ranks().ranks()); ++rank)
        visit(is_common ? it.name : own_name(it.name, rank, model.ranks().ranks()), it.extents, it.may_be_absent());
    }
  };
  checkpoint::match_names(names, index, stored);
  // also a share that is nothing but padding
  content.for_each_shared([&](const std::string& name, const auto&, std::size_t item) {
    if (index.find(name) != nullptr) content.items()[item].is_filled = true;
  });
  checkpoint::match_items(content.items(), index);
}

}  // namespace detail

}  // namespace sharding

namespace checkpoint {

namespace detail {

/// One generation on its way into a model over ranks. Every rank makes the same calls.
template <class Model, file_folder Folder>
class generation_load_over_ranks {
 public:
  /// All outlive this.
  /// @throws on every rank: corrupt_data, format_error, io_error   it is not whole; the others as load
  generation_load_over_ranks(Model& model, sharding::rank_content<Model>& content, const Folder& folder,
                             std::uint64_t number, const loader_limits& limits)
      : model_{model}, content_{content}, generation_{sharding::open_over_ranks(model.ranks(), folder, number, limits)}
  {
    collective::all_or_none(model_.ranks(), [&] {
      if (index_of(model_.ranks().rank()) == 0) expect_one_run(folder, number, stored().run);
      index_.emplace(generation_.generation());
      sharding::detail::match_over_ranks(model_, content_, *index_, stored());
      states_.emplace(model_.shares(), content_.items(), *index_, generation_);
    });
  }
  generation_load_over_ranks(const generation_load_over_ranks&) = delete;

  [[nodiscard]] const manifest& stored() const noexcept { return generation_.content(); }
  /// Rounds what will be narrowed, and writes nothing. @throws config_error   on every rank, as check_narrowing
  void check(narrowing& found)
  {
    sharding::detail::check_narrowing_over_ranks(model_, content_, tensors(), *index_, generation_, false, found);
  }
  /// Shares are read, and weights gathered from them. @throws on every rank, as fill_item
  template <executor Executor>
  void fill(Executor& workers, narrowing& found)
  {
    auto& ranks = model_.ranks();
    model_.discard_updates();  // before anything does them: lists that they would fill count as empty
    collective::all_or_none(ranks, [&] { model_.drop_gradients(); });
    collective::all_or_none(ranks, [&] { scope_.emplace(model_.shares()); });
    parallel_reader from{generation_, workers};
    sharding::detail::fill_over_ranks(model_, content_, tensors(), *index_, from, found);
    collective::all_or_none(ranks, [&] { model_.gather_weights(); });  // all have it, or none
    model_.forget_values();
  }
  void end() noexcept
  {
    states_->put();
    scope_->end();
    model_.shares().content().belongs_to(stored().run);
  }

 private:
  /// Numbers of the items that are no states.
  [[nodiscard]] std::vector<std::size_t> tensors() const
  {
    std::vector<std::size_t> items;
    for (std::size_t position = 0; position < content_.items().size(); ++position)
      if (!content_.items()[position].is_state()) items.push_back(position);
    return items;
  }

  Model& model_;
  sharding::rank_content<Model>& content_;
  generation_reader<Folder> generation_;
  std::optional<stored_index> index_;
  std::optional<loaded_states> states_;
  std::optional<load_scope<std::remove_reference_t<decltype(std::declval<Model&>().shares())>>> scope_;
};

}  // namespace detail

}  // namespace checkpoint

namespace sharding {

/// A load of one rank, step by step: see checkpoint::load. Every rank makes the same calls in the same order.
///
///     rank_load loading{model, folder, options};
///     loading.prepare();
///     loading.open(loading.generations(false).front()), loading.fill(workers), loading.end();
template <class Model, file_folder Folder>
class rank_load {
 public:
  /// All outlive this.
  rank_load(Model& model, const Folder& folder, const checkpoint::load_options& options)
      : model_{model}, folder_{folder}, options_{options}
  {
  }
  rank_load(const rank_load&) = delete;

  /// Models and options are compared. @throws as checkpoint::load, on every rank
  void prepare()
  {
    auto& ranks = model_.ranks();
    collective::all_or_none(ranks, [&] {
      expects(!model_.shares().is_iterating() && !model_.rehearsing(),
              "a checkpoint was to be loaded inside an iteration or a rehearsal");
      model_.shares().content().expect_states();
      model_.shares().content().expect_unpinned();
      declared_.emplace(model_);
    });
    declared_->agree_on_names();
    model_.agree_on_model();
    collective::agree_on(
        ranks, options_.allow_fresh_start ? 1 : 0,
        "some ranks allow a fresh start, and others do not (give all of them the same allow_fresh_start)");
    collective::agree_on(ranks, options_.allow_overflow ? 1 : 0,
                         "some ranks let numbers become infinite, and others do not (give all of them the same "
                         "allow_overflow)");
    collective::agree_on(ranks, options_.newest, "ranks were given other values of newest (give all of them the same)");
  }
  /// Those that rank 0 sees, newest first. @param with_foreign   see all_generations_in
  [[nodiscard]] std::vector<std::uint64_t> generations(bool with_foreign) const
  {
    return generations_of_first(model_.ranks(), folder_, with_foreign);
  }
  /// Compares a generation with the model. Nothing is changed yet, but for a `fill` before that did not end.
  void open(std::uint64_t number)
  {
    now_.reset();
    content_.emplace(*declared_);  // each generation is compared with it anew
    found_ = checkpoint::narrowing{options_.allow_overflow};
    now_.emplace(model_, *content_, folder_, number, options_.limits);
    now_->check(found_);
  }
  [[nodiscard]] const checkpoint::manifest& content() const noexcept { return now_->stored(); }
  template <executor Executor>
  void fill(Executor& workers)
  {
    now_->fill(workers, found_);
  }
  void end() noexcept { now_->end(); }
  /// What a narrower type has lost of the generation that was filled, on all ranks together. Every rank has to call it.
  /// @throws comm_error
  [[nodiscard]] checkpoint::rounded_numbers rounded() const
  {
    return detail::sum_over_ranks(model_.ranks(), found_.total());
  }

 private:
  Model& model_;
  const Folder& folder_;
  const checkpoint::load_options& options_;
  std::optional<rank_content<Model>> declared_;
  std::optional<rank_content<Model>> content_;
  checkpoint::narrowing found_{false};
  std::optional<checkpoint::detail::generation_load_over_ranks<Model, Folder>> now_;
};

}  // namespace sharding

namespace checkpoint {

/// As load_of a manager.
template <class Backend, class Ranks, class... Policies, file_folder Folder>
[[nodiscard]] auto load_of(sharded_model<Backend, Ranks, Policies...>& model, const Folder& folder,
                           const load_options& options)
{
  return sharding::rank_load<sharded_model<Backend, Ranks, Policies...>, Folder>{model, folder, options};
}

/// Fills a model over ranks from the newest generation that is whole, whoever saved it: any number of ranks, divided in
/// any way, in chunks of any size, or one manager. Every rank has to call it, with a folder that all of them see.
///
/// All ranks agree on the generation. Each reads what it owns, and proves it; weights are gathered from the shares
/// before it returns. Where one rank finds damage, all of them load the next older generation. The rest is as in load
/// for a manager. Memory: eight blocks of 4 MiB, the states, and tables of all files
/// @throws as load, on every rank what the first that failed threw
/// @throws config_error   also: ranks have other models, or see other files; states that each rank saved its own of,
///   and there are other ranks
/// @throws comm_error     a rank is gone, or did not answer within the deadline
/// @complexity            each rank reads its own bytes once, in whole blocks of 4 MiB
template <class Backend, class Ranks, class... Policies, file_folder Folder, executor Executor = const serial>
loaded_generation load(sharded_model<Backend, Ranks, Policies...>& model, const Folder& folder,
                       const load_options& options = {}, Executor& workers = on_this_thread)
{
  sharding::rank_load loading{model, folder, options};
  loading.prepare();
  return detail::load_newest(loading, options, workers);
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
