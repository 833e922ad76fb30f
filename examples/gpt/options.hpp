#pragma once

#include "extents.hpp"

#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace gpt {

enum class eviction_choice : std::uint8_t { belady, lru };
enum class transfer_choice : std::uint8_t { lookahead, no_prefetch };

/// What the command line says. What it leaves out has a default that works.
struct options {
  std::optional<chunkmem::bytes> device_memory;  ///< else a quarter of what the training needs
  std::optional<chunkmem::bytes> host_memory;    ///< else what the training needs
  std::optional<chunkmem::bytes> chunk_bytes;    ///< else what leaves the least room unused
  extents size;
  std::size_t steps = 50;
  float learning_rate = 1e-3f;
  std::uint64_t seed = 1;
  std::size_t sample = 300;
  eviction_choice eviction = eviction_choice::belady;
  transfer_choice transfer = transfer_choice::lookahead;
  std::optional<std::filesystem::path> text, trace, report;
  bool verify = false;
  bool help = false;
};

/// Reads a command line, the program's name not included.
/// @throws problem   one sentence: which option, what it says, what it may say
[[nodiscard]] options parse_options(int count, const char* const* arguments);

/// What `--help` prints.
[[nodiscard]] std::string help_text();

}  // namespace gpt
