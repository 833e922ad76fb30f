// SPDX-License-Identifier: Apache-2.0
// A model over ranks that are processes: every one of them trains alone too, and compares.
#include "mpi_world.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/rank_training.hpp>

#include <mpi.h>

#include <cstdint>

namespace training_test {

using namespace chunkmem;
using support::ranks::job;

/// Processes of one node, or of one place in every node, as the user groups them.
class part {
 public:
  part(std::uint32_t color, std::uint32_t key)
  {
    MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(color), static_cast<int>(key), &all_);
  }
  ~part() { MPI_Comm_free(&all_); }
  part(const part&) = delete;
  [[nodiscard]] MPI_Comm get() const { return all_; }

 private:
  MPI_Comm all_ = MPI_COMM_NULL;
};

template <class Element, class... Policies, class Ranks>
void train_on(Ranks& ranks, const job& wanted)
{
  const optimizer::adam kernel{{.weight_decay = 0.01F}};
  support::ranks::one_rank<Element, optimizer::adam> alone{wanted, kernel};
  const bytes frame = wanted.frame_bytes();
  backend::host_arena memory{{.device_capacity = frame * wanted.frames, .host_capacity = frame * 128}};
  using model_type = sharded_model<backend::host_arena, Ranks, Policies...>;
  model_type model{memory, ranks, {.chunk_bytes = frame}, {.divided = wanted.divided, .sum_scale = wanted.scale}};
  support::ranks::one_of_many<Element, model_type, optimizer::adam> trainer{model, kernel, wanted, alone.values};
  trainer.run();
  trainer.check_momentum(alone.momentum());
  CHECK(trainer.complaint == "");
  CHECK(trainer.norms == alone.norms);
  mpi_world::meet();  // nobody leaves while others still gather
}

template <class Element>
void train(job wanted)
{
  mpi_world::doomed world;
  collective::mpi group{world.session, MPI_COMM_WORLD, {.deadline = mpi_world::patience}};
  mpi_world::meet();
  wanted.ranks = group.ranks();
  if (wanted.ranks == 1) wanted.frames *= 3;  // of one rank they are small
  train_on<Element>(group, wanted);
}

/// Nodes of two processes where that goes, else of one.
void train_in_nodes(job wanted)
{
  mpi_world::doomed world;
  const std::uint32_t rank = mpi_world::rank();
  wanted.ranks = mpi_world::ranks();
  wanted.of_node = wanted.ranks % 2 == 0 ? 2 : 1;
  if (wanted.ranks == 1) wanted.frames *= 3;
  const part of_node{rank / wanted.of_node, rank};
  const part of_place{rank % wanted.of_node, rank};
  const collective::mpi_options options{.deadline = mpi_world::patience};
  collective::mpi all{world.session, MPI_COMM_WORLD, options};
  collective::mpi node{world.session, of_node.get(), options};
  collective::mpi across{world.session, of_place.get(), options};
  sharding::process_groups<collective::mpi> process_groups{all, node, across};
  mpi_world::meet();
  train_on<float, ownership::hierarchical>(process_groups, wanted);
}

TEST_CASE("processes that train one model get the bits of one rank", "[collective_mpi]")
{
  train<float>({.steps = 3, .micro_batches = 2, .clip = 1, .frames = 24});
  train<float>({.steps = 3, .micro_batches = 2, .divided = sharding::zero_1, .clip = 1, .frames = 24});
  train<float>({.steps = 3, .divided = sharding::zero_2, .clip = 1, .frames = 24});
  train<bf16>({.steps = 3, .micro_batches = 2, .sums_each = false, .clip = 1, .frames = 24, .rehearses = true});
}

TEST_CASE("so do processes in nodes, which add inside them first", "[collective_mpi]")
{
  train_in_nodes({.steps = 3, .micro_batches = 2, .clip = 1, .frames = 24});
  train_in_nodes({.steps = 2, .micro_batches = 2, .divided = sharding::zero_1, .clip = 1, .frames = 24});
}

TEST_CASE("processes that differ in a value or in a setting are told so", "[collective_mpi]")
{
  if (mpi_world::ranks() == 1) return;
  mpi_world::doomed world;
  collective::mpi group{world.session, MPI_COMM_WORLD, {.deadline = mpi_world::patience}};
  const bool is_last = mpi_world::rank() + 1 == mpi_world::ranks();
  const bytes frame{std::uint64_t{mpi_world::ranks()} * 16'384};
  backend::host_arena memory{{.device_capacity = frame * 20, .host_capacity = frame * 20}};
  sharded_model<backend::host_arena, collective::mpi> m{memory, group, {.chunk_bytes = frame}};
  optimizer::adam adam{{.beta1 = is_last ? 0.5F : 0.9F}};
  m.use(adam);
  const auto weight = m.add<float>({9'000}, role::parameter);
  m.acquire(weight, access::write).span()[8'999] = is_last ? -0.0F : 0.0F;
  CHECK_THROWS_AS(m.iteration(), usage_error);
  m.broadcast(m.acquire(weight, access::write));
  {
    const auto scope = m.iteration();
    for (float& it : m.gradient(weight).span()) it = 1;
    CHECK_THROWS_WITH(m.step(adam, {}), Catch::Matchers::ContainsSubstring("beta1 = 0.5 on rank"));
    CHECK(m.acquire(weight, access::read).span()[0] == 0.0F);
  }
  mpi_world::meet();
}

}  // namespace training_test
