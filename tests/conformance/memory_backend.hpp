// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace conformance {

/// A block of a backend, given back at the end of a scope.
template <class Backend>
class block {
 public:
  block(Backend& backend, chunkmem::tier where, chunkmem::bytes size)
      : backend_{&backend}, where_{where}, place_{backend.allocate(where, size)}
  {
  }
  block(block&& other) noexcept
      : backend_{other.backend_}, where_{other.where_}, place_{std::exchange(other.place_, nullptr)}
  {
  }
  block& operator=(block&&) = delete;
  ~block()
  {
    if (place_ != nullptr) backend_->release(where_, place_);
  }
  [[nodiscard]] std::byte* data() const noexcept { return place_; }

 private:
  Backend* backend_;
  chunkmem::tier where_;
  std::byte* place_;
};

/// Whether copies carry bytes: what the backend says, or the one inside of it.
template <class Backend>
[[nodiscard]] consteval bool carries_bytes() noexcept
{
  if constexpr (
      !requires { Backend::has_bytes; } && requires(Backend& backend) { backend.inner(); })
    return chunkmem::has_bytes<std::remove_cvref_t<decltype(std::declval<Backend&>().inner())>>();
  else
    return chunkmem::has_bytes<Backend>();
}

/// What lies at a place of any tier, as bytes that the calling thread may read; none where there are none.
template <class Backend>
[[nodiscard]] std::vector<std::byte> contents(Backend& backend, const std::byte* place, std::uint64_t size)
{
  if constexpr (!carries_bytes<Backend>()) return {};
  if constexpr (Backend::host_addressable) return {place, place + size};
  std::vector<std::byte> found(size);
  backend.copy(found.data(), place, chunkmem::bytes{size});
  return found;
}

inline constexpr chunkmem::tier both_tiers[] = {chunkmem::tier::device, chunkmem::tier::host};

template <class Backend, class Make>
void a_tier_never_holds_more_than_its_capacity(Make make)
{
  using chunkmem::bytes;
  Backend backend = make(bytes{8'192}, bytes{16'384});
  REQUIRE(backend.capacity(chunkmem::tier::device) == bytes{8'192});
  REQUIRE(backend.capacity(chunkmem::tier::host) == bytes{16'384});
  for (const chunkmem::tier where : both_tiers) {
    const bytes all = backend.capacity(where);
    REQUIRE_THROWS_AS(backend.allocate(where, all + bytes{1}), chunkmem::out_of_memory);
    {
      const block whole{backend, where, all};
      REQUIRE_THROWS_AS(backend.allocate(where, bytes{1}), chunkmem::out_of_memory);
    }
    const block most{backend, where, all - bytes{1}};
    REQUIRE_THROWS_AS(backend.allocate(where, bytes{2}), chunkmem::out_of_memory);
    const block last{backend, where, bytes{1}};
    REQUIRE_THROWS_AS(backend.allocate(where, bytes{1}), chunkmem::out_of_memory);
  }
}

template <class Backend, class Make>
void refusals_are_typed_and_change_nothing(Make make)
{
  using chunkmem::bytes;
  Backend backend = make(bytes{4'096}, bytes{4'096});
  for (const chunkmem::tier where : both_tiers) {
    for (const std::uint64_t absurd : {std::uint64_t{4'097}, std::uint64_t{1} << 62, UINT64_MAX - 4'095, UINT64_MAX}) {
      const block half{backend, where, bytes{2'048}};
      try {
        (void)backend.allocate(where, bytes{absurd});
        FAIL("an allocation of " << absurd << " B in a tier of 4096 B was not refused");
      } catch (const chunkmem::out_of_memory& refused) {
        CHECK(refused.shortage().where == where);
        CHECK(refused.shortage().requested == absurd);
        CHECK(refused.shortage().capacity == 4'096);
        CHECK(refused.shortage().needed > 4'096);
      }
      REQUIRE_THROWS_AS(backend.allocate(where, bytes{absurd}), std::bad_alloc);
      const block rest{backend, where, bytes{2'048}};  // the refusals took nothing
    }
    REQUIRE_THROWS_AS(backend.allocate(where, bytes{0}), chunkmem::usage_error);
  }
  REQUIRE_THROWS_AS(backend.allocate(chunkmem::no_tier, bytes{1}), chunkmem::usage_error);
  REQUIRE(backend.capacity(chunkmem::no_tier) == bytes{0});
}

template <class Backend, class Make>
void allocations_are_aligned_apart_and_come_back(Make make)
{
  using chunkmem::bytes;
  Backend backend = make(bytes{65'536}, bytes{65'536});
  for (int round = 0; round < 3; ++round) {
    for (const chunkmem::tier where : both_tiers) {
      std::vector<block<Backend>> blocks;
      std::vector<std::pair<std::uintptr_t, std::uintptr_t>> spans;
      for (const std::uint64_t size : {1u, 255u, 256u, 257u, 4'095u, 4'096u, 4'097u, 20'000u}) {
        blocks.emplace_back(backend, where, bytes{size});
        const auto first = reinterpret_cast<std::uintptr_t>(blocks.back().data());
        REQUIRE(first != 0);
        REQUIRE(first % chunkmem::tensor_alignment.count() == 0);
        for (const auto& [begin, end] : spans) REQUIRE((first >= end || first + size <= begin));
        spans.emplace_back(first, first + size);
      }
    }
  }
  for (const chunkmem::tier where : both_tiers) {
    for (int i = 0; i < 100; ++i) const block<Backend> whole{backend, where, bytes{65'536}};
  }
  backend.release(chunkmem::tier::host, nullptr);  // nobody's memory: ignored
}

template <class Backend, class Make>
void copies_and_fills_are_done_at_return(Make make)
{
  using chunkmem::bytes;
  using chunkmem::tier;
  Backend backend = make(bytes{8'192}, bytes{8'192});
  const block first{backend, tier::host, bytes{3'000}};
  const block second{backend, tier::device, bytes{3'000}};
  const block third{backend, tier::host, bytes{3'000}};
  backend.fill(first.data(), std::byte{7}, bytes{3'000});
  backend.fill(first.data() + 1'000, std::byte{9}, bytes{1});
  backend.fill(third.data(), std::byte{1}, bytes{3'000});
  backend.copy(second.data(), first.data(), bytes{3'000});
  backend.copy(third.data(), second.data(), bytes{2'999});
  backend.copy(third.data(), second.data(), bytes{0});
  if constexpr (carries_bytes<Backend>()) {
    CHECK(third.data()[0] == std::byte{7});
    CHECK(third.data()[999] == std::byte{7});
    CHECK(third.data()[1'000] == std::byte{9});
    CHECK(third.data()[2'998] == std::byte{7});
    CHECK(third.data()[2'999] == std::byte{1});
    CHECK(contents(backend, second.data(), 3'000)[2'999] == std::byte{7});
  }
}

/// The laws of memory_backend.
///
/// @param make   make(device capacity, host capacity) gives a fresh backend by value
template <chunkmem::memory_backend Backend, class Make>
void memory_backend_laws(Make make)
{
  a_tier_never_holds_more_than_its_capacity<Backend>(make);
  refusals_are_typed_and_change_nothing<Backend>(make);
  allocations_are_aligned_apart_and_come_back<Backend>(make);
  copies_and_fills_are_done_at_return<Backend>(make);
}

}  // namespace conformance
