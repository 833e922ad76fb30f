// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/host_device.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/rank_manager.hpp>
#include <chunkmem/optimizer/decision_kernels.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/optimizer/update_site.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Writes the decision of the calling thread to the memory from which an `update_kernel` reads it.
///
///     loop_launcher::run(given_kernel{state, 0, 1.0F, factors, adam::device_factors{options, settings}});
template <class Factors>
class given_kernel {
 public:
  /// @param state, factors   written, in device memory
  /// @param updates   number of updates before   @param factor   of all gradients
  given_kernel(device_step_state* state, std::uint64_t updates, float factor, Factors* factors,
               const Factors& given) noexcept
      : state_{state}, factors_{factors}, updates_{updates}, given_{given}, factor_{factor}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }

  /// Valid while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const given_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t) const noexcept
  {
    state_->number = updates_;
    state_->factor = factor_;
    state_->decision = step_decision::update;
    *factors_ = given_;
  }

 private:
  device_step_state* state_;
  Factors* factors_;
  std::uint64_t updates_;
  Factors given_;
  float factor_;
};

namespace detail {

/// The calling thread decides, and kernels on the device measure and update. @tparam Where   a device_updates
template <class Where>
class launched_site : public decided_by_caller {
 public:
  static constexpr bool has_bytes = true;
  static constexpr bool host_reaches = false;

  /// @param where   outlives this object   @throws usage_error   it is of another manager than the step
  template <class Backend>
  launched_site(Backend& backend, Where& where) : where_{where}
  {
    where.expect_of(backend);
  }

  template <class Work>
  void at_place(memory_location, Work work) const
  {
    where_.with_room([&] { work(agent::compute); });
  }
  template <class Kernel>
  [[nodiscard]] gradient_measure measure(const Kernel&, const std::byte* gradient, dtype type, std::uint64_t elements,
                                         agent) const
  {
    gradient_measure all;
    where_.for_each_block(gradient, type, elements,
                          [&](std::uint64_t, const gradient_measure& block) { all.add(block); });
    return all;
  }
  template <device_optimizer_kernel Kernel>
  void update(const Kernel& kernel, const parameter_bytes& all, const update_request& request, agent) const
  {
    where_.update(kernel, all, request);
  }
  void remake(const parameter_bytes& all, agent) const { where_.remake(all); }

 private:
  Where& where_;
};

}  // namespace detail

/// Updates run on the device, and the calling thread decides. `step`, late_updates, `sharded_model::step` and
/// pipeline::stage_step take this object in place of their workers.
///
///     optimizer::device_updates<model_type, cuda_launcher> device{model};   // a manager or a sharded_model
///     model.step(adam, {.learning_rate = 1e-3F, .clip = {.norm = 1.0F}}, device);
///
/// Gradients, weights and states come to the device for the measure and the update of their parameter, for every
/// placement policy. Bits, counts and checkpoints are those of a step on the host: a loop may change between the two
/// from step to step. Good over ranks and stages, whose steps communicate on the calling thread in any case. Poor for
/// one rank that needs a norm: the calling thread waits for the measure of each gradient, and device_optimizer decides
/// on the device instead.
///
/// Memory: a lease on both tiers while one parameter is measured or updated, of 24 B for each 4,096 elements of the
/// largest parameter or share, and 512 B more. A rehearsal counts it.
///
/// early_updates does not take this object: the bytes of an undone update would lie on the device.
/// @tparam Owner      a manager, or a sharded_model
/// @tparam Launcher   starts kernels: `cuda_launcher` (launch_kernels.cuh), or `loop_launcher` where the device is host
///   memory
/// @threads           one caller, that of the owner
template <class Owner, class Launcher>
class device_updates {
 public:
  using update_site = detail::launched_site<device_updates>;

  /// @param owner   outlives this object
  explicit device_updates(Owner& owner, Launcher launcher = {}) : owner_{owner}, launcher_{std::move(launcher)} {}
  device_updates(const device_updates&) = delete;

  // As an executor: the calling thread, for work of a step that does not run on the device.

  [[nodiscard]] static constexpr unsigned threads() noexcept { return 1; }
  template <class Work>
  void run(unsigned parts, Work&& work) const noexcept
  {
    on_this_thread.run(parts, work);
  }

  // Called by steps.

  /// @throws usage_error   the step is of another manager
  template <class Backend>
  void expect_of(const Backend& backend) const
  {
    static_assert(has_bytes<Backend>(),
                  "chunkmem: device_updates over a backend without bytes (use a thread_pool: the "
                  "kernel's time passes where the placement plans an update)");
    expects(static_cast<const void*>(&manager().backend()) == static_cast<const void*>(&backend),
            "device_updates of one manager were given to the step of another (make one for each manager)");
  }

  /// Calls `work()` while there is memory to measure and update one parameter.
  /// @throws out_of_memory, device_error   `work` was not called
  template <class Work>
  void with_room(Work work)
  {
    struct until_end {
      ~until_end()
      {
        self.on_host_.reset();
        self.on_device_.reset();
      }
      device_updates& self;
    };
    const until_end gives_back{*this};
    const bytes sums = bytes{most_blocks() * sizeof(gradient_measure)};
    on_device_.emplace(manager().lease(tier::device, bytes{sums_begin} + sums, agent::compute));
    on_host_.emplace(manager().lease(tier::host, sums, agent::compute));
    work();
  }
  /// Measures a gradient on the device, waits, and calls `visit(block, measure)` for each block in order.
  /// @pre inside of with_room, and the elements are at most those of one parameter
  template <class Visit>
  void for_each_block(const std::byte* gradient, dtype type, std::uint64_t elements, Visit visit)
  {
    auto& backend = manager().backend();
    const std::uint64_t blocks = blocks_of(elements);
    gradient_measure* const sums = place<gradient_measure>(sums_begin);
    launcher_(backend, agent::compute,
              measure_kernel{gradient, type, elements, sums, place<block_range>(range_begin), 0});
    backend.copy(on_host_->data(), reinterpret_cast<const std::byte*>(sums), bytes{blocks * sizeof(gradient_measure)},
                 agent::compute);
    backend.wait(agent::host, backend.record(agent::compute));
    for (std::uint64_t block = 0; block < blocks; ++block) {
      gradient_measure found;
      std::memcpy(&found, on_host_->data() + block * sizeof found, sizeof found);
      visit(block, found);
    }
  }
  /// Enqueues the update of one parameter, or of a run of one. @pre inside of with_room
  /// @throws device_error   this update was not enqueued: call again. Runs of the same share before it were
  template <device_optimizer_kernel Kernel>
  void update(const Kernel& kernel, const parameter_bytes& all, const detail::update_request& request)
  {
    using factors_type = typename Kernel::device_factors;
    static_assert(factors_begin + sizeof(factors_type) <= sums_begin,
                  "chunkmem: the device_factors of this kernel are too large for device_updates (at most 256 bytes)");
    detail::check(kernel, all);
    const group_id group = request.settings.group;
    auto* const state = place<device_step_state>(0);
    auto* const factors = place<factors_type>(factors_begin);
    auto& backend = manager().backend();
    launcher_(backend, agent::compute,
              given_kernel{state, request.settings.number - 1, request.transform.factor, factors,
                           factors_type{kernel.options(group), request.settings_of(all.tensor)}});
    const device_parameter it = on_device(all, false);
    kernel.with_arithmetic(group, [&]<class Work>(std::type_identity<Work>) {
      detail::check_numerics<Kernel, Work>();
      launcher_(backend, agent::compute,
                update_kernel<Work, factors_type>{it, state, factors, request.seed, request.transform.limit});
    });
  }
  /// Enqueues the rounding of a value from its master. @pre, @throws as update
  void remake(const parameter_bytes& all)
  {
    launcher_(manager().backend(), agent::compute,
              cast_kernel{{all.value, all.value_type}, {all.master(), dtype::float32}, all.elements});
  }

 private:
  // The state, the factors, the range of a measure, and the sums of blocks.
  static constexpr std::uint64_t factors_begin = 128;
  static constexpr std::uint64_t sums_begin = 512;
  static constexpr std::uint64_t range_begin = sums_begin - sizeof(block_range);
  static_assert(sizeof(device_step_state) <= factors_begin);

  using lease_type = decltype(std::declval<Owner&>().lease(tier::device, bytes{}));

  /// The manager of this rank.
  [[nodiscard]] auto& manager() const noexcept { return rank_manager(owner_); }
  /// The most blocks of one parameter of this rank. All parameters are declared before the first step.
  [[nodiscard]] std::uint64_t most_blocks()
  {
    if (most_blocks_ == 0)
      manager().for_each_parameter([this](tensor_handle, const auto& info) {
        most_blocks_ = std::max(most_blocks_, blocks_of(info.extents.elements()));
      });
    return most_blocks_;
  }
  template <class Thing>
  [[nodiscard]] Thing* place(std::uint64_t offset) const noexcept
  {
    return reinterpret_cast<Thing*>(on_device_->data() + offset);
  }

  Owner& owner_;
  Launcher launcher_;
  std::uint64_t most_blocks_ = 0;
  std::optional<lease_type> on_device_;
  std::optional<lease_type> on_host_;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
