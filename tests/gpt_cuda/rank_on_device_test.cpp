// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/rank_on_device.hpp>

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>
#include <gpt_cuda/fake_training.hpp>
#include <support/catch.hpp>
#include <support/fake_nccl.hpp>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rank_on_device_test {

namespace {

using namespace chunkmem;
using namespace chunkmem::literals;
using Catch::Matchers::ContainsSubstring;
using chunkmem::ownership::process_group;
using chunkmem::sharding::thread_ranks;
using support::fake_nccl;
using support::fake_nccl_world;

/// One rank's GPU, which starts all work at once.
struct fake_gpu_of_rank {
  using backend_type = support::fake_device;
  static constexpr bytes left_to_libraries = 48_MiB;
  static constexpr bytes largest_message = 32_KiB;
  support::fake_cuda runtime{support::fake_cuda_options{.when = support::fake_schedule::earliest}};

  [[nodiscard]] static bytes host_limit() { return 64_MiB; }
  [[nodiscard]] backend_type make(chunkmem::bytes device, chunkmem::bytes host) const
  {
    return backend_type{{.device_capacity = device, .host_capacity = host}, runtime};
  }
};

using group = collective::nccl<fake_nccl, collective::local_threads>;
using place = gpt::cuda::rank_on_device<fake_gpu_of_rank, group, support::fake_math>;

std::vector<std::shared_ptr<fake_nccl_world>> worlds(std::uint32_t groups, std::uint32_t ranks)
{
  std::vector<std::shared_ptr<fake_nccl_world>> result;
  for (std::uint32_t index = 0; index < groups; ++index)
    result.push_back(std::make_shared<fake_nccl_world>(static_cast<int>(ranks)));
  return result;
}

/// Calls `work(place, plan)` on a thread for each rank, each with a GPU and its groups.
template <class Work>
void on_ranks(const gpt::options& chosen, Work work, std::size_t connections = 0)
{
  const auto ranks = static_cast<std::uint32_t>(chosen.ranks);
  const gpt::rank_plan plan = gpt::cuda::plan_on_device(chosen, ranks);
  const auto all_world = worlds(1, ranks);
  const auto node_worlds = worlds(ranks / plan.of_node, plan.of_node);
  const auto place_worlds = worlds(plan.of_node, ranks / plan.of_node);
  thread_ranks{ranks, plan.of_node}.run([&](thread_ranks::place& here) {
    const fake_gpu_of_rank gpu;
    const auto join = [&](process_group kind, const std::shared_ptr<fake_nccl_world>& world) {
      auto& control = here.process_groups().of(kind);
      return std::make_unique<group>(
          control, collective::nccl_options{},
          fake_nccl{world, gpu.runtime, static_cast<int>(index_of(control.rank())), {.connections = connections}});
    };
    const auto all = join(process_group::all, all_world[0]);
    const auto node = join(process_group::node, node_worlds[here.rank() / plan.of_node]);
    const auto across = join(process_group::across, place_worlds[here.rank() % plan.of_node]);
    sharding::process_groups<group> process_groups{*all, *node, *across};
    work(place{gpu, process_groups}, plan);
  });
}

/// What rank 0 prints, and what the ranks end with.
struct printed {
  explicit printed(const gpt::options& chosen)
  {
    const gpt::training_text text = support::some_text();
    std::FILE* const out = std::tmpfile();
    REQUIRE(out != nullptr);
    std::atomic<int> worst = EXIT_SUCCESS;
    on_ranks(chosen, [&](const place& here, const gpt::rank_plan& plan) {
      if (const int mine = gpt::run_rank(chosen, text, gpt::display{out}, here, plan, "GPUs"); mine != EXIT_SUCCESS)
        worst = mine;
    });
    status = worst;
    std::rewind(out);
    for (int each = std::fgetc(out); each != EOF; each = std::fgetc(out)) all.push_back(static_cast<char>(each));
    std::fclose(out);
  }
  /// The line about the weights.
  [[nodiscard]] std::string hash() const
  {
    const auto at = all.find("parameters identical");
    return at == std::string::npos ? "none" : all.substr(at, all.find('\n', at) - at);
  }
  int status = -1;
  std::string all;
};

gpt::options some_options(unsigned stage)
{
  gpt::options chosen;
  chosen.size = support::small_gpt;
  chosen.size.width = 32;
  chosen.steps = 3;
  chosen.chunk_bytes = 32_KiB;
  chosen.precision = dtype::bfloat16;
  chosen.activations = gpt::activation_mode::recompute;
  chosen.update = gpt::update_choice::cpu;
  chosen.verify = true;
  chosen.ranks = 2;
  chosen.shard = stage;
  return chosen;
}

/// Losses of the ranks' training, without a limit.
std::vector<float> losses_of(const gpt::options& chosen)
{
  const gpt::training_text text = support::some_text();
  std::vector<float> losses;
  on_ranks(chosen, [&](const place& here, const gpt::rank_plan& plan) {
    optimizer::thread_pool workers{1};
    const gpt::training_setup setup{chosen, text, workers, *chosen.chunk_bytes};
    const auto result = gpt::rank_session<place>{setup, here, plan, 16_MiB, 64_MiB}.train(nullptr, nullptr);
    if (index_of(here.process_groups().of(process_group::all).rank()) == 0) losses = result.losses;
  });
  return losses;
}
/// Those of one GPU that has all their rows.
std::vector<float> losses_of_one(gpt::options chosen)
{
  struct machine {
    [[nodiscard]] static gpt::memory_limits limits() { return {.host = 64_MiB, .device = 16_MiB}; }
  };
  using training =
      gpt::cuda::training_on_device<support::prompt_device, support::gpt_manager, support::fake_math, machine>;
  chosen.size.batch *= chosen.ranks;
  const gpt::training_text text = support::some_text();
  optimizer::thread_pool workers{1};
  const gpt::training_setup setup{chosen, text, workers, *chosen.chunk_bytes};
  gpt::session<training> session{setup, 16_MiB, 64_MiB};
  (void)session.rehearse();
  session.fill();
  return session.train(nullptr, nullptr).losses;
}

}  // namespace

TEST_CASE("ranks with a GPU each learn what one GPU learns from all their rows", "[gpt_cuda]")
{
  gpt::options chosen = some_options(3);
  chosen.steps = 8;
  chosen.learning_rate = 1e-2F;
  const std::vector<float> one = losses_of_one(chosen);
  const std::vector<float> two = losses_of(chosen);
  REQUIRE(one.size() == two.size());
  CHECK(one.back() < one.front() - 0.5F);
  for (std::size_t index = 0; index < one.size(); ++index) {
    CAPTURE(index, one[index], two[index]);
    CHECK(std::abs(one[index] - two[index]) <
          5e-3F);  // gradients of each rank are rounded to bf16 before they are added
  }
}

TEST_CASE("ranks with a GPU each end with the same weights, capped and not, in every stage", "[gpt_cuda]")
{
  std::string first;
  for (const unsigned stage : {3U, 0U, 1U, 2U}) {
    const printed result{some_options(stage)};
    CAPTURE(stage, result.all);
    CHECK(result.status == EXIT_SUCCESS);
    CHECK_THAT(result.all, ContainsSubstring("5 losses, 5 identical"));
    CHECK(support::lines_about_memory(result.all) == 1);  // of rank 0
    CHECK(result.hash() != "none");
    if (first.empty()) first = result.hash();
    CHECK(result.hash() == first);
  }
  gpt::options swapped = some_options(3);
  swapped.activations = gpt::activation_mode::swap;
  for (const auto gradient : {gpt::gradient_choice::separate, gpt::gradient_choice::in_place}) {
    swapped.gradient = gradient;
    const printed result{swapped};
    CAPTURE(result.all);
    CHECK(result.status == EXIT_SUCCESS);
    CHECK(result.hash() == first);
  }
}

TEST_CASE("micro-batches of ranks with a GPU each are added once for a step, or refused in a sentence", "[gpt_cuda]")
{
  gpt::options chosen = some_options(3);
  chosen.size.micro_batches = 2;
  const printed result{chosen};
  CAPTURE(result.all);
  CHECK(result.status == EXIT_SUCCESS);
  CHECK_THAT(result.all, ContainsSubstring("5 losses, 5 identical"));
  chosen.shard = 2U;
  CHECK_THROWS_WITH(printed{chosen}, ContainsSubstring("choose --shard 1 or 3"));
  chosen = some_options(3);
  chosen.update = gpt::update_choice::gpu;
  CHECK_THROWS_WITH(printed{chosen}, ContainsSubstring("choose --update cpu"));
  chosen = some_options(3);
  chosen.activations = gpt::activation_mode::planned;
  CHECK_THROWS_WITH(printed{chosen}, ContainsSubstring("choose swap, keep or recompute"));
}

TEST_CASE("what a rank may be given is measured when its groups and products have taken their memory", "[gpt_cuda]")
{
  const gpt::options chosen = some_options(3);
  for (const std::size_t connections : {std::size_t{0}, std::size_t{1'000'000}}) {
    std::atomic<std::uint64_t> least{UINT64_MAX};
    on_ranks(
        chosen,
        [&](const place& here, const gpt::rank_plan&) {
          const bytes mine = here.limits(chosen).device.value();
          if (index_of(here.process_groups().of(process_group::all).rank()) == 0) least = mine.count();
        },
        connections);
    CHECK(least == (16_MiB).count() - 3 * connections);
  }
  CHECK_THROWS_AS(on_ranks(
                      chosen, [&](const place& here, const gpt::rank_plan&) { (void)here.limits(chosen); }, 60'000'000),
                  comm_error);  // said before anything was sized
}

TEST_CASE("what one GPU may be given is measured when its products have taken their memory", "[gpt_cuda]")
{
  struct hungry_math : support::fake_math {
    const support::fake_cuda* gpu = nullptr;
    bool has_handle = false;
    void prepare(const gpt::cuda::product_shape& shape)
    {
      if (!std::exchange(has_handle, true)) REQUIRE(gpu->take_for_library(0, 1'000'000));
      fake_math::prepare(shape);
    }
  };
  const fake_gpu_of_rank gpu;
  support::fake_device memory = gpu.make(1_MiB, {});
  hungry_math math;
  math.gpu = &gpu.runtime;
  gpt::cuda::warm_products(memory, math);
  memory.resize_to_free(48_MiB);
  CHECK(memory.capacity(tier::device) == 16_MiB - bytes{1'000'000});
  CHECK(memory.allocate(tier::device, memory.capacity(tier::device)) != nullptr);
  CHECK(gpu.runtime.take_for_library(0, (48_MiB).count()));
}

}  // namespace rank_on_device_test
