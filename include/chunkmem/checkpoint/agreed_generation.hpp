// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Ranks look into one folder together: open_generation, check_generation, is_whole. Every rank calls these.

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

inline constexpr std::uint64_t blocks_of_round = 64;  ///< that a rank reads before it reports to the others

/// A hash of a generation. @pre   a rank has read its manifest
[[nodiscard]] inline std::uint64_t word_of(const manifest& content)
{
  const std::string text = write_manifest(content);
  return io::checksum_of(std::as_bytes(std::span{text}));
}

}  // namespace detail

/// Numbers of the generations that rank 0 sees, newest first. Every rank has to call this, as the other functions here.
/// @param with_foreign   see all_generations_in
/// @throws io_error   on every rank: rank 0 cannot list its folder; comm_error
template <exchanges_words Communicator, file_folder Folder>
[[nodiscard]] std::vector<std::uint64_t> generations_of_first(Communicator& ranks, const Folder& folder,
                                                              bool with_foreign = false)
{
  std::vector<std::uint64_t> found;
  collective::all_or_none(ranks, [&] {
    if (index_of(ranks.rank()) == 0) found = with_foreign ? all_generations_in(folder) : generations_in(folder);
  });
  if constexpr (collective::is_alone<Communicator>) {
    return found;
  } else {
    found.resize(static_cast<std::size_t>(collective::words_of_all(ranks, found.size())[0]));
    std::vector<std::uint64_t> all(found.size() * ranks.ranks());
    ranks.exchange(found, all);
    all.resize(found.size());
    return all;
  }
}

/// Opens a generation on every rank, and reads its manifest and the headers of its files.
/// @throws on every rank: corrupt_data, format_error, io_error   files are not whole; config_error   ranks see
///   different files; comm_error
template <exchanges_words Communicator, file_folder Folder>
[[nodiscard]] generation_reader<Folder> open_generation(Communicator& ranks, const Folder& folder, std::uint64_t number,
                                                        const loader_limits& limits = {})
{
  if constexpr (collective::is_alone<Communicator>) {
    return {folder, number, limits};
  } else {
    std::optional<generation_reader<Folder>> found;
    collective::all_or_none(ranks, [&] { found.emplace(folder, number, limits); });
    const std::uint64_t own = detail::word_of(found->content());
    const std::uint64_t first = collective::word_of_first(ranks, own);
    collective::all_or_none(ranks, [&] {
      if (own != first)
        throw config_error{error_text{} << "chunkmem: generation " << number
                                        << " is another one than rank 0 sees (name one folder that all ranks see)"};
    });
    return std::move(*found);
  }
}

/// The same, and verifies it: each rank reads its part of all blocks, in rounds, so that no rank waits for long.
template <exchanges_words Communicator, file_folder Folder>
void check_generation(Communicator& ranks, const Folder& folder, std::uint64_t number)
{
  auto found = open_generation(ranks, folder, number);
  std::uint64_t next = index_of(ranks.rank());
  while (!collective::agreed(ranks, [&] {
    found.check(next, detail::blocks_of_round, ranks.ranks());
    next += detail::blocks_of_round * ranks.ranks();
    return next >= found.blocks();
  })) {
  }
}

/// This rank's part of `check_generation`, alone. @param progress   `progress(bytes)`: this many more bytes were read
/// @return   0 where something is not whole, else a hash that is equal on ranks that see the same generation
template <file_folder Folder, class Progress>
[[nodiscard]] std::uint64_t check_own_part(const Folder& folder, std::uint64_t number, std::uint64_t rank,
                                           std::uint32_t ranks, Progress progress)
{
  std::uint64_t word = 0;
  std::vector<skipped_generation> ignored;
  const auto check = [&](std::uint64_t it) {
    generation_reader<Folder> found{folder, it};
    for (std::uint64_t next = rank; next < found.blocks(); next += detail::blocks_of_round * ranks) {
      found.check(next, detail::blocks_of_round, ranks);
      progress(detail::blocks_of_round * sum_block);
    }
    word = detail::word_of(found.content()) | 1U;
  };
  try {
    (void)try_newest({number}, ignored, check);
  } catch (const io_error&) {  // this process lacks files: not verified
  }
  return word;
}

/// Whether the generation could be loaded. @throws config_error   ranks see different files; io_error   a process lacks
/// files or memory; comm_error
template <exchanges_words Communicator, file_folder Folder>
[[nodiscard]] bool is_whole(Communicator& ranks, const Folder& folder, std::uint64_t number)
{
  std::vector<skipped_generation> ignored;
  return try_newest({number}, ignored, [&](std::uint64_t it) { check_generation(ranks, folder, it); });
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
