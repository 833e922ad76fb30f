// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/run_number.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/sharding/own_items.hpp>
#include <chunkmem/sharding/rank_check.hpp>
#include <chunkmem/sharding/rank_content.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

namespace detail {

/// Fills items of this rank, in rounds, so that nobody waits for long. @param items   numbers of those
template <class Model, class Reader>
void fill_over_ranks(Model& model, const rank_content<Model>& content, const std::vector<std::size_t>& items,
                     const checkpoint::stored_index& index, Reader& from)
{
  constexpr std::uint64_t bytes_of_round = std::uint64_t{256} << 20;
  std::size_t next = 0;
  while (!collective::agreed(model.ranks(), [&] {
    for (std::uint64_t done = 0; next < items.size() && done < bytes_of_round; ++next)
      done += checkpoint::fill_item(model.shares(), content.items()[items[next]], index, from);
    return next == items.size();
  })) {
  }
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
        visit(is_common ? it.name : own_name(it.name, rank, model.ranks().ranks()), it.extents);
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

/// Loads one generation on all ranks, and gathers the weights.
/// @throws on every rank: corrupt_data, format_error, io_error   it is not whole; the others as load
template <class Model, file_folder Folder, executor Executor>
void load_over_ranks(Model& model, sharding::rank_content<Model>& content, const Folder& folder, std::uint64_t number,
                     const loader_limits& limits, Executor& workers)
{
  auto& ranks = model.ranks();
  generation_reader<Folder> generation = sharding::open_over_ranks(ranks, folder, number, limits);
  const manifest& stored = generation.content();
  std::optional<stored_index> index;
  std::optional<loaded_states> states;
  std::optional<load_scope<std::remove_reference_t<decltype(model.shares())>>> scope;
  collective::all_or_none(ranks, [&] {
    if (index_of(ranks.rank()) == 0) expect_one_run(folder, number, stored.run);
    index.emplace(generation.generation());
    sharding::detail::match_over_ranks(model, content, *index, stored);
    states.emplace(model.shares(), content.items(), *index, generation);
  });
  collective::all_or_none(ranks, [&] { model.drop_gradients(); });
  collective::all_or_none(ranks, [&] { scope.emplace(model.shares()); });
  std::vector<std::size_t> items;
  for (std::size_t position = 0; position < content.items().size(); ++position)
    if (!content.items()[position].is_state()) items.push_back(position);
  parallel_reader from{generation, workers};
  sharding::detail::fill_over_ranks(model, content, items, *index, from);
  model.gather_weights();
  model.forget_values();
  states->put();
  scope->end();
  model.shares().content().belongs_to(stored.run);
}

}  // namespace detail

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
  auto& ranks = model.ranks();
  using content_type = sharding::rank_content<sharded_model<Backend, Ranks, Policies...>>;
  std::optional<content_type> content;
  collective::all_or_none(ranks, [&] {
    expects(!model.shares().is_iterating() && !model.rehearsing(),
            "a checkpoint was to be loaded inside an iteration or a rehearsal");
    model.shares().content().expect_states();
    model.shares().content().expect_unpinned();
    content.emplace(model);
  });
  content->agree_on_names();
  model.agree_on_model();
  collective::agree_on(
      ranks, options.allow_fresh_start ? 1 : 0,
      "some ranks allow a fresh start, and others do not (give all of them the same allow_fresh_start)");
  collective::agree_on(ranks, options.newest, "ranks were given other values of newest (give all of them the same)");
  const bool has_own = !generations_up_to(options.newest, sharding::generations_of_first(ranks, folder)).empty();
  const content_type declared{*content};  // each generation is compared with it anew
  loaded_generation result;
  if (try_newest(generations_up_to(options.newest, sharding::generations_of_first(ranks, folder, true)), result.skipped,
                 [&](std::uint64_t number) {
                   content.emplace(declared);
                   detail::load_over_ranks(model, *content, folder, number, options.limits, workers);
                   result.number = number;
                 }))
    return result;
  if (!options.allow_fresh_start || has_own) detail::refuse_folder(result.skipped, has_own);
  return result;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
