// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/bytes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// Runs a plan by the rules in words, byte by byte. Independent of the library's rows and clocks.
///
/// A run makes tensors and reads tensors. A tensor is dead after its last reader. A tensor that may leave is away from
/// its last reader of the forward pass to its first reader from the first backward run on. A skip that may leave is
/// away between any two readers that are not adjacent, and is written to the host once. Each byte of the device has an
/// owner, and a time from which the next owner may have it.
///
///     const chain_replay replay{chain, budget, plan};
///     replay.needed();    // by step
///     replay.seconds();   // where the plan fits
///     replay.mistake();   // a step that ran without its tensors, or with more bytes than there are; empty: none
class chain_replay {
 public:
  chain_replay(const chunkmem::activation::layer_chain& chain, const chunkmem::activation::activation_budget& budget,
               const chunkmem::activation::activation_plan& plan)
      : chain_{chain}, budget_{budget}, plan_{plan}
  {
    list_tensors();
    count_needed();
    if (!fits()) return;
    list_copies();
    place_loads();
    run();
    look_for_a_crowd();
  }

  [[nodiscard]] const std::vector<std::uint64_t>& needed() const { return needed_; }
  [[nodiscard]] std::uint64_t most_needed() const { return *std::max_element(needed_.begin(), needed_.end()); }
  [[nodiscard]] std::uint64_t host_bytes() const { return host_bytes_; }
  [[nodiscard]] std::uint64_t moved_bytes() const { return moved_bytes_; }
  [[nodiscard]] bool fits() const
  {
    return most_needed() <= budget_.device.count() && host_bytes_ <= budget_.host.count();
  }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] double recomputed_seconds() const { return recomputed_; }
  [[nodiscard]] const std::string& mistake() const { return mistake_; }

 private:
  using run_kind = chunkmem::activation::chain_run;
  struct tensor {
    std::string name;
    std::uint64_t bytes = 0;
    bool may_leave = false;
    std::size_t made = 0;                                     // step
    std::vector<std::size_t> readers{};                       // steps
    std::vector<std::pair<std::size_t, std::size_t>> away{};  // the steps around each absence
    std::size_t skip = 0;                                     // its number from 1 on; 0: it is no skip
    [[nodiscard]] bool is_needed(std::size_t step) const
    {
      const std::size_t last = readers.empty() ? made : readers.back();
      return made <= step && step <= last && std::none_of(away.begin(), away.end(), [&](const auto& absence) {
               return absence.first < step && step < absence.second;
             });
    }
    /// The step after which the bytes that came back from this absence leave, or are dead.
    [[nodiscard]] std::size_t end_after(std::size_t absence) const
    {
      return absence + 1 < away.size() ? away[absence + 1].first : readers.back();
    }
  };
  struct copy {
    std::size_t of = 0;  // tensor
    std::size_t absence = 0;
    std::uint64_t bytes = 0;
    std::size_t from = 0;  // the step from whose begin on it may return
    double written = 0;    // when it has reached the host
    double back = 0;       // when it has returned
  };
  struct stay {
    double begin = 0;
    double end = 0;
    std::uint64_t bytes = 0;
  };

  [[nodiscard]] std::uint64_t frames(chunkmem::bytes size) const
  {
    const std::uint64_t frame = budget_.frame.count();
    return (size.count() + frame - 1) / frame * frame;
  }
  [[nodiscard]] std::size_t turn() const
  {
    std::size_t step = 0;
    while (plan_.steps[step].run != run_kind::backward) ++step;
    return step;
  }

  std::size_t make(const std::string& name, chunkmem::bytes size, bool may_leave, std::size_t step)
  {
    const bool is_empty = size == chunkmem::bytes{};
    tensors_.push_back({.name = name, .bytes = frames(size), .may_leave = may_leave && !is_empty, .made = step});
    return newest_[name] = tensors_.size() - 1;
  }
  void read(const std::string& name, std::size_t step)
  {
    if (newest_.count(name) == 0)
      mistake_ = "step " + std::to_string(step) + " reads " + name + ", which nothing made";
    else
      tensors_[newest_[name]].readers.push_back(step);
  }
  [[nodiscard]] static std::string output_of(std::size_t block) { return "output " + std::to_string(block); }
  [[nodiscard]] static std::string input_of(std::size_t block) { return block == 0 ? "input" : output_of(block - 1); }
  [[nodiscard]] static std::string inner_of(std::size_t block) { return "inner " + std::to_string(block); }
  [[nodiscard]] static std::string gradient_of(std::size_t block) { return "gradient " + std::to_string(block); }

  void list_tensors()
  {
    make("input", chain_.input, plan_.input_leaves[0] != 0, 0);
    for (std::size_t step = 0; step < plan_.steps.size(); ++step) {
      const auto [run, block] = plan_.steps[step];
      const chunkmem::activation::chain_block& what = chain_.blocks[block];
      const bool is_last = block + 1 == chain_.size();
      for (std::size_t skip = 0; skip < chain_.skips.size(); ++skip) meet_skip(skip, step);
      if (run != run_kind::backward) {
        read(input_of(block), step);
        make(output_of(block), what.boundary, !is_last && plan_.input_leaves[block + 1] != 0, step);
        if (run == run_kind::saving)
          make(inner_of(block), chunkmem::bytes{what.saved.count() - what.boundary.count()},
               plan_.inner_leaves[block] != 0, step);
        continue;
      }
      read(inner_of(block), step);
      read(output_of(block), step);
      if (what.reads_input) read(input_of(block), step);
      if (is_last) make(gradient_of(block), what.gradient, false, step);
      read(gradient_of(block), step);
      if (block > 0) make(gradient_of(block - 1), chain_.blocks[block - 1].gradient, false, step);
    }
    for (tensor& it : tensors_) send_away(it);
  }

  void meet_skip(std::size_t which, std::size_t step)
  {
    const auto [run, block] = plan_.steps[step];
    const chunkmem::activation::chain_skip& skip = chain_.skips[which];
    const std::string name = "skip " + std::to_string(which);
    const bool may_leave = !plan_.skips_leave.empty() && plan_.skips_leave[skip.from] != 0;
    const bool is_known = newest_.count(name) != 0;
    if (block == skip.from && run != run_kind::backward) {
      const bool is_away = is_known && may_leave && skip.size > chunkmem::bytes{} && last_use(name) + 1 < step;
      if (is_known && !is_away) return read(name, step);
      tensors_[make(name, skip.size, may_leave, step)].skip = which + 1;
    } else if (block == skip.from || std::count(skip.readers.begin(), skip.readers.end(), block) > 0) {
      read(name, step);
    }
  }
  [[nodiscard]] std::size_t last_use(const std::string& name) const
  {
    const tensor& it = tensors_[newest_.at(name)];
    return it.readers.empty() ? it.made : it.readers.back();
  }

  void send_away(tensor& it) const
  {
    if (it.skip > 0) {
      for (std::size_t before = it.made; const std::size_t reader : it.readers) {
        if (it.may_leave && before + 1 < reader) it.away.push_back({before, reader});
        before = reader;
      }
      return;
    }
    std::size_t before = it.made;
    for (const std::size_t reader : it.readers) {
      if (reader < turn()) before = reader;
      if (reader < turn() || before >= turn() || !it.may_leave) continue;
      it.away.push_back({before, reader});
      return;
    }
  }

  [[nodiscard]] std::uint64_t working(std::size_t step) const
  {
    const auto [run, block] = plan_.steps[step];
    const chunkmem::activation::chain_block& what = chain_.blocks[block];
    const chunkmem::bytes own = run == run_kind::backward ? what.backward_working
                                : run == run_kind::saving ? what.forward_working
                                                          : what.passing_working;
    return frames(own) + frames(what.carried);
  }

  void count_needed()
  {
    for (std::size_t step = 0; step < plan_.steps.size(); ++step) {
      needed_.push_back(working(step));
      for (const tensor& it : tensors_) needed_.back() += it.is_needed(step) ? it.bytes : 0;
    }
    for (const tensor& it : tensors_) {
      if (!it.away.empty()) host_bytes_ += it.bytes;
      moved_bytes_ += it.away.empty() ? 0 : it.bytes * (1 + it.away.size());
    }
  }

  /// A tensor leaves in parts of the largest copy, and the rest.
  void list_copies()
  {
    for (std::size_t index = 0; index < tensors_.size(); ++index)
      for (std::size_t absence = 0; absence < tensors_[index].away.size(); ++absence) {
        std::uint64_t rest = tensors_[index].bytes;
        do {
          const std::uint64_t part = std::min(rest, frames(budget_.copy));
          copies_.push_back({.of = index, .absence = absence, .bytes = part});
          rest -= part;
        } while (rest > 0);
      }
  }

  [[nodiscard]] std::size_t use_of(const copy& it) const { return tensors_[it.of].away[it.absence].second; }
  [[nodiscard]] std::size_t last_before(const copy& it) const { return tensors_[it.of].away[it.absence].first; }

  /// Loads come in the order of their uses, and skips that come back once more after others. Each comes from the
  /// earliest step on from which it has room until its use.
  void place_loads()
  {
    for (std::size_t index = 0; index < copies_.size(); ++index) loads_.push_back(index);
    std::stable_sort(loads_.begin(), loads_.end(), [&](std::size_t left, std::size_t right) {
      const auto key = [&](const copy& it) {
        return std::pair{use_of(it), it.absence > 0 ? tensors_[it.of].skip : std::size_t{0}};
      };
      return key(copies_[left]) < key(copies_[right]);
    });
    std::vector<std::uint64_t> taken = needed_;
    std::size_t before = 0;
    for (const std::size_t index : loads_) {
      copy& it = copies_[index];
      it.from = use_of(it);
      for (std::size_t earlier = it.from; earlier > std::max(before, last_before(it) + 1); it.from = earlier) {
        --earlier;
        if (taken[earlier] + it.bytes > budget_.device.count()) break;
      }
      for (std::size_t step = it.from; step < use_of(it); ++step) taken[step] += it.bytes;
      before = it.from;
    }
  }

  /// The bytes that are free first. @return   the time of the last of them
  double take(std::uint64_t count)
  {
    double when = 0;
    for (; count > 0; --count) {
      if (free_.empty()) {
        mistake_ = "bytes are missing";
        return when;
      }
      when = *free_.begin();
      free_.erase(free_.begin());
    }
    return when;
  }
  void give(double when, std::uint64_t count)
  {
    for (; count > 0; --count) free_.insert(when);
  }

  void run()
  {
    give(0, budget_.device.count());
    begun_.assign(tensors_.size(), 0);
    for (std::size_t step = 0; step < plan_.steps.size(); ++step) {
      start_loads(step, true);
      std::uint64_t made = 0;
      for (const tensor& it : tensors_) made += it.made == step ? it.bytes : 0;
      double start = std::max({seconds_, take(made), take(working(step))});
      start_loads(step, false);
      for (const copy& it : copies_)
        if (use_of(it) == step) start = std::max(start, it.back);
      for (std::size_t index = 0; index < tensors_.size(); ++index)
        if (tensors_[index].made == step) begun_[index] = start;
      seconds_ = start + seconds_of(step);
      stays_.push_back({start, seconds_, working(step)});
      finish(step);
    }
  }

  void start_loads(std::size_t step, bool is_for_this_step)
  {
    for (const std::size_t index : loads_) {
      copy& it = copies_[index];
      if (it.from != step || (use_of(it) == step) != is_for_this_step) continue;
      const double start = std::max({seconds_, to_device_, it.written, take(it.bytes)});
      to_device_ = it.back =
          start + budget_.seconds_per_copy + static_cast<double>(it.bytes) / budget_.to_device_bytes_per_second;
      loaded_.push_back({index, start});
    }
  }

  /// Bytes whose last reader this step was, and bytes that leave after it.
  void finish(std::size_t step)
  {
    give(seconds_, working(step));
    for (std::size_t index = 0; index < tensors_.size(); ++index) {
      const tensor& it = tensors_[index];
      if (it.away.empty() && (it.readers.empty() ? it.made : it.readers.back()) == step) {
        give(seconds_, it.bytes);
        stays_.push_back({begun_[index], seconds_, it.bytes});
      }
      for (copy& part : copies_) {
        if (part.of != index) continue;
        if (part.absence == 0 && it.away.front().first == step) write(part, begun_[index]);
        if (it.end_after(part.absence) == step) give(seconds_, part.bytes);
      }
    }
    for (const auto& [index, start] : loaded_)
      if (const copy& part = copies_[index]; tensors_[part.of].end_after(part.absence) == step)
        stays_.push_back({start, seconds_, part.bytes});
  }
  void write(copy& part, double made)
  {
    to_host_ = std::max(to_host_, seconds_) + budget_.seconds_per_copy +
               static_cast<double>(part.bytes) / budget_.to_host_bytes_per_second;
    part.written = to_host_;
    give(to_host_, part.bytes);
    stays_.push_back({made, to_host_, part.bytes});
  }

  [[nodiscard]] double seconds_of(std::size_t step)
  {
    const auto [run, block] = plan_.steps[step];
    const chunkmem::activation::chain_block& what = chain_.blocks[block];
    if (run == run_kind::backward) return what.backward_seconds;
    if (ran_.insert(block).second) return what.forward_seconds;
    const double again = what.recompute_seconds > 0 ? what.recompute_seconds : what.forward_seconds;
    recomputed_ += again;
    return again;
  }

  /// At no time are there more bytes on the device than it has.
  void look_for_a_crowd()
  {
    for (const stay& now : stays_) {
      std::uint64_t there = 0;
      for (const stay& it : stays_) there += it.begin <= now.begin && now.begin < it.end ? it.bytes : 0;
      if (there > budget_.device.count()) mistake_ = std::to_string(there) + " bytes at " + std::to_string(now.begin);
    }
  }

  const chunkmem::activation::layer_chain& chain_;
  const chunkmem::activation::activation_budget& budget_;
  const chunkmem::activation::activation_plan& plan_;
  std::vector<tensor> tensors_;  // in the order in which they are made, an output before the other bytes of its block
  std::map<std::string, std::size_t> newest_;
  std::vector<std::uint64_t> needed_;
  std::vector<copy> copies_;
  std::vector<std::size_t> loads_;  // copies, in the order of their uses
  std::multiset<double> free_;      // by byte: from when on
  std::vector<double> begun_;       // by tensor
  std::vector<std::pair<std::size_t, double>> loaded_;
  std::vector<stay> stays_;
  std::set<std::uint32_t> ran_;
  std::uint64_t host_bytes_ = 0;
  std::uint64_t moved_bytes_ = 0;
  double seconds_ = 0;
  double to_host_ = 0;
  double to_device_ = 0;
  double recomputed_ = 0;
  std::string mistake_;
};

}  // namespace support
