// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The costs and savings of sampling at one site of a norm_cache: of all sampled inputs that share it.
///
///     std::cout << it.name << ": noise " << it.noise() << ", " << it.saved().count() << " B saved\n";
struct sampling_costs {
  std::string name;
  double ratio = 1;            ///< of the rows that are kept; the largest, where inputs of the site differ
  bytes exact;                 ///< of all rows of all inputs
  bytes kept;                  ///< of their kept rows, indices and scales
  std::uint64_t steps = 0;     ///< that were measured: those of finite gradients
  double error = 0;            ///< |estimate - gradient|^2, summed over these steps
  double error_squares = 0;    ///< the square of a step's |estimate - gradient|^2, summed over these steps
  double signal = 0;           ///< |gradient|^2, summed over these steps
  double spent_seconds = 0;    ///< of choosing, copying and scaling rows, and of norms
  double product_seconds = 0;  ///< of the products that make the weights' gradients

  [[nodiscard]] bytes saved() const { return exact > kept ? exact - kept : bytes{}; }
  /// Noise to signal: the mean of |estimate - gradient|^2 over that of |gradient|^2. NaN where nothing was measured,
  /// or gradients were 0.
  [[nodiscard]] double noise() const noexcept
  {
    return signal > 0 ? error / signal : std::numeric_limits<double>::quiet_NaN();
  }
  /// The spread of the noise over steps: the standard deviation of |estimate - gradient|^2 over these steps, over the
  /// mean of |gradient|^2. Above `noise()`, a few steps dominate the mean, and other steps would have another one. NaN
  /// below two steps, where gradients were 0, and for `sampling_report::whole`.
  [[nodiscard]] double noise_deviation() const noexcept
  {
    if (steps < 2 || !(signal > 0)) return std::numeric_limits<double>::quiet_NaN();
    const auto count = static_cast<double>(steps);
    const double mean = error / count, variance = (error_squares / count - mean * mean) * count / (count - 1);
    return variance < 0 ? 0 : std::sqrt(variance) / (signal / count);  // below 0 by rounding alone
  }
};

/// What sampled inputs did since their norm_cache was made, input by input. A snapshot: plain numbers.
///
///     activation::norm_cache norms{{.name = "sampling", .seed = 42, .measures_noise = true}};
///     ...                                                      // ten steps of a training
///     const sampling_report now = norms.report();              // between two steps
///     std::cout << now.since(before);                          // of these ten
///
/// **What is estimated.** Error and signal of a step are lengths of matrices, too large to be made for a report. With a
/// vector u of random signs, of the input's width, |u^T A|^2 is expected to be |A|^2, the sum of squares of A. So
/// `keep` takes u^T h of each row h of the input, and `sampled` adds up u^T G = sum of (u^T h) d over all rows, and u^T
/// (estimate - G) = sum of (scale - 1) (u^T h) d, where a row that is not kept has the scale 0. Squares are the mean
/// over 4 vectors u, others in each step. Thus:
/// - `error` and `signal` are unbiased, each of them in each step, whatever the norms and the draws. The error is that
///   of the rows that were drawn, so its mean over steps is the variance of the estimate. Nothing is assumed of it.
/// - The signs alone give a step's number a standard deviation of at most 0.71 of its value, where the matrix has rank
///   1, and less at a higher rank. This part falls as 1 / sqrt(steps).
/// - **The scatter from the draws has no bound.** The error is right in the mean over draws, but not in most reports: a
///   row with a small weight and a large gradient is rarely drawn, and then makes nearly all of the noise. A report
///   without such a draw is too low. With 40 rows, one of a thousandth of the others' weight and an equally large
///   gradient, the noise is 79 in the long run, and half of the reports over 100 steps say 2.3 or less. Weights without
///   norms of gradients (`samples = 0`, or first visits) can have this problem, exact norms cannot. `noise_deviation`
///   shows such a draw where there was one. Where there was none, nothing in a report shows the problem.
/// - The gradient is that of the step, over all batches whose backward pass this caller ran, before clipping. Over
///   ranks, it is that of this rank's rows: the mean over ranks has less noise, and another signal.
/// - Not counted: rounding of the trainer's products. A step that is tried again adds the sums of a first try that got
///   this far, so error and signal are up to 4 times as large, unless norm_cache::forget() was called.
///
/// **Seconds** are those of the backend's clock, without waits for copies and without the measurement itself. The time
/// that the smaller product saves is not measured, as the whole product never ran: it would take about
/// `product_seconds` over the ratio.
struct sampling_report {
  std::vector<sampling_costs> inputs;

  /// The report of the time since `earlier`, a report of the same norms. Sizes are the present ones.
  [[nodiscard]] sampling_report since(const sampling_report& earlier) const
  {
    sampling_report result = *this;
    for (std::size_t at = 0; at < result.inputs.size() && at < earlier.inputs.size(); ++at) {
      sampling_costs& it = result.inputs[at];
      const sampling_costs& before = earlier.inputs[at];
      it.steps -= before.steps;
      it.error -= before.error;
      it.error_squares -= before.error_squares;
      it.signal -= before.signal;
      it.spent_seconds -= before.spent_seconds;
      it.product_seconds -= before.product_seconds;
    }
    return result;
  }
  /// All inputs together, under the name "all": sizes and seconds are added up, `noise` is that of all gradients as
  /// one, and `ratio` is the largest. `noise_deviation` is NaN: errors of inputs are not known together, step by step.
  [[nodiscard]] sampling_costs whole() const
  {
    sampling_costs sum;
    sum.name = "all";
    if (!inputs.empty()) sum.ratio = 0;
    sum.error_squares = std::numeric_limits<double>::quiet_NaN();
    for (const sampling_costs& it : inputs) {
      sum.ratio = it.ratio > sum.ratio ? it.ratio : sum.ratio;
      sum.exact += it.exact;
      sum.kept += it.kept;
      sum.steps = it.steps > sum.steps ? it.steps : sum.steps;
      sum.error += it.error;
      sum.signal += it.signal;
      sum.spent_seconds += it.spent_seconds;
      sum.product_seconds += it.product_seconds;
    }
    return sum;
  }

  /// A JSON array with an object for each input; sizes in bytes, times in seconds, `noise` null where there is none.
  [[nodiscard]] std::string json() const
  {
    std::string out = "[";
    for (const sampling_costs& it : inputs) {
      if (out.size() > 1) out += ", ";
      out += "{\"name\": \"";
      for (const char letter : it.name) {
        if (letter == '"' || letter == '\\') out += '\\';
        out += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
      }
      out += '"';
      visit(it, [&](std::string_view key, const std::string& value) {
        out.append(", \"").append(key).append("\": ").append(value);
      });
      out += '}';
    }
    return out + "]";
  }

  /// One line for each number of each input: `name: key value`. A template, so that programs that do not print need not
  /// compile `<ostream>`.
  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const sampling_report& it)
  {
    for (const sampling_costs& each : it.inputs)
      visit(each, [&](std::string_view key, const std::string& value) {
        out << each.name << ": " << key << ' ' << value << '\n';
      });
    return out;
  }

 private:
  /// With as many digits as a round trip needs. JSON has no NaN or infinity.
  [[nodiscard]] static std::string text_of(double number)
  {
    if (!(number - number == 0)) return "null";
    char digits[32];
    const auto [end, failure] = std::to_chars(digits, digits + sizeof digits, number);
    return failure == std::errc{} ? std::string(digits, end) : "null";
  }

  template <class Visit>
  static void visit(const sampling_costs& it, Visit see)
  {
    see("ratio", text_of(it.ratio));
    see("exact_bytes", std::to_string(it.exact.count()));
    see("kept_bytes", std::to_string(it.kept.count()));
    see("saved_bytes", std::to_string(it.saved().count()));
    see("steps", std::to_string(it.steps));
    see("noise", text_of(it.noise()));
    see("noise_deviation", text_of(it.noise_deviation()));
    see("error", text_of(it.error));
    see("signal", text_of(it.signal));
    see("spent_seconds", text_of(it.spent_seconds));
    see("product_seconds", text_of(it.product_seconds));
  }
};

}  // namespace activation

}  // namespace chunkmem::inline v0
