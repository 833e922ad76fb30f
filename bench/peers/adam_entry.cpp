// SPDX-License-Identifier: Apache-2.0
// chunkmem's updates as plain functions, for adam.py, which compares them with other libraries on the same arrays.
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/element_pass.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cm = chunkmem;
namespace opt = chunkmem::optimizer;

namespace {

constexpr std::size_t grain = 4096;

volatile int one = 1;

template <class Element>
[[gnu::target("avx2"), gnu::optimize("O3")]] void scale(Element* values, std::size_t count) noexcept
{
  const auto factor = static_cast<Element>(one);
  for (std::size_t index = 0; index < count; ++index) values[index] = static_cast<Element>(values[index] * factor);
}

/// The library's own loop for a value without a master, but rounded to nearest.
template <cm::dtype State>
struct nearest_types : opt::detail::usual_types<cm::dtype::bfloat16, false, State> {
  static constexpr bool rounds_value(const auto&) noexcept { return false; }
  static constexpr bool rounds_state(const auto&, std::size_t) noexcept { return false; }
  [[nodiscard]] static bool are(const opt::detail::update_streams<2>& all) noexcept
  {
    return all.states[0].type == State;
  }
};

/// By 64 sums, so that no sum waits for the previous one.
template <class Element>
[[gnu::target("avx2"), gnu::optimize("O3")]] Element sum(const Element* values, std::size_t count) noexcept
{
  constexpr std::size_t lanes = 64;
  Element all[lanes] = {};
  for (std::size_t index = 0; index + lanes <= count; index += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) all[lane] = static_cast<Element>(all[lane] + values[index + lane]);
  Element total{};
  for (const Element each : all) total = static_cast<Element>(total + each);
  return total;
}

}  // namespace

extern "C" {

/// The arrays of one update. Types: 0 float32, 1 bfloat16, 2 float16. No master: null.
struct peer_arrays {
  void* value;
  void* gradient;
  void* momentum;
  void* variance;
  float* master;
  std::uint64_t elements;
  std::int32_t value_type;
  std::int32_t moment_type;
};

void* peer_pool(unsigned threads)
{
  return new opt::thread_pool{threads};
}

/// One step of AdamW. Without a master a value of 16 bits is rounded stochastically, or to nearest.
/// @param with_avx2   use the loops for AVX2, also where the processor has more
void peer_adam(void* pool, const peer_arrays* all, std::uint32_t step, bool rounds_to_nearest, bool with_avx2)
{
  constexpr cm::dtype types[] = {cm::dtype::float32, cm::dtype::bfloat16, cm::dtype::float16};
  const cm::dtype value_type = types[all->value_type];
  const cm::dtype moment_type = types[all->moment_type];
  opt::adam kernel{{.weight_decay = 0.01F},
                   {.moments = moment_type,
                    .masters = all->master != nullptr || value_type == cm::dtype::float32,
                    .instructions = with_avx2 ? opt::instruction_set::avx2 : opt::best_instruction_set()}};
  const opt::step_settings settings{1e-3F, step};
  auto& workers = *static_cast<opt::thread_pool*>(pool);
  opt::parameter_bytes bytes{.value = static_cast<std::byte*>(all->value),
                             .value_type = value_type,
                             .gradient = static_cast<const std::byte*>(all->gradient),
                             .gradient_type = value_type,
                             .elements = all->elements};
  bytes.lists[0] = {static_cast<std::byte*>(all->momentum), moment_type};
  bytes.lists[1] = {static_cast<std::byte*>(all->variance), moment_type};
  bytes.lists[2] = {reinterpret_cast<std::byte*>(all->master), cm::dtype::float32, cm::list_use::master};
  bytes.list_count = kernel.lists().size();
  if (!rounds_to_nearest) return opt::update_parameter(kernel, bytes, {}, settings, 7, workers);

  const std::uint64_t part = opt::detail::elements_of_part(bytes, workers.threads());
  workers.run(static_cast<unsigned>((all->elements + part - 1) / part), [&](unsigned which) noexcept {
    kernel.with_lane_work(settings, [&]<class Work>(const Work& work) {
      opt::detail::update_streams<2> streams;
      streams.gradient = bytes.gradient;
      streams.gradient_type = streams.source_type = streams.value.type = value_type;
      streams.source = bytes.value;
      streams.value.data = bytes.value;
      for (std::size_t state = 0; state < 2; ++state) {
        streams.states[state].data = bytes.lists[state].data;
        streams.states[state].type = moment_type;
      }
      streams.advance(which * part);
      opt::detail::element_pass<Work> pass{work, streams, nullptr};
      pass.template run_as<nearest_types<cm::dtype::float32>, nearest_types<cm::dtype::bfloat16>>(
          kernel.instructions(), std::min(part, all->elements - which * part));
    });
  });
}

/// Reads and writes the same bytes in place, one multiplication for each number; a separate gradient is only read.
void peer_touch(void* pool, const peer_arrays* all, std::uint16_t* sink)
{
  const std::uint64_t parts = (all->elements + grain - 1) / grain;
  const auto each = [&](void* list, std::int32_t type, std::uint64_t first, std::size_t count) noexcept {
    if (list == nullptr) return;
    if (type == 0)
      scale(static_cast<float*>(list) + first, count);
    else
      scale(static_cast<std::uint16_t*>(list) + first, count);
  };
  static_cast<opt::thread_pool*>(pool)->run(static_cast<unsigned>((parts + 15) / 16), [&](unsigned part) noexcept {
    for (std::uint64_t block = part * std::uint64_t{16}; block < std::min(parts, (part + std::uint64_t{1}) * 16);
         ++block) {
      const std::uint64_t first = block * grain;
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(grain, all->elements - first));
      each(all->value, all->value_type, first, count);
      each(all->momentum, all->moment_type, first, count);
      each(all->variance, all->moment_type, first, count);
      each(all->master, 0, first, count);
      if (all->gradient == all->value) continue;
      sink[part % 64] =
          all->value_type == 0
              ? static_cast<std::uint16_t>(sum(static_cast<const float*>(all->gradient) + first, count) > 0)
              : sum(static_cast<const std::uint16_t*>(all->gradient) + first, count);
    }
  });
}

}  // extern "C"
