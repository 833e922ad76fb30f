// SPDX-License-Identifier: Apache-2.0
// stage_that_dies <folder> <seed> <deadline in ms>: one stage of a pipeline in which one stage kills or stops itself at
// a call of its arithmetic that the seed chooses. Each rank is a stage. What a rank writes is as for rank_that_dies.
// Where the seed is a multiple of 11, no stage dies.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/mpi_stages.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>

#include <support/small_stage.hpp>

#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace chunkmem;
using pipeline::operation;

namespace {

// Whole or not there: the driver reads it as soon as it sees it.
void write(const std::string& path, std::string_view what)
{
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::ofstream{path + ".part"} << what << ' ' << std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()
                                << '\n';
  std::filesystem::rename(path + ".part", path);
}

enum class death : std::uint8_t { killed_before, stopped_before, killed_after };

struct fate {
  std::uint32_t call = UINT32_MAX;  // of the arithmetic, at which it dies
  death way = death::killed_before;
  std::string folder{};
};

void die(const fate& mine)
{
  const bool stops = mine.way == death::stopped_before;
  write(mine.folder + "/death", stops ? "stopped" : "killed");
  ::kill(::getpid(), stops ? SIGSTOP : SIGKILL);
}

bool is_call(const operation& step)
{
  return pipeline::computes(step.kind) || step.kind == pipeline::operation_kind::update;
}

/// Calls of a stage before its first one of the last batch. Until all stages have reached it, none can finish.
std::uint32_t calls_before_last_batch(const pipeline::schedule& plan, std::uint32_t stage)
{
  std::uint32_t calls = 0;
  for (const operation& step : plan.stages[stage]) {
    if (!is_call(step)) continue;
    if (plan.batch_of(step.micro_batch) + 1 == plan.batches) break;
    ++calls;
  }
  return calls;
}

/// The same on every rank. @return   of this stage
fate choose(std::mt19937& random, const pipeline::schedule& plan, std::uint32_t stage, const std::string& folder)
{
  const auto who = static_cast<std::uint32_t>(random()) % plan.stage_count();
  if (who != stage) return {};
  const auto call = static_cast<std::uint32_t>(random()) % calls_before_last_batch(plan, who);
  return {call, static_cast<death>(random() % 3), folder};
}

/// Its agents receive, and may send, when it dies.
class dying_stage : public support::small_stage {
 public:
  dying_stage(const pipeline::schedule& plan, std::uint32_t stage, const fate& mine)
      : stage_of_layers{plan, stage, support::small_optimizer::adam, true}, fate_{mine}
  {
  }

  void forward(const forward_run& run)
  {
    call([&] { stage_of_layers::forward(run); });
  }
  void backward(const backward_run& run)
  {
    call([&] { stage_of_layers::backward(run); });
  }
  void update(const operation& step)
  {
    call([&] { stage_of_layers::update(step); });
  }

 private:
  template <class Work>
  void call(Work work)
  {
    const bool is_last = calls_++ == fate_.call;
    if (is_last && fate_.way != death::killed_after) die(fate_);
    work();
    if (is_last) die(fate_);
  }

  fate fate_;
  std::uint32_t calls_ = 0;
};

void train(pipeline::mpi_stages& here, const pipeline::schedule& plan, const fate& mine)
{
  const bytes boundary{support::width * sizeof(float)};
  const pipeline::boundary_buffers buffers{plan, here.stage(), std::vector<bytes>(plan.part_count(), boundary)};
  backend::host_arena memory{{.device_capacity = 64_KiB}};
  const std::span<std::byte> boundaries{memory.allocate(tier::device, 64_KiB), std::size_t{64} << 10};
  auto links = here.links(memory);
  dying_stage stage{plan, here.stage(), mine};
  pipeline::stage_runner runner{plan, links, memory, buffers, boundaries};
  runner.run(stage);
}

}  // namespace

int main(int, char** arguments)
{
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the launcher takes its ranks with it, stopped ones too
  const std::string folder = arguments[1];
  const auto seed = static_cast<std::uint32_t>(std::stoul(arguments[2]));
  const std::chrono::milliseconds deadline{std::stoul(arguments[3])};
  std::mt19937 random{seed};
  collective::mpi_session session;
  std::optional<pipeline::mpi_stages> here;
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string verdict = folder + "/verdict." + std::to_string(rank);
  try {
    const pipeline::pipeline_shape shape{.stages = static_cast<std::uint32_t>(ranks), .micro_batches = 4, .batches = 5};
    const pipeline::schedule plan = random() % 2 == 0 ? make_schedule(pipeline::pipedream_2bw{}, shape)
                                                      : make_schedule(pipeline::one_f_one_b{}, shape);
    here.emplace(session, MPI_COMM_WORLD, plan, collective::mpi_options{.deadline = deadline});
    train(*here, plan, seed % 11 == 0 ? fate{} : choose(random, plan, here->stage(), folder));
    write(verdict, "finished");
  } catch (const comm_error& error) {
    write(verdict, name_of(error.fault().failure) == name_of(comm_failure::deadline) ? "deadline" : "told");
    here.reset();  // must come back: the driver waits for the next line
    write(folder + "/destroyed." + std::to_string(rank), error.what());
    return 17;
  } catch (const std::exception& error) {
    write(verdict, error.what());
  }
  return 0;
}
