// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/io/posix_folder.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>

/// The files that exchange.py reads and writes, and the Python that runs it.
namespace checkpoints {

namespace cm = chunkmem;

inline std::string as_hex(std::string_view text)
{
  std::string digits;
  for (const char it : text)
    digits += {"0123456789abcdef"[static_cast<unsigned char>(it) >> 4], "0123456789abcdef"[it & 15]};
  return digits.empty() ? "-" : digits;
}
inline std::string line_of(const cm::checkpoint::stored_tensor& it, std::string_view content)
{
  std::string extents;
  for (const std::uint64_t extent : it.extents) extents += (extents.empty() ? "" : ",") + std::to_string(extent);
  return as_hex(it.name) + ' ' + std::string{cm::checkpoint::stored_name_of(it.type)} + ' ' +
         (extents.empty() ? "-" : extents) + ' ' + as_hex(content) + '\n';
}
/// In the order of names.
inline std::string listing_of(const cm::io::posix_folder& folder, const std::string& name)
{
  cm::checkpoint::safetensors_file file{folder.open(name), name};
  std::map<std::string, std::string> lines;
  for (const cm::checkpoint::stored_tensor& it : file.tensors()) {
    std::string content(it.size(), '\0');
    file.read(0, file.payload() + it.begin, std::as_writable_bytes(std::span{content}));
    lines[it.name] = line_of(it, content);
  }
  std::string text;
  for (const auto& [key, line] : lines) text += line;
  return text;
}
inline std::string text_of(const std::string& path)
{
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// A Python with safetensors and numpy, and the script beside this file.
class python {
 public:
  python()
  {
    const char* const interpreter = std::getenv("CHUNKMEM_PYTHON");
    const std::string script = (std::filesystem::path{__FILE__}.parent_path() / "exchange.py").string();
    if (interpreter != nullptr) command_ = std::string{interpreter} + " '" + script + "' ";
  }
  [[nodiscard]] bool is_there() const { return !command_.empty() && std::system((command_ + "ask").c_str()) == 0; }
  [[nodiscard]] bool run(const std::string& words) const { return std::system((command_ + words).c_str()) == 0; }
  /// Writes two files of a listing into a folder, as `write` of exchange.py does.
  [[nodiscard]] bool write(const std::string& folder, const std::string& listing, const std::string& raw) const
  {
    std::ofstream{folder + "/listing"} << listing;
    const std::string path = '\'' + folder + '/';
    return run("write " + path + "listing' " + path + raw + "' " + path + "numpy'");
  }
  /// The contents of a file, in the order of names.
  [[nodiscard]] std::string read(const std::string& path) const
  {
    return run("list '" + path + "' '" + path + ".txt'") ? text_of(path + ".txt") : "Python did not open it";
  }

 private:
  std::string command_;
};

inline constexpr auto no_python =
    "no Python with safetensors and numpy (CHUNKMEM_PYTHON names an interpreter; pip install safetensors numpy)";

}  // namespace checkpoints
