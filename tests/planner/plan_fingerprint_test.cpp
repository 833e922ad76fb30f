// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/plan_fingerprint.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace plan_fingerprint_test {

using namespace chunkmem;

namespace {

struct job {
  workload::transformer_shape shape{workload::transformer_style::gpt, 1, 32, 4, 4, 64, 60, 32, 16, 16, false};
  workload::training_setup setup;
  workload::rank_share share{2, 2, 1_GiB, 2_GiB, {1, 2, 3, 4, 5, 6, 7, 8}};
  planner::rank_settings settings;

  [[nodiscard]] std::uint64_t fingerprint() const { return planner::plan_fingerprint(shape, setup, share, settings); }
};

}  // namespace

TEST_CASE("whatever changes a job but its rates changes its fingerprint", "[planner]")
{
  const std::vector<std::function<void(job&)>> changes{
      [](job&) {},
      [](job& it) { it.shape.style = workload::transformer_style::bert; },
      [](job& it) { ++it.shape.layers; },
      [](job& it) { it.shape.hidden = 64; },
      [](job& it) { it.shape.heads = 8; },
      [](job& it) { it.shape.kv_heads = 2; },
      [](job& it) { ++it.shape.ffn; },
      [](job& it) { ++it.shape.vocabulary; },
      [](job& it) { ++it.shape.embedding; },
      [](job& it) { ++it.shape.positions; },
      [](job& it) { ++it.shape.sequence; },
      [](job& it) { it.shape.ties_embedding = true; },
      [](job& it) { it.shape.head_width = 16; },
      [](job& it) { it.shape.has_qkv_biases = true; },
      [](job& it) { it.shape.norms_heads = true; },
      [](job& it) { it.shape.experts = 8, it.shape.experts_for_token = 2; },
      [](job& it) { it.shape.experts = 8, it.shape.experts_for_token = 1; },
      [](job& it) { ++it.setup.micro_batch; },
      [](job& it) { it.setup.recomputes_layers = false; },
      [](job& it) { it.setup.fuses_attention = true; },
      [](job& it) { it.setup.has_dropout = false; },
      [](job& it) { it.setup.has_logits = false; },
      [](job& it) { it.setup.sampled.qkv = 0.3; },
      [](job& it) { it.setup.sampled.projection = 0.3; },
      [](job& it) { it.setup.sampled.mlp_up = 0.3; },
      [](job& it) { it.setup.sampled.mlp_down = 0.3; },
      [](job& it) { ++it.share.ranks; },
      [](job& it) { ++it.share.of_node; },
      [](job& it) { it.share.device_bytes += 1_B; },
      [](job& it) { it.share.host_bytes += 1_B; },
      [](job& it) { it.settings.device_context += 1_B; },
      [](job& it) { it.settings.host_process += 1_B; },
      [](job& it) { it.settings.host_reserve = 0; },
      [](job& it) { it.settings.takes_norm = false; },
      [](job& it) { it.settings.updates_late = false; },
      [](job& it) { it.settings.gradient = planned_gradient{gradient::separate{}}; },
      [](job& it) { it.settings.divided = sharding::zero_2; },
      [](job& it) { it.settings.divided = sharding::zero_1; },
      [](job& it) { it.settings.gradient = planned_gradient{gradient::separate{.wide = true}}; },
      [](job& it) { it.settings.states = {.lists = 1}; },
      [](job& it) { it.settings.states = {.bytes_each = 2}; },
  };
  std::set<std::uint64_t> seen;
  for (const auto& change : changes) {
    job it;
    change(it);
    CHECK(seen.insert(it.fingerprint()).second);
    CHECK(it.fingerprint() == it.fingerprint());
  }
  job drifted;
  drifted.share.rates.to_host_bytes_per_second = 9;
  drifted.settings.chunk_elements = 512;
  drifted.settings.device_update_share = 1;
  CHECK(drifted.fingerprint() == job{}.fingerprint());
}

}  // namespace plan_fingerprint_test
