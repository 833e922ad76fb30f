// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/own_process.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
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

/// Files that stay open at most: a process may have a thousand, and needs some for other uses.
inline constexpr std::size_t most_open = 64;

/// Reads all of a small file. @throws format_error   the file is longer than the limit; io_error   it cannot be read,
/// or is foreign
template <file_folder Folder>
[[nodiscard]] std::string read_text(const Folder& folder, const std::string& name, bytes limit)
{
  auto file = io::open_own(folder, name);
  const std::uint64_t size = file.size();
  if (size > limit.count())
    throw format_error{error_text{} << "chunkmem: the file " << name << " of a checkpoint is longer than the limit"};
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

/// Reads a block of a file to its place and verifies it there. @pre   `to` has the size of the block
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
/// The same into a growing buffer. @param room   grows to the largest block @return   the bytes of the block, in `room`
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
        error_text{} << "chunkmem: a manifest of a checkpoint names an impossible file, " << stored.name
                     << ": its sizes and checksums do not match, or its header is longer than the limit"};
  if (from.size() != stored.size) refuse_damaged(stored.name);
  std::vector<std::byte> room;
  const std::span<const std::byte> header = read_block(from, stored, 0, room);
  if (header_text_size(header) != stored.header - number)
    throw format_error{error_text{} << "chunkmem: the header of the safetensors file " << stored.name
                                    << " has another length than its manifest says"};
  const std::string_view text{reinterpret_cast<const char*>(header.data()) + number, header.size() - number};
  return {read_table(text, stored.size - stored.header, limits, stored.name), stored.header};
}

}  // namespace detail

/// Reads the manifest of a generation and the headers of its files. @param open   gets its first files, still open:
/// later, other files may have their names
/// @throws corrupt_data, format_error   a file differs from the file that was written; io_error   a file cannot be
///   read, or is foreign
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
      throw format_error{error_text{} << "chunkmem: a manifest of a checkpoint names a file that is not its own, "
                                      << stored.name};
    auto file = io::open_own(folder, stored.name);
    found.files.push_back(detail::read_tensors(file, stored, limits));
    if (open != nullptr && index < detail::most_open) open->push_back(std::move(file));
  }
  return found;
}

/// Reads bytes of a generation. The checksum of its block verifies each byte. Memory: `most_held` blocks, for reads of
/// a part of a block.
///
///     generation_reader generation{folder, number};
///     generation.read(0, generation.generation().files[0].payload, to);
///
/// @throws of all calls that read: corrupt_data   a file differs from the file that was written; io_error   a file
///   cannot be read
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

  /// The number of blocks after the headers. They are not verified yet.
  [[nodiscard]] std::uint64_t blocks() const noexcept
  {
    std::uint64_t all = 0;
    for (const stored_file& stored : is_.content.files) all += stored.sums.size() - 1;
    return all;
  }
  /// Verifies some blocks: `count` blocks from `begin` on, each `stride` after the one before, up to the last block.
  /// Calls in rising order open each file once.
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
  /// Reads bytes of a file from `begin` on, and verifies them. Whole blocks go straight to their place, several at once
  /// where the workers have threads and the folder lets them. After an error some of `to` is not verified.
  /// @pre   the bytes are in the file, after its header
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
  /// Copies bytes of one block, from `skipped` on. @return   number of bytes
  std::size_t copy_part(std::uint32_t file, std::uint64_t which, std::uint64_t skipped, std::span<std::byte> to)
  {
    const std::span<const std::byte> found = block(file, which).subspan(static_cast<std::size_t>(skipped));
    const std::size_t size = std::min(found.size(), to.size());
    std::memcpy(to.data(), found.data(), size);
    return size;
  }
  /// The last few blocks stay cached. A caller that reads some files in turn, each in order, reads each block once.
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
    it.which = 0;  // a header, which is never requested: the slot is empty until all of the block is read
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

/// Reads whole blocks of a generation by several threads.
///
///     parallel_reader from{generation, workers};
///     read_elements(from, value, 0, elements, to, type);
/// @tparam Generation   a generation_reader, or a type with its members
template <class Generation, executor Executor>
class parallel_reader {
 public:
  /// Both arguments outlive this.
  parallel_reader(Generation& from, Executor& workers) noexcept : from_{from}, workers_{workers} {}

  void read(std::uint32_t file, std::uint64_t begin, std::span<std::byte> to) { from_.read(file, begin, to, workers_); }

 private:
  Generation& from_;
  Executor& workers_;
};

/// A generation that exists but cannot be used.
///
///     for (const skipped_generation& it : found.skipped) std::cerr << it.number << ": " << it.why << '\n';
struct skipped_generation {
  std::uint64_t number = 0;
  std::string why;
};

/// Reads every byte of a generation and verifies it. @throws as generation_reader
template <file_folder Folder>
[[nodiscard]] generation_reader<Folder> check_generation(const Folder& folder, std::uint64_t number,
                                                         const loader_limits& limits = {})
{
  generation_reader<Folder> found{folder, number, limits};
  found.check(0, UINT64_MAX);
  return found;
}

/// Reads every byte of a generation. @return   whether it could be loaded
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

/// Whether the process lacks files or memory: such an error says nothing about a generation.
[[nodiscard]] inline bool is_shortage(const io_error& failed) noexcept
{
  const int number = failed.fault().number;
  return number == EMFILE || number == ENFILE || number == ENOMEM;
}

}  // namespace detail

/// Tries the generations of a folder, newest first. @param attempt   `attempt(number)` throws corrupt_data,
/// format_error or io_error where that one is not whole @param skipped   gets newer generations that cannot be used
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
/// @return   nothing where no generation is whole @throws io_error   the folder cannot be listed
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

namespace detail {

/// Removes generations that are older than the newest `keep` whole ones. @param newest   the one just written
/// @param is_whole   is called for older ones @return   the failure, in a sentence: it does not undo a save
template <file_folder Folder, class IsWhole>
[[nodiscard]] error_text remove_superseded(Folder& folder, std::uint64_t newest, std::uint32_t keep, IsWhole is_whole)
{
  error_text failure;
  try {
    remove_older(folder, keep, [&](std::uint64_t generation) { return generation == newest || is_whole(generation); });
  } catch (const std::exception& failed) {
    failure << failed.what();
  }
  return failure;
}

/// A thread that works after a save has returned. It reads the older generations that are kept, each at most once. Then
/// it removes the generations before those. A manager has one object of this class for all its saves.
///
///     older_check& older = older_check_of(m);
///     error_text failure = older.finish();     // of the save before
///     older.start(folder, newest, 2);
///
/// No lock is held meanwhile: others may save into the folder. A forked child leaves the thread to its parent, and has
/// an object of its own.
class older_check {
 public:
  older_check() = default;
  older_check(const older_check&) = delete;
  ~older_check() { wait(); }

  /// False in a forked child, where no other call is allowed.
  [[nodiscard]] bool is_owner() const noexcept { return all_.is_owner(); }
  /// Waits until the thread is done.
  void wait() noexcept
  {
    if (is_owner() && all_->thread.joinable()) all_->thread.join();
  }
  /// The same. @return   why older generations may still exist, in a sentence, once; else empty
  [[nodiscard]] error_text finish() noexcept
  {
    wait();
    return std::exchange(all_->failure, {});
  }

  /// Starts the thread. Where no thread can be started, the work is done here. @param newest   the one just written
  /// @pre   finish()
  template <shareable_folder Folder>
  void start(const Folder& folder, std::uint64_t newest, std::uint32_t keep)
  {
    state& it = *all_;
    try {
      it.remember(folder.identity(), newest);
      auto own = std::make_shared<Folder>(folder.again());
      const auto work = [&it, own, newest, keep]() noexcept {
        it.failure = remove_superseded(*own, newest, keep,
                                       [&](std::uint64_t generation) { return it.is_known_whole(*own, generation); });
      };
      try {
        it.thread = std::thread{work};
      } catch (const std::system_error&) {
        work();
      }
    } catch (const std::exception& failed) {
      it.failure << failed.what();
    }
  }

 private:
  struct state {
    std::array<std::uint64_t, 2> folder{};
    std::vector<std::uint64_t> whole;  // generations that were read
    error_text failure;
    std::thread thread;

    /// Forgets generations of another folder, or with a number that is used again.
    void remember(const std::array<std::uint64_t, 2>& next, std::uint64_t newest)
    {
      if (next != folder) whole.clear();
      folder = next;
      std::erase_if(whole, [&](std::uint64_t generation) { return generation >= newest; });
    }
    template <file_folder Folder>
    [[nodiscard]] bool is_known_whole(const Folder& from, std::uint64_t generation)
    {
      if (std::ranges::find(whole, generation) != whole.end()) return true;
      if (!is_whole(from, generation)) return false;
      whole.push_back(generation);
      return true;
    }
  };

  process_owned<state> all_;
};

/// The older_check of a manager.
template <class Manager>
[[nodiscard]] older_check& older_check_of(Manager& m)
{
  auto& kept = m.content().kept_by_saver();
  older_check* const known = kept.template get<older_check>();
  return known != nullptr && known->is_owner() ? *known : kept.template emplace<older_check>();
}

}  // namespace detail

/// Waits until the last save has read and removed older generations (`save_options::check_older`). The next save, a
/// load, and the end of the manager wait for this too.
///
///     checkpoint::save(m, folder);
///     const error_text failure = checkpoint::finish_save(m);
///     std::cerr << failure.view();
///
/// @return   why older generations may still exist, in a sentence; else empty. The next save removes them
template <class Manager>
error_text finish_save(Manager& m)
{
  return detail::older_check_of(m).finish();
}

/// Draws a random number for a new training. @throws io_error   the system gives no random numbers
[[nodiscard]] inline std::uint64_t draw_run()
{
  try {
    std::random_device source;
    const std::uint64_t high = source();
    return (high << 32 | source()) | 1U;  // 0 is none
  } catch (const std::exception& failed) {
    throw io_error{
        error_text{} << "chunkmem: the system gives no random numbers, by which a first save tells trainings apart: "
                     << failed.what()};
  }
}

/// The manifest of a generation. @param look   `look(text)` is called first @return   nothing where it cannot be read
template <file_folder Folder, class Look>
[[nodiscard]] std::optional<manifest> readable_manifest(const Folder& folder, std::uint64_t generation, Look look)
{
  try {
    const std::string text = detail::read_text(folder, detail::manifest_name(generation), loader_limits{}.manifest);
    look(std::string_view{text});
    return read_manifest(text);
  } catch (const corrupt_data&) {
  } catch (const format_error&) {
  } catch (const io_error&) {
  }
  return {};
}

namespace detail {

/// Refuses a generation of another version of this library. @throws config_error
inline void expect_own_version(std::uint64_t generation, std::string_view text)
{
  const std::string_view other = other_version(text);
  if (other.empty()) return;
  throw config_error{
      error_text{}
      << "chunkmem: generation " << generation << " of this folder has format " << other
      << " of another version of chunkmem, and this one has 2 and 3 (name another folder, or use that version)"};
}

/// The training of a generation. @param look   `look(text)` gets the manifest first @return   nothing where it cannot
/// be read
template <file_folder Folder, class Look>
[[nodiscard]] std::optional<std::uint64_t> run_of(const Folder& folder, std::uint64_t generation, Look look)
{
  const std::optional<manifest> found = readable_manifest(folder, generation, look);
  return found ? std::optional{found->run} : std::nullopt;
}

}  // namespace detail

/// Refuses a folder of another training: new saves would remove its generations as older ones. A foreign generation
/// does not count. @param run   the training that saves; 0: it was neither saved nor loaded yet @throws
/// config_error   the folder has generations of another training, or of another version
template <file_folder Folder>
void expect_own_folder(const Folder& folder, std::uint64_t run)
{
  for (const std::uint64_t generation : generations_in(folder)) {
    const std::optional<std::uint64_t> other = detail::run_of(
        folder, generation, [&](std::string_view text) { detail::expect_own_version(generation, text); });
    if (!other || *other == run) continue;
    throw config_error{error_text{} << "chunkmem: this folder has checkpoints of another training: "
                                    << detail::manifest_name(generation) << " is of run " << *other << ", this is run "
                                    << run << " (name another folder, or load from this one before you save into it)"};
  }
}

/// Checks that all readable generations of a folder are of one training. A foreign generation does not count. @throws
/// config_error   there are two trainings
template <file_folder Folder>
void expect_one_run(const Folder& folder, std::uint64_t number, std::uint64_t run)
{
  for (const std::uint64_t generation : generations_in(folder)) {
    const std::optional<std::uint64_t> other = detail::run_of(folder, generation, [](std::string_view) {});
    if (!other || *other == run) continue;
    throw config_error{error_text{} << "chunkmem: this folder has checkpoints of two trainings: "
                                    << detail::manifest_name(number) << " is of run " << run << ", "
                                    << detail::manifest_name(generation) << " of run " << *other
                                    << " (move those of one of them elsewhere)"};
  }
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
