// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/sanitized.hpp>
#include <support/simulated_folder.hpp>
#include <support/stored_generation.hpp>

#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace support {

/// Cuts the power at every moment of a save, and checks every possible state of the disk.
class power_cut_search {
 public:
  static constexpr std::uint64_t enough = 10;  ///< corrupt disks, to end the search: without syncs there are millions
  static constexpr std::uint64_t pace = sanitized ? 5 : 1;

  struct result {
    std::uint64_t states = 0;     ///< disks that were checked
    std::uint64_t corrupt = 0;    ///< with nothing whole, with a mixture, or without the acknowledged generation
    std::set<disk_content> left;  ///< the different disks
  };

  /// @param known   generations that may be found, by their seeds
  power_cut_search(const disk_content& before, const std::vector<stored_generation>& known)
      : power_cut_search{before, [&known](const simulated_folder& left) { return newest_seed(left, known); }}
  {
  }
  /// @param newest   the allowed generation on a disk: 0 for none, -1 for a mixture
  power_cut_search(const disk_content& before, std::function<std::int64_t(const simulated_folder&)> newest)
      : folder_{before}, newest_{std::move(newest)}
  {
  }

  [[nodiscard]] simulated_folder& folder() { return folder_; }
  /// Whole generations that may be found from now on, by seed: 0 is none.
  void allow(std::set<std::int64_t> seeds)
  {
    allowed_ = std::move(seeds);
    look();
  }
  /// Checks after every operation of `work()`; under a sanitizer after every fifth, which has no factor in common with
  /// the six changes of one file or manifest.
  template <class Work>
  void during(Work work)
  {
    std::uint64_t operations = 0;
    folder_.set_observer([&] {
      if (operations++ % pace == 0) look();
    });
    work();
    folder_.set_observer({});
  }
  void look()
  {
    if (found_.corrupt >= enough) return;
    found_.states += folder_.each_after_cut([&](const simulated_folder& left) {
      if (!allowed_.contains(newest_(left))) ++found_.corrupt;
      if (keeps_) found_.left.insert(left.content());
      return found_.corrupt < enough;
    });
  }
  void keep_what_is_left() { keeps_ = true; }
  [[nodiscard]] const result& found() const { return found_; }

 private:
  simulated_folder folder_;
  std::function<std::int64_t(const simulated_folder&)> newest_;
  std::set<std::int64_t> allowed_;
  result found_;
  bool keeps_ = false;
};

}  // namespace support
