// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/sampled_input.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace activation {

/// The backward pass of one linear layer: the gradient of its output, and its two products as callables of the trainer.
///
///     linear_slope{d.span(), outputs,
///                  [&] { multiply_transposed(d, w, dx, rows, inputs, outputs); },             // exact
///                  [&](const auto& it) {                                                       // rows^T slopes
///                    auto g = m.gradient(std::move(w));
///                    weight_gradient(it.rows, it.slopes, g.beta(), g.data(), it.count, inputs, outputs);
///                    m.gradient_done(std::move(g));
///                  }}
template <real_element Slope, class OfInput, class OfWeight>
struct linear_slope {
  std::span<const Slope> slope;  ///< [rows, outputs]. Empty in a rehearsal
  std::uint64_t outputs;
  OfInput of_input;    ///< dx = d W^T, over all rows. Called before any product of rows
  OfWeight of_weight;  ///< dW += rows^T slopes, over the kept rows. Called with sampled_rows
};
template <class Slope, class Size, class OfInput, class OfWeight>
linear_slope(std::span<Slope>, Size, OfInput, OfWeight) -> linear_slope<std::remove_const_t<Slope>, OfInput, OfWeight>;

/// Replaces the two products of a linear layer's backward pass: dx = d W^T, which stays exact, and dW = x^T d, which
/// becomes an unbiased estimate from the kept rows of x. Several layers that share x take one call for all.
///
///     sampled(kept, batch, workers, linear_slope{dq.span(), width, of_x_q, of_weight_q},
///             linear_slope{dk.span(), width, of_x_k, of_weight_k});
///
/// The products are the trainer's own, so forward, dx and a bias's gradient have the bits of exact training, and at a
/// ratio of 1 dW has them too. An infinity or NaN anywhere in d makes dW NaN: a loss scale sees it. The kept rows are
/// dropped, and the norms noted for `norm_cache::commit`. Leave the products of frozen weights out.
///
/// Source: see row_choice. Cost: the products of the trainer, dW with a share of the rows; one pass over d; a lease of
/// kept rows x outputs in single precision.
/// Order: first `of_input` of each layer, then a lease, then `of_weight` of each.
/// @throws usage_error   no rows are kept for this batch; a gradient of another size; a call from a product of an input
///   of the same cache; as norm_cache::note; and what the products throw. Sizes are checked before the first product.
///   Where a product throws, the products before it have already added to dx and to gradients: call `forget()`, drop
///   the step's gradients and begin the step again
template <class Input, executor Workers, class... Slopes>
void sampled(Input& kept, const sampled_batch& batch, Workers& workers, const Slopes&... products)
{
  static_assert(sizeof...(Slopes) > 0, "chunkmem: sampled() needs a linear_slope for each layer that reads the input");
  kept.expect_products(batch, products...);
  (products.of_input(), ...);
  kept.take_back(batch, workers, products...);
}
/// The same on a stream, for an input with a launcher: slopes are device memory that the stream has written, and the
/// products enqueue. @throws device_error   too
template <class Input, class... Slopes>
void sampled(Input& kept, const sampled_batch& batch, agent stream, const Slopes&... products)
{
  static_assert(sizeof...(Slopes) > 0, "chunkmem: sampled() needs a linear_slope for each layer that reads the input");
  kept.expect_products(batch, products...);
  (products.of_input(), ...);
  kept.take_back(batch, stream, products...);
}

}  // namespace activation

}  // namespace chunkmem::inline v0
