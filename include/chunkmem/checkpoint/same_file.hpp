// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// Reads tensors of a file, piece by piece, and computes their checksums.
class summed_tensors {
 public:
  /// @param index   outlives this   @param ignored   tensors that count as absent
  summed_tensors(const stored_index& index, const std::vector<std::string>& ignored)
  {
    const std::set<std::string_view> without(ignored.begin(), ignored.end());
    for (const auto& [name, value] : index.all())
      if (!without.contains(name)) tensors_.push_back({name, &value, io::checksum{}});
  }

  /// Reads this many bytes more. @return   whether nothing is left
  template <class Reader>
  [[nodiscard]] bool go_on(Reader& from, std::uint64_t size)
  {
    std::vector<std::byte> piece(std::size_t{4} << 20U);
    while (at_ < tensors_.size() && size > 0) {
      entry& it = tensors_[at_];
      if (run_ == it.value->runs.size()) {
        run_ = 0;
        ++at_;
        continue;
      }
      const stored_run& run = it.value->runs[run_];
      const std::uint64_t left = run.elements * size_of(it.value->type) - done_;
      const std::span<std::byte> to{piece.data(),
                                    static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), left))};
      from.read(run.file, run.begin + done_, to);
      it.sum.add(to);
      done_ = to.size() == left ? 0 : done_ + to.size();
      if (done_ == 0) ++run_;
      size -= std::min<std::uint64_t>(size, to.size());
    }
    return at_ == tensors_.size();
  }
  [[nodiscard]] collective::named_words words() const
  {
    collective::named_words all;
    for (const entry& it : tensors_)
      all.add(it.name, word_of(it),
              std::string{(error_text{} << "tensor " << it.name << " of " << name_of(it.value->type)
                                        << " with checksum " << it.sum.value())
                              .view()});
    return all;
  }
  [[nodiscard]] std::uint64_t word() const
  {
    collective::fingerprint all;
    for (const entry& it : tensors_) all.add(word_of(it));
    return all.value();
  }

 private:
  struct entry {
    std::string_view name;
    const stored_value* value;
    io::checksum sum;
  };
  [[nodiscard]] static std::uint64_t word_of(const entry& it)
  {
    collective::fingerprint all;
    all.add(it.name);
    all.add(static_cast<std::uint64_t>(it.value->type));
    for (const std::uint64_t extent : it.value->extents) all.add(extent);
    all.add(it.sum.value());
    return all.value();
  }

  std::vector<entry> tensors_;
  std::size_t at_ = 0;      // tensor
  std::size_t run_ = 0;     // of it
  std::uint64_t done_ = 0;  // bytes of that
};

}  // namespace detail

/// Checks that all ranks see the same values in a file that has no checksums of its own. Every rank has to call this.
/// Each reads all of the file once, except `ignored`, in rounds, so that no rank waits for long.
/// @throws config_error   on every rank: the first tensor that differs, and the ranks; io_error; comm_error
template <exchanges_words Communicator, class Reader>
void expect_same_values(Communicator& ranks, const stored_index& index, Reader& file,
                        const std::vector<std::string>& ignored)
{
  if (ranks.ranks() == 1) return;
  constexpr std::uint64_t bytes_of_round = std::uint64_t{256} << 20U;
  detail::summed_tensors sums{index, ignored};
  while (!collective::agreed(ranks, [&] { return sums.go_on(file, bytes_of_round); })) {
  }
  const std::vector<std::uint64_t> words = collective::words_of_all(ranks, sums.word());
  if (std::ranges::any_of(words, [&](std::uint64_t it) { return it != words[0]; }))
    throw config_error{sums.words().difference(
        ranks, {"ranks see different files", "rank", "name one file that all ranks see, or copies of it"})};
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
