// SPDX-License-Identifier: Apache-2.0
#include "grid_training.hpp"

#include <chunkmem/optimizer/device_kernel.hpp>
#include <support/any_backend.hpp>

namespace step_kinds {

namespace {

/// Backends whose device is the host's memory: a host_arena, or one that does everything at the worst moment.
struct arenas {
  using backend_type = support::any_backend;
  using ranks_type = cm::collective::local_threads;
  using launcher_type = cm::optimizer::loop_launcher;
  using meeting_place = cm::collective::thread_group;
  struct runtime_type {};

  [[nodiscard]] static runtime_type make_runtime(const kind&) { return {}; }
  [[nodiscard]] static std::unique_ptr<backend_type> make(const runtime_type&, const kind& how,
                                                          const support::failure_plan& fails, cm::bytes device,
                                                          cm::bytes host, std::uint64_t number)
  {
    const std::uint64_t seed = how.at[kind::type] + 3U * how.at[kind::count] + how.at[kind::when];
    if (how.place_of_bytes() == memory::adversarial)
      return std::make_unique<backend_type>(
          support::adversarial_options{.device_capacity = device,
                                       .host_capacity = host,
                                       .when = static_cast<support::schedule>(seed % 3),
                                       .seed = seed + number,
                                       .async_compute = seed % 2 == 0},
          fails);
    return std::make_unique<backend_type>(
        cm::backend::host_arena_options{
            .device_capacity = device, .host_capacity = host, .async_compute = seed % 2 == 0},
        fails);
  }

  class member {
   public:
    member(const meeting_place& group, const runtime_type&, std::uint32_t rank, std::uint64_t)
        : end_{group, cm::rank_id{rank}}
    {
    }
    [[nodiscard]] ranks_type& ranks() noexcept { return end_; }

   private:
    ranks_type end_;
  };
};

}  // namespace

outcome train_on_arena(const part_of_training& what, const folders_type& from, folders_type& to)
{
  return train_in<arenas>(what, from, to);
}

}  // namespace step_kinds
