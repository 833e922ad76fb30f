// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// The content of a generation's files, put together by hand, without any loader of the library.
namespace resharding {

namespace cm = chunkmem;

struct stored_bytes {
  cm::dtype type = cm::dtype::uint8;
  std::vector<std::uint64_t> extents;
  std::vector<std::byte> bytes;
  [[nodiscard]] bool operator==(const stored_bytes&) const = default;
};
using stored_content = std::map<std::string, stored_bytes>;

namespace detail {

struct part_of_tensor {
  std::string whole;
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};

/// "wte[4096:8192]" in three; nothing for the name of a whole tensor.
[[nodiscard]] inline std::optional<part_of_tensor> part_in(std::string_view name)
{
  const auto open = name.rfind('[');
  const auto colon = name.rfind(':');
  if (!name.ends_with(']') || open == name.npos || colon == name.npos || colon < open) return std::nullopt;
  part_of_tensor it{std::string{name.substr(0, open)}};
  std::from_chars(name.data() + open + 1, name.data() + colon, it.first);
  std::from_chars(name.data() + colon + 1, name.data() + name.size() - 1, it.end);
  return it;
}

[[nodiscard]] inline std::uint64_t elements_of(const std::vector<std::uint64_t>& extents)
{
  std::uint64_t all = 1;
  for (const std::uint64_t it : extents) all *= it;
  return all;
}

}  // namespace detail

/// @throws std::runtime_error   a tensor is there twice, in parts that do not fit, or not all of it
template <class Folder>
[[nodiscard]] stored_content content_of(const Folder& folder, const cm::checkpoint::whole_generation& found)
{
  stored_content all;
  std::map<std::string, std::uint64_t> filled;  // elements
  const auto expect = [](bool holds, const std::string& name) {
    if (!holds) throw std::runtime_error{"parts of " + name + " do not fit"};
  };
  for (std::size_t index = 0; index < found.files.size(); ++index) {
    auto file = folder.open(found.content.files[index].name);
    for (const auto& it : found.files[index].tensors) {
      std::vector<std::byte> bytes(it.end - it.begin);
      cm::io::read_all(file, found.files[index].payload + it.begin, bytes);
      const auto part = detail::part_in(it.name);
      const std::string name = part ? part->whole : it.name;
      const auto divided = std::ranges::find(found.content.divided, name, &cm::checkpoint::divided_tensor::name);
      expect(part.has_value() == (divided != found.content.divided.end()), name);
      stored_bytes& whole = all[name];
      const std::uint64_t width = cm::size_of(it.type);
      if (whole.extents.empty()) whole = {it.type, part ? divided->extents : it.extents, {}};
      whole.bytes.resize(detail::elements_of(whole.extents) * width);
      const std::uint64_t first = part ? part->first : 0;
      expect(whole.type == it.type && first * width + bytes.size() <= whole.bytes.size() &&
                 (!part || part->end - part->first == bytes.size() / width),
             name);
      std::ranges::copy(bytes, whole.bytes.begin() + static_cast<std::ptrdiff_t>(first * width));
      filled[name] += bytes.size();
    }
  }
  for (const auto& [name, it] : all) expect(filled[name] == it.bytes.size(), name);
  return all;
}
/// Of the newest one, every byte of which is proven.
template <class Folder>
[[nodiscard]] stored_content newest_content(const Folder& folder)
{
  const auto numbers = cm::checkpoint::generations_in(folder);
  if (numbers.empty()) throw std::runtime_error{"no generation"};
  return content_of(folder, cm::checkpoint::check_generation(folder, numbers[0]).generation());
}

/// The first difference in words, or nothing. States without an update read as zeros, whether they are stored or not.
[[nodiscard]] inline std::string difference(const stored_content& left, const stored_content& right)
{
  const auto is_zero = [](const std::string& name, const stored_bytes& it) {
    return name.find('/') != name.npos && !name.starts_with("state/") &&
           std::ranges::all_of(it.bytes, [](std::byte b) { return b == std::byte{}; });
  };
  for (const auto& [name, it] : left) {
    const auto other = right.find(name);
    if (other == right.end() ? !is_zero(name, it) : other->second != it)
      return (other == right.end() ? "only one has " : "differs: ") + name;
  }
  for (const auto& [name, it] : right)
    if (!left.contains(name) && !is_zero(name, it)) return "only the other has " + name;
  return {};
}

}  // namespace resharding
