// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/checkpoint/whole_generation.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// An open safetensors file of any program: its table of tensors, and its bytes. It has no checksums: damage of tensors
/// is not seen.
///
///     safetensors_file file{folder.open("model.safetensors"), "model.safetensors"};
///     for (const stored_tensor& it : file.tensors()) std::puts(it.name.c_str());
template <file_reader Reader>
class safetensors_file {
 public:
  /// @param name   for messages @throws format_error   it is no such file, or one with more than a loader takes;
  ///   io_error
  safetensors_file(Reader file, std::string name, const loader_limits& limits = {})
      : file_{std::move(file)}, name_{std::move(name)}
  {
    constexpr std::uint64_t number = 8;
    const std::uint64_t size = file_.size();
    std::byte length[number];
    if (size < number) throw format_error{"a safetensors file is shorter than its first number"};
    io::read_all(file_, 0, length, name_);
    const std::uint64_t header = detail::header_text_size(length);
    if (header > size - number || header > limits.header.count())
      throw format_error{"the header of a safetensors file is longer than the file, or than the limit"};
    std::string text(static_cast<std::size_t>(header), '\0');
    io::read_all(file_, number, std::as_writable_bytes(std::span{text}), name_);
    payload_ = number + header;
    tensors_ = read_table(text, size - payload_, limits);
  }

  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept { return tensors_; }
  /// The first byte after the header.
  [[nodiscard]] std::uint64_t payload() const noexcept { return payload_; }
  /// Bytes from `begin` on. @throws io_error   also where they are not there any more
  void read(std::uint32_t, std::uint64_t begin, std::span<std::byte> to) { io::read_all(file_, begin, to, name_); }

 private:
  Reader file_;
  std::string name_;
  std::uint64_t payload_ = 0;
  std::vector<stored_tensor> tensors_;
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
