// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <support/oracles/dice.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace support {

/// A generation of a few small files. Every byte follows from one number, which is in the generation, so that a mixture
/// of two generations is detected.
class stored_generation {
 public:
  struct one_file {
    std::vector<chunkmem::checkpoint::stored_tensor> tensors;
    std::vector<std::string> content;  ///< of each tensor
  };

  explicit stored_generation(std::uint32_t seed, std::size_t files = 2, std::uint64_t elements = 6) : seed_{seed}
  {
    dice chance{seed};
    for (std::size_t index = 0; index < files; ++index) {
      one_file& it = files_.emplace_back();
      std::uint64_t end = 0;
      for (const std::uint64_t rows : {elements, elements / 2}) {
        const std::uint64_t size = rows * 4;
        it.tensors.push_back({"layer " + std::to_string(index) + '/' + std::to_string(rows),
                              chunkmem::dtype::float32,
                              {rows},
                              end,
                              end + size});
        end += size;
        std::string& bytes = it.content.emplace_back();
        while (bytes.size() < size) bytes += static_cast<char>(chance.below(256));
      }
    }
  }

  [[nodiscard]] std::uint32_t seed() const { return seed_; }
  [[nodiscard]] std::vector<chunkmem::checkpoint::stored_list> lists() const { return {{"adam momentum", seed_}}; }
  [[nodiscard]] std::vector<std::string> empty() const { return {"empty " + std::to_string(seed_)}; }

  /// Of the manifest.
  [[nodiscard]] chunkmem::checkpoint::manifest rest() const { return {0, {}, lists(), empty(), {}, 0}; }

  template <class Folder>
  void write_files(chunkmem::checkpoint::generation_writer<Folder>& to) const
  {
    for (const one_file& it : files_) {
      const std::string table = chunkmem::checkpoint::write_table(it.tensors);
      to.begin_file(table.size());
      to.write(bytes_of(table));
      for (const std::string& content : it.content) to.write(bytes_of(content));
      to.end_file();
    }
  }
  /// Commits the written files as a generation, as by one rank.
  template <class Writer>
  static void commit(Writer& writer, chunkmem::checkpoint::manifest content)
  {
    chunkmem::collective::self alone;
    writer.part().finish();
    writer.commit(alone, content);
  }
  /// Writes a generation that is newer than all in the folder.
  template <class Folder>
  void write(Folder& folder) const
  {
    chunkmem::checkpoint::generation_writer<Folder> writer{folder, chunkmem::checkpoint::next_generation(folder)};
    write_files(writer);
    commit(writer, rest());
  }
  /// True if every byte, list and name is this generation's.
  template <class Folder>
  [[nodiscard]] bool is_in(const Folder& folder, const chunkmem::checkpoint::whole_generation& found) const
  {
    if (found.content.lists != lists() || found.content.empty != empty() || found.files.size() != files_.size())
      return false;
    for (std::size_t index = 0; index < files_.size(); ++index) {
      if (found.files[index].tensors != files_[index].tensors) return false;
      auto from = folder.open(found.content.files[index].name);
      for (std::size_t tensor = 0; tensor < files_[index].tensors.size(); ++tensor) {
        std::string bytes(files_[index].content[tensor].size(), '\0');
        chunkmem::io::read_all(from, found.files[index].payload + files_[index].tensors[tensor].begin,
                               std::as_writable_bytes(std::span{bytes}));
        if (bytes != files_[index].content[tensor]) return false;
      }
    }
    return true;
  }

  [[nodiscard]] static std::span<const std::byte> bytes_of(std::string_view text)
  {
    return std::as_bytes(std::span{text});
  }

 private:
  std::uint32_t seed_;
  std::vector<one_file> files_;
};

/// Seed of the newest whole generation, 0 where there is none. @return   -1 where its bytes are those of no generation
/// in `known`
template <class Folder>
[[nodiscard]] std::int64_t newest_seed(const Folder& folder, const std::vector<stored_generation>& known)
{
  std::vector<chunkmem::checkpoint::skipped_generation> skipped;
  const auto found = chunkmem::checkpoint::newest_whole(folder, skipped);
  if (!found) return 0;
  for (const stored_generation& it : known)
    if (it.is_in(folder, found->generation())) return it.seed();
  return -1;
}

}  // namespace support
