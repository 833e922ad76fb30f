// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/basic_manager.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// A run of a share that belongs to one tensor of the model.
struct share_run {
  std::uint64_t begin = 0;  ///< element of the share
  std::uint64_t elements = 0;
  std::uint32_t tensor = 0;   ///< of the model, as its trainer counts them: what one rank alone would call it
  std::uint64_t first = 0;    ///< element of that tensor
  bool has_gradient = false;  ///< in this step: else nothing of it is updated
};

/// A manager of one rank: some of its tensors are made whole from the shares of all ranks. Not for users: see
/// sharded_model.
///
/// @tparam Manager   with a gathering_mover
template <class Manager>
class rank_manager : public Manager {
 public:
  using Manager::Manager;

  /// A tensor that is made whole from the shares of all ranks. @param label   what they all call it   @pre nothing is
  /// placed yet
  /// @param keeps   it has a place on the host too and is gathered when `gather_over_ranks` says so; else each load
  ///   gathers it
  [[nodiscard]] tensor<std::uint8_t> add_gathered(std::uint64_t size, std::uint32_t label, bool keeps)
  {
    const auto made = this->template add<std::uint8_t>({size}, role::gathered);
    this->gathered().add(made.id, label, keeps);
    return made;
  }
  /// A part of this rank's share of `whole`. @param begin   of it in `whole` [bytes]   @pre as above, and `whole` is
  /// gathered
  void derive(tensor_handle whole, tensor_handle share, std::uint64_t begin)
  {
    this->gathered().derive(whole.id, share.id, begin);
  }
  /// A share is made of these runs, and of padding. @pre nothing is placed yet
  void divide(tensor_handle share, std::vector<share_run> runs)
  {
    runs_.resize(std::max<std::size_t>(runs_.size(), index_of(share.id) + std::size_t{1}));
    runs_[index_of(share.id)] = std::move(runs);
  }
  /// It was made from the share, which then has fewer digits.
  [[nodiscard]] bool has_master(tensor_handle share) { return this->gathered().has_master(share.id); }
  [[nodiscard]] std::span<share_run> runs_of(tensor_handle share) noexcept { return runs_[index_of(share.id)]; }
  /// For optimizer::step: calls `update(bytes)` for each run of a share that has a gradient in this step.
  /// @throws usage_error   a share whose master is still to be made, which an update of parts cannot do
  template <class Update>
  void for_each_run(const optimizer::parameter_bytes& all, Update update)
  {
    expects(!all.fresh_master, "a share was to be updated that has no master: fill weights before the first iteration");
    for (const share_run& it : runs_[all.tensor])
      if (it.has_gradient) update(all.run(it.begin, it.elements, it.tensor, it.first));
  }
  /// In this step: else its update leaves elements as they are.
  [[nodiscard]] bool has_gradient_in_each_run(tensor_handle share) const
  {
    return std::ranges::all_of(runs_[index_of(share.id)], &share_run::has_gradient);
  }
  /// While this pin lives the shares of `whole` change: nobody has it whole, and it is made anew at its next use.
  /// @throws usage_error   it is pinned on the device
  [[nodiscard]] auto change(tensor<std::uint8_t> whole)
  {
    return this->acquire(whole, access::write, memory_location::host);
  }
  /// Makes a kept tensor whole from what ranks have in their shares now. Every rank has to call it, in the same order.
  /// @throws out_of_memory, device_error, comm_error   what it holds is undefined until it is called again
  void gather_over_ranks(tensor<std::uint8_t> whole)
  {
    const auto pin = this->acquire(whole, access::write, agent::compute);
    this->gathered().gather_now(whole.id);
  }
  /// Adds what all ranks have in the chunk of this tensor; its share becomes the sum. Every rank has to call it, in the
  /// same order.
  /// @pre a pin keeps it on the device, and nobody works on it but agents whose pins have ended
  void sum_over_ranks(tensor_handle whole, std::uint32_t label, collective::sum how)
  {
    this->gathered().sum(whole.id, label, how);
  }

 private:
  std::vector<std::vector<share_run>> runs_;  // by tensor
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
