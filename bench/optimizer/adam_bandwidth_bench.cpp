// SPDX-License-Identifier: Apache-2.0
// How much of the memory's bandwidth does a fused Adam step use?
//
// The reference is a loop that reads and writes the same bytes in place: 14 B of state for each parameter, 28 B of
// traffic. Same threads, same arrays, runs of all contestants interleaved, the best of 30 each. The figure is Adam on
// bf16 parameters with gradients in place. Also printed: other ways to store a parameter, a step in three passes,
// gradients full of denormals.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace cm = chunkmem;
using namespace cm::optimizer;

namespace {

constexpr double bound = 0.9;
constexpr int rounds = 30;
constexpr std::size_t elements = std::size_t{32} << 20U;  // 448 MiB of states: no cache holds them
constexpr std::size_t grain = 4096;

/// Bytes in huge pages where the system has them, so that page-table walks are not measured.
class huge_array {
 public:
  explicit huge_array(std::size_t bytes) : data_{static_cast<std::byte*>(::operator new(bytes, alignment))}
  {
#if defined(__linux__)
    madvise(data_, bytes, MADV_HUGEPAGE);
#endif
    std::fill_n(data_, bytes, std::byte{0});
  }
  ~huge_array() { ::operator delete(data_, alignment); }
  huge_array(const huge_array&) = delete;
  huge_array& operator=(const huge_array&) = delete;

  [[nodiscard]] std::byte* bytes() const noexcept { return data_; }
  [[nodiscard]] float* floats() const noexcept { return reinterpret_cast<float*>(data_); }
  [[nodiscard]] cm::bf16* halves() const noexcept { return reinterpret_cast<cm::bf16*>(data_); }

 private:
  static constexpr std::align_val_t alignment{std::size_t{2} << 20U};
  std::byte* data_;
};

/// One multiplication for each four bytes, in place.
struct touch_work {
  template <std::size_t Count>
  [[gnu::always_inline]] void run(std::size_t first, float* values) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step) values[first + step] *= 0.999F;
  }
};

struct arrays {
  huge_array momentum{4 * elements}, variance{4 * elements}, master{4 * elements}, value{2 * elements},
      gradient{2 * elements}, wide{4 * elements};

  arrays()
  {
    for (std::size_t index = 0; index < elements; ++index) {
      const float slope = 0.01F * (static_cast<float>(index % 17) - 8.0F);
      master.floats()[index] = 0.1F;
      wide.floats()[index] = slope;
      gradient.halves()[index] = value.halves()[index] = cm::round_to<cm::bf16>(slope);
    }
  }
  [[nodiscard]] parameter_bytes bf16_in_place() const
  {
    parameter_bytes all;
    all.value = value.bytes();
    all.gradient = value.bytes();
    all.value_type = all.gradient_type = cm::dtype::bfloat16;
    all.lists[0] = {momentum.bytes()};
    all.lists[1] = {variance.bytes()};
    all.lists[2] = {master.bytes(), cm::dtype::float32, cm::list_use::master};
    all.list_count = 3;
    all.elements = elements;
    return all;
  }
  [[nodiscard]] parameter_bytes bf16_separate() const
  {
    parameter_bytes all = bf16_in_place();
    all.gradient = gradient.bytes();
    return all;
  }
  [[nodiscard]] parameter_bytes fp32() const
  {
    parameter_bytes all = bf16_in_place();
    all.value = master.bytes();
    all.gradient = wide.bytes();
    all.value_type = all.gradient_type = cm::dtype::float32;
    all.list_count = 2;
    return all;
  }
  /// Only 16 bits: value, gradient, moments.
  [[nodiscard]] parameter_bytes all_bf16() const
  {
    parameter_bytes all = bf16_separate();
    all.lists[0].type = all.lists[1].type = cm::dtype::bfloat16;
    all.list_count = 2;
    return all;
  }
};

/// `work(first, count)` over all elements, on all threads.
template <class Work>
void share_out(thread_pool& pool, std::size_t count, Work work)
{
  const std::size_t parts = 4 * std::size_t{pool.threads()};
  pool.run(static_cast<unsigned>(parts), [&](unsigned part) {
    const std::size_t first = count / grain * part / parts * grain;
    work(first, count / grain * (part + 1) / parts * grain - first);
  });
}

void touch(thread_pool& pool, const arrays& all)
{
  const auto run = [&](float* values, std::size_t count) {
    share_out(pool, count, [&](std::size_t first, std::size_t size) {
      cm::optimizer::detail::for_elements(best_instruction_set(), touch_work{}, size, values + first);
    });
  };
  for (const huge_array* each : {&all.momentum, &all.variance, &all.master}) run(each->floats(), elements);
  run(all.value.floats(), elements / 2);
}

/// The same update without fusion: unscale into float32, update, cast.
void three_passes(thread_pool& pool, const arrays& all, const adam& kernel, std::uint64_t step)
{
  using namespace cm::optimizer::detail;
  const instruction_set set = best_instruction_set();
  share_out(pool, elements, [&](std::size_t first, std::size_t size) {
    transform(set, {0.5F}, size, all.wide.floats() + first,
              static_cast<const cm::bf16*>(all.gradient.halves() + first));
  });
  share_out(pool, elements, [&](std::size_t first, std::size_t size) {
    const auto cut = [&](const huge_array& it) { return std::span{it.floats() + first, size}; };
    kernel.update({cut(all.master), cut(all.wide), {cut(all.momentum), cut(all.variance)}}, {1e-6F, step});
  });
  share_out(pool, elements, [&](std::size_t first, std::size_t size) {
    for_elements(set, narrow_work{}, size, all.value.halves() + first,
                 static_cast<const float*>(all.master.floats() + first));
  });
}

struct contestant {
  const char* name;
  double bytes;  ///< of traffic for each parameter, without reads for ownership
  std::vector<double> seconds{};

  template <class Work>
  void run(Work work)
  {
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  [[nodiscard]] double best() const { return *std::min_element(seconds.begin(), seconds.end()); }
  /// The ratio of the bandwidth to that of the reference, by the best rounds.
  [[nodiscard]] double share_of(const contestant& yardstick) const
  {
    return bytes / yardstick.bytes * yardstick.best() / best();
  }
  /// The median of the rounds, each against its neighbour: a measure of the machine's noise.
  [[nodiscard]] double median_share_of(const contestant& yardstick) const
  {
    std::vector<double> shares;
    for (std::size_t index = 0; index < seconds.size(); ++index)
      shares.push_back(bytes / yardstick.bytes * yardstick.seconds[index] / seconds[index]);
    std::nth_element(shares.begin(), shares.begin() + rounds / 2, shares.end());
    return shares[rounds / 2];
  }
  void print(const contestant& yardstick) const
  {
    std::printf("%-34s %5.0f B %8.2f ms %7.1f GB/s %6.2f Gparam/s   %5.3f   %5.3f\n", name, bytes, best() * 1e3,
                bytes * elements / best() / 1e9, elements / best() / 1e9, share_of(yardstick),
                median_share_of(yardstick));
  }
};

}  // namespace

int main()
{
  thread_pool pool{std::max(1U, std::thread::hardware_concurrency())};
  arrays all;
  const adam kernel;
  const adam small{{}, {.moments = cm::dtype::bfloat16, .masters = false}};
  contestant yardstick{"read and written in place", 28};
  contestant in_place{"bf16, gradient in place", 28};
  contestant separate{"bf16, gradient separate", 28};
  contestant fp32{"fp32", 28};
  contestant tiny{"fp32, denormal gradients", 28};
  contestant passes{"bf16, separate, three passes", 44};
  contestant halves{"bf16 everywhere, no master", 14};
  for (std::uint64_t step = 1; step <= rounds; ++step) {
    const auto update = [&](const adam& how, const parameter_bytes& what, float factor) {
      update_parameter(how, what, {factor}, {1e-6F, 1000 * step}, 1, pool);
    };
    yardstick.run([&] { touch(pool, all); });
    in_place.run([&] { update(kernel, all.bf16_in_place(), 0.5F); });
    separate.run([&] { update(kernel, all.bf16_separate(), 0.5F); });
    fp32.run([&] { update(kernel, all.fp32(), 0.5F); });
    passes.run([&] { three_passes(pool, all, kernel, step); });
  }
  for (std::uint64_t step = 1; step <= rounds; ++step) {
    for (std::size_t index = 0; index < elements && step == 1; ++index) all.wide.floats()[index] = 1e-40F;
    tiny.run([&] { update_parameter(kernel, all.fp32(), {}, {1e-6F, step}, 1, pool); });
    halves.run([&] { update_parameter(small, all.all_bf16(), {}, {1e-6F, step}, 1, pool); });
  }
  std::printf("%u threads, %s, %zu parameters\n", pool.threads(), name_of(best_instruction_set()).data(), elements);
  std::printf("%-34s %7s %11s %12s %15s %7s %7s\n", "", "traffic", "best", "", "", "share", "median");
  for (const contestant* each : {&yardstick, &in_place, &separate, &fp32, &tiny, &passes, &halves})
    each->print(yardstick);
  std::printf("one pass instead of three: %.2f times the parameters\n", passes.best() / separate.best());
  const double share = in_place.share_of(yardstick);
  return transfer_bench::write_figures("adam_bandwidth_bench",
                                       {{"optimizer.adam_over_in_place_bandwidth", share, "ratio", ">=", bound}});
}
