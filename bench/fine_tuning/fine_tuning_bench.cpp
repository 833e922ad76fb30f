// SPDX-License-Identifier: Apache-2.0
// What does a training gain with sampled inputs, and at which memory and time?
//
// The GPT of the example, with ReLU between the products of its MLP, learns one text and is saved. It is loaded and
// tuned to another text: all weights, or adapters next to frozen weights (LoRA), exact or with three tenths of the rows
// of the inputs that have no other use. It also learns the other text from the start. Windows of the text are fixed, so
// norms of earlier visits exist in the second epoch. Five seeds each, of windows, draws and adapters.
//
// Gain: the loss of the first step less that of the last tenth of the steps, over the same number of exact training
// with the same windows. Peak: bytes of everything at once, of weights, gradients, states, activations and leases. The
// manager has room for all of it on its device and its host, and frames of 1 KiB, so that almost nothing is wasted.
//
// A sampled step multiplies less: the gradients of two weights have three tenths of the rows. That pays for a second
// run of the product of queries, keys and values, which then need not be kept. Exact steps are measured with that run
// and without it, and with a second run of whole layers. The figure compares with the smallest exact step that
// multiplies no more than the sampled one, or that multiplies least: the memory of exact training in as little time.
#include "../transfer/planning_figures.hpp"
#include "model.hpp"
#include "text.hpp"
#include "trainer.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace cm = chunkmem;
using namespace cm::literals;
using manager_type = cm::manager<cm::backend::host_arena, cm::transfer::no_prefetch>;

constexpr gpt::extents model_size{
    .layers = 3, .width = 32, .heads = 4, .context = 64, .batch = 16, .mlp = gpt::nonlinearity::relu};
/// As many rows for its width, and products with as large a part of the time, as in models that are in use.
constexpr gpt::extents wide_size{
    .layers = 4, .width = 96, .heads = 8, .context = 64, .batch = 48, .mlp = gpt::nonlinearity::relu};
constexpr std::uint64_t seeds = 5;
constexpr double ratio = 0.3;
constexpr std::size_t rank = 4;
constexpr std::size_t all_steps = 400;
constexpr float adapter_rate = 1e-2F;

struct variant {
  const char* name;
  double ratio = 0;
  bool again = false;
  std::size_t adapter_rank = 0;
  gpt::activation_mode mode = gpt::activation_mode::swap;
  std::size_t batch = model_size.batch;
  bool is_wide = false;
  std::size_t steps = all_steps;
  float learning_rate = 4e-3F;

  [[nodiscard]] gpt::extents size() const
  {
    gpt::extents made = is_wide ? wide_size : model_size;
    made.adapter_rank = adapter_rank;
    if (!is_wide) made.batch = batch;
    return made;
  }
};

/// Exists as long as this run.
class temporary_folder {
 public:
  temporary_folder() : path_{(std::filesystem::temp_directory_path() / "chunkmem_fine_tuning_XXXXXX").string()}
  {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  temporary_folder(const temporary_folder&) = delete;
  ~temporary_folder()
  {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct outcome {
  double first = 0, last = 0;  ///< losses of the first step, and of the last tenth of them, each before its update
  double held_out = 0;         ///< on text that was never trained on, at the end
  std::uint64_t peak = 0;
  double seconds = 0;
};

double processor_seconds()
{
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class session {
 public:
  session(const variant& how, const gpt::training_text& text, std::uint64_t seed)
      : how_{how}, trainer_{m_, net_, text, settings(how, seed), workers_}
  {
    gpt::fill(m_, net_, how.adapter_rank > 0 ? seed : 1);
  }
  void load(const cm::io::posix_folder& folder)
  {
    cm::checkpoint::import_values(m_, folder, "base.safetensors", {.takes_part = how_.adapter_rank > 0});
  }
  void save(cm::io::posix_folder& folder) { cm::checkpoint::export_values(m_, folder, "base.safetensors"); }

  outcome train(std::size_t steps)
  {
    outcome found;
    const std::size_t counted = std::max<std::size_t>(1, steps / 10);
    const double begin = processor_seconds();
    for (std::size_t step = 0; step < steps; ++step) {
      const auto loss = static_cast<double>(trainer_.step(step));
      if (step == 0) found.first = loss;
      if (step + counted >= steps) found.last += loss / static_cast<double>(counted);
    }
    found.seconds = (processor_seconds() - begin) / static_cast<double>(steps);
    found.held_out = static_cast<double>(trainer_.evaluate());
    const cm::report report = m_.report();
    found.peak = (report.peak[cm::tier::device] + report.peak[cm::tier::host]).count();
    return found;
  }

 private:
  static gpt::trainer_settings settings(const variant& how, std::uint64_t seed)
  {
    gpt::trainer_settings made{.schedule = {how.learning_rate, how.steps},
                               .seed = seed,
                               .clip = 1.0F,
                               .activations = how.mode,
                               .windows = gpt::window_choice::fixed,
                               .runs_qkv_again = how.again,
                               .sample_ratio = how.ratio};
    if (how.mode == gpt::activation_mode::recompute) made.plan = gpt::plan_layer_runs(how.mode, how.size(), 1_GiB);
    return made;
  }

  variant how_;
  cm::backend::host_arena memory_{{.device_capacity = 256_MiB, .host_capacity = 256_MiB}};
  manager_type m_{memory_, {.chunk_bytes = 1_KiB}};
  gpt::model net_ = gpt::declare(m_, how_.size(), cm::dtype::float32);
  cm::optimizer::thread_pool workers_{1};
  gpt::trainer<manager_type> trainer_;
};

/// Products of a layer for a position, in squares of the width; attention is the same in all variants.
double products_of(const variant& how)
{
  constexpr double forward = 12, qkv = 3, sampled_gradients = 1 + 4;
  const bool runs_layers_again = how.mode == gpt::activation_mode::recompute;
  double all = 3 * forward + (how.again ? qkv : 0) + (runs_layers_again ? forward : 0);
  if (how.ratio > 0) all -= (1 - how.ratio) * sampled_gradients;
  return how.adapter_rank > 0 ? all - forward + (how.ratio > 0 ? (1 - how.ratio) * sampled_gradients : 0) : all;
}

/// The largest batch whose exact step has no larger peak.
std::size_t smaller_batch(std::uint64_t peak, const gpt::training_text& text)
{
  for (std::size_t batch = model_size.batch; batch > 1; --batch) {
    session one{{.name = "", .batch = batch}, text, 1};
    if (one.train(1).peak <= peak) return batch;
  }
  return 1;
}

struct summary {
  outcome mean;
  std::vector<outcome> each;
};

/// The same training with each seed. @param base   saved weights; null: from the start
summary train_all(const variant& how, const gpt::training_text& text, const cm::io::posix_folder* base)
{
  summary all;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    session one{how, text, seed};
    if (base != nullptr) one.load(*base);
    const outcome found = one.train(how.steps);
    std::printf("run,%s,%s,%.2f,%llu,%.5f,%.5f,%.5f,%llu,%.4f\n", base == nullptr ? "from the start" : "fine-tuned",
                how.name, how.ratio, static_cast<unsigned long long>(seed), found.first, found.last, found.held_out,
                static_cast<unsigned long long>(found.peak), found.seconds);
    std::fflush(stdout);
    all.each.push_back(found);
    all.mean.first += found.first / seeds;
    all.mean.last += found.last / seeds;
    all.mean.seconds += found.seconds / seeds;
    all.mean.peak = found.peak;
  }
  return all;
}

/// The mean over the seeds. 0 where the exact loss did not fall by a third.
double gain_of(const char* what, const summary& sampled, const summary& exact)
{
  double gain = 0;
  bool fell = true;
  std::printf("gain of %s:", what);
  for (std::size_t seed = 0; seed < seeds; ++seed) {
    const outcome &mine = sampled.each[seed], &whole = exact.each[seed];
    const double one = (whole.first - mine.last) / (whole.first - whole.last);
    std::printf(" %.4f", one);
    fell = fell && whole.last <= whole.first * 2 / 3;
    gain += one / seeds;
  }
  std::printf(", mean %.4f%s\n", gain, fell ? "" : ", but the exact loss fell by less than a third");
  return fell ? gain : 0;
}

/// Peaks and times of a few steps. @return   the sampled step's peak over that of exact training
double compare_peaks(const gpt::training_text& text)
{
  variant all[] = {{.name = "exact"},
                   {.name = "exact + qkv again", .again = true},
                   {.name = "exact + layers again", .mode = gpt::activation_mode::recompute},
                   {.name = "sampled", .ratio = ratio},
                   {.name = "sampled + qkv again", .ratio = ratio, .again = true},
                   {.name = "LoRA", .adapter_rank = rank},
                   {.name = "LoRA + qkv again", .again = true, .adapter_rank = rank},
                   {.name = "LoRA + layers again", .adapter_rank = rank, .mode = gpt::activation_mode::recompute},
                   {.name = "LoRA + sampled", .ratio = ratio, .adapter_rank = rank},
                   {.name = "LoRA + sampled + qkv again", .ratio = ratio, .again = true, .adapter_rank = rank}};
  const double work = products_of(all[4]);
  double exact = 0, beside = 0, sampled = 0;
  std::printf("%-26s %12s %9s %13s %9s\n", "", "peak [B]", "of exact", "products/w^2", "s a step");
  for (variant& each : all) {
    each.is_wide = true;
    session one{each, text, 1};
    const outcome found = one.train(3);
    const auto peak = static_cast<double>(found.peak);
    if (exact == 0) exact = beside = peak;
    if (each.ratio == 0 && each.adapter_rank == 0 && products_of(each) <= work) beside = std::min(beside, peak);
    if (&each == &all[4]) sampled = peak;
    std::printf("%-26s %12llu %9.3f %13.1f %9.3f\n", each.name, static_cast<unsigned long long>(found.peak),
                peak / exact, products_of(each), found.seconds);
    std::fflush(stdout);
  }
  return sampled / beside;
}

}  // namespace

int main(int count, char**)
{
  const gpt::training_text first = gpt::default_text();
  const gpt::training_text second = gpt::read_text(CHUNKMEM_SOURCE_DIR "/include/chunkmem/manager");
  if (count > 1) {  // any word: only peaks
    (void)compare_peaks(second);
    return 0;
  }
  const temporary_folder saved;
  cm::io::posix_folder folder{saved.path()};
  {
    session base{{"base"}, first, 1};
    const outcome learned = base.train(all_steps);
    std::printf("the first text: loss %.4f, then %.4f\n", learned.first, learned.last);
    base.save(folder);
  }
  std::printf("run,kind,name,ratio,seed,first loss,last loss,held-out loss,peak bytes,seconds a step\n");
  const auto tune = [&](const variant& how) { return train_all(how, second, &folder); };
  const auto learn = [&](const variant& how) { return train_all(how, second, nullptr); };

  const summary exact = tune({.name = "exact"});
  const summary sampled = tune({.name = "sampled + qkv again", .ratio = ratio, .again = true});
  const summary start = learn({.name = "exact"});
  const summary sampled_start = learn({.name = "sampled + qkv again", .ratio = ratio, .again = true});
  const summary adapters = tune({.name = "LoRA", .adapter_rank = rank, .learning_rate = adapter_rate});
  const summary sampled_adapters = tune({.name = "LoRA + sampled + qkv again",
                                         .ratio = ratio,
                                         .again = true,
                                         .adapter_rank = rank,
                                         .learning_rate = adapter_rate});
  const double gains[] = {gain_of("all weights", sampled, exact),
                          gain_of("a training from the start", sampled_start, start)};
  (void)gain_of("adapters", sampled_adapters, adapters);

  // A smaller batch in the same memory and, with more steps, in the same time.
  variant smaller{.name = "smaller batch"};
  smaller.batch = smaller_batch(sampled.mean.peak, second);
  smaller.steps =
      static_cast<std::size_t>(static_cast<double>(all_steps * model_size.batch) / static_cast<double>(smaller.batch));
  (void)gain_of("a smaller batch with as many more steps", tune(smaller), exact);
  const double peak_ratio = compare_peaks(second);
  for (const double other : {0.1, 0.6}) (void)tune({.name = "sampled + qkv again", .ratio = other, .again = true});
  return transfer_bench::write_figures("fine_tuning_bench",
                                       {{"activation.sampled_gain_over_exact",
                                         *std::min_element(std::begin(gains), std::end(gains)), "ratio", ">=", 0.98},
                                        {"activation.sampled_step_peak_over_exact", peak_ratio, "ratio", "<=", 0.6}});
}
