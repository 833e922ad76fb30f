// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace collective {

/// The operations of a group of ranks.
enum class operation : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  send,
  receive,
  barrier,
  exchange
};

[[nodiscard]] constexpr std::string_view name_of(operation what) noexcept
{
  constexpr std::string_view names[] = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                        "send",       "receive",        "barrier",    "exchange"};
  return names[static_cast<std::size_t>(what)];
}

/// One operation as every rank that takes part has to ask for it. Numbers only: addresses differ between ranks.
///
///     const call asked{.what = operation::broadcast, .size = 4'096, .root = 0, .label = chunk};
struct call {
  operation what = operation::barrier;
  dtype type = dtype::uint8;
  std::uint64_t size = 0;   ///< of the whole run, over all ranks [bytes]
  std::uint32_t root = 0;   ///< the sender, of a broadcast, send or receive
  std::uint32_t label = 0;  ///< the subject, such as the index of a chunk
  std::uint32_t scale = 0;  ///< bits of the factor of a sum

  [[nodiscard]] constexpr bool operator==(const call&) const noexcept = default;
};

/// 64 bits that tell one sequence of calls from another. Ranks compare them instead of their whole plans.
///
/// Each word goes through the finalizer of SplitMix64 (Steele, Lea, Flood 2014), which maps no two words to one: two
/// sequences that differ in one call always differ, and others with probability 1 - 2^-64. It is no secret, so it does
/// not stop an attacker.
///
/// Use:
///
///     fingerprint all;
///     all.add(next_call);        // of each call, in order
///     ... all.value()            // compare it between ranks
class fingerprint {
 public:
  constexpr void add(std::uint64_t word) noexcept { value_ = mixed(value_ ^ mixed(word + 0x9e3779b97f4a7c15U)); }
  constexpr void add(const call& next) noexcept
  {
    add(static_cast<std::uint64_t>(next.what) << 8U | static_cast<std::uint64_t>(next.type));
    add(next.size);
    add(std::uint64_t{next.root} << 32U | next.label);
    add(next.scale);
  }
  /// Its length too: two texts one after the other are not one.
  constexpr void add(std::string_view text) noexcept
  {
    add(text.size());
    for (std::size_t begin = 0; begin < text.size(); begin += 8) {
      std::uint64_t word = 0;
      for (const char it : text.substr(begin, 8)) word = word << 8U | static_cast<unsigned char>(it);
      add(word);
    }
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

  [[nodiscard]] constexpr bool operator==(const fingerprint&) const noexcept = default;

 private:
  [[nodiscard]] static constexpr std::uint64_t mixed(std::uint64_t word) noexcept
  {
    word = (word ^ word >> 30U) * 0xbf58476d1ce4e5b9U;
    word = (word ^ word >> 27U) * 0x94d049bb133111ebU;
    return word ^ word >> 31U;
  }

  std::uint64_t value_ = 0;
};

/// The fingerprint of one call alone.
[[nodiscard]] constexpr std::uint64_t fingerprint_of(const call& one) noexcept
{
  fingerprint result;
  result.add(one);
  return result.value();
}

}  // namespace collective

}  // namespace chunkmem::inline v0
