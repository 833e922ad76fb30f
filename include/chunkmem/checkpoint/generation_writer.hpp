// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/stored_files.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/own_process.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// Adds advice to an error for lack of room, where more than one older generation could be removed. @throws io_error
template <file_folder Folder>
void advise_on_room(const Folder& folder, const io_error& failed)
{
  if (failed.fault().number != ENOSPC && failed.fault().number != EDQUOT) return;
  std::size_t older = 0;
  try {
    older = generations_in(folder).size();
  } catch (const io_error&) {
    return;
  }
  if (older < 2) return;
  throw io_error{
      error_text{} << failed.what() << "; " << older
                   << " older generations stay until this one is complete (all but one are removed before with the "
                      "option keep_while_writing = 1)",
      failed.fault()};
}

}  // namespace detail

/// Writes the files of one generation without the manifest: all files, or the files of one rank.
///
///     generation_part part{folder, number};
///     part.begin_file(header.size());
///     part.write(header), part.write(content);
///     part.end_file();
///     part.finish();
///
/// Each file is written under a temporary name, synced, and renamed. Unless `keep` is called, all files are removed
/// again, as far as possible.
template <file_folder Folder>
class generation_part {
 public:
  /// @param generation   a number that no file of the folder has   @param first_file   number of the first file
  generation_part(Folder& folder, std::uint64_t generation, std::uint64_t first_file = 0)
      : folder_{folder}, generation_{generation}, first_{first_file}
  {
    expects(generation > 0 && generation <= detail::last_generation,
            "a checkpoint has a number that no loader would find");
  }
  generation_part(const generation_part&) = delete;
  ~generation_part()
  {
    if (!is_kept_ && made_in_.is_here()) take_away();  // a forked child leaves them to its parent
  }

  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  [[nodiscard]] const std::vector<stored_file>& files() const noexcept { return files_; }

  /// @param header   bytes before the tensors
  /// @throws io_error   as for the other calls: nothing more may be written, and the files must not become a generation
  void begin_file(std::uint64_t header)
  {
    step(false, [&] {
      std::string name = detail::tensors_name(generation_, first_ + files_.size());
      open_.emplace(folder_, name + std::string{detail::temporary_suffix});
      now_ = {std::move(name), 0, header, {}};
      sums_ = block_sums{header};
    });
  }
  void write(std::span<const std::byte> content)
  {
    step(true, [&] {
      for (; !content.empty(); content = content.subspan(std::min(detail::sum_step, content.size()))) {
        const std::span part = content.first(std::min(detail::sum_step, content.size()));
        sums_.add(part);
        open_->write(part);
        now_.size += part.size();
      }
    });
  }
  /// Syncs the bytes so far, so that no single sync takes long.
  void sync()
  {
    if (open_) step(true, [&] { open_->sync(); });
  }
  void end_file()
  {
    step(true, [&] {
      open_->end(now_.name);
      open_.reset();
      now_.sums = sums_.take();
      files_.push_back(std::exchange(now_, {}));
    });
  }
  /// Syncs the folder, so that the files' names are durable. Nothing may be written afterwards.
  void finish()
  {
    step(false, [&] { folder_.sync(); });
    is_over_ = true;
  }
  /// Keeps the files, also where they do not become a generation. `keep(false)` undoes this.
  void keep(bool keeps = true) noexcept { is_kept_ = keeps; }

 private:
  /// Runs work. After a failure all further work is refused: a file that missed a write or a sync must not become part
  /// of a generation.
  template <class Work>
  void step(bool in_file, Work work)
  {
    expects(!is_over_, "a checkpoint goes on after it failed, or after its end");
    expects(open_.has_value() == in_file,
            "a checkpoint begins or ends in the middle of a file, or writes outside of one");
    is_over_ = true;
    try {
      work();
    } catch (const io_error& failed) {
      detail::advise_on_room(folder_, failed);
      throw;
    }
    is_over_ = false;
  }
  void take_away() noexcept
  {
    open_.reset();
    if (!now_.name.empty()) (void)folder_.remove(now_.name);  // end_file may have failed after the rename
    for (const stored_file& file : files_) (void)folder_.remove(file.name);
  }

  Folder& folder_;
  std::uint64_t generation_;
  std::uint64_t first_;
  std::vector<stored_file> files_;
  stored_file now_;
  std::optional<io::atomic_file<Folder>> open_;
  block_sums sums_;
  bool is_over_ = false;
  bool is_kept_ = false;
  own_process made_in_;
};

/// Makes a generation of files whose names are durable, by writing its manifest last. Only a synced manifest makes a
/// generation.
///
///     manifest_writer writer{folder};
///     try { writer.write(content); } catch (...) {
///       if (writer.withdraw()) remove_files();
///       throw;
///     }
template <file_folder Folder>
class manifest_writer {
 public:
  explicit manifest_writer(Folder& folder) : folder_{folder} {}

  /// Writes the manifest: the generation exists from here on. Call this once. @throws io_error   the generation does
  /// not exist, if `withdraw` says so
  void write(const manifest& content)
  {
    name_ = detail::manifest_name(content.generation);
    try {
      put(write_manifest(content));
    } catch (const io_error& failed) {
      if (!may_be_found_) detail::advise_on_room(folder_, failed);
      throw;
    }
  }
  /// Removes the manifest after a failure. @return   true: the manifest is removed durably, and its files may be
  /// removed. false: the files have to stay, since a manifest without its files would be a damaged generation, also
  /// after a power cut
  [[nodiscard]] bool withdraw() noexcept
  {
    if (!may_be_found_) return true;
    try {
      if (!folder_.remove(name_)) return false;
      folder_.sync();
      return true;
    } catch (...) {
      return false;
    }
  }

 private:
  void put(const std::string& text)
  {
    io::atomic_file<Folder> file{folder_, name_ + std::string{detail::temporary_suffix}};
    file.write(std::as_bytes(std::span{text}));
    may_be_found_ = true;
    file.end(name_);
    folder_.sync();
  }

  Folder& folder_;
  std::string name_;
  bool may_be_found_ = false;
};

/// Writes one generation atomically: it exists whole, or not at all. Each of several ranks writes its files.
///
/// It writes the files, syncs the folder, then writes the manifest. A writer without a commit removes its files as far
/// as possible, the manifest first. Where the manifest stays, the files stay.
///
/// Use:
///
///     generation_writer writer{folder, next_generation(folder)};
///     writer.begin_file(header_bytes);
///     writer.write(content);                 // as often as needed
///     writer.end_file();
///     writer.part().finish();
///     writer.commit(ranks, manifest);        // now the generation exists
template <file_folder Folder>
class generation_writer {
 public:
  /// @param generation   a number that no file of the folder has: next_generation(folder)   @param first_file   number
  /// of the first file of this rank
  generation_writer(Folder& folder, std::uint64_t generation, std::uint64_t first_file = 0)
      : folder_{folder}, part_{folder, generation, first_file}, manifest_{folder}
  {
  }

  [[nodiscard]] std::uint64_t generation() const noexcept { return part_.generation(); }
  /// The files of this rank.
  [[nodiscard]] generation_part<Folder>& part() noexcept { return part_; }

  /// @throws io_error   as for the other calls: the generation will not exist, older ones are untouched, and nothing
  ///   more may be written
  void begin_file(std::uint64_t header) { part_.begin_file(header); }
  void write(std::span<const std::byte> content) { part_.write(content); }
  void end_file() { part_.end_file(); }

  /// Makes the generation: rank 0 writes the manifest of all files. All ranks make the call.
  /// @param content   its number and files are set here   @pre   each has finished its part
  /// @throws io_error   on every rank: the generation does not exist; or exists whole, if the folder cannot remove the
  ///   manifest durably either   @throws comm_error   the generation exists whole, or not at all
  template <exchanges_words Communicator>
  void commit(Communicator& ranks, manifest& content)
  {
    constexpr bool alone = collective::is_alone<Communicator>;
    // Rank 0 writes the manifest after this exchange. A rank that fails in the exchange may not learn of it, so every
    // rank keeps its files from before on.
    if (!alone) part_.keep();
    content.generation = part_.generation();
    content.files = files_of_all(ranks, part_.files(), part_.generation());
    part_.keep();
    enum : std::uint64_t { done, withdrawn, unknown };
    std::uint64_t outcome = done;
    std::exception_ptr failed;
    if (index_of(ranks.rank()) == 0) {
      try {
        if (!alone) expect_files_of_all(content);
        manifest_.write(content);
      } catch (...) {
        failed = std::current_exception();
        outcome = manifest_.withdraw() ? withdrawn : unknown;
      }
    }
    if (collective::word_of_first(ranks, outcome) == withdrawn) part_.keep(false);
    collective::all_or_none(ranks, [&] {
      if (failed != nullptr) std::rethrow_exception(failed);
    });
  }
  /// Removes the generation after its commit, because other folders did not get theirs. Every rank makes the call.
  /// The generation stays whole where the folder cannot remove its manifest durably, and where a rank is gone.
  template <exchanges_words Communicator>
  void withdraw(Communicator& ranks) noexcept
  {
    try {
      const bool is_gone = index_of(ranks.rank()) == 0 && manifest_.withdraw();
      if (collective::word_of_first(ranks, is_gone ? 1 : 0) != 0) part_.keep(false);
    } catch (...) {
    }
  }

 private:
  /// @throws corrupt_data   rank 0 does not see the files of another rank: the ranks have different folders
  void expect_files_of_all(const manifest& content) const
  {
    for (const stored_file& stored : content.files)
      if (auto file = std::as_const(folder_).open(stored.name); file.size() != stored.size)
        detail::refuse_damaged(stored.name);
  }

  Folder& folder_;
  generation_part<Folder> part_;
  manifest_writer<Folder> manifest_;
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
