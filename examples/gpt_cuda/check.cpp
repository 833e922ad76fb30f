// SPDX-License-Identifier: Apache-2.0
// Runs every kernel and every kind of product of the GPT on the GPU and in loops on the host, on the same random
// numbers.
//
// Results are compared by ||gpu - host|| / ||host||. Outputs are NaN at first, and each kernel runs twice and has to
// give the same bits.
#include "attention_kernels.hpp"
#include "column_kernels.hpp"
#include "cuda_math.hpp"
#include "loss_kernels.hpp"
#include "norm_kernels.hpp"
#include "pointwise_kernels.hpp"
#include "product_kernel.hpp"
#include "random.hpp"
#include "token_kernels.hpp"
#include "why_no_gpu.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace gpt::cuda;
using gpt::vocabulary;

void must(cudaError_t status)
{
  if (status != cudaSuccess) throw std::runtime_error{cudaGetErrorName(status)};
}

const std::uint64_t seed = std::random_device{}();
bool is_right = true;

/// Numbers on the host and on the GPU. All bits are set until a number is written or drawn.
template <class Element>
class both {
 public:
  explicit both(std::uint64_t count) : host_(count)
  {
    void* fresh = nullptr;
    must(cudaMalloc(&fresh, count * sizeof(Element)));
    device_ = static_cast<Element*>(fresh);
    spoil();
  }
  both(const both&) = delete;
  both& operator=(const both&) = delete;
  ~both() { (void)cudaFree(device_); }

  both& draw(std::uint64_t stream, float size = 1.0F)
  {
    const gpt::counter_random random{seed, stream};
    for (std::size_t i = 0; i < host_.size(); ++i) {
      if constexpr (std::same_as<Element, unsigned char>)
        host_[i] = static_cast<unsigned char>(random.below(40, i));
      else
        host_[i] = chunkmem::round_to<Element>((random.uniform(i) - 0.5F) * size);
    }
    must(cudaMemcpy(device_, host_.data(), bytes(), cudaMemcpyDefault));
    return *this;
  }
  void spoil()
  {
    std::fill_n(reinterpret_cast<unsigned char*>(host_.data()), bytes(), static_cast<unsigned char>(0xff));
    must(cudaMemset(device_, 0xff, bytes()));
  }
  [[nodiscard]] Element* on(bool gpu) { return gpu ? device_ : host_.data(); }
  [[nodiscard]] std::vector<Element> from_gpu() const
  {
    std::vector<Element> all(host_.size());
    must(cudaMemcpy(all.data(), device_, bytes(), cudaMemcpyDefault));
    return all;
  }
  [[nodiscard]] const std::vector<Element>& host() const noexcept { return host_; }

 private:
  [[nodiscard]] std::size_t bytes() const noexcept { return host_.size() * sizeof(Element); }

  std::vector<Element> host_;
  Element* device_ = nullptr;
};

template <class Element>
double number(Element value)
{
  if constexpr (std::is_arithmetic_v<Element>)
    return static_cast<double>(value);
  else
    return static_cast<double>(chunkmem::to_float(value));
}

/// @param bound   0: every number has to be the same
template <class Element>
void compare(const char* what, const both<Element>& of, double bound)
{
  const std::vector<Element> found = of.from_gpu();
  double apart = 0.0;
  double whole = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double expected = number(of.host()[i]);
    apart += (number(found[i]) - expected) * (number(found[i]) - expected);
    whole += expected * expected;
  }
  const double error = std::sqrt(apart) / std::sqrt(whole);
  const bool is_near = error <= bound;  // not for NaN
  is_right = is_right && is_near;
  std::printf("%-44s %.2e, bound %.0e%s\n", what, error, bound, is_near ? "" : ": WRONG");
}

/// `work(on)` enqueues on the GPU, or runs on the host; twice on the GPU, for the same bits.
template <class Element, class Work>
void check(const char* what, both<Element>& out, double bound, Work work)
{
  out.spoil();
  work(true);
  must(cudaDeviceSynchronize());
  const std::vector<Element> first = out.from_gpu();
  out.spoil();
  work(true);
  must(cudaDeviceSynchronize());
  const std::vector<Element> second = out.from_gpu();
  if (std::memcmp(first.data(), second.data(), first.size() * sizeof(Element)) != 0) {
    is_right = false;
    std::printf("%-44s NOT THE SAME BITS TWICE\n", what);
  }
  work(false);
  compare(what, out, bound);
}

template <class Body>
void run_in_loops(const Body& body)
{
  for (std::uint64_t index = 0; index < body.count(); ++index)
    if constexpr (std::invocable<const Body&, const looped_team&, std::uint64_t>)
      body(looped_team{}, index);
    else
      body(index);
}
template <class Body>
void run(bool gpu, const Body& body)
{
  if (!gpu) return run_in_loops(body);
  start(nullptr, body);
  must(cudaGetLastError());
}

constexpr double rounded_once = 4e-3;
constexpr double single = 1e-5;
constexpr std::uint32_t context = 33, windows = 5, rows = context * windows, width = 96, heads = 6, head = 16;

void check_norms()
{
  both<bf16> x{rows * width}, norm{2 * width}, dy{rows * width}, y{rows * width}, dx{rows * width}, d_norm{2 * width};
  both<float> statistics{2 * rows}, sums{slabs_of(rows) * 2 * width};
  x.draw(1, 3.0F), norm.draw(2, 2.0F), dy.draw(3);
  const auto forward = [&](bool on) {
    run(on, norm_forward_kernel{x.on(on), norm.on(on), y.on(on), statistics.on(on), rows, width});
  };
  check("norm", y, rounded_once, forward);
  check("statistics of a norm", statistics, single, forward);
  check("gradient through a norm", dx, rounded_once, [&](bool on) {
    run(on,
        norm_backward_kernel{dy.on(on), x.on(on), norm.on(on), statistics.on(on), x.on(on), dx.on(on), rows, width});
  });
  check("gradient of a norm", d_norm, rounded_once, [&](bool on) {
    run(on, norm_slab_sums_kernel{dy.on(on), x.on(on), statistics.on(on), sums.on(on), rows, width});
    run(on, slab_total_kernel{sums.on(on), d_norm.on(on), slabs_of(rows), 2 * width, 0.0F});
  });
  both<bf16> bias{width};
  check("gradient of a bias", bias, rounded_once, [&](bool on) {
    run(on, slab_sums_kernel{dy.on(on), sums.on(on), rows, width});
    run(on, slab_total_kernel{sums.on(on), bias.on(on), slabs_of(rows), width, 0.0F});
  });
  check("GELU", y, rounded_once, [&](bool on) { run(on, gelu_forward_kernel{x.on(on), y.on(on), rows * width}); });
  check("gradient through GELU", dx, rounded_once, [&](bool on) {
    // the kernel works in place
    must(cudaMemcpy(dx.on(on), dy.on(on), rows * width * sizeof(bf16), cudaMemcpyDefault));
    run(on, gelu_backward_kernel{x.on(on), dx.on(on), rows * width});
  });
}

void check_softmax()
{
  const std::uint64_t size = std::uint64_t{heads} * context * score_stride(context);
  both<float> scores{size}, slope{size};
  both<bf16> weights{size}, d_scores{size};
  scores.draw(1, 12.0F), slope.draw(2);
  check("softmax", weights, rounded_once, [&](bool on) {
    run(on, softmax_forward_kernel{scores.on(on), weights.on(on), heads, context});
  });
  check("gradient through softmax", d_scores, 2 * rounded_once, [&](bool on) {
    run(on, softmax_backward_kernel{weights.on(on), slope.on(on), d_scores.on(on), heads, context, 0.25F});
  });
}

void check_tokens()
{
  both<unsigned char> bytes{windows * (context + 1)};
  both<bf16> tokens{vocabulary * width}, positions{context * width}, x{rows * width}, gradient{vocabulary * width},
      slope{rows * width};
  both<bf16> d_positions{context * width}, d_logits{rows * vocabulary};
  both<std::uint32_t> order{rows}, begins{vocabulary + 1};
  both<float> logits{rows * vocabulary}, losses{rows};
  both<double> total{1};
  bytes.draw(1), tokens.draw(2), positions.draw(3), slope.draw(4), logits.draw(5, 10.0F);
  const auto text = [&](bool on) { return token_windows{bytes.on(on), context, windows}; };
  check("embedding", x, rounded_once, [&](bool on) {
    run(on, embed_kernel{text(on), tokens.on(on), positions.on(on), x.on(on), width});
  });
  const auto sort = [&](bool on) { run(on, sort_rows_kernel{text(on), order.on(on), begins.on(on)}); };
  check("order of rows", order, 0.0, sort);
  check("first row of each token", begins, 0.0, sort);
  check("gradient of tokens", gradient, rounded_once, [&](bool on) {
    run(on, token_gradient_kernel{slope.on(on), order.on(on), begins.on(on), gradient.on(on), width, 0.0F});
  });
  check("gradient of positions", d_positions, rounded_once, [&](bool on) {
    run(on, position_gradient_kernel{slope.on(on), d_positions.on(on), windows, context, width, 0.0F});
  });
  const auto loss = [&](bool on) {
    run(on, cross_entropy_kernel{text(on), logits.on(on), d_logits.on(on), losses.on(on), 1.0F});
  };
  check("loss", losses, single, loss);
  check("gradient of logits", d_logits, rounded_once, loss);
  check("sum of losses", total, single, [&](bool on) {
    run(on, loss_total_kernel{losses.on(on), total.on(on), rows});
  });
}

/// @param beta   adds the sum to random numbers where 1
template <class Element>
void check_product(const char* what, const product_shape& shape, std::uint64_t left_size, std::uint64_t right_size,
                   std::uint64_t out_size, float beta, void* workspace)
{
  both<bf16> left{left_size}, right{right_size}, bias{shape.columns};
  both<Element> added{out_size}, out{out_size};
  left.draw(1), right.draw(2), bias.draw(3), added.draw(4);
  lt_products products;
  products.prepare(shape);
  check(what, out, shape.is_wide ? single : rounded_once, [&](bool on) {
    // Padding between the rows of some outputs is not written.
    if (on)
      must(cudaMemset(out.on(true), 0, out_size * sizeof(Element)));
    else
      std::fill_n(reinterpret_cast<unsigned char*>(out.on(false)), out_size * sizeof(Element),
                  static_cast<unsigned char>(0));
    const product it{shape, left.on(on), right.on(on), out.on(on), bias.on(on), beta == 0.0F ? nullptr : added.on(on),
                     0.5F,  beta};
    if (on)
      products.multiply(nullptr, it, workspace);
    else
      run_in_loops(product_kernel{it});
  });
}

void check_products()
{
  void* workspace = nullptr;
  must(cudaMalloc(&workspace, lt_products::workspace_bytes));
  product_shape plain = plain_product(rows, width, 3 * width);
  plain.has_bias = true;
  check_product<bf16>("x * w + bias + added", plain, rows * width, 3 * width * width, 3 * rows * width, 1.0F,
                      workspace);
  check_product<bf16>("dy * w^T", input_product(rows, width, 3 * width), 3 * rows * width, 3 * width * width,
                      rows * width, 0.0F, workspace);
  check_product<bf16>("x^T * dy + added", weight_product(rows, width, 3 * width), rows * width, 3 * rows * width,
                      3 * width * width, 1.0F, workspace);
  product_shape logits = input_product(rows, vocabulary, width);
  logits.is_wide = true;
  check_product<float>("logits", logits, rows * width, vocabulary * width, rows * vocabulary, 0.0F, workspace);
  const std::uint32_t stride = score_stride(context);
  const operand of_qkv{3 * width, head};
  const operand transposed{3 * width, head, true};
  const operand pairs{stride, std::uint64_t{context} * stride};
  const operand turned{stride, std::uint64_t{context} * stride, true};
  const std::uint64_t all = std::uint64_t{heads} * context * stride;
  check_product<float>("scores of all heads", {context, context, head, of_qkv, transposed, pairs, true, false, heads},
                       3 * context * width, 3 * context * width, all, 0.0F, workspace);
  check_product<bf16>("weights * values", {context, head, context, pairs, of_qkv, {width, head}, false, false, heads},
                      all, 3 * context * width, context * width, 0.0F, workspace);
  check_product<bf16>("weights^T * slope", {context, head, context, turned, {width, head}, of_qkv, false, false, heads},
                      all, context * width, 3 * context * width, 0.0F, workspace);
  must(cudaFree(workspace));
}

}  // namespace

int main()
try {
  if (const std::string why = why_no_gpu(); !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 4;
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  check_norms();
  check_softmax();
  check_tokens();
  check_products();
  return is_right ? 0 : 1;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "gpt_cuda_check: %s\n", failure.what());
  return 2;
}
