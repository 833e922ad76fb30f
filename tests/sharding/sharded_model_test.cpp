// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/sharded_model.hpp>

#include <chunkmem/activation/sampled.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>
#include <support/train_on_ranks.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace sharded_model_test {

namespace cm = chunkmem;
using support::ranks::job;

using support::ranks::train;
using support::ranks::train_by;

std::vector<std::string> nothing(const job& wanted)
{
  return std::vector<std::string>(wanted.ranks);
}

namespace {

using arena = cm::backend::host_arena;
using model_type = cm::sharded_model<arena, cm::collective::local_threads>;

/// Runs `work(rank, model)` on ranks that are threads, each with a model of its own.
template <class Work>
void on_models(std::uint32_t ranks, cm::bytes chunk, Work work)
{
  const cm::collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    arena memory{{.device_capacity = cm::bytes{1U << 20U}, .host_capacity = cm::bytes{1U << 20U}}};
    cm::collective::local_threads here{group, cm::rank_id{rank}};
    model_type m{memory, here, {.chunk_bytes = chunk}};
    work(rank, m);
  });
}

}  // namespace

TEST_CASE("ranks get the bits of one rank with the same grouping", "[sharding]")
{
  for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 5U, 8U}) {
    INFO(ranks << " ranks");
    CHECK(train<float>({.ranks = ranks}) == std::vector<std::string>(ranks));
  }
}

TEST_CASE("a rank goes on with its backward pass while others have not added their gradients yet", "[sharding]")
{
  for (const cm::sharding::zero divided : {cm::sharding::zero_1, cm::sharding::zero_2, cm::sharding::zero_3}) {
    cm::collective::thread_group group{2};
    std::atomic<bool> has_gone_on{false};
    std::vector<float> found(2);
    cm::collective::run_threads(2, [&](std::uint32_t rank) {
      cm::backend::host_arena memory{{.device_capacity = cm::bytes{1 << 20}, .host_capacity = cm::bytes{1 << 20}}};
      cm::collective::local_threads ranks{group, cm::rank_id{rank}};
      cm::sharded_model<cm::backend::host_arena, cm::collective::local_threads> m{
          memory, ranks, {.chunk_bytes = cm::bytes{1 << 15}}, {.divided = divided}};
      const auto early = m.add<float>({64}, cm::role::parameter, cm::group_id{1});
      const auto late = m.add<float>({64}, cm::role::parameter, cm::group_id{0});
      cm::optimizer::sgd sgd;
      m.use(sgd);
      for (const auto& weight : {early, late})
        for (float& it : m.acquire(weight, cm::access::write).span()) it = 0;
      const auto fill = [&](const auto& gradient) {
        for (float& it : gradient.span()) it = static_cast<float>(rank + 1);
      };
      {
        const auto scope = m.iteration();
        auto of_early = m.gradient(early);
        fill(of_early);
        auto of_late = m.gradient(late);
        fill(of_late);
        if (rank == 1) has_gone_on.wait(false);  // where rank 0 waits for this rank's part, nobody goes on
        m.gradient_done(std::move(of_late));
        m.gradient_done(std::move(of_early));
        has_gone_on = true;
        has_gone_on.notify_all();
      }
      m.step(sgd, {.learning_rate = 1});
      found[rank] = m.acquire(early, cm::access::read).span()[63] + m.acquire(late, cm::access::read).span()[63];
    });
    CHECK(found == std::vector<float>{-6, -6});
  }
}

TEST_CASE("so they do with several micro-batches, summed each or last, clipped, scaled, rehearsed and in little room",
          "[sharding]")
{
  const job jobs[] = {
      {.ranks = 2, .micro_batches = 3},
      {.ranks = 3, .micro_batches = 2, .sums_each = false},
      {.ranks = 4, .clip = 0.5F},
      {.ranks = 2, .micro_batches = 2, .sums_each = false, .clip = 3, .scale = 0.5F},
      {.ranks = 4, .steps = 5, .frames = 12},
      {.ranks = 2, .steps = 4, .micro_batches = 2, .clip = 1, .frames = 17, .rehearses = true},
      {.ranks = 1, .steps = 4, .frames = 33, .rehearses = true},
      {.ranks = 3, .steps = 4, .micro_batches = 3, .divided = cm::sharding::zero_1, .clip = 1, .is_tight = true},
      {.ranks = 2, .steps = 4, .divided = cm::sharding::zero_2, .is_tight = true},
  };
  for (const job& it : jobs) {
    INFO("job " << &it - jobs);
    CHECK(train<float>(it) == nothing(it));
    if (support::sanitized) continue;
    CHECK(train<cm::bf16>(it) == nothing(it));
    CHECK(train<cm::fp16>(it) == nothing(it));
  }
}

TEST_CASE("so they do under other policies", "[sharding]")
{
  const job tight{.ranks = 3, .steps = 5, .micro_batches = 2, .clip = 1, .frames = 12};
  CHECK(train<float, cm::eviction::lru, cm::transfer::no_prefetch>(tight) == nothing(tight));
  CHECK(train_by<float, cm::ownership::sharded>({.transfer = "planned"}, tight) == nothing(tight));
  CHECK(train_by<cm::bf16, cm::ownership::sharded>({.layout = "best_fit_layout", .placement = "device_margin"},
                                                   tight) == nothing(tight));
}

struct hostile {
  using type = support::adversarial;
  support::schedule when = support::schedule::random;
  type operator()(std::uint32_t rank, cm::bytes device, cm::bytes host) const
  {
    return type{
        {.device_capacity = device, .host_capacity = host, .when = when, .seed = rank + 1, .async_compute = true}};
  }
};

TEST_CASE("so they do on devices that use every freedom, each in its own way", "[sharding]")
{
  for (const auto when : {support::schedule::earliest, support::schedule::latest, support::schedule::random}) {
    const job tight{.ranks = 3, .steps = 4, .micro_batches = 2, .clip = 1, .frames = 14};
    // under a sanitizer each freedom has one of the three ways
    const auto has = [&](support::schedule one) { return !support::sanitized || when == one; };
    using cm::ownership::hierarchical;  // of one node, which adds as one that is sharded
    if (has(support::schedule::earliest))
      CHECK(train_by<float, hierarchical>({}, tight, hostile{when}) == nothing(tight));
    if (has(support::schedule::latest))
      CHECK(train_by<cm::bf16, hierarchical>({.transfer = "planned"}, tight, hostile{when}) == nothing(tight));
    job on_compute = tight;
    on_compute.on_compute = true;
    if (has(support::schedule::random))
      CHECK(train_by<float, hierarchical>({}, on_compute, hostile{when}) == nothing(tight));
  }
}

TEST_CASE("ranks that take a step with other options are told so, and weights stay as they are", "[sharding]")
{
  std::vector<std::string> said(2);
  on_models(2, cm::bytes{32768}, [&](std::uint32_t rank, model_type& m) {
    cm::optimizer::adam adam{{}};
    m.use(adam);
    const auto weight = m.add<float>({10}, cm::role::parameter);
    for (float& it : m.acquire(weight, cm::access::write).span()) it = 1;
    {
      const auto scope = m.iteration();
      for (float& it : m.gradient(weight).span()) it = 1;
      said[rank] = support::refusal<cm::usage_error>(
          [&] { m.step(adam, {.learning_rate = rank == 0 ? 0.1F : 0.2F, .skip_nonfinite = false}); });
      if (m.acquire(weight, cm::access::read).span()[0] != 1) said[rank] += "a weight moved";
      m.step(adam, {.learning_rate = 0.1F, .skip_nonfinite = false});
    }
    if (!(m.acquire(weight, cm::access::read).span()[0] < 1)) said[rank] += "no weight moved";
  });
  for (const std::string& it : said)
    CHECK_THAT(it, Catch::Matchers::StartsWith("chunkmem: ranks take different steps: learning rate = 0.2 on rank 1, "
                                               "and learning rate = 0.1 on rank 0 ("));
  CHECK(said[0].find("moved") == std::string::npos);
  CHECK(said[1].find("moved") == std::string::npos);
}

TEST_CASE("a rank that has nothing to add to a gradient says so, and others' gradients count", "[sharding]")
{
  std::vector<float> found(3);
  on_models(3, cm::bytes{49152}, [&](std::uint32_t rank, model_type& m) {
    cm::optimizer::sgd kernel{{.momentum = 0}};
    m.use(kernel);
    const auto shared = m.add<float>({100}, cm::role::parameter);
    const auto expert = m.add<float>({100}, cm::role::parameter, cm::group_id{1});
    for (const auto which : {shared, expert})
      for (float& it : m.acquire(which, cm::access::write).span()) it = 1;
    const auto scope = m.iteration();
    for (float& it : m.gradient(shared).span()) it = 1;
    if (rank == 1)
      for (float& it : m.gradient(expert).span()) it = 2;
    else
      m.gradient_zero(expert);
    for (const auto which : {expert, shared}) m.gradient_done(which);
    m.step(kernel, {.learning_rate = 0.25F});
    found[rank] = m.acquire(expert, cm::access::read).span()[99] + m.acquire(shared, cm::access::read).span()[0] * 16;
  });
  CHECK(found == std::vector<float>(3, 0.5F + 0.25F * 16));
}

TEST_CASE("gradients of ranks are done in each micro-batch, and mistakes with them name tensor and rank", "[sharding]")
{
  std::vector<std::string> again(2), nothing(2), early(2), different(2);
  std::vector<float> found(2);
  on_models(2, cm::bytes{65536}, [&](std::uint32_t rank, model_type& m) {
    const auto said = [](auto call) -> std::string { return support::refusal<cm::usage_error>(call); };
    cm::optimizer::sgd kernel{{.momentum = 0}};
    m.use(kernel);
    const auto low = m.add<float>({100}, cm::role::parameter);
    const auto high = m.add<float>({100}, cm::role::parameter);
    m.name(low, "low");
    m.name(high, "high");
    for (const auto which : {low, high})
      for (float& it : m.acquire(which, cm::access::write).span()) it = 0;
    {
      auto scope = m.iteration(3);
      for (std::uint32_t batch = 0; batch < 3; ++batch) {
        scope.pass(cm::pass::backward, batch);
        for (const auto which : {high, low}) {
          auto gradient = m.gradient(which);
          const float beta = gradient.beta();
          for (float& it : gradient.span()) it = (beta == 0 ? 0.0F : it) + 1;
          m.gradient_done(std::move(gradient));
          if (batch == 1 && which.id == high.id) again[rank] = said([&] { (void)m.gradient(high); });
        }
        if (batch == 1) early[rank] = said([&] { (void)m.step(kernel); });
      }
      m.step(kernel, {.learning_rate = 1});
    }
    found[rank] = m.acquire(high, cm::access::read).span()[7];
    nothing[rank] = said([&] { (void)m.step(kernel); });
    const auto scope = m.iteration();
    for (float& it : m.gradient(low).span()) it = 1;
    if (rank == 1)
      for (float& it : m.gradient(high).span()) it = 1;
    different[rank] = said([&] { (void)m.step(kernel); });
  });
  CHECK(found == std::vector<float>{-6, -6});  // three micro-batches of two ranks
  for (const std::size_t rank : {0U, 1U}) {
    CHECK(again[rank] ==
          "chunkmem: tensor 'high': a gradient was requested after gradient_done, in micro-batch 2 of 3 (call "
          "gradient_done after its last write; for several passes that add up, begin the iteration with as many "
          "micro-batches and name each by pass())");
    CHECK(early[rank].find("an optimizer step after 2 of the 3 micro-batches of an iteration") != std::string::npos);
    CHECK(nothing[rank].find("an optimizer step, and no weight has a gradient on any rank") != std::string::npos);
    CHECK(different[rank].find("a gradient of high on rank 1, and a gradient of high is missing on rank 0 (") !=
          std::string::npos);
  }
}

TEST_CASE("the span of a gradient of ranks without a name keeps the gradient while a loop walks over it", "[sharding]")
{
  using model = cm::sharded_model<cm::backend::host_arena, cm::collective::self>;
  using gradient = decltype(std::declval<model&>().gradient(cm::tensor<float>{}));
  STATIC_REQUIRE(
      std::is_same_v<decltype(std::declval<gradient>().span()), cm::held_span<float, model::pin_type<float>>>);
  STATIC_REQUIRE(std::is_same_v<decltype(std::declval<const gradient&>().span()), std::span<float>>);
}

TEST_CASE("a gradient of ranks that starts from zeros is added to from the first write on", "[sharding]")
{
  std::vector<std::vector<float>> found(3);
  on_models(3, cm::bytes{49152}, [&](std::uint32_t rank, model_type& m) {
    cm::optimizer::sgd kernel{{.momentum = 0}};
    m.use(kernel);
    const auto table = m.add<float>({100}, cm::role::parameter);
    for (float& it : m.acquire(table, cm::access::write).span()) it = 1;
    const auto one_row = [rank](const auto& gradient) {
      if (gradient.beta() == 1.0F) gradient.span()[rank] += 3;
    };
    for (int step = 0; step < 2; ++step) {
      auto scope = m.iteration(2);
      for (std::uint16_t which = 0; which < 2; ++which) {
        scope.pass(cm::pass::backward, which);
        if (which == 0)
          one_row(m.gradient(table, cm::agent::host, cm::gradient_start::zeros));
        else
          one_row(m.gradient(m.acquire(table, cm::access::read), cm::gradient_start::zeros));
        m.gradient_done(table);
      }
      m.step(kernel, {.learning_rate = 0.25F});
    }
    const auto pin = m.acquire(table, cm::access::read);
    for (std::size_t index = 0; index < 4; ++index) found[rank].push_back(pin.span()[index]);
  });
  for (const auto& it : found) CHECK(it == std::vector<float>{-2, -2, -2, 1});
}

TEST_CASE("an iteration that is refused inside another one leaves that as it is", "[sharding]")
{
  cm::backend::host_arena memory{{.device_capacity = cm::bytes{1U << 20U}, .host_capacity = cm::bytes{1U << 20U}}};
  cm::collective::self alone;
  cm::sharded_model<cm::backend::host_arena, cm::collective::self> m{
      memory, alone, {.chunk_bytes = cm::bytes{65536}}, {.divided = cm::sharding::zero_1}};
  cm::optimizer::sgd kernel{{.momentum = 0}};
  m.use(kernel);
  const auto weight = m.add<float>({100}, cm::role::parameter);
  for (float& it : m.acquire(weight, cm::access::write).span()) it = 1;
  auto scope = m.iteration(2);
  CHECK_THROWS_AS(m.iteration("another"), cm::usage_error);
  scope.pass(cm::pass::backward, 0);
  for (float& it : m.gradient(weight).span()) it = 1;
  m.gradient_done(weight);
  // it is not the last micro-batch: nothing was added yet
  CHECK_FALSE(m.shares().has_gradient(m.share_of(weight).first->share));
}

TEST_CASE("a weight with a master is not written any more: others share its unit", "[sharding]")
{
  cm::backend::host_arena memory{{.device_capacity = cm::bytes{1U << 20U}, .host_capacity = cm::bytes{1U << 20U}}};
  cm::collective::self alone;
  cm::sharded_model<cm::backend::host_arena, cm::collective::self> m{memory, alone, {.chunk_bytes = cm::bytes{65536}}};
  cm::optimizer::adam adam{{}};
  m.use(adam);
  const auto wide = m.add<float>({100}, cm::role::parameter);
  const auto narrow = m.add<cm::bf16>({100}, cm::role::parameter);
  for (int round = 0; round < 2; ++round) {
    {
      const auto pin = m.acquire(wide, cm::access::write);
    }
    {
      const auto pin = m.acquire(narrow, cm::access::write);
    }
  }
  {
    const auto scope = m.iteration();
    for (float& it : m.gradient(wide).span()) it = 1;
    for (cm::bf16& it : m.gradient(narrow).span()) it = cm::round_to<cm::bf16>(1.0F);
    m.step(adam, {.learning_rate = 0.1F});
  }
  {
    const auto pin = m.acquire(wide, cm::access::write);
  }
  CHECK_THROWS_WITH(m.acquire(narrow, cm::access::write),
                    Catch::Matchers::StartsWith("chunkmem: a weight was written whose share has a master"));
}

TEST_CASE("ranks that loaded checkpoints of different steps are told so by the first step", "[sharding]")
{
  std::vector<std::string> said(2);
  on_models(2, cm::bytes{32768}, [&](std::uint32_t rank, model_type& m) {
    cm::optimizer::adam adam{{}};
    adam.progress.number = 10 - rank;  // a kill between their saves
    m.use(adam);
    const auto weight = m.add<float>({10}, cm::role::parameter);
    for (float& it : m.acquire(weight, cm::access::write).span()) it = 1;
    const auto scope = m.iteration();
    for (float& it : m.gradient(weight).span()) it = 1;
    said[rank] = support::refusal<cm::usage_error>([&] { m.step(adam, {.learning_rate = 0.1F}); });
  });
  for (const std::string& it : said) CHECK(it.find("checkpoints of the same step") != std::string::npos);
}

TEST_CASE("a rehearsal between gradients and their step takes none of them away", "[sharding]")
{
  cm::backend::host_arena memory{{.device_capacity = cm::bytes{1U << 20U}, .host_capacity = cm::bytes{1U << 20U}}};
  cm::collective::self alone;
  cm::sharded_model<cm::backend::host_arena, cm::collective::self> m{memory, alone, {.chunk_bytes = cm::bytes{65536}}};
  cm::optimizer::sgd kernel{{.momentum = 0}};
  m.use(kernel);
  const auto weight = m.add<float>({100}, cm::role::parameter);
  const auto unused = m.add<float>({100}, cm::role::parameter, cm::group_id{1});  // a unit of its own
  for (const auto which : {weight, unused})
    for (float& it : m.acquire(which, cm::access::write).span()) it = 1;
  const auto differentiate = [&](cm::tensor<float> which, bool done) {
    const auto scope = m.iteration();
    for (float& it : m.gradient(which).span()) it = 1;
    if (done) m.gradient_done(which);
  };
  const auto rehearsed = [&] {
    differentiate(unused, true);
    m.step(kernel, {.learning_rate = 0.5F});
  };
  differentiate(weight, false);
  CHECK_THROWS_WITH(m.rehearse(rehearsed),
                    Catch::Matchers::StartsWith("chunkmem: a rehearsal while gradients are open"));
  CHECK(m.step(kernel, {.learning_rate = 0.5F}).norm == 10);  // it is still there
  differentiate(weight, true);
  const cm::bytes same = memory.capacity(cm::tier::device);
  const cm::memory_requirement need = m.rehearse(rehearsed, cm::rehearse_on::nothing, nullptr, {&same, 1});
  CHECK(need.smallest_host_for(same) == need.smallest_host);
  CHECK_THROWS_AS(m.rehearse([&] { (void)m.rehearse(rehearsed); }), cm::usage_error);
  CHECK(m.step(kernel, {.learning_rate = 0.25F}).norm == 10);
  CHECK(m.acquire(weight, cm::access::read).span()[7] == 0.25F);
  CHECK(m.acquire(unused, cm::access::read).span()[7] == 1);
}

namespace {

constexpr std::uint32_t width = 8, outputs = 4, rows_of_sample = 2, batch_samples = 6, batches = 6, steps = 5;
constexpr std::uint64_t samples = 48, rows = std::uint64_t{rows_of_sample} * batch_samples;

float number(std::uint64_t seed)
{
  seed = (seed + 1) * 0x9e3779b97f4a7c15U;
  seed ^= seed >> 29U;
  seed *= 0xbf58476d1ce4e5b9U;
  return static_cast<float>(static_cast<std::int64_t>(seed >> 40U) - (1 << 23)) / (1 << 23);
}

/// The results of six batches a step, on any number of ranks.
struct sampled_outcome {
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<float>> gradients;  // of each batch of each step
  std::vector<std::byte> norms;
};

sampled_outcome train_sampled(std::uint32_t ranks)
{
  sampled_outcome all;
  std::mutex alone;
  std::vector<std::string> complaints(ranks);
  on_models(ranks, cm::bytes{6 * 16384}, [&](std::uint32_t rank, model_type& m) {
    cm::optimizer::sgd kernel{{.momentum = 0}};
    m.use(kernel);
    cm::activation::norm_cache norms{{.name = "sampling", .samples = samples, .seed = 3}};
    const auto site = norms.add("input", rows_of_sample);
    m.use(norms);
    const auto weight = m.add<float>({width, outputs}, cm::role::parameter);
    using input_type = cm::activation::sampled_input<model_type, float>;
    input_type kept{m, norms, site, {.rows = rows, .width = width, .ratio = 0.34}, {weight}};
    for (float& value : m.acquire(weight, cm::access::write).span()) value = 1;
    for (std::uint64_t step = 0; step < steps; ++step) {
      auto iteration = m.iteration("train", batches / ranks);
      std::uint32_t turn = 0;
      for (std::uint32_t batch = rank; batch < batches; batch += ranks) {
        iteration.pass(cm::pass::forward, turn++);
        std::array<std::uint64_t, batch_samples> numbers{};  // in a new order each step, over all batches
        for (std::uint32_t at = 0; at < batch_samples; ++at)
          numbers[at] = (step * 7 + (std::uint64_t{batch} * batch_samples + at) * (step % 2 == 0 ? 5 : 1)) % samples;
        std::vector<float> x(rows * width), d(rows * outputs);
        for (std::uint64_t row = 0; row < rows; ++row) {
          const std::uint64_t known = numbers[row / rows_of_sample] * rows_of_sample + row % rows_of_sample;
          for (std::uint64_t at = 0; at < width; ++at) x[row * width + at] = number(known * 100 + at);
          const float size = known % 3 == 0 ? 8.0F : 0.5F;
          for (std::uint64_t at = 0; at < outputs; ++at)
            d[row * outputs + at] = size * number(known * 100 + 50 + at + step * 10'000);
        }
        const cm::activation::sampled_batch now{.step = step, .samples = numbers};
        kept.keep(now, std::span<const float>{x});
        std::vector<float> sums(std::size_t{width} * outputs);
        cm::activation::sampled(kept, now, cm::on_this_thread,
                                cm::activation::linear_slope{std::span{d}, outputs, [] {},
                                                             [&](const auto& it) {
                                                               for (std::uint64_t row = 0; row < it.count; ++row)
                                                                 for (std::uint64_t i = 0; i < width; ++i)
                                                                   for (std::uint64_t j = 0; j < outputs; ++j)
                                                                     sums[i * outputs + j] +=
                                                                         it.rows[row * width + i] *
                                                                         it.slopes[row * outputs + j];
                                                             }});
        auto gradient = m.gradient(m.acquire(weight, cm::access::read));
        const bool adds = gradient.beta() != 0;
        for (std::size_t at = 0; at < sums.size(); ++at)
          gradient.span()[at] = adds ? gradient.span()[at] + sums[at] : sums[at];
        m.gradient_done(std::move(gradient));
        const std::lock_guard held{alone};
        all.gradients[{step, batch}] = sums;
      }
      m.step(kernel, {.learning_rate = 0.01F});
      norms.commit(m.ranks());
    }
    const std::lock_guard held{alone};
    m.shares().content().states().for_each([&](std::string_view name, std::span<const std::byte> content) {
      if (name != "sampling/norms") return;
      if (!all.norms.empty() && !std::ranges::equal(all.norms, content)) complaints[rank] = "other norms than another";
      all.norms.assign(content.begin(), content.end());
    });
  });
  for (const std::string& each : complaints) CHECK(each == "");
  return all;
}

}  // namespace

TEST_CASE("sampled gradients and norms have the same bits on one, two and three ranks", "[sharding]")
{
  const sampled_outcome one = train_sampled(1);
  REQUIRE(one.gradients.size() == std::size_t{steps} * batches);
  const bool has_norms = std::ranges::count(one.norms, std::byte{}) < static_cast<std::ptrdiff_t>(one.norms.size() / 2);
  CHECK(has_norms);
  for (const std::uint32_t ranks : {2U, 3U}) {
    INFO(ranks << " ranks");
    const sampled_outcome many = train_sampled(ranks);
    const bool are_equal = many.gradients == one.gradients, are_norms_equal = many.norms == one.norms;
    CHECK(are_equal);
    CHECK(are_norms_equal);
  }
}

}  // namespace sharded_model_test
