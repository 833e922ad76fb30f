// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Everything that a save writes, except the bytes of tensors. The plan is made before anything is written, so that a
/// save that could not be loaded never begins.
///
///     const std::vector<model_item> items = content_of(m);
///     const save_plan plan = plan_of(items, 4_GiB, rest_of(m));
///     model_writer{m, plan}.write(to);
struct save_plan {
  /// A tensor of a file, or a part of one.
  struct entry {
    const model_item* item;
    const item_piece* piece;

    [[nodiscard]] std::uint64_t size() const { return piece->elements * size_of(item->type); }
  };

  std::vector<std::vector<entry>> files;
  std::vector<std::string> tables;  ///< the header of each file
  manifest rest;                    ///< without generation and files
};

namespace detail {

/// The pieces of each file, and their places. @param file_size   a file ends with the piece that reaches it
[[nodiscard]] inline std::vector<std::vector<save_plan::entry>> split(const std::vector<model_item>& items,
                                                                      bytes file_size)
{
  std::vector<std::vector<save_plan::entry>> files;
  std::uint64_t now = file_size.count();
  for (const model_item& item : items) {
    if (!item.is_filled || !item.is_written) continue;
    for (const item_piece& piece : item.pieces) {
      if (now >= file_size.count()) {
        files.emplace_back();
        now = 0;
      }
      files.back().push_back({&item, &piece});
      now += files.back().back().size();
    }
  }
  return files;
}

[[nodiscard]] inline std::vector<stored_tensor> table_of(const std::vector<save_plan::entry>& entries)
{
  std::vector<stored_tensor> table;
  std::uint64_t end = 0;
  for (const save_plan::entry& it : entries) {
    const item_piece& piece = *it.piece;
    stored_tensor& made = table.emplace_back();
    made.name = piece.is_whole() ? piece.name : part_name(piece.name, piece.first, piece.first + piece.elements);
    made.type = it.item->type;
    made.extents = piece.is_whole() ? piece.extents : std::vector{piece.elements};
    made.begin = end;
    made.end = end += it.size();
  }
  return table;
}

/// @throws config_error   the manifest would exceed the limits of a loader
inline void refuse_unreadable_manifest(const save_plan& plan, std::uint32_t ranks)
{
  manifest longest = plan.rest;
  longest.generation = UINT64_MAX;
  longest.stage = {UINT32_MAX - 1, UINT32_MAX, UINT64_MAX};
  for (std::size_t all = 0; all < plan.files.size() * ranks; ++all) {
    const std::size_t index = all % plan.files.size();
    std::uint64_t size = plan.tables[index].size();
    for (const save_plan::entry& it : plan.files[index]) size += it.size();
    const std::uint64_t header = plan.tables[index].size();
    longest.files.push_back({tensors_name(UINT64_MAX, index), size, header,
                             std::vector<std::uint64_t>(static_cast<std::size_t>(blocks_in(size, header)))});
  }
  try {
    (void)read_manifest(write_manifest(longest));
  } catch (const format_error& refused) {
    throw config_error{error_text{} << "chunkmem: no loader would take the manifest of " << plan.files.size()
                                    << " files, " << plan.rest.lists.size() << " lists and " << plan.rest.empty.size()
                                    << " empty tensors: " << refused.what()
                                    << " (give shorter names, larger files where there are many, or save fewer bytes: "
                                       "a manifest has 21 B for each 4 MiB)"};
  }
}

}  // namespace detail

/// The manager's part of the manifest: its lists.
template <class Manager>
[[nodiscard]] manifest rest_of(const Manager& m)
{
  manifest rest;
  m.for_each_list([&](list_id, const list_spec& spec) {
    rest.lists.push_back({std::string{spec.name}, spec.version});
  });
  return rest;
}

/// @param items   outlive the plan @param rest   of the manifest @param ranks   number of ranks that write as much
/// @throws config_error   the files would exceed the limits of a loader
[[nodiscard]] inline save_plan plan_of(const std::vector<model_item>& items, bytes file_size, manifest rest,
                                       std::uint32_t ranks = 1)
{
  save_plan plan{detail::split(items, file_size), {}, std::move(rest)};
  for (const auto& file : plan.files) plan.tables.push_back(write_table(detail::table_of(file)));
  detail::refuse_unreadable_manifest(plan, ranks);
  return plan;
}

/// Writes the items of a manager to a writer of generations, as many bytes at a time as are requested.
///
///     model_writer writer{m, plan};
///     while (!writer.is_done()) writer.write(to, 1 << 20);  // other work may come between
template <class Manager>
class model_writer {
 public:
  /// @param plan   outlives this, as its items do
  model_writer(Manager& m, const save_plan& plan) : m_{m}, plan_{plan} {}

  [[nodiscard]] bool is_done() const noexcept { return file_ == plan_.files.size(); }
  /// Writes about `most` bytes more, at least one piece, to `to`: `begin_file(header)`, `write(content)`, `end_file()`.
  /// Where `to` has `with_bytes(m, item, use)`, that call pins instead. Where its `comes_later(m, item)` says that the
  /// bytes of an item are not there yet, `promise(offset, size)` follows for them, in bytes of the item.
  /// @throws as pins and the writer; then nothing more may be written
  template <class Writer>
  void write(Writer& to, std::uint64_t most = UINT64_MAX)
  {
    std::uint64_t left = most;
    while (!is_done() && left > 0) {
      if (!is_begun_)
        begin_file(to, left);
      else if (entry_ < plan_.files[file_].size())
        write_item(to, left);
      else
        end_file(to);
    }
  }

 private:
  template <class Writer>
  void begin_file(Writer& to, std::uint64_t& left)
  {
    const std::string& table = plan_.tables[file_];
    to.begin_file(table.size());
    to.write(std::as_bytes(std::span{table}));
    is_begun_ = true;
    left -= std::min<std::uint64_t>(left, table.size());
  }
  template <class Writer>
  void end_file(Writer& to)
  {
    to.end_file();
    is_begun_ = false;
    entry_ = 0;
    ++file_;
  }
  /// Pieces of one item, under one pin.
  template <class Writer>
  void write_item(Writer& to, std::uint64_t& left)
  {
    const model_item& item = *plan_.files[file_][entry_].item;
    if constexpr (requires { to.comes_later(m_, item); })
      if (to.comes_later(m_, item))
        return for_each_part(item, left, [&](std::size_t begin, std::size_t size) { to.promise(begin, size); });
    const auto write_pieces = [&](std::span<const std::byte> content) {
      for_each_part(item, left, [&](std::size_t begin, std::size_t size) { to.write(content.subspan(begin, size)); });
    };
    if constexpr (requires { to.with_bytes(m_, item, write_pieces); })
      to.with_bytes(m_, item, write_pieces);
    else
      detail::with_bytes(m_, item, access::read, write_pieces);
  }
  /// Calls `use(begin, size)`, in bytes of the item, for its next bytes.
  template <class Use>
  void for_each_part(const model_item& item, std::uint64_t& left, Use use)
  {
    const std::vector<save_plan::entry>& entries = plan_.files[file_];
    while (entry_ < entries.size() && entries[entry_].item == &item && left > 0) {
      const save_plan::entry& it = entries[entry_];
      const auto all = static_cast<std::size_t>(it.size());
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(left, all - offset_));
      use(static_cast<std::size_t>(it.piece->begin * size_of(item.type)) + offset_, size);
      left -= size;
      offset_ += size;
      if (offset_ < all) return;
      offset_ = 0;
      ++entry_;
    }
  }

  Manager& m_;
  const save_plan& plan_;
  std::size_t file_ = 0;
  std::size_t entry_ = 0;   // of the file
  std::size_t offset_ = 0;  // of the entry [bytes]
  bool is_begun_ = false;
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
