// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_part.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
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

/// Makes a generation of files that have their names for good: its manifest is written last of all, and only a synced
/// one makes a generation.
template <file_folder Folder>
class manifest_writer {
 public:
  explicit manifest_writer(Folder& folder) : folder_{folder} {}

  /// The generation is there from here on. To be called once.
  /// @throws io_error   it will not be, if `withdraw` says so
  void write(const manifest& content)
  {
    const std::string text = write_manifest(content);
    name_ = detail::manifest_name(content.generation);
    io::whole_file<Folder> file{folder_, name_ + std::string{detail::temporary_suffix}};
    file.write(std::as_bytes(std::span{text}));
    may_be_found_ = true;
    file.end(name_);
    folder_.sync();
  }
  /// After a failure. @return   the manifest is not there, and never will be: its files may go. Else they have to stay:
  /// a manifest without its files would be a damaged generation, also after a power cut
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
  Folder& folder_;
  std::string name_;
  bool may_be_found_ = false;
};

/// Writes one generation so that it is there whole, or not at all.
///
/// Files first, then the folder is synced, then the manifest. One that does not end takes its files away, as far as it
/// can, and the manifest first: where that stays, they stay.
template <file_folder Folder>
class generation_writer {
 public:
  /// @param generation   a number that no file of the folder has: next_generation(folder)
  generation_writer(Folder& folder, std::uint64_t generation) : part_{folder, generation}, manifest_{folder} {}

  [[nodiscard]] std::uint64_t generation() const noexcept { return part_.generation(); }
  [[nodiscard]] std::uint64_t files() const noexcept { return part_.files().size(); }
  /// All bytes of its files.
  [[nodiscard]] std::uint64_t size() const noexcept { return part_.size(); }

  /// @throws io_error   as the others: the generation will not be, older ones are untouched, and nothing more may be
  ///   written
  void begin_file(std::uint64_t header) { part_.begin_file(header); }
  void write(std::span<const std::byte> content) { part_.write(content); }
  void end_file() { part_.end_file(); }

  /// The generation is there from here on.
  /// @param content   its number and files are those of this
  /// @throws io_error   it will not be; where the folder does not let go of its manifest either, for good, it may be
  ///   there, and is whole then
  void commit(manifest content)
  {
    part_.finish();
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

 private:
  generation_part<Folder> part_;
  manifest_writer<Folder> manifest_;
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
