// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace gpt {

/// The bytes of training. The last tenth is held out for evaluation and is never trained on.
class training_text {
 public:
  training_text(std::string name, std::string content);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::size_t size() const noexcept { return content_.size(); }
  /// FNV-1a of the bytes, 64 bits.
  [[nodiscard]] std::uint64_t hash() const noexcept;
  [[nodiscard]] std::span<const unsigned char> training() const noexcept;
  [[nodiscard]] std::span<const unsigned char> held_out() const noexcept;

  /// @throws problem   the last tenth has no window of `context` bytes and the byte after it
  void expects_windows_of(std::size_t context) const;

 private:
  std::string name_;
  std::string content_;
};

/// The text of a file, or of all regular files of a folder in the order of their names, each real file once.
/// @throws problem   absent, unreadable or empty
[[nodiscard]] training_text read_text(const std::filesystem::path& where);

/// English text that every Debian machine has (/usr/share/common-licenses), or else this repository's documentation.
/// @throws problem   neither exists
[[nodiscard]] training_text default_text();

}  // namespace gpt
