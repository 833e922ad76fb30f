// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/replay_memory.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// A stage that allocates the bytes of its parts from a heap that counts, and computes nothing.
class measured_stage {
 public:
  using schedule = chunkmem::pipeline::schedule;
  using operation = chunkmem::pipeline::operation;
  using part_memory = chunkmem::pipeline::part_memory;

  measured_stage(const schedule& plan, const std::vector<part_memory>& parts, std::uint32_t stage) : parts_{parts}
  {
    using enum chunkmem::pipeline::operation_kind;
    for (const operation& step : plan.stages[stage])
      if (step.kind == recompute) again_.insert(key(step));
    for (std::uint32_t part = 0; part < plan.part_count(); ++part) {
      if (plan.owners[part] != stage) continue;
      for (std::uint32_t version = 0; version < plan.versions; ++version)
        hold("weights", {part, version}, parts[part].weights);
      for (std::uint32_t set = 0; set < plan.gradient_sets; ++set)
        hold("gradients", {part, set}, parts[part].gradients);
      hold("states", {part, 0}, parts[part].states);
    }
  }

  void forward(const chunkmem::pipeline::forward_run& run)
  {
    begin_run();
    if (run.step.part == 0) hold("input", key(run.step), parts_[0].input);
    if (!again_.contains(key(run.step))) hold("saved", key(run.step), of(run.step).saved);
    work(of(run.step).forward_working);
  }
  void recompute(const chunkmem::pipeline::forward_run& run)
  {
    begin_run();
    hold("saved", key(run.step), of(run.step).saved);
    work(of(run.step).forward_working);
  }
  void backward(const chunkmem::pipeline::backward_run& run)
  {
    begin_run();
    work(of(run.step).backward_working);
    give_back("saved", key(run.step));
    if (run.step.part == 0) give_back("input", key(run.step));
  }
  void backward_input(const chunkmem::pipeline::backward_run& run)
  {
    backward(run);
    hold("kept", key(run.step), of(run.step).kept_for_weights);
  }
  void backward_weight(const operation& step)
  {
    begin_run();
    work(of(step).backward_working);
    give_back("kept", key(step));
  }
  void offload(const operation& step) { leaving_.push_back({key(step), 2}); }
  void reload(const operation& step) { hold("loaded", key(step), of(step).saved); }
  void update(const operation& step) { work(of(step).update_working); }

  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }

 private:
  using key_type = std::pair<std::uint32_t, std::uint32_t>;
  struct block {
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t size = 0;
  };

  [[nodiscard]] static key_type key(const operation& step) { return {step.part, step.micro_batch}; }
  [[nodiscard]] const part_memory& of(const operation& step) const { return parts_[step.part]; }

  [[nodiscard]] block allocate(chunkmem::bytes size)
  {
    live_ += size.count();
    peak_ = std::max(peak_, live_);
    return {std::make_unique<std::byte[]>(size.count()), size.count()};
  }
  void hold(const char* what, key_type which, chunkmem::bytes size)
  {
    held_.emplace(std::pair{std::string_view{what}, which}, allocate(size));
  }
  void give_back(std::string_view what, key_type which)
  {
    auto found = held_.find({what, which});
    if (found == held_.end() && what == "saved") found = held_.find({"loaded", which});
    live_ -= found->second.size;
    held_.erase(found);
  }
  void work(chunkmem::bytes size)
  {
    const block working = allocate(size);
    live_ -= working.size;
  }
  /// Offloaded tensors are freed when the second run after the offload begins.
  void begin_run()
  {
    for (auto& [which, runs] : leaving_) --runs;
    while (!leaving_.empty() && leaving_.front().second == 0) {
      give_back("saved", leaving_.front().first);
      leaving_.pop_front();
    }
  }

  const std::vector<part_memory>& parts_;
  std::set<key_type> again_;
  std::map<std::pair<std::string_view, key_type>, block> held_;
  std::deque<std::pair<key_type, int>> leaving_;
  std::uint64_t live_ = 0;
  std::uint64_t peak_ = 0;
};

/// The largest number of links of a stage; each link needs an agent of its own.
[[nodiscard]] inline std::size_t most_links(const chunkmem::pipeline::schedule& plan)
{
  std::vector<std::size_t> links(plan.stage_count(), 0);
  for (const auto& [from, to] : pairs_of(plan)) {
    ++links[from];
    ++links[to];
  }
  return *std::ranges::max_element(links);
}

/// The most bytes that each stage held while a stage_runner ran it, including its boundaries.
[[nodiscard]] inline std::vector<chunkmem::bytes> measured_memory(
    const chunkmem::pipeline::schedule& plan, const std::vector<chunkmem::pipeline::part_memory>& parts)
{
  using namespace chunkmem;
  std::vector<bytes> inputs;
  for (const pipeline::part_memory& it : parts) inputs.push_back(inputs.empty() ? bytes{} : it.input);
  std::vector<bytes> found(plan.stage_count());
  pipeline::thread_stages{plan}.run([&](pipeline::thread_stages::place& here) {
    const pipeline::boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = buffers.size() + bytes{256}}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, buffers.size() + bytes{1}),
                                          buffers.size().count()};
    auto links = here.links(memory);
    measured_stage stage{plan, parts, here.stage()};
    pipeline::stage_runner runner{plan, links, memory, buffers, boundaries};
    runner.run(stage);
    found[here.stage()] = bytes{boundaries.size() + stage.peak()};
  });
  return found;
}

}  // namespace support
