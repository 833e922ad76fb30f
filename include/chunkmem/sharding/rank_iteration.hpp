// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/control_block.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace sharding {

/// An iteration of a sharded_model: as iteration, and at the end of a micro-batch its gradients are added over ranks.
///
///     auto iteration = model.iteration(2);
///     iteration.pass(pass::forward, 0);
///     iteration.pass(pass::backward, 0);
///     iteration.pass(pass::forward, 1);  // micro-batch 0 ends
template <class Model>
class rank_iteration {
  using inner_type = chunkmem::iteration<typename Model::engine_type>;

 public:
  /// @param begin   `begin()`: the iteration of the rank's manager, made in place
  template <class Begin>
  rank_iteration(Model& model, Begin begin) : model_{&model}, inner_{begin()}
  {
  }

  /// As iteration::pass. @throws comm_error, out_of_memory, device_error   from sums of the micro-batch that ended:
  /// call it again to continue
  void pass(chunkmem::pass during, std::uint32_t micro_batch = 0)
  {
    inner_.expect_open();
    // again where it threw: other ranks wait for its sums
    if (micro_batch_ != micro_batch) model_->end_micro_batch();
    micro_batch_ = micro_batch;
    inner_.pass(during, micro_batch);
  }
  /// The model that made this tensor, or its manager, began this iteration.
  [[nodiscard]] bool is_of(tensor_handle wanted) const noexcept { return model_->has(wanted) || inner_.is_of(wanted); }
  /// As iteration::end; waits for no other rank. @throws comm_error   work of ranks has failed: the iteration has
  /// ended, and its bytes are invalid
  void end()
  {
    inner_.end();
    model_->check();
  }

 private:
  Model* model_;
  inner_type inner_;
  std::uint32_t micro_batch_ = 0;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
