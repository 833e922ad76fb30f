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
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace support::ranks {

namespace cm = chunkmem;

enum class updates : std::uint8_t { at_once, late, early };

/// A training of several ranks that one rank can repeat: what is trained, how, and on how much room.
struct job {
  std::uint32_t ranks = 2;
  std::uint32_t steps = 3;
  std::uint32_t micro_batches = 1;
  bool sums_each = true;  ///< the trainer declares gradients done in every micro-batch, not in the last one alone
  cm::sharding::zero divided = cm::sharding::zero_3;
  std::uint32_t of_node = 0;  ///< ranks of a node, which add their gradients first; 0: all
  float clip = 0;             ///< of the norm
  float scale = 1;            ///< of sums over ranks
  std::uint32_t frames = 0;   ///< of the device; 0: room for all
  bool rehearses = false;
  /// the least device that a rehearsal finds and the longest window more (steps differ), instead of `frames`
  bool is_tight = false;
  bool in_place = false;    ///< 16-bit gradients of a share take its bytes
  bool on_compute = false;  ///< gradients are written by work of the compute agent
  updates when = updates::at_once;
  std::uint32_t undo_kilobytes = 0;  ///< of early updates, on rank 0; the others have less and less
  cm::bytes frame{};                 ///< 0: the least that these ranks can divide, twice
  [[nodiscard]] cm::bytes longest_unit() const { return cm::align_up(cm::bytes{70000 * 4}, frame_bytes()); }
  /// Nothing is clipped, and the bytes of every update fit: each step but the first, which makes states, has some.
  [[nodiscard]] bool has_early_updates() const
  {
    return when == updates::early && clip >= 1e6F && undo_kilobytes >= 4096 && steps > 1;
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

/// A number in [-1, 1) that depends on all of these.
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
/// What rank `rank` adds to the gradient of one weight in one of `times` visits.
[[nodiscard]] inline float gradient_of(float weight, std::size_t tensor, std::uint64_t index, std::uint32_t rank,
                                       std::uint32_t batch, std::uint32_t step, std::uint32_t visit)
{
  return weight * 0.25F +
         noise(tensor * 977 + index, rank * 131 + batch * 17 + visit, step) * (tensor == 3 ? 4.0F : 1.0F);
}

template <class Element>
void write_gradient(Element* to, const Element* weight, std::uint64_t size, bool adds, std::size_t tensor,
                    std::uint32_t rank, std::uint32_t batch, std::uint32_t step, std::uint32_t visit)
{
  for (std::uint64_t index = 0; index < size; ++index) {
    const float fresh = gradient_of(cm::to_float(weight[index]), tensor, index, rank, batch, step, visit);
    to[index] = cm::round_to<Element>(adds ? cm::to_float(to[index]) + fresh : fresh);
  }
}

/// All values after each step; what every rank has to have.
template <class Element>
using history = std::vector<std::vector<std::vector<Element>>>;

template <class Element>
[[nodiscard]] bool equal(const Element* left, const std::vector<Element>& right)
{
  return std::memcmp(left, right.data(), right.size() * sizeof(Element)) == 0;
}

/// The same training on one rank with plain gradients: what each rank and micro-batch would add, in the same grouping.
template <class Element, class Kernel>
class one_rank {
 public:
  one_rank(const job& wanted, Kernel kernel) : job_{wanted}, kernel_{std::move(kernel)}
  {
    m_.use(kernel_);
    for (std::size_t index = 0; index < sizes().size(); ++index)
      weights_.push_back(
          m_.template add<Element>({sizes()[index]}, index == frozen ? cm::role::frozen : cm::role::parameter));
    for (std::size_t index = 0; index < sizes().size(); ++index) {
      const auto pin = m_.acquire(weights_[index], cm::access::write);
      for (std::uint64_t i = 0; i < sizes()[index]; ++i) pin.span()[i] = cm::round_to<Element>(first_value(index, i));
    }
    for (std::uint32_t step = 0; step < job_.steps; ++step) train(step);
  }

  /// Trains on as other ranks would. @param next   its steps count from the first of all
  void go_on(const job& next)
  {
    const std::uint32_t done = job_.steps;
    job_ = next;
    for (std::uint32_t step = done; step < job_.steps; ++step) train(step);
  }
  /// What it holds after a checkpoint was loaded into it becomes the values before `step`. @pre no step was trained
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
  /// Of each weight, in the order of declaration; nothing of a frozen one.
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
  std::vector<std::vector<Element>> now()
  {
    std::vector<std::vector<Element>> result;
    for (const auto& it : weights_) {
      const auto pin = m_.acquire(it, cm::access::read);
      result.emplace_back(pin.span().begin(), pin.span().end());
    }
    return result;
  }
  void train(std::uint32_t step)
  {
    if (values.empty()) values.push_back(now());
    {
      auto scope = m_.iteration();
      for (std::size_t index = 0; index < weights_.size(); ++index)
        if (has_gradient(index, step)) make_gradient(index, step);
      norms.push_back(cm::optimizer::step(m_, kernel_, {.learning_rate = 0.01F, .clip = {.norm = job_.clip}}).norm);
    }
    values.push_back(now());
  }
  void make_gradient(std::size_t index, std::uint32_t step)
  {
    const std::vector<Element>& weight = values.back()[index];
    std::vector<Element> all(weight.size());
    const auto batch_of = [&](std::vector<Element>& to, std::uint32_t rank, std::uint32_t batch, bool adds) {
      for (std::uint32_t visit = 0; visit < (index == tied ? 2U : 1U); ++visit)
        write_gradient(to.data(), weight.data(), to.size(), adds || visit > 0, index, rank, batch, step, visit);
    };
    for (std::uint32_t batch = 0; batch < (job_.adds_each() ? job_.micro_batches : 1); ++batch) {
      std::vector<std::vector<Element>> of_rank(job_.ranks, std::vector<Element>(weight.size()));
      for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
        if (job_.adds_each())
          batch_of(of_rank[rank], rank, batch, false);
        else
          for (std::uint32_t each = 0; each < job_.micro_batches; ++each) batch_of(of_rank[rank], rank, each, each > 0);
      }
      const std::vector<Element> sum = sum_of(of_rank);
      for (std::size_t i = 0; i < sum.size(); ++i)
        all[i] = batch == 0 ? sum[i] : cm::round_to<Element>(cm::to_float(all[i]) + cm::to_float(sum[i]));
    }
    const auto pin = m_.gradient(weights_[index]);
    std::copy(all.begin(), all.end(), pin.span().begin());
  }

  /// In order of ranks inside each node, then in order of nodes.
  [[nodiscard]] std::vector<Element> sum_of(const std::vector<std::vector<Element>>& of_rank) const
  {
    const std::uint32_t of_node = job_.of_node == 0 ? job_.ranks : job_.of_node;
    std::vector<std::vector<Element>> of_nodes;
    for (std::uint32_t first = 0; first < job_.ranks; first += of_node)
      of_nodes.push_back(added({of_rank.begin() + first, of_rank.begin() + first + of_node}, job_.scale));
    return of_nodes.size() == 1 ? of_nodes[0] : added(of_nodes, 1);
  }
  [[nodiscard]] static std::vector<Element> added(const std::vector<std::vector<Element>>& all, float scale)
  {
    std::vector<const std::byte*> places;
    for (const auto& it : all) places.push_back(reinterpret_cast<const std::byte*>(it.data()));
    std::vector<Element> sum(all[0].size());
    cm::collective::add_in_order(reinterpret_cast<std::byte*>(sum.data()), places,
                                 cm::bytes{sum.size() * sizeof(Element)}, {cm::dtype_of<Element>, scale});
    return sum;
  }

  job job_;
  Kernel kernel_;
  cm::backend::host_arena backend_{{.device_capacity = cm::bytes{64U << 20U}, .host_capacity = cm::bytes{64U << 20U}}};
  cm::manager<cm::backend::host_arena> m_{backend_, {.chunk_bytes = cm::bytes{512U << 10U}}};
  std::vector<cm::tensor<Element>> weights_;
};

/// One rank of many. Compares every weight that it reads with `wanted`, and complains in words.
template <class Element, class Model, class Kernel>
class one_of_many {
 public:
  one_of_many(Model& model, Kernel kernel, const job& given, const history<Element>& wanted)
      : m_{model}, kernel_{std::move(kernel)}, job_{given}, wanted_{wanted}
  {
    m_.use(kernel_);
    for (std::size_t index = 0; index < sizes().size(); ++index)
      weights_.push_back(
          m_.template add<Element>({sizes()[index]}, index == frozen ? cm::role::frozen : cm::role::parameter));
    activation_ = m_.template add<float>({2000}, cm::role::activation);
  }

  std::string complaint;
  std::vector<double> norms;
  std::size_t early_ones = 0;  ///< updates before the decision that stayed

  /// Every second weight gets the values of one rank, whatever the others wrote.
  void fill()
  {
    for (std::size_t index = 0; index < sizes().size(); ++index) {
      const cm::rank_id from{static_cast<std::uint32_t>(index / 2) % m_.ranks().ranks()};
      const bool is_common = index % 2 == 0;
      const float added = is_common || from == m_.ranks().rank() ? 0.0F : 8.0F;
      auto pin = m_.acquire(weights_[index], cm::access::write);
      for (std::uint64_t i = 0; i < sizes()[index]; ++i)
        pin.span()[i] = cm::round_to<Element>(first_value(index, i) + added);
      if (!is_common) m_.broadcast(std::move(pin), from);
    }
  }
  void run()
  {
    start();
    finish();
  }
  /// The same, where updates of the last step may wait still.
  void start()
  {
    if (job_.rehearses) (void)least_device();
    fill();
    train_from(0);
  }
  /// From a step on: before it weights are what they have to be.
  void go_on(std::uint32_t first)
  {
    train_from(first);
    finish();
  }
  void finish()
  {
    if (job_.when == updates::late) m_.finish_updates();
    check_all(job_.steps);
  }
  [[nodiscard]] cm::bytes least_device()
  {
    cm::bytes least{};
    for (const std::uint32_t now : {0U, 1U}) least = std::max(least, m_.rehearse([&] { step(now); }).smallest_device);
    return least;
  }
  void step(std::uint32_t now)
  {
    auto scope = m_.iteration(job_.micro_batches);
    for (std::uint32_t batch = 0; batch < job_.micro_batches; ++batch) {
      scope.pass(cm::pass::forward, batch);
      for (std::size_t index = 0; index < weights_.size(); ++index) read(index, now);
      {
        const auto pin = m_.acquire(activation_, cm::access::write);
      }
      scope.pass(cm::pass::backward, batch);
      const auto lease = m_.lease(cm::tier::device, cm::bytes{4096});
      for (std::size_t index = weights_.size(); index-- > 0;)
        if (has_gradient(index, now)) backward(index, now, batch);
      visit(tied, now, batch, 1);
      done(tied, batch);
      m_.drop(activation_);
    }
    const cm::optimizer::step_options options{.learning_rate = 0.01F, .clip = {.norm = job_.clip}};
    const auto outcome = step_by(options);
    if (job_.when == updates::late && late_.waiting() == 0) complain("no update waits of", 0);
    if (!m_.rehearsing()) early_ones += early_.early();
    if (!m_.rehearsing()) norms.push_back(outcome.norm);
  }
  /// Of what this rank owns. @param all   of the whole tensors
  void check_momentum(const std::vector<std::vector<float>>& all) { check_list("adam/momentum", all); }
  void check_list(std::string_view list, const std::vector<std::vector<float>>& all)
  {
    for (std::size_t index = 0; index < weights_.size(); ++index) {
      const auto [unit, part] = m_.share_of(weights_[index]);
      if (index == frozen || part == nullptr) continue;
      auto& own = m_.shares();
      const auto pin =
          own.template acquire<float>(unit->share, own.list(list), cm::access::read, cm::memory_location::host);
      if (std::memcmp(pin.span().data() + (part->begin - unit->share_begin), all[index].data() + part->first,
                      part->elements * sizeof(float)) != 0)
        complain("a list of", index);
    }
  }
  void check_all(std::uint32_t step)
  {
    for (std::size_t index = 0; index < weights_.size(); ++index) read(index, step);
  }

 private:
  void train_from(std::uint32_t first)
  {
    for (std::uint32_t now = first; now < job_.steps; ++now) {
      check_all(now);
      step(now);
    }
  }
  cm::optimizer::step_outcome step_by(const cm::optimizer::step_options& options)
  {
    switch (job_.when) {
      case updates::late: return late_.step(options);
      case updates::early: return early_.step(options);
      default: return m_.step(kernel_, options);
    }
  }
  void complain(const char* what, std::size_t tensor)
  {
    if (complaint.empty())
      complaint = "rank " + std::to_string(cm::index_of(m_.ranks().rank())) + ": " + what + " weight " +
                  std::to_string(tensor) + " differs";
  }
  void read(std::size_t index, std::uint32_t step)
  {
    const auto pin = m_.acquire(weights_[index], cm::access::read);
    if (!m_.rehearsing() && !equal(pin.data(), wanted_[step][index]))
      complain(("before step " + std::to_string(step) + ", at a read of").c_str(), index);
  }
  void backward(std::size_t index, std::uint32_t step, std::uint32_t batch)
  {
    visit(index, step, batch, 0);
    if (index != tied) done(index, batch);
  }
  void done(std::size_t index, std::uint32_t batch)
  {
    if (job_.sums_each || batch + 1 == job_.micro_batches) m_.gradient_done(weights_[index]);
  }
  void visit(std::size_t index, std::uint32_t step, std::uint32_t batch, std::uint32_t which)
  {
    const cm::agent stream = job_.on_compute ? cm::agent::compute : cm::agent::host;
    auto weight = m_.acquire(weights_[index], cm::access::read, stream);
    const auto gradient = m_.gradient(std::move(weight));
    if (m_.rehearsing()) return;
    struct {
      Element* to;
      const std::vector<Element>* before;
      std::size_t index;
      std::uint32_t rank, batch, step, which;
      bool adds;
      void operator()() const noexcept
      {
        write_gradient(to, before->data(), before->size(), adds, index, rank, batch, step, which);
      }
    } const work{gradient.data(), &wanted_[step][index], index, cm::index_of(m_.ranks().rank()), batch, step,
                 which,           gradient.beta() != 0};
    stream == cm::agent::host ? work() : m_.backend().launch(stream, work);
  }

  Model& m_;
  Kernel kernel_;
  job job_;
  const history<Element>& wanted_;
  std::vector<cm::tensor<Element>> weights_;
  cm::tensor<float> activation_;
  cm::optimizer::late_updates<Model, Kernel> late_{m_, kernel_};
  cm::optimizer::early_updates<Model, Kernel> early_{
      m_, kernel_, cm::bytes{std::uint64_t{job_.undo_kilobytes} * 1024 / (1 + cm::index_of(m_.ranks().rank()))}};
};

}  // namespace support::ranks
