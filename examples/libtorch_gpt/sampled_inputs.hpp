// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lent_bytes.hpp"
#include "sampled_linear.hpp"

#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/sampled.hpp>
#include <chunkmem/activation/sampled_input.hpp>
#include <chunkmem/manager/manager.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace libtorch_gpt {

namespace cm = chunkmem;

/// Samples of the inputs of linear layers, in chunks of the manager. See docs/activations.md, "Sampled inputs".
///
///     sampled_inputs inputs{m, {.name = "sampling", .samples = texts, .seed = 1}};
///     row_keeper& first = inputs.add("first", context, {.rows = batch * context, .width = w, .ratio = 0.3}, handle);
///     inputs.use();                                     // after the last add
///     ...
///     inputs.begin(step, {17, 4});                      // numbers of the samples in the next forward pass
///     y = sampled_linear::run(x, weight, bias, &first);
///     ...
///     inputs.commit();                                  // after the update
///
/// A graph owns the rows that were kept for it: they are dropped with the graph. Graphs that outlive this object throw
/// where they are used.
/// @tparam Manager   of a device tier that the calling thread can read
/// @threads as chunked_parameters
template <class Manager>
class sampled_inputs {
 public:
  sampled_inputs(Manager& manager, const cm::activation::norm_cache::options& norms) : m_{manager}, norms_{norms} {}
  sampled_inputs(const sampled_inputs&) = delete;
  sampled_inputs& operator=(const sampled_inputs&) = delete;

  /// Declares the input of a layer. @param rows   of each sample   @param weight   of the layer
  /// @throws as norm_cache::add and the constructor of sampled_input
  row_keeper& add(const std::string& name, std::uint32_t rows, const cm::activation::sampling_options& how,
                  cm::tensor_handle weight)
  {
    const auto site = norms_.add(name, rows);
    keepers_.push_back(std::make_unique<keeper>(*this, site, how, weight));
    kept_ += how.size(cm::dtype::float32);
    all_ += how.size_of_all(cm::dtype::float32);
    return *keepers_.back();
  }
  /// Gives the norms to the manager, after the last input.
  void use() { m_.use(norms_); }

  /// The samples of the next forward pass, by number: the rows of the first one come first.
  void begin(std::uint64_t step, std::vector<std::uint64_t> numbers)
  {
    batch_ = std::make_shared<const batch>(batch{step, std::move(numbers)});
  }
  /// Adds the norms of a step, once after its update.
  void commit() { norms_.commit(); }
  /// For a step that is repeated: drops all rows, and the norms of the step.
  void forget()
  {
    for (const auto& each : keepers_) each->forget();
    norms_.forget();
  }

  [[nodiscard]] std::size_t size() const noexcept { return keepers_.size(); }
  /// Bytes of the kept rows of all inputs, and of all rows.
  [[nodiscard]] cm::bytes kept_bytes() const noexcept { return kept_; }
  [[nodiscard]] cm::bytes bytes_of_all_rows() const noexcept { return all_; }

 private:
  using life_type = std::shared_ptr<sampled_inputs*>;

  struct batch {
    std::uint64_t step = cm::activation::sampled_batch::no_step;
    std::vector<std::uint64_t> numbers{};
    [[nodiscard]] cm::activation::sampled_batch as_sampled() const { return {.step = step, .samples = numbers}; }
  };

  struct keeper : row_keeper {
    keeper(sampled_inputs& inputs, cm::activation::norm_cache::site site, const cm::activation::sampling_options& how,
           cm::tensor_handle weight)
        : owner{inputs}, input{inputs.m_, inputs.norms_, site, how, {weight}}
    {
    }
    c10::intrusive_ptr<kept> keep(const at::Tensor& rows) override
    {
      std::shared_ptr<const batch> now = owner.batch_;
      input.keep(now->as_sampled(), std::span<const float>{rows.data_ptr<float>(), count_of(rows)});
      return c10::make_intrusive<sample>(*this, std::move(now), ++passes);
    }

    void forget() override
    {
      ++passes;
      input.forget();
    }

    sampled_inputs& owner;
    cm::activation::sampled_input<Manager, float> input;
    std::uint64_t passes = 0;  // the forward pass that the rows belong to
  };

  struct sample : row_keeper::kept {
    sample(keeper& by, std::shared_ptr<const batch> of, std::uint64_t pass)
        : life_{by.owner.life_}, keeper_{by}, batch_{std::move(of)}, pass_{pass}
    {
    }
    sample(const sample&) = delete;
    sample& operator=(const sample&) = delete;
    ~sample() override
    {
      if (is_used_ || life_.expired() || keeper_.passes != pass_) return;
      try {
        keeper_.input.forget();
      } catch (...) {  // the device is lost: the next pass overwrites these bytes
      }
    }

    at::Tensor weight_gradient(const at::Tensor& slope, const std::function<void()>& of_input) override
    {
      TORCH_CHECK(!life_.expired(), "a graph was used after the sampled_inputs that it was made with");
      TORCH_CHECK(keeper_.passes == pass_, "the sampled input \"", keeper_.input.name(),
                  "\" has lost the rows of this graph (run its backward pass before the layer's next forward pass, and "
                  "before forget())");
      const std::int64_t outputs = slope.size(1);
      const auto width = static_cast<std::int64_t>(keeper_.input.options().width);
      at::Tensor gradient;
      const auto of_weight = [&](const cm::activation::sampled_rows<float>& it) {
        const auto count = static_cast<std::int64_t>(it.count);
        gradient = matrix(it.slopes, count, outputs).t().mm(matrix(it.rows, count, width));
      };
      cm::activation::sampled(
          keeper_.input, batch_->as_sampled(), cm::on_this_thread,
          cm::activation::linear_slope{std::span<const float>{slope.data_ptr<float>(), count_of(slope)},
                                       static_cast<std::uint64_t>(outputs), of_input, of_weight});
      is_used_ = true;
      return gradient;
    }

   private:
    static at::Tensor matrix(const float* from, std::int64_t rows, std::int64_t columns)
    {
      return view_of(const_cast<float*>(from), {rows, columns}, at::kFloat, at::kCPU);  // NOLINT: it is only read
    }

    std::weak_ptr<sampled_inputs*> life_;
    keeper& keeper_;
    std::shared_ptr<const batch> batch_;
    std::uint64_t pass_;
    bool is_used_ = false;
  };

  [[nodiscard]] static std::size_t count_of(const at::Tensor& of) { return static_cast<std::size_t>(of.numel()); }

  Manager& m_;
  cm::activation::norm_cache norms_;
  std::vector<std::unique_ptr<row_keeper>> keepers_{};
  std::shared_ptr<const batch> batch_ = std::make_shared<const batch>();  // of the next forward pass
  cm::bytes kept_{}, all_{};
  life_type life_ = std::make_shared<sampled_inputs*>(this);
};

}  // namespace libtorch_gpt
