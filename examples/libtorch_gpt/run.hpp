// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../output_file.hpp"
#include "dry_forward.hpp"
#include "options.hpp"

#include "size_text.hpp"
#include "text.hpp"
#include "windows.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace libtorch_gpt {

/// What a training left, on the CPU.
struct outcome {
  std::vector<float> losses;
  std::vector<at::Tensor> values;
  double tokens_per_second = 0.0;  ///< after the steps that warm up
  std::string report = "{}";       ///< of the manager
};

/// What a forward pass saves, where that is to lie in chunks.
template <cm::element Element>
[[nodiscard]] saved_sizes saved_in_chunks(const options& chosen, at::Device device)
{
  if (!chosen.keeps_activations) return {};
  return sizes_saved_by(chosen.how.size, chosen.how.recompute, scalar_of<Element>, device,
                        chosen.how.sample.has_value());
}

/// Rows, indices and scales of all sampled inputs.
[[nodiscard]] inline cm::bytes bytes_of_samples(const settings& how)
{
  if (!how.sample) return {};
  const cm::bytes narrow = sampling_of(how, how.size.width).size(cm::dtype::float32);
  const cm::bytes wide = sampling_of(how, 4 * how.size.width).size(cm::dtype::float32);
  return cm::bytes{static_cast<std::uint64_t>(how.size.layers) * (3 * narrow.count() + wide.count())};
}

/// All that lies in chunks.
[[nodiscard]] inline std::uint64_t bytes_in_chunks(const options& chosen, const saved_sizes& saved)
{
  std::uint64_t all = model_data(chosen.how.size).count() + bytes_of_samples(chosen.how).count();
  for (const std::size_t size : saved) all += cm::align_up(cm::bytes{size}, cm::tensor_alignment).count();
  return all;
}
[[nodiscard]] inline chunkmem::bytes host_of(const options& chosen, const saved_sizes& saved)
{
  const std::uint64_t all = bytes_in_chunks(chosen, saved);
  return chosen.host ? *chosen.host : chunkmem::bytes{all + all / 10 + (1U << 20)};  // and some for whole frames
}
[[nodiscard]] inline chunkmem::bytes budget_of(const options& chosen, const saved_sizes& saved)
{
  return chosen.device ? *chosen.device : chunkmem::bytes{bytes_in_chunks(chosen, saved) / 4};
}

/// Windows of a text, drawn by counters: the same ones for every run.
/// @throws gpt::problem   the text has fewer fixed windows than a step has rows
[[nodiscard]] inline gpt::training_windows windows_of(const options& chosen, const gpt::training_text& text)
{
  const extents& size = chosen.how.size;
  return {text, static_cast<std::size_t>(size.context), chosen.how.seed, chosen.windows,
          static_cast<std::uint64_t>(size.batch * size.micro_batches)};
}
[[nodiscard]] inline token_source tokens_of(const gpt::training_windows& windows, const extents& size,
                                            at::Device device)
{
  return [windows, size, device](std::size_t step, std::size_t micro_batch) {
    at::Tensor tokens = at::empty({size.batch, size.context + 1}, at::kLong);
    auto* to = tokens.data_ptr<std::int64_t>();
    const std::size_t first = micro_batch * static_cast<std::size_t>(size.batch);
    for (std::size_t row = first; row < first + static_cast<std::size_t>(size.batch); ++row)
      to = std::copy_n(windows.tokens(step, row), size.context + 1, to);
    return tokens.to(device);
  };
}
[[nodiscard]] inline sample_numbers numbers_of(const gpt::training_windows& windows, const extents& size)
{
  const auto of = [windows, batch = static_cast<std::size_t>(size.batch)](std::size_t step, std::size_t micro_batch) {
    std::vector<std::uint64_t> numbers;
    for (std::size_t row = micro_batch * batch; row < (micro_batch + 1) * batch; ++row)
      numbers.push_back(windows.number(step, row));
    return numbers;
  };
  return {of, windows.count()};
}

/// Takes all steps and prints each. @param step   one step by number: its loss
template <class Step>
void take_steps(const options& chosen, outcome& into, Step&& step)
{
  using clock = std::chrono::steady_clock;
  const double tokens =
      static_cast<double>(chosen.how.size.context * chosen.how.size.batch * chosen.how.size.micro_batches);
  auto warm = clock::now();
  for (std::size_t index = 0; index < chosen.steps; ++index) {
    if (index == chosen.warm_up) warm = clock::now();
    const auto begin = clock::now();
    into.losses.push_back(step(index));
    const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
    std::printf("step %3zu  loss %.6f  %10.0f tokens/s", index + 1, static_cast<double>(into.losses.back()),
                tokens / seconds);
    const double left = seconds * static_cast<double>(chosen.steps - index - 1);
    if (left >= 5) std::printf("  %.0f s left", left);
    std::printf("\n");
    std::fflush(stdout);
  }
  if (chosen.steps <= chosen.warm_up) return;
  const double seconds = std::chrono::duration<double>(clock::now() - warm).count();
  into.tokens_per_second = tokens * static_cast<double>(chosen.steps - chosen.warm_up) / seconds;
}

/// Says how much of the activations went through chunks.
template <class Saved>
void tell_saved(const Saved& saved, const saved_sizes& sizes)
{
  std::printf("activations: %zu places in chunks; %s were saved there, %s found no place and stayed with LibTorch\n",
              sizes.size(), gpt::size_text(cm::bytes{saved.saved_bytes()}).c_str(),
              gpt::size_text(cm::bytes{saved.unplaced_bytes()}).c_str());
}

/// Says how much of the sampled inputs is kept.
template <class Inputs>
void tell_samples(const Inputs& inputs)
{
  std::printf("samples: of %zu inputs %s are kept, in place of %s\n", inputs.size(),
              gpt::size_text(inputs.kept_bytes()).c_str(), gpt::size_text(inputs.bytes_of_all_rows()).c_str());
}

/// Trains with the parameters in chunks of this backend, and with what a forward pass saves where `saved` says it.
template <cm::element Element, class Backend>
[[nodiscard]] outcome run(const options& chosen, Backend& memory, const torch_place& where,
                          const gpt::training_text& text, const saved_sizes& saved)
{
  using manager = cm::manager<Backend>;
  cm::optimizer::thread_pool workers{chosen.threads};
  manager m{memory, {.chunk_bytes = cm::least_waste_chunks}};
  const gpt::training_windows windows = windows_of(chosen, text);
  chunked_training<manager, Element> training{m,       where, chosen.how,
                                              workers, saved, numbers_of(windows, chosen.how.size)};
  const cm::memory_requirement need = m.seal();
  const auto capacity = memory.capacity(cm::tier::device);
  std::printf("\n%s %s in chunks of %s; the device may hold %s of it (%.0f %%)\n",
              saved.empty() ? "model data" : "model data and activations", gpt::size_text(need.chunks).c_str(),
              gpt::size_text(need.chunk_bytes).c_str(), gpt::size_text(capacity).c_str(),
              100.0 * static_cast<double>(capacity.count()) / static_cast<double>(need.chunks.count()));
  training.fill();
  outcome result;
  const token_source tokens = tokens_of(windows, chosen.how.size, where.device);
  take_steps(chosen, result, [&](std::size_t index) { return training.step(index, tokens); });
  result.values = training.values();
  const auto report = m.report();
  std::printf("moved %s to the device and %s back, %llu evictions, %llu divergences\n",
              gpt::size_text(report.loaded).c_str(), gpt::size_text(report.written_back).c_str(),
              static_cast<unsigned long long>(report.evictions), static_cast<unsigned long long>(report.divergences));
  if (training.saved() != nullptr) tell_saved(*training.saved(), saved);
  if (training.inputs() != nullptr) tell_samples(*training.inputs());
  result.report = report.json();
  return result;
}

/// Trains with tensors of LibTorch, in float32 on the CPU.
[[nodiscard]] inline outcome run_plain(const options& chosen, const gpt::training_text& text)
{
  std::printf("\nwithout chunkmem\n");
  plain_training training{chosen.how};
  outcome result;
  const token_source tokens = tokens_of(windows_of(chosen, text), chosen.how.size, at::kCPU);
  take_steps(chosen, result, [&](std::size_t index) { return training.step(index, tokens); });
  result.values = training.values();
  return result;
}

/// Says whether losses and parameters are the same, bit for bit.
[[nodiscard]] inline bool says_identical(const char* other, const outcome& left, const outcome& right)
{
  std::size_t losses = 0;
  for (std::size_t index = 0; index < left.losses.size(); ++index)
    losses += left.losses[index] == right.losses[index] ? 1 : 0;
  std::size_t values = 0;
  for (std::size_t index = 0; index < left.values.size(); ++index)
    values += at::equal(left.values[index], right.values[index]) ? 1 : 0;
  std::printf("verify, %s: %zu losses, %zu identical; %zu parameters, %zu identical\n", other, left.losses.size(),
              losses, left.values.size(), values);
  return losses == left.losses.size() && values == left.values.size();
}

/// A number that reads back as itself; JSON has no word for one that is not finite but null.
[[nodiscard]] inline std::string json_number(double value, int digits)
{
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

/// @throws std::runtime_error   the file cannot be written; there is none then, or the one of before
inline void write_report(const options& chosen, const outcome& result)
{
  if (!chosen.report) return;
  command_line::output_file<std::runtime_error> out{"--report", *chosen.report};
  std::ostream& file = out.text();
  file << "{\"tokens_per_second\": " << json_number(result.tokens_per_second, 17) << ", \"losses\": [";
  for (std::size_t index = 0; index < result.losses.size(); ++index)
    file << (index > 0 ? ", " : "")
         << json_number(static_cast<double>(result.losses[index]), std::numeric_limits<float>::max_digits10);
  file << "], \"memory\": " << result.report << "}\n";
  out.finish();
}

}  // namespace libtorch_gpt
