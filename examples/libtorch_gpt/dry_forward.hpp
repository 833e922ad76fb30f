// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lent_bytes.hpp"
#include "network.hpp"
#include "recomputed.hpp"
#include "saved_sizes.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace libtorch_gpt {

/// Parameters for a forward pass that only reports sizes: zeros, in memory while a layer that reads them is held.
class dry_parameters {
 public:
  dry_parameters(at::ScalarType type, at::Device device) : type_{type}, device_{device} {}

  std::size_t add(const std::string&, at::IntArrayRef sizes, chunkmem::group_id)
  {
    leaves_.push_back(view_of(nullptr, sizes, type_, device_).requires_grad_());
    take_bytes_back(leaves_.back());
    return leaves_.size() - 1;
  }
  [[nodiscard]] const at::Tensor& tensor(std::size_t which) const { return leaves_.at(which); }

  /// Holds do not overlap.
  class hold {
   public:
    template <class Layer>
    hold(dry_parameters& owner, const Layer& members)
    {
      for (const std::size_t which : members) {
        leaves_.push_back(owner.tensor(which));
        zeros_.push_back(at::zeros(leaves_.back().sizes(), leaves_.back().options().requires_grad(false)));
        lend_bytes(leaves_.back(), zeros_.back().data_ptr());
      }
    }
    hold(const hold&) = delete;
    hold& operator=(const hold&) = delete;
    ~hold()
    {
      for (const at::Tensor& leaf : leaves_) take_bytes_back(leaf);
    }

   private:
    std::vector<at::Tensor> leaves_{}, zeros_{};
  };

  template <class Layer, class Body>
  [[nodiscard]] at::Tensor run(const Layer& members, const at::Tensor& input, Body&& body)
  {
    const hold weights{*this, members};
    return body(input);
  }
  template <class Layer, class Body>
  [[nodiscard]] at::Tensor run_again(const Layer& members, const at::Tensor& input, Body body)
  {
    return recomputed::run(input, std::move(body), [this, members](const std::function<void()>& work) {
      const hold weights{*this, members};
      work();
    });
  }

 private:
  at::ScalarType type_;
  at::Device device_;
  std::vector<at::Tensor> leaves_{};
};

/// Keeps no row: for a forward pass that only reports sizes.
struct dry_keeper : row_keeper {
  struct nothing : kept {
    at::Tensor weight_gradient(const at::Tensor&, const std::function<void()>&) override
    {
      TORCH_CHECK(false, "a forward pass that was only looked at has no backward pass");
    }
  };
  c10::intrusive_ptr<kept> keep(const at::Tensor&) override { return c10::make_intrusive<nothing>(); }
};

/// The sizes of the tensors that a forward pass of one micro-batch saves. Cost: such a pass, and memory of one layer.
/// @param again     blocks are computed again in the backward pass
/// @param sampled   inputs of linear layers that have no other use are sampled: autograd saves none of them
[[nodiscard]] inline saved_sizes sizes_saved_by(const extents& size, bool again, at::ScalarType type, at::Device device,
                                                bool sampled = false)
{
  dry_parameters parameters{type, device};
  network<dry_parameters> net{parameters, size, again};
  dry_keeper keeper;
  if (sampled) net.sample(std::vector<row_keeper*>(net.lone_inputs().size(), &keeper));
  saved_size_list list;
  const saving looked_at{&list};
  (void)net.loss(at::zeros({size.batch, size.context + 1}, at::TensorOptions{}.dtype(at::kLong).device(device)));
  return list.sizes();
}

}  // namespace libtorch_gpt
