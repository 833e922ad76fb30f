// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/block_sums.hpp>
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/checkpoint/whole_generation.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Reads bytes of a generation. The checksum of its block proves each byte. Memory: `most_held` blocks, for bytes whose
/// block goes on before or behind them.
///
///     generation_reader generation{folder, number};
///     generation.read(0, generation.generation().files[0].payload, to);
///
/// @throws of all calls that read: corrupt_data   a file differs from the file that was written; io_error   it cannot
///   be read
template <file_folder Folder>
class generation_reader {
 public:
  using reader_type = typename Folder::reader;

  /// @param folder   outlives this @throws as read_generation
  generation_reader(const Folder& folder, std::uint64_t number, const loader_limits& limits = {})
      : folder_{&folder}, is_{read_generation(folder, number, limits, &open_)}
  {
  }

  [[nodiscard]] const whole_generation& generation() const noexcept { return is_; }
  [[nodiscard]] const manifest& content() const noexcept { return is_.content; }

  /// The number of blocks after the headers, in the order of files. They are still to be proven.
  [[nodiscard]] std::uint64_t blocks() const noexcept
  {
    std::uint64_t all = 0;
    for (const stored_file& stored : is_.content.files) all += stored.sums.size() - 1;
    return all;
  }
  /// Proves some blocks: `count` blocks from `begin` on, each `stride` after the one before, as far as there are.
  /// Called in rising order, it opens each file once.
  void check(std::uint64_t begin, std::uint64_t count, std::uint64_t stride = 1)
  {
    std::uint64_t first = 0;  // block of the file
    std::uint32_t file = 0;
    for (std::uint64_t index = begin; count-- > 0; index += stride) {
      for (; file < is_.files.size() && index - first >= is_.content.files[file].sums.size() - 1; ++file)
        first += is_.content.files[file].sums.size() - 1;
      if (file == is_.files.size()) return;
      (void)block(file, 1 + (index - first));
    }
  }
  /// Reads bytes of a file from `begin` on, and proves them. Whole blocks go straight to their place, several at once
  /// where the workers have threads and the folder lets them. After an error some of `to` is not proven.
  /// @pre   they are in the file, after its header
  template <executor Executor = const serial>
  void read(std::uint32_t file, std::uint64_t begin, std::span<std::byte> to, Executor& workers = on_this_thread)
  {
    const stored_file& stored = is_.content.files[file];
    while (!to.empty()) {
      const std::uint64_t which = block_of(begin, stored.header);
      const block_range where = block_at(which, stored.size, stored.header);
      const std::size_t size = begin == where.begin && to.size() >= where.size()
                                   ? read_whole(file, which, to, workers)
                                   : copy_part(file, which, begin - where.begin, to);
      to = to.subspan(size);
      begin += size;
    }
  }

 private:
  /// Reads blocks from `first` on, as many as `to` has room for. @return   their bytes
  template <class Executor>
  std::size_t read_whole(std::uint32_t file, std::uint64_t first, std::span<std::byte> to, Executor& workers)
  {
    const stored_file& stored = is_.content.files[file];
    const auto where = [&](std::uint64_t block) { return block_at(block, stored.size, stored.header); };
    const std::uint64_t begin = where(first).begin;
    std::uint64_t last = first;
    while (last + 1 < stored.sums.size() && where(last + 1).end - begin <= to.size()) ++last;
    reader_type& from = reader_of(file);
    std::mutex mutex;
    std::exception_ptr failed;
    const auto read_one = [&](unsigned part) noexcept {
      try {
        const block_range it = where(first + part);
        detail::read_block(from, stored, first + part,
                           to.subspan(static_cast<std::size_t>(it.begin - begin), static_cast<std::size_t>(it.size())));
      } catch (...) {
        const std::lock_guard guard{mutex};
        if (failed == nullptr) failed = std::current_exception();
      }
    };
    const auto blocks = static_cast<unsigned>(last - first + 1);
    if constexpr (shared_reader<reader_type>)
      workers.run(blocks, read_one);
    else
      on_this_thread.run(blocks, read_one);
    if (failed != nullptr) std::rethrow_exception(failed);
    return static_cast<std::size_t>(where(last).end - begin);
  }
  /// Copies bytes of one block, from `skipped` on. @return   how many
  std::size_t copy_part(std::uint32_t file, std::uint64_t which, std::uint64_t skipped, std::span<std::byte> to)
  {
    const std::span<const std::byte> found = block(file, which).subspan(static_cast<std::size_t>(skipped));
    const std::size_t size = std::min(found.size(), to.size());
    std::memcpy(to.data(), found.data(), size);
    return size;
  }
  /// The last few blocks stay. A caller that reads some files in turn, each in order, reads each block once.
  std::span<const std::byte> block(std::uint32_t file, std::uint64_t which)
  {
    const auto known =
        std::ranges::find_if(held_, [&](const held_block& it) { return it.file == file && it.which == which; });
    if (known != held_.end()) {
      known->used = ++uses_;
      return known->bytes;
    }
    if (held_.size() < most_held) held_.emplace_back();
    held_block& it = *std::ranges::min_element(held_, {}, &held_block::used);
    it.which = 0;  // a header, which nobody asks for: the slot is empty until all of the block is read
    it.bytes = detail::read_block(reader_of(file), is_.content.files[file], which, it.room);
    it.file = file;
    it.which = which;
    it.used = ++uses_;
    return it.bytes;
  }
  reader_type& reader_of(std::uint32_t file)
  {
    if (file < open_.size()) return open_[file];
    if (!other_ || other_->first != file) {
      other_.reset();
      other_.emplace(file, io::open_own(*folder_, is_.content.files[file].name));
    }
    return other_->second;
  }

  static constexpr std::size_t most_held = 8;
  struct held_block {
    std::uint32_t file = 0;
    std::uint64_t which = 0;
    std::span<const std::byte> bytes;
    std::uint64_t used = 0;
    std::vector<std::byte> room;
  };

  const Folder* folder_;
  std::vector<reader_type> open_;  // the first files, since their headers were read
  whole_generation is_;
  std::optional<std::pair<std::uint32_t, reader_type>> other_;
  std::vector<held_block> held_;
  std::uint64_t uses_ = 0;
};

/// A generation whose whole blocks are read by several threads.
///
///     parallel_reader from{generation, workers};
///     read_elements(from, value, 0, elements, to, type);
template <file_folder Folder, executor Executor>
class parallel_reader {
 public:
  /// Both outlive this.
  parallel_reader(generation_reader<Folder>& from, Executor& workers) noexcept : from_{from}, workers_{workers} {}

  void read(std::uint32_t file, std::uint64_t begin, std::span<std::byte> to) { from_.read(file, begin, to, workers_); }

 private:
  generation_reader<Folder>& from_;
  Executor& workers_;
};

/// A generation that is there and cannot be used.
///
///     for (const skipped_generation& it : found.skipped) std::cerr << it.number << ": " << it.why << '\n';
struct skipped_generation {
  std::uint64_t number = 0;
  std::string why;
};

/// Reads every byte of a generation and proves it. @throws as generation_reader
template <file_folder Folder>
[[nodiscard]] generation_reader<Folder> check_generation(const Folder& folder, std::uint64_t number,
                                                         const loader_limits& limits = {})
{
  generation_reader<Folder> found{folder, number, limits};
  found.check(0, UINT64_MAX);
  return found;
}

/// Reads every byte of a generation. @return   it could be loaded
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

namespace detail {

/// The process lacks files or memory: that says nothing of a generation.
[[nodiscard]] inline bool is_shortage(const io_error& failed) noexcept
{
  const int number = failed.fault().number;
  return number == EMFILE || number == ENFILE || number == ENOMEM;
}

}  // namespace detail

/// Tries the generations of a folder, newest first. @param attempt   `attempt(number)` throws corrupt_data,
/// format_error or io_error where it is not whole @param skipped   gets newer generations that cannot be used
/// @return   false where none can be used @throws io_error   the process lacks files or memory; and the other errors of
///   `attempt`
template <class Attempt>
bool try_newest(const std::vector<std::uint64_t>& generations, std::vector<skipped_generation>& skipped,
                Attempt attempt)
{
  for (const std::uint64_t number : generations) {
    try {
      attempt(number);
      return true;
    } catch (const corrupt_data& failed) {
      skipped.push_back({number, failed.what()});
    } catch (const format_error& failed) {
      skipped.push_back({number, failed.what()});
    } catch (const io_error& failed) {
      if (detail::is_shortage(failed)) throw;
      skipped.push_back({number, failed.what()});
    }
  }
  return false;
}

/// The newest generation of a folder that is whole. @param skipped   gets newer generations that cannot be used,
/// foreign ones too
/// @return   none where there is none @throws io_error   the folder cannot be listed
template <file_folder Folder>
[[nodiscard]] std::optional<generation_reader<Folder>> newest_whole(const Folder& folder,
                                                                    std::vector<skipped_generation>& skipped,
                                                                    const loader_limits& limits = {})
{
  std::optional<generation_reader<Folder>> found;
  (void)try_newest(all_generations_in(folder), skipped,
                   [&](std::uint64_t number) { found.emplace(check_generation(folder, number, limits)); });
  return found;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
