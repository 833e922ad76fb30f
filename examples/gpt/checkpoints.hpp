#pragma once

#include "options.hpp"
#include "problem.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#ifdef GPT_HAS_CHECKPOINTS
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/io/posix_folder.hpp>
#endif

namespace gpt {

/// Says that checkpoints were asked for and this program was built without what they need.
inline void check_checkpoints([[maybe_unused]] const options& chosen)
{
#ifndef GPT_HAS_CHECKPOINTS
  if (chosen.checkpoint || chosen.resume)
    throw problem{"--checkpoint and --resume need a build with nlohmann/json.hpp and xxhash.h (Debian: apt-get install "
                  "nlohmann-json3-dev libxxhash-dev)"};
#endif
}

/// Where a training is saved, and where it was: does nothing where the command line names no folder.
class checkpoints {
 public:
  explicit checkpoints(const options& chosen) : chosen_{chosen} {}

  /// @return   what was found, in a sentence; empty where nothing was to be resumed
  template <class Manager>
  [[nodiscard]] std::string resume([[maybe_unused]] Manager& manager) const
  {
#ifdef GPT_HAS_CHECKPOINTS
    if (!chosen_.resume) return {};
    const chunkmem::io::posix_folder folder{chosen_.resume->string()};
    const auto found = chunkmem::checkpoint::load(manager, folder);
    std::string text = "resumed from generation " + std::to_string(found.number) + " in " + chosen_.resume->string();
    for (const auto& skipped : found.skipped) text += "\nskipped generation " + std::to_string(skipped.number) + ": " + skipped.why;
    return text;
#else
    return {};
#endif
  }

  /// After `steps` steps: saves where it is time. @return   a sentence, or nothing
  template <class Manager>
  [[nodiscard]] std::string save_after([[maybe_unused]] std::size_t steps, [[maybe_unused]] Manager& manager)
  {
#ifdef GPT_HAS_CHECKPOINTS
    if (!chosen_.checkpoint || (steps % chosen_.every != 0 && steps != chosen_.steps)) return {};
    if (!folder_) folder_.emplace(chosen_.checkpoint->string());
    const auto saved = chunkmem::checkpoint::save(manager, *folder_);
    return "saved generation " + std::to_string(saved.number) + ": " + std::to_string(saved.size.count()) + " B in " +
           chosen_.checkpoint->string();
#else
    return {};
#endif
  }

 private:
  const options& chosen_;
#ifdef GPT_HAS_CHECKPOINTS
  std::optional<chunkmem::io::posix_folder> folder_;
#endif
};

}  // namespace gpt
