// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/io/checksum.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The name in files of a rank's own bytes of a buffer or a state, where ranks have different ones.
[[nodiscard]] inline std::string own_name(std::string_view name, std::uint32_t rank, std::uint32_t ranks)
{
  return std::string{name} + "[rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ']';
}

/// States and buffers with different bytes on each rank load only on equally many ranks. Each rank has its own, called
/// "name[rank 1 of 4]". @param is_left_out   `is_left_out(name)`: whether a name of the file counts as absent
/// @throws config_error   another number of ranks saved the name
template <class IsLeftOut>
void refuse_other_ranks(std::string_view name, std::uint32_t ranks, const stored_index& from, IsLeftOut is_left_out)
{
  const std::string begin = std::string{name} + "[rank ";
  const auto own = from.all().lower_bound(begin);
  if (own == from.all().end() || !own->first.starts_with(begin) || is_left_out(own->first) ||
      own->first.ends_with(" of " + std::to_string(ranks) + ']'))
    return;
  throw config_error{
      error_text{} << "chunkmem: each rank saved its own bytes of " << name << ", as " << own->first
                   << ", and this job has " << ranks
                   << " ranks (start as many ranks, or make these bytes equal on all ranks before the save)"};
}

namespace detail {

/// A hash of the bytes of an item: 0 where it has none.
template <class Manager>
[[nodiscard]] std::uint64_t word_of(Manager& m, const model_item& item)
{
  if (!item.is_filled) return 0;
  std::uint64_t word = 0;
  with_bytes(m, item, access::read, [&](std::span<const std::byte> content) { word = io::checksum_of(content); });
  return word | 1U;
}

}  // namespace detail

/// Before a save: decides which rank writes the items that are not divided over ranks. Where all ranks have the same
/// bytes, rank 0 writes the item. Else each rank writes its own, under its own name. A single rank reads nothing here.
/// @return   names of items without bytes, the same on every rank @throws on every rank the errors of reading items;
///   comm_error
template <class Content>
[[nodiscard]] std::vector<std::string> share_own_items(Content& content)
{
  auto& ranks = content.ranks();
  const std::uint32_t world = ranks.ranks();
  const std::uint32_t rank = index_of(ranks.rank());
  std::vector<std::uint64_t> mine, all;
  if (world > 1) {
    collective::all_or_none(ranks, [&] {
      for (std::size_t index = 0; index < content.items().size(); ++index)
        if (content.is_own(index)) mine.push_back(detail::word_of(content.manager(), content.items()[index]));
    });
    all.resize(mine.size() * world);
    ranks.exchange(mine, all);
  }
  std::vector<std::string> empty;
  for (std::size_t index = 0, place = 0; index < content.items().size(); ++index) {
    if (!content.is_own(index)) continue;
    model_item& item = content.items()[index];
    const auto word = [&](std::uint32_t of) {
      return world == 1 ? std::uint64_t{item.is_filled} : all[of * mine.size() + place];
    };
    bool is_common = true;
    for (std::uint32_t of = 1; of < world; ++of) is_common = is_common && word(of) == word(0);
    const bool is_left_out = is_common && item.may_be_absent() && item.is_zero();
    item.is_written = !is_left_out && (!is_common || rank == 0);
    if (!is_common) item.pieces.front().name = own_name(item.name, rank, world);
    if (is_common && word(0) == 0) empty.push_back(item.name);
    for (std::uint32_t of = 0; !is_common && of < world; ++of)
      if (word(of) == 0) empty.push_back(own_name(item.name, of, world));
    ++place;
  }
  return empty;
}

/// Before a load: finds the items that are not divided over ranks, under the rank's own name or the shared one.
/// @param is_left_out   as refuse_other_ranks
/// @throws config_error   each rank saved its own, and the number of ranks was another one
template <class Content, class IsLeftOut>
void find_own_items(Content& content, const stored_index& index, const manifest& stored, IsLeftOut is_left_out)
{
  const std::uint32_t world = content.ranks().ranks();
  for (std::size_t position = 0; position < content.items().size(); ++position) {
    if (!content.is_own(position)) continue;
    model_item& item = content.items()[position];
    refuse_other_ranks(item.name, world, index, is_left_out);
    if (world == 1) continue;
    const std::string name = own_name(item.name, index_of(content.ranks().rank()), world);
    if (is_left_out(name)) continue;
    if (index.find(name) != nullptr || std::ranges::find(stored.empty, name) != stored.empty.end())
      item.pieces.front().name = name;
  }
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
