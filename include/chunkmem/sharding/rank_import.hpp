// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/sharding/rank_content.hpp>
#include <chunkmem/sharding/rank_load.hpp>
#include <chunkmem/sharding/same_file.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

namespace detail {

/// Compares a file of weights with a model. @return   what it does
template <class Model>
[[nodiscard]] checkpoint::imported_values match_import(const rank_content<Model>& content,
                                                       const checkpoint::stored_index& index,
                                                       const checkpoint::import_options& options)
{
  return checkpoint::match_values(
      [&](auto visit) {
        content.for_each_shared([&](const std::string& name, const auto& extents, std::size_t position) {
          if (const checkpoint::model_item& item = content.items()[position]; !item.starts_at_zero)
            visit(name, extents, true, item.type);
        });
        for (std::size_t position = 0; position < content.items().size(); ++position)
          if (const checkpoint::model_item& item = content.items()[position];
              content.is_own(position) && !item.is_state())
            visit(item.name, item.extents, false, item.type);
      },
      index, options);
}

/// Which items come from the file, and which begin anew. @throws config_error   a part of a unit would stay as it is
template <class Model>
[[nodiscard]] std::vector<std::size_t> items_to_import(rank_content<Model>& content,
                                                       const checkpoint::stored_index& index)
{
  std::vector<std::uint64_t> found(content.items().size());
  std::vector<std::uint64_t> missing(content.items().size());
  content.for_each_shared([&](const std::string& name, const auto&, std::size_t position) {
    if (content.items()[position].starts_at_zero) return;
    ++(index.find(name) != nullptr ? found : missing)[position];
    if (found[position] != 0 && missing[position] != 0)
      throw config_error{
          error_text{} << "chunkmem: over ranks a file has all weights that lie in one unit, or none, and " << name
                       << " makes the difference (import into one manager, save, and load that over ranks)"};
  });
  std::vector<std::size_t> wanted;
  for (std::size_t position = 0; position < content.items().size(); ++position) {
    checkpoint::model_item& item = content.items()[position];
    if (found[position] != 0) item.is_filled = true;  // also a share that is nothing but padding
    if (found[position] != 0 || checkpoint::detail::is_imported(item, index)) wanted.push_back(position);
  }
  return wanted;
}

}  // namespace detail

}  // namespace sharding

namespace checkpoint {

/// As import_values for a manager: each rank reads what it owns. Every rank has to call it, and all have to see the
/// file.
/// @throws as that, on every rank what the first that failed threw; config_error   also: a part of a unit would stay as
///   it is; ranks see files with other values, and nothing was changed; comm_error
/// @complexity   each rank reads what it owns, and before that all that the model takes, to compare it
template <class Backend, class Ranks, class... Policies, file_folder Folder>
imported_values import_values(sharded_model<Backend, Ranks, Policies...>& model, const Folder& folder,
                              std::string_view file_name, const import_options& options = {})
{
  auto& ranks = model.ranks();
  std::optional<sharding::rank_content<sharded_model<Backend, Ranks, Policies...>>> content;
  model.finish_updates();  // of weights that the file does not have, before anybody asks which lists are filled
  collective::all_or_none(ranks, [&] { content.emplace(model); });
  content->agree_on_names();
  model.agree_on_model();
  collective::agree_on(ranks, options.takes_part ? 1 : 0,
                       "some ranks take a part of a file, and others all of it (give all of them the same takes_part)");
  collective::agree_on(ranks, options.allow_overflow ? 1 : 0,
                       "some ranks let numbers become infinite, and others do not (give all of them the same "
                       "allow_overflow)");
  std::optional<safetensors_file<typename Folder::reader>> file;
  std::optional<stored_index> index;
  imported_values result;
  std::vector<std::size_t> items;
  collective::all_or_none(ranks, [&] {
    file.emplace(folder.open(file_name), std::string{file_name}, options.limits);
    index.emplace(file->tensors(), file->payload());
    result = sharding::detail::match_import(*content, *index, options);
    items = sharding::detail::items_to_import(*content, *index);
    detail::begin_states_anew(content->items());
  });
  sharding::expect_same_values(ranks, *index, *file, result.ignored);
  narrowing found{options.allow_overflow}, again{true};
  sharding::detail::check_narrowing_over_ranks(model, *content, items, *index, *file, true, found);
  result.rounded = sharding::detail::sum_over_ranks(ranks, found.total());
  collective::all_or_none(ranks, [&] { model.drop_gradients(); });
  collective::all_or_none(ranks, [&] { model.shares().content().begin_load(); });
  sharding::detail::fill_over_ranks(model, *content, items, *index, *file, again);
  collective::all_or_none(ranks, [&] { model.gather_weights(); });
  std::uint32_t tensor = 0;
  model.for_each_tensor([&](const std::string& name, const shape&, dtype, role) {
    if (index->find(name) != nullptr) model.forget_values(tensor);
    ++tensor;
  });
  model.shares().content().end_load();
  return result;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
