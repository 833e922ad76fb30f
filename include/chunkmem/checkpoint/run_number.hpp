#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/whole_generation.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstdint>
#include <optional>
#include <random>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// A number for a new training: no other has it, as far as chance goes. @throws io_error   the system gives no random numbers
[[nodiscard]] inline std::uint64_t draw_run()
{
  try {
    std::random_device source;
    const std::uint64_t high = source();
    return (high << 32 | source()) | 1U;  // 0 is none
  } catch (const std::exception& failed) {
    throw io_error{error_text{} << "chunkmem: the system gives no random numbers, by which a first save tells trainings apart: " << failed.what()};
  }
}

namespace detail {

/// Whose generation this is. @return   none where its manifest cannot be read
template <file_folder Folder>
[[nodiscard]] std::optional<std::uint64_t> run_of(const Folder& folder, std::uint64_t generation)
{
  try {
    return read_manifest(read_text(folder, manifest_name(generation), loader_limits{}.manifest)).run;
  } catch (const corrupt_data&) {
  } catch (const format_error&) {
  } catch (const io_error&) {
  }
  return {};
}

}  // namespace detail

/// A folder is for one training: saves of another one would make its generations the older ones, which go.
/// @param run   whose saves are to come; 0: a training that was neither saved nor loaded yet @throws config_error   it has generations of another
template <file_folder Folder>
void expect_own_folder(const Folder& folder, std::uint64_t run)
{
  for (const std::uint64_t generation : generations_in(folder)) {
    const std::optional<std::uint64_t> other = detail::run_of(folder, generation);
    if (!other || *other == run) continue;
    throw config_error{error_text{} << "chunkmem: this folder has checkpoints of another training: generation " << generation << " is of run "
                                    << *other << ", this is run " << run << " (name another folder, or load from this one before you save into it)"};
  }
}

/// All readable generations of a folder are of the training that is to be loaded.
/// @throws config_error   there are two
template <file_folder Folder>
void expect_one_run(const Folder& folder, std::uint64_t number, std::uint64_t run)
{
  for (const std::uint64_t generation : generations_in(folder)) {
    const std::optional<std::uint64_t> other = detail::run_of(folder, generation);
    if (!other || *other == run) continue;
    throw config_error{error_text{} << "chunkmem: this folder has checkpoints of two trainings: generation " << number << " is of run " << run
                                    << ", generation " << generation << " of run " << *other << " (move those of one of them elsewhere)"};
  }
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
