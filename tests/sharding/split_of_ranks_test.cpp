// SPDX-License-Identifier: Apache-2.0
// Updates over ranks that are split between host and device: every share has the bits of updates on the host.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/split_updates.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace split_of_ranks_test {

namespace cm = chunkmem;
using cm::optimizer::adam;
using cm::optimizer::split_stage;

namespace {

/// How the updates of a training are done.
struct way {
  bool is_split = true;
  bool is_late = false;
  bool searches = false;         ///< to the end of the search; else `shares` in turn
  std::vector<double> shares{};  ///< of the steps
  double clip = 0;
  bool last_forgets = false;   ///< the last rank never calls end_step
  double gain_of_last = 0.02;  ///< the least gain that the last rank wants

  [[nodiscard]] int steps() const { return searches ? 26 : 12; }  // of a search: five for each of five shares, and one
};

struct result {
  std::vector<float> weights;
  std::vector<double> norms;
  std::vector<double> held;           ///< the last share of each rank
  std::vector<std::uint8_t> is_held;  ///< of each rank: the search is over
};

/// One rank: six weights, whose gradients depend on rank, step and values.
class rank_of_training {
 public:
  using model_type = cm::sharded_model<cm::backend::host_arena, cm::collective::local_threads, cm::transfer::planned,
                                       cm::placement::update_share>;
  using split_type = cm::optimizer::split_updates<model_type, cm::optimizer::loop_launcher>;

  rank_of_training(const way& how, const cm::sharding::zero& divided, cm::collective::local_threads& group)
      : how_{how},
        memory_{{.device_capacity = unit(group) * 16, .host_capacity = unit(group) * 128, .async_compute = true}},
        model_{memory_, group, {.chunk_bytes = unit(group)}, {.divided = divided}},
        is_last_{index_of(group.rank()) + 1 == group.ranks()},
        split_{model_,
               cm::on_this_thread,
               {.settling_steps = 4, .measured_steps = 1, .least_gain = is_last_ ? how.gain_of_last : 0.02}},
        late_{model_, kernel_, split_}
  {
    model_.use(kernel_);
    for (std::uint64_t index = 0; index < 6; ++index)
      weights_.push_back(model_.add<cm::bf16>({8192 * group.ranks() - 64 * index}, cm::role::parameter));
  }

  void train(result& into)
  {
    (void)split_.rehearse([this] { (void)step(0); });
    for (const auto weight : weights_) {
      auto pin = model_.acquire(weight, cm::access::write);
      for (std::size_t i = 0; i < pin.size(); ++i)
        pin.span()[i] = cm::round_to<cm::bf16>(0.01F * static_cast<float>(i * 7 % 19));
    }
    for (int number = 0; number < how_.steps(); ++number) {
      if (!how_.searches && how_.is_split) {
        model_.finish_updates();
        model_.shares().use_placement(
            {.device_share = how_.shares[static_cast<std::size_t>(number / 3) % how_.shares.size()], .in_turn = true});
      }
      const double norm = step(number);
      if (model_.ranks().rank() == cm::rank_id{0}) into.norms.push_back(norm);
      if (how_.searches && how_.is_split && !(is_last_ && how_.last_forgets)) split_.end_step();
    }
    model_.finish_updates();
    into.held[index_of(model_.ranks().rank())] = split_.split().device_share;
    into.is_held[index_of(model_.ranks().rank())] = split_.split().stage == split_stage::held ? 1 : 0;
    for (const auto weight : weights_) {
      const auto pin = model_.acquire(weight, cm::access::read);
      if (model_.ranks().rank() == cm::rank_id{0})
        for (const cm::bf16 it : pin.span()) into.weights.push_back(cm::to_float(it));
    }
  }

 private:
  /// A share has two blocks of 4,096 elements.
  static cm::bytes unit(const cm::collective::local_threads& group) { return cm::bytes{4096 * 4} * group.ranks(); }

  double step(int number)
  {
    auto iteration = model_.iteration();
    float sum = 0;
    for (const auto weight : weights_) {
      const auto pin = model_.acquire(weight, cm::access::read);
      if (!model_.rehearsing()) sum += cm::to_float(pin.span()[17]);
    }
    for (std::size_t index = weights_.size(); index-- > 0;) {
      auto gradient = model_.gradient(weights_[index]);
      if (!model_.rehearsing())
        for (std::size_t i = 0; i < gradient.size(); ++i)
          gradient.span()[i] = cm::round_to<cm::bf16>(1e-3F * (sum + static_cast<float>(number)) *
                                                      static_cast<float>((i + index_of(model_.ranks().rank())) % 5));
      model_.gradient_done(std::move(gradient));
    }
    const cm::optimizer::step_options options{
        .learning_rate = 1e-2F, .clip = {.norm = static_cast<float>(how_.clip)}, .skip_nonfinite = how_.clip > 0};
    if (how_.is_late) return late_.step(options).norm;
    return how_.is_split ? model_.step(kernel_, options, split_).norm : model_.step(kernel_, options).norm;
  }

  const way& how_;
  cm::backend::host_arena memory_;
  adam kernel_;
  model_type model_;
  bool is_last_;
  split_type split_;
  cm::optimizer::late_updates<model_type, adam, split_type> late_;
  std::vector<cm::tensor<cm::bf16>> weights_;
};

result train(const way& how, std::uint32_t ranks, const cm::sharding::zero& divided)
{
  result all;
  all.held.resize(ranks);
  all.is_held.resize(ranks);
  cm::sharding::thread_ranks{ranks}.run([&](cm::sharding::thread_ranks::place& here) {
    rank_of_training{how, divided, here.all()}.train(all);
  });
  return all;
}

/// The error of each of two ranks.
std::vector<std::string> errors_of(const way& how)
{
  std::vector<std::string> errors(2);
  result all;
  all.held.resize(2);
  all.is_held.resize(2);
  // a deadline that is met alone where a rank waits for one that never comes
  const std::uint64_t deadline = how.last_forgets ? 500'000'000 : 60'000'000'000;  // [ns]
  const cm::sharding::thread_ranks ranks{2, 0, {.deadline = deadline}};
  ranks.run([&](cm::sharding::thread_ranks::place& here) {
    errors[here.rank()] = support::refusal([&] { rank_of_training{how, cm::sharding::zero_3, here.all()}.train(all); });
  });
  return errors;
}

}  // namespace

TEST_CASE("ranks that search for splits of their own are refused on every rank, and none waits for ever", "[sharding]")
{
  for (const std::string& said : errors_of({.searches = true, .gain_of_last = 0.03}))
    CHECK_THAT(said, Catch::Matchers::ContainsSubstring("measure different splits of their updates"));
  for (const double clip : {0.0, 0.5})
    for (const std::string& said : errors_of({.searches = true, .clip = clip, .last_forgets = true})) CHECK(said != "");
}

TEST_CASE("every share of updates on the device has the bits of updates on the host, over 1 to 4 ranks and ZeRO 1 to 3",
          "[sharding]")
{
  constexpr cm::sharding::zero divisions[] = {cm::sharding::zero_1, cm::sharding::zero_2, cm::sharding::zero_3};
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks)
    for (std::size_t zero = 0; zero < 3; ++zero) {
      const double clip = (ranks + zero) % 2 == 0 ? 0.5 : 0;
      const bool searches = zero == ranks % 3;
      const way how{.is_late = zero != 1, .searches = searches, .shares = {0, 0.3, 1, 0.6}, .clip = clip};
      INFO(ranks << " ranks, ZeRO " << zero + 1);
      const result right = train({.is_split = false, .searches = searches, .clip = clip}, ranks, divisions[zero]);
      const result found = train(how, ranks, divisions[zero]);
      CHECK(right.norms.size() == static_cast<std::size_t>(how.steps()));
      CHECK(found.weights == right.weights);
      CHECK(found.norms == right.norms);
      CHECK(std::ranges::count(found.held, found.held[0]) == ranks);
      CHECK(std::ranges::count(found.is_held, 1) == (searches ? ranks : 0));
    }
}

}  // namespace split_of_ranks_test
