#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/io/file_folder.hpp>

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
/// way. Only a synced manifest makes a generation. One that does not end takes its files away, as far as it can.
template <file_folder Folder>
class generation_writer {
 public:
  /// @param generation   a number that no file of the folder has: next_generation(folder)
  generation_writer(Folder& folder, std::uint64_t generation) : folder_{folder} { content_.generation = generation; }
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
      io::write_all(*open_, content);
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
  /// @throws io_error   it will not be; where the folder does not let go of its manifest either, it may be there, and is whole then
  void commit(std::vector<stored_list> lists, std::vector<std::string> empty)
  {
    step(false, [&] {
      content_.lists = std::move(lists);
      content_.empty = std::move(empty);
      folder_.sync();  // names first: a manifest must never be found without its files
      const std::string text = write_manifest(content_);
      create(detail::manifest_name(content_.generation));
      io::write_all(*open_, std::as_bytes(std::span{text}));
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
    open_.emplace(folder_.create(temporary(name)));
    name_ = std::move(name);  // ours from here on, and not before
    sum_ = {};
    written_ = 0;
  }
  void finish()
  {
    open_->sync();
    open_->close();
    open_.reset();
    folder_.rename(temporary(name_), name_);
  }
  void take_away() noexcept
  {
    open_.reset();
    try {
      if (!name_.empty()) (void)folder_.remove(name_), (void)folder_.remove(temporary(name_));  // the manifest, if it came so far
      for (const stored_file& file : content_.files) (void)folder_.remove(file.name);
    } catch (...) {  // no memory for a name: the next save removes what is left
    }
  }

  Folder& folder_;
  manifest content_;
  std::optional<typename Folder::writer> open_;
  std::string name_;
  io::checksum sum_;
  std::uint64_t written_ = 0;
  std::uint64_t size_ = 0;
  bool is_over_ = false;
  bool is_whole_ = false;
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
