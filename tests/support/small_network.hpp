// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <support/mixed_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// Small networks on a manager or over ranks, for tests of the possible uses of `checkpointed`.
namespace support::small {

namespace cm = chunkmem;
namespace act = chunkmem::activation;

inline constexpr std::uint64_t rows = 16, width = 8;  // of a batch, and of each layer
inline constexpr cm::bytes frame{512};                // a tensor of all rows

/// A part of a layer that a later layer adds to its output.
struct skip_of {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  bool is_inner = false;  ///< the hidden values, before dropout; else the output
};

/// A network before it has tensors.
struct network_shape {
  std::string name;
  std::uint32_t layers = 3;
  std::vector<skip_of> skips{};
  bool normalises = false;  ///< over the rows of a batch, with running statistics
  std::uint32_t instances = 1;
};

/// Layers y = dropout(softsign(norm(x W))) + skips, in `checkpointed`.
///
///     small::network<manager, act::keep_all> net{m, {.name = "net"}, {}};
///     net.chain.forward(iteration, {.step = step});
///     loss += net.meet(0, target);           // the slope of the loss, of instance 0
///     net.chain.backward(iteration);
template <class Model, class Planner>
class network {
 public:
  using chain_type = act::checkpointed<Model, Planner>;
  using run_type = typename chain_type::block_type::run_type;
  using tensor = cm::tensor<float>;

  chain_type chain;
  std::function<float(const run_type&, std::uint64_t)> input;  ///< of layer 0, by element
  bool makes_gradients = true;

  /// @param shares   a network whose weights this one uses too; null: it has its own
  network(Model& m, network_shape how, Planner planner, const network* shares = nullptr)
      : chain{m,
              {.budget = {.device = cm::bytes{1U << 20},
                          .to_host_bytes_per_second = 1e6,
                          .to_device_bytes_per_second = 1e6,
                          .frame = frame},
               .seed = 5,
               .name = how.name,
               .instances = how.instances,
               .rows = rows},
              std::move(planner)},
        m_{m},
        how_{std::move(how)},
        shares_{shares}
  {
    for (std::uint32_t index = 0; index < how_.layers; ++index) declare(index);
    for (std::uint32_t instance = 0; instance < how_.instances; ++instance) {
      slopes_.push_back(m.template add<float>({rows, width}, cm::role::activation));
      for (std::size_t skip = 0; skip < how_.skips.size(); ++skip)
        skip_slopes_.push_back(m.template add<float>({rows, width}, cm::role::activation));
    }
  }

  /// Gives the planner the least bytes, in fifths of those of keep_all, for which it has a plan for every kind.
  void fit_budget(const Planner& planner, std::initializer_list<std::string_view> kinds = {"train"})
  {
    act::activation_budget budget{.device = cm::bytes{1U << 20},
                                  .to_host_bytes_per_second = 1e6,
                                  .to_device_bytes_per_second = 1e6,
                                  .frame = frame};
    const cm::bytes whole = act::keep_all{}.plan(chain.chain(), budget).costs.device_peak;
    for (std::uint64_t tenths = 6; tenths < 18; tenths += 2) {
      budget.device = cm::align_up(cm::bytes{whole.count() * tenths / 10}, frame);
      if (std::ranges::all_of(
              kinds, [&](std::string_view kind) { return planner.plan(chain.chain(kind), budget).costs.fits; }))
        break;
    }
    chain.use(budget);
  }

  void fill()
  {
    for (std::size_t index = 0; index < weights_.size(); ++index)
      mixed::fill(m_.acquire(weights_[index], cm::access::write).span(), 17 * index + how_.name.size());
    for (const tensor& each : running_) std::ranges::fill(m_.acquire(each, cm::access::write).span(), 0.25F);
  }
  [[nodiscard]] tensor output(std::uint32_t instance) const
  {
    return blocks_.back()->tensor_of(outputs_.back(), instance);
  }
  [[nodiscard]] tensor slope(std::uint32_t instance) const { return slopes_[instance]; }
  /// Half the squared distance of an output from a target, and its slope. @param target   of an element
  template <class Target>
  float meet(std::uint32_t instance, std::uint64_t active, Target target)
  {
    const auto out = m_.acquire(output(instance), cm::access::read);
    const auto slope = m_.acquire(slopes_[instance], cm::access::write);
    float sum = 0;
    for (std::uint64_t i = 0; i < active * width; ++i) {
      slope.data()[i] = out.data()[i] - target(i);
      sum += 0.5F * slope.data()[i] * slope.data()[i];
    }
    return sum;
  }
  /// The sum of the outputs after an evaluation, or of a forward.
  [[nodiscard]] float sum_of_output(std::uint64_t active)
  {
    const auto out = m_.acquire(output(0), cm::access::read);
    float sum = 0;
    for (std::uint64_t i = 0; i < active * width; ++i) sum += out.data()[i];
    return sum;
  }
  void drop_slopes()
  {
    for (const auto* const all : {&slopes_, &skip_slopes_})
      for (const tensor& each : *all) m_.drop(each);
  }
  /// All tensors that training changes.
  void collect(std::vector<float>& into)
  {
    for (const auto* const all : {&weights_, &running_})
      for (const tensor& each : *all) {
        const auto pin = m_.acquire(each, cm::access::read);
        into.insert(into.end(), pin.span().begin(), pin.span().end());
      }
  }
  [[nodiscard]] bool is_empty()
  {
    for (const auto* const block : blocks_)
      for (std::uint32_t instance = 0; instance < how_.instances; ++instance)
        for (const auto* const all : {&block->tensors(instance).inner, &block->tensors(instance).outputs})
          for (const auto& each : *all)
            if (m_.state_of(each.handle) != cm::tensor_state::free) return false;
    return true;
  }

 private:
  using matrix = std::vector<float>;

  void declare(std::uint32_t index)
  {
    auto& block = chain.add(how_.name + " layer " + std::to_string(index));
    blocks_.push_back(&block);
    weights_.push_back(shares_ != nullptr ? shares_->weights_[index]
                                          : m_.template add<float>({width, width}, cm::role::parameter));
    hidden_.push_back(block.template saves<float>({rows, width}, act::sized::by_rows));
    (void)block.saves(hidden_.back());  // counts once
    if (how_.normalises) {
      running_.push_back(m_.template add<float>({2 * width}, cm::role::buffer));
      scales_.push_back(block.template saves<float>({width}));
    }
    outputs_.push_back(block.template outputs<float>({rows, width}, act::sized::by_rows));
    for (const skip_of& skip : how_.skips)
      if (skip.to == index) skip.is_inner ? block.saves(hidden_[skip.from]) : block.reads(outputs_[skip.from]);
    block.reads_input = true;
    block.gradient = frame;
    block.forward_seconds = 1e-3 * (1 + index % 3);
    block.backward_seconds = 2 * block.forward_seconds;
    block.forward = [this, index](run_type& run) { forward(index, run); };
    block.backward = [this, index](run_type& run) { backward(index, run); };
  }
  [[nodiscard]] matrix input_of(std::uint32_t index, run_type& run)
  {
    matrix x(run.rows() * width);
    if (index == 0) {
      for (std::uint64_t i = 0; i < x.size(); ++i) x[i] = input(run, i);
    } else {
      const auto pin = run.input(outputs_[index - 1]);
      std::copy_n(pin.data(), x.size(), x.begin());
    }
    return x;
  }
  /// Keeps three of four values.
  [[nodiscard]] static matrix mask_of(const run_type& run)
  {
    matrix mask(run.rows() * width, 1.0F);
    if (!run.is_training()) return mask;
    for (std::uint64_t i = 0; i < mask.size(); ++i)
      mask[i] = (cm::random_bits(run.random(), i) & 3U) != 0 ? 1.25F : 0.0F;
    return mask;
  }
  void normalise(std::uint32_t index, run_type& run, matrix& z)
  {
    const auto scale = run.save(scales_[index]);
    const auto n = static_cast<float>(run.rows());
    std::vector<float> of_batch(2 * width, 0.0F);
    if (run.is_training()) {
      for (std::uint64_t i = 0; i < z.size(); ++i) of_batch[i % width] += z[i] / n;
      for (std::uint64_t i = 0; i < z.size(); ++i) {
        const float off = z[i] - of_batch[i % width];
        of_batch[width + i % width] += off * off / n;
      }
    } else {
      const auto running = m_.acquire(running_[index], cm::access::read);
      std::copy_n(running.data(), 2 * width, of_batch.begin());
    }
    for (std::uint64_t c = 0; c < width; ++c) scale.data()[c] = 1 / std::sqrt(of_batch[width + c] + 0.5F);
    for (std::uint64_t i = 0; i < z.size(); ++i) z[i] = (z[i] - of_batch[i % width]) * scale.data()[i % width];
    if (run.is_again() || !run.is_training()) return;
    const auto running = m_.acquire(running_[index], cm::access::read_write);
    for (std::uint64_t c = 0; c < 2 * width; ++c) running.data()[c] += 0.1F * (of_batch[c] - running.data()[c]);
  }
  void forward(std::uint32_t index, run_type& run)
  {
    const matrix x = input_of(index, run);
    matrix z(x.size(), 0.0F);
    {
      const auto w = m_.acquire(weights_[index], cm::access::read);
      for (std::uint64_t i = 0; i < z.size(); ++i)
        for (std::uint64_t k = 0; k < width; ++k) z[i] += x[i / width * width + k] * w.data()[k * width + i % width];
    }
    if (how_.normalises) normalise(index, run, z);
    const auto h = run.save(hidden_[index]);
    const auto y = run.save(outputs_[index]);
    const matrix mask = mask_of(run);
    for (std::uint64_t i = 0; i < z.size(); ++i) {
      h.data()[i] = z[i] / (1 + std::abs(z[i]));
      y.data()[i] = h.data()[i] * mask[i];
    }
    for (const skip_of& skip : how_.skips) {
      if (skip.to != index) continue;
      const auto more = run.input(skip.is_inner ? hidden_[skip.from] : outputs_[skip.from]);
      for (std::uint64_t i = 0; i < z.size(); ++i) y.data()[i] += more.data()[i];
    }
  }
  void backward(std::uint32_t index, run_type& run)
  {
    const matrix x = input_of(index, run);
    const matrix mask = mask_of(run);
    matrix dz(x.size());
    {
      const auto h = run.restore(hidden_[index]);
      const auto slope = m_.acquire(slopes_[run.instance()], cm::access::read);
      matrix dy(slope.data(), slope.data() + dz.size());
      matrix dh(dz.size(), 0.0F);
      add_skips(index, run, dy, dh);
      for (std::uint64_t i = 0; i < dz.size(); ++i) {
        const float rest = 1 - std::abs(h.data()[i]);
        dz[i] = (dy[i] * mask[i] + dh[i]) * rest * rest;
      }
      if (how_.normalises) normalise_backward(index, run, h.data(), dz);
    }
    auto w = m_.acquire(weights_[index], cm::access::read);
    {
      const auto slope = m_.acquire(slopes_[run.instance()], cm::access::write);
      for (std::uint64_t i = 0; i < dz.size(); ++i) {
        slope.data()[i] = 0;
        for (std::uint64_t k = 0; k < width; ++k)
          slope.data()[i] += dz[i / width * width + k] * w.data()[i % width * width + k];
      }
    }
    w.release();
    if (!makes_gradients) return;
    auto g = m_.gradient(weights_[index]);
    const float beta = g.beta();
    for (std::uint64_t at = 0; at < width * width; ++at) {
      float sum = beta == 0 ? 0 : g.data()[at];
      for (std::uint64_t r = 0; r < run.rows(); ++r) sum += x[r * width + at / width] * dz[r * width + at % width];
      g.data()[at] = sum;
    }
  }
  /// Adds the slopes that skips bring to this layer, and sends those of its inputs back.
  void add_skips(std::uint32_t index, run_type& run, matrix& dy, matrix& dh)
  {
    for (std::size_t number = 0; number < how_.skips.size(); ++number) {
      const skip_of& skip = how_.skips[number];
      const tensor kept = skip_slopes_[run.instance() * how_.skips.size() + number];
      if (skip.to == index) {
        const auto more = run.input(skip.is_inner ? hidden_[skip.from] : outputs_[skip.from]);
        const auto sent = m_.acquire(kept, cm::access::write);
        for (std::uint64_t i = 0; i < dy.size(); ++i) sent.data()[i] = dy[i] + 0 * more.data()[i];
      }
      if (skip.from != index) continue;
      const auto came = m_.acquire(kept, cm::access::read);
      for (std::uint64_t i = 0; i < dy.size(); ++i) (skip.is_inner ? dh : dy)[i] += came.data()[i];
    }
  }
  void normalise_backward(std::uint32_t index, run_type& run, const float* h, matrix& dz)
  {
    const auto scale = run.restore(scales_[index]);
    const auto normal = [&](std::uint64_t i) { return h[i] / (1 - std::abs(h[i])); };
    for (std::uint64_t c = 0; c < width; ++c) {
      float sum = 0, along = 0;
      for (std::uint64_t i = c; i < dz.size(); i += width) sum += dz[i], along += dz[i] * normal(i);
      const auto n = static_cast<float>(run.rows());
      for (std::uint64_t i = c; i < dz.size(); i += width)
        dz[i] = scale.data()[c] * (dz[i] - (sum + normal(i) * along) / n);
    }
  }

  Model& m_;
  network_shape how_;
  const network* shares_;
  std::vector<typename chain_type::block_type*> blocks_;
  std::vector<tensor> weights_, hidden_, outputs_, scales_, running_;
  std::vector<tensor> slopes_, skip_slopes_;  // by instance
};

/// A step of an optimizer, of a manager or over ranks.
template <class Model>
void update(Model& m, cm::optimizer::sgd& kernel)
{
  if constexpr (requires { m.step(kernel, {.learning_rate = 0.05F}); })
    m.step(kernel, {.learning_rate = 0.05F});
  else
    cm::optimizer::step(m, kernel, {.learning_rate = 0.05F});
}

/// A number of an input, by the step, the micro-batch, the instance and the element. @param salt   of a network or rank
[[nodiscard]] inline float datum(std::uint64_t salt, const act::chain_moment& at, std::uint64_t element)
{
  return 2 * mixed::noise((((salt * 64 + at.step) * 8 + at.micro_batch) * 4 + at.instance) * 1024 + element);
}

/// Encoder, bottom and decoder: two skips, one of them an inner tensor. Micro-batches, then an evaluation.
template <class Model, class Planner>
struct convnet {
  static constexpr const char* name = "U-Net";
  network<Model, Planner> net;
  cm::optimizer::sgd kernel{{.momentum = 0.9F}, {.masters = false}};
  Model& m;
  std::uint64_t salt;
  std::uint32_t micro_batches = 2;  ///< of a step
  std::vector<float> losses{};

  convnet(Model& owner, const Planner& planner, std::uint64_t of_rank = 0)
      : net{owner, {.name = "unet", .layers = 5, .skips = {{0, 4}, {1, 3, true}}}, planner}, m{owner}, salt{of_rank}
  {
    m.use(kernel);
    net.input = [this](const auto& run, std::uint64_t i) { return datum(salt, run.moment(), i); };
    net.fit_budget(planner);
  }
  void fill() { net.fill(); }
  void step(std::uint64_t now)
  {
    float loss = 0;
    {
      auto iteration = net.chain.iteration("train", micro_batches);
      for (std::uint32_t batch = 0; batch < micro_batches; ++batch) {
        net.chain.forward(iteration, {.step = now, .micro_batch = batch});
        loss += net.meet(0, rows, [](std::uint64_t i) { return 0.125F * static_cast<float>(i % 7); });
        net.chain.backward(iteration);
        net.drop_slopes();
      }
    }
    update(m, kernel);
    {
      auto iteration = net.chain.evaluation();
      net.chain.evaluate(iteration, {.step = now, .rows = rows / 2});
      loss += net.sum_of_output(rows / 2);
    }
    losses.push_back(loss);
  }
  std::vector<float> collect()
  {
    net.collect(losses);
    return losses;
  }
};

/// Two forwards of an encoder before one backward, on two views of a batch. The last of three batches is half as large,
/// and some steps have no backward.
template <class Model, class Planner>
struct contrastive_network {
  static constexpr const char* name = "contrastive";
  network<Model, Planner> net;
  cm::optimizer::sgd kernel{{.momentum = 0.9F}, {.masters = false}};
  Model& m;
  std::uint64_t salt;
  std::uint32_t micro_batches = 2;  ///< of a step
  std::vector<float> losses{};

  contrastive_network(Model& owner, const Planner& planner, std::uint64_t of_rank = 0)
      : net{owner, {.name = "encoder", .layers = 3, .instances = 2}, planner}, m{owner}, salt{of_rank}
  {
    m.use(kernel);
    net.input = [this](const auto& run, std::uint64_t i) { return datum(salt + 7, run.moment(), i); };
    net.fit_budget(planner);
  }
  void fill() { net.fill(); }
  void step(std::uint64_t now)
  {
    const std::uint64_t active = now % 3 == 2 ? rows / 2 : rows;
    const bool is_skipped = now == 3;
    float loss = 0;
    {
      const std::uint32_t batches = is_skipped ? 1 : micro_batches;
      auto iteration = net.chain.iteration("train", batches);
      for (std::uint32_t batch = 0; batch < batches; ++batch) {
        for (std::uint32_t view = 0; view < 2; ++view)
          net.chain.forward(iteration, {.step = now, .micro_batch = batch, .instance = view, .rows = active});
        loss += attract(active);
        if (is_skipped)
          net.chain.skip_backward();
        else
          net.chain.backward(iteration);
        net.drop_slopes();
      }
    }
    losses.push_back(loss);
    if (!is_skipped) update(m, kernel);
  }
  /// Half the squared distance of the two views, less a part that keeps them from 0.
  float attract(std::uint64_t active)
  {
    const auto other = m.acquire(net.output(1), cm::access::read);
    const float loss = net.meet(0, active, [&](std::uint64_t i) { return other.data()[i] + 0.25F; });
    const auto one = m.acquire(net.output(0), cm::access::read);
    return loss + net.meet(1, active, [&](std::uint64_t i) { return one.data()[i] - 0.25F; });
  }
  std::vector<float> collect()
  {
    net.collect(losses);
    return losses;
  }
};

/// A generator and a discriminator: the discriminator has two forwards before its backward, and one for the generator.
template <class Model, class Planner>
struct adversarial_networks {
  static constexpr const char* name = "GAN";
  network<Model, Planner> generator, discriminator;
  cm::optimizer::sgd kernel{{.momentum = 0.9F}, {.masters = false}};
  Model& m;
  std::uint64_t salt;
  std::uint32_t micro_batches = 1;  ///< of a step
  std::vector<float> losses{};

  adversarial_networks(Model& owner, const Planner& planner, std::uint64_t of_rank = 0)
      : generator{owner, {.name = "generator", .layers = 3}, planner},
        discriminator{owner, {.name = "discriminator", .layers = 3, .instances = 2}, planner},
        m{owner},
        salt{of_rank}
  {
    m.use(kernel);
    generator.input = [this](const auto& run, std::uint64_t i) { return datum(salt + 3, run.moment(), i); };
    discriminator.input = [this](const auto& run, std::uint64_t i) {
      if (is_real && run.instance() == 0) return datum(salt + 5, run.moment(), i);
      return m.acquire(generator.output(0), cm::access::read).span()[i];
    };
    discriminator.chain.add_kind("generator", {.instances = 1});
    generator.fit_budget(planner);
    discriminator.fit_budget(planner, {"train", "generator"});
  }
  void fill()
  {
    generator.fill();
    discriminator.fill();
  }
  void step(std::uint64_t now)
  {
    float loss = 0;
    {
      auto iteration = discriminator.chain.iteration("discriminator", micro_batches);
      is_real = discriminator.makes_gradients = true;
      for (std::uint32_t batch = 0; batch < micro_batches; ++batch) {
        generator.chain.evaluate(iteration, {.step = now, .micro_batch = batch});
        for (std::uint32_t view = 0; view < 2; ++view)
          discriminator.chain.forward(iteration, {.step = now, .micro_batch = batch, .instance = view});
        loss += discriminator.meet(0, rows, [](std::uint64_t) { return 0.5F; });
        loss += discriminator.meet(1, rows, [](std::uint64_t) { return -0.5F; });
        for (const std::uint32_t view : {1U, 0U}) discriminator.chain.backward(iteration, view);
        discriminator.drop_slopes();
      }
    }
    update(m, kernel);
    {
      auto iteration = discriminator.chain.iteration("generator", micro_batches);
      is_real = discriminator.makes_gradients = false;
      for (std::uint32_t batch = 0; batch < micro_batches; ++batch) {
        generator.chain.forward(iteration, {.step = now, .micro_batch = batch});
        discriminator.chain.forward(iteration, {.step = now, .micro_batch = batch});
        loss += discriminator.meet(0, rows, [](std::uint64_t) { return 0.5F; });
        discriminator.chain.backward(iteration);
        {
          const auto from = m.acquire(discriminator.slope(0), cm::access::read);
          std::copy_n(from.data(), rows * width, m.acquire(generator.slope(0), cm::access::write).span().begin());
        }
        generator.chain.backward(iteration);
        generator.drop_slopes();
        discriminator.drop_slopes();
      }
    }
    update(m, kernel);
    losses.push_back(loss);
  }
  std::vector<float> collect()
  {
    generator.collect(losses);
    discriminator.collect(losses);
    return losses;
  }
  bool is_real = true;
};

/// Batch normalisation, with a smaller last batch, a class of short batches, and evaluations between the steps.
template <class Model, class Planner>
struct normalised_network {
  static constexpr const char* name = "batch normalisation";
  network<Model, Planner> net;
  cm::optimizer::sgd kernel{{.momentum = 0.9F}, {.masters = false}};
  Model& m;
  std::uint64_t salt;
  std::uint32_t micro_batches = 1;  ///< of a step
  std::vector<float> losses{};

  normalised_network(Model& owner, const Planner& planner, std::uint64_t of_rank = 0)
      : net{owner, {.name = "norm", .layers = 4, .normalises = true}, planner}, m{owner}, salt{of_rank}
  {
    m.use(kernel);
    net.input = [this](const auto& run, std::uint64_t i) { return datum(salt + 9, run.moment(), i); };
    net.chain.add_kind("short", {.rows = rows / 4});
    net.fit_budget(planner, {"train", "short"});
  }
  void fill() { net.fill(); }
  void step(std::uint64_t now)
  {
    const bool is_short = now % 3 == 1;
    const std::uint64_t active = is_short ? rows / 4 : now % 3 == 2 ? rows - 5 : rows;
    float loss = 0;
    {
      auto iteration = net.chain.evaluation();
      for (const std::uint64_t count : {rows, std::uint64_t{3}}) {
        net.chain.evaluate(iteration, {.step = now, .rows = count});
        loss += net.sum_of_output(count);
      }
    }
    {
      auto iteration = net.chain.iteration(is_short ? "short" : "train", micro_batches);
      for (std::uint32_t batch = 0; batch < micro_batches; ++batch) {
        net.chain.forward(iteration, {.step = now, .micro_batch = batch, .rows = active});
        loss += net.meet(0, active, [](std::uint64_t i) { return 0.125F * static_cast<float>(i % 5); });
        net.chain.backward(iteration);
        net.drop_slopes();
      }
    }
    update(m, kernel);
    losses.push_back(loss);
  }
  std::vector<float> collect()
  {
    net.collect(losses);
    return losses;
  }
};

}  // namespace support::small
