// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
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
///
///     for (const share_run& it : runs[share]) std::cout << it.elements << " of tensor " << it.tensor << '\n';
struct share_run {
  std::uint64_t begin = 0;  ///< element of the share
  std::uint64_t elements = 0;
  std::uint32_t tensor = 0;   ///< number in the model, as on a single rank
  std::uint64_t first = 0;    ///< element of that tensor
  bool has_gradient = false;  ///< in this step: else the run is not updated
};

/// The tensors of the model in the shares of this rank. A part of sharded_model:
///
///     share_runs runs;
///     runs.divide(share, {{0, 16, 7, 4096}, {16, 16, 8, 0}});   // elements of tensor 7, then of tensor 8
///     const auto update = [](const optimizer::parameter_bytes& run) { ... };
///     runs.for_each(bytes_of_share, update, optimizer::detail::round_from_master);
class share_runs {
 public:
  /// The share is made of these runs, and of padding.
  void divide(tensor_handle share, std::vector<share_run> runs)
  {
    runs_.resize(std::max<std::size_t>(runs_.size(), index_of(share.id) + std::size_t{1}));
    runs_[index_of(share.id)] = std::move(runs);
    overwritten_.resize(runs_.size());
    lends_.resize(runs_.size());
    done_.resize(runs_.size());
  }
  /// Every tensor of the share's unit has a gradient in this step, also in other ranks' shares.
  void overwrites(tensor_handle share, bool each_has_gradient) { overwritten_[index_of(share.id)] = each_has_gradient; }
  /// The gradient of the share may take its bytes: every update writes all of them, from the master.
  void lends(tensor_handle share) { lends_[index_of(share.id)] = true; }
  /// The model has at least this number of tensors, in the shares of all ranks.
  void expect_tensors(std::size_t tensors)
  {
    tensors_ = std::max(tensors_, tensors);
    missing_.reserve(tensors_);
  }
  [[nodiscard]] std::size_t tensors() const noexcept { return tensors_; }
  /// @pre the share was divided
  [[nodiscard]] std::span<share_run> operator[](tensor_handle share) noexcept { return runs_[index_of(share.id)]; }
  [[nodiscard]] std::span<const share_run> operator[](tensor_handle share) const noexcept
  {
    return runs_[index_of(share.id)];
  }
  /// The update of this step writes every element of the share. The same on all ranks for a unit, so that their
  /// managers decide alike.
  [[nodiscard]] bool is_overwritten(tensor_handle share) const
  {
    return overwritten_[index_of(share.id)] || lends_[index_of(share.id)];
  }
  /// Weights of the model without a gradient in this step, also in other ranks' shares; filled by the caller.
  [[nodiscard]] std::vector<std::uint32_t>& missing() noexcept { return missing_; }
  [[nodiscard]] std::span<const std::uint32_t> missing() const noexcept { return missing_; }
  /// Calls `update(bytes)` for each run of a share that has a gradient in this step, and `remake(bytes)` for each other
  /// run of a share that lends its bytes. If a call throws, the next call for this share continues with that run.
  /// @throws usage_error   a share without a master yet, which an update of parts cannot make
  template <class Update, class Remake>
  void for_each(const optimizer::parameter_bytes& share, Update update, Remake remake)
  {
    expects(!share.fresh_master, "a share without a master cannot be updated: fill weights before the first iteration");
    const std::span<const share_run> all = runs_[share.tensor];
    std::size_t& done = done_[share.tensor];
    for (; done < all.size(); ++done) {
      const share_run& it = all[done];
      if (it.has_gradient)
        update(share.run(it.begin, it.elements, it.tensor, it.first));
      else if (lends_[share.tensor])
        remake(share.run(it.begin, it.elements, it.tensor, it.first));
    }
    done = 0;
  }
  /// An update of this share failed after its first run: its bytes are of two steps.
  [[nodiscard]] bool is_half_done(tensor_handle share) const noexcept { return done_[index_of(share.id)] != 0; }
  /// Forgets half-done updates: a load has replaced the values of the shares.
  void forget_updates() noexcept { std::ranges::fill(done_, std::size_t{0}); }

 private:
  std::vector<std::vector<share_run>> runs_;  // by tensor of this rank's manager
  std::vector<bool> overwritten_;             // the same
  std::vector<bool> lends_;                   // the same
  std::vector<std::size_t> done_;             // the same: runs whose update is done, of a share that is half done
  std::vector<std::uint32_t> missing_;        // tensors of the model
  std::size_t tensors_ = 0;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
