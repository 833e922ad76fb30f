// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "product.hpp"

#include <cstdint>
#include <memory>
#include <stdexcept>

struct CUstream_st;

namespace gpt::cuda {

/// An error of cuBLASLt. The text names the call and the status.
class cublas_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Products by cuBLASLt: bf16 in, float32 sums, one algorithm for each shape during the life of this object.
///
/// The algorithm is the first one that the heuristic names for the shape, the fixed workspace and 16-byte alignment; so
/// two runs on GPUs of one kind take the same. Sums of split products go through the workspace in float32, in a fixed
/// order, or are not split: no algorithm that adds in the order of arrival is taken. Bits may differ between versions
/// of the library and kinds of GPUs.
class lt_products {
 public:
  /// The workspace of one product. NVIDIA advises 32 MiB for Hopper.
  static constexpr std::uint64_t workspace_bytes = std::uint64_t{32} << 20;

  lt_products();
  lt_products(const lt_products&) = delete;
  ~lt_products();

  /// @throws cublas_error   no algorithm, or no GPU
  void prepare(const product_shape& shape);

  /// Enqueues a product. @param workspace   `workspace_bytes` of device memory that nothing else uses meanwhile
  /// @throws cublas_error   the call was refused; nothing was enqueued
  void multiply(CUstream_st* stream, const product& what, void* workspace);

 private:
  struct library;
  struct plan;

  [[nodiscard]] plan& plan_of(const product_shape& shape);

  std::unique_ptr<library> library_;  ///< made with the first plan
};

}  // namespace gpt::cuda
