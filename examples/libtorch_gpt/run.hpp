// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../json_text.hpp"
#include "../output_file.hpp"
#include "dry_forward.hpp"
#include "options.hpp"

#include "problem.hpp"
#include "size_text.hpp"
#include "text.hpp"
#include "windows.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace libtorch_gpt {

/// The result of a training, on the CPU.
struct outcome {
  std::vector<float> losses;
  std::vector<at::Tensor> values;
  double tokens_per_second = 0.0;  ///< after the steps that warm up
  std::string report = "{}";       ///< of the manager
};

/// The sizes of the tensors that a forward pass saves in chunks.
template <cm::element Element>
[[nodiscard]] saved_sizes saved_in_chunks(const options& chosen, at::Device device)
{
  if (!chosen.keeps_activations) return {};
  return sizes_saved_by(chosen.how.size, chosen.how.recompute, scalar_of<Element>, device,
                        chosen.how.sample.has_value());
}

/// Bytes of rows, indices and scales of all sampled inputs.
[[nodiscard]] inline cm::bytes bytes_of_samples(const settings& how)
{
  if (!how.sample) return {};
  const cm::bytes narrow = sampling_of(how, how.size.width).size(cm::dtype::float32);
  const cm::bytes wide = sampling_of(how, 4 * how.size.width).size(cm::dtype::float32);
  return cm::bytes{static_cast<std::uint64_t>(how.size.layers) * (3 * narrow.count() + wide.count())};
}

/// All bytes in chunks.
[[nodiscard]] inline std::uint64_t bytes_in_chunks(const options& chosen, const saved_sizes& saved)
{
  std::uint64_t all = model_data(chosen.how.size).count() + bytes_of_samples(chosen.how).count();
  for (const std::size_t size : saved) all += cm::align_up(cm::bytes{size}, cm::tensor_alignment).count();
  return all;
}
[[nodiscard]] inline chunkmem::bytes host_of(const options& chosen, const saved_sizes& saved)
{
  const std::uint64_t all = bytes_in_chunks(chosen, saved);
  return chosen.host ? *chosen.host : chunkmem::bytes{all + all / 10 + (1U << 20)};  // and room for whole frames
}
[[nodiscard]] inline chunkmem::bytes budget_of(const options& chosen, const saved_sizes& saved)
{
  return chosen.device ? *chosen.device : chunkmem::bytes{bytes_in_chunks(chosen, saved) / 4};
}

/// Windows of a text, chosen by counters: the same windows for every run.
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
  std::FILE* const out = stream_of_text(chosen);
  const double tokens =
      static_cast<double>(chosen.how.size.context * chosen.how.size.batch * chosen.how.size.micro_batches);
  auto warm = clock::now();
  for (std::size_t index = 0; index < chosen.steps; ++index) {
    if (index == chosen.warm_up) warm = clock::now();
    const auto begin = clock::now();
    into.losses.push_back(step(index));
    const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
    std::fprintf(out, "step %3zu  loss %.6f  %10.0f tokens/s", index + 1, static_cast<double>(into.losses.back()),
                 tokens / seconds);
    const double left = seconds * static_cast<double>(chosen.steps - index - 1);
    if (left >= 5) std::fprintf(out, "  %.0f s left", left);
    std::fprintf(out, "\n");
    std::fflush(out);
  }
  if (chosen.steps <= chosen.warm_up) return;
  const double seconds = std::chrono::duration<double>(clock::now() - warm).count();
  into.tokens_per_second = tokens * static_cast<double>(chosen.steps - chosen.warm_up) / seconds;
}

/// Prints how much of the activations went through chunks.
template <class Saved>
void tell_saved(std::FILE* out, const Saved& saved, const saved_sizes& sizes)
{
  std::fprintf(out,
               "activations: %zu places in chunks; %s were saved there, %s found no place and stayed with LibTorch\n",
               sizes.size(), gpt::size_text(cm::bytes{saved.saved_bytes()}).c_str(),
               gpt::size_text(cm::bytes{saved.unplaced_bytes()}).c_str());
}

/// Prints how much of the sampled inputs is kept.
template <class Inputs>
void tell_samples(std::FILE* out, const Inputs& inputs)
{
  std::fprintf(out, "samples: of %zu inputs %s are kept, in place of %s\n", inputs.size(),
               gpt::size_text(inputs.kept_bytes()).c_str(), gpt::size_text(inputs.bytes_of_all_rows()).c_str());
}

/// Trains with the parameters in chunks of this backend, and with the activations of `saved` too.
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
  std::FILE* const out = stream_of_text(chosen);
  std::fprintf(out, "\n%s %s in chunks of %s; the device may hold %s of it (%.0f %%)\n",
               saved.empty() ? "model data" : "model data and activations", gpt::size_text(need.chunks).c_str(),
               gpt::size_text(need.chunk_bytes).c_str(), gpt::size_text(capacity).c_str(),
               100.0 * static_cast<double>(capacity.count()) / static_cast<double>(need.chunks.count()));
  training.fill();
  outcome result;
  const token_source tokens = tokens_of(windows, chosen.how.size, where.device);
  take_steps(chosen, result, [&](std::size_t index) { return training.step(index, tokens); });
  result.values = training.values();
  const auto report = m.report();
  std::fprintf(out, "moved %s to the device and %s back, %llu evictions, %llu divergences\n",
               gpt::size_text(report.loaded).c_str(), gpt::size_text(report.written_back).c_str(),
               static_cast<unsigned long long>(report.evictions), static_cast<unsigned long long>(report.divergences));
  if (training.saved() != nullptr) tell_saved(out, *training.saved(), saved);
  if (training.inputs() != nullptr) tell_samples(out, *training.inputs());
  result.report = report.json();
  return result;
}

/// Trains with tensors of LibTorch, in float32 on the CPU.
[[nodiscard]] inline outcome run_plain(const options& chosen, const gpt::training_text& text)
{
  std::fprintf(stream_of_text(chosen), "\nwithout chunkmem\n");
  plain_training training{chosen.how};
  outcome result;
  const token_source tokens = tokens_of(windows_of(chosen, text), chosen.how.size, at::kCPU);
  take_steps(chosen, result, [&](std::size_t index) { return training.step(index, tokens); });
  result.values = training.values();
  return result;
}

/// Prints whether losses and parameters are the same, bit for bit.
[[nodiscard]] inline bool says_identical(std::FILE* out, const char* other, const outcome& left, const outcome& right)
{
  std::size_t losses = 0;
  for (std::size_t index = 0; index < left.losses.size(); ++index)
    losses += left.losses[index] == right.losses[index] ? 1 : 0;
  std::size_t values = 0;
  for (std::size_t index = 0; index < left.values.size(); ++index)
    values += at::equal(left.values[index], right.values[index]) ? 1 : 0;
  std::fprintf(out, "verify, %s: %zu losses, %zu identical; %zu parameters, %zu identical\n", other, left.losses.size(),
               losses, left.values.size(), values);
  return losses == left.losses.size() && values == left.values.size();
}

/// @return   the losses, the rate and the report of the manager, as one JSON object
[[nodiscard]] inline std::string report_of(const outcome& result)
{
  const auto number = [](float loss) { return command_line::json_number(loss); };
  return command_line::json_object{}
      .add("program", "libtorch_gpt")
      .add("tokens_per_second", result.tokens_per_second)
      .add_json("losses", command_line::json_list(result.losses, number))
      .add_json("memory", result.report)
      .text();
}

/// Writes the report to the file of the command line.
/// @throws gpt::problem   the file cannot be written; an older file stays
inline void write_report(const options& chosen, const outcome& result)
{
  if (chosen.report) command_line::write_file<gpt::problem>("--report", *chosen.report, report_of(result) + "\n");
  if (chosen.common.json) std::printf("%s\n", report_of(result).c_str());
}

}  // namespace libtorch_gpt
