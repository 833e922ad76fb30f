// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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

/// The outcome of the work of one rank.
struct own_outcome {
  enum : std::uint64_t { done, more, failed };

  std::uint64_t word = failed;
  error_words::words error{};    ///< of work that failed
  std::exception_ptr exception;  ///< the same for this rank

  /// @throws comm_error, and exceptions that are no error of this library
  [[nodiscard]] static own_outcome of(call_ref<bool()> work)
  {
    own_outcome mine;
    try {
      mine.word = work() ? done : more;
    } catch (const comm_error&) {
      throw;
    } catch (const chunkmem::error& met) {
      mine.error = error_words::of(met);
      mine.exception = std::current_exception();
    } catch (const std::bad_alloc&) {
      mine.error[0] = error_words::no_memory;
      mine.exception = std::current_exception();
    }
    return mine;
  }
};

}  // namespace detail

class self;

/// Whether a group has one rank by its type, which is collective::self and no class that derives from it: nothing is
/// exchanged, and agreement costs nothing.
template <class Communicator>
inline constexpr bool is_alone = std::is_same_v<Communicator, self>;

/// A word of every rank, in their order. @throws comm_error
template <exchanges_words Communicator>
[[nodiscard]] std::vector<std::uint64_t> words_of_all(Communicator& ranks, std::uint64_t mine)
{
  std::vector<std::uint64_t> all(ranks.ranks());
  ranks.exchange({&mine, 1}, all);
  return all;
}
/// The word of rank 0. @throws comm_error
template <exchanges_words Communicator>
[[nodiscard]] std::uint64_t word_of_first(Communicator& ranks, std::uint64_t mine)
{
  if constexpr (is_alone<Communicator>)
    return mine;
  else
    return words_of_all(ranks, mine)[0];
}
/// The least word of all ranks. @throws comm_error
template <exchanges_words Communicator>
[[nodiscard]] std::uint64_t least_word(Communicator& ranks, std::uint64_t mine)
{
  if constexpr (is_alone<Communicator>)
    return mine;
  else
    return std::ranges::min(words_of_all(ranks, mine));
}

/// Runs work on every rank, each its part. If it fails on one rank, it fails on all of them.
///
/// @param work   `bool work()`: whether this rank has nothing more to do
/// @return   whether no rank has more to do @throws on every rank the error of the first rank that failed, in its
///   class: "rank 2: ..."; a size_overflow is a config_error on other ranks. A comm_error, and an exception that is no
///   error of this library (a rank that ends), are thrown immediately: the other ranks fail by their deadline
/// @complexity   one exchange of a word; in an error another one of 72 words. Alone: the call of `work`
template <exchanges_words Communicator>
bool agreed(Communicator& ranks, call_ref<bool()> work)
{
  if constexpr (is_alone<Communicator>) {
    return work();
  } else {
    using detail::own_outcome;
    const own_outcome mine = own_outcome::of(work);
    const std::vector<std::uint64_t> all = words_of_all(ranks, mine.word);
    const auto first = std::ranges::find(all, std::uint64_t{own_outcome::failed});
    if (first == all.end()) return std::ranges::all_of(all, [](std::uint64_t it) { return it == own_outcome::done; });
    std::vector<std::uint64_t> texts(mine.error.size() * ranks.ranks());
    ranks.exchange(mine.error, texts);
    const auto rank = static_cast<std::uint32_t>(first - all.begin());
    if (rank == index_of(ranks.rank())) std::rethrow_exception(mine.exception);
    error_text who;
    detail::tell_rank_of(ranks, who, rank);
    detail::error_words::raise(who, texts.data() + std::size_t{rank} * mine.error.size());
  }
}

/// The same for work that ends in one call.
template <exchanges_words Communicator>
void all_or_none(Communicator& ranks, call_ref<void()> work)
{
  (void)agreed(ranks, [&] {
    work();
    return true;
  });
}

/// Checks that all ranks have the same setting, before calls that depend on it. @param mine   the setting as a number
/// @param sentence   the remedy @throws config_error   on every rank: a rank differs from rank 0; comm_error
template <exchanges_words Communicator>
void agree_on(Communicator& ranks, std::uint64_t mine, std::string_view sentence)
{
  const std::uint64_t first = word_of_first(ranks, mine);
  all_or_none(ranks, [&] {
    if (mine != first) throw config_error{error_text{} << sentence};
  });
}

/// The parts of the sentence of `named_words` around the difference.
///
///     const difference_sentence of_steps{"ranks take different steps", "rank", "give all of them the same"};
struct difference_sentence {
  std::string_view what;    ///< the beginning
  std::string_view member;  ///< of the group: "rank" or "stage"
  std::string_view remedy;
};

/// Words that have to be the same on every rank, each with a text. Ranks compare one hash of all of them in an exchange
/// that they make anyway. Where the hash differs, this finds the first word that differs, and the ranks that have it.
///
///     named_words mine;
///     mine.add("beta1", std::bit_cast<std::uint32_t>(beta1), "beta1 = 0.9");
///     throw usage_error{mine.difference(ranks, of_steps)};  // on every rank, once they know that something differs
///
/// Cost: three exchanges, and memory for all words of all ranks: only for an error.
class named_words {
 public:
  /// @param key   words with equal keys are compared   @param text   for the sentence; above 127 B, both ends of it
  void add(std::string_view key, std::uint64_t word, std::string text)
  {
    fingerprint of_key, of_word;
    of_key.add(key);
    of_word.add(word);
    mine_.push_back({of_key.value(), of_word.value() | 1U, std::move(text)});
  }

  /// Every rank has to call this. Ranks may have different keys.
  /// @return   the same sentence on every rank: the first difference in the order of `add` @throws comm_error
  template <exchanges_words Communicator>
  [[nodiscard]] error_text difference(Communicator& ranks, const difference_sentence& sentence) const
  {
    const std::vector<std::uint64_t> counts = words_of_all(ranks, mine_.size());
    const auto most = static_cast<std::size_t>(*std::ranges::max_element(counts));
    std::vector<std::uint64_t> own(2 * most);  // keys and words; a word of 0 is none
    for (std::size_t index = 0; index < mine_.size(); ++index) {
      own[2 * index] = mine_[index].key;
      own[2 * index + 1] = mine_[index].word;
    }
    std::vector<std::uint64_t> all(own.size() * ranks.ranks());
    ranks.exchange(own, all);
    const auto [key, words] = first_difference(all, own.size(), ranks.ranks());
    std::array<std::uint64_t, text_words> text{};
    const auto found = std::ranges::find(mine_, key, &entry::key);
    const std::string said = found != mine_.end() ? shortened(found->text) : "nothing like it";
    std::memcpy(text.data(), said.data(), said.size());
    std::vector<std::uint64_t> texts(text.size() * ranks.ranks());
    ranks.exchange(text, texts);
    return text_of(ranks, words, texts, sentence);
  }

 private:
  struct entry {
    std::uint64_t key;
    std::uint64_t word;  // never 0
    std::string text;
  };
  using key_and_words = std::pair<std::uint64_t, std::vector<std::uint64_t>>;
  static constexpr std::size_t text_words = 16;
  static constexpr std::size_t text_bytes = text_words * sizeof(std::uint64_t) - 1;  // a zero after it
  static constexpr std::size_t most_members = 8;                                     // that a sentence lists

  /// Names may be long, and the difference may be at the end of the text.
  [[nodiscard]] static std::string shortened(const std::string& text)
  {
    constexpr std::size_t end = (text_bytes - 5) / 2;
    return text.size() <= text_bytes ? text : text.substr(0, end) + " ... " + text.substr(text.size() - end);
  }
  /// @param each   numbers of a rank @return   the key, and the words of all ranks; a key of 0 where nothing differs
  [[nodiscard]] static key_and_words first_difference(const std::vector<std::uint64_t>& all, std::size_t each,
                                                      std::uint32_t ranks)
  {
    std::map<std::uint64_t, std::vector<std::uint64_t>> words;
    for (std::size_t at = 0; at < all.size(); at += 2)
      if (all[at + 1] != 0) words.try_emplace(all[at], ranks).first->second[at / each] = all[at + 1];
    for (std::size_t index = 0; index < each; index += 2)
      for (std::size_t at = index; at < all.size(); at += each)
        if (const auto found = words.find(all[at]); found != words.end() && !are_equal(found->second)) return *found;
    return {0, std::vector<std::uint64_t>(ranks)};
  }
  [[nodiscard]] static bool are_equal(const std::vector<std::uint64_t>& words)
  {
    return std::ranges::all_of(words, [&](std::uint64_t it) { return it == words[0]; });
  }
  /// The lowest rank with the word that most ranks have.
  [[nodiscard]] static std::size_t usual(const std::vector<std::uint64_t>& words)
  {
    std::size_t found = 0;
    for (std::size_t rank = 1; rank < words.size(); ++rank)
      if (std::ranges::count(words, words[rank]) > std::ranges::count(words, words[found])) found = rank;
    return found;
  }
  template <class Communicator>
  [[nodiscard]] static error_text text_of(const Communicator& ranks, const std::vector<std::uint64_t>& words,
                                          const std::vector<std::uint64_t>& texts, const difference_sentence& sentence)
  {
    const std::size_t reference = usual(words);
    std::vector<std::size_t> others;
    for (std::size_t rank = 0; rank < words.size(); ++rank)
      if (words[rank] != words[reference]) others.push_back(rank);
    const auto said_by = [&](std::size_t which) {  // a global `rank` of a program would be shadowed
      std::array<char, text_bytes + 1> text{};
      std::memcpy(text.data(), texts.data() + which * text_words, text_bytes);
      return std::string{text.data()};
    };
    error_text all;
    const auto say = [&](std::size_t member) {
      all << said_by(member) << " on ";
      if (sentence.member == "rank")
        detail::tell_rank_of(ranks, all, static_cast<std::uint32_t>(member));
      else
        all << sentence.member << " " << member;
    };
    all << "chunkmem: " << sentence.what << ": ";
    if (!others.empty()) {
      say(others[0]);
      all << ", and ";
      say(reference);
    }
    if (others.size() > 1) {
      all << "; " << sentence.member << "s";
      for (std::size_t index = 0; index < std::min(others.size(), most_members); ++index)
        all << (index == 0 ? " " : ", ") << others[index];
      if (others.size() > most_members) all << " and " << others.size() - most_members << " more";
      all << " differ from " << sentence.member << " " << reference;
    }
    return all << " (" << sentence.remedy << ")";
  }

  std::vector<entry> mine_;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
