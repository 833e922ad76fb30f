// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace optimizer {

/// The most bytes of a body: it must fit into a queue of a backend, together with what runs it.
inline constexpr std::size_t largest_body = 120;

/// Lanes that share a block of a `lane_body`: a warp.
inline constexpr std::uint32_t body_lanes = 32;

/// Work that is copied to where it runs, with its pointers: a kernel without the ways to start it.
template <class Body>
concept portable_body =
    std::is_trivially_copyable_v<Body> && sizeof(Body) <= largest_body && requires(const Body& body) {
      {
        body.count()
      } -> std::same_as<std::uint64_t>;
    };

/// Does one part with each call of what `prepared()` gives; each thread may ask for that once and call it often.
///
/// Laws: calls with different indices below `count()` write different bytes, so that they run in any order and at once.
template <class Body>
concept element_body =
    portable_body<Body> && requires(const Body& body, std::uint64_t index) { body.prepared()(index); };

/// Adds up blocks in 32 lanes: `lane(block, at)` is the sum of one lane, lane j takes lane j + 16 (`combine`), then
/// + 8, 4, 2 and 1, and `store(block, sums)` is given the first.
template <class Body>
concept lane_body = portable_body<Body> && std::is_trivially_copyable_v<typename Body::sums_type> &&
                    requires(const Body& body, std::uint64_t block, std::uint32_t at, typename Body::sums_type& sums) {
                      {
                        body.lane(block, at)
                      } -> std::same_as<typename Body::sums_type>;
                      body.combine(sums, sums);
                      body.store(block, sums);
                    };

/// Adds up rows of any length in their order: `total.add(load(row, at))` for each `at` below `length(row)`, then
/// `store(row, total)`.
template <class Body>
concept ordered_body = portable_body<Body> && std::is_trivially_copyable_v<typename Body::total_type> &&
                       requires(const Body& body, std::uint64_t row, typename Body::total_type& total) {
                         {
                           body.length(row)
                         } -> std::same_as<std::uint64_t>;
                         {
                           body.load(row, row)
                         } -> std::same_as<typename Body::total_type>;
                         total.add(total);
                         body.store(row, total);
                       };

/// What a launcher runs on a device, or on the host with the same bits.
///
/// Laws: the bits that it writes depend on what it reads alone, not on the launcher; it throws nothing; `count()` is
/// the number of indices, blocks or rows, and where it is 0 nothing is launched.
template <class Body>
concept device_body = element_body<Body> || lane_body<Body> || ordered_body<Body>;

}  // namespace optimizer

}  // namespace chunkmem::inline v0
