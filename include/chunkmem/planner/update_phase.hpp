// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/update_split.hpp>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// The update of one rank by itself: 16-bit weights that stay on the device, with Adam's states and masters.
///
///     const update_cost cost = simulate_update(update_phase{.chunks = 64}, 16);
struct update_phase {
  transfer::update_rates rates{};
  std::uint32_t chunks = 128;
  std::uint64_t chunk_parameters = std::uint64_t{1} << 20;  ///< a multiple of 128
  std::uint32_t buffers = 2;      ///< chunks whose states the device has room for, in addition to all weights
  std::uint32_t used_after = 16;  ///< a weight is used again so many chunks after its update, as by the next forward
};

/// The cost of an update once it repeats.
///
///     const update_cost cost = simulate_update(update_phase{.chunks = 64}, 16);
///     std::cout << cost.seconds << " s\n";
struct update_cost {
  double seconds = 0;          ///< of one update of all chunks
  double to_device_bytes = 0;  ///< moved in it
  double to_host_bytes = 0;
};

/// Whether this chunk is one of `streamed` out of `chunks`, which lie as evenly among the others as whole numbers
/// allow.
[[nodiscard]] constexpr bool is_streamed(std::uint32_t chunk, std::uint32_t streamed, std::uint32_t chunks) noexcept
{
  return std::uint64_t{chunk + 1} * streamed / chunks > std::uint64_t{chunk} * streamed / chunks;
}

/// Updates a rank's chunks again and again: a manager on backend::simulated, and the program that drives it.
///
/// - Gradients come all at once, each in the place of its weight, in the order in which chunks are then updated.
/// - A chunk of the host's share: its gradient comes down, the host updates it, and its weight goes up before it is
///   used.
/// - A streamed chunk: its states come up in three pieces, and the device updates them. They leave when others need
///   their room.
/// - The manager chooses the chunks that stay on the device, so a few states may stay.
/// - Copies share the host's memory with updates there.
///
/// Not simulated: gradients that come down during backward, the norm of all gradients, and gaps between kernels.
///
/// Use:
///
///     const update_cost cost = simulate_update({.rates = rates, .chunks = 128}, streamed);
///
/// @tparam Eviction, Transfer   the policies of the manager
template <eviction_policy Eviction = eviction::belady, transfer_policy Transfer = transfer::planned>
class update_phase_run {
 public:
  /// @throws config_error   a rate that is not above zero
  /// @throws usage_error    no chunks, an odd size of them, no buffers, or more streamed than there are
  update_phase_run(const update_phase& what, std::uint32_t streamed, const Eviction& eviction = {},
                   const Transfer& transfer = {})
      : what_{what},
        streamed_{streamed},
        backend_{options_of(what, streamed)},
        manager_{backend_, {.chunk_bytes = bytes{2 * what.chunk_parameters}}, eviction, transfer}
  {
    manager_.use(kernel_);
    for (std::uint32_t index = 0; index < what.chunks; ++index)
      weights_.push_back(manager_.template add<bf16>({what.chunk_parameters}, role::parameter));
    for (const list_spec& spec : kernel_.lists()) lists_.push_back(manager_.list(spec.name));
    for (const auto& it : weights_) (void)manager_.acquire(it, access::write, memory_location::host);
  }

  /// The average cost of one update, after a few others.
  /// @throws out_of_memory   the device has no room for a chunk with its states
  [[nodiscard]] update_cost measure()
  {
    constexpr int settling = 4;
    constexpr int measured = 4;  // decisions may go round in an orbit of a few
    for (int turn = 0; turn < settling; ++turn) update();
    const std::uint64_t begin = backend_.clock(agent::compute);
    const chunkmem::report before = manager_.report();
    for (int turn = 0; turn < measured; ++turn) update();
    const chunkmem::report moved = manager_.report().copies_since(before);
    return {static_cast<double>(backend_.clock(agent::compute) - begin) / 1e9 / measured,
            static_cast<double>(moved.loaded.count()) / measured,
            static_cast<double>(moved.written_back.count()) / measured};
  }

 private:
  using manager_type = manager<backend::simulated, Eviction, Transfer, gradient::in_place>;
  using bytes_pin = typename manager_type::template pin_type<std::uint8_t>;

  static constexpr std::uint64_t frames_of_states = 6;  // three lists in 32 bits, for 16-bit weights

  [[nodiscard]] static backend::simulated_options options_of(const update_phase& what, std::uint32_t streamed)
  {
    expects(what.chunks > 0 && what.buffers > 0, "an update of no chunks, or without a buffer for states");
    expects(what.chunk_parameters > 0 && what.chunk_parameters % 128 == 0,
            "chunks of an update whose parameters are no multiple of 128");
    expects(streamed <= what.chunks, "more chunks streamed than there are");
    (void)transfer::update_bound{what.rates};
    const bytes frame{2 * what.chunk_parameters};
    const std::uint64_t states = std::uint64_t{what.buffers} * frames_of_states;
    backend::cost_table costs;
    costs.to_device = {0, what.rates.to_device_bytes_per_second};
    costs.to_host = {0, what.rates.to_host_bytes_per_second};
    costs.host_memory_bytes_per_second = what.rates.host_memory_bytes_per_second;
    return {.device_capacity = (what.chunks + states) * frame,
            // weights, gradients, room for windows
            .host_capacity = std::uint64_t{what.chunks} * (frames_of_states + 4) * frame,
            .costs = costs,
            .host_runs_ahead = true};
  }
  [[nodiscard]] std::uint64_t nanoseconds(double updates_per_second) const
  {
    return static_cast<std::uint64_t>(
        std::ceil(static_cast<double>(what_.chunk_parameters) / updates_per_second * 1e9));
  }

  void update()
  {
    auto scope = manager_.iteration();
    scope.pass(pass::backward);
    for (const auto& it : weights_) {
      auto weight = manager_.acquire(it, access::read, agent::compute);
      (void)manager_.gradient(std::move(weight));
    }
    const std::uint32_t lag = what_.used_after < what_.chunks ? what_.used_after : what_.chunks;
    for (std::uint32_t index = 0; index < what_.chunks; ++index) {
      is_streamed(index, streamed_, what_.chunks) ? update_on_device(weights_[index]) : update_on_host(weights_[index]);
      manager_.drop_gradient(weights_[index]);
      if (index >= lag) use(weights_[index - lag]);
    }
    for (std::uint32_t index = what_.chunks - lag; index < what_.chunks; ++index) use(weights_[index]);
  }

  void update_on_device(tensor<bf16> weight)
  {
    const auto gradient = manager_.acquire_bytes(weight, gradient_list, access::read, agent::compute);
    for (const list_id list : lists_)
      pins_.push_back(manager_.acquire_bytes(weight, list, access::read_write, agent::compute));
    const auto value = manager_.acquire_bytes(weight, value_list, access::write, agent::compute);
    backend_.advance(agent::compute, nanoseconds(what_.rates.device_updates_per_second));
    pins_.clear();
  }

  void update_on_host(tensor<bf16> weight)
  {
    const auto gradient = manager_.acquire_bytes(weight, gradient_list, access::read, memory_location::host);
    for (const list_id list : lists_)
      pins_.push_back(manager_.acquire_bytes(weight, list, access::read_write, memory_location::host));
    const auto value = manager_.acquire_bytes(weight, value_list, access::write, memory_location::host);
    const transfer::update_traffic each;
    const auto touched =
        static_cast<std::uint64_t>(each.host_update_bytes * static_cast<double>(what_.chunk_parameters));
    backend_.advance(agent::host, nanoseconds(what_.rates.host_updates_per_second), bytes{touched});
    pins_.clear();
  }

  void use(tensor<bf16> weight) { (void)manager_.acquire(weight, access::read, agent::compute); }

  update_phase what_;
  std::uint32_t streamed_;
  backend::simulated backend_;
  optimizer::adam kernel_;
  manager_type manager_;
  std::vector<tensor<bf16>> weights_;
  std::vector<list_id> lists_;
  std::vector<bytes_pin> pins_;  // of the states of one chunk
};

/// The cost of an update of a rank with so many chunks streamed. @throws   as update_phase_run
[[nodiscard]] inline update_cost simulate_update(const update_phase& what, std::uint32_t streamed)
{
  return update_phase_run<>{what, streamed}.measure();
}

}  // namespace planner

}  // namespace chunkmem::inline v0
