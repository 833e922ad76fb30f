// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/agreed_generation.hpp>
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/save_options.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// A save's rule for older generations: the newest whole ones are kept. Every rank makes the same calls.
///
///     older_generations older{ranks, folder, options};
///     older.find();                // before the save
///     older.remove(saved.number);  // after its commit
template <exchanges_words Communicator, file_folder Folder>
class older_generations {
 public:
  older_generations(Communicator& ranks, Folder& folder, const save_options& options)
      : ranks_{ranks}, folder_{folder}, options_{options}
  {
  }

  /// Whether older generations that are kept are read first.
  [[nodiscard]] bool checks() const noexcept { return options_.check_older && options_.keep > 1; }
  /// Removes older generations before the files are written, where options ask for room. @throws as remove_generations,
  /// on every rank; and as `is_whole`
  void make_room()
  {
    if (options_.keep_while_writing == 0) return;
    const std::vector<std::uint64_t> old = superseded(options_.keep_while_writing, 0);
    collective::all_or_none(ranks_, [&] {
      if (is_first()) remove_generations(folder_, old);
    });
  }
  /// Finds the older generations, for check_own_part. @throws io_error   rank 0 cannot list its folder; comm_error
  void find()
  {
    if (!checks()) return;
    found_ = generations_of_first(ranks_, folder_);
    found_.resize(std::min<std::size_t>(found_.size(), options_.keep - 1));
  }
  /// Reads this rank's part of the generations that may be kept, on any thread: `remove` then does not read them.
  /// Exchanges nothing.
  /// @param progress   `progress(bytes)`: this many more bytes were read
  template <class Progress>
  void check_own_part(Progress progress)
  {
    for (const std::uint64_t it : found_)
      words_.push_back(checkpoint::check_own_part(folder_, it, index_of(ranks_.rank()), ranks_.ranks(), progress));
  }
  /// Removes older generations after the commit. @param newest   the one just written @return   why older ones stay, in
  /// a sentence: a failure here is no error of the save. Else empty @throws comm_error
  [[nodiscard]] error_text remove(std::uint64_t newest)
  {
    if (!checks())
      return is_first() ? detail::remove_superseded(folder_, newest, options_.keep, [](std::uint64_t) { return true; })
                        : error_text{};
    error_text failure;
    try {
      const std::vector<std::uint64_t> old = superseded(options_.keep, newest);
      if (is_first()) remove_generations(folder_, old);
    } catch (const comm_error&) {
      throw;
    } catch (const std::exception& failed) {
      failure << failed.what();
    }
    return failure;
  }

 private:
  [[nodiscard]] bool is_first() const noexcept { return index_of(ranks_.rank()) == 0; }

  /// The generations that are older than the newest `keep` whole ones. @param newest   is known to be whole
  [[nodiscard]] std::vector<std::uint64_t> superseded(std::uint32_t keep, std::uint64_t newest)
  {
    std::vector<std::uint64_t> all = generations_of_first(ranks_, folder_);
    if (all.size() <= keep) return {};
    auto first = all.begin();
    for (std::uint32_t kept = 0; first != all.end() && kept < keep; ++first)
      kept += *first == newest || is_whole(*first) ? 1 : 0;
    all.erase(all.begin(), first);
    return all;
  }
  /// Whether a generation is whole. Ranks that have read their parts before do not read them again.
  [[nodiscard]] bool is_whole(std::uint64_t number)
  {
    const auto at = static_cast<std::size_t>(std::ranges::find(found_, number) - found_.begin());
    if (collective::least_word(ranks_, at < words_.size() ? 1 : 0) == 0)
      return checkpoint::is_whole(ranks_, folder_, number);
    const std::vector<std::uint64_t> words = collective::words_of_all(ranks_, words_[at]);
    return words[0] != 0 && std::ranges::count(words, words[0]) == static_cast<std::ptrdiff_t>(words.size());
  }

  Communicator& ranks_;
  Folder& folder_;
  save_options options_;
  std::vector<std::uint64_t> found_;  // newest first
  std::vector<std::uint64_t> words_;  // hashes of the first of them: see check_own_part
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
