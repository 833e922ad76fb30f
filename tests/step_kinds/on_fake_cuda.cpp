// SPDX-License-Identifier: Apache-2.0
#include "grid_training.hpp"

#include <chunkmem/collective/nccl.hpp>
#include <support/fake_device.hpp>
#include <support/fake_nccl.hpp>
#include <support/kernel_launcher.hpp>

namespace step_kinds {

namespace {

/// `fake_device` with calls that fail as planned.
class failing_gpu : public support::failing<support::fake_device> {
 public:
  using failing::failing;

  [[nodiscard]] auto stream(cm::agent which) { return inner().stream(which); }
};

/// A GPU of its own for each thread, whose memory the host cannot read, and NCCL over all.
struct fake_gpus {
  using backend_type = failing_gpu;
  using ranks_type = cm::collective::nccl<support::fake_nccl, cm::collective::local_threads>;
  using launcher_type = support::kernel_launcher;
  using runtime_type = support::fake_cuda;

  struct meeting_place {
    meeting_place(std::uint32_t ranks, const cm::collective::thread_group_options& patience)
        : threads{ranks, patience}, world{std::make_shared<support::fake_nccl_world>(static_cast<int>(ranks))}
    {
    }
    cm::collective::thread_group threads;
    std::shared_ptr<support::fake_nccl_world> world;
  };

  [[nodiscard]] static runtime_type make_runtime(const kind& how)
  {
    const bool is_random = !how.is_over_ranks() && how.at[kind::count] % 2 == 1;
    return support::fake_cuda{support::fake_cuda_options{.when = is_random ? support::fake_schedule::random
                                                                           : support::fake_schedule::earliest}};
  }
  [[nodiscard]] static std::unique_ptr<backend_type> make(const runtime_type& runtime, const kind&,
                                                          const support::failure_plan& fails, cm::bytes device,
                                                          cm::bytes host, std::uint64_t)
  {
    return std::make_unique<backend_type>(
        fails, support::fake_device_options{.device_capacity = device, .host_capacity = host}, runtime);
  }

  class member {
   public:
    member(const meeting_place& group, const runtime_type& runtime, std::uint32_t rank, std::uint64_t deadline)
        : control_{group.threads, cm::rank_id{rank}},
          nccl_{control_, cm::collective::nccl_options{.deadline = deadline},
                support::fake_nccl{group.world, runtime, static_cast<int>(rank), {}}}
    {
    }
    [[nodiscard]] ranks_type& ranks() noexcept { return nccl_; }

   private:
    cm::collective::local_threads control_;
    ranks_type nccl_;
  };
};

}  // namespace

outcome train_on_fake_cuda(const part_of_training& what, const folders_type& from, folders_type& to)
{
  return train_in<fake_gpus>(what, from, to);
}

}  // namespace step_kinds
