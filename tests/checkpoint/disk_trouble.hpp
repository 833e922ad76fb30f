// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rig.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace checkpoints {

template <class Folder>
[[nodiscard]] std::vector<std::string> sorted_names(const Folder& folder)
{
  std::vector<std::string> names = folder.names();
  std::sort(names.begin(), names.end());
  return names;
}

/// A 16-bit model in training, saved every second step, once while its disk has a fault. Returns a complaint instead of
/// failing a test: it also runs in a child.
class troubled_training {
 public:
  static constexpr std::uint32_t steps = 6;

  explicit troubled_training(bool in_background)
      : in_background_{in_background}, how_{recipe_for(mixed::precision::bf16, steps)}
  {
  }

  /// @param start    begins the fault; `end` ends it; both return whether they could
  /// @param number   errno that the save in between has to name
  template <class Folder, class Start, class End>
  [[nodiscard]] std::string run(Folder& folder, int number, Start start, End end) const
  {
    const mixed::outcome right = uninterrupted<cm::bf16>(how_);
    arena_rig<cm::bf16> it{surroundings{}, how_};
    it.initialise();
    it.train(2);
    if (save(it, folder) != 0) return "the first save failed";
    const mixed::outcome then = it.values();
    const std::vector<std::string> before = sorted_names(folder);

    it.train(4);
    if (!start()) return "the trouble could not start";
    if (const int found = save(it, folder); found != number)
      return "the save in trouble ended with errno " + std::to_string(found);
    if (sorted_names(folder) != before) return "files are left behind, or gone";
    if (const std::string wrong = goes_on_from(folder, 2, then, right, false); !wrong.empty())
      return "in trouble: " + wrong;
    it.train(5);

    if (!end()) return "the trouble could not end";
    const mixed::outcome later = it.values();
    if (const int found = save(it, folder); found != 0)
      return "the save after the trouble ended with errno " + std::to_string(found);
    if (const std::string wrong = goes_on_from(folder, 5, later, right, true); !wrong.empty())
      return "after it: " + wrong;
    it.train(steps);
    return right.difference(it.values());
  }

  /// errno of a save, 0 where it did not fail.
  template <class Folder>
  [[nodiscard]] int save(arena_rig<cm::bf16>& it, Folder& folder) const
  {
    const cm::checkpoint::save_options files{.file_size = 16_KiB};
    try {
      if (in_background_)
        (void)cm::checkpoint::save_async(it.m, folder, {.files = files, .buffer = 64_KiB}).wait();
      else
        (void)cm::checkpoint::save(it.m, folder, files);
      return 0;
    } catch (const cm::io_error& failed) {
      return failed.fault().number;
    }
  }

 private:
  /// Another trainer finds the generation of that step, with these bits, and trains on from it.
  template <class Folder>
  [[nodiscard]] std::string goes_on_from(const Folder& folder, std::uint32_t step, const mixed::outcome& then,
                                         const mixed::outcome& right, bool to_the_end) const
  {
    arena_rig<cm::bf16> other{{.chunk = 8_KiB, .device = 64_KiB, .eviction = "lru"}, how_};
    if (!cm::checkpoint::load(other.m, folder).skipped.empty()) return "a generation is not whole";
    if (other.cursor != step) return "step " + std::to_string(other.cursor) + " was loaded";
    if (const std::string wrong = then.difference(other.values()); !wrong.empty()) return wrong;
    if (!to_the_end) return {};
    other.train(steps);
    return right.difference(other.values());
  }

  bool in_background_;
  mixed::recipe how_;
};

}  // namespace checkpoints
