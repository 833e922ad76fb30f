// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_file.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace plan_file_test {

using namespace chunkmem;
using namespace chunkmem::configurator;
using Catch::Matchers::ContainsSubstring;

namespace {

const plan_subject subject{17, 23};

parallel_plan a_plan()
{
  return {.tensor = 2,
          .stages = 3,
          .replicas = 1,
          .micro_batch = 4,
          .micro_batches = 6,
          .schedule = schedule_kind::zb_v,
          .parts = 2,
          .recomputes = true,
          .states_on_host = true,
          .zero = 2,
          .cuts = {3, 4, 6, 9, 11},
          .devices = {5, 4, 3, 2, 1, 0}};
}

std::string refusal(const std::string& was, const std::string& is)
{
  std::string text = plan_text(a_plan(), subject);
  const std::size_t at = text.find(was);
  if (at == text.npos) return "the text has not " + was;
  return support::refusal<format_error>([&] { (void)parse_plan(text.replace(at, was.size(), is), "p.json", subject); });
}

}  // namespace

TEST_CASE("a plan that is written reads back as the same", "[configurator]")
{
  CHECK(parse_plan(plan_text(a_plan(), subject), "p.json", subject) == a_plan());
  for (std::size_t kind = 0; kind < schedule_kinds; ++kind) {
    parallel_plan plan = a_plan();
    plan.schedule = static_cast<schedule_kind>(kind);
    if (kind % 2 == 0) plan.cuts.clear();
    plan.zero = kind % 4;
    CHECK(parse_plan(plan_text(plan, subject), "p.json", subject) == plan);
  }
}

TEST_CASE("a plan of another model or cluster, or with a wrong key, is refused with its key", "[configurator]")
{
  CHECK_THAT(refusal("17", "18"), ContainsSubstring("\"model\" is that of another model"));
  CHECK_THAT(refusal("23", "24"), ContainsSubstring("\"cluster\" is that of another cluster"));
  CHECK_THAT(refusal("plan 1", "plan 2"), ContainsSubstring("\"format\" is not that of this version"));
  CHECK_THAT(refusal("zb-v", "zb-w"), ContainsSubstring("\"schedule\" is unknown"));
  CHECK_THAT(refusal("\"stages\": 3", "\"stages\": -3"), ContainsSubstring("\"stages\" is negative"));
  CHECK_THAT(refusal("\"stages\": 3", "\"stages\": 3.5"), ContainsSubstring("\"stages\" is no whole number"));
  CHECK_THAT(refusal("\"recomputes\": true", "\"recomputes\": 1"), ContainsSubstring("\"recomputes\" is a number"));
  CHECK_THAT(refusal("\"zero\"", "\"zeros\""), ContainsSubstring("\"zero\" is missing"));
  CHECK_THAT(refusal("    4,\n    6,", "    4,\n    -6,"), ContainsSubstring("\"cuts[2]\" is no whole number"));
  CHECK_THAT(refusal("    5,", "    -5,"), ContainsSubstring("\"devices[0]\" is no whole number"));
  CHECK_THAT(refusal("    5,", "    4294967296,"), ContainsSubstring("\"devices\" has a number that no device has"));
}

TEST_CASE("each number of a model and of a cluster tells it from others", "[configurator]")
{
  workload::transformer_shape shape{.layers = 2,
                                    .hidden = 8,
                                    .heads = 2,
                                    .kv_heads = 2,
                                    .ffn = 16,
                                    .vocabulary = 9,
                                    .embedding = 8,
                                    .positions = 0,
                                    .sequence = 4};
  cluster whole{.name = "a", .nodes{cluster_node{.kind = "k"}, cluster_node{.kind = "k"}}, .links = link_matrix{2}};
  const plan_subject before = subject_of(shape, whole);
  CHECK(subject_of(shape, whole) == before);
  shape.layers = 3;
  CHECK(subject_of(shape, whole).model != before.model);
  CHECK(subject_of(shape, whole).cluster == before.cluster);
  whole.links(1, 0).latency = 1e-6;
  CHECK(subject_of(shape, whole).cluster != before.cluster);
  const std::uint64_t usual = subject_of(shape, whole).model;
  for (const trainer_traits& other :
       {trainer_traits{.gradient_bytes = 4}, trainer_traits{.weight_bytes = 4, .gradient_bytes = 4},
        trainer_traits{.tied_bytes = 4}, trainer_traits{.fuses_attention = false}, trainer_traits{.hides_sums = true},
        trainer_traits{.states = {.lists = 1}}, trainer_traits{.states = {.bytes_each = 2}}})
    CHECK(subject_of({shape, other}, whole).model != usual);
  model_profile profile{.name = "p", .parts = {{.name = "all"}}};
  profile.weights = {{1, {{8}}}};
  profile.sizes = {{1, 1, {1}, {2}, {3}}};
  profile.times = {{"k", 1, 1, {{1e-3, 1e-3, 1e-3}}}};
  const std::uint64_t measured = subject_of(trained_model{profile}, whole).model;
  CHECK(measured != usual);
  profile.times[0].of_parts[0].forward = 2e-3;
  CHECK(subject_of(trained_model{profile}, whole).model != measured);
  const plan_subject alone = subject_of(shape, whole);
  whole.nodes[0].port_in_bytes_per_second = 1e9;
  CHECK(subject_of(shape, whole).cluster != alone.cluster);
  const plan_subject slower = subject_of(shape, whole);
  whole.nodes[1].host_updates_per_second = 1;
  CHECK(subject_of(shape, whole).cluster != slower.cluster);
  const plan_subject without_curve = subject_of(shape, whole);
  whole.nodes[0].product_curve = {{.flops = 1e9, .part = 0.5}};
  CHECK(subject_of(shape, whole).cluster != without_curve.cluster);
  const plan_subject without_work = subject_of(shape, whole);
  whole.nodes[0].message_work.seconds_per_message = 1e-6;
  CHECK(subject_of(shape, whole).cluster != without_work.cluster);
}

}  // namespace plan_file_test
