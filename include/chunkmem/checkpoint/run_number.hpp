// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/whole_generation.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Draws a number for a new training. Another training has it only by chance. @throws io_error   the system gives no
/// random numbers
[[nodiscard]] inline std::uint64_t draw_run()
{
  try {
    std::random_device source;
    const std::uint64_t high = source();
    return (high << 32 | source()) | 1U;  // 0 is none
  } catch (const std::exception& failed) {
    throw io_error{
        error_text{} << "chunkmem: the system gives no random numbers, by which a first save tells trainings apart: "
                     << failed.what()};
  }
}

/// The manifest of a generation. @param look   `look(text)` sees its text first @return   none where it cannot be read
template <file_folder Folder, class Look>
[[nodiscard]] std::optional<manifest> readable_manifest(const Folder& folder, std::uint64_t generation, Look look)
{
  try {
    const std::string text = detail::read_text(folder, detail::manifest_name(generation), loader_limits{}.manifest);
    look(std::string_view{text});
    return read_manifest(text);
  } catch (const corrupt_data&) {
  } catch (const format_error&) {
  } catch (const io_error&) {
  }
  return {};
}

namespace detail {

/// Refuses a generation of another version of this library. @throws config_error
inline void expect_own_version(std::uint64_t generation, std::string_view text)
{
  const std::string_view other = other_version(text);
  if (other.empty()) return;
  throw config_error{
      error_text{}
      << "chunkmem: generation " << generation << " of this folder has format " << other
      << " of another version of chunkmem, this one has 2 and 3 (name another folder, or go on with that version)"};
}

/// The training of a generation. @param look   `look(text)` sees its manifest first @return   none where it cannot be
/// read
template <file_folder Folder, class Look>
[[nodiscard]] std::optional<std::uint64_t> run_of(const Folder& folder, std::uint64_t generation, Look look)
{
  const std::optional<manifest> found = readable_manifest(folder, generation, look);
  return found ? std::optional{found->run} : std::nullopt;
}

}  // namespace detail

/// Refuses a folder of another training: new saves would remove its generations as older ones. A foreign generation
/// does not count. @param run   the training that wants to save; 0: it was neither saved nor loaded yet @throws
/// config_error   the folder has generations of another training, or of another version
template <file_folder Folder>
void expect_own_folder(const Folder& folder, std::uint64_t run)
{
  for (const std::uint64_t generation : generations_in(folder)) {
    const std::optional<std::uint64_t> other = detail::run_of(
        folder, generation, [&](std::string_view text) { detail::expect_own_version(generation, text); });
    if (!other || *other == run) continue;
    throw config_error{error_text{} << "chunkmem: this folder has checkpoints of another training: "
                                    << detail::manifest_name(generation) << " is of run " << *other << ", this is run "
                                    << run << " (name another folder, or load from this one before you save into it)"};
  }
}

/// Checks that all readable generations of a folder are of one training. A foreign generation does not count. @throws
/// config_error   there are two trainings
template <file_folder Folder>
void expect_one_run(const Folder& folder, std::uint64_t number, std::uint64_t run)
{
  for (const std::uint64_t generation : generations_in(folder)) {
    const std::optional<std::uint64_t> other = detail::run_of(folder, generation, [](std::string_view) {});
    if (!other || *other == run) continue;
    throw config_error{error_text{} << "chunkmem: this folder has checkpoints of two trainings: "
                                    << detail::manifest_name(number) << " is of run " << run << ", "
                                    << detail::manifest_name(generation) << " of run " << *other
                                    << " (move those of one of them elsewhere)"};
  }
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
