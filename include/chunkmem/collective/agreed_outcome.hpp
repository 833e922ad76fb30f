// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/member_names.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

namespace detail {

/// An error as words, so that it can be thrown again on another rank.
class error_words {
 public:
  static constexpr std::size_t count = 1 + 7 + 64;  ///< kind, numbers, text
  static constexpr std::uint64_t no_memory = 1000;  ///< std::bad_alloc, which has no code

  using words = std::array<std::uint64_t, count>;

  [[nodiscard]] static words of(const error& it)
  {
    words all{static_cast<std::uint64_t>(it.code())};
    if (const auto* const io = dynamic_cast<const io_error*>(&it))
      all[1] = static_cast<std::uint64_t>(io->fault().number), all[2] = io->fault().offset;
    if (const auto* const full = dynamic_cast<const out_of_memory*>(&it)) {
      const memory_shortage& what = full->shortage();
      const std::uint64_t numbers[] = {static_cast<std::uint64_t>(what.where),
                                       what.requested,
                                       what.capacity,
                                       what.pinned,
                                       what.needed,
                                       what.refused ? 1U : 0U,
                                       what.taken};
      std::ranges::copy(numbers, all.begin() + 1);
    }
    const std::string_view text{it.what()};
    std::memcpy(all.data() + text_begin, text.data(), std::min(text.size(), text_bytes));
    return all;
  }

  /// @param who   the rank that failed, as "rank 2"   @param all   `count` words of it
  [[noreturn]] static void raise(const error_text& who, const std::uint64_t* all)
  {
    std::array<char, text_bytes + 1> text{};
    std::memcpy(text.data(), all + text_begin, text_bytes);
    std::string_view said{text.data()};
    constexpr std::string_view ours = "chunkmem: ";
    if (said.starts_with(ours)) said.remove_prefix(ours.size());
    const error_text sentence = error_text{} << ours << who.view() << ": " << said;
    if (all[0] == no_memory) throw std::bad_alloc{};
    switch (static_cast<error_code>(all[0])) {
      case error_code::out_of_memory:
        throw out_of_memory{{static_cast<tier>(all[1]), all[2], all[3], all[4], all[5], all[6] != 0, 0, all[7]}};
      case error_code::usage: throw usage_error{sentence};
      case error_code::device: throw device_error{sentence};
      case error_code::io: throw io_error{sentence, {static_cast<int>(all[1]), all[2]}};
      case error_code::format: throw format_error{sentence};
      case error_code::corrupt: throw corrupt_data{sentence};
      case error_code::internal: throw internal_error{sentence};
      default: throw config_error{sentence};
    }
  }

 private:
  static constexpr std::size_t text_begin = 8;
  static constexpr std::size_t text_bytes = 64 * sizeof(std::uint64_t) - 1;  // a zero after it
};

}  // namespace detail

/// A word of every rank, in their order. @throws comm_error
template <exchanges_words Communicator>
[[nodiscard]] std::vector<std::uint64_t> words_of_all(Communicator& ranks, std::uint64_t mine)
{
  std::vector<std::uint64_t> all(ranks.ranks());
  ranks.exchange({&mine, 1}, all);
  return all;
}

/// Runs work on every rank, each its part. If it fails on one rank, all ranks hear of it, and nobody goes on.
///
/// @param work   `bool work()`: this rank has nothing more to do
/// @return   no rank has more to do @throws on every rank the error of the first rank that failed, in its class: "rank
///   2: ..."; a size_overflow is a config_error on other ranks. A comm_error, and an exception that is no error of this
///   library (a rank that ends), are thrown at once: other ranks hear of them by their deadline
/// @complexity   one exchange of a word; in an error another one of 72 words
template <exchanges_words Communicator, class Work>
bool agreed(Communicator& ranks, Work work)
{
  enum : std::uint64_t { done, more, failed };
  detail::error_words::words mine{};
  std::exception_ptr own;
  std::uint64_t word = failed;
  try {
    word = work() ? done : more;
  } catch (const comm_error&) {
    throw;
  } catch (const error& met) {
    mine = detail::error_words::of(met);
    own = std::current_exception();
  } catch (const std::bad_alloc&) {
    mine[0] = detail::error_words::no_memory;
    own = std::current_exception();
  }
  const std::vector<std::uint64_t> all = words_of_all(ranks, word);
  const auto first = std::ranges::find(all, std::uint64_t{failed});
  if (first == all.end()) return std::ranges::all_of(all, [](std::uint64_t it) { return it == done; });
  std::vector<std::uint64_t> texts(mine.size() * ranks.ranks());
  ranks.exchange(mine, texts);
  const auto rank = static_cast<std::uint32_t>(first - all.begin());
  if (rank == index_of(ranks.rank())) std::rethrow_exception(own);
  error_text who;
  detail::tell_rank_of(ranks, who, rank);
  detail::error_words::raise(who, texts.data() + std::size_t{rank} * mine.size());
}

/// The same for work that ends in one call.
template <exchanges_words Communicator, class Work>
void all_or_none(Communicator& ranks, Work work)
{
  (void)agreed(ranks, [&] {
    work();
    return true;
  });
}

/// Checks that all ranks have the same setting, before calls that depend on it. @param mine   the setting as a number
/// @param sentence   the remedy @throws config_error   on every rank: one has another number than rank 0; comm_error
template <exchanges_words Communicator>
void agree_on(Communicator& ranks, std::uint64_t mine, std::string_view sentence)
{
  const std::uint64_t first = words_of_all(ranks, mine)[0];
  all_or_none(ranks, [&] {
    if (mine != first) throw config_error{error_text{} << sentence};
  });
}

}  // namespace collective

}  // namespace chunkmem::inline v0
