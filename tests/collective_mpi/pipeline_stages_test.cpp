// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/interleaved.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/mpi_stages.hpp>
#include <chunkmem/pipeline/no_flush.hpp>
#include <chunkmem/pipeline/one_f_one_b.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/zb_v.hpp>

#include "mpi_world.hpp"

#include <support/catch.hpp>
#include <support/small_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pipeline_stages_test {

using namespace chunkmem;
using namespace chunkmem::pipeline;
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
  for (const schedule& plan : {make_schedule(one_f_one_b{}, shape), make_schedule(no_flush{}, shape),
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

}  // namespace pipeline_stages_test
