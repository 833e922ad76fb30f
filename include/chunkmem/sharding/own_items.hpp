// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/sharding/rank_content.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// What files call a rank's own bytes of a buffer or a state, where ranks have different ones.
[[nodiscard]] inline std::string own_name(std::string_view name, std::uint32_t rank, std::uint32_t ranks)
{
  return std::string{name} + "[rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ']';
}

namespace detail {

/// What tells the bytes of an item from others: 0 where it has none.
template <class Manager>
[[nodiscard]] std::uint64_t word_of(Manager& m, const checkpoint::model_item& item)
{
  if (!item.is_filled) return 0;
  std::uint64_t word = 0;
  checkpoint::detail::with_bytes(m, item, access::read,
                                 [&](std::span<const std::byte> content) { word = io::checksum_of(content); });
  return word | 1U;
}

}  // namespace detail

/// Before a save: of what each rank has its own, rank 0 writes it if all have the same, else each its own under its own
/// name.
/// @return   names of those without bytes, the same on every rank @throws on every rank what reading them throws;
///   comm_error
template <class Model>
[[nodiscard]] std::vector<std::string> share_own_items(Model& model, rank_content<Model>& content)
{
  auto& ranks = model.ranks();
  const std::uint32_t world = ranks.ranks();
  const std::uint32_t rank = index_of(ranks.rank());
  std::vector<std::uint64_t> mine;
  std::vector<checkpoint::model_item*> own;
  collective::all_or_none(ranks, [&] {
    for (std::size_t index = 0; index < content.items().size(); ++index) {
      if (!content.is_own(index)) continue;
      own.push_back(&content.items()[index]);
      mine.push_back(detail::word_of(model.shares(), *own.back()));
    }
  });
  std::vector<std::uint64_t> all(mine.size() * world);
  ranks.exchange(mine, all);
  std::vector<std::string> empty;
  for (std::size_t index = 0; index < own.size(); ++index) {
    const auto word = [&](std::uint32_t of) { return all[of * mine.size() + index]; };
    bool is_common = true;
    for (std::uint32_t of = 1; of < world; ++of) is_common = is_common && word(of) == word(0);
    const std::string name = own[index]->name;
    const bool is_left_out = is_common && own[index]->may_be_absent() && own[index]->is_zero();
    own[index]->is_written = !is_left_out && (!is_common || rank == 0);
    if (!is_common) own[index]->pieces.front().name = own_name(name, rank, world);
    if (is_common && word(0) == 0) empty.push_back(name);
    for (std::uint32_t of = 0; !is_common && of < world; ++of)
      if (word(of) == 0) empty.push_back(own_name(name, of, world));
  }
  return empty;
}

/// Before a load: finds what each rank has its own of, under its own name or that of all.
/// @throws config_error   each rank saved its own, and there were more or fewer of them
template <class Model>
void find_own_items(Model& model, rank_content<Model>& content, const checkpoint::stored_index& index,
                    const checkpoint::manifest& stored)
{
  const std::uint32_t world = model.ranks().ranks();
  for (std::size_t position = 0; position < content.items().size(); ++position) {
    checkpoint::model_item& item = content.items()[position];
    if (!content.is_own(position)) continue;
    checkpoint::refuse_other_ranks(item.name, world, index);
    const std::string name = own_name(item.name, index_of(model.ranks().rank()), world);
    if (index.find(name) != nullptr || std::ranges::find(stored.empty, name) != stored.empty.end())
      item.pieces.front().name = name;
  }
}

}  // namespace sharding

}  // namespace chunkmem::inline v0
