// SPDX-License-Identifier: Apache-2.0
// Random models over ranks, of which one rank differs from the others in one thing: a value, an option, a scale or a
// rate. All ranks are told so, before any update.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace rank_differences_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using model_type = sharded_model<backend::host_arena, collective::local_threads>;

/// The property in which one rank differs.
enum class thing : std::uint8_t {
  nothing,
  value,          // a bit of one element
  missing_value,  // a weight that it did not fill
  later_value,    // of a weight that all fill again between iterations
  later_fill,     // a weight that it alone fills again
  adam_option,    // from the start
  later_option,   // of Adam, from the second step on
  rate,           //
  group_rate,     //
  clip,           //
  seed,           //
  scale,          // its value
  scale_option,   // what decides its next values
  has_scale,      // a loss scale, where others have none
  late,           // its updates wait, and those of others do not
  updates,        // how many the kernel has counted
  micro_batches,  // of the iteration, where gradients are added once
  name,           // of a weight
  missed,         // how many updates the first weight had no gradient for
  count
};

struct scenario {
  std::uint32_t ranks;
  sharding::zero divided;
  std::vector<std::uint64_t> sizes{};
  std::vector<bool> is_frozen{};
  thing what = thing::nothing;
  std::uint32_t rank = 0;   // that differs
  std::size_t tensor = 0;   // by which
  std::uint64_t seed = 0;   // of the values
  std::uint64_t place = 0;  // of a bit, or number of an option
};

scenario random_scenario(std::uint64_t seed, thing what)
{
  std::mt19937_64 random{seed};
  constexpr sharding::zero stages[] = {sharding::zero_1, sharding::zero_2, sharding::zero_3,
                                       sharding::zero_3_reduce_last};
  scenario it{.ranks = 2 + static_cast<std::uint32_t>(random() % 3), .divided = stages[random() % 4]};
  const std::size_t tensors = 1 + random() % 5;
  for (std::size_t index = 0; index < tensors; ++index) {
    it.sizes.push_back(1 + random() % (random() % 3 == 0 ? 20'000 : 300));
    it.is_frozen.push_back(index > 0 && random() % 4 == 0);
  }
  it.what = what;
  it.rank = static_cast<std::uint32_t>(random() % it.ranks);
  it.tensor = random() % tensors;
  it.seed = seed;
  it.place = random();
  if (what == thing::micro_batches) it.divided = random() % 2 == 0 ? sharding::zero_1 : sharding::zero_3_reduce_last;
  return it;
}

std::string name_of(std::size_t tensor)
{
  return "layer" + std::to_string(tensor) + ".weight";
}

/// The name of the option in a refusal, and the options with it changed.
std::pair<std::string, optimizer::adam_options> other_adam(std::uint64_t which)
{
  switch (which % 6) {
    case 0: return {"beta1", {.beta1 = 0.8F}};
    case 1: return {"beta2", {.beta2 = 0.99F}};
    case 2: return {"epsilon", {.epsilon = 1e-7F}};
    case 3: return {"weight_decay", {.weight_decay = 0.1F}};
    case 4: return {"decoupled", {.decoupled = false}};
    default: return {"rate_factor", {.rate_factor = 2.0F}};
  }
}
/// One rank of a scenario.
class trainer {
 public:
  trainer(const scenario& given, backend::host_arena& memory, collective::local_threads& here)
      : it_{given},
        is_other_{index_of(here.rank()) == given.rank},
        rank_{index_of(here.rank())},
        adam_{is(thing::adam_option) && given.place % 2 == 0 ? other_adam(given.place / 2).second
                                                             : optimizer::adam_options{}},
        scale_{made_scale()},
        m_{memory, here, {.chunk_bytes = bytes{given.ranks * 16'384}}, {.divided = given.divided}}
  {
    adam_.group(group_id{1}, is(thing::adam_option) && given.place % 2 != 0 ? other_adam(given.place / 2).second
                                                                            : optimizer::adam_options{});
    m_.use(adam_);
    m_.use(scale_);
    for (std::size_t index = 0; index < it_.sizes.size(); ++index) {
      weights_.push_back(m_.add<float>({it_.sizes[index]}, it_.is_frozen[index] ? role::frozen : role::parameter,
                                       group_id{static_cast<std::uint32_t>(index % 2)}));
      m_.name(weights_.back(),
              is(thing::name) && index == it_.tensor ? "other.weight" : rank_differences_test::name_of(index));
    }
    own_ = m_.add<float>({10}, role::buffer);
    if (is(thing::updates) || it_.what == thing::missed) adam_.progress.number = 3;
    if (is(thing::missed)) miss(weights_[0]);
  }

  /// @return   where it was refused ("iteration", "step 0", ...), and in what words
  std::pair<std::string, std::string> run()
  {
    std::string where = "iteration";
    try {
      for (std::size_t index = 0; index < weights_.size(); ++index)
        if (!(is(thing::missing_value) && index == it_.tensor)) fill(index, it_.seed, is(thing::value));
      for (float& value : m_.acquire(own_, access::write).span()) value = static_cast<float>(rank_);  // as it should
      for (std::uint32_t step = 0; step < 2; ++step) {
        if (step == 1) fill_again();
        {
          where = "iteration";
          const std::uint32_t batches = is(thing::micro_batches) ? 1 : 2;
          auto scope = m_.iteration(batches);
          where = "backward";
          for (std::uint32_t batch = 0; batch < batches; ++batch) backward(scope, batch);
        }
        where = "step " + std::to_string(step);
        if (step == 1 && is(thing::later_option)) adam_.group(group_id{0}, other_adam(it_.place).second);
        take(step);
      }
      return {"", ""};
    } catch (const usage_error& refused) {
      return {where, refused.what()};
    } catch (const std::exception& other) {
      return {where, std::string{"another error: "} + other.what()};
    }
  }

 private:
  [[nodiscard]] bool is(thing what) const { return it_.what == what && is_other_; }
  void miss(tensor_handle weight)
  {
    missed_updates& missed = adam_.progress.missed;
    missed.make_room(index_of(weight.id) + std::size_t{1});
    missed.note(index_of(weight.id));
    missed.end();
  }

  [[nodiscard]] optimizer::loss_scale made_scale() const
  {
    if (is(thing::scale_option))
      return optimizer::loss_scale::dynamic(
          {.initial = 8, .window = it_.place % 2 == 0 ? 3U : 2'000U, .growth = it_.place % 2 == 0 ? 2.0F : 4.0F});
    if (it_.what == thing::scale_option) return optimizer::loss_scale::dynamic({.initial = 8});
    return optimizer::loss_scale::fixed(is(thing::scale) ? 4.0F : 8.0F);
  }
  void fill(std::size_t index, std::uint64_t seed, bool is_other)
  {
    std::mt19937_64 random{seed + index};
    std::vector<float> values(it_.sizes[index]);
    for (float& value : values) value = static_cast<float>(random() % 1'000) * 0.01F;
    values[0] = it_.place % 3 == 0 ? 0.0F : values[0];
    if (is_other && index == it_.tensor) {
      float& value = values[it_.place % values.size()];
      // -0.0 in place of 0.0, or another bit
      const std::uint32_t bit = value == 0.0F ? 31 : static_cast<std::uint32_t>(it_.place >> 8U) % 23;
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1U << bit);
    }
    const auto pin = m_.acquire(weights_[index], access::write);
    std::ranges::copy(values, pin.span().begin());
  }
  void fill_again()
  {
    if (it_.what == thing::later_value || it_.what == thing::nothing)
      fill(it_.tensor, it_.seed + 7, is(thing::later_value));
    if (is(thing::later_fill)) fill(it_.tensor, it_.seed, false);  // with the first values
  }
  template <class Scope>
  void backward(Scope& scope, std::uint32_t batch)
  {
    scope.pass(pass::forward, batch);
    for (const auto it : weights_) (void)m_.acquire(it, access::read).size();
    scope.pass(pass::backward, batch);
    for (std::size_t index = weights_.size(); index-- > 0;) {
      if (it_.is_frozen[index]) continue;
      auto gradient = m_.gradient(weights_[index]);
      for (float& value : gradient.span()) value = static_cast<float>(rank_ + 1);
      m_.gradient_done(std::move(gradient));
    }
  }
  void take(std::uint32_t step)
  {
    const std::array<float, 2> rates{0.01F, is(thing::group_rate) ? 0.03F : 0.02F};
    optimizer::step_options options{.learning_rate = is(thing::rate) && step == it_.place % 2 ? 0.02F : 0.01F};
    if (it_.what == thing::group_rate) options.group_rates = rates;
    options.clip = {.norm = is(thing::clip) ? 0.5F : 1.0F};
    options.seed = is(thing::seed) ? 5 : 4;
    const bool has_scale = it_.what == thing::scale || it_.what == thing::scale_option || is(thing::has_scale);
    if (has_scale) options.loss_scale = &scale_;
    (void)(is(thing::late) ? late_.step(options) : m_.step(adam_, options));
  }

  const scenario& it_;
  bool is_other_;
  std::uint32_t rank_;
  optimizer::adam adam_;
  optimizer::loss_scale scale_;
  model_type m_;
  optimizer::late_updates<model_type, optimizer::adam> late_{m_, adam_};
  std::vector<tensor<float>> weights_;
  tensor<float> own_;
};

/// The place where the difference has to be found, and the words of its message.
std::pair<std::string, std::string> expected(const scenario& it)
{
  const std::string filled = "weight " + name_of(it.tensor);
  const std::string later = it.place % 2 == 0 ? "step 0" : "step 1";
  switch (it.what) {
    case thing::nothing: return {"", ""};
    case thing::value:
    case thing::missing_value: return {"iteration", filled};
    case thing::name: return {"iteration", "weight other.weight"};
    case thing::later_value:
    case thing::later_fill: return {"step 1", filled};
    case thing::adam_option:
      return {"step 0", other_adam(it.place / 2).first + (it.place % 2 == 0 ? " = " : " of group 1 = ")};
    case thing::later_option: return {"step 1", other_adam(it.place).first + " of group 0 = "};
    case thing::rate: return {later, "learning rate = 0.02"};
    case thing::group_rate: return {"step 0", "learning rate of group 1 = 0.03"};
    case thing::clip: return {"step 0", "clip.norm = 0.5"};
    case thing::seed: return {"step 0", "seed = 5"};
    case thing::scale: return {"step 0", "value of the loss scale = 4"};
    case thing::scale_option:
      return {"step 0", it.place % 2 == 0 ? "window of the loss scale = 3" : "growth of the loss scale = 4"};
    case thing::has_scale: return {"step 0", "loss scale = fixed"};
    case thing::late: return {"step 0", "updates that wait"};
    case thing::updates: return {"step 0", "number of updates so far = 3"};
    case thing::missed: return {"step 0", "number of updates that " + name_of(0) + " missed = 1"};
    case thing::micro_batches: return {"step 0", "number of micro-batches = 1"};
    default: return {};
  }
}

/// @return   the mistake in the errors of the ranks, or nothing
std::string run(const scenario& it)
{
  std::vector<std::pair<std::string, std::string>> said(it.ranks);
  const collective::thread_group group{it.ranks, {}};
  support::on_ranks(it.ranks, [&](std::uint32_t rank) {
    const bytes room{it.ranks * 16'384 * 40};
    backend::host_arena memory{{.device_capacity = room, .host_capacity = room}};
    collective::local_threads here{group, rank_id{rank}};
    said[rank] = trainer{it, memory, here}.run();
  });
  const auto [where, words] = expected(it);
  // of two ranks nobody knows which one is right: rank 1 differs from rank 0
  const std::uint32_t usual = it.ranks == 2 || it.rank != 0 ? 0 : 1;
  const std::uint32_t other = it.ranks == 2 ? 1 : it.rank;
  for (std::uint32_t rank = 0; rank < it.ranks; ++rank) {
    const auto& [found, text] = said[rank];
    const std::string all = "rank " + std::to_string(rank) + " at " + found + ": " + text;
    if (found != where) return "not at " + where + ", but " + all;
    if (text.find(words) == text.npos) return "without " + words + ", " + all;
    if (it.what == thing::updates && text.find("checkpoints of the same step") == text.npos) return "no advice, " + all;
    if (text != said[0].second) return "other words on other ranks, " + all;
    if (where.empty()) continue;
    const std::string here = " on rank " + std::to_string(other) + ", and ";
    if (text.find(here) == text.npos) return "other ranks, " + all;
    if (text.find(" on rank " + std::to_string(usual) + " (") == text.npos) return "other ranks, " + all;
    const std::string of_other = it.rank == other ? text.substr(0, text.find(here)) : text.substr(text.find(here));
    if (it.what != thing::missing_value && it.what != thing::later_fill && of_other.find(words) == of_other.npos)
      return "of another rank, " + all;
  }
  return {};
}

constexpr std::uint64_t models = 200;

TEST_CASE("one value, option, scale or rate that differs on one rank is found in each of random models, and named",
          "[sharding]")
{
  std::uint64_t found = 0;
  for (std::uint64_t seed = 0; seed < models; ++seed) {
    const auto what = static_cast<thing>(1 + seed % (static_cast<std::uint64_t>(thing::count) - 1));
    const std::string complaint = run(random_scenario(seed, what));
    INFO("seed " << seed);
    CHECK(complaint == "");
    found += complaint.empty() ? 1 : 0;
  }
  support::write_figures("test_sharding_differences", "build/test/bin/test_sharding",
                         {{"edge.rank_differences_found_percent", 100 * found / models, "%", "==", 100}});
}

TEST_CASE("random models whose ranks are alike train, whatever each rank has of its own", "[sharding]")
{
  for (std::uint64_t seed = 0; seed < models; ++seed) {
    INFO("seed " << seed);
    CHECK(run(random_scenario(seed, thing::nothing)) == "");
  }
}

/// The exception of `work(rank, m, weights)` on each of three ranks, with a small weight and one longer than a chunk.
using work_of_rank = call_ref<void(std::uint32_t rank, model_type& m, const std::vector<tensor<float>>& weights)>;
std::vector<std::string> said_on_three(work_of_rank work)
{
  constexpr std::uint32_t ranks = 3;
  std::vector<std::string> said(ranks);
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    const bytes room{ranks * 16'384 * 20};
    backend::host_arena memory{{.device_capacity = room, .host_capacity = room}};
    collective::local_threads here{group, rank_id{rank}};
    model_type m{memory, here, {.chunk_bytes = bytes{ranks * 16'384}}};
    const std::vector<tensor<float>> weights{m.add<float>({7}, role::frozen), m.add<float>({30'000}, role::parameter)};
    said[rank] = support::refusal<usage_error>([&] { work(rank, m, weights); });
  });
  return said;
}

TEST_CASE("all ranks have the values of one after broadcast, bit by bit, whatever the others wrote", "[sharding]")
{
  const auto value = [](std::uint32_t rank, std::size_t index) {
    if (index == 0) return rank == 0 ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
    return index == 1 ? (rank == 0 ? -0.0F : 0.0F) : static_cast<float>(index * (rank + 1));
  };
  const auto said = said_on_three([&](std::uint32_t rank, model_type& m, const std::vector<tensor<float>>& weights) {
    for (const std::uint32_t from : {0U, 2U}) {
      for (const auto it : weights) {
        auto pin = m.acquire(it, access::write);
        for (std::size_t index = 0; index < pin.size(); ++index) pin.span()[index] = value(rank, index);
        m.broadcast(std::move(pin), rank_id{from});
      }
      {
        const auto scope = m.iteration();
      }
      for (const auto it : weights) {
        const auto pin = m.acquire(it, access::read);
        for (std::size_t index = 0; index < pin.size(); ++index)
          expects(std::bit_cast<std::uint32_t>(pin.span()[index]) == std::bit_cast<std::uint32_t>(value(from, index)),
                  "another value");
      }
    }
  });
  CHECK(said == std::vector<std::string>(3));
}

TEST_CASE("broadcast refuses a pin that fills no weight, and a rank that does not exist", "[sharding]")
{
  const auto refused = [&](auto what) {
    return said_on_three([&](std::uint32_t rank, model_type& m, const std::vector<tensor<float>>& weights) {
      for (const auto it : weights)
        for (float& each : m.acquire(it, access::write).span()) each = 1;
      what(m, weights[1], rank);
    });
  };
  for (const std::string& it : refused([](model_type& m, tensor<float> weight, std::uint32_t) {
         m.broadcast(m.acquire(weight, access::write), rank_id{3});
       }))
    CHECK_THAT(it, ContainsSubstring("a rank that does not exist"));
  for (const std::string& it : refused([](model_type& m, tensor<float> weight, std::uint32_t rank) {
         auto pin = m.acquire(weight, access::write);
         if (rank == 1) pin.release();  // the others hear of it, and wait for nothing
         m.broadcast(std::move(pin));
       }))
    CHECK_THAT(it, ContainsSubstring("acquire it with access::write"));
}

TEST_CASE("ranks that differed in first values go on once they have the same", "[sharding]")
{
  const auto said = said_on_three([](std::uint32_t rank, model_type& m, const std::vector<tensor<float>>& weights) {
    const auto fill = [&](float own) {
      for (const auto it : weights)
        for (float& each : m.acquire(it, access::write).span()) each = own;
    };
    bool again = false;
    fill(static_cast<float>(rank));
    for (const bool differs : {true, true, false}) {
      bool refused = false;
      try {
        const auto scope = m.iteration();
      } catch (const usage_error&) {
        refused = true;
      }
      expects(refused == differs, "an iteration that should not begin, or should");
      if (refused) fill(std::exchange(again, true) ? 2.0F : -static_cast<float>(rank));
    }
  });
  CHECK(said == std::vector<std::string>(3));
}

TEST_CASE("a rank without the gradient of a weight that others have one of is named, with the weight", "[sharding]")
{
  const auto said = said_on_three([](std::uint32_t rank, model_type& m, const std::vector<tensor<float>>& weights) {
    optimizer::adam adam;
    m.use(adam);
    const std::vector<tensor<float>> small{m.add<float>({5}, role::parameter, group_id{1}),
                                           m.add<float>({6}, role::parameter, group_id{1})};
    m.name(small[1], "bias");
    for (const auto& all : {weights, small})
      for (const auto it : all)
        for (float& each : m.acquire(it, access::write).span()) each = 1;
    const auto scope = m.iteration();
    for (const auto it : small)
      if (rank != 2 || it.id == small[0].id)
        for (float& each : m.gradient(it).span()) each = 1;
    (void)m.step(adam, {});
  });
  for (const std::string& it : said)
    CHECK_THAT(it, ContainsSubstring("a gradient of bias is missing on rank 2, and a gradient of bias on rank 0 ("));
}

TEST_CASE("ranks that broadcast other weights are told so", "[sharding]")
{
  std::vector<int> failed(2, 0);
  const collective::thread_group group{2, {.deadline = 300'000'000}};
  support::on_ranks(2, [&](std::uint32_t rank) {
    backend::host_arena memory{{.device_capacity = bytes{1U << 20U}, .host_capacity = bytes{1U << 20U}}};
    collective::local_threads here{group, rank_id{rank}};
    model_type m{memory, here, {.chunk_bytes = bytes{65'536}}};
    const auto weights = m.add_stacked<float>(2, {9}, role::parameter);
    try {
      m.broadcast(m.acquire(weights.slice(rank), access::write));
    } catch (const comm_error&) {
      failed[rank] = 1;
    }
  });
  CHECK(failed == std::vector<int>{1, 1});
}

}  // namespace rank_differences_test
