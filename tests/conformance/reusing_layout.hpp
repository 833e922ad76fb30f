// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/error.hpp>
#include <conformance/trials.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace conformance {

/// A layout beside the plain model: a row of what is live. Each call is judged at once.
template <class Layout>
class reuse_trial {
 public:
  reuse_trial(const Layout& prototype, std::uint64_t frame) : layout_{prototype}, frame_{frame}
  {
    layout_.reset(chunkmem::bytes{frame});
  }

  std::string place(std::uint64_t size) { return enter(layout_.place(chunkmem::bytes{size}), size); }

  std::string place_together(const std::vector<chunkmem::bytes>& sizes)
  {
    std::uint64_t total = 0;
    std::uint64_t largest = 1;
    for (const chunkmem::bytes size : sizes) {
      total += (size.count() + 255) / 256 * 256;
      largest = std::max(largest, size.count());
    }
    const bool fits = total <= (largest + frame_ - 1) / frame_ * frame_;
    std::vector<chunkmem::chunk_place> places(sizes.size(), {77, 77, 77});
    const std::vector<chunkmem::chunk_place> untouched = places;
    Layout before = layout_;
    if (layout_.place_together(sizes, places) != fits)
      return fits ? "a group that fits was refused" : "a group that is too large was placed";
    if (!fits) {
      Layout after = layout_;
      if (places != untouched) return "a refused group got places";
      return after.place(sizes[0]) == before.place(sizes[0]) ? "" : "a refused group changed something";
    }
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      if (places[index].chunk != places[0].chunk) return "a group lies in two chunks";
      if (std::string wrong = enter(places[index], sizes[index].count()); !wrong.empty()) return wrong;
    }
    return {};
  }

  void erase(std::uint32_t which)
  {
    std::swap(live_[which], live_.back());
    layout_.erase(live_.back().place, chunkmem::bytes{live_.back().size});
    live_.pop_back();
  }
  [[nodiscard]] std::uint32_t live() const { return static_cast<std::uint32_t>(live_.size()); }
  [[nodiscard]] std::uint32_t chunks() const { return static_cast<std::uint32_t>(frames_of_.size()); }

 private:
  struct entry {
    chunkmem::chunk_place place;
    std::uint64_t size;
  };

  std::string enter(const chunkmem::chunk_place& place, std::uint64_t size)
  {
    if (place.offset % 256 != 0) return "a place is not aligned";
    if (place.chunk > frames_of_.size()) return "a chunk was passed over";
    if (place.chunk == frames_of_.size()) frames_of_.push_back(place.frames);
    if (frames_of_[place.chunk] != place.frames) return "a chunk changed its length";
    if (place.offset + size > place.frames * frame_) return "a tensor reaches beyond its chunk";
    for (const entry& other : live_)
      if (other.place.chunk == place.chunk && other.place.offset < place.offset + size &&
          place.offset < other.place.offset + other.size)
        return "two tensors share a byte";
    live_.push_back({place, size});
    return {};
  }

  Layout layout_;
  std::uint64_t frame_;
  std::vector<entry> live_;
  std::vector<std::uint32_t> frames_of_;
};

/// One trial on a random sequence of insertions, erasures and groups.
template <class Layout>
[[nodiscard]] std::string mistake_in_reuse(const Layout& prototype, std::uint64_t seed)
{
  using chunkmem::bytes;
  support::dice dice{seed};
  const std::uint64_t frame = 256 * std::uint64_t{dice.between(1, 12)};
  const auto size = [&] {
    return std::uint64_t{dice.one_in(6) ? dice.between(1, 3) * static_cast<std::uint32_t>(frame)
                                        : dice.between(1, static_cast<std::uint32_t>(frame))};
  };
  reuse_trial<Layout> trial{prototype, frame};
  for (std::uint32_t step = dice.between(4, 14); step > 0; --step) {
    std::string wrong;
    if (const std::uint32_t what = dice.below(8); what < 3)
      wrong = trial.place(size());
    else if (what < 6 && trial.live() > 0)
      trial.erase(dice.below(trial.live()));
    else {
      std::vector<bytes> group(dice.between(1, 4));
      for (bytes& each : group) each = bytes{dice.one_in(8) ? size() : 1 + size() / 3};
      wrong = trial.place_together(group);
    }
    if (!wrong.empty()) return wrong;
  }
  return {};
}

/// What a layout with reuse refuses, and that nothing is changed by it.
template <class Layout>
[[nodiscard]] std::string mistake_in_refused_reuse(const Layout& prototype)
{
  using chunkmem::bytes;
  using chunkmem::size_overflow;
  using chunkmem::usage_error;
  Layout layout = prototype;
  layout.reset(bytes{256});
  std::vector<chunkmem::chunk_place> places(2);
  for (const std::uint64_t huge : {UINT64_MAX, UINT64_MAX - 511, std::uint64_t{1} << 41})
    if (!is_refused_as<size_overflow>([&] { (void)layout.place_together(std::vector{bytes{1}, bytes{huge}}, places); }))
      return "a group beyond the numbers of a chunk was no size_overflow";
  if (!is_refused_as<usage_error>([&] { (void)layout.place_together(std::vector{bytes{1}}, places); }))
    return "a group with more places than sizes was no usage_error";
  if (!is_refused_as<usage_error>([&] { layout.erase({0, 0, 1}, bytes{1}); }))
    return "erasing from a chunk that was never opened was no usage_error";
  const auto first = layout.place(bytes{1});
  if (first.chunk != 0 || first.offset != 0) return "a refused call changed something";
  layout.erase(first, bytes{1});
  if (!is_refused_as<usage_error>([&] { layout.erase(first, bytes{1}); }))
    return "erasing a place twice was no usage_error";
  return {};
}

/// Which law of reusing_layout is broken in so many random sequences; empty: none.
template <chunkmem::reusing_layout Layout>
[[nodiscard]] std::string mistake_in_reusing_layout(std::uint64_t sequences, const Layout& prototype = {})
{
  std::string mistake = first_mistake(sequences, [&](std::uint64_t seed) { return mistake_in_reuse(prototype, seed); });
  return !mistake.empty() ? mistake
                          : first_mistake(1, [&](std::uint64_t) { return mistake_in_refused_reuse(prototype); });
}

/// The laws of reusing_layout on `sequences` random sequences of insertions, erasures and groups.
template <chunkmem::reusing_layout Layout>
void reusing_layout_laws(std::uint64_t sequences, const Layout& prototype = {})
{
  require_trials(sequences, [&](std::uint64_t seed) { return mistake_in_reuse(prototype, seed); });
  require_trials(1, [&](std::uint64_t) { return mistake_in_refused_reuse(prototype); });
}

}  // namespace conformance
