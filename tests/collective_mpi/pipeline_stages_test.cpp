// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/mpi_stages.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>

#include "mpi_world.hpp"

#include <support/catch.hpp>
#include <support/refusal.hpp>
#include <support/small_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pipeline_stages_test {

using namespace chunkmem;
using namespace chunkmem::pipeline;
using chunkmem::pipeline::schedule;  // not the one of a manager
using support::small_optimizer;

namespace {

std::uint32_t processes()
{
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return static_cast<std::uint32_t>(ranks);
}

/// Trains as the stage that this process is. @return   whether its parts have the bits of one device
bool has_the_bits_of_one_device(collective::mpi_session& session, const schedule& plan)
{
  mpi_stages here{session, MPI_COMM_WORLD, plan, {.deadline = mpi_world::patience}};
  const bytes boundary{support::width * sizeof(float)};
  const boundary_buffers buffers{plan, here.stage(), std::vector<bytes>(plan.part_count(), boundary)};
  backend::host_arena memory{{.device_capacity = 64_KiB}};
  const std::span<std::byte> boundaries{memory.allocate(tier::device, 64_KiB), std::size_t{64} << 10};
  auto links = here.links(memory);
  support::small_stage stage{plan, here.stage(), small_optimizer::adam, true};
  stage_runner runner{plan, links, memory, buffers, boundaries};
  runner.run(stage);
  const auto alone = support::train_alone(plan, small_optimizer::adam, true);
  bool is_equal = stage.is_clean();
  for (std::uint32_t part = 0; part < plan.part_count(); ++part)
    if (plan.owners[part] == here.stage()) is_equal = is_equal && stage.masters(part) == alone[part];
  mpi_world::meet();
  return is_equal;
}

}  // namespace

TEST_CASE("stages that are processes have the bits of one device", "[collective_mpi]")
{
  mpi_world::doomed world;
  const pipeline_shape shape{.stages = processes(), .micro_batches = processes() * 2, .batches = 4};
  for (const schedule& plan : {make_schedule(one_f_one_b{}, shape), make_schedule(pipedream_2bw{}, shape),
                               make_schedule(interleaved{.parts = 2}, shape), make_schedule(zb_v{}, shape)}) {
    CAPTURE(plan.name);
    CHECK(has_the_bits_of_one_device(world.session, plan));
  }
}

TEST_CASE("a schedule of another number of stages than processes is refused", "[collective_mpi]")
{
  mpi_world::doomed world;
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = processes() + 1, .micro_batches = 8});
  CHECK_THROWS_AS((mpi_stages{world.session, MPI_COMM_WORLD, plan}), config_error);
}

TEST_CASE("another schedule on one stage is refused on every stage, and so is one of another number of stages",
          "[collective_mpi]")
{
  if (processes() < 2) SKIP("one process has no other stage");
  const pipeline_shape shape{.stages = processes(), .micro_batches = 4};
  const schedule usual = make_schedule(one_f_one_b{}, shape);
  const schedule other = make_schedule(gpipe{}, shape);
  const schedule longer = make_schedule(one_f_one_b{}, {.stages = processes() + 1, .micro_batches = 4});
  for (const schedule* its : {&other, &longer}) {
    mpi_world::doomed world;
    const std::string text = support::refusal<config_error>([&] {
      const mpi_stages here{world.session, MPI_COMM_WORLD, mpi_world::rank() == 1 ? *its : usual};
    });
    CAPTURE(text);
    CHECK(text.find("stage 1 on ") != std::string::npos);
    CHECK(text.find(its == &other ? "has another schedule than stage 0 on " : "was given to stage 1") !=
          std::string::npos);
    mpi_world::meet();
  }
}

TEST_CASE("the error of a link names the stage that gave up, its node and its rank of the job", "[collective_mpi]")
{
  if (processes() < 2) SKIP("one process has no link");
  mpi_world::doomed world;
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = processes(), .micro_batches = 4});
  mpi_stages here{world.session, MPI_COMM_WORLD, plan, {.deadline = mpi_world::patience}, "replica 7"};
  const boundary_buffers buffers{plan, here.stage(), std::vector<bytes>(plan.part_count(), 256_B)};
  backend::host_arena memory{{.device_capacity = 64_KiB}};
  const std::span<std::byte> boundaries{memory.allocate(tier::device, 64_KiB), std::size_t{64} << 10};
  auto links = here.links(memory);
  struct gone {};
  struct giving_up {
    bool is_last = false;
    void forward(const forward_run&)
    {
      if (is_last) throw gone{};
    }
    void backward(const backward_run&) {}
    void update(const operation&) {}
  } stage{here.stage() + 1 == processes()};
  stage_runner runner{plan, links, memory, buffers, boundaries};
  std::string text;
  try {
    runner.run(stage);
  } catch (const comm_error& failed) {
    text = std::string{failed.what()} + "\n" + std::string{failed.details()};
  } catch (const gone&) {
    text = "gone";
  }
  CAPTURE(text);
  if (stage.is_last) {
    CHECK(text == "gone");
  } else {
    const std::string next = std::to_string(here.stage() + 1);
    CHECK(text.find("(stage " + next + " of replica 7 on ") != std::string::npos);
    // Two processes have the same numbers in their link as in the job.
    CHECK((text.find(", rank " + next + " of MPI_COMM_WORLD)") != std::string::npos) == (processes() > 2));
    CHECK(text.find("\nstage " + std::to_string(here.stage()) + " of " + std::to_string(processes()) + " was at ") !=
          std::string::npos);
  }
  mpi_world::meet();
}

}  // namespace pipeline_stages_test
