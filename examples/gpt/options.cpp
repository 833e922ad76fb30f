// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "../command_line.hpp"
#include "../output_file.hpp"
#include "problem.hpp"
#include "size_text.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace gpt {
namespace {

using command_line::read_whole;

/// The words of the command line before they are parsed: this program's own sentences report errors.
struct raw_options {
  std::string device_memory, host_memory, chunk_bytes;
  std::string layers, width, heads, context, batch, steps, seed, sample, learning_rate;
  std::string precision, gradient, activations, device_rate, link_rate, accumulate, update, clip, threads;
  std::string eviction, layout, placement, device_share, transfer;
  std::string every, mlp, recompute, windows, lora;
  std::string ranks, shard, nodes, gathers_ahead;
  std::string stages, micro_batches, replicas;
  std::string sample_room, noise;
};

/// The words that choose one policy of a list: their names, without the family at the end.
template <class Any>
std::vector<std::string> words_of()
{
  std::vector<std::string> words;
  for (const std::string_view name : Any::names) {
    constexpr std::string_view family = "_layout";
    const bool ends_in_it = name.ends_with(family);
    words.emplace_back(name.substr(0, name.size() - (ends_in_it ? family.size() : 0)));
  }
  return words;
}

/// "a, b or c (a)"
std::string with_default(const std::vector<std::string>& words)
{
  return command_line::listed(words) + " (" + words.front() + ")";
}

/// The order of --help.
void arrange(CLI::App& app)
{
  command_line::arrange(
      app, {{"Memory", "SIZE", {"--device-memory", "--host-memory", "--chunk-bytes"}},
            {"Memory", "WORD", {"--eviction", "--layout", "--placement", "--transfer", "--gradient"}},
            {"Memory", "NUMBER", {"--device-share"}},
            {"Model", "NUMBER", {"--layers", "--width", "--heads", "--context", "--lora"}},
            {"Model", "WORD", {"--precision", "--mlp"}},
            {"Model", "FILE", {"--init", "--export-weights", "--write-model"}},
            {"Training",
             "NUMBER",
             {"--batch", "--steps", "--learning-rate", "--accumulate", "--clip", "--threads", "--seed", "--sample"}},
            {"Training", "WORD", {"--update", "--windows"}},
            {"Training", "FILE", {"--text"}},
            {"Activations", "WORD", {"--activations", "--recompute"}},
            {"Activations", "SIZE", {"--sample-room"}},
            {"Activations", "FILE", {"--sample-file"}},
            {"Activations", "NUMBER", {"--noise", "--device-rate", "--link-rate"}},
            {"Ranks and stages",
             "NUMBER",
             {"--ranks", "--shard", "--nodes", "--gathers-ahead", "--stages", "--microbatches", "--replicas"}},
            {"Ranks and stages", "WORD", {"--schedule", "--kind"}},
            {"Ranks and stages", "FILE", {"--plan", "--cluster", "--forecast", "--profile", "--write-profile"}},
            {"Checkpoints", "FOLDER", {"--checkpoint", "--resume"}},
            {"Checkpoints", "NUMBER", {"--every"}},
            {"Output", "FILE", {"--trace", "--report", "--metrics", "--export"}},
            {"Output", "", {"--json", "--verify", "--version", "--help"}}});
}

void declare(CLI::App& app, program whose, raw_options& raw, options& out)
{
  app.add_option("--device-memory", raw.device_memory,
                 "capacity of the device (default: a quarter of the bytes that training needs)");
  app.add_option("--host-memory", raw.host_memory, "capacity of the host (default: the bytes that training needs)");
  app.add_option("--chunk-bytes", raw.chunk_bytes, "size of a chunk (default: the size with the least waste)");
  app.add_option("--layers", raw.layers, "layers (6)");
  app.add_option("--width", raw.width, "width of the model (192)");
  app.add_option("--heads", raw.heads, "attention heads (6)");
  app.add_option("--context", raw.context, "bytes of context (128)");
  app.add_option("--batch", raw.batch, "windows of text per step (4)");
  app.add_option("--steps", raw.steps, "steps of training (50)");
  app.add_option("--learning-rate", raw.learning_rate, "highest learning rate (0.001)");
  const bool is_cuda = whose == program::gpt_cuda;
  app.add_option("--precision", raw.precision,
                 is_cuda ? "type of weights and gradients: bf16 only (bf16)"
                         : "type of weights and gradients: fp32, bf16 or fp16 (fp32)");
  app.add_option("--update", raw.update,
                 is_cuda
                     ? "where updates run: placement (where the placement keeps most states), cpu or gpu (placement)"
                     : "when updates run: at_once, at the end of each step; late, at the next use of the weight; "
                       "early, before the norm of all gradients is known; or measured, at the end of each "
                       "step, on the device and on the host by a share that the first steps measure (at_once)");
  app.add_option(
      "--gradient", raw.gradient,
      "place of gradients: separate, or in_place: 16-bit gradients in the bytes of their weights (separate)");
  app.add_option(
      "--activations", raw.activations,
      std::string{"activations between the passes: swap, keep, recompute, or a planner: karma or planned; or "
                  "sample=0.3: keep that share of the rows of the inputs of projections"} +
          (is_cuda
               ? " (recompute)"
               : ", sample=auto: shares from measured rows, sample=FILE: shares from a file that auto wrote (swap)"));
  if (!is_cuda) {
    app.add_option("--sample-room", raw.sample_room,
                   "with sample=auto: bytes for the kept rows of all inputs, or a part of all rows such as 40% "
                   "(default: the bytes of sample=0.3)");
    app.add_option("--sample-file", out.ratio_file,
                   "with sample=auto: file to which ratios are written (sample_ratios.txt)");
    app.add_option("--noise", raw.noise, "with sample=: print the noise of the gradients every so many steps");
    app.add_option("--recompute", raw.recompute,
                   "tensors that are recomputed instead of kept between the passes: none, or qkv: queries, keys and "
                   "values, with --activations swap or sample (none)");
    app.add_option(
        "--mlp", raw.mlp,
        "activation function of the MLP: gelu or relu. After relu, --activations sample keeps rows too (gelu)");
    app.add_option("--windows", raw.windows,
                   "windows of the text: random: they begin anywhere; or fixed: the text is cut into windows, each is "
                   "used once in an epoch, and sampling recognizes it (random)");
    app.add_option("--init", out.init,
                   "start with the weights of this safetensors file, or of the newest checkpoint of this folder");
    app.add_option("--lora", raw.lora,
                   "freeze all weights, and train adapters of this rank at the four products of each layer");
    app.add_option("--export-weights", out.export_weights, "write the weights to this safetensors file at the end");
  }
  if (is_cuda) {
    app.add_option("--device-rate", raw.device_rate, "for planners: operations a second of the GPU (1.56e14)");
    app.add_option("--link-rate", raw.link_rate, "for planners: bytes a second from and to the host (2.5e10)");
  }
  app.add_option("--accumulate", raw.accumulate, "batches whose gradients are added up in one step (1)");
  app.add_option("--clip", raw.clip, "largest norm of all gradients of a step, 0 for no limit (0)");
  app.add_option("--threads", raw.threads, "threads for updates (default: as many as the machine has, at most 8)");
  app.add_option("--seed", raw.seed, "seed of weights, batches and the sampled text (1)");
  app.add_option("--sample", raw.sample, "bytes of text to generate at the end (300)");
  app.add_option("--eviction", raw.eviction,
                 "rule that chooses the chunk to evict: " + with_default(words_of<any_eviction>()));
  app.add_option("--layout", raw.layout, "layout of tensors in chunks: " + with_default(words_of<any_layout>()));
  app.add_option("--placement", raw.placement,
                 "placement of optimizer states: " + with_default(words_of<any_placement>()));
  app.add_option(
      "--device-share", raw.device_share,
      "share of the states that fixed_split keeps on the device, or that update_share updates there, 0 to 1 (0.5)");
  app.add_option("--transfer", raw.transfer, "when copies start: " + with_default(words_of<any_transfer>()));
  app.add_option("--text", out.text, "file or folder to train on");
  app.add_option("--trace", out.trace, "write a Chrome trace to this JSON file");
  app.add_option("--report", out.report, "write losses and the memory report to this JSON file");
  app.add_option("--metrics", out.metrics,
                 "write a line of JSON to this file after each step; a resumed training continues its file");
  if (!is_cuda) app.add_option("--export", out.exported, "write first weights, batches and settings to this JSON file");
  app.add_option("--ranks", raw.ranks, "threads that train together, each with its own device and batch");
  app.add_option(
      "--shard", raw.shard,
      std::string{"data that ranks divide: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too (3); without "
                  "--ranks the ranks are processes: mpirun -n 4 "} +
          (is_cuda ? "gpt_cuda" : "gpt") + " --shard 3");
  app.add_option("--nodes", raw.nodes,
                 "number of nodes: the ranks of a node divide the data, and each node has a copy (1)");
  if (!is_cuda) {
    app.add_option("--gathers-ahead", raw.gathers_ahead,
                   "with --shard 3: units of weights that each step gathers for the next one, while the step updates "
                   "others (0)");
    app.add_option("--stages", raw.stages,
                   "stages of a pipeline: threads, or processes: mpirun -n 4 gpt --stages 4 --microbatches 8");
    app.add_option("--microbatches", raw.micro_batches,
                   "micro-batches that pass the stages in one step (2 for each stage)");
    app.add_option("--schedule", out.schedule,
                   "schedule of the stages: gpipe, 1f1b, eager, interleaved, 2bw, zb-h1, zb-h2, zb-1p, zb-2p or zb-v, "
                   "or a file (1f1b)");
    app.add_option("--replicas", raw.replicas,
                   "pipelines in parallel, each with its own rows; --shard sets the data that they divide (1)");
    app.add_option("--plan", out.plan,
                   "train by this plan of configure: as threads, or processes: mpirun -n 4 gpt --plan FILE");
    app.add_option("--cluster", out.cluster, "the cluster of the plan, a file of probe_links");
    app.add_option(
        "--forecast", out.forecast,
        "do not train: print how long a step takes on the cluster of this file of probe_links, with a rank on "
        "each node, by running the trainer in virtual time");
    app.add_option(
        "--device-rate", raw.device_rate,
        "with --forecast: operations a second of a rank in the products of its passes (default: the rate in the file)");
    app.add_option("--write-model", out.write_model, "write the model to this JSON file, for configure, and end");
    app.add_option("--write-profile", out.write_profile,
                   "measure some steps with batches of 1, 2, 4, ... rows up to --batch, write the seconds and bytes of "
                   "each layer to this JSON file, for configure, and end");
    app.add_option("--kind", out.kind, "with --write-profile: the kind of the measuring node in the cluster (node-0)");
    app.add_option("--profile", out.profile, "the profile for which the plan was made");
  }
  app.add_option("--checkpoint", out.checkpoint, "save to this folder");
  app.add_option("--every", raw.every, "steps between two checkpoints (10); the last step is always saved");
  app.add_option("--resume", out.resume,
                 "resume from the newest complete checkpoint of this folder; if --checkpoint names the same folder and "
                 "it has no checkpoint yet, start: so the same command starts and resumes a run");
  app.add_flag("--verify", out.verify, "train again with unlimited device memory and compare every bit");
  command_line::add_common_flags(app, out.common,
                                 "print the object of --report on standard output, and all text on standard error");
  arrange(app);
}

void read_real(const char* option, const std::string& text, const char* range, bool (*accepts)(float), float& out)
{
  if (text.empty()) return;
  float number = 0.0f;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = failure == std::errc{} && end == text.data() + text.size();
  if (!whole || !accepts(number)) throw problem{std::string{option} + " '" + text + "' is not a number " + range};
  out = number;
}

/// @return   the index of the word, 0 where the option is absent
std::size_t read_word(const char* option, const std::string& text, const std::vector<std::string>& words)
{
  if (text.empty()) return 0;
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end())
    throw problem{std::string{option} + " '" + text + "' is unknown: choose " + command_line::listed(words)};
  return static_cast<std::size_t>(found - words.begin());
}

template <class Any>
void read_policy(const char* option, const std::string& text, Any& out)
{
  Any chosen{Any::names[read_word(option, text, words_of<Any>())]};
  out = std::move(chosen);
}

void read_policies(const raw_options& raw, options& out)
{
  read_policy("--eviction", raw.eviction, out.eviction);
  read_policy("--layout", raw.layout, out.layout);
  // host_first is the former name, which works for one version
  read_policy("--placement", raw.placement == "host_first" ? "optimizer_on_host" : raw.placement, out.placement);
  read_policy("--transfer", raw.transfer, out.transfer);
  float share = 0.5f;
  read_real(
      "--device-share", raw.device_share, "from 0 to 1", [](float it) { return it >= 0.0f && it <= 1.0f; }, share);
  using chunkmem::placement::fixed_split;
  using chunkmem::placement::update_share;
  if (out.placement.chosen() == fixed_split::name)
    out.placement = any_placement{fixed_split{.device_share = static_cast<double>(share)}};
  else if (out.placement.chosen() == update_share::name)
    out.placement = any_placement{update_share{.device_share = static_cast<double>(share)}};
  else if (!raw.device_share.empty())
    throw problem{"--device-share needs --placement fixed_split or update_share (leave it out)"};
  if (out.when != update_time::measured) return;
  if (!raw.placement.empty())
    throw problem{
        "--placement cannot be combined with --update measured, which finds the place of each update (leave it out)"};
  out.placement = any_placement{update_share{}};
}

void read_precision(const std::string& text, program whose, chunkmem::dtype& out)
{
  using enum chunkmem::dtype;
  if (whose == program::gpt_cuda) {
    (void)read_word("--precision", text, {"bf16"});
    out = bfloat16;
    return;
  }
  constexpr chunkmem::dtype types[] = {float32, bfloat16, float16};
  out = types[read_word("--precision", text, {"fp32", "bf16", "fp16"})];
}

constexpr std::string_view sampling = "sample=";

/// A ratio, `auto`, or a file with ratios.
void read_sampling(const raw_options& raw, program whose, options& out)
{
  const std::string how = raw.activations.substr(sampling.size());
  out.activations = activation_mode::sample;
  out.sample_ratio = 1;  // of inputs that have no ratio of their own
  const bool takes_more = whose == program::gpt;
  if (how == "auto" && takes_more) {
    out.measures_ratios = true;
    return;
  }
  double number = 0;
  const auto [end, wrong] = std::from_chars(how.data(), how.data() + how.size(), number);
  const bool is_number = wrong != std::errc::invalid_argument && end == how.data() + how.size();
  std::error_code ignored;
  if (!is_number && takes_more && std::filesystem::is_regular_file(how, ignored)) {
    out.sample_file = how;
    return;
  }
  if (!is_number)
    throw problem{"--activations sample= '" + how + "' is not a number above 0 and at most 1" +
                  (takes_more ? ", nor auto, nor an existing file" : "")};
  if (wrong != std::errc{} || !(number > 0) || !(number <= 1))
    throw problem{"--activations sample= '" + how + "' is not a number above 0 and at most 1"};
  out.sample_ratio = number;
}

void refuse(const CLI::App& app, std::initializer_list<const char*> names, const std::string& why)
{
  command_line::refuse<problem>(app, names, why + " (leave it out)");
}

/// Options that need --activations sample.
void read_sampling_options(const CLI::App& app, const raw_options& raw, options& out)
{
  if (!out.measures_ratios) refuse(app, {"--sample-room", "--sample-file"}, " needs --activations sample=auto");
  if (out.activations != activation_mode::sample) refuse(app, {"--noise"}, " needs --activations sample=");
  read_whole<problem>("--noise", raw.noise, 1, 1000000, out.noise);
  if (raw.sample_room.ends_with('%')) {
    float percent = 0.0f;
    read_real(
        "--sample-room", raw.sample_room.substr(0, raw.sample_room.size() - 1), "above 0 and at most 100, before its %",
        [](float it) { return it > 0.0f && it <= 100.0f; }, percent);
    if (percent == 0.0f) throw problem{"--sample-room '%' has no number before its %"};
    out.room.share = static_cast<double>(percent) / 100;
  } else if (!raw.sample_room.empty()) {
    out.room.size = parse_size("--sample-room", raw.sample_room);
  }
}

void read_activations(const CLI::App& app, const raw_options& raw, program whose, options& out)
{
  out.activations = whose == program::gpt_cuda ? activation_mode::recompute : activation_mode::swap;
  if (raw.activations.starts_with(sampling)) {
    read_sampling(raw, whose, out);
  } else {
    const std::size_t word =
        read_word("--activations", raw.activations, {"swap", "keep", "recompute", "karma", "planned"});
    if (!raw.activations.empty()) out.activations = static_cast<activation_mode>(word);
  }
  read_sampling_options(app, raw, out);
  const auto read_rate = [&](const char* option, const std::string& text, double& rate) {
    if (text.empty() || whose == program::gpt) return;
    if (!is_planned(out.activations))
      throw problem{std::string{option} + " needs --activations karma or planned (leave it out)"};
    float number = 0.0f;
    read_real(
        option, text, "from 1 to 1e30", [](float it) { return it >= 1.0f && it <= 1e30f; }, number);
    rate = static_cast<double>(number);
  };
  read_rate("--device-rate", raw.device_rate, out.device_rate);
  read_rate("--link-rate", raw.link_rate, out.link_rate);
}

/// Options of fine-tuning, and the options that they exclude.
void read_tuning(const raw_options& raw, options& out)
{
  out.size.mlp = static_cast<nonlinearity>(read_word("--mlp", raw.mlp, {"gelu", "relu"}));
  out.windows = static_cast<window_choice>(read_word("--windows", raw.windows, {"random", "fixed"}));
  out.runs_qkv_again = read_word("--recompute", raw.recompute, {"none", "qkv"}) == 1;
  read_whole<problem>("--lora", raw.lora, 1, out.size.width, out.size.adapter_rank);
  if (out.runs_qkv_again && out.activations != activation_mode::swap && out.activations != activation_mode::sample)
    throw problem{"--recompute qkv needs --activations swap or sample (leave it out, or choose one)"};
  if (out.size.adapter_rank > 0 && !out.init && !out.resume)
    throw problem{"--lora tunes a model that was trained before (add --init, or --resume)"};
  if (out.exported && (out.size.mlp != nonlinearity::gelu || out.size.adapter_rank > 0))
    throw problem{"--export writes only trainings of all weights with GELU (leave it out, or --mlp relu and --lora)"};
}

void read_choices(const raw_options& raw, program whose, options& out)
{
  if (whose == program::gpt_cuda)
    out.update = static_cast<update_choice>(read_word("--update", raw.update, {"placement", "cpu", "gpu"}));
  else
    out.when = static_cast<update_time>(read_word("--update", raw.update, {"at_once", "late", "early", "measured"}));
  out.gradient = static_cast<gradient_choice>(read_word("--gradient", raw.gradient, {"separate", "in_place"}));
}

void check_extents(const extents& size, program whose)
{
  const auto number = [](std::size_t value) { return std::to_string(value); };
  if (size.width % size.heads != 0) {
    const std::size_t below = size.width - size.width % size.heads;
    throw problem{"--width " + number(size.width) + " is not divisible by --heads " + number(size.heads) + " (" +
                  number(below + size.heads) + " would be)"};
  }
  const std::size_t load = whose == program::gpt_cuda ? 8 : 4;  // numbers of 16 bytes
  if (size.width / size.heads % load != 0) {
    throw problem{"--width " + number(size.width) + " over --heads " + number(size.heads) + " gives heads of " +
                  number(size.width / size.heads) + " numbers, which is not a multiple of " + number(load) +
                  " (make the width a multiple of " + number(load * size.heads) + ")"};
  }
  if (size.layers * size.batch > most_rows_of_layers) {
    throw problem{"--layers " + number(size.layers) + " times --batch " + number(size.batch) + " is more than " +
                  number(most_rows_of_layers) + " (choose fewer of either)"};
  }
}

void read_sizes(const raw_options& raw, options& out)
{
  if (!raw.device_memory.empty()) out.device_memory = parse_size("--device-memory", raw.device_memory);
  if (!raw.host_memory.empty()) out.host_memory = parse_size("--host-memory", raw.host_memory);
  if (raw.chunk_bytes.empty()) return;
  out.chunk_bytes = parse_size("--chunk-bytes", raw.chunk_bytes);
  const std::uint64_t count = out.chunk_bytes->count();
  if (count < 4096 || count > (std::uint64_t{1} << 30) || count % 256 != 0) {
    throw problem{"--chunk-bytes '" + raw.chunk_bytes + "' is not a multiple of 256B from 4KiB to 1GiB"};
  }
}

void read_numbers(const raw_options& raw, program whose, options& out)
{
  read_whole<problem>("--layers", raw.layers, 1, 512, out.size.layers);
  read_whole<problem>("--width", raw.width, 1, 16384, out.size.width);
  read_whole<problem>("--heads", raw.heads, 1, 512, out.size.heads);
  read_whole<problem>("--context", raw.context, 2, 4096, out.size.context);
  read_whole<problem>("--batch", raw.batch, 1, 4096, out.size.batch);
  read_whole<problem>("--steps", raw.steps, 1, 1000000, out.steps);
  read_whole<problem>("--sample", raw.sample, 0, 1000000, out.sample);
  read_whole<problem>("--every", raw.every, 1, 1000000, out.every);
  read_whole<problem>("--seed", raw.seed, 0, ~std::uint64_t{0}, out.seed);
  read_whole<problem>("--accumulate", raw.accumulate, 1, 4096, out.size.micro_batches);
  read_real(
      "--learning-rate", raw.learning_rate, "above 0 and at most 1", [](float it) { return it > 0.0f && it <= 1.0f; },
      out.learning_rate);
  read_real(
      "--clip", raw.clip, "from 0 to 1000000", [](float it) { return it >= 0.0f && it <= 1e6f; }, out.clip);
  read_whole<problem>("--threads", raw.threads, 1, 256, out.threads);
  read_whole<problem>("--ranks", raw.ranks, 1, 64, out.ranks);
  read_whole<problem>("--shard", raw.shard, 0, 3, out.shard);
  read_whole<problem>("--nodes", raw.nodes, 1, 4096, out.nodes);
  read_whole<problem>("--gathers-ahead", raw.gathers_ahead, 0, 65536, out.gathers_ahead);
  check_extents(out.size, whose);
}

/// The other options that a gradient in the bytes of its weight requires.
void check_gradient(const options& chosen)
{
  if (chosen.gradient != gradient_choice::in_place) return;
  if (chosen.precision == chunkmem::dtype::float32) {
    throw problem{
        "--gradient in_place needs weights of 16 bits with a master copy beside them (add --precision bf16 or "
        "fp16, or choose --gradient separate)"};
  }
  if (chosen.size.micro_batches > 1) {
    throw problem{
        "--gradient in_place cannot be combined with --accumulate " + std::to_string(chosen.size.micro_batches) +
        ": the next batch would need the weights whose bytes the gradients took (choose --gradient separate)"};
  }
}

/// Ratios are measured by one rank with the whole model.
void check_measured(const options& chosen)
{
  if (chosen.measures_ratios)
    throw problem{
        "--activations sample=auto is for one rank without stages, which measures the whole model (choose swap, keep "
        "or recompute)"};
}

/// Refuses options that a training over ranks does not support, or would apply once for each rank.
void check_ranks(const CLI::App& app, const raw_options& raw, program whose, const options& chosen)
{
  if (!over_ranks(chosen)) {
    refuse(app, {"--nodes"}, " needs --ranks or --shard");
    return refuse(app, {"--gathers-ahead"}, " needs --ranks or --shard 3");
  }
  command_line::refuse<problem>(app, {"--trace", "--report", "--export", "--noise"},
                                " is for one rank (leave it out, or --ranks and --shard)");
  if (!raw.sample.empty() && chosen.sample > 0)
    throw problem{"--sample is for one rank (leave it out, or --ranks and --shard)"};
  check_measured(chosen);
  if (whose == program::gpt_cuda && (is_planned(chosen.activations) || chosen.activations == activation_mode::sample))
    throw problem{"--activations " + raw.activations + " is for one rank (choose swap, keep or recompute)"};
  if (chosen.sample_file)
    throw problem{"--activations " + raw.activations + " is for one rank (give one share for all inputs: sample=0.3)"};
  if (chosen.noise > 0) throw problem{"--noise is for one rank (leave it out)"};
  if (chosen.export_weights)
    throw problem{"--export-weights is for one rank (leave it out, and give --init the folder of --checkpoint)"};
  if (chosen.update == update_choice::gpu)
    throw problem{"--update gpu is for one rank (choose --update cpu, or leave out --ranks and --shard)"};
  if (chosen.shard == 0u && chosen.nodes > 1)
    throw problem{"--nodes cannot be combined with --shard 0, where each rank has a copy (leave it out)"};
  if (chosen.ranks % chosen.nodes != 0)
    throw problem{"--ranks " + raw.ranks + " does not fill --nodes " + raw.nodes + " (make it a multiple)"};
  if (chosen.gathers_ahead == 0) return;
  if (chosen.shard.value_or(3u) != 3u)
    throw problem{"--gathers-ahead is for --shard 3, where weights are divided (leave it out)"};
  if (chosen.when == update_time::late || chosen.when == update_time::early)
    throw problem{"--gathers-ahead cannot be combined with --update " + raw.update +
                  ", which gathers units at their next use (leave it out)"};
}

/// Refuses the options that a profile is not measured with.
void check_profile(const CLI::App& app, const options& chosen)
{
  if (!chosen.plan) refuse(app, {"--profile"}, " needs --plan");
  if (!chosen.write_profile) return refuse(app, {"--kind"}, " needs --write-profile");
  refuse(app,
         {"--plan", "--write-model", "--stages", "--ranks", "--shard", "--activations", "--update", "--device-memory",
          "--host-memory", "--steps", "--trace", "--report", "--lora", "--checkpoint", "--resume"},
         " cannot be combined with --write-profile, which measures steps with memory for everything");
  if (chosen.gradient == gradient_choice::in_place)
    throw problem{
        "--gradient in_place cannot be combined with --write-profile, whose gradients have bytes of their own (leave "
        "it out)"};
}

/// Refuses the options that a pipeline cannot have, and those that a plan chooses.
void check_stages(const CLI::App& app, const raw_options& raw, const options& chosen)
{
  if (chosen.plan && !chosen.cluster) throw problem{"--plan needs the cluster of the plan (add --cluster FILE)"};
  if (!chosen.plan) refuse(app, {"--cluster"}, " needs --plan");
  if (chosen.write_model)
    refuse(app, {"--plan", "--stages", "--ranks", "--shard", "--checkpoint", "--resume", "--metrics"},
           " cannot be combined with --write-model, which does not train");
  check_profile(app, chosen);
  if (!over_stages(chosen)) return refuse(app, {"--microbatches", "--schedule", "--replicas"}, " needs --stages");
  refuse(app,
         {"--trace", "--report", "--export", "--noise", "--ranks", "--nodes", "--gathers-ahead", "--sample",
          "--recompute", "--update", "--mlp", "--windows", "--init", "--lora", "--export-weights", "--accumulate"},
         chosen.plan ? " cannot be combined with --plan" : " cannot be combined with --stages");
  if (chosen.plan)
    refuse(app,
           {"--stages", "--microbatches", "--batch", "--schedule", "--replicas", "--shard", "--activations",
            "--placement"},
           " cannot be combined with --plan, which sets it");
  if (chosen.plan && chosen.precision == chunkmem::dtype::float32)
    throw problem{"--precision fp32 cannot be combined with --plan, which assumes 16-bit types (choose bf16 or fp16)"};
  if (!chosen.plan && chosen.replicas == 1) refuse(app, {"--shard"}, " needs --replicas 2 or more");
  if (chosen.shard == 0u)
    throw problem{"--shard 0 cannot be combined with --stages, whose replicas divide states (choose 1, 2 or 3)"};
  if (chosen.gradient == gradient_choice::in_place)
    throw problem{
        "--gradient in_place cannot be combined with --stages: several micro-batches add up (choose --gradient "
        "separate)"};
  check_measured(chosen);
  if (chosen.activations != activation_mode::swap && chosen.activations != activation_mode::recompute)
    throw problem{"--activations " + raw.activations + " cannot be combined with --stages (choose swap or recompute)"};
}

/// @pre   ranks and policies are read
void read_forecast(const CLI::App& app, const raw_options& raw, program whose, options& out)
{
  if (whose == program::gpt_cuda) return;
  if (!out.forecast) return refuse(app, {"--device-rate"}, " needs --forecast");
  refuse(app,
         {"--ranks", "--plan", "--stages", "--accumulate", "--checkpoint", "--resume", "--metrics", "--init", "--lora"},
         " cannot be combined with --forecast");
  if (!out.shard) throw problem{"--forecast is for a training over ranks (add --shard 3, or 0 to 2)"};
  if (raw.activations.starts_with(sampling))
    throw problem{"--activations " + raw.activations +
                  " cannot be combined with --forecast, which has no rows to sample (choose another)"};
  if (raw.update == "measured")
    throw problem{"--update measured cannot be combined with --forecast, where no step is measured (choose another)"};
  if (out.verify) throw problem{"--verify cannot be combined with --forecast, which computes nothing (leave it out)"};
  float rate = 0;
  read_real(
      "--device-rate", raw.device_rate, "from 1 to 1e30", [](float it) { return it >= 1.0f && it <= 1e30f; }, rate);
  if (rate > 0) out.computed_per_second = static_cast<double>(rate);
}

void read_stages(const CLI::App& app, const raw_options& raw, options& out)
{
  read_whole<problem>("--stages", raw.stages, 1, 64, out.stages);
  read_whole<problem>("--replicas", raw.replicas, 1, 64, out.replicas);
  check_stages(app, raw, out);
  if (out.stages == 0) return;
  out.size.micro_batches = 2 * out.stages;
  read_whole<problem>("--microbatches", raw.micro_batches, 1, 4096, out.size.micro_batches);
}

}  // namespace

options parse_options(int count, const char* const* arguments, program whose)
{
  raw_options raw;
  options out;
  out.whose = whose;
  CLI::App app;
  declare(app, whose, raw, out);
  command_line::read<problem>(app, count, arguments);
  if (out.common.asks_only()) return out;
  read_sizes(raw, out);
  read_numbers(raw, whose, out);
  read_forecast(app, raw, whose, out);
  read_precision(out.plan && raw.precision.empty() ? "bf16" : raw.precision, whose, out.precision);
  read_choices(raw, whose, out);
  read_activations(app, raw, whose, out);
  read_tuning(raw, out);
  check_gradient(out);
  read_policies(raw, out);
  for (const auto& other : {out.trace, out.report, out.exported})
    if (out.metrics && other && command_line::place_of(*out.metrics) == command_line::place_of(*other))
      throw problem{"--metrics '" + out.metrics->string() +
                    "' is also the file of another option (choose another file)"};
  check_ranks(app, raw, whose, out);
  read_stages(app, raw, out);
  if (!raw.every.empty() && !out.checkpoint)
    throw problem{"--every needs --checkpoint (name a folder, or leave it out)"};
  return out;
}

std::string help_text(program whose)
{
  raw_options raw;
  options out;
  const bool is_cuda = whose == program::gpt_cuda;
  CLI::App app{is_cuda ? "Trains a GPT on text, byte by byte, on a GPU with less memory than it needs."
                       : "Trains a small GPT on text, byte by byte, in less device memory than it needs.",
               name_of(whose)};
  declare(app, whose, raw, out);
  const std::string name = name_of(whose);
  app.footer("Examples:\n  " + name + " --verify\n  " + name +
             " --text FOLDER --steps 400 --resume saved --checkpoint saved --metrics metrics.jsonl\n"
             "Ctrl-C and SIGTERM end the training after the current step and save it; the same command resumes it.");
  return app.help();
}

}  // namespace gpt
