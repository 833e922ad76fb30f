// A model over ranks that are processes: every one of them trains alone too, and compares.
#include "mpi_world.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/rank_training.hpp>

namespace training_test {

using namespace chunkmem;
using support::ranks::job;

template <class Element>
void train(job wanted)
{
  mpi_world::doomed world;
  collective::mpi group{world.session, MPI_COMM_WORLD, {.deadline = mpi_world::patience}};
  mpi_world::meet();
  wanted.ranks = group.ranks();
  if (wanted.ranks == 1) wanted.frames *= 3;  // of one rank they are small
  const optimizer::adam kernel{{.weight_decay = 0.01F}};
  support::ranks::one_rank<Element, optimizer::adam> alone{wanted, kernel};
  const bytes frame = wanted.frame_bytes();
  backend::host_arena memory{{.device_capacity = frame * wanted.frames, .host_capacity = frame * 128}};
  using model_type = sharded_model<backend::host_arena, collective::mpi>;
  model_type model{memory, group, {.chunk_bytes = frame}, wanted.scale};
  support::ranks::one_of_many<Element, model_type, optimizer::adam> trainer{model, kernel, wanted, alone.values};
  trainer.run();
  trainer.check_momentum(alone.momentum());
  CHECK(trainer.complaint == "");
  CHECK(trainer.norms == alone.norms);
  mpi_world::meet();  // nobody leaves while others still gather
}

TEST_CASE("processes that train one model get the bits of one rank", "[collective]")
{
  train<float>({.steps = 3, .micro_batches = 2, .clip = 1, .frames = 24});
  train<bf16>({.steps = 3, .micro_batches = 2, .sums_each = false, .clip = 1, .frames = 24, .rehearses = true});
}

}  // namespace training_test
