// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/block_sums.hpp>
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// A generation whose manifest and headers were read: the content of each file.
///
///     const whole_generation found = read_generation(folder, 12);
///     for (const auto& file : found.files) std::cout << file.tensors.size() << " tensors\n";
struct whole_generation {
  struct file {
    std::vector<stored_tensor> tensors;
    std::uint64_t payload = 0;  ///< first byte after the header
  };

  manifest content;
  std::vector<file> files;
};

namespace detail {

/// files that stay open: a program may have a thousand, and needs some for other uses
inline constexpr std::size_t most_open = 64;

/// Reads all of a small file. @throws format_error   it is longer than the limit; io_error   it cannot be read, or is
/// foreign
template <file_folder Folder>
[[nodiscard]] std::string read_text(const Folder& folder, const std::string& name, bytes limit)
{
  auto file = io::open_own(folder, name);
  const std::uint64_t size = file.size();
  if (size > limit.count()) throw format_error{"a file of a checkpoint is longer than the limit"};
  std::string text(static_cast<std::size_t>(size), '\0');
  io::read_all(file, 0, std::as_writable_bytes(std::span{text}));
  return text;
}

/// The first number of a safetensors file: bytes of the text that follows it.
[[nodiscard]] inline std::uint64_t header_text_size(std::span<const std::byte> begin) noexcept
{
  std::uint64_t size = 0;
  for (unsigned byte = 0; byte < 8; ++byte) size |= std::to_integer<std::uint64_t>(begin[byte]) << (8 * byte);
  return size;
}

[[noreturn]] inline void refuse_damaged(std::string_view name)
{
  throw corrupt_data{error_text{} << "chunkmem: " << name
                                  << " is damaged: it is not what was written (take an older generation)"};
}

/// Reads a block of a file to its place and proves it there. @pre   `to` has the size of the block
/// @throws corrupt_data   the bytes differ from the bytes that were written; io_error
template <file_reader Reader>
void read_block(Reader& from, const stored_file& stored, std::uint64_t block, std::span<std::byte> to)
{
  std::uint64_t at = block_at(block, stored.size, stored.header).begin;
  io::checksum sum;
  while (!to.empty()) {
    const std::span part = to.first(std::min(sum_step, to.size()));
    io::read_all(from, at, part, stored.name);
    sum.add(part);
    at += part.size();
    to = to.subspan(part.size());
  }
  if (sum.value() != stored.sums[static_cast<std::size_t>(block)]) refuse_damaged(stored.name);
}
/// The same for any room. @param room   grows to the largest block @return   the bytes of the block, in `room`
template <file_reader Reader>
[[nodiscard]] std::span<const std::byte> read_block(Reader& from, const stored_file& stored, std::uint64_t block,
                                                    std::vector<std::byte>& room)
{
  const auto size = static_cast<std::size_t>(block_at(block, stored.size, stored.header).size());
  if (room.size() < size) room.resize(size);
  const std::span bytes = std::span{room}.first(size);
  read_block(from, stored, block, bytes);
  return bytes;
}

/// @throws corrupt_data, format_error, io_error
template <file_reader Reader>
[[nodiscard]] whole_generation::file read_tensors(Reader& from, const stored_file& stored, const loader_limits& limits)
{
  constexpr std::size_t number = 8;
  if (stored.header < number || stored.header > stored.size || stored.header > limits.header.count() ||
      stored.sums.size() != blocks_in(stored.size, stored.header))
    throw format_error{
        "a manifest of a checkpoint names a file that cannot be: other numbers than a file has, or a header longer "
        "than the limit"};
  if (from.size() != stored.size) refuse_damaged(stored.name);
  std::vector<std::byte> room;
  const std::span<const std::byte> header = read_block(from, stored, 0, room);
  if (header_text_size(header) != stored.header - number)
    throw format_error{"the header of a safetensors file has another length than its manifest says"};
  const std::string_view text{reinterpret_cast<const char*>(header.data()) + number, header.size() - number};
  return {read_table(text, stored.size - stored.header, limits), stored.header};
}

}  // namespace detail

/// Reads the manifest of a generation and the headers of its files. @param open   gets its first files, still open:
/// later, other files may have their names
/// @throws corrupt_data, format_error   a file differs from the file that was written; io_error   it cannot be read, or
///   is foreign
template <file_folder Folder>
[[nodiscard]] whole_generation read_generation(const Folder& folder, std::uint64_t number,
                                               const loader_limits& limits = {},
                                               std::vector<typename Folder::reader>* open = nullptr)
{
  whole_generation found;
  if (open != nullptr) open->clear();
  found.content = read_manifest(detail::read_text(folder, detail::manifest_name(number), limits.manifest), limits);
  if (found.content.generation != number)
    throw corrupt_data{"a manifest of a checkpoint is that of another generation"};
  for (std::size_t index = 0; index < found.content.files.size(); ++index) {
    const stored_file& stored = found.content.files[index];
    if (stored.name != detail::tensors_name(number, index))
      throw format_error{"a manifest of a checkpoint names a file that is not its own"};
    auto file = io::open_own(folder, stored.name);
    found.files.push_back(detail::read_tensors(file, stored, limits));
    if (open != nullptr && index < detail::most_open) open->push_back(std::move(file));
  }
  return found;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
