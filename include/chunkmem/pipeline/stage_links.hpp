// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// An ordered pair of stages: bytes go from the first one to the second one.
using stage_pair = std::pair<std::uint32_t, std::uint32_t>;

/// The pairs of stages between which a schedule sends, ascending. Cost: O(parts log parts).
///
///     for (const auto [from, to] : pairs_of(plan)) ...
[[nodiscard]] inline std::vector<stage_pair> pairs_of(const schedule& plan)
{
  std::vector<stage_pair> pairs;
  for (std::uint32_t part = 0; part + 1 < plan.part_count(); ++part) {
    if (!plan.crosses_after(part)) continue;
    pairs.emplace_back(plan.owners[part], plan.owners[part + 1]);
    pairs.emplace_back(plan.owners[part + 1], plan.owners[part]);
  }
  std::ranges::sort(pairs);
  const auto rest = std::ranges::unique(pairs);
  pairs.erase(rest.begin(), rest.end());
  return pairs;
}

namespace detail {

/// "stage 2 of replica 1 on node07". @param pipeline, host   may be empty
[[nodiscard]] inline std::string name_of_stage(std::uint32_t stage, std::string_view pipeline,
                                               std::string_view host = {})
{
  std::string text = "stage " + std::to_string(stage);
  if (!pipeline.empty()) text.append(" of ").append(pipeline);
  if (!host.empty()) text.append(" on ").append(host);
  return text;
}
/// The names of a link's two stages in errors. @param stages   names of all
[[nodiscard]] inline collective::member_names names_of_link(const stage_pair& pair,
                                                            const std::vector<std::string>& stages,
                                                            std::uint32_t micro_batches)
{
  return {"the link from stage " + std::to_string(pair.first) + " to stage " + std::to_string(pair.second),
          {stages[pair.first], stages[pair.second]},
          micro_batches};
}

}  // namespace detail

/// One stage's ends of its links: a communicator of two ranks for each direction of each pair of stages.
///
/// Each direction has a communicator and an agent of its own, so that all work at once: a communicator runs its calls
/// in order, so an early receive would block a later send. In each communicator the sender is rank 0 and the receiver
/// rank 1.
///
///     stage_links<collective::local_threads> links{stage};
///     links.add({0, 1}, down, memory.adopt());
///     links.add({1, 0}, up, memory.adopt());
/// The communicators outlive this object.
template <class Communicator>
class stage_links {
 public:
  using communicator_type = Communicator;

  /// @param made_for   `identity_of` the schedule that all stages have agreed on; 0: unknown
  explicit stage_links(std::uint32_t stage, std::uint64_t made_for = 0) noexcept : stage_{stage}, made_for_{made_for} {}

  /// A link with its agent.
  struct link {
    stage_pair pair{};
    Communicator* ends = nullptr;
    agent stream = agent::host;
  };

  /// @throws usage_error   the pair is not one of this stage, was added already, or the communicator has other ranks
  void add(stage_pair pair, Communicator& ends, agent stream)
  {
    if (pair.first == pair.second || (pair.first != stage_ && pair.second != stage_))
      throw usage_error{"a link is not one of its stage (give pairs of the stage and another one)"};
    if (ends.ranks() != 2 || index_of(ends.rank()) != (pair.first == stage_ ? 0U : 1U))
      throw usage_error{"a link is no group of two ranks with the sender first (make a group for each direction)"};
    if (find(pair) != nullptr) throw usage_error{"a link of a stage is given twice"};
    links_.push_back({pair, &ends, stream});
  }

  [[nodiscard]] std::uint32_t stage() const noexcept { return stage_; }
  [[nodiscard]] std::uint64_t made_for() const noexcept { return made_for_; }
  /// Null: there is no such link.
  [[nodiscard]] const link* find(stage_pair pair) const noexcept
  {
    const auto at = std::ranges::find(links_, pair, &link::pair);
    return at == links_.end() ? nullptr : &*at;
  }
  [[nodiscard]] std::span<const link> all() const noexcept { return links_; }
  /// Revokes the communicator of every link, so that no stage waits for this one until a deadline.
  void revoke() noexcept
  {
    for (link& it : links_) it.ends->revoke();
  }
  /// @threads any, where the communicator's `check` may be called on any
  [[nodiscard]] bool has_failed() const noexcept
  {
    try {
      check();
    } catch (...) {
      return true;
    }
    return false;
  }
  /// @throws comm_error   a link has failed: the first cause
  void check() const
  {
    for (const link& it : links_) it.ends->check();
  }

 private:
  std::uint32_t stage_;
  std::uint64_t made_for_;  // 0: unknown
  std::vector<link> links_;
};

/// The ends of one stage's links, whether stages are threads, processes or GPUs.
///
///     stage_ends<collective::local_threads> ends{stage, identity_of(plan)};
///     ends.add({0, 1}, down, rank_id{0});
///     stage_links links = ends.links(memory);
template <class Communicator>
class stage_ends {
 public:
  using communicator_type = Communicator;

  /// @param made_for   as of stage_links
  stage_ends(std::uint32_t stage, std::uint64_t made_for) noexcept : stage_{stage}, made_for_{made_for} {}
  stage_ends(const stage_ends&) = delete;

  [[nodiscard]] std::uint32_t stage() const noexcept { return stage_; }
  /// `identity_of` the schedule of all stages.
  [[nodiscard]] std::uint64_t made_for() const noexcept { return made_for_; }
  /// Constructs the end of a link from these arguments. All stages add their links in ascending order, so that
  /// constructors that wait for the other end do not deadlock.
  template <class... Arguments>
  Communicator& add(stage_pair pair, Arguments&&... of_end)
  {
    Communicator& made = ends_.emplace_back(std::forward<Arguments>(of_end)...);
    pairs_.push_back(pair);
    return made;
  }
  /// Calls `visit(pair, end)` for each link, in ascending order.
  template <class Visit>
  void for_each_end(Visit visit)
  {
    for (std::size_t index = 0; index < pairs_.size(); ++index) visit(pairs_[index], ends_[index]);
  }
  /// The links, each with an agent of this backend. Call it once for each backend.
  /// @throws usage_error   the backend has no more agents
  template <stream_backend Backend>
  [[nodiscard]] stage_links<Communicator> links(Backend& backend)
  {
    stage_links<Communicator> all{stage_, made_for_};
    for_each_end([&](stage_pair pair, Communicator& end) { all.add(pair, end, backend.adopt()); });
    return all;
  }

 private:
  std::uint32_t stage_;
  std::uint64_t made_for_;
  std::deque<Communicator> ends_;  // they do not move
  std::vector<stage_pair> pairs_;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
