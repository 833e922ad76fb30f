// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace support {

inline constexpr std::size_t width = 6;
using vector_type = std::vector<float>;

/// The rule of updates.
enum class small_optimizer : std::uint8_t { sgd, momentum, adam, adamw };

/// The layer y = h / (1 + |h|), h = W x, as arithmetic on plain vectors. The last layer compares y with a target.
struct small_layer {
  static vector_type ahead(const vector_type& weights, const vector_type& input, vector_type& hidden)
  {
    vector_type output(width);
    hidden.assign(width, 0);
    for (std::size_t row = 0; row < width; ++row) {
      for (std::size_t column = 0; column < width; ++column)
        hidden[row] = std::fma(weights[row * width + column], input[column], hidden[row]);
      output[row] = hidden[row] / (1 + std::abs(hidden[row]));
    }
    return output;
  }
  static vector_type gradient_of_hidden(const vector_type& hidden, const vector_type& output_gradient)
  {
    vector_type gradient(width);
    for (std::size_t row = 0; row < width; ++row) {
      const float slope = 1 + std::abs(hidden[row]);
      gradient[row] = output_gradient[row] / (slope * slope);
    }
    return gradient;
  }
  static vector_type gradient_of_input(const vector_type& weights, const vector_type& of_hidden)
  {
    vector_type gradient(width, 0);
    for (std::size_t row = 0; row < width; ++row)
      for (std::size_t column = 0; column < width; ++column)
        gradient[column] = std::fma(weights[row * width + column], of_hidden[row], gradient[column]);
    return gradient;
  }
  static void add_gradient(vector_type& sum, const vector_type& of_hidden, const vector_type& input)
  {
    for (std::size_t row = 0; row < width; ++row)
      for (std::size_t column = 0; column < width; ++column)
        sum[row * width + column] += of_hidden[row] * input[column];
  }
};

inline float some_number(std::uint64_t which)
{
  which = (which + 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U;
  which ^= which >> 31U;
  return static_cast<float>(which % 2'001) / 1'000 - 1;
}
inline vector_type numbers_of(std::uint64_t seed, std::size_t count)
{
  vector_type numbers(count);
  for (std::size_t index = 0; index < count; ++index) numbers[index] = some_number(seed * 1'000 + index);
  return numbers;
}
inline vector_type input_of(std::uint32_t micro_batch)
{
  return numbers_of(100 + micro_batch, width);
}
inline vector_type target_of(std::uint32_t micro_batch)
{
  return numbers_of(50'000 + micro_batch, width);
}

/// Weights of one part with their optimizer. Versions are numbered copies; a version that is not kept any more cannot
/// be read.
class small_weights {
 public:
  small_weights(std::uint32_t part, std::uint32_t versions, small_optimizer how, bool rounds)
      : versions_{versions}, how_{how}, rounds_{rounds}, masters_{numbers_of(part + 1, width * width)}
  {
    first_.assign(masters_.size(), 0);
    second_.assign(masters_.size(), 0);
    kept_[0] = rounded();
  }
  [[nodiscard]] const vector_type& of(std::uint32_t version) const
  {
    const auto found = kept_.find(version);
    if (found == kept_.end()) throw std::logic_error{"a version that is not kept cannot be read"};
    return found->second;
  }
  /// @param gradient   of a batch, a sum over its micro-batches
  void update(const vector_type& gradient, std::uint32_t micro_batches, std::uint32_t version)
  {
    const float scale = 1.0F / static_cast<float>(micro_batches);
    for (std::size_t index = 0; index < masters_.size(); ++index) change(index, gradient[index] * scale);
    kept_[version] = rounded();
    if (version >= versions_) kept_.erase(version - versions_);
  }
  [[nodiscard]] const vector_type& masters() const { return masters_; }

 private:
  void change(std::size_t index, float gradient)
  {
    float& weight = masters_[index];
    if (how_ == small_optimizer::sgd) {
      weight -= 0.1F * gradient;
    } else if (how_ == small_optimizer::momentum) {
      first_[index] = 0.9F * first_[index] + gradient;
      weight -= 0.05F * first_[index];
    } else {
      first_[index] = 0.9F * first_[index] + 0.1F * gradient;
      second_[index] = 0.99F * second_[index] + 0.01F * gradient * gradient;
      const float decay = how_ == small_optimizer::adamw ? 0.01F * weight : 0;
      weight -= 0.02F * (first_[index] / (std::sqrt(second_[index]) + 1e-6F) + decay);
    }
  }
  [[nodiscard]] vector_type rounded() const
  {
    vector_type weights = masters_;
    if (rounds_)
      for (float& weight : weights) weight = static_cast<float>(chunkmem::bf16{weight});
    return weights;
  }

  std::uint32_t versions_;
  small_optimizer how_;
  bool rounds_;
  vector_type masters_;
  vector_type first_;
  vector_type second_;
  std::map<std::uint32_t, vector_type> kept_;
};

/// Weights of the parts of a stage, in plain memory.
class small_weights_of_stage {
 public:
  small_weights_of_stage(const chunkmem::pipeline::schedule& plan, std::uint32_t stage, small_optimizer how,
                         bool rounds)
      : micro_batches_{plan.micro_batches}
  {
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == stage) all_.try_emplace(part, part, plan.versions, how, rounds);
  }

  [[nodiscard]] const vector_type& of(std::uint32_t part, std::uint32_t version) const
  {
    return all_.at(part).of(version);
  }
  void add_gradient(std::uint32_t part, std::uint32_t batch, const vector_type& of_hidden, const vector_type& input)
  {
    vector_type& sum = sums_[{part, batch}];
    sum.resize(width * width, 0);
    small_layer::add_gradient(sum, of_hidden, input);
  }
  void update(const chunkmem::pipeline::operation& step)
  {
    const std::pair batch{step.part, step.version - 1};
    all_.at(step.part).update(sums_.at(batch), micro_batches_, step.version);
    sums_.erase(batch);
  }
  [[nodiscard]] const vector_type& masters(std::uint32_t part) const { return all_.at(part).masters(); }
  [[nodiscard]] bool is_clean() const { return sums_.empty(); }

 private:
  std::uint32_t micro_batches_;
  std::map<std::uint32_t, small_weights> all_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, vector_type> sums_;  // by part and batch
};

/// The arithmetic of a stage of small layers, one for each part.
/// @tparam Weights   see small_weights_of_stage
template <class Weights>
class stage_of_layers {
 public:
  using forward_run = chunkmem::pipeline::forward_run;
  using backward_run = chunkmem::pipeline::backward_run;
  using operation = chunkmem::pipeline::operation;

  template <class... Arguments>
  stage_of_layers(const chunkmem::pipeline::schedule& plan, std::uint32_t stage, Arguments&&... arguments)
      : plan_{plan}, weights_{plan, stage, std::forward<Arguments>(arguments)...}
  {
  }

  void forward(const forward_run& run)
  {
    const vector_type input = input_of_run(run.step, run.input);
    saved& it = saved_[key(run.step)];
    const vector_type output = small_layer::ahead(weights_of(run.step), input, it.hidden);
    if (run.step.part + 1 == plan_.part_count()) it.error = minus(output, target_of(run.step.micro_batch));
    write(run.output, output);
  }
  void recompute(const forward_run& run) { forward(run); }
  void backward(const backward_run& run)
  {
    backward_input(run);
    backward_weight(run.step);
  }
  void backward_input(const backward_run& run)
  {
    saved& it = saved_.at(key(run.step));
    const vector_type output_gradient = run.step.part + 1 == plan_.part_count() ? it.error : read(run.output_gradient);
    it.of_hidden = small_layer::gradient_of_hidden(it.hidden, output_gradient);
    it.input = input_of_run(run.step, run.input);
    write(run.input_gradient, small_layer::gradient_of_input(weights_of(run.step), it.of_hidden));
  }
  void backward_weight(const operation& step)
  {
    const saved& it = saved_.at(key(step));
    weights_.add_gradient(step.part, plan_.batch_of(step.micro_batch), it.of_hidden, it.input);
    saved_.erase(key(step));
  }
  void offload(const operation& step) { on_host_[key(step)] = std::exchange(saved_[key(step)], {}); }
  void reload(const operation& step)
  {
    saved_[key(step)] = on_host_.at(key(step));
    on_host_.erase(key(step));
  }
  void update(const operation& step) { weights_.update(step); }

  [[nodiscard]] const Weights& weights() const { return weights_; }
  [[nodiscard]] Weights& weights() { return weights_; }
  [[nodiscard]] const vector_type& masters(std::uint32_t part) const { return weights_.masters(part); }
  [[nodiscard]] bool is_clean() const { return saved_.empty() && weights_.is_clean() && on_host_.empty(); }

 private:
  struct saved {
    vector_type hidden{};
    vector_type error{};
    vector_type of_hidden{};
    vector_type input{};
  };
  using place = std::pair<std::uint32_t, std::uint32_t>;

  [[nodiscard]] static place key(const operation& step) { return {step.part, step.micro_batch}; }
  [[nodiscard]] decltype(auto) weights_of(const operation& step) { return weights_.of(step.part, step.version); }
  [[nodiscard]] static vector_type input_of_run(const operation& step, std::span<const std::byte> given)
  {
    return step.part == 0 ? support::input_of(step.micro_batch) : read(given);
  }
  [[nodiscard]] static vector_type read(std::span<const std::byte> from)
  {
    vector_type numbers(width);
    if (from.size() < width * sizeof(float)) throw std::logic_error{"a boundary of another size"};
    std::memcpy(numbers.data(), from.data(), width * sizeof(float));
    for (std::size_t at = 0; at < from.size(); ++at)
      if (from[at] != from[at % (width * sizeof(float))]) throw std::logic_error{"a boundary that was written over"};
    return numbers;
  }
  static void write(std::span<std::byte> to, const vector_type& numbers)
  {
    const auto content = std::as_bytes(std::span{numbers});
    for (std::size_t at = 0; at < to.size(); ++at) to[at] = content[at % content.size()];  // to its end
  }
  [[nodiscard]] static vector_type minus(vector_type left, const vector_type& right)
  {
    for (std::size_t index = 0; index < left.size(); ++index) left[index] -= right[index];
    return left;
  }

  const chunkmem::pipeline::schedule& plan_;
  Weights weights_;
  std::map<place, saved> saved_;
  std::map<place, saved> on_host_;
};

using small_stage = stage_of_layers<small_weights_of_stage>;

/// Sums over the micro-batches of a batch, in their order, for each part. @param weights_of   `weights_of(part)`
template <class WeightsOf>
[[nodiscard]] std::vector<vector_type> gradients_of_batch(const chunkmem::pipeline::schedule& plan, std::uint32_t batch,
                                                          WeightsOf weights_of)
{
  std::vector<vector_type> sums(plan.part_count(), vector_type(width * width, 0));
  for (std::uint32_t it = batch * plan.micro_batches; it < (batch + 1) * plan.micro_batches; ++it) {
    std::vector<vector_type> inputs{input_of(it)};
    std::vector<vector_type> hidden(plan.part_count());
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      inputs.push_back(small_layer::ahead(weights_of(part), inputs[part], hidden[part]));
    vector_type gradient = inputs.back();
    const vector_type target = target_of(it);
    for (std::size_t index = 0; index < width; ++index) gradient[index] -= target[index];
    for (std::uint32_t part = plan.part_count(); part-- > 0;) {
      const vector_type of_hidden = small_layer::gradient_of_hidden(hidden[part], gradient);
      small_layer::add_gradient(sums[part], of_hidden, inputs[part]);
      gradient = small_layer::gradient_of_input(weights_of(part), of_hidden);
    }
  }
  return sums;
}

/// The result of training on one device: batch t reads the weights of `delay` updates before, micro-batches in order.
inline std::vector<vector_type> train_alone(const chunkmem::pipeline::schedule& plan, small_optimizer how, bool rounds)
{
  const std::uint32_t delay = plan.versions - 1;
  std::vector<small_weights> weights;
  for (std::uint32_t part = 0; part < plan.part_count(); ++part) weights.emplace_back(part, plan.versions, how, rounds);
  for (std::uint32_t batch = 0; batch < plan.batches; ++batch) {
    const std::uint32_t version = batch < delay ? 0 : batch - delay;
    const std::vector<vector_type> sums = gradients_of_batch(
        plan, batch, [&](std::uint32_t part) -> const vector_type& { return weights[part].of(version); });
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      weights[part].update(sums[part], plan.micro_batches, batch + 1);
  }
  std::vector<vector_type> found;
  for (const small_weights& it : weights) found.push_back(it.masters());
  return found;
}

}  // namespace support
