#pragma once

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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// A generation that was found whole: every byte has its checksum.
struct whole_generation {
  struct file {
    std::string name;
    std::uint64_t payload = 0;            ///< first byte behind the header
    std::vector<stored_tensor> tensors;
    std::vector<std::uint64_t> sums;      ///< of the bytes of each tensor, taken with the file's
  };

  manifest content;
  std::vector<file> files;
};

/// A generation that is there and cannot be used.
struct skipped_generation {
  std::uint64_t number = 0;
  std::string why;
};

namespace detail {

inline constexpr std::size_t block_size = std::size_t{1} << 20;
inline constexpr std::size_t most_open = 64;  ///< files that stay open: a program has a thousand, and other uses for them

/// All of a small file. @throws format_error   it is longer than the limit
template <file_folder Folder>
[[nodiscard]] std::string read_text(const Folder& folder, const std::string& name, bytes limit)
{
  auto file = folder.open(name);
  const std::uint64_t size = file.size();
  if (size > limit.count()) throw format_error{"a file of a checkpoint is longer than the limit"};
  std::string text(static_cast<std::size_t>(size), '\0');
  io::read_all(file, 0, std::as_writable_bytes(std::span{text}));
  return text;
}

/// @param size   of the whole file   @param sum   gets the bytes read   @throws format_error, io_error
template <file_reader Reader>
[[nodiscard]] whole_generation::file read_header(Reader& from, std::string name, std::uint64_t size, const loader_limits& limits,
                                                 io::checksum* sum = nullptr)
{
  std::byte length[8];
  if (size < sizeof length) throw format_error{"a safetensors file is shorter than its first number"};
  io::read_all(from, 0, length);
  std::uint64_t header = 0;
  for (unsigned byte = 0; byte < 8; ++byte) header |= std::to_integer<std::uint64_t>(length[byte]) << (8 * byte);
  if (header > size - sizeof length || header > limits.header.count())
    throw format_error{"the header of a safetensors file is longer than the file, or than the limit"};
  std::string text(static_cast<std::size_t>(header), '\0');
  io::read_all(from, sizeof length, std::as_writable_bytes(std::span{text}));
  if (sum != nullptr) sum->add(length), sum->add(std::as_bytes(std::span{text}));
  const std::uint64_t payload = sizeof length + header;
  return {std::move(name), payload, read_table(text, size - payload, limits), {}};
}

/// Calls `use(part)` with all bytes from `begin` to `end`, block by block.
template <file_reader Reader, class Use>
void read_blocks(Reader& from, std::uint64_t begin, std::uint64_t end, std::vector<std::byte>& block, Use use)
{
  block.resize(static_cast<std::size_t>(std::max<std::uint64_t>(block.size(), std::min<std::uint64_t>(end - begin, block_size))));
  for (std::uint64_t at = begin; at < end; at += block.size()) {
    const std::span part = std::span{block}.first(static_cast<std::size_t>(std::min<std::uint64_t>(end - at, block.size())));
    io::read_all(from, at, part);
    use(part);
  }
}

[[noreturn]] inline void refuse_damaged(std::string_view name)
{
  throw corrupt_data{error_text{} << "chunkmem: " << name << " is damaged: it is not what was written (take an older generation)"};
}

/// Reads every byte of a file once: the table is made of the very bytes that have the checksum, and each tensor gets one of its own.
/// @throws corrupt_data, format_error, io_error
template <file_reader Reader>
[[nodiscard]] whole_generation::file check_file(Reader& from, const stored_file& it, const loader_limits& limits)
{
  if (from.size() != it.size) refuse_damaged(it.name);
  whole_generation::file found;
  io::checksum sum;
  std::vector<std::byte> block;
  try {
    found = read_header(from, it.name, it.size, limits, &sum);
  } catch (const format_error&) {  // damage makes bad tables: say so where it is that
    io::checksum all;
    read_blocks(from, 0, it.size, block, [&](std::span<const std::byte> part) { all.add(part); });
    if (all.value() != it.sum) refuse_damaged(it.name);
    throw;
  }
  for (const stored_tensor& tensor : found.tensors) {  // they lie one after the other, and end with the file
    io::checksum own;
    read_blocks(from, found.payload + tensor.begin, found.payload + tensor.end, block, [&](std::span<const std::byte> part) {
      sum.add(part);
      own.add(part);
    });
    found.sums.push_back(own.value());
  }
  if (sum.value() != it.sum) refuse_damaged(it.name);
  return found;
}

}  // namespace detail

/// Reads every byte of a generation and checks it.
/// @param open   gets its first files, still open: what has their names later need not be them
/// @throws corrupt_data, format_error   a file is not what was written; io_error   it cannot be read
template <file_folder Folder>
[[nodiscard]] whole_generation check_generation(const Folder& folder, std::uint64_t number, const loader_limits& limits = {},
                                                std::vector<typename Folder::reader>* open = nullptr)
{
  whole_generation found;
  if (open != nullptr) open->clear();
  found.content = read_manifest(detail::read_text(folder, detail::manifest_name(number), limits.manifest), limits);
  if (found.content.generation != number) throw corrupt_data{"a manifest of a checkpoint is that of another generation"};
  for (std::size_t at = 0; at < found.content.files.size(); ++at) {
    const stored_file& it = found.content.files[at];
    if (it.name != detail::tensors_name(number, at)) throw format_error{"a manifest of a checkpoint names a file that is not its own"};
    auto file = folder.open(it.name);
    found.files.push_back(detail::check_file(file, it, limits));
    if (open != nullptr && at < detail::most_open) open->push_back(std::move(file));
  }
  return found;
}

/// Reads every byte of a generation: it could be loaded.
template <file_folder Folder>
[[nodiscard]] bool is_whole(const Folder& folder, std::uint64_t number)
{
  try {
    (void)check_generation(folder, number);
    return true;
  } catch (const corrupt_data&) {
  } catch (const format_error&) {
  } catch (const io_error&) {
  }
  return false;
}

/// The newest generation of a folder that is whole. @param skipped   gets those that are newer and cannot be used
/// @param open   as for check_generation
/// @return   none where there is none @throws io_error   the folder cannot be listed
template <file_folder Folder>
[[nodiscard]] std::optional<whole_generation> newest_whole(const Folder& folder, std::vector<skipped_generation>& skipped,
                                                           const loader_limits& limits = {},
                                                           std::vector<typename Folder::reader>* open = nullptr)
{
  for (const std::uint64_t number : generations_in(folder)) {
    try {
      return check_generation(folder, number, limits, open);
    } catch (const corrupt_data& failed) {
      skipped.push_back({number, failed.what()});
    } catch (const format_error& failed) {
      skipped.push_back({number, failed.what()});
    } catch (const io_error& failed) {
      skipped.push_back({number, failed.what()});
    }
  }
  return {};
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
