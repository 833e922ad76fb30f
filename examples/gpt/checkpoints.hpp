// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../interruption.hpp"
#include "../output_file.hpp"
#include "display.hpp"
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
#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/pipeline/load_from_stages.hpp>
#include <chunkmem/pipeline/stage_files.hpp>

#include <unistd.h>
#endif

namespace gpt {

/// Refuses checkpoints where this program was built without the libraries that they need.
inline void check_checkpoints([[maybe_unused]] const options& chosen)
{
#ifndef GPT_HAS_CHECKPOINTS
  if (chosen.checkpoint || chosen.resume || chosen.init || chosen.export_weights)
    throw problem{
        "--checkpoint, --resume, --init and --export-weights need a build with nlohmann/json.hpp and xxhash.h (Debian: "
        "apt-get install "
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
/// True if the folder has files of a save, complete or not.
[[nodiscard]] inline bool has_traces(const std::filesystem::path& where)
{
  std::error_code ignored;
  if (!std::filesystem::is_directory(where, ignored)) return false;
  for (const std::string& name : chunkmem::io::posix_folder{where.string()}.names())
    if (chunkmem::checkpoint::label_of(name)) return true;
  return false;
}

/// A training is saved to the folder that it is resumed from: then an empty folder is no error. The training begins
/// there, and the same command resumes it.
[[nodiscard]] inline bool goes_on_in_place(const options& chosen)
{
  return chosen.resume && chosen.checkpoint &&
         command_line::place_of(*chosen.resume) == command_line::place_of(*chosen.checkpoint);
}

/// How stages of a pipeline save and load, each in a folder of its own. A model has `stages` and `manager`, and
/// `others`: the folders of all saved stages, if another number of stages saved them.
struct files_of_stages {
  template <class Model, class Folder>
  [[nodiscard]] static auto save(Model& model, Folder& folder)
  {
    return chunkmem::pipeline::save_stages(model.stages, model.manager, folder);
  }
  template <class Model, class Folder>
  [[nodiscard]] static auto load(Model& model, const Folder& folder, const chunkmem::checkpoint::load_options& how)
  {
    constexpr bool has_replicas = requires { model.manager.ranks(); };  // replicas resume with as many stages
    if constexpr (!has_replicas)
      if (!model.others.empty()) {
        using folder_type = chunkmem::io::posix_folder;
        std::vector<folder_type> all;
        for (const std::filesystem::path& each : model.others) all.emplace_back(each.string());
        return chunkmem::pipeline::load_from_stages(model.stages, model.manager, std::span<const folder_type>{all},
                                                    {.copies = {{"head_table", "token_table"}}});
      }
    return chunkmem::pipeline::load_stages(model.stages, model.manager, folder, how);
  }
};

/// How a manager is saved and loaded. Each rank calls these functions, with the same folder.
struct files_of_model {
  template <class Manager, class Folder>
  [[nodiscard]] static auto save(Manager& manager, Folder& folder)
  {
    return chunkmem::checkpoint::save(manager, folder);
  }
  template <class Manager, class Folder>
  [[nodiscard]] static auto load(Manager& manager, const Folder& folder, const chunkmem::checkpoint::load_options& how)
  {
    return chunkmem::checkpoint::load(manager, folder, how);
  }
};

/// Saves and resumes a training: does nothing where the command line names no folder. Each rank has one object, with
/// the same folders.
/// @tparam Files   how the manager is saved and loaded, see files_of_model
template <class Files>
class checkpoints {
 public:
  /// Opens the folders, so that errors of them are reported before the first step.
  /// @throws problem   nothing to resume from, unless the training is saved there too (see goes_on_in_place), in which
  ///   case no folder is made; a folder that cannot be written to; or a folder with checkpoints of a training that this
  ///   one does not resume: saving would replace them
  /// @param shown   name of the resumed folder in messages; empty: its path
  explicit checkpoints(const options& chosen, std::string shown = {}) : chosen_{chosen}, shown_{std::move(shown)}
  {
    if (chosen.resume && !goes_on_in_place(chosen)) open_resumed(*chosen.resume);
    if (chosen.checkpoint) open_saved(*chosen.checkpoint);
    if (goes_on_in_place(chosen)) resumed_.emplace(chosen.resume->string());
  }

  /// @return   a sentence on the resumed generation; empty where the command line resumes nothing
  template <class Manager>
  [[nodiscard]] std::string resume(Manager& manager) const
  {
    if (!resumed_) return {};
    const auto found = load(manager);
    const std::string where = shown_.empty() ? chosen_.resume->string() : shown_;
    std::string text = found.number == 0 ? "nothing to resume in " + where + ": the training begins"
                                         : "resumed from generation " + std::to_string(found.number) + " in " + where;
    for (const auto& skipped : found.skipped)
      text += "\nskipped generation " + std::to_string(skipped.number) + ": " + skipped.why;
    return text;
  }

  [[nodiscard]] bool is_due(std::size_t steps) const
  {
    return saved_ && (steps % chosen_.every == 0 || steps == chosen_.steps);
  }
  /// Called after `steps` steps: saves where a checkpoint is due. @param ends   the training ends here, so one is due
  /// @return   a sentence, or nothing
  template <class Manager>
  [[nodiscard]] std::string save_after(std::size_t steps, Manager& manager, bool ends = false)
  {
    if (!is_due(steps) && !(saved_ && ends)) return {};
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
      throw problem{"--resume '" + where.string() +
                    "' is no folder (name a folder that --checkpoint saved to, or give " +
                    "--checkpoint the same folder to start there)"};
    resumed_.emplace(where.string());
    if (chunkmem::checkpoint::generations_in(*resumed_).empty())
      throw problem{"--resume '" + where.string() +
                    "' has no checkpoint (name a folder that --checkpoint saved to, or " +
                    "give --checkpoint the same folder to start there)"};
  }

  void open_saved(const std::filesystem::path& where)
  {
    saved_.emplace(where.string());
    if (::access(where.c_str(), W_OK | X_OK) != 0)
      throw problem{"--checkpoint '" + where.string() + "' cannot be written to (choose another folder)"};
    if (!goes_on_in_place(chosen_) && !chunkmem::checkpoint::generations_in(*saved_).empty())
      throw problem{"--checkpoint '" + where.string() +
                    "' has checkpoints already, which new ones would replace (add --resume " + where.string() +
                    " to resume, or name another folder)"};
  }

  template <class Manager>
  [[nodiscard]] auto load(Manager& manager) const
  {
    try {
      return Files::load(manager, *resumed_, {.allow_fresh_start = goes_on_in_place(chosen_)});
    } catch (const chunkmem::config_error& other) {
      explain_sampling(other.what());
      if (std::string_view{other.what()}.find(losses_state) == std::string_view::npos) throw;
      throw problem{"--resume '" + chosen_.resume->string() + "' holds a training of another number of steps than " +
                    std::to_string(chosen_.steps) +
                    ", and its learning rates depend on that number (give the --steps it was begun with)"};
    }
  }

  /// Another set of sampled inputs than in the checkpoint: the error names options of the command line.
  void explain_sampling(std::string_view why) const
  {
    const auto says = [&](std::string_view what) {
      return why.find(std::string{what} + ": state/sampling/") != std::string_view::npos;
    };
    const std::string where = chosen_.resume->string(), begin = "--resume '" + where + "' holds a training ";
    const std::string instead = "or begin a training with its weights: --init " + where + ", without --resume)";
    if (says("this model does not have"))
      throw problem{begin + "that keeps some rows of inputs, and here all rows are kept (give the --activations " +
                    "sample= that it was begun with, " + instead};
    if (says("it does not have"))
      throw problem{begin + "without ratios of sampled inputs, as an exact training or an older version saves it " +
                    "(leave out --activations sample= if it was exact, " + instead};
    if (says("another shape"))
      throw problem{begin + "that samples other inputs, or has norms of another number of windows (give --mlp, " +
                    "--windows, --text and --activations that it was begun with, " + instead};
  }

  const options& chosen_;
  std::string shown_;
  std::optional<folder> saved_;
  std::optional<folder> resumed_;
};

/// A temporary folder that is removed at the end.
class temporary_folder {
 public:
  temporary_folder() : path_{(std::filesystem::temp_directory_path() / "chunkmem_gpt_XXXXXX").string()}
  {
    if (::mkdtemp(path_.data()) == nullptr) throw problem{"no folder can be made at " + path_ + " (set TMPDIR)"};
  }
  temporary_folder(const temporary_folder&) = delete;
  ~temporary_folder()
  {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// A folder and a file in it.
[[nodiscard]] inline std::pair<std::string, std::string> folder_of(const std::filesystem::path& file)
{
  const std::filesystem::path folder = file.parent_path();
  return {folder.empty() ? "." : folder.string(), file.filename().string()};
}

/// Fills weights as --init says: from a file of weights, or from the newest checkpoint of a folder. Adapters that are
/// not in the file stay as they are. @return   a sentence, or nothing
/// @throws problem   there is no such file; and as import_values
template <class Manager>
[[nodiscard]] std::string import_weights(Manager& manager, const options& chosen)
{
  if (!chosen.init) return {};
  std::error_code ignored;
  const chunkmem::checkpoint::import_options how{.takes_part = chosen.size.adapter_rank > 0};
  const auto import = [&](const std::string& folder, const std::string& file) {
    const auto found = chunkmem::checkpoint::import_values(manager, chunkmem::io::posix_folder{folder}, file, how);
    for (const std::string& name : found.kept)
      if (!name.ends_with("_down") && !name.ends_with("_up"))
        throw problem{"--init '" + chosen.init->string() + "' has no '" + name +
                      "', which --lora freezes (name a file of a model of the same sizes)"};
    return "began with " + std::to_string(found.tensors) + " tensors of " + chosen.init->string();
  };
  if (std::filesystem::is_directory(*chosen.init, ignored)) {
    const temporary_folder exported;
    chunkmem::io::posix_folder to{exported.path()};
    chunkmem::checkpoint::export_generation(chunkmem::io::posix_folder{chosen.init->string()}, to,
                                            "weights.safetensors");
    return import(exported.path(), "weights.safetensors");
  }
  if (!std::filesystem::is_regular_file(*chosen.init, ignored))
    throw problem{"--init '" + chosen.init->string() +
                  "' is no file and no folder (name one that --export-weights or --checkpoint wrote)"};
  const auto [folder, file] = folder_of(*chosen.init);
  return import(folder, file);
}

/// @return   a sentence, or nothing
template <class Manager>
[[nodiscard]] std::string save_weights(Manager& manager, const options& chosen)
{
  if (!chosen.export_weights) return {};
  const auto [folder, file] = folder_of(*chosen.export_weights);
  chunkmem::io::posix_folder to{folder};
  chunkmem::checkpoint::export_values(manager, to, file);
  return "wrote the weights to " + chosen.export_weights->string();
}

#else

template <class Manager>
[[nodiscard]] std::string import_weights(Manager&, const options&)
{
  return {};
}
template <class Manager>
[[nodiscard]] std::string save_weights(Manager&, const options&)
{
  return {};
}

struct files_of_model {};
struct files_of_stages {};
[[nodiscard]] inline bool has_checkpoint(const std::filesystem::path&)
{
  return false;
}
[[nodiscard]] inline bool has_traces(const std::filesystem::path&)
{
  return false;
}
[[nodiscard]] inline bool goes_on_in_place(const options&)
{
  return false;
}

/// A build without a JSON parser and checksums saves and resumes nothing: check_checkpoints has refused the options.
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
  [[nodiscard]] std::string save_after(std::size_t, Manager&, bool = false)
  {
    return {};
  }
};

#endif

/// A sentence on a training that a signal ended: its last step, and the command that resumes it.
[[nodiscard]] inline std::string end_of(const options& chosen, const training_result& result)
{
  const std::string begin = "ended by " + command_line::interruption::name(result.signal) + " after step " +
                            std::to_string(result.steps) + " of " + std::to_string(chosen.steps) + ": ";
  if (result.steps == chosen.steps) return begin + "the training is complete";
  if (!chosen.checkpoint) return begin + "nothing was saved (name a folder with --checkpoint)";
  if (goes_on_in_place(chosen)) return begin + "the same command resumes the training";
  const std::string folder = chosen.checkpoint->string();
  return begin + "the same command with --resume " + folder + " --checkpoint " + folder + " resumes the training";
}

/// The same for the second training of --verify.
[[nodiscard]] inline std::string end_of_verify(const training_result& result)
{
  return "verify: ended by " + command_line::interruption::name(result.signal) + ", nothing was compared";
}

}  // namespace gpt
