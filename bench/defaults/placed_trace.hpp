// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../eviction/gpt_trace.hpp"

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/chunk/chunk_size_search.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace defaults_bench {

namespace cm = chunkmem;
namespace workload = chunkmem::workload;

/// A training step of a published transformer whose tensors a layout has placed.
struct placed_trace {
  eviction_bench::trace step;          ///< its frames stand for frames of the layout
  std::vector<std::uint64_t> used;     ///< bytes of each chunk that a copy moves
  std::vector<std::uint64_t> touched;  ///< frames that each layer's forward pass touches, summed over the layers [0]
                                       ///< and the same for one 32-bit list of its updates [1]
  std::uint64_t payload = 0;           ///< bytes of all tensors
};

/// 16-bit weights with gradients in place, and three lists of 32 bits; chunks of their own for each list. The forward
/// pass pins module after module, the backward pass recomputes each layer, and updates come in the order in which
/// gradients are complete. Leases are those of eviction_bench::gpt_writer.
template <class Layout>
class placed_step {
 public:
  static constexpr std::uint32_t lists = 4;

  placed_step(const workload::transformer_shape& shape, cm::bytes frame)
      : tensors_{workload::tensors_of(shape)}, frame_{frame.count()}, is_tied_{shape.ties_embedding}
  {
    for (std::uint32_t list = 0; list < lists; ++list) place(list == 0 ? 2 : 4);
    for (std::uint32_t index = 0; index < tensors_.size();) {
      const std::uint32_t begin = index;
      while (index < tensors_.size() && stage_of(index) == stage_of(begin)) ++index;
      stages_.push_back({begin, index});
    }
  }

  placed_trace operator()(bool on_device)
  {
    std::vector<std::uint32_t> checkpoints;
    for (const stage& it : stages_) checkpoints.push_back(forward(it));
    if (is_tied_) pin(0, cm::entry_kind::read);
    for (std::size_t index = stages_.size(); index-- > 0;) backward(stages_[index], checkpoints[index]);
    for (std::size_t index = tensors_.size(); index-- > 0;) update(static_cast<std::uint32_t>(index), on_device);
    return {log_.finish(frames_), used_, {touched(0), touched(1)}, payload_};
  }

 private:
  struct stage {
    std::uint32_t begin;
    std::uint32_t end;
  };

  void place(std::uint64_t element)
  {
    std::vector<cm::bytes> sizes;
    for (const workload::transformer_tensor& it : tensors_) sizes.emplace_back(it.elements() * element);
    std::vector<cm::chunk_place> places(sizes.size());
    Layout layout;
    layout.reset(cm::bytes{frame_});
    cm::place_all(layout, std::span<const cm::bytes>{sizes}, std::span{places});
    const auto base = static_cast<std::uint32_t>(frames_.size());
    for (std::size_t index = 0; index < places.size(); ++index) {
      const std::uint32_t chunk = base + places[index].chunk;
      if (chunk >= frames_.size()) frames_.resize(chunk + 1, 1), used_.resize(chunk + 1, 0);
      frames_[chunk] = std::max(frames_[chunk], places[index].frames);
      used_[chunk] = std::max(used_[chunk], places[index].offset + sizes[index].count());
      chunk_of_.push_back(chunk);
      payload_ += sizes[index].count();
    }
  }

  /// Layers are counted from 1; the tensors before and after them are stages of their own.
  [[nodiscard]] std::uint64_t stage_of(std::uint32_t index) const
  {
    using enum workload::transformer_operator;
    const workload::transformer_tensor& it = tensors_[index];
    if (it.part == embedding) return 0;
    return it.part == logits || it.part == final_norm ? UINT64_MAX : it.layer + 1;
  }
  [[nodiscard]] std::uint32_t chunk_of(std::uint32_t tensor, std::uint32_t list) const
  {
    return chunk_of_[list * tensors_.size() + tensor];
  }
  [[nodiscard]] std::uint64_t weights_of(const stage& it) const
  {
    std::uint64_t sum = 0;
    for (std::uint32_t index = it.begin; index < it.end; ++index) sum += 2 * tensors_[index].elements();
    return sum;
  }
  std::uint32_t lease(std::uint64_t bytes) { return log_.lease(bytes * eviction_bench::frame_bytes / frame_ + 1); }
  void pin(std::uint32_t tensor, cm::entry_kind kind) { log_.brief(chunk_of(tensor, 0), kind); }

  /// Modules in order; the tensors of one are pinned together.
  void pin_modules(const stage& it, cm::entry_kind kind)
  {
    for (std::uint32_t index = it.begin; index < it.end;) {
      std::vector<std::uint32_t> pins;
      const std::uint32_t module = tensors_[index].module;
      for (; index < it.end && tensors_[index].module == module; ++index)
        pins.push_back(log_.access(chunk_of(index, 0), kind));
      for (const std::uint32_t each : pins) log_.release(each);
    }
  }
  std::uint32_t forward(const stage& it)
  {
    const std::uint64_t weights = it.begin == 0 ? 0 : weights_of(it);  // the table of the vocabulary has no activations
    const std::uint32_t checkpoint = lease(weights / 16);
    const std::uint32_t set = lease(weights * 3 / 2);
    pin_modules(it, cm::entry_kind::read);
    log_.release(set);
    return checkpoint;
  }
  void backward(const stage& it, std::uint32_t checkpoint)
  {
    const std::uint32_t set = lease(it.begin == 0 ? 0 : weights_of(it) * 3 / 2);
    pin_modules(it, cm::entry_kind::read);
    for (std::uint32_t index = it.end; index-- > it.begin;) pin(index, cm::entry_kind::read_write);
    log_.release(set);
    log_.release(checkpoint);
  }
  void update(std::uint32_t tensor, bool on_device)
  {
    const cm::entry_kind kind = on_device ? cm::entry_kind::read_write : cm::entry_kind::read_write_on_host;
    std::vector<std::uint32_t> pins;
    for (std::uint32_t list = 0; list < lists; ++list) pins.push_back(log_.access(chunk_of(tensor, list), kind));
    for (const std::uint32_t each : pins) log_.release(each);
  }

  [[nodiscard]] std::uint64_t touched(std::uint32_t list) const
  {
    std::uint64_t frames = 0;
    for (const stage& it : stages_) {
      std::vector<std::uint32_t> chunks;
      for (std::uint32_t index = it.begin; index < it.end; ++index) chunks.push_back(chunk_of(index, list));
      std::ranges::sort(chunks);
      chunks.erase(std::ranges::unique(chunks).begin(), chunks.end());
      for (const std::uint32_t chunk : chunks) frames += frames_[chunk];
    }
    return frames;
  }

  std::vector<workload::transformer_tensor> tensors_;
  std::uint64_t frame_;
  bool is_tied_;
  std::vector<std::uint32_t> frames_;
  std::vector<std::uint64_t> used_;
  std::vector<std::uint32_t> chunk_of_;  // by list, then by tensor
  std::vector<stage> stages_;
  std::uint64_t payload_ = 0;
  eviction_bench::trace_writer log_;
};

}  // namespace defaults_bench
