// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpu {

/// Elements of a type, in memory of the host.
struct host_run {
  std::byte* data;
  chunkmem::dtype type;
  std::uint64_t elements;
};

/// Runs the library's kernels on a GPU over bytes of the host: they go there, a kernel changes them, they come back.
class kernel_runner {
 public:
  kernel_runner();
  kernel_runner(const kernel_runner&) = delete;
  kernel_runner& operator=(const kernel_runner&) = delete;
  ~kernel_runner();

  /// The same as `update_parameter`, the kernel's factors included; or, where the decision is to skip, the rest of the
  /// work.
  /// @param all   with pointers to the host; each array keeps its distance from a multiple of 16
  void update(const chunkmem::optimizer::adam& kernel, const chunkmem::optimizer::parameter_bytes& all,
              const chunkmem::optimizer::gradient_transform& how, const chunkmem::optimizer::step_settings& settings,
              std::uint64_t seed, bool is_overwritten,
              chunkmem::optimizer::step_decision decision = chunkmem::optimizer::step_decision::update);
  void update(const chunkmem::optimizer::sgd& kernel, const chunkmem::optimizer::parameter_bytes& all,
              const chunkmem::optimizer::gradient_transform& how, const chunkmem::optimizer::step_settings& settings,
              std::uint64_t seed, bool is_overwritten,
              chunkmem::optimizer::step_decision decision = chunkmem::optimizer::step_decision::update);

  [[nodiscard]] chunkmem::gradient_measure measure(const host_run& gradient);

  /// @param key   null: to nearest
  void cast(const host_run& to, const host_run& from, const chunkmem::rounding_key* key);

  /// Largest magnitude, denormals as zero; not finite: an infinity or NaN is among them.
  struct found_flags {
    float largest;
    bool are_finite;
  };
  [[nodiscard]] found_flags find_flags(const host_run& numbers);

  /// Gathers tensors into one run of bytes, and scatters the run back into tensors that were emptied.
  struct packed {
    std::vector<std::byte> run;
    std::vector<std::vector<std::byte>> tensors;
  };
  [[nodiscard]] packed pack_and_unpack(std::span<const std::vector<std::byte>> tensors);

  /// Rows that a sampled input keeps, of weights that are the rows' norms.
  struct kept_rows {
    std::vector<std::byte> rows;
    std::vector<std::int32_t> indices;
    std::vector<float> scales;
  };
  [[nodiscard]] kept_rows keep(const host_run& input, std::uint64_t rows, std::uint64_t kept,
                               const chunkmem::rounding_key& key);

  /// The backend's error for a kernel that writes to an unmapped address.
  struct loss {
    std::string first;   ///< the error that is met when the kernel is waited for
    std::string second;  ///< and that of a copy afterwards
    int number = 0;
    bool is_sticky = false;
    bool is_lost = false;
    std::uint64_t calls_afterwards = 0;  ///< that were made for the second
  };
  /// After this call nothing can run on the GPU in this process.
  [[nodiscard]] loss lose_device();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace gpu
