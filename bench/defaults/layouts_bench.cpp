// SPDX-License-Identifier: Apache-2.0
// Which layout moves the fewest bytes, and what does placing cost?
//
// Training steps of published transformers with vocabulary, at a frame of 4 MiB, of the largest 16-bit tensor of the
// body, and at the frame that a search finds for size_class_layout. A manager of the default eviction and transfer, at
// three capacities, with updates on the device and on the host. Layouts place the same tensors: fewer bytes mean less
// waste or better neighbours, and the frames that a stage of the model touches say which.
#include "placed_trace.hpp"

#include "../transfer/managed_run.hpp"

#include <chunkmem/chunk/chunk_size_search.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

using namespace defaults_bench;
using namespace cm::literals;

namespace {

constexpr int warm_up = 6;
constexpr int measured = 6;
constexpr double mebi = 1'048'576;
constexpr double shares[] = {0.15, 0.3, 0.6};  // of the bytes of all tensors, on the device

std::vector<cm::bytes> sizes_of(const workload::transformer_shape& shape, std::uint64_t element)
{
  std::vector<cm::bytes> sizes;
  for (const workload::transformer_tensor& it : workload::tensors_of(shape))
    sizes.emplace_back(it.elements() * element);
  return sizes;
}

/// Bytes that a step moves, over those of all tensors.
double moved(const placed_trace& what, cm::bytes frame, double share)
{
  const auto frames =
      static_cast<std::uint32_t>(share * static_cast<double>(what.payload) / static_cast<double>(frame.count()));
  const auto bytes_of = [&](const cm::decision_log& log) {
    std::uint64_t sum = 0;
    for (const cm::transfer::move& it : log.moves())
      if (it.kind == cm::transfer::move_kind::load || it.kind == cm::transfer::move_kind::write_back)
        sum += what.used[it.chunk];
    return sum;
  };
  try {
    transfer_bench::managed_run<cm::eviction::belady, cm::transfer::lookahead> run{what.step, frames, {}};
    return run.settled(warm_up, measured, bytes_of) / static_cast<double>(what.payload);
  } catch (const cm::error&) {
    return std::numeric_limits<double>::infinity();
  }
}

template <class Layout>
void measure(const workload::named_transformer& which, cm::bytes frame)
{
  cm::chunk_size_search<Layout> search;
  search.add(sizes_of(which.shape, 2));
  search.add(sizes_of(which.shape, 4), 3);
  const auto begin = std::chrono::steady_clock::now();
  const auto found = search.measure(frame);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::printf("%-12s %-9s %-17s %8.2f %8.3f %8.2f |", which.family.data(), which.name.data(), Layout::name.data(),
              static_cast<double>(found.frame.count()) / mebi, 100 * found.waste(), took.count());
  for (const bool on_device : {true, false}) {
    const placed_trace what = placed_step<Layout>{which.shape, found.frame}(on_device);
    if (on_device)
      for (const std::uint64_t touched : what.touched)
        std::printf(" %6.3f", static_cast<double>(touched * found.frame.count()) / static_cast<double>(what.payload));
    std::printf(" |");
    for (const double share : shares) std::printf(" %6.3f", moved(what, found.frame, share));
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main()
{
  std::printf(
      "frame [MiB]; waste [percent]; placing [ms]; frames that stages touch, of the 16-bit "
      "and of\none 32-bit list, over all bytes; bytes moved by a step over all bytes, at %.2f, %.2f and %.2f of them "
      "on "
      "the device,\nwith updates on the device, and on the host\n",
      shares[0], shares[1], shares[2]);
  for (const workload::named_transformer& it : workload::named_transformers) {
    const bool is_chosen = it.name == "Bertlarge" || it.name == "GPT2_1B" || it.name == "GPT2_4B" || it.name == "1.3b";
    if (!is_chosen) continue;
    const std::vector<cm::bytes> values = sizes_of(it.shape, 2);
    cm::chunk_size_search<cm::size_class_layout> search;
    search.add(values, 2);
    search.add(sizes_of(it.shape, 4), 3);
    const cm::bytes largest = cm::align_up(cm::frame_limits::largest_of_body(values), 1_MiB);
    for (const cm::bytes frame : {4_MiB, largest, search.find(cm::frame_limits::of(values)).frame}) {
      measure<cm::append_layout>(it, frame);
      measure<cm::best_fit_layout>(it, frame);
      measure<cm::size_class_layout>(it, frame);
    }
  }
  return 0;
}
