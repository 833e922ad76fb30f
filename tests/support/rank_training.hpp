// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/ordered_sum.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support::ranks {

namespace cm = chunkmem;

enum class updates : std::uint8_t { at_once, late, early };

/// A training of several ranks that one rank can repeat: the model, the settings, and the memory.
struct job {
  std::uint32_t ranks = 2;
  std::uint32_t steps = 3;
  std::uint32_t micro_batches = 1;
  bool sums_each = true;  ///< the trainer declares gradients done in every micro-batch, not only in the last one
  cm::sharding::zero divided = cm::sharding::zero_3;
  std::uint32_t of_node = 0;  ///< ranks of a node, which add their gradients first; 0: all
  float clip = 0;             ///< of the norm
  bool skips = true;          ///< steps whose gradients are not finite
  float scale = 1;            ///< of sums over ranks
  std::uint32_t frames = 0;   ///< of the device; 0: room for all
  bool rehearses = false;
  /// the least device that a rehearsal finds and the longest window more (steps differ), instead of `frames`
  bool is_tight = false;
  /// a quarter of what a rehearsal needs in all, instead of `frames`
  bool is_quarter = false;
  std::string_view planner{};  ///< of activations, where the training has an activation_chain
  bool in_place = false;       ///< 16-bit gradients of a shard take its bytes
  bool on_compute = false;     ///< gradients are written by work of the compute agent
  updates when = updates::at_once;
  std::uint32_t undo_kilobytes = 0;        ///< of early updates, on rank 0; the others have less and less
  float loss_scale = 0;                    ///< the first one, which grows after two updates; 0: none
  std::uint32_t spoilt_step = UINT32_MAX;  ///< the last rank makes an infinite gradient in it
  bool tries_again = false;                ///< each call that fails for lack of bytes or by a copy is repeated
  cm::bytes frame{};                       ///< 0: twice the least that these ranks can divide
  bool has_long_units = false;             ///< units of a frame for each rank
  [[nodiscard]] cm::bytes unit_bytes() const { return frame_bytes() * (has_long_units ? ranks : 1); }
  [[nodiscard]] cm::bytes longest_unit() const { return cm::align_up(cm::bytes{70000 * 4}, unit_bytes()); }
  /// True if nothing is clipped, and the bytes of every update fit: then each step has early updates, except the first,
  /// which makes states.
  [[nodiscard]] bool has_early_updates() const
  {
    return when == updates::early && clip >= 1e6F && undo_kilobytes >= 4096 && steps > 1;
  }
  /// True if a step depends on all its gradients.
  [[nodiscard]] bool decides() const { return skips || clip > 0 || loss_scale > 0; }
  [[nodiscard]] bool is_spoilt(std::size_t tensor, std::uint32_t rank, std::uint32_t step) const
  {
    return step == spoilt_step && rank + 1 == ranks && tensor == 3;
  }
  [[nodiscard]] cm::optimizer::loss_scale first_loss_scale() const
  {
    return cm::optimizer::loss_scale::dynamic({.initial = loss_scale > 0 ? loss_scale : 1.0F, .window = 2});
  }
  [[nodiscard]] cm::optimizer::step_options options(cm::optimizer::loss_scale& scale_of_loss) const
  {
    return {.learning_rate = 0.01F,
            .clip = {.norm = clip},
            .loss_scale = loss_scale > 0 ? &scale_of_loss : nullptr,
            .skip_nonfinite = skips};
  }
  /// Gradients are summed over ranks in every micro-batch.
  [[nodiscard]] bool adds_each() const { return sums_each && divided.gradients; }
  [[nodiscard]] cm::bytes frame_bytes() const
  {
    return frame.count() != 0 ? frame : cm::bytes{std::uint64_t{ranks} * 2 * 4096 * 4};
  }
};

/// Sizes of weights: tiny ones, whole blocks, one element more, several frames.
inline const std::vector<std::uint64_t>& sizes()
{
  static const std::vector<std::uint64_t> all{5000, 4096, 1, 70000, 300, 9000, 4097, 12000};
  return all;
}
inline constexpr std::size_t frozen = 4;  ///< not trained
inline constexpr std::size_t unused = 5;  ///< without a gradient in odd steps
inline constexpr std::size_t tied = 1;    ///< its gradient is written twice

[[nodiscard]] inline bool has_gradient(std::size_t tensor, std::uint32_t step)
{
  return tensor != frozen && (tensor != unused || step % 2 == 0);
}

/// The name in files, the same for every division into stages.
[[nodiscard]] inline std::string name_of(std::size_t tensor)
{
  return "w" + std::to_string(tensor);
}

/// A number in [-1, 1) that depends on all arguments.
[[nodiscard]] inline float noise(std::uint64_t a, std::uint64_t b, std::uint64_t c)
{
  std::uint64_t x = a * 0x9e3779b97f4a7c15U + b * 0xbf58476d1ce4e5b9U + c * 0x94d049bb133111ebU + 1;
  x = (x ^ x >> 31U) * 0xd6e8feb86659fd93U;
  x ^= x >> 29U;
  return static_cast<float>(static_cast<std::int32_t>(x >> 32U)) / 2147483648.0F;
}
[[nodiscard]] inline float first_value(std::size_t tensor, std::uint64_t index)
{
  return noise(tensor, index, 7);
}
/// The part of rank `rank` in the gradient of one weight, in one of `times` visits.
[[nodiscard]] inline float gradient_of(float weight, std::size_t tensor, std::uint64_t index, std::uint32_t rank,
                                       std::uint32_t batch, std::uint32_t step, std::uint32_t visit)
{
  return weight * 0.25F +
         noise(tensor * 977 + index, rank * 131 + batch * 17 + visit, step) * (tensor == 3 ? 4.0F : 1.0F);
}

/// @param times   factor of the loss
template <class Element>
void write_gradient(Element* to, const Element* weight, std::uint64_t size, bool adds, std::size_t tensor,
                    std::uint32_t rank, std::uint32_t batch, std::uint32_t step, std::uint32_t visit, float times = 1)
{
  for (std::uint64_t index = 0; index < size; ++index) {
    const float fresh = gradient_of(cm::to_float(weight[index]), tensor, index, rank, batch, step, visit) * times;
    to[index] = cm::round_to<Element>(adds ? cm::to_float(to[index]) + fresh : fresh);
  }
}
template <class Element>
[[nodiscard]] Element infinite()
{
  return cm::round_to<Element>(std::numeric_limits<float>::infinity());
}

/// All values after each step, which every rank has to have.
template <class Element>
using history = std::vector<std::vector<std::vector<Element>>>;

template <class Element>
[[nodiscard]] bool equal(const Element* left, const std::vector<Element>& right)
{
  return std::memcmp(left, right.data(), right.size() * sizeof(Element)) == 0;
}

template <class Model, class Element>
[[nodiscard]] std::vector<std::vector<Element>> values_of(Model& m, const std::vector<cm::tensor<Element>>& weights)
{
  std::vector<std::vector<Element>> result;
  for (const auto& it : weights) {
    const auto pin = m.acquire(it, cm::access::read);
    result.emplace_back(pin.span().begin(), pin.span().end());
  }
  return result;
}

template <class Element>
[[nodiscard]] std::vector<Element> added(const std::vector<std::vector<Element>>& all, float scale)
{
  std::vector<const std::byte*> places;
  for (const auto& it : all) places.push_back(reinterpret_cast<const std::byte*>(it.data()));
  std::vector<Element> sum(all[0].size());
  cm::collective::add_in_order(reinterpret_cast<std::byte*>(sum.data()), places,
                               cm::bytes{sum.size() * sizeof(Element)}, {cm::dtype_of<Element>, scale});
  return sum;
}
/// In order of ranks inside each node, then in order of nodes.
template <class Element>
[[nodiscard]] std::vector<Element> sum_over_ranks(const job& how, const std::vector<std::vector<Element>>& of_rank)
{
  const std::uint32_t of_node = how.of_node == 0 ? how.ranks : how.of_node;
  std::vector<std::vector<Element>> of_nodes;
  for (std::uint32_t first = 0; first < how.ranks; first += of_node)
    of_nodes.push_back(added<Element>({of_rank.begin() + first, of_rank.begin() + first + of_node}, how.scale));
  return of_nodes.size() == 1 ? of_nodes[0] : added(of_nodes, 1);
}
/// The gradient of a weight in the grouping of these ranks and micro-batches.
/// @param write   `write(to, rank, batch, adds)` writes, or adds, the gradient of a rank in a micro-batch
template <class Element, class Write>
[[nodiscard]] std::vector<Element> gradient_over_ranks(const job& how, std::size_t size, Write write)
{
  std::vector<Element> all(size);
  for (std::uint32_t batch = 0; batch < (how.adds_each() ? how.micro_batches : 1); ++batch) {
    std::vector<std::vector<Element>> of_rank(how.ranks, std::vector<Element>(size));
    for (std::uint32_t rank = 0; rank < how.ranks; ++rank) {
      if (how.adds_each())
        write(of_rank[rank], rank, batch, false);
      else
        for (std::uint32_t each = 0; each < how.micro_batches; ++each) write(of_rank[rank], rank, each, each > 0);
    }
    const std::vector<Element> sum = sum_over_ranks(how, of_rank);
    for (std::size_t i = 0; i < size; ++i)
      all[i] = batch == 0 ? sum[i] : cm::round_to<Element>(cm::to_float(all[i]) + cm::to_float(sum[i]));
  }
  return all;
}

/// The same training on one rank with plain gradients: the parts of each rank and micro-batch, in the same grouping.
template <class Element, class Kernel>
class one_rank {
 public:
  one_rank(const job& wanted, Kernel kernel) : job_{wanted}, kernel_{std::move(kernel)}
  {
    m_.use(kernel_);
    if (job_.loss_scale > 0) m_.use(scale_);
    for (std::size_t index = 0; index < sizes().size(); ++index)
      weights_.push_back(
          m_.template add<Element>({sizes()[index]}, index == frozen ? cm::role::frozen : cm::role::parameter));
    for (std::size_t index = 0; index < sizes().size(); ++index) {
      m_.name(weights_[index], name_of(index));
      const auto pin = m_.acquire(weights_[index], cm::access::write);
      for (std::uint64_t i = 0; i < sizes()[index]; ++i) pin.span()[i] = cm::round_to<Element>(first_value(index, i));
    }
    for (std::uint32_t step = 0; step < job_.steps; ++step) train(step);
  }

  /// Continues the training with other ranks. @param next   its steps count from the first of all
  void go_on(const job& next)
  {
    const std::uint32_t done = job_.steps;
    job_ = next;
    for (std::uint32_t step = done; step < job_.steps; ++step) train(step);
  }
  /// The contents after a load of a checkpoint become the values before `step`. @pre no step was trained
  void take_up(std::uint32_t step)
  {
    job_.steps = step;
    values.assign(step, {});
    norms.assign(step, 0);
    values.push_back(now());
  }
  [[nodiscard]] auto& manager() noexcept { return m_; }

  history<Element> values;  ///< before the first step and after each
  std::vector<double> norms;
  std::vector<std::vector<float>> momentum() { return list("adam/momentum"); }
  /// The list of each weight, in the order of declaration; empty for a frozen one.
  std::vector<std::vector<float>> list(std::string_view name)
  {
    std::vector<std::vector<float>> result(weights_.size());
    for (std::size_t index = 0; index < weights_.size(); ++index) {
      if (index == frozen) continue;
      const auto pin =
          m_.template acquire<float>(weights_[index], m_.list(name), cm::access::read, cm::memory_location::host);
      result[index].assign(pin.span().begin(), pin.span().end());
    }
    return result;
  }

 private:
  std::vector<std::vector<Element>> now() { return values_of(m_, weights_); }
  void train(std::uint32_t step)
  {
    if (values.empty()) values.push_back(now());
    {
      auto scope = m_.iteration();
      for (std::size_t index = 0; index < weights_.size(); ++index)
        if (has_gradient(index, step)) make_gradient(index, step);
      norms.push_back(cm::optimizer::step(m_, kernel_, job_.options(scale_)).norm);
    }
    values.push_back(now());
  }
  void make_gradient(std::size_t index, std::uint32_t step)
  {
    const std::vector<Element>& weight = values.back()[index];
    const auto batch_of = [&](std::vector<Element>& to, std::uint32_t rank, std::uint32_t batch, bool adds) {
      for (std::uint32_t visit = 0; visit < (index == tied ? 2U : 1U); ++visit)
        write_gradient(to.data(), weight.data(), to.size(), adds || visit > 0, index, rank, batch, step, visit,
                       job_.loss_scale > 0 ? scale_.scale() : 1.0F);
      if (job_.is_spoilt(index, rank, step)) to[0] = infinite<Element>();
    };
    const std::vector<Element> all = gradient_over_ranks<Element>(job_, weight.size(), batch_of);
    const auto pin = m_.gradient(weights_[index]);
    std::copy(all.begin(), all.end(), pin.span().begin());
  }

  job job_;
  Kernel kernel_;
  cm::optimizer::loss_scale scale_ = job_.first_loss_scale();
  cm::backend::host_arena backend_{{.device_capacity = cm::bytes{64U << 20U}, .host_capacity = cm::bytes{64U << 20U}}};
  cm::manager<cm::backend::host_arena> m_{backend_, {.chunk_bytes = cm::bytes{512U << 10U}}};
  std::vector<cm::tensor<Element>> weights_;
};

/// The steps of a trainer over ranks, on the calling thread.
template <class Model, class Kernel>
class steps_of_ranks {
 public:
  steps_of_ranks(Model& model, Kernel& kernel, const job& wanted)
      : m_{model},
        kernel_{kernel},
        when_{wanted.when},
        late_{model, kernel},
        early_{model, kernel,
               cm::bytes{std::uint64_t{wanted.undo_kilobytes} * 1024 / (1 + cm::index_of(model.ranks().rank()))}}
  {
  }
  cm::optimizer::step_outcome take(const cm::optimizer::step_options& options)
  {
    switch (when_) {
      case updates::late: return late_.step(options);
      case updates::early: return early_.step(options);
      default: return m_.step(kernel_, options);
    }
  }
  void finish()
  {
    if (when_ == updates::late) m_.finish_updates();
  }
  [[nodiscard]] std::size_t waiting() const noexcept { return late_.waiting(); }
  [[nodiscard]] std::size_t early() const noexcept { return early_.early(); }

 private:
  Model& m_;
  Kernel& kernel_;
  updates when_;
  cm::optimizer::late_updates<Model, Kernel> late_;
  cm::optimizer::early_updates<Model, Kernel> early_;
};

/// A training whose passes use the weights in turn. The alternative is activation_chain.
struct no_activations {
  static constexpr bool runs_blocks = false;
  template <class Model>
  no_activations(Model&, const job&, std::uint32_t)
  {
  }
};

/// The weights of a stage: from `begin` to before `end`.
struct stage_part {
  std::size_t begin = 0;
  std::size_t end = sizes().size();
};

/// One rank of many, one stage of many, or a manager that trains alone. Compares every weight that it reads with
/// `wanted`, and reports differences in words.
///
/// Where the host cannot read the device, kernels read weights and write gradients.
/// @tparam Steps   takes the steps: `take(options)`, `finish()`, `waiting()`, `early()`
/// @tparam Activations   no_activations, or an activation_chain
template <class Element, class Model, class Kernel, class Steps = steps_of_ranks<Model, Kernel>,
          class Activations = no_activations>
class one_of_many {
  static constexpr bool is_over_ranks = requires(Model& model) { model.ranks(); };
  static constexpr bool is_on_host = Model::engine_type::host_addressable;

 public:
  template <class... OfSteps>
  one_of_many(Model& model, Kernel kernel, const job& given, const history<Element>& wanted, stage_part part = {},
              OfSteps&&... of_steps)
      : m_{model},
        kernel_{std::move(kernel)},
        job_{given},
        wanted_{wanted},
        part_{part},
        steps_{model, kernel_, job_, std::forward<OfSteps>(of_steps)...}
  {
    m_.use(kernel_);
    if (job_.loss_scale > 0) m_.use(scale_);
    for (std::size_t index = part_.begin; index < part_.end; ++index) {
      weights_.push_back(
          m_.template add<Element>({sizes()[index]}, index == frozen ? cm::role::frozen : cm::role::parameter));
      m_.name(weights_.back(), name_of(index));
    }
    activation_ = m_.template add<float>({2000}, cm::role::activation);
    activations_.emplace(m_, job_, rank());
  }
  one_of_many(const one_of_many&) = delete;
  ~one_of_many()
  {
    try {
      await_kernels();  // they refer to this
    } catch (...) {     // the device has failed, and runs nothing any more
    }
  }

  std::string complaint;
  std::vector<double> norms;
  std::size_t early_ones = 0;  ///< updates before the decision that stayed
  std::size_t failures = 0;    ///< repeated calls

  /// Every second weight gets the values of one rank, whatever the other ranks wrote.
  void fill()
  {
    for (std::size_t index = part_.begin; index < part_.end; ++index) {
      const bool is_common = index % 2 == 0;
      const std::uint32_t from = static_cast<std::uint32_t>(index / 2) % job_.ranks;
      const float added = is_common || from == rank() ? 0.0F : 8.0F;
      again([&] {
        auto pin = m_.acquire(weight(index), cm::access::write, cm::memory_location::host);
        for (std::uint64_t i = 0; i < sizes()[index]; ++i)
          pin.span()[i] = cm::round_to<Element>(first_value(index, i) + added);
        if constexpr (is_over_ranks)
          if (!is_common) m_.broadcast(std::move(pin), cm::rank_id{from});
      });
    }
  }
  void run()
  {
    start();
    finish();
  }
  /// The same, where updates of the last step may still wait.
  void start()
  {
    if (job_.rehearses) (void)least_device();
    fill();
    train(0, job_.steps);
  }
  /// Continues from a step: the weights before it have to be right.
  void go_on(std::uint32_t first)
  {
    train(first, job_.steps);
    finish();
  }
  void train(std::uint32_t first, std::uint32_t end)
  {
    for (std::uint32_t now = first; now < end; ++now) {
      check_all(now);
      step(now);
    }
  }
  void finish()
  {
    again([&] { steps_.finish(); });
    check_all(job_.steps);
    await_kernels();
    if (has_misread_) complain("a weight that a kernel read", 0);
    if constexpr (Activations::runs_blocks)
      if (!activations_->is_right()) complain("an activation behind", 0);
  }
  /// The least device, or a quarter of the total need of a step, where the job says so.
  [[nodiscard]] cm::bytes least_device()
  {
    cm::bytes least{}, quarter{};
    for (const std::uint32_t now : {0U, 1U})
      again([&] {
        const cm::memory_requirement need = m_.rehearse([&] { step(now); });
        least = std::max(least, need.smallest_device);
        quarter = std::max(quarter, cm::bytes{need.everything.count() / 4});
      });
    if (job_.is_quarter && quarter < least) complain("a quarter of the device is too little:", 0);
    return job_.is_quarter ? quarter : least;
  }
  void step(std::uint32_t now)
  {
    auto scope = again([&] { return begin_iteration(); });
    for (std::uint32_t batch = 0; batch < job_.micro_batches; ++batch) {
      const auto forward_of = [&](std::size_t index) { read(index, now); };
      const auto backward_of = [&](std::size_t index) {
        if (has_gradient(index, now)) backward(index, now, batch);
      };
      if constexpr (Activations::runs_blocks)
        activations_->run(scope, now, batch, forward_of, backward_of);
      else
        pass_both(scope, batch, forward_of, backward_of);
      if (is_own(tied)) {
        visit(tied, now, batch, 1);
        done(tied, batch);
      }
    }
    const auto outcome = again([&] { return steps_.take(job_.options(scale_)); });
    if (m_.rehearsing()) return;
    if ((outcome == cm::optimizer::step_result::skipped_nonfinite) != (now == job_.spoilt_step))
      complain("another decision about", 3);
    if (job_.when == updates::late && now != job_.spoilt_step && has_gradients(now) &&
        (steps_.waiting() != 0) != job_.decides())
      complain(job_.decides() ? "no update waits of" : "an update waits of", 0);
    early_ones += steps_.early();
    norms.push_back(outcome.norm);
  }
  /// Checks the shards of this rank. @param all   of the whole tensors
  void check_momentum(const std::vector<std::vector<float>>& all) { check_list("adam/momentum", all); }
  void check_list(std::string_view list, const std::vector<std::vector<float>>& all)
  {
    for (std::size_t index = part_.begin; index < part_.end; ++index) {
      if (index == frozen) continue;
      if constexpr (is_over_ranks) {
        const auto [unit, part] = m_.share_of(weight(index));
        if (part == nullptr) continue;
        auto& own = m_.shares();
        const auto pin = again([&, share = unit->share] {
          return own.template acquire<float>(share, own.list(list), cm::access::read, cm::memory_location::host);
        });
        if (std::memcmp(pin.span().data() + (part->begin - unit->share_begin), all[index].data() + part->first,
                        part->elements * sizeof(float)) != 0)
          complain("a list of", index);
      } else {
        const auto pin = again([&] {
          return m_.template acquire<float>(weight(index), m_.list(list), cm::access::read, cm::memory_location::host);
        });
        if (!equal(pin.data(), all[index])) complain("a list of", index);
      }
    }
  }
  void check_all(std::uint32_t step)
  {
    for (std::size_t index = part_.begin; index < part_.end; ++index) read(index, step);
  }

 private:
  [[nodiscard]] auto begin_iteration()
  {
    if constexpr (Activations::runs_blocks)
      return activations_->iteration(job_.micro_batches);
    else
      return m_.iteration(job_.micro_batches);
  }
  template <class Scope, class Forward, class Backward>
  void pass_both(Scope& scope, std::uint32_t batch, Forward forward_of, Backward backward_of)
  {
    again([&] { scope.pass(cm::pass::forward, batch); });
    for (std::size_t index = part_.begin; index < part_.end; ++index) forward_of(index);
    again([&] { (void)m_.acquire(activation_, cm::access::write); });
    again([&] { scope.pass(cm::pass::backward, batch); });
    const auto lease = again([&] { return m_.lease(cm::tier::device, cm::bytes{4096}); });
    for (std::size_t index = part_.end; index-- > part_.begin;) backward_of(index);
    again([&] { m_.drop(activation_); });
  }
  [[nodiscard]] bool is_own(std::size_t index) const { return index >= part_.begin && index < part_.end; }
  [[nodiscard]] cm::tensor<Element> weight(std::size_t index) const { return weights_[index - part_.begin]; }
  [[nodiscard]] std::uint32_t rank() const
  {
    if constexpr (is_over_ranks) return cm::index_of(m_.ranks().rank());
    return 0;
  }
  [[nodiscard]] bool has_gradients(std::uint32_t step) const
  {
    for (std::size_t index = part_.begin; index < part_.end; ++index)
      if (has_gradient(index, step)) return true;
    return false;
  }
  /// Repeats a call until it succeeds, where the job says so.
  template <class Work>
  auto again(Work work)
  {
    for (;;) {
      try {
        return work();
      } catch (const cm::device_error&) {
        count_failure();
      } catch (const cm::out_of_memory&) {
        count_failure();
      }
    }
  }
  /// @pre in a handler
  void count_failure()
  {
    constexpr std::size_t most = 50;
    if (!job_.tries_again || m_.rehearsing() || ++failures > most) throw;
  }
  void complain(const char* what, std::size_t tensor)
  {
    if (complaint.empty())
      complaint = "rank " + std::to_string(rank()) + ": " + what + " weight " + std::to_string(tensor) + " differs";
  }
  void read(std::size_t index, std::uint32_t step)
  {
    if constexpr (is_on_host) {
      const auto pin = again([&] { return m_.acquire(weight(index), cm::access::read); });
      if (!m_.rehearsing() && !equal(pin.data(), wanted_[step][index]))
        complain(("before step " + std::to_string(step) + ", at a read of").c_str(), index);
    } else {
      const auto pin = again([&] { return m_.acquire(weight(index), cm::access::read, cm::agent::compute); });
      if (m_.rehearsing()) return;
      launch([from = pin.data(), right = &wanted_[step][index], this] {
        if (!equal(from, *right)) has_misread_ = true;
      });
    }
  }
  void backward(std::size_t index, std::uint32_t step, std::uint32_t batch)
  {
    visit(index, step, batch, 0);
    if (index != tied) done(index, batch);
  }
  void done(std::size_t index, std::uint32_t batch)
  {
    if (!job_.sums_each && batch + 1 < job_.micro_batches) return;
    again([&] { m_.gradient_done(weight(index), stream()); });
  }
  [[nodiscard]] cm::agent stream() const
  {
    return job_.on_compute || !is_on_host ? cm::agent::compute : cm::agent::host;
  }
  void visit(std::size_t index, std::uint32_t step, std::uint32_t batch, std::uint32_t which)
  {
    const auto gradient = again([&] {
      auto read = m_.acquire(weight(index), cm::access::read, stream());
      return m_.gradient(std::move(read));
    });
    if (m_.rehearsing()) return;
    struct {
      Element* to;
      const std::vector<Element>* before;
      std::size_t index;
      std::uint32_t rank, batch, step, which;
      float times;
      bool adds, is_spoilt;
      void operator()() const noexcept
      {
        write_gradient(to, before->data(), before->size(), adds, index, rank, batch, step, which, times);
        if (is_spoilt) to[0] = infinite<Element>();
      }
    } const work{gradient.data(),
                 &wanted_[step][index],
                 index,
                 rank(),
                 batch,
                 step,
                 which,
                 job_.loss_scale > 0 ? scale_.scale() : 1.0F,
                 gradient.beta() != 0,
                 job_.is_spoilt(index, rank(), step)};
    stream() == cm::agent::host ? work() : launch(work);
  }
  template <class Work>
  void launch(const Work& work)
  {
    if constexpr (is_on_host)
      m_.backend().launch(cm::agent::compute, work);
    else
      m_.backend().launch(cm::agent::compute, [&](auto on) { launch_kernel(on, work); });
  }
  void await_kernels()
  {
    if constexpr (!is_on_host) m_.backend().wait(cm::agent::host, m_.backend().record(cm::agent::compute));
  }

  Model& m_;
  Kernel kernel_;
  job job_;
  cm::optimizer::loss_scale scale_ = job_.first_loss_scale();
  const history<Element>& wanted_;
  stage_part part_;
  std::vector<cm::tensor<Element>> weights_;
  cm::tensor<float> activation_;
  std::optional<Activations> activations_;
  std::atomic<bool> has_misread_ = false;  // a kernel sets it
  Steps steps_;
};

}  // namespace support::ranks
