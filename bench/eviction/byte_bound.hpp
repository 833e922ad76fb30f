// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpt_trace.hpp"

#include <glpk.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace eviction_bench {

/// The fewest frames that any sequence of moves can have in each iteration that repeats: a linear program over the gaps
/// between the uses of each chunk, as if chunks could be split and any free frames were adjacent.
///
/// A gap is kept (it fills frames at each access) or dropped (the chunk is loaded again if its next use needs bytes).
/// The first dropped gap after a write costs a write-back. Source: the interval program of Albers, Arora and Khanna
/// 1999 (SODA), cyclic over the end of an iteration.
class byte_bound {
 public:
  explicit byte_bound(const trace& what)
      : trace_{what}, access_count_{what.record.size()}, pinned_(access_count_), leased_(access_count_)
  {
    collect_uses();
    for (std::uint32_t chunk = 0; chunk < what.chunks(); ++chunk) collect_gaps(chunk);
  }

  [[nodiscard]] double operator()(std::uint32_t device_frames) const
  {
    glp_term_out(GLP_OFF);
    glp_prob* const program = glp_create_prob();
    build(program, device_frames);
    double value = -1;
    glp_smcp how;
    glp_init_smcp(&how);
    how.presolve = GLP_ON;
    how.meth = GLP_DUALP;
    if (glp_simplex(program, &how) == 0 && glp_get_status(program) == GLP_OPT) value = glp_get_obj_val(program);
    glp_delete_prob(program);
    if (value < 0) throw std::runtime_error{"the linear program was not solved"};
    return value + constant_;
  }

  /// The fewest frames that a plan of one iteration moves, if it keeps or drops each whole gap: an integer program.
  [[nodiscard]] double of_whole_gaps(std::uint32_t device_frames) const
  {
    glp_term_out(GLP_OFF);
    glp_prob* const program = glp_create_prob();
    build(program, device_frames);
    for (int index = 1; index <= static_cast<int>(gaps_.size()) + epochs_; ++index)
      glp_set_col_kind(program, index, GLP_BV);
    double value = -1;
    glp_iocp how;
    glp_init_iocp(&how);
    how.presolve = GLP_ON;
    how.tm_lim = 60'000;
    how.gmi_cuts = how.mir_cuts = how.clq_cuts = GLP_ON;
    if (glp_intopt(program, &how) == 0 && glp_mip_status(program) == GLP_OPT) value = glp_mip_obj_val(program);
    glp_delete_prob(program);
    if (value < 0) throw std::runtime_error{"the integer program was not solved"};
    return value + constant_;
  }

 private:
  struct use {
    std::uint32_t begin;
    std::uint32_t end;  // access before which the chunk was released
    cm::entry_kind kind;
  };
  struct gap {
    std::uint32_t begin;
    std::uint32_t end;  // of the accesses in the gap, cyclic over the end
    std::uint32_t size;
    bool loads;
    int epoch;  // -1: dropping costs no write-back
  };

  void collect_uses()
  {
    uses_.resize(trace_.chunks());
    for (std::uint32_t index = 0; index < access_count_; ++index) {
      const cm::access_entry& entry = trace_.record.entries()[index];
      const std::uint32_t until = trace_.record.details()[index].until;
      if (entry.kind == cm::entry_kind::lease_device)
        for (std::uint32_t now = index; now < until; ++now) leased_[now] += trace_.record.details()[index].bytes;
      if (!cm::is_access(entry.kind)) continue;
      uses_[entry.slot].push_back({index, until, entry.kind});
      if (cm::place_of(entry.kind) == cm::memory_location::device)
        for (std::uint32_t now = index; now < until; ++now) pinned_[now] += trace_.frames_of_chunk[entry.slot];
    }
  }

  void collect_gaps(std::uint32_t chunk)
  {
    const std::vector<use>& uses = uses_[chunk];
    const std::uint32_t size = trace_.frames_of_chunk[chunk];
    int epoch = -1;
    bool dirty = false;
    for (std::size_t step = 0; step < 2 * uses.size(); ++step) {  // the first round finds the dirty chunks
      const bool counts = step >= uses.size();
      const use& now = uses[step % uses.size()];
      const use& next = uses[(step + 1) % uses.size()];
      const bool here = cm::place_of(now.kind) == cm::memory_location::device;
      if (here && cm::writes(cm::access_of(now.kind))) {
        dirty = true;
        if (counts)
          epoch = epochs_++;
        else
          epoch = -1;
        sizes_.resize(static_cast<std::size_t>(epochs_), size);
      } else if (!here && cm::writes(cm::access_of(now.kind))) {
        dirty = false;
        epoch = -1;
      }
      if (!counts) continue;
      if (dirty && epoch < 0) {  // the epoch that began before the first use
        epoch = epochs_++;
        sizes_.resize(static_cast<std::size_t>(epochs_), size);
        wraps_.push_back(epoch);
      }
      const bool loads = cm::access_of(next.kind) != cm::access::write;
      if (cm::place_of(next.kind) == cm::memory_location::host)
        constant_ += dirty ? size : 0;  // it is loaded in any case
      else if (!here)
        constant_ += loads ? size : 0;
      else if (now.end % access_count_ != next.begin)
        gaps_.push_back({now.end % access_count_, next.begin, size, loads, dirty ? epoch : -1});
    }
    join_wrapped(epoch, dirty);
  }

  /// A chunk that is dirty at the begin of an iteration continues the epoch from its end.
  void join_wrapped(int last, bool dirty)
  {
    if (!wraps_.empty() && dirty)
      for (gap& it : gaps_)
        if (it.epoch == wraps_.back()) it.epoch = last;
    wraps_.clear();
  }

  void build(glp_prob* program, std::uint32_t device_frames) const
  {
    // Columns: dropped (one for each gap), written back (one for each epoch), frames held by gaps (one for each
    // access).
    const int gaps = static_cast<int>(gaps_.size());
    const int access_count = static_cast<int>(access_count_);
    glp_set_obj_dir(program, GLP_MIN);
    glp_add_cols(program, gaps + epochs_ + access_count);
    for (int index = 0; index < gaps + epochs_; ++index) {
      glp_set_col_bnds(program, index + 1, GLP_DB, 0, 1);
      const gap* const it = index < gaps ? &gaps_[static_cast<std::size_t>(index)] : nullptr;
      glp_set_obj_coef(program, index + 1,
                       it != nullptr ? (it->loads ? it->size : 0) : sizes_[static_cast<std::size_t>(index - gaps)]);
    }
    for (std::uint32_t index = 0; index < access_count_; ++index) {
      const double free =
          std::floor(static_cast<double>(device_frames) - static_cast<double>(leased_[index]) / frame_bytes) -
          pinned_[index];
      if (free < 0) throw std::runtime_error{"the trace does not fit"};
      glp_set_col_bnds(program, gaps + epochs_ + static_cast<int>(index) + 1, free > 0 ? GLP_DB : GLP_FX, 0, free);
    }
    add_rows(program, gaps, access_count);
  }

  void add_rows(glp_prob* program, int gaps, int access_count) const
  {
    glp_add_rows(program, access_count);
    std::vector<std::vector<int>> columns(access_count_);
    std::vector<std::vector<double>> factors(access_count_);
    std::vector<double> right(access_count_, 0);
    const int held = gaps + epochs_ + 1;  // column of the first access
    for (int index = 0; index < access_count; ++index) {
      columns[static_cast<std::size_t>(index)].push_back(held + index);
      factors[static_cast<std::size_t>(index)].push_back(1);
      if (index > 0) {
        columns[static_cast<std::size_t>(index)].push_back(held + index - 1);
        factors[static_cast<std::size_t>(index)].push_back(-1);
      }
    }
    const auto add = [&](std::uint32_t access_index, int column, double size) {  // size * (1 - dropped)
      columns[access_index].push_back(column);
      factors[access_index].push_back(size);
      right[access_index] += size;
    };
    for (int index = 0; index < gaps; ++index) {
      const gap& it = gaps_[static_cast<std::size_t>(index)];
      const bool spans_first = it.end < it.begin || it.begin == 0;
      if (spans_first) add(0, index + 1, it.size);
      if (it.begin != 0) add(it.begin, index + 1, it.size);
      if (it.end != 0) add(it.end, index + 1, -static_cast<double>(it.size));
    }
    for (std::uint32_t index = 0; index < access_count_; ++index) {
      glp_set_row_bnds(program, static_cast<int>(index) + 1, GLP_FX, right[index], right[index]);
      glp_set_mat_row(program, static_cast<int>(index) + 1, static_cast<int>(columns[index].size()),
                      columns[index].data() - 1, factors[index].data() - 1);
    }
    for (int index = 0; index < gaps; ++index) {
      const int epoch = gaps_[static_cast<std::size_t>(index)].epoch;
      if (epoch < 0) continue;
      const int row = glp_add_rows(program, 1);
      const int which[] = {0, gaps + epoch + 1, index + 1};
      const double factor[] = {0, 1, -1};
      glp_set_row_bnds(program, row, GLP_LO, 0, 0);
      glp_set_mat_row(program, row, 2, which, factor);
    }
  }

  const trace& trace_;
  std::uint32_t access_count_;
  std::vector<std::uint32_t> pinned_;
  std::vector<std::uint64_t> leased_;
  std::vector<std::vector<use>> uses_;
  std::vector<gap> gaps_;
  std::vector<std::uint32_t> sizes_;  // of the chunk of each epoch
  std::vector<int> wraps_;
  int epochs_ = 0;
  double constant_ = 0;
};

}  // namespace eviction_bench
