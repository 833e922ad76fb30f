// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/sampling_report.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// Measures the noise of sampled gradients, by random projections: see sampling_report for the meaning of its numbers.
///
/// A part of norm_cache. No result of a training depends on the meter: it reads rows and gradients, and draws its own
/// signs.
///
///     meter.look(site, step, input, count, lengths, workers);                   // forward: u^T h of each row
///     meter.add(site, step, loss_scale, slope, outputs, 0, lengths, indices, scales);  // backward: of each product
///     const sampling_report& seen = meter.report();
///
/// Source: the trace estimate of Hutchinson 1990. Cost: 4 multiplications for each element of the input, and 4 or 8 for
/// each of a slope, where a product has rows x width x outputs. Memory outside of the manager's tiers: 16 B for each
/// row of each input, 64 B for each output of each site, 32 B for each element of the widest row. None where it is off.
class noise_meter {
 public:
  static constexpr std::uint32_t probes = 4;  ///< vectors u

  explicit noise_meter(bool is_on) noexcept : is_on_{is_on} {}

  [[nodiscard]] bool is_on() const noexcept { return is_on_; }
  /// Adds the next site.
  void add_site(std::string_view name)
  {
    report_.inputs.emplace_back().name = name;
    report_.inputs.back().ratio = 0;
    sums_.emplace_back();
  }
  /// Adds an input to a site.
  void declare(std::uint32_t site, double ratio, bytes exact, bytes kept)
  {
    sampling_costs& it = report_.inputs[site];
    it.ratio = std::max(it.ratio, ratio);
    it.exact += exact;
    it.kept += kept;
  }

  /// @param lengths   becomes u^T h of each row, `probes` numbers each
  template <executor Workers, real_element Element>
  void look(std::uint32_t site, std::uint64_t step, std::span<const Element> input, std::size_t rows,
            std::span<float> lengths, Workers& workers)
  {
    const std::size_t width = input.size() / rows;
    make_signs(site, step, width);
    const unsigned parts = static_cast<unsigned>(std::clamp<std::size_t>(rows, 1, std::max(1U, workers.threads())));
    workers.run(parts, [&](unsigned part) {
      const float_environment standard;  // of the thread that runs it
      for (std::size_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
        double sums[probes] = {};
        for (std::size_t column = 0; column < width; ++column) {
          const double x = strict_fp::to_double(to_float(input[row * width + column]));
          for (std::uint32_t probe = 0; probe < probes; ++probe)
            sums[probe] += x * signs_[column * probes + probe];  // a product with 1 or -1 is exact, however it is fused
        }
        for (std::uint32_t probe = 0; probe < probes; ++probe)
          lengths[row * probes + probe] = strict_fp::to_single(sums[probe]);
      }
    });
  }

  /// Adds one product of a batch to the step's sums. Batches of a step may have other loss scales.
  /// @param slope   of all rows   @param first   index of its first column among those of all products
  /// @param indices, scales   of the kept rows, in the order of rows
  template <real_element Slope>
  void add(std::uint32_t site, std::uint64_t step, float loss_scale, std::span<const Slope> slope, std::size_t outputs,
           std::size_t first, std::span<const float> lengths, std::span<const std::int32_t> indices,
           std::span<const float> scales)
  {
    const float_environment standard;
    step_sums& it = sums_[site];
    if (it.is_open && it.step != step) end_step(site);
    if (!it.is_open) it.loss_scale = loss_scale;  // sums are in its units
    it.is_open = true;
    it.step = step;
    const double units = strict_fp::quotient(strict_fp::to_double(it.loss_scale), strict_fp::to_double(loss_scale));
    if (it.signal.size() < (first + outputs) * probes) {
      it.signal.resize((first + outputs) * probes, 0.0);
      it.error.resize((first + outputs) * probes, 0.0);
    }
    std::size_t place = 0;
    for (std::size_t row = 0; row < slope.size() / outputs; ++row) {
      float counts = -1;  // the weight of the row in (estimate - G)
      while (place < indices.size() && static_cast<std::size_t>(indices[place]) == row) counts += scales[place++];
      const Slope* const d = slope.data() + row * outputs;
      float of_row[probes], of_error[probes];
      for (std::uint32_t probe = 0; probe < probes; ++probe) {
        const double length = strict_fp::to_double(lengths[row * probes + probe]);
        of_row[probe] = strict_fp::to_single(strict_fp::product(length, units));
        of_error[probe] = strict_fp::product(counts, of_row[probe]);
      }
      add_row(it.signal.data() + first * probes, of_row, d, outputs);
      if (counts != 0) add_row(it.error.data() + first * probes, of_error, d, outputs);
    }
  }

  void spent(std::uint32_t site, double seconds) noexcept { report_.inputs[site].spent_seconds += seconds; }
  void multiplied(std::uint32_t site, double seconds) noexcept { report_.inputs[site].product_seconds += seconds; }

  /// Ends the step, whose sums are complete.
  void end_step()
  {
    for (std::uint32_t site = 0; site < sums_.size(); ++site) end_step(site);
  }
  /// Forgets the sums of the step.
  void forget() noexcept
  {
    for (step_sums& it : sums_) it.clear();
  }
  /// The report, with the sums of the step. Call this between two steps.
  [[nodiscard]] const sampling_report& report()
  {
    end_step();
    return report_;
  }

 private:
  /// u^T G and u^T (estimate - G) of one step, `probes` numbers for each column.
  struct step_sums {
    bool is_open = false;
    std::uint64_t step = 0;
    float loss_scale = 1;  // of its first batch
    std::vector<double> signal, error;

    void clear() noexcept
    {
      is_open = false;
      std::ranges::fill(signal, 0.0);
      std::ranges::fill(error, 0.0);
    }
    [[nodiscard]] double square_of(const std::vector<double>& all) const noexcept
    {
      double sum = 0;
      for (const double each : all) sum = strict_fp::sum(sum, strict_fp::product(each, each));
      const double scale = strict_fp::to_double(loss_scale);
      return strict_fp::quotient(strict_fp::quotient(sum, strict_fp::product(scale, scale)), probes);
    }
  };

  template <class Slope>
  static void add_row(double* sums, const float* by, const Slope* slope, std::size_t outputs) noexcept
  {
    double wide[probes];
    for (std::uint32_t probe = 0; probe < probes; ++probe) wide[probe] = strict_fp::to_double(by[probe]);
    for (std::size_t column = 0; column < outputs; ++column) {
      const double d = strict_fp::to_double(to_float(slope[column]));
      for (std::uint32_t probe = 0; probe < probes; ++probe)
        sums[column * probes + probe] += wide[probe] * d;  // 48 bits at most: exact, however it is fused
    }
  }
  void end_step(std::uint32_t site)
  {
    step_sums& it = sums_[site];
    if (!it.is_open) return;
    const float_environment standard;
    const double signal = it.square_of(it.signal), error = it.square_of(it.error);
    constexpr double most = std::numeric_limits<double>::max();
    if (signal <= most && error <= most) {
      report_.inputs[site].signal += signal;
      report_.inputs[site].error += error;
      report_.inputs[site].error_squares += strict_fp::product(error, error);
      ++report_.inputs[site].steps;
    }
    it.clear();
  }
  /// Makes the signs. All inputs of a site have the same ones in a step, since their gradients are summed.
  void make_signs(std::uint32_t site, std::uint64_t step, std::size_t width)
  {
    if (signs_.size() == width * probes && sign_site_ == site && sign_step_ == step) return;
    signs_.resize(width * probes);
    constexpr std::array<std::uint32_t, 2> of_signs = {0x6e6f6973U, 0x65U};  // those of draws begin with a seed
    std::array<std::uint32_t, 4> bits{};
    for (std::size_t at = 0; at < signs_.size(); ++at) {
      if (at % 128 == 0)
        bits = philox({static_cast<std::uint32_t>(at / 128), static_cast<std::uint32_t>(step),
                       static_cast<std::uint32_t>(step >> 32U), site},
                      of_signs);
      signs_[at] = (bits[at % 128 / 32] >> at % 32 & 1U) != 0 ? 1.0 : -1.0;
    }
    sign_site_ = site;
    sign_step_ = step;
  }

  bool is_on_;
  sampling_report report_;
  std::vector<step_sums> sums_;  // by site
  std::vector<double> signs_;    // by element of a row, then by probe
  std::uint32_t sign_site_ = UINT32_MAX;
  std::uint64_t sign_step_ = 0;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
