// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "problem.hpp"
#include "progress.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#ifdef GPT_HAS_CHECKPOINTS
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/pipeline/load_from_stages.hpp>
#include <chunkmem/pipeline/stage_files.hpp>
#include <chunkmem/sharding/rank_load.hpp>
#include <chunkmem/sharding/rank_save.hpp>

#include <unistd.h>
#endif

namespace gpt {

/// Says that checkpoints were asked for and this program was built without what they need.
inline void check_checkpoints([[maybe_unused]] const options& chosen)
{
#ifndef GPT_HAS_CHECKPOINTS
  if (chosen.checkpoint || chosen.resume)
    throw problem{
        "--checkpoint and --resume need a build with nlohmann/json.hpp and xxhash.h (Debian: apt-get install "
        "nlohmann-json3-dev libxxhash-dev)"};
#endif
}

#ifdef GPT_HAS_CHECKPOINTS

[[nodiscard]] inline bool has_checkpoint(const std::filesystem::path& where)
{
  std::error_code ignored;
  if (!std::filesystem::is_directory(where, ignored)) return false;
  return !chunkmem::checkpoint::generations_in(chunkmem::io::posix_folder{where.string()}).empty();
}

/// How stages of a pipeline save and load, each in a folder of its own. A model has `stages` and `manager`, and
/// `others`: the folders of all stages that saved, if they were others.
struct files_of_stages {
  template <class Model, class Folder>
  [[nodiscard]] static auto save(Model& model, Folder& folder)
  {
    return chunkmem::pipeline::save_stages(model.stages, model.manager, folder);
  }
  template <class Model, class Folder>
  [[nodiscard]] static auto load(Model& model, const Folder& folder)
  {
    constexpr bool has_replicas = requires { model.manager.ranks(); };  // they go on with as many stages
    if constexpr (!has_replicas)
      if (!model.others.empty()) {
        using folder_type = chunkmem::io::posix_folder;
        std::vector<folder_type> all;
        for (const std::filesystem::path& each : model.others) all.emplace_back(each.string());
        return chunkmem::pipeline::load_from_stages(model.stages, model.manager, std::span<const folder_type>{all},
                                                    {.copies = {{"head_table", "token_table"}}});
      }
    return chunkmem::pipeline::load_stages(model.stages, model.manager, folder);
  }
};

/// How one rank saves and loads.
struct files_of_one {
  template <class Manager, class Folder>
  [[nodiscard]] static auto save(Manager& manager, Folder& folder)
  {
    return chunkmem::checkpoint::save(manager, folder);
  }
  template <class Manager, class Folder>
  [[nodiscard]] static auto load(Manager& manager, const Folder& folder)
  {
    return chunkmem::checkpoint::load(manager, folder);
  }
};

/// Where a training is saved, and where it was: does nothing where the command line names no folder. Over ranks each
/// has one, of the same folders.
/// @tparam Files   how its manager is saved and loaded, see files_of_one
template <class Files>
class checkpoints {
 public:
  /// Opens the folders, so that what is wrong with them is said before the first step.
  /// @throws problem   nothing to resume from, in which case no folder is made; a folder that cannot be written to, or
  ///                   that has the checkpoints of a training that this one does not go on with: saving would replace
  ///                   them
  /// @param shown   what is resumed, in words; empty: its folder
  explicit checkpoints(const options& chosen, std::string shown = {}) : chosen_{chosen}, shown_{std::move(shown)}
  {
    if (chosen.resume) open_resumed(*chosen.resume);
    if (chosen.checkpoint) open_saved(*chosen.checkpoint);
  }

  /// @return   what was found, in a sentence; empty where nothing was to be resumed
  template <class Manager>
  [[nodiscard]] std::string resume(Manager& manager) const
  {
    if (!resumed_) return {};
    const auto found = load(manager);
    std::string text = "resumed from generation " + std::to_string(found.number) + " in " +
                       (shown_.empty() ? chosen_.resume->string() : shown_);
    for (const auto& skipped : found.skipped)
      text += "\nskipped generation " + std::to_string(skipped.number) + ": " + skipped.why;
    return text;
  }

  [[nodiscard]] bool is_due(std::size_t steps) const
  {
    return saved_ && (steps % chosen_.every == 0 || steps == chosen_.steps);
  }
  /// After `steps` steps: saves where it is time. @return   a sentence, or nothing
  template <class Manager>
  [[nodiscard]] std::string save_after(std::size_t steps, Manager& manager)
  {
    if (!is_due(steps)) return {};
    const auto saved = Files::save(manager, *saved_);
    return "saved generation " + std::to_string(saved.number) + ": " + std::to_string(saved.size.count()) + " B in " +
           chosen_.checkpoint->string();
  }

 private:
  using folder = chunkmem::io::posix_folder;

  void open_resumed(const std::filesystem::path& where)
  {
    std::error_code ignored;
    if (!std::filesystem::is_directory(where, ignored))
      throw problem{"--resume '" + where.string() + "' is no folder (name one that --checkpoint saved to)"};
    resumed_.emplace(where.string());
    if (chunkmem::checkpoint::generations_in(*resumed_).empty())
      throw problem{"--resume '" + where.string() + "' has no checkpoint (name a folder that --checkpoint saved to)"};
  }

  void open_saved(const std::filesystem::path& where)
  {
    saved_.emplace(where.string());
    if (::access(where.c_str(), W_OK | X_OK) != 0)
      throw problem{"--checkpoint '" + where.string() + "' cannot be written to (choose another folder)"};
    std::error_code ignored;
    const bool goes_on = chosen_.resume && std::filesystem::equivalent(*chosen_.resume, where, ignored);
    if (!goes_on && !chunkmem::checkpoint::generations_in(*saved_).empty())
      throw problem{"--checkpoint '" + where.string() +
                    "' has checkpoints already, which new ones would replace (go on with --resume " + where.string() +
                    ", or name another folder)"};
  }

  template <class Manager>
  [[nodiscard]] auto load(Manager& manager) const
  {
    try {
      return Files::load(manager, *resumed_);
    } catch (const chunkmem::config_error& other) {
      if (std::string_view{other.what()}.find(losses_state) == std::string_view::npos) throw;
      throw problem{"--resume '" + chosen_.resume->string() + "' holds a training of another number of steps than " +
                    std::to_string(chosen_.steps) +
                    ", and its learning rates depend on that number (give the --steps it was begun with)"};
    }
  }

  const options& chosen_;
  std::string shown_;
  std::optional<folder> saved_;
  std::optional<folder> resumed_;
};

#else

struct files_of_one {};
struct files_of_stages {};
[[nodiscard]] inline bool has_checkpoint(const std::filesystem::path&)
{
  return false;
}

/// Without a JSON parser and checksums there is nothing to be saved or taken up: check_checkpoints has said so.
template <class Files>
class checkpoints {
 public:
  explicit checkpoints(const options&, const std::string& = {}) {}
  template <class Manager>
  [[nodiscard]] std::string resume(Manager&) const
  {
    return {};
  }
  [[nodiscard]] static constexpr bool is_due(std::size_t) noexcept { return false; }
  template <class Manager>
  [[nodiscard]] std::string save_after(std::size_t, Manager&)
  {
    return {};
  }
};

#endif

}  // namespace gpt
