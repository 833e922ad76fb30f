// SPDX-License-Identifier: Apache-2.0
#include "lt_products.hpp"

#include <cublasLt.h>

#include <string>
#include <vector>

namespace gpt::cuda {
namespace {

void require(cublasStatus_t status, const char* call)
{
  if (status != CUBLAS_STATUS_SUCCESS)
    throw cublas_error{std::string{call} + " failed: " + cublasLtGetStatusName(status)};
}

/// One of the library's handles, destroyed by its own function.
template <class Handle, cublasStatus_t (*Destroy)(Handle)>
class owned {
 public:
  owned() = default;
  owned(const owned&) = delete;
  owned& operator=(const owned&) = delete;
  ~owned()
  {
    if (handle_ != nullptr) (void)Destroy(handle_);
  }
  [[nodiscard]] Handle* place() noexcept { return &handle_; }
  [[nodiscard]] Handle get() const noexcept { return handle_; }

 private:
  Handle handle_ = nullptr;
};

class layout {
 public:
  /// A row-major matrix is a transposed column-major one.
  void make(bool is_wide, const operand& how, std::uint32_t rows, std::uint32_t columns, std::uint32_t batch)
  {
    const std::uint64_t inner = how.is_transposed ? rows : columns;
    const std::uint64_t outer = how.is_transposed ? columns : rows;
    require(cublasLtMatrixLayoutCreate(handle_.place(), is_wide ? CUDA_R_32F : CUDA_R_16BF, inner, outer, how.stride),
            "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    const auto count = static_cast<std::int32_t>(batch);
    const auto step = static_cast<std::int64_t>(how.step);
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }
  [[nodiscard]] cublasLtMatrixLayout_t get() const noexcept { return handle_.get(); }

 private:
  template <class Value>
  void set(cublasLtMatrixLayoutAttribute_t which, const Value& value)
  {
    require(cublasLtMatrixLayoutSetAttribute(get(), which, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
  }

  owned<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy> handle_;
};

class preference {
 public:
  preference()
  {
    require(cublasLtMatmulPreferenceCreate(handle_.place()), "cublasLtMatmulPreferenceCreate");
    const std::uint64_t workspace = lt_products::workspace_bytes;
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    const std::uint32_t in_order = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, in_order);
    const std::uint32_t alignment = 16;
    for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(which, alignment);
  }
  [[nodiscard]] cublasLtMatmulPreference_t get() const noexcept { return handle_.get(); }

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t which, const Value& value)
  {
    require(cublasLtMatmulPreferenceSetAttribute(get(), which, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
  }

  owned<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy> handle_;
};

}  // namespace

/// A row-major product is a column-major product of the transposed factors in the other order.
struct lt_products::plan {
  explicit plan(const product_shape& of, cublasLtHandle_t handle) : shape{of}
  {
    require(cublasLtMatmulDescCreate(work.place(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation(of.right));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation(of.left));
    if (of.has_bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    first.make(false, of.right, of.inner, of.columns, of.batch);
    second.make(false, of.left, of.rows, of.inner, of.batch);
    out.make(of.is_wide, of.out, of.rows, of.columns, of.batch);
    choose(handle);
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t which, const Value& value)
  {
    require(cublasLtMatmulDescSetAttribute(work.get(), which, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  [[nodiscard]] static cublasOperation_t operation(const operand& how) noexcept
  {
    return how.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  }

  void choose(cublasLtHandle_t handle)
  {
    const preference wanted;
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    require(cublasLtMatmulAlgoGetHeuristic(handle, work.get(), first.get(), second.get(), out.get(), out.get(),
                                           wanted.get(), 1, &found, &count),
            "cublasLtMatmulAlgoGetHeuristic");
    if (count == 0) throw cublas_error{"cublasLtMatmulAlgoGetHeuristic knows no algorithm for a product of the model"};
    algorithm = found.algo;
  }

  product_shape shape;
  owned<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy> work;
  layout first, second, out;
  cublasLtMatmulAlgo_t algorithm{};
};

struct lt_products::library {
  library() { require(cublasLtCreate(handle.place()), "cublasLtCreate"); }

  owned<cublasLtHandle_t, &cublasLtDestroy> handle;
  std::vector<std::unique_ptr<plan>> plans;  // some twenty: looked through in order
};

lt_products::lt_products() = default;
lt_products::~lt_products() = default;

lt_products::plan& lt_products::plan_of(const product_shape& shape)
{
  if (library_ == nullptr) library_ = std::make_unique<library>();
  for (const auto& each : library_->plans)
    if (each->shape == shape) return *each;
  library_->plans.push_back(std::make_unique<plan>(shape, library_->handle.get()));
  return *library_->plans.back();
}

void lt_products::prepare(const product_shape& shape)
{
  (void)plan_of(shape);
}

void lt_products::multiply(CUstream_st* stream, const product& what, void* workspace)
{
  plan& it = plan_of(what.shape);
  if (what.shape.has_bias) it.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, what.bias);
  const void* const added = what.added != nullptr ? what.added : what.out;
  require(cublasLtMatmul(library_->handle.get(), it.work.get(), &what.scale, what.right, it.first.get(), what.left,
                         it.second.get(), &what.beta, added, it.out.get(), what.out, it.out.get(), &it.algorithm,
                         workspace, workspace_bytes, stream),
          "cublasLtMatmul");
}

}  // namespace gpt::cuda
