// SPDX-License-Identifier: Apache-2.0
#include <gpu/kernel_runner.hpp>

#include <chunkmem/activation/sampling_kernels.hpp>
#include <chunkmem/optimizer/decision_kernels.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>
#include <gpu/primitives.hpp>
#include <gpu/round_trip.hpp>
#include <gpu/start.hpp>
#include <gpu/stray_write.hpp>

#include <memory>
#include <stdexcept>
#include <type_traits>

namespace gpu {

using namespace chunkmem;
using namespace chunkmem::optimizer;

struct kernel_runner::state {
  memory_of_gpu memory{{.device_capacity = bytes{std::uint64_t{1} << 30}, .host_capacity = bytes{4096}}};
  kernel_starter launch;

  template <class Body>
  void run(const Body& body)
  {
    launch(memory, round_trip::stream, body);
  }

  /// A function of the runtime that tells at once whether it could start.
  template <class Call>
  void call(Call work)
  {
    memory.launch(round_trip::stream, [&](cudaStream_t stream) {
      if (work(stream) != cudaSuccess) throw std::runtime_error{"a primitive of CUB was refused"};
    });
  }

  template <class Kernel>
  void update(const Kernel& kernel, const parameter_bytes& all, const gradient_transform& how,
              const step_settings& settings, std::uint64_t seed, bool is_overwritten, step_decision decision)
  {
    using factors_type = typename Kernel::device_factors;
    using options_type = std::remove_cvref_t<decltype(kernel.options(settings.group))>;
    round_trip trip{memory};
    parameter_bytes there = all;
    there.value = trip.send(all.value, all.elements * size_of(all.value_type));
    there.gradient = is_overwritten
                         ? there.value
                         : trip.send(const_cast<std::byte*>(all.gradient), all.elements * size_of(all.gradient_type));
    for (std::size_t index = 0; index < all.list_count; ++index)
      there.lists[index].data = trip.send(all.lists[index].data, all.elements * size_of(all.lists[index].type));
    device_step_state begin;
    begin.number = settings.number - 1;
    begin.factor = how.factor;
    begin.decision = decision;
    const device_step_state* const decided = trip.send(begin);
    float rate_here = settings.learning_rate;
    const float* const rate = trip.send(rate_here);
    auto* const factors = reinterpret_cast<factors_type*>(trip.room(sizeof(factors_type)));
    run(factors_kernel<options_type, factors_type>{kernel.options(settings.group), decided, rate, factors});
    const device_parameter it = on_device(there, is_overwritten);
    kernel.with_arithmetic(settings.group, [&]<class Work>(std::type_identity<Work>) {
      run(update_kernel<Work, factors_type>{it, decided, factors, seed, how.limit});
    });
    trip.bring_back();
  }
};

kernel_runner::kernel_runner() : state_{std::make_unique<state>()} {}
kernel_runner::~kernel_runner() = default;

void kernel_runner::update(const adam& kernel, const parameter_bytes& all, const gradient_transform& how,
                           const step_settings& settings, std::uint64_t seed, bool is_overwritten,
                           step_decision decision)
{
  state_->update(kernel, all, how, settings, seed, is_overwritten, decision);
}
void kernel_runner::update(const sgd& kernel, const parameter_bytes& all, const gradient_transform& how,
                           const step_settings& settings, std::uint64_t seed, bool is_overwritten,
                           step_decision decision)
{
  state_->update(kernel, all, how, settings, seed, is_overwritten, decision);
}

gradient_measure kernel_runner::measure(const host_run& gradient)
{
  round_trip trip{state_->memory};
  const std::byte* const there = trip.send(gradient.data, gradient.elements * size_of(gradient.type));
  auto* const sums =
      reinterpret_cast<gradient_measure*>(trip.room(blocks_of(gradient.elements) * sizeof(gradient_measure)));
  block_range none;
  block_range* const range = trip.send(none);
  gradient_measure total;
  gradient_measure* const result = trip.send(total);
  state_->run(measure_kernel{there, gradient.type, gradient.elements, sums, range, 0});
  state_->run(sum_blocks_kernel{sums, range, result, 1});
  trip.bring_back();
  return total;
}

void kernel_runner::cast(const host_run& to, const host_run& from, const rounding_key* key)
{
  round_trip trip{state_->memory};
  const cast_kernel::run_of_elements target{trip.send(to.data, to.elements * size_of(to.type)), to.type};
  const cast_kernel::run_of_elements source{trip.send(from.data, from.elements * size_of(from.type)), from.type};
  if (key == nullptr)
    state_->run(cast_kernel{target, source, from.elements});
  else
    state_->run(cast_kernel{target, source, from.elements, *key, 7});
  trip.bring_back();
}

kernel_runner::found_flags kernel_runner::find_flags(const host_run& numbers)
{
  round_trip trip{state_->memory};
  const std::byte* const there = trip.send(numbers.data, numbers.elements * size_of(numbers.type));
  flags_word found;
  flags_word* const result = trip.send(found);
  std::size_t size = 0;
  if (gpu::find_flags(nullptr, size, nullptr, numbers.type, numbers.elements, nullptr, nullptr) != cudaSuccess)
    throw std::runtime_error{"no size from CUB"};
  std::byte* const temporary = trip.room(size);
  state_->call([&](cudaStream_t stream) {
    return gpu::find_flags(temporary, size, there, numbers.type, numbers.elements, result, stream);
  });
  trip.bring_back();
  return {largest(found), are_finite(found)};
}

kernel_runner::kept_rows kernel_runner::keep(const host_run& input, std::uint64_t rows, std::uint64_t kept,
                                             const rounding_key& key)
{
  using namespace activation::detail;
  const std::uint64_t width = input.elements / rows, parts = (width + measure_block - 1) / measure_block;
  const std::uint64_t temporary_size = sampling_bytes(rows);
  kept_rows result{std::vector<std::byte>(kept * width * size_of(input.type)), std::vector<std::int32_t>(kept),
                   std::vector<float>(kept)};
  round_trip trip{state_->memory};
  const auto words = [&](std::uint64_t count) { return reinterpret_cast<std::uint64_t*>(trip.room(8 * count)); };
  const std::byte* const there = trip.send(input.data, input.elements * size_of(input.type));
  std::byte* const rows_there = trip.send(result.rows.data(), result.rows.size());
  auto* const indices =
      reinterpret_cast<std::int32_t*>(trip.send(reinterpret_cast<std::byte*>(result.indices.data()), 4 * kept));
  auto* const scales =
      reinterpret_cast<float*>(trip.send(reinterpret_cast<std::byte*>(result.scales.data()), 4 * kept));
  auto* const sums = reinterpret_cast<double*>(words(rows * parts));
  std::uint64_t *const numbers = words(rows), *const keys = words(rows), *const sorted = words(rows);
  std::uint64_t *const units = words(rows + 1), *const places = words(kept), *const ordered = words(kept);
  std::uint64_t* const largest = words(largest_number_kernel::blocks_of(rows));
  auto* const chosen = reinterpret_cast<choice_state*>(trip.room(sizeof(choice_state)));
  std::byte* const temporary = trip.room(temporary_size);
  const auto sort = [&](const std::uint64_t* from, std::uint64_t* to, std::uint64_t count) {
    state_->memory.launch(round_trip::stream,
                          [&](cudaStream_t stream) { sort_down(from, to, count, temporary, temporary_size, stream); });
  };
  const auto of = [&](const auto* matrix) {
    using number_type = std::remove_cvref_t<decltype(*matrix)>;
    state_->run(row_squares_kernel<number_type>{matrix, rows, width, sums});
    state_->run(add_squares_kernel{sums, numbers, rows, parts, true});
    state_->run(weigh_kernel{numbers, nullptr, rows, {}});
    state_->run(largest_number_kernel{numbers, rows, largest});
    state_->run(largest_number_kernel{largest, largest_number_kernel::blocks_of(rows), &chosen->largest, true});
    state_->run(keys_kernel{numbers, keys, rows, chosen});
    sort(keys, sorted, rows);
    state_->run(units_kernel{sorted, units, rows});
    state_->memory.launch(round_trip::stream,
                          [&](cudaStream_t stream) { add_up(units, rows + 1, temporary, temporary_size, stream); });
    const row_line line{sorted, units, rows, kept};
    state_->run(always_kernel{line, chosen});
    state_->run(places_kernel{line, chosen, places, key});
    sort(places, ordered, kept);
    state_->run(keep_rows_kernel<number_type>{ordered, matrix, reinterpret_cast<number_type*>(rows_there), indices,
                                              scales, kept, width});
  };
  if (input.type == dtype::bfloat16)
    of(reinterpret_cast<const bf16*>(there));
  else if (input.type == dtype::float16)
    of(reinterpret_cast<const fp16*>(there));
  else
    of(reinterpret_cast<const float*>(there));
  trip.bring_back();
  return result;
}

kernel_runner::packed kernel_runner::pack_and_unpack(std::span<const std::vector<std::byte>> tensors)
{
  packed result;
  result.tensors.assign(tensors.begin(), tensors.end());
  round_trip trip{state_->memory};
  std::vector<packed_line> table;
  std::uint64_t end = 0;
  for (std::vector<std::byte>& each : result.tensors) {
    table.push_back({trip.send(each.data(), each.size()), end, each.size()});
    end += each.size();
  }
  result.run.resize(end);
  const packed_lines all{reinterpret_cast<packed_line*>(
                             trip.send(reinterpret_cast<std::byte*>(table.data()), table.size() * sizeof(packed_line))),
                         table.size(), trip.send(result.run.data(), end)};
  std::size_t size = 0;
  if (packing_size(size, all) != cudaSuccess) throw std::runtime_error{"no size from CUB"};
  std::byte* const temporary = trip.room(size);
  state_->call([&](cudaStream_t stream) { return pack(temporary, size, all, stream); });
  for (const packed_line& it : table)
    if (it.size > 0) state_->memory.fill(it.data, std::byte{0xEE}, bytes{it.size}, round_trip::stream);
  state_->call([&](cudaStream_t stream) { return unpack(temporary, size, all, stream); });
  trip.bring_back();
  return result;
}

kernel_runner::loss kernel_runner::lose_device()
{
  loss result;
  memory_of_gpu& memory = state_->memory;
  std::byte* const place = memory.allocate(tier::device, bytes{4096});
  const auto error_of = [&](auto work) -> std::string {
    try {
      work();
      return {};
    } catch (const device_error& error) {
      result.number = error.fault().number;
      result.is_sticky = error.fault().is_sticky;
      return error.what();
    }
  };
  result.first = error_of([&] {
    state_->run(stray_write{reinterpret_cast<std::uint64_t*>(std::uintptr_t{256})});
    memory.wait(agent::host, memory.record(round_trip::stream));
  });
  result.is_lost = memory.is_lost();
  const std::uint64_t calls = memory.calls();
  result.second = error_of([&] { memory.fill(place, std::byte{1}, bytes{4096}, round_trip::stream); });
  result.calls_afterwards = memory.calls() - calls;
  return result;
}

}  // namespace gpu
