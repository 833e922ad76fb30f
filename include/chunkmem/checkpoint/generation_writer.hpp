// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_part.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/io/whole_file.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Makes a generation of files that have their names for good. Its manifest is written last of all. Only a synced
/// manifest makes a generation.
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

  /// Writes the manifest: the generation is there from here on. Call this once. @throws io_error   the generation will
  /// not be there, if `withdraw` says so
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
  /// Removes the manifest after a failure. @return   true: the manifest is not there, and never will be. Its files may
  /// go. false: the files have to stay, since a manifest without its files would be a damaged generation, also after a
  /// power cut
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
    io::whole_file<Folder> file{folder_, name_ + std::string{detail::temporary_suffix}};
    file.write(std::as_bytes(std::span{text}));
    may_be_found_ = true;
    file.end(name_);
    folder_.sync();
  }

  Folder& folder_;
  std::string name_;
  bool may_be_found_ = false;
};

/// Writes one generation so that it is there whole, or not at all.
///
/// It writes the files, syncs the folder, then writes the manifest. A writer that does not end removes its files, as
/// far as it can, and the manifest first. Where the manifest stays, the files stay.
///
/// Use:
///
///     generation_writer writer{folder, next_generation(folder)};
///     writer.begin_file(header_bytes);
///     writer.write(content);                 // as often as needed
///     writer.end_file();
///     writer.commit(std::move(manifest));    // now the generation is there
template <file_folder Folder>
class generation_writer {
 public:
  /// @param generation   a number that no file of the folder has: next_generation(folder)
  generation_writer(Folder& folder, std::uint64_t generation) : part_{folder, generation}, manifest_{folder} {}

  [[nodiscard]] std::uint64_t generation() const noexcept { return part_.generation(); }
  [[nodiscard]] std::uint64_t files() const noexcept { return part_.files().size(); }
  /// The bytes of all files.
  [[nodiscard]] std::uint64_t size() const noexcept { return part_.size(); }

  /// @throws io_error   as for the other calls: the generation will not be there, older ones are untouched, and nothing
  ///   more may be written
  void begin_file(std::uint64_t header) { part_.begin_file(header); }
  void write(std::span<const std::byte> content) { part_.write(content); }
  void end_file() { part_.end_file(); }
  /// All files have their names for good.
  void finish() { part_.finish(), is_finished_ = true; }
  /// Those that are written.
  [[nodiscard]] generation_part<Folder>& part() noexcept { return part_; }

  /// Writes the manifest: the generation is there from here on. @param content   its number and files are set here
  /// @throws io_error   the generation will not be there. If the folder cannot remove the manifest for good either, it
  /// may be there, and is whole then
  void commit(manifest content)
  {
    if (!std::exchange(is_finished_, false)) part_.finish();  // once: another commit is refused there
    content.generation = part_.generation();
    content.files = part_.files();
    try {
      manifest_.write(content);
    } catch (...) {
      if (!manifest_.withdraw()) part_.keep();
      throw;
    }
    part_.keep();
  }
  /// The generation goes again, behind its commit, because it did not come everywhere. Where the folder cannot remove
  /// its manifest for good, it stays whole.
  void withdraw() noexcept
  {
    if (manifest_.withdraw()) part_.keep(false);
  }

 private:
  generation_part<Folder> part_;
  manifest_writer<Folder> manifest_;
  bool is_finished_ = false;
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
