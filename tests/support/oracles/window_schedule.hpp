// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// The least time from a forward/backward boundary to the next one, by trying every order of every agent. Each agent
/// does one task at a time, in an order of its own. A task begins when its agent is free and its predecessors are over.
/// Independent of how a bound is made.
///
///     window_schedule window;
///     const auto backward = window.add("compute", 2.0);
///     const auto sum = window.add("port", 1.0, {backward});
///     CHECK(window.least_seconds() == 3.0);
class window_schedule {
 public:
  using task_id = std::size_t;

  /// @param after   tasks that were added before
  task_id add(const std::string& agent, double seconds, std::vector<task_id> after = {})
  {
    orders_[agent].push_back(tasks_.size());
    tasks_.push_back({seconds, std::move(after)});
    return tasks_.size() - 1;
  }
  /// Keeps the order in which the agent's tasks were added.
  void keep_order(const std::string& agent) { is_kept_[agent] = true; }

  /// Cost: the product of the factorials of the agents' tasks, times tasks squared.
  [[nodiscard]] double least_seconds()
  {
    std::vector<std::vector<task_id>*> free;
    for (auto& [agent, order] : orders_) {
      std::ranges::sort(order);
      if (!is_kept_[agent]) free.push_back(&order);
    }
    double least = std::numeric_limits<double>::infinity();
    try_orders(free, 0, least);
    return least;
  }

 private:
  struct task {
    double seconds;
    std::vector<task_id> after;
  };

  void try_orders(const std::vector<std::vector<task_id>*>& free, std::size_t index, double& least)
  {
    if (index == free.size()) {
      least = std::min(least, seconds());
      return;
    }
    do try_orders(free, index + 1, least);
    while (std::ranges::next_permutation(*free[index]).found);
  }
  /// The time of these orders; infinity where two tasks wait for each other for ever.
  [[nodiscard]] double seconds() const
  {
    constexpr double unknown = -1;
    std::vector<double> end(tasks_.size(), unknown);
    std::vector<std::pair<const std::vector<task_id>*, std::size_t>> agents;
    for (const auto& [agent, order] : orders_) agents.emplace_back(&order, 0);
    for (std::size_t done = 0; done < tasks_.size();) {
      const std::size_t before = done;
      for (auto& [order, next] : agents)
        for (; next < order->size(); ++next, ++done) {
          const task& it = tasks_[(*order)[next]];
          double begin = next == 0 ? 0 : end[(*order)[next - 1]];
          bool is_ready = true;
          for (const task_id other : it.after) {
            is_ready = is_ready && end[other] != unknown;
            begin = std::max(begin, end[other]);
          }
          if (!is_ready) break;
          end[(*order)[next]] = begin + it.seconds;
        }
      if (done == before) return std::numeric_limits<double>::infinity();
    }
    return *std::ranges::max_element(end);
  }

  std::vector<task> tasks_;
  std::map<std::string, std::vector<task_id>> orders_;
  std::map<std::string, bool> is_kept_;
};

}  // namespace support
