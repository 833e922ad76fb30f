// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace support {

/// One value for each axis of a matrix of tests.
template <std::size_t Axes>
using point = std::array<std::uint8_t, Axes>;

/// Every point that `is_legal` accepts. @param extents   the number of values of each axis
template <std::size_t Axes, class IsLegal>
[[nodiscard]] std::vector<point<Axes>> legal_points(const point<Axes>& extents, IsLegal is_legal)
{
  std::vector<point<Axes>> all;
  point<Axes> now{};
  for (;;) {
    if (is_legal(now)) all.push_back(now);
    std::size_t axis = 0;
    while (axis < Axes && ++now[axis] == extents[axis]) now[axis++] = 0;
    if (axis == Axes) return all;
  }
}

/// The combinations of values of `Strength` axes that occur in points.
template <std::size_t Axes, std::size_t Strength>
class combinations {
  static_assert(Strength == 2 || Strength == 3);

 public:
  explicit combinations(const point<Axes>& extents)
  {
    std::size_t sum = 0;
    for (std::size_t axis = 0; axis < Axes; ++axis) {
      first_[axis] = sum;
      sum += extents[axis];
    }
    values_ = sum;
    has_.assign(Strength == 3 ? sum * sum * sum : sum * sum, 0);
  }

  /// @return   the number of this point's combinations that did not occur yet
  [[nodiscard]] std::size_t fresh(const point<Axes>& from) const
  {
    std::size_t count = 0;
    visit(from, [&](std::size_t index) { count += has_[index] == 0 ? 1U : 0U; });
    return count;
  }
  void add(const point<Axes>& from)
  {
    visit(from, [&](std::size_t index) {
      count_ += has_[index] == 0 ? 1U : 0U;
      has_[index] = 1;
    });
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  template <class Visit>
  void visit(const point<Axes>& from, Visit use) const
  {
    const auto value = [&](std::size_t axis) -> std::size_t { return first_[axis] + from[axis]; };
    for (std::size_t one = 0; one < Axes; ++one)
      for (std::size_t two = one + 1; two < Axes; ++two) {
        const std::size_t pair = value(one) * values_ + value(two);
        if constexpr (Strength == 2) {
          use(pair);
        } else {
          for (std::size_t three = two + 1; three < Axes; ++three) use(pair * values_ + value(three));
        }
      }
  }

  std::array<std::size_t, Axes> first_{};  // number of the first value of each axis among all values
  std::size_t values_ = 0;
  std::size_t count_ = 0;
  std::vector<std::uint8_t> has_;
};

/// A subset of the points with every combination that occurs in all points and not in `before`: a covering array of
/// this strength.
///
/// Each next point has the most missing combinations, among a random part of the points. Source: the greedy
/// one-row-at-a-time algorithm of AETG (Cohen et al. 1997). Cost: about points x combinations of a point / 16 for each
/// row.
template <std::size_t Strength, std::size_t Axes>
[[nodiscard]] std::vector<point<Axes>> covering(const point<Axes>& extents, const std::vector<point<Axes>>& points,
                                                const std::vector<point<Axes>>& before = {})
{
  combinations<Axes, Strength> all{extents}, found{extents};
  for (const point<Axes>& each : before) {
    all.add(each);
    found.add(each);
  }
  for (const point<Axes>& each : points) all.add(each);
  std::vector<point<Axes>> rows;
  std::size_t stride = 16;
  for (std::size_t round = 0; found.count() < all.count(); ++round) {
    const point<Axes>* best = nullptr;
    std::size_t most = 0;
    for (std::size_t index = round * 7 % stride; index < points.size(); index += stride)
      if (const std::size_t fresh = found.fresh(points[index]); fresh > most) {
        most = fresh;
        best = &points[index];
      }
    if (best == nullptr) {  // the last missing combinations are in few points
      stride = 1;
      continue;
    }
    found.add(*best);
    rows.push_back(*best);
  }
  return rows;
}

}  // namespace support
