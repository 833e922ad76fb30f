#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/io/whole_file.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Writes one generation so that it is there whole, or not at all.
///
/// Each file is written under another name, synced, and renamed; then the folder is synced, and last of all the manifest comes the same
/// way. Only a synced manifest makes a generation. One that does not end takes its files away, as far as it can, and the manifest first:
/// where that stays, they stay.
template <file_folder Folder>
class generation_writer {
 public:
  /// @param generation   a number that no file of the folder has: next_generation(folder)
  generation_writer(Folder& folder, std::uint64_t generation) : folder_{folder}
  {
    expects(generation > 0 && generation <= detail::last_generation, "a checkpoint has a number that no loader would find");
    content_.generation = generation;
  }
  generation_writer(const generation_writer&) = delete;
  ~generation_writer()
  {
    if (!is_whole_) take_away();
  }

  [[nodiscard]] const manifest& content() const noexcept { return content_; }
  /// All bytes of its files.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// @throws io_error   as the others: the generation will not be, older ones are untouched, and nothing more may be written
  void begin_file()
  {
    step(false, [&] { create(detail::tensors_name(content_.generation, content_.files.size())); });
  }
  void write(std::span<const std::byte> content)
  {
    step(true, [&] {
      sum_.add(content);
      open_->write(content);
      written_ += content.size();
    });
  }
  void end_file()
  {
    step(true, [&] {
      finish();
      content_.files.push_back({name_, written_, sum_.value()});
      size_ += written_;
    });
  }

  /// The generation is there from here on.
  /// @throws io_error   it will not be; where the folder does not let go of its manifest either, for good, it may be there, and is whole then
  void commit(std::vector<stored_list> lists, std::vector<std::string> empty)
  {
    step(false, [&] {
      content_.lists = std::move(lists);
      content_.empty = std::move(empty);
      folder_.sync();  // names first: a manifest must never be found without its files
      const std::string text = write_manifest(content_);
      create(detail::manifest_name(content_.generation));
      open_->write(std::as_bytes(std::span{text}));
      may_be_found_ = true;
      finish();
      folder_.sync();
    });
    is_over_ = is_whole_ = true;
  }

 private:
  [[nodiscard]] static std::string temporary(const std::string& name) { return name + std::string{detail::temporary_suffix}; }

  /// Work after which nothing is taken on, if it fails: a file that missed a write or a sync must not become part of a generation.
  template <class Work>
  void step(bool in_file, Work work)
  {
    expects(!is_over_, "a checkpoint goes on after it failed, or after its commit");
    expects(open_.has_value() == in_file, "a checkpoint begins or commits in the middle of a file, or writes outside of one");
    is_over_ = true;
    work();
    is_over_ = false;
  }
  void create(std::string name)
  {
    open_.emplace(folder_, temporary(name));
    name_ = std::move(name);  // ours from here on, and not before
    sum_ = {};
    written_ = 0;
  }
  void finish()
  {
    open_->end(name_);
    open_.reset();
  }
  void take_away() noexcept
  {
    open_.reset();
    try {
      const bool is_gone = name_.empty() || folder_.remove(name_);
      if (may_be_found_) {  // a manifest without its files would be a damaged generation, also after a power cut
        if (!is_gone) return;
        folder_.sync();
      }
      for (const stored_file& file : content_.files) (void)folder_.remove(file.name);
    } catch (...) {  // what is left belongs to no generation, or to a whole one: the next save sees to it
    }
  }

  Folder& folder_;
  manifest content_;
  std::optional<io::whole_file<Folder>> open_;
  std::string name_;
  io::checksum sum_;
  std::uint64_t written_ = 0;
  std::uint64_t size_ = 0;
  bool is_over_ = false;
  bool may_be_found_ = false;  ///< the manifest may have its name
  bool is_whole_ = false;
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
