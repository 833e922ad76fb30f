// SPDX-License-Identifier: Apache-2.0
// Constants and rules by which this library predicts the trainings that AMP measured (Li et al. 2022, arXiv
// 2210.07297). None is fitted to the measured seconds. Version 1 was written down before a program read these. Versions
// 2 and 3 changed rules after a result was seen.
//
// Version 1: all but the rule below, in a commit before the first reading. A backward run took twice the forward
// seconds, whatever was in them. Spearman 0.929, the best of the first two 1.025, the first 1.100, median error 0.350.
// Version 2: the seconds of a profile are split into computing and sums (backward_computing, backward_sums). It was
// written after the result of version 1, where tensor-parallel rows were the slowest ones beside the measured ones. No
// number comes from the seconds. Spearman 0.952, the best of the first two 1.025, the first 1.100, median error 0.270.
// Version 3: the bytes of numbers are those of DeepSpeed's settings, which version 1 had not looked up: 2 for
// activations, weights and the tied table, and 4 for sums over replicas. Version 1 had 4 for all. Spearman 0.943, the
// best of the first two 1.067, the first 1.100, median error 0.2503. The three plans that are predicted to be the next
// ones behind the first are within 1 % of each other. It stays, since the settings are what ran. Memory speaks for it
// too: with numbers of 4 bytes 19 of 47 trainings that ran would need more than a T4 has, and with these none does. The
// test prints the rows of float32 throughout, as in version 2, beside these.
//
// Known before, from other people's reports on the same study: AMP's own rank correlation on its three groups of
// trainings (0.935, 0.394, 0.853), the measured seconds of five rows of the homogeneous group (1.32, 1.28, 1.20 and
// 1.23 s for one row a micro-batch without tensor parallelism and 1, 2, 4 and 8 stages; 2.90 s for 16 replicas of
// another group), and that some of its 52 rows failed. No constant below comes from them.
//
// "Scripts" below are those of github.com/DachengLi1/AMP: homogeneous.py, het_cluster.py, cost_homo.py,
// cost_het_cluster.py and ds_pretrain_gpt2_pipe.sh. "DeepSpeed" is its fork there, of DeepSpeed 0.3.
#pragma once

#include <cstdint>

namespace amp_rules {

// ---- The training. Source: scripts ----

inline constexpr std::uint64_t layers = 24;
inline constexpr std::uint64_t hidden = 1024;
inline constexpr std::uint64_t heads = 16;
inline constexpr std::uint64_t sequence = 1024;
inline constexpr std::uint64_t vocabulary = 52'256;
inline constexpr std::uint64_t rows_of_batch = 32;
inline constexpr std::uint32_t nodes = 4;
inline constexpr std::uint32_t devices_of_node = 4;

/// A profile has 30 parts: the embedding, one without work, 24 layers, two without work, the logits, and the loss.
inline constexpr std::uint32_t parts = 30;
inline constexpr std::uint32_t embedding_part = 0;
inline constexpr std::uint32_t first_layer_part = 2;
inline constexpr std::uint32_t logits_part = 28;
/// The embedding and the logits have one table, as DeepSpeed's tied layers have. On two stages it is there twice, and
/// the copies add their gradients up, behind the last run and before replicas do.
inline constexpr bool ties_table = true;

// ---- Times of runs ----

/// A profile has the forward seconds of one row. More rows take as many times as long. Source: scripts.
inline constexpr std::uint64_t rows_of_profile = 1;
/// A backward run computes twice as long as a forward run, a half for the gradient of the input. Source: scripts (three
/// times the forward seconds for both); the halves matter to no schedule of the study, where a backward run is one.
inline constexpr double backward_computing = 2;
/// A backward run has as many sums over ranks that share a layer as a forward run, of as many bytes. Source:
/// Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053), whose layers these are. A forward run at degree t computes for
/// a t-th of its time at degree 1, and the rest of it is sums: the rule of `with_backward_runs`.
inline constexpr double backward_sums = 1;
/// Times at a tensor-parallel degree above 1 contain the sums over the ranks that share a layer: they were measured in
/// the running model, inside a node of the same kind. Source: scripts. In the study such ranks never leave a node.
inline constexpr bool times_have_sums = true;
/// Nothing is computed again. Source: scripts, which give DeepSpeed no checkpoints of activations.
inline constexpr bool recomputes = false;
/// A node has the times of its own kind of device. (AMP takes the mean of unlike nodes.) A stage is as fast as its
/// slowest rank, and a batch as its slowest replica: DeepSpeed's ranks wait for each other.
inline constexpr bool nodes_have_own_times = true;

// ---- Bytes of numbers ----

/// Trainings run in half precision, with masters. Source: scripts (--fp16; ds_config.json: fp16 enabled). AMP's own
/// model divides rates by 32 bits.
inline constexpr std::uint32_t bytes_of_activation = 2;
inline constexpr std::uint32_t bytes_of_weight = 2;
/// Replicas add gradients up in single precision. Source: scripts (ds_config.json: fp32_allreduce).
inline constexpr std::uint32_t bytes_of_gradient_in_sums = 4;
/// Copies of the tied table add up the gradients as they are. Source: DeepSpeed, runtime/pipe/module.py
/// (allreduce_tied_weight_gradients).
inline constexpr std::uint32_t bytes_of_tied_gradient = 2;

// ---- Schedule and order of ranks ----

/// 1F1B, and no ZeRO: each replica adds up all gradients of its stage behind its last run, in a ring, with nothing
/// under it. Source: DeepSpeed, runtime/pipe/schedule.py (TrainSchedule ends with ReduceTiedGrads, ReduceGrads and
/// OptimizerStep) and runtime/engine.py (buffers of 500,000,000 elements: one buffer for a stage).
inline constexpr std::uint32_t zero = 0;
inline constexpr bool hides_sums = false;
/// Ranks are numbered tensor-parallel first, then data, then pipeline, node by node. Source: DeepSpeed,
/// runtime/pipe/topology.py (axes pipe, data, model), and scripts (axis2rank).
[[nodiscard]] constexpr std::uint32_t device_of(std::uint32_t tensor, std::uint32_t replicas, std::uint32_t stage,
                                                std::uint32_t replica, std::uint32_t member) noexcept
{
  return (stage * replicas + replica) * tensor + member;
}

// ---- Links ----

/// Bits per second become bytes per second by 8. Rates are the nominal ones, which AMP uses. Source: scripts.
inline constexpr double bytes_of_bit = 1.0 / 8;
inline constexpr double t4_port_bits = 50e9;  ///< g4dn.12xlarge, in and out at the same time
inline constexpr double t4_inside_bits = 50e9;
inline constexpr double v100_port_bits = 10e9;  ///< p3.8xlarge, as het_cluster.py has it
inline constexpr double v100_inside_bits = 170e9;
/// A link between two nodes has the smaller of their ports, and a lone flow has all of it. Flows that cross a port at
/// the same time share it: the rings of all ranks of a plan, and the transfers of all replicas and members of one
/// boundary in one direction. Source: data sheets of these machines, which have one network port for four devices.
inline constexpr bool ports_are_shared = true;
/// Inside a node each pair of devices has the rate: each device has a PCIe link or NVLinks of its own, and is in one
/// ring at a time. Source: data sheets of g4dn.12xlarge and p3.8xlarge.
inline constexpr bool inside_is_shared = false;
/// Seconds before the first byte of a transfer. Source: NCCL, src/graph/tuning.cc, hwLat of a ring with the protocol
/// Simple: 14.0 us over a network, 5.7 us over PCIe, 3.4 us over NVLink.
inline constexpr double network_latency = 14.0e-6;
inline constexpr double t4_inside_latency = 5.7e-6;
inline constexpr double v100_inside_latency = 3.4e-6;

// ---- Updates ----

/// Adam reads a weight, a gradient and two moments, and writes three of them: 28 bytes, at the device's memory rate.
/// Source: data sheets (T4: 320 GB/s; V100: 900 GB/s). AMP leaves updates out.
inline constexpr double bytes_of_update = 28;
inline constexpr double t4_memory_rate = 320e9;
inline constexpr double v100_memory_rate = 900e9;

// ---- Memory ----

/// On each replica 18 bytes for a parameter: a weight of 2, a gradient of 4 in sums, a master and two moments of 4. And
/// activations of an unfused attention with dropout, kept until their backward run: up to (stages - stage)
/// micro-batches. Source: scripts, and Korthikanti et al. 2022 (arXiv 2205.05198) for the bytes of a layer.
inline constexpr bool fuses_attention = false;
/// Bytes of a T4 that a process can use: 15,109 MiB of the 16 GB, as its driver says.
inline constexpr std::uint64_t t4_bytes = std::uint64_t{15'109} << 20;

}  // namespace amp_rules
