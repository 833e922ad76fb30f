// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/call.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/member_names.hpp>
#include <chunkmem/core/error_text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

/// What the sentence of `named_words` says beside the difference.
///
///     const difference_sentence of_steps{"ranks take different steps", "rank", "give all of them the same"};
struct difference_sentence {
  std::string_view what;    ///< the beginning
  std::string_view member;  ///< of the group: "rank" or "stage"
  std::string_view remedy;
};

/// Words that have to be the same on every rank, each with a text. Ranks compare one word of all of them where they
/// talk anyway. Where that one differs, this finds the first that does, and the ranks that have it.
///
///     named_words mine;
///     mine.add("beta1", std::bit_cast<std::uint32_t>(beta1), "beta1 = 0.9");
///     throw usage_error{mine.difference(ranks, of_steps)};  // on every rank, once they know that something differs
///
/// Cost: three exchanges, and memory for all words of all ranks: for the way to an error alone.
class named_words {
 public:
  /// @param key   words of one key are compared   @param text   for a sentence; of what is longer than 127 B, both ends
  void add(std::string_view key, std::uint64_t word, std::string text)
  {
    fingerprint of_key, of_word;
    of_key.add(key);
    of_word.add(word);
    mine_.push_back({of_key.value(), of_word.value() | 1U, std::move(text)});
  }

  /// Every rank has to call it. Ranks may have other keys.
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

  /// A name is as long as its owner likes, and what differs may stand behind it.
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
    const auto said_by = [&](std::size_t rank) {
      std::array<char, text_bytes + 1> text{};
      std::memcpy(text.data(), texts.data() + rank * text_words, text_bytes);
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
