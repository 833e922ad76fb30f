// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/ordered_sum.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace collective {

/// A group of one rank; the default. Sends nothing and never waits.
///
/// A sum over one rank is still scaled and rounded, so that one rank has the numbers of several. With a scale of 1 its
/// bytes stay as they are, payloads of NaN included.
///
/// Use:
///
///     collective::self alone;
///     cm::sharded_model<memory_type, collective::self> m{memory, alone, options};   // one rank
///
/// @threads   one caller at a time
class self {
 public:
  using policy_kind = communicator_kind;
  static constexpr std::string_view name = "self";

  [[nodiscard]] rank_id rank() const noexcept { return rank_id{0}; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return 1; }

  /// @throws usage_error   the shards are for several ranks; the same for the other calls below
  template <stream_backend Backend>
  void all_gather(Backend&, agent, std::byte*, const shares& parts, std::uint32_t)
  {
    require(parts);
  }
  template <stream_backend Backend>
  void reduce_scatter(Backend& backend, agent stream, std::byte* whole, const shares& parts, sum how, std::uint32_t)
  {
    require(parts);
    require_summable(how, parts.whole);
    if (how.scale == 1 || parts.whole == 0) return;
    if constexpr (Backend::host_addressable)
      backend.launch(stream, [whole, size = bytes{parts.whole}, how]() noexcept {
        const std::byte* const only[] = {whole};
        add_in_order(whole, only, size, how);
      });
    else
      throw usage_error{"a sum over one rank is scaled where the host cannot reach its bytes (scale by 1 there)"};
  }
  template <stream_backend Backend>
  void all_reduce(Backend& backend, agent stream, std::byte* whole, const shares& parts, sum how, std::uint32_t label)
  {
    reduce_scatter(backend, stream, whole, parts, how, label);
  }

  /// @throws usage_error   another rank than 0
  template <stream_backend Backend>
  void broadcast(Backend&, agent, std::byte*, bytes, rank_id root, std::uint32_t)
  {
    if (root != rank()) throw usage_error{"a broadcast from a rank that is not there (one rank: 0)"};
  }
  /// @throws usage_error   always: there is no other rank
  template <stream_backend Backend>
  void send(Backend&, agent, std::byte*, bytes, rank_id, std::uint32_t)
  {
    throw usage_error{"a rank that is alone sends bytes (make a group of several ranks)"};
  }
  /// @throws usage_error   always: there is no other rank
  template <stream_backend Backend>
  void receive(Backend&, agent, std::byte*, bytes, rank_id, std::uint32_t)
  {
    throw usage_error{"a rank that is alone receives bytes (make a group of several ranks)"};
  }
  template <stream_backend Backend>
  void barrier(Backend&, agent, std::uint32_t)
  {
  }

  /// @throws usage_error   `all` has another length than `mine`
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)
  {
    if (all.size() != mine.size()) throw usage_error{"words of all ranks are not as many as ranks times words of one"};
    for (std::size_t index = 0; index < mine.size(); ++index) all[index] = mine[index];
  }
  void check() const noexcept {}
  void revoke() noexcept {}

 private:
  static void require(const shares& parts)
  {
    if (parts.ranks != 1)
      throw usage_error{error_text{} << "chunkmem: shares for " << parts.ranks
                                     << " ranks were given to a group of 1 (make them for it)"};
  }
};

}  // namespace collective

}  // namespace chunkmem::inline v0
