// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT in LibTorch with its parameters in chunks, and optionally its activations: on the CPU, or on a GPU
// where LibTorch supports one.

#include "../command_line.hpp"
#include "../run_program.hpp"
#include "options.hpp"
#include "run.hpp"

#include "problem.hpp"
#include "size_text.hpp"
#include "text.hpp"

#include <chunkmem/backend/host_arena.hpp>
#ifdef LIBTORCH_GPT_HAS_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#endif

#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>

namespace {

using namespace libtorch_gpt;

void add_options(CLI::App& app, options& to)
{
  app.add_option("--layers", to.how.size.layers, "blocks")->check(CLI::PositiveNumber);
  app.add_option("--width", to.how.size.width, "width of a block")->check(CLI::PositiveNumber);
  app.add_option("--heads", to.how.size.heads, "attention heads; they divide the width")->check(CLI::PositiveNumber);
  app.add_option("--context", to.how.size.context, "tokens of one row")->check(CLI::PositiveNumber);
  app.add_option("--batch", to.how.size.batch, "rows of one micro-batch")->check(CLI::PositiveNumber);
  app.add_option("--micro-batches", to.how.size.micro_batches, "micro-batches of one step")
      ->check(CLI::Range(1, 65535));
  app.add_option("--vocabulary", to.how.size.vocabulary, "size of the vocabulary, at least 256: tokens are bytes")
      ->check(CLI::Range(256, 1 << 24));
  app.add_option("--steps", to.steps, "steps to train");
  app.add_option("--warm-up", to.warm_up, "first steps that do not count in the tokens per second");
  app.add_option("--learning-rate", to.how.learning_rate, "learning rate of Adam");
  app.add_option("--seed", to.how.seed, "seed of weights and of the order of windows");
  app.add_option("--threads", to.threads, "threads for updates")->check(CLI::Range(1, 1024));
  const auto size_into = [](std::optional<chunkmem::bytes>& into, const char* name) {
    return [&into, name](const std::string& text) { into = gpt::parse_size(name, text); };
  };
  app.add_option_function<std::string>("--device", size_into(to.device, "--device"),
                                       "memory of the device for chunks, such as 4MiB");
  app.add_option_function<std::string>("--host", size_into(to.host, "--host"), "memory of the host for chunks");
  app.add_option("--text", to.text, "a file or folder to train on");
  app.add_option("--report", to.report, "write a report to this file, as JSON");
  app.add_option_function<std::string>(
         "--activations", [&to](const std::string& where) { to.keeps_activations = where == "chunks"; },
         "memory for the tensors that autograd saves: chunks or libtorch (the default)")
      ->check(CLI::IsMember({"chunks", "libtorch"}));
  app.add_option(
      "--sample", to.how.sample,
      "keep this part of the rows of linear layers' inputs, 0.3 as an example, and estimate the gradients of "
      "their weights");
  app.add_option_function<std::string>(
         "--windows",
         [&to](const std::string& how) {
           to.windows = how == "fixed" ? gpt::window_choice::fixed : gpt::window_choice::random;
         },
         "of the text: random: they begin anywhere (the default); or fixed: the text is cut, and each window comes "
         "back "
         "in every epoch")
      ->check(CLI::IsMember({"random", "fixed"}));
  app.add_flag("--recompute", to.how.recompute, "recompute each block in the backward pass");
  app.add_flag("--late", to.how.late, "update weights when the next step uses them");
  app.add_flag("--cuda", to.cuda, "train on a GPU, in bfloat16");
  app.add_flag("--verify", to.verify, "train again without a limit, and on the CPU without chunkmem, and compare");
  command_line::add_common_flags(app, to.common, "print one JSON object, and the text to standard error");
  app.footer("Example:\n  libtorch_gpt --layers 4 --width 128 --steps 20 --device 4MiB --verify");
}

void refuse_what_cannot_be(const options& chosen)
{
  if (chosen.how.size.width % chosen.how.size.heads != 0) throw gpt::problem{"--heads does not divide --width"};
  if (chosen.how.sample && !(*chosen.how.sample > 0 && *chosen.how.sample <= 1))
    throw gpt::problem{"--sample is the part of the rows that is kept: give a number above 0, and 1 at most"};
  if (chosen.how.sample && chosen.cuda) throw gpt::problem{"--sample is for the CPU: leave it out with --cuda"};
#ifndef LIBTORCH_GPT_HAS_CUDA
  if (chosen.cuda)
    throw gpt::problem{"--cuda: this program was built with a LibTorch without CUDA, or without a CUDA toolkit"};
#endif
}

int train_on_cpu(const options& chosen, const gpt::training_text& text)
{
  const saved_sizes saved = saved_in_chunks<float>(chosen, at::kCPU);
  const auto train = [&](chunkmem::bytes device, chunkmem::bytes host) {
    chunkmem::backend::host_arena memory{{.device_capacity = device, .host_capacity = host}};
    return run<float>(chosen, memory, {at::kCPU, std::nullopt}, text, saved);
  };
  const outcome capped = train(budget_of(chosen, saved), host_of(chosen, saved));
  write_report(chosen, capped);
  if (!chosen.verify) return 0;
  const bool same = says_identical(stream_of_text(chosen), "without a limit", capped,
                                   train(host_of(chosen, saved), host_of(chosen, saved)));
  if (chosen.how.sample && *chosen.how.sample < 1) {
    std::fprintf(stream_of_text(chosen),
                 "verify, without chunkmem: not compared, since --sample estimates the weights' gradients\n");
    return same ? 0 : 1;
  }
  return says_identical(stream_of_text(chosen), "without chunkmem", capped, run_plain(chosen, text)) && same ? 0 : 1;
}

#ifdef LIBTORCH_GPT_HAS_CUDA
int train_on_cuda(const options& chosen, const gpt::training_text& text)
{
  // Without this the sums of an embedding's gradient depend on the order of threads.
  if (chosen.verify) at::globalContext().setDeterministicAlgorithms(true, true);
  const saved_sizes saved = saved_in_chunks<chunkmem::bf16>(chosen, at::Device{at::kCUDA, 0});
  const auto train = [&](chunkmem::bytes device, chunkmem::bytes host) {
    chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime> memory{
        {.device_capacity = device, .host_capacity = host}};
    const auto stream = c10::cuda::getStreamFromExternal(memory.stream(chunkmem::agent::compute), 0);
    const c10::cuda::CUDAStreamGuard ours{stream};
    return run<chunkmem::bf16>(chosen, memory, {at::Device{at::kCUDA, 0}, stream.unwrap()}, text, saved);
  };
  const outcome capped = train(budget_of(chosen, saved), host_of(chosen, saved));
  write_report(chosen, capped);
  const auto unlimited = [&] { return train(host_of(chosen, saved), host_of(chosen, saved)); };
  return !chosen.verify || says_identical(stream_of_text(chosen), "without a limit", capped, unlimited()) ? 0 : 1;
}
#endif

int train(const options& chosen)
{
  refuse_what_cannot_be(chosen);
  const gpt::training_text text = chosen.text ? gpt::read_text(*chosen.text) : gpt::default_text();
  text.expects_windows_of(static_cast<std::size_t>(chosen.how.size.context));
#ifdef LIBTORCH_GPT_HAS_CUDA
  if (chosen.cuda) return train_on_cuda(chosen, text);
#endif
  return train_on_cpu(chosen, text);
}

}  // namespace

int main(int count, char** arguments)
{
  return command_line::run_program("libtorch_gpt", [&] {
    options chosen;
    CLI::App app{"Trains a small GPT in LibTorch with its parameters in chunks.", "libtorch_gpt"};
    add_options(app, chosen);
    command_line::read<gpt::problem>(app, count - 1, arguments + 1);
    if (chosen.common.asks_only()) return command_line::answer("libtorch_gpt", chosen.common, app.help());
    return train(chosen);
  });
}
