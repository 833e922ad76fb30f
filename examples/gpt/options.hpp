// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../common_flags.hpp"
#include "activation_mode.hpp"
#include "extents.hpp"
#include "policies.hpp"
#include "sample_ratios.hpp"
#include "windows.hpp"

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace gpt {

enum class gradient_choice : std::uint8_t { separate, in_place };
/// Where the optimizer works: placement means where the placement policy keeps most of its states.
enum class update_choice : std::uint8_t { placement, cpu, gpu };
/// The time of an update: at the end of its step, at the next use of its weight, or before the norm is known. Measured:
/// at the end of its step, on the device or on the host, by a share that the first steps measure.
enum class update_time : std::uint8_t { at_once, late, early, measured };
/// The program that reads a command line: the trainer on the CPU, or that on a GPU, which has options and defaults of
/// its own.
enum class program : std::uint8_t { gpt, gpt_cuda };
[[nodiscard]] constexpr const char* name_of(program whose) noexcept
{
  return whose == program::gpt_cuda ? "gpt_cuda" : "gpt";
}

/// The choices of the command line. Every option has a default that works.
struct options {
  program whose = program::gpt;
  std::optional<chunkmem::bytes> device_memory;  ///< else a quarter of the bytes that the training needs
  std::optional<chunkmem::bytes> host_memory;    ///< else the bytes that the training needs
  std::optional<chunkmem::bytes> chunk_bytes;    ///< else the size with the least waste
  extents size;
  std::size_t steps = 50;
  float learning_rate = 1e-3f;
  std::uint64_t seed = 1;
  std::size_t sample = 300;
  any_eviction eviction;
  any_layout layout;
  any_placement placement;
  any_transfer transfer;
  chunkmem::dtype precision = chunkmem::dtype::float32;  ///< of weights and their gradients
  gradient_choice gradient = gradient_choice::separate;
  activation_mode activations = activation_mode::swap;
  bool runs_qkv_again = false;  ///< in the backward pass, in place of being kept
  window_choice windows = window_choice::random;
  double sample_ratio = 0;                                 ///< of the rows that --activations sample keeps; 0: exact
  std::vector<input_ratio> sample_ratios;                  ///< of inputs that have their own: measured, or from a file
  std::optional<std::filesystem::path> sample_file;        ///< the file of these ratios
  bool measures_ratios = false;                            ///< ratios are measured before the training
  sample_room room;                                        ///< for kept rows, where ratios are measured
  std::filesystem::path ratio_file = "sample_ratios.txt";  ///< for measured ratios
  std::size_t noise = 0;                                   ///< steps between two tables of the noise; 0: none
  double device_rate = 156e12;  ///< of gpt_cuda, for planners: operations a second; half the peak of an A100
  double link_rate = 25e9;      ///< of gpt_cuda, for planners: bytes a second, each way; of PCIe 4.0 x16, rounded
  update_choice update = update_choice::placement;  ///< of gpt_cuda
  update_time when = update_time::at_once;          ///< of gpt
  float clip = 0.0f;                                ///< largest norm of all gradients of a step; 0: any
  std::optional<unsigned> threads;                  ///< of updates; else as many as the machine has, 8 at most
  std::optional<std::filesystem::path> text, trace, report, metrics, exported;
  std::optional<std::filesystem::path> checkpoint, resume;  ///< folders
  std::optional<std::filesystem::path> init;                ///< a file of weights, or a folder of checkpoints
  std::optional<std::filesystem::path> export_weights;      ///< a file
  std::size_t every = 10;                                   ///< steps between two checkpoints
  /// threads that train together; 0: one, or with `shard` the processes of a launcher
  std::size_t ranks = 0;
  std::optional<unsigned> shard;                       ///< stage of ZeRO, 0 to 3: the data that ranks divide
  std::size_t nodes = 1;                               ///< each node has a copy of the divided data
  std::uint32_t gathers_ahead = 0;                     ///< units that a step gathers for the next one, with `shard` 3
  std::size_t stages = 0;                              ///< of a pipeline; 0: no pipeline
  std::string schedule = "1f1b";                       ///< of the stages: a name, or a file
  std::size_t replicas = 1;                            ///< parallel pipelines, which divide data as `shard` says
  std::optional<std::filesystem::path> plan, cluster;  ///< of configure
  std::optional<std::filesystem::path> write_model;    ///< for configure
  std::optional<std::filesystem::path> write_profile;  ///< for configure
  std::optional<std::filesystem::path> profile;        ///< for which the plan was made
  std::string kind = "node-0";                         ///< kind of the node that measures a profile
  std::optional<std::filesystem::path> forecast;       ///< a cluster: a step on it is simulated in place of a training
  std::optional<double> computed_per_second;           ///< operations of a rank on that cluster; else those of its file
  bool verify = false;
  command_line::common_flags common;
};

/// The metrics of gpt include the norm of all gradients, so the norm is computed without a clip too.
[[nodiscard]] inline bool asks_norm(const options& chosen) noexcept
{
  return chosen.metrics && chosen.whose == program::gpt;
}

/// The norm that gradients are clipped to. If only the value of the norm is needed, the limit is the largest float:
/// every finite gradient keeps its bits.
[[nodiscard]] inline float clip_of(const options& chosen) noexcept
{
  return chosen.clip > 0 || !asks_norm(chosen) ? chosen.clip : std::numeric_limits<float>::max();
}

/// Several ranks train, as threads or processes.
[[nodiscard]] constexpr bool over_ranks(const options& chosen) noexcept
{
  return chosen.ranks > 0 || chosen.shard.has_value();
}
/// One pipeline or several.
[[nodiscard]] inline bool over_stages(const options& chosen) noexcept
{
  return chosen.stages > 0 || chosen.plan.has_value();
}

/// Reads a command line, without the name of the program.
/// @throws problem   one sentence: the option, its value and the allowed values; or two options that exclude each other
[[nodiscard]] options parse_options(int count, const char* const* arguments, program whose = program::gpt);

/// The text of `--help`.
[[nodiscard]] std::string help_text(program whose = program::gpt);

}  // namespace gpt
