// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The files that all ranks wrote for a generation: those of rank 0 first. Every rank has to call this.
/// @param mine   of this rank @throws comm_error
/// @complexity   one exchange of words; each rank holds ranks times the words of the one that has most: about two for 4
///   MiB
template <exchanges_words Communicator>
[[nodiscard]] std::vector<stored_file> files_of_all(Communicator& ranks, const std::vector<stored_file>& mine,
                                                    std::uint64_t generation)
{
  if constexpr (collective::is_alone<Communicator>) {
    return mine;
  } else {
    std::vector<std::uint64_t> words{mine.size()};
    for (const stored_file& stored : mine) {
      words.insert(words.end(), {stored.size, stored.header});
      words.insert(words.end(), stored.sums.begin(), stored.sums.end());
    }
    const std::vector<std::uint64_t> lengths = collective::words_of_all(ranks, words.size());
    words.resize(static_cast<std::size_t>(*std::ranges::max_element(lengths)));
    std::vector<std::uint64_t> all(words.size() * ranks.ranks());
    ranks.exchange(words, all);
    std::vector<stored_file> files;
    for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
      const std::uint64_t* at = all.data() + rank * words.size();
      for (std::uint64_t left = *at++; left > 0; --left) {
        stored_file stored{detail::tensors_name(generation, files.size()), at[0], at[1], {}};
        const std::uint64_t* const sums = at + 2;
        at = sums + blocks_in(stored.size, stored.header);
        stored.sums.assign(sums, at);
        files.push_back(std::move(stored));
      }
    }
    return files;
  }
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
