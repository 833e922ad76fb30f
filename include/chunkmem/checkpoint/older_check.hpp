// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/core/error_text.hpp>
#include <chunkmem/core/process_owned.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <any>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// Removes generations that are older than the newest `keep` whole ones. @param newest   was just written
/// @param is_whole   is asked for older ones @return   the failure, in a sentence: it does not undo a save
template <file_folder Folder, class IsWhole>
[[nodiscard]] error_text remove_superseded(Folder& folder, std::uint64_t newest, std::uint32_t keep, IsWhole is_whole)
{
  error_text failure;
  try {
    remove_older(folder, keep, [&](std::uint64_t generation) { return generation == newest || is_whole(generation); });
  } catch (const std::exception& failed) {
    failure << failed.what();
  }
  return failure;
}

/// A thread that works after a save has returned. It reads the older generations that stay, each at most once. Then it
/// removes generations that are older still. A manager has one object of this class for all its saves.
///
///     older_check& older = older_check_of(m);
///     error_text failure = older.finish();     // of the save before
///     older.start(folder, newest, 2);
///
/// No lock is held meanwhile: others may save into the folder. A forked child leaves it to its parent, and has one of
/// its own.
class older_check {
 public:
  older_check() = default;
  older_check(const older_check&) = delete;
  ~older_check() { wait(); }

  /// False in a forked child, where no other call is allowed.
  [[nodiscard]] bool is_owner() const noexcept { return all_.is_owner(); }
  /// Until it is done.
  void wait() noexcept
  {
    if (is_owner() && all_->thread.joinable()) all_->thread.join();
  }
  /// The same. @return   why older generations may still be there, in a sentence, once; else empty
  [[nodiscard]] error_text finish() noexcept
  {
    wait();
    return std::exchange(all_->failure, {});
  }

  /// Starts it. Where no thread can be started, it is done when this returns. @param newest   was just written
  /// @pre   finish()
  template <shareable_folder Folder>
  void start(const Folder& folder, std::uint64_t newest, std::uint32_t keep)
  {
    state& it = *all_;
    try {
      it.remember(folder.identity(), newest);
      auto own = std::make_shared<Folder>(folder.again());
      const auto work = [&it, own, newest, keep]() noexcept {
        it.failure = remove_superseded(*own, newest, keep,
                                       [&](std::uint64_t generation) { return it.is_known_whole(*own, generation); });
      };
      try {
        it.thread = std::thread{work};
      } catch (const std::system_error&) {
        work();
      }
    } catch (const std::exception& failed) {
      it.failure << failed.what();
    }
  }

 private:
  struct state {
    std::array<std::uint64_t, 2> folder{};
    std::vector<std::uint64_t> whole;  // that were read
    error_text failure;
    std::thread thread;

    /// Forgets what was read in another folder, or under a number that is given again.
    void remember(const std::array<std::uint64_t, 2>& next, std::uint64_t newest)
    {
      if (next != folder) whole.clear();
      folder = next;
      std::erase_if(whole, [&](std::uint64_t generation) { return generation >= newest; });
    }
    template <file_folder Folder>
    [[nodiscard]] bool is_known_whole(const Folder& from, std::uint64_t generation)
    {
      if (std::ranges::find(whole, generation) != whole.end()) return true;
      if (!is_whole(from, generation)) return false;
      whole.push_back(generation);
      return true;
    }
  };

  process_owned<state> all_;
};

/// The older_check of a manager.
template <class Manager>
[[nodiscard]] older_check& older_check_of(Manager& m)
{
  using shared = std::shared_ptr<older_check>;  // `any` wants something that can be copied
  std::any& kept = m.content().kept_by_saver();
  if (const shared* const known = std::any_cast<shared>(&kept); known != nullptr && (*known)->is_owner())
    return **known;
  return *kept.emplace<shared>(std::make_shared<older_check>());
}

}  // namespace detail

/// Waits until the last save has read and removed older generations (`save_options::check_older`). The next save, a
/// load, and the end of the manager wait for it too.
///
///     checkpoint::save(m, folder);
///     const error_text failure = checkpoint::finish_save(m);
///     std::cerr << failure.view();
///
/// @return   why older generations may still be there, in a sentence; else empty. They go with the next save
template <class Manager>
error_text finish_save(Manager& m)
{
  return detail::older_check_of(m).finish();
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
