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
#include <chunkmem/core/expects.hpp>
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
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

namespace detail {

/// Fills items of this rank, in rounds, so that nobody waits for long, and gathers the weights again. On every rank the
/// same: until it is over nothing is saved and no step is taken. @param items   numbers of those
template <class Model, class Reader>
void fill_over_ranks(Model& model, const rank_content<Model>& content, const std::vector<std::size_t>& items,
                     const checkpoint::stored_index& index, Reader& from)
{
  constexpr std::uint64_t bytes_of_round = std::uint64_t{256} << 20;
  std::size_t next = 0;
  collective::all_or_none(model.ranks(), [&] {
    model.drop_gradients();
    model.shares().content().begin_load();
  });
  while (!collective::agreed(model.ranks(), [&] {
    for (std::uint64_t done = 0; next < items.size() && done < bytes_of_round; ++next)
      done += checkpoint::fill_item(model.shares(), content.items()[items[next]], index, from);
    return next == items.size();
  })) {
  }
  model.shares().content().end_load();
  model.gather_weights();
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

/// Fills a model over ranks from the newest generation that is whole, whoever saved it: any number of ranks, divided in
/// any way, in chunks of any size, or one manager. Every rank has to call it, with a folder that all of them see.
///
/// All ranks agree on the generation. Each proves its part of the files and reads what it owns; weights are gathered
/// from the shares before it returns. The rest is as in load for a manager. Memory: eight blocks of 4 MiB, and tables
/// of all files
/// @throws as load, on every rank what the first that failed threw; where files could not be read again some tensors
///   are loaded
/// @throws config_error   also: ranks have other models, or see other files; states that each rank saved its own of,
///   and there are other ranks
/// @throws comm_error     a rank is gone, or did not answer within the deadline
/// @complexity            each rank reads its part of all bytes, and then its own
template <class Backend, class Ranks, class... Policies, file_folder Folder>
loaded_generation load(sharded_model<Backend, Ranks, Policies...>& model, const Folder& folder,
                       const load_options& options = {})
{
  auto& ranks = model.ranks();
  std::optional<sharding::rank_content<sharded_model<Backend, Ranks, Policies...>>> content;
  collective::all_or_none(ranks, [&] {
    expects(!model.shares().is_iterating() && !model.rehearsing(),
            "a checkpoint was to be loaded inside an iteration or a rehearsal");
    model.shares().content().expect_states();
    content.emplace(model);
  });
  content->agree_on_names();
  model.agree_on_model();
  collective::agree_on(
      ranks, options.allow_fresh_start ? 1 : 0,
      "some ranks allow a fresh start, and others do not (give all of them the same allow_fresh_start)");
  loaded_generation result;
  std::optional<generation_reader<Folder>> from;
  const bool is_there = try_newest(
      sharding::generations_of_first(ranks, folder, true), result.skipped,
      [&](std::uint64_t number) { from.emplace(sharding::check_over_ranks(ranks, folder, number, options.limits)); });
  if (!is_there) {
    const bool has_own = !sharding::generations_of_first(ranks, folder).empty();
    if (options.allow_fresh_start && !has_own) return result;
    detail::refuse_folder(result.skipped, has_own);
  }
  const manifest& stored = from->content();
  std::optional<stored_index> index;
  collective::all_or_none(ranks, [&] {
    if (index_of(ranks.rank()) == 0) expect_one_run(folder, stored.generation, stored.run);
    index.emplace(from->generation());
    sharding::detail::match_over_ranks(model, *content, *index, stored);
    check_states(model.shares(), content->items(), *index, *from);
  });
  std::vector<std::size_t> all(content->items().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  sharding::detail::fill_over_ranks(model, *content, all, *index, *from);
  model.shares().content().belongs_to(stored.run);
  result.number = stored.generation;
  return result;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
