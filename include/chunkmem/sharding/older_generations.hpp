// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/sharding/rank_check.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// What a save over ranks does with the generations that were there before it: it keeps the newest whole ones. Every
/// rank makes the same calls.
///
///     older_generations older{ranks, folder, options};
///     older.find();         // before the save
///     older.remove(saved);  // after its commit
template <exchanges_words Communicator, file_folder Folder>
class older_generations {
 public:
  older_generations(Communicator& ranks, Folder& folder, const checkpoint::save_options& options)
      : ranks_{ranks}, folder_{folder}, options_{options}
  {
  }

  /// Before the files are written: older ones go where options ask for room. @throws as remove_older, on every rank
  void make_room()
  {
    if (options_.keep_while_writing == 0) return;
    const std::vector<std::uint64_t> whole = newest_whole(options_.keep_while_writing, {});
    collective::all_or_none(ranks_, [&] {
      if (is_first()) keep(options_.keep_while_writing, whole);
    });
  }
  /// For check_own_part. @throws io_error   rank 0 cannot list its folder; comm_error
  void find()
  {
    if (!checks()) return;
    found_ = generations_of_first(ranks_, folder_);
    found_.resize(std::min<std::size_t>(found_.size(), options_.keep - 1));
  }
  /// This rank's part of those that may stay is read, on any thread: `remove` then reads them no more. Exchanges
  /// nothing.
  /// @param progress   `progress(bytes)`: so many more were read
  template <class Progress>
  void check_own_part(Progress progress)
  {
    for (const std::uint64_t it : found_)
      words_.push_back(sharding::check_own_part(folder_, it, index_of(ranks_.rank()), ranks_.ranks(), progress));
  }
  /// Behind the commit: what fails here is no error of the save. @param result   of it: gets the reason why older ones
  /// stay @throws comm_error
  void remove(checkpoint::saved_generation& result)
  {
    if (!checks()) {
      checkpoint::save_options all = options_;
      all.check_older = false;
      if (is_first()) result.clean_up = checkpoint::detail::remove_superseded(folder_, result.number, all);
      return;
    }
    try {
      remove_checked(result.number);
    } catch (const comm_error&) {
      throw;
    } catch (const std::exception& failed) {
      result.clean_up << failed.what();
    }
  }

 private:
  [[nodiscard]] bool checks() const noexcept { return options_.check_older && options_.keep > 1; }
  [[nodiscard]] bool is_first() const noexcept { return index_of(ranks_.rank()) == 0; }

  void remove_checked(std::uint64_t newest)
  {
    const std::vector<std::uint64_t> whole = newest_whole(options_.keep, {newest});
    if (is_first()) keep(options_.keep, whole);
  }
  /// @param whole   the newest ones, which are known to be @return   with the next whole ones, or nothing where none is
  /// to go
  [[nodiscard]] std::vector<std::uint64_t> newest_whole(std::uint32_t keep, std::vector<std::uint64_t> whole)
  {
    const std::vector<std::uint64_t> all = generations_of_first(ranks_, folder_);
    if (all.size() <= keep) return {};
    for (std::size_t index = whole.size(); index < all.size() && whole.size() < keep; ++index)
      if (is_whole(all[index])) whole.push_back(all[index]);
    return whole;
  }
  /// On rank 0.
  void keep(std::uint32_t count, const std::vector<std::uint64_t>& whole)
  {
    if (whole.empty()) return;
    checkpoint::remove_older(folder_, count,
                             [&](std::uint64_t it) { return std::ranges::find(whole, it) != whole.end(); });
  }
  /// As far as each rank read its part already, that counts.
  [[nodiscard]] bool is_whole(std::uint64_t number)
  {
    const auto at = static_cast<std::size_t>(std::ranges::find(found_, number) - found_.begin());
    const std::uint64_t read = at < words_.size() ? 1 : 0;
    if (std::ranges::count(collective::words_of_all(ranks_, read), std::uint64_t{0}) > 0)
      return is_whole_over_ranks(ranks_, folder_, number);
    const std::vector<std::uint64_t> words = collective::words_of_all(ranks_, words_[at]);
    return words[0] != 0 && std::ranges::count(words, words[0]) == static_cast<std::ptrdiff_t>(words.size());
  }

  Communicator& ranks_;
  Folder& folder_;
  checkpoint::save_options options_;
  std::vector<std::uint64_t> found_;  // newest first
  std::vector<std::uint64_t> words_;  // of the first of them: see check_own_part
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
