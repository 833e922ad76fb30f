// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/pofo.hpp>
#include <chunkmem/activation/rotor.hpp>
#include <chunkmem/activation/sampled.hpp>
#include <chunkmem/activation/sampled_input.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/memory_folder.hpp>
#include <support/refusal.hpp>
#include <support/sampling_study.hpp>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace sampled_test {

/// Linear layers whose weight gradients come from sampled rows: in chunks, in a training, and refused.

namespace cm = chunkmem;
namespace act = chunkmem::activation;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using support::sampling::tie;
using arena = cm::backend::host_arena;
// With a policy that plans nothing, which compiles faster.
using manager = cm::manager<arena, cm::transfer::no_prefetch>;

namespace {

constexpr std::uint32_t width = 8, rows_of_sample = 3, samples = 12, batch_samples = 4;
constexpr std::uint64_t rows = std::uint64_t{rows_of_sample} * batch_samples;

/// Every part on a thread of its own.
struct three_threads {
  [[nodiscard]] static unsigned threads() { return 3; }
  template <class Work>
  static void run(unsigned parts, Work&& work)
  {
    std::vector<std::thread> all;
    for (unsigned part = 0; part < parts; ++part) all.emplace_back([&work, part] { work(part); });
    for (std::thread& each : all) each.join();
  }
};

/// sum += left^T right
void add_product(const float* left, std::uint64_t lefts, const float* right, std::uint64_t rights, std::uint64_t count,
                 float* sum)
{
  for (std::uint64_t row = 0; row < count; ++row)
    for (std::uint64_t i = 0; i < lefts; ++i)
      for (std::uint64_t j = 0; j < rights; ++j) sum[i * rights + j] += left[row * lefts + i] * right[row * rights + j];
}

/// Numbers that repeat on every machine.
float number(std::uint64_t seed)
{
  seed = (seed + 1) * 0x9e3779b97f4a7c15U;
  seed ^= seed >> 29U;
  seed *= 0xbf58476d1ce4e5b9U;
  return static_cast<float>(static_cast<std::int64_t>(seed >> 40U) - (1 << 23)) / (1 << 23);
}
std::vector<float> numbers(std::uint64_t seed, std::uint64_t count)
{
  std::vector<float> made(count);
  for (std::uint64_t index = 0; index < count; ++index) made[index] = number(seed * 1'000 + index);
  return made;
}

/// One input that two layers read.
struct shared_input {
  static constexpr std::uint64_t outputs[2] = {5, 3};
  explicit shared_input(double ratio, std::uint64_t of_samples = samples, bool measures = false)
      : norms{{.name = "sampling", .samples = of_samples, .seed = 42, .measures_noise = measures}}
  {
    const auto site = norms.add("input", rows_of_sample);
    m.use(norms);
    input = m.add<float>({rows, width}, cm::role::activation);
    m.name(input, "hidden");
    first = m.add<float>({width, outputs[0]}, cm::role::parameter);
    m.name(first, "first");
    second = m.add<float>({outputs[1], width}, cm::role::frozen);
    m.name(second, "second");
    kept.emplace(m, norms, site, act::sampling_options{.rows = rows, .width = width, .ratio = ratio},
                 std::initializer_list<cm::tensor_handle>{first, second});
  }

  void keep(const act::sampled_batch& batch, const std::vector<float>& x)
  {
    std::ranges::copy(x, m.acquire(input, cm::access::write).span().begin());
    kept->keep(batch, input);
  }
  /// Both weight gradients, one after the other.
  std::vector<float> back(const act::sampled_batch& batch, const std::vector<float>& of_first,
                          const std::vector<float>& of_second)
  {
    std::vector<float> sums(width * (outputs[0] + outputs[1]));
    order.clear();
    const auto into = [&](std::uint64_t begin, std::uint64_t many) {
      return [&, begin, many](const auto& it) {
        order += 'w';
        add_product(it.rows, width, it.slopes, many, it.count, sums.data() + begin);
      };
    };
    act::sampled(*kept, batch, cm::on_this_thread,
                 act::linear_slope{std::span{of_first}, outputs[0], [&] { order += 'x'; }, into(0, outputs[0])},
                 act::linear_slope{std::span{of_second}, outputs[1], [&] { order += 'x'; },
                                   into(width * outputs[0], outputs[1])});
    REQUIRE(order == "xxww");
    return sums;
  }

  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  act::norm_cache norms;
  cm::tensor<float> input, first, second;
  std::string order;  // of the last call's products
  std::optional<act::sampled_input<manager, float>> kept;
};

std::vector<float> exact(const std::vector<float>& x, const std::vector<float>& first, const std::vector<float>& second)
{
  std::vector<float> sums(width * 8);
  add_product(x.data(), width, first.data(), 5, rows, sums.data());
  add_product(x.data(), width, second.data(), 3, rows, sums.data() + width * 5);
  return sums;
}

constexpr std::array<std::uint64_t, batch_samples> batch_0 = {7, 2, 11, 5};

}  // namespace

TEST_CASE("all rows give the exact gradient, bit by bit", "[activation]")
{
  shared_input it{1};
  const auto x = numbers(1, rows * width), first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const act::sampled_batch batch{.step = step, .samples = batch_0};
    it.keep(batch, x);
    REQUIRE(it.back(batch, first, second) == exact(x, first, second));
    it.norms.commit();
  }
}

TEST_CASE("rows are weighed by the norms of all layers that read them, as of the last visit", "[activation]")
{
  shared_input it{0.4};
  const auto x = numbers(1, rows * width), first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  const auto norm = [](const std::vector<float>& of, std::uint64_t row, std::uint64_t each) {
    double sum = 0;
    for (std::uint64_t at = row * each; at < (row + 1) * each; ++at) sum += double{of[at]} * double{of[at]};
    return sum;
  };
  std::vector<float> earlier = first;
  for (float& each : earlier) each *= 100;
  for (std::uint64_t step = 0; step < 2; ++step) {  // the second visit replaces the norms of the first
    const act::sampled_batch batch{.step = step, .samples = batch_0};
    it.keep(batch, x);
    if (step == 0)
      for (std::uint64_t row = 0; row < rows; ++row)
        REQUIRE(it.kept->weights()[row] == Catch::Approx(std::sqrt(norm(x, row, width))));
    (void)it.back(batch, step == 0 ? earlier : first, second);
    it.norms.commit();
  }
  // Samples in another order: their norms go with them.
  constexpr std::array<std::uint64_t, batch_samples> turned = {11, 7, 5, 2}, place = {2, 0, 3, 1};
  std::vector<float> moved(rows * width);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t from = place[row / rows_of_sample] * rows_of_sample + row % rows_of_sample;
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                moved.begin() + static_cast<std::ptrdiff_t>(row * width));
  }
  it.keep({.step = 2, .samples = turned}, moved);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t from = place[row / rows_of_sample] * rows_of_sample + row % rows_of_sample;
    const double right = std::sqrt(norm(x, from, width) * (norm(first, from, 5) + norm(second, from, 3)));
    CHECK(it.kept->weights()[row] == Catch::Approx(right).epsilon(1.0 / 256));  // norms are bf16
  }
}

TEST_CASE("the mean of sampled gradients is the exact one, on first visits and with norms", "[activation]")
{
  // Rows of very different gradients. The norms of half of the samples become known, then those of all.
  const auto x = numbers(1, rows * width);
  auto first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const float size = row % 5 == 0 ? 4.0F : 0.25F;
    for (std::uint64_t at = 0; at < 5; ++at) first[row * 5 + at] *= size;
    for (std::uint64_t at = 0; at < 3; ++at) second[row * 3 + at] *= size;
  }
  const std::vector<float> right = exact(x, first, second);
  std::vector<double> scatter;
  for (const std::size_t known : {0U, 2U, 4U}) {
    shared_input it{0.4};
    if (known > 0) {
      // A visit of each known sample alone: its rows, and its norms.
      for (std::uint64_t at = 0; at < known; ++at) {
        const act::sampled_batch one{.step = 0, .samples = std::span{batch_0}.subspan(at, 1)};
        const auto part = [&](const std::vector<float>& of, std::uint64_t each) {
          const auto begin = of.begin() + static_cast<std::ptrdiff_t>(at * rows_of_sample * each);
          return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(rows_of_sample * each));
        };
        it.kept->keep(one, std::span<const float>{part(x, width)});
        (void)it.back(one, part(first, 5), part(second, 3));
      }
      it.norms.commit();
    }
    constexpr std::uint64_t trials = 600;
    std::vector<double> sums(right.size()), squares(right.size());
    for (std::uint64_t step = 1; step <= trials; ++step) {
      const act::sampled_batch batch{.step = step, .samples = batch_0};
      it.keep(batch, x);
      const std::vector<float> seen = it.back(batch, first, second);
      it.norms.forget();  // as the first visit of each step
      for (std::size_t at = 0; at < seen.size(); ++at) {
        sums[at] += double{seen[at]};
        squares[at] += double{seen[at]} * double{seen[at]};
      }
    }
    double variance_of_all = 0;
    for (std::size_t at = 0; at < right.size(); ++at) {
      const double mean = sums[at] / trials, variance = squares[at] / trials - mean * mean;
      variance_of_all += variance;
      INFO("element " << at << ", " << known << " samples with norms");
      REQUIRE(std::abs(mean - double{right[at]}) <= 4.8 * std::sqrt(variance / trials) + 1e-5);
    }
    scatter.push_back(variance_of_all);
  }
  CHECK(scatter[2] < 0.5 * scatter[0]);
}

namespace {

/// Less than the weights, activations and gradients of a step.
constexpr cm::bytes tight_device = 7_KiB;

/// Four blocks y = x + relu(x W), two micro-batches in a step, by plain loops. The linear inputs are sampled.
struct trainer {
  struct settings {
    cm::bytes device = 256_KiB;
    bool again = false;    ///< blocks run forward twice
    bool threads = false;  ///< three, else one
    double ratio = 0.4;
    bool measures = false;  ///< noise
    cm::bytes chunk = 512_B;
    cm::bytes room = 7_KiB;  ///< of activations, for planners
  };
  using network_type = act::checkpointed<manager, act::keep_all>;
  static constexpr std::uint32_t blocks = 4;

  explicit trainer(const settings& how)
      : how_{how},
        memory{{.device_capacity = how.device, .host_capacity = 256_KiB}},
        norms{{.name = "sampling", .samples = samples, .seed = 42, .measures_noise = how.measures}},
        network{m, {.budget = budget_of(how), .name = "net"}}
  {
    m.use(sgd);
    std::array<act::norm_cache::site, blocks> sites{};
    for (std::uint32_t index = 0; index < blocks; ++index)
      sites[index] = norms.add("block " + std::to_string(index), rows_of_sample);
    m.use(norms);
    weights = m.add_stacked<float>(blocks, {width, width}, cm::role::parameter);
    batch = m.add<float>({rows, width}, cm::role::activation);
    slope = m.add<float>({rows, width}, cm::role::activation);
    cm::tensor<float> before = batch;
    for (std::uint32_t index = 0; index < blocks; ++index) {
      auto& block = network.add("block " + std::to_string(index));
      auto& input = kept.emplace_back(m, norms, sites[index],
                                      act::sampling_options{.rows = rows, .width = width, .ratio = how.ratio},
                                      std::initializer_list<cm::tensor_handle>{weights.slice(index)});
      input.saved_by(block);
      const auto mask = block.template saves<float>({rows, width});
      const auto output = block.template outputs<float>({rows, width});
      block.forward = [this, index, before, mask, output](auto& run) { forward(index, before, mask, output, run); };
      block.backward = [this, index, mask, output](auto& run) { backward(index, mask, output, run); };
      block.forward_seconds = block.backward_seconds = 1e-3;
      if (how.chunk == 256_B) block.working = input.working_bytes(width).most();
      before = output;
    }
    for (std::uint32_t index = 0; index < blocks; ++index) {
      const auto first = numbers(50 + index, width * width);
      std::ranges::copy(first, m.acquire(weights.slice(index), cm::access::write).span().begin());
    }
    if (how.again) network.use(act::recompute_all{}.plan(network.chain(), budget_of(how)));
  }

  void step(std::uint64_t step)
  {
    auto iteration = network.iteration("train", 2);
    for (std::uint32_t micro = 0; micro < 2; ++micro) {
      // Samples 0 to 11 in a new order each time; one of them is in both micro-batches.
      for (std::uint64_t at = 0; at < batch_samples; ++at)
        now[at] = (step * 5 + micro * batch_samples - micro + at * (step % 2 == 0 ? 1 : 7)) % samples;
      {
        const auto x = m.acquire(batch, cm::access::write);
        for (std::uint64_t row = 0; row < rows; ++row)
          for (std::uint64_t at = 0; at < width; ++at)
            x.span()[row * width + at] = number(now[row / rows_of_sample] * 64 + row % rows_of_sample * width + at);
      }
      network.run(iteration, {.step = step, .micro_batch = micro});
      m.drop(batch);
      m.drop(slope);
    }
    cm::optimizer::step(m, sgd, {.learning_rate = 1e-3F});
    norms.commit();
  }
  /// All weights, and the norms.
  [[nodiscard]] std::vector<float> left()
  {
    std::vector<float> all;
    for (std::uint32_t index = 0; index < blocks; ++index)
      for (const float each : m.acquire(weights.slice(index), cm::access::read).span()) all.push_back(each);
    m.content().states().for_each([&](std::string_view name, std::span<const std::byte> content) {
      if (name != "sampling/norms") return;
      for (const std::byte each : content) all.push_back(static_cast<float>(std::to_integer<int>(each)));
    });
    return all;
  }

  [[nodiscard]] static act::activation_budget budget_of(const settings& how)
  {
    return {.device = how.room, .to_host_bytes_per_second = 1e9, .to_device_bytes_per_second = 1e9};
  }
  settings how_;
  arena memory;
  manager m{memory, {.chunk_bytes = how_.chunk}};
  cm::optimizer::sgd sgd{{.momentum = 0}};
  act::norm_cache norms;
  network_type network;
  std::deque<act::sampled_input<manager, float>> kept;
  cm::stacked<float> weights;
  cm::tensor<float> batch, slope;
  std::array<std::uint64_t, batch_samples> now{};

 private:
  [[nodiscard]] act::sampled_batch moment(std::uint64_t step) const { return {.step = step, .samples = now}; }
  template <class Work>
  void with_workers(Work work)
  {
    three_threads many;
    if (how_.threads)
      work(many);
    else
      work(cm::on_this_thread);
  }
  template <class Run>
  void forward(std::uint32_t index, cm::tensor<float> before, cm::tensor<float> mask, cm::tensor<float> output,
               Run& run)
  {
    const auto x = run.input(before);
    {
      const auto w = m.acquire(weights.slice(index), cm::access::read);
      const auto on = run.save(mask);
      const auto y = run.save(output);
      for (std::uint64_t row = 0; row < rows; ++row)
        for (std::uint64_t to = 0; to < width; ++to) {
          float sum = 0;
          for (std::uint64_t from = 0; from < width; ++from)
            sum += x.span()[row * width + from] * w.span()[from * width + to];
          on.span()[row * width + to] = sum > 0 ? 1.0F : 0.0F;
          y.span()[row * width + to] = x.span()[row * width + to] + (sum > 0 ? sum : 0);
        }
    }
    with_workers(
        [&](auto& workers) { kept[index].keep(moment(run.moment().step), std::span<const float>{x.span()}, workers); });
  }
  template <class Run>
  void backward(std::uint32_t index, cm::tensor<float> mask, cm::tensor<float> output, Run& run)
  {
    if (index + 1 == blocks) {
      const auto d = m.acquire(slope, cm::access::write);
      const auto y = run.restore(output);
      for (std::uint64_t at = 0; at < rows * width; ++at) d.span()[at] = y.span()[at] - 0.5F;
    }
    auto w = m.acquire(weights.slice(index), cm::access::read);
    const auto d = m.acquire(slope, cm::access::read_write);
    const auto on = run.restore(mask);
    std::vector<float>& dz = dz_;
    dz.resize(rows * width);
    for (std::uint64_t at = 0; at < rows * width; ++at) dz[at] = d.span()[at] * on.span()[at];
    const act::linear_slope product{std::span{dz}, width,
                                    [&] {
                                      for (std::uint64_t row = 0; row < rows; ++row)
                                        for (std::uint64_t from = 0; from < width; ++from)
                                          for (std::uint64_t to = 0; to < width; ++to)
                                            d.span()[row * width + from] +=
                                                dz[row * width + to] * w.span()[from * width + to];
                                    },
                                    [&](const auto& it) {
                                      auto g = m.gradient(std::move(w));
                                      if (g.beta() == 0) std::ranges::fill(g.span(), 0.0F);
                                      add_product(it.rows, width, it.slopes, width, it.count, g.data());
                                      m.gradient_done(std::move(g));
                                    }};
    with_workers([&](auto& workers) { act::sampled(kept[index], moment(run.moment().step), workers, product); });
  }

  std::vector<float> dz_;
};

std::vector<float> trained(const trainer::settings& how)
{
  trainer it{how};
  for (std::uint64_t step = 0; step < 6; ++step) it.step(step);
  const std::vector<float> left = it.left();
  REQUIRE(left != trainer{how}.left());
  REQUIRE((it.m.report().evictions > 0) == (how.device < 64_KiB));
  return left;
}

}  // namespace

TEST_CASE("sampled training has the same bits with any capacity, with blocks that run twice, and with threads",
          "[activation]")
{
  const std::vector<float> right = trained({});
  // std::vector is compared outside of CHECK, which would print hundreds of numbers.
  const bool tight = trained({.device = tight_device}) == right;
  CHECK(tight);
  const bool again = trained({.again = true}) == right;
  CHECK(again);
  const bool all = trained({.device = tight_device, .again = true, .threads = true}) == right;
  CHECK(all);
  const bool measured = trained({.device = tight_device, .again = true, .measures = true}) == right;
  CHECK(measured);
  const bool other_ratio = trained({.ratio = 0.5}) == right;
  CHECK(!other_ratio);
}

TEST_CASE("planners count sampled blocks as the manager then holds them, to the byte, and change no bit",
          "[activation]")
{
  struct held {
    cm::bytes planned, beside;  // of the device at most: activations by the plan; all else
  };
  for (const bool again : {false, true}) {
    std::vector<held> of_ratio;  // where blocks are kept, and where they run again
    for (const double ratio : {1.0, 0.4, 0.1}) {
      const trainer::settings how{.ratio = ratio, .chunk = 256_B, .room = 64_KiB};
      std::vector<float> right;
      held most{};
      const auto run = [&](const auto& planner, cm::bytes room) {
        trainer it{how};
        act::activation_budget budget = trainer::budget_of(how);
        budget.device = room;
        const act::activation_plan plan = planner.plan(it.network.chain(), budget);
        REQUIRE(plan.costs.fits);
        it.network.use(plan);
        for (std::uint64_t step = 0; step < 3; ++step) it.step(step);
        const std::vector<float> left = it.left();
        if (right.empty()) right = left;
        const bool is_right = left == right;
        INFO(plan.planner << ", ratio " << ratio);
        CHECK(is_right);
        const cm::bytes peak = it.m.report().peak[cm::tier::device];
        REQUIRE(peak > plan.costs.device_peak);
        if (most.planned == 0_B) most = {plan.costs.device_peak, peak - plan.costs.device_peak};
        // A plan that moves tensors needs less than a manager holds if there is room for them.
        if (plan.costs.moved == 0_B) CHECK(peak <= plan.costs.device_peak + most.beside + (again ? 512_B : 0_B));
        return plan.costs.device_peak;
      };
      const auto up = [](std::uint64_t size) { return (size + 255) / 256 * 256; };
      // Rows, indices and scales; 384 bytes of mask and of output, in multiples of 256.
      const std::uint64_t kept = static_cast<std::uint64_t>(ratio * rows + 0.5);
      const std::uint64_t of_block = up(kept * width * 4) + 256 + 256 + 512 + 512, lease = up(kept * width * 4);
      if (again) {
        (void)run(act::recompute_all{}, 64_KiB);
        CHECK(most.planned == cm::bytes{3 * 512 + of_block + lease});
        const cm::bytes tight = most.planned;
        CHECK(run(act::rotor{}, tight) <= tight);
      } else {
        (void)run(act::keep_all{}, 64_KiB);
        CHECK(most.planned == cm::bytes{trainer::blocks * of_block + lease});
        CHECK(run(act::swap_all{}, 64_KiB) <= most.planned);
        (void)run(act::capacity_prefix{}, 64_KiB);
        if (ratio == 0.4) {  // these take a while
          (void)run(act::pofo{12}, most.planned);
          (void)run(act::karma{}, 64_KiB);
        }
      }
      of_ratio.push_back(most);
    }
    for (const held& each : of_ratio) CHECK(each.beside.count() == of_ratio.front().beside.count());
    CHECK(of_ratio[1].planned < of_ratio[0].planned);
    CHECK(of_ratio[2].planned <= of_ratio[1].planned);
  }
}

TEST_CASE("a sampled training that is resumed has the bits of one that was not interrupted", "[activation]")
{
  trainer first{{}}, second{{}};
  for (std::uint64_t step = 0; step < 3; ++step) first.step(step);
  for (std::uint32_t index = 0; index < trainer::blocks; ++index) {
    const auto from = first.m.acquire(first.weights.slice(index), cm::access::read);
    std::ranges::copy(from.span(), second.m.acquire(second.weights.slice(index), cm::access::write).span().begin());
  }
  std::vector<std::byte> norms;
  first.m.content().states().for_each([&](std::string_view name, std::span<std::byte> content) {
    if (name == "sampling/norms") norms.assign(content.begin(), content.end());
  });
  second.m.content().states().for_each([&](std::string_view name, std::span<std::byte> content) {
    if (name == "sampling/norms") std::ranges::copy(norms, content.begin());
  });
  for (std::uint64_t step = 3; step < 6; ++step) {
    first.step(step);
    second.step(step);
  }
  const bool is_resumed = second.left() == first.left(), is_undisturbed = first.left() == trained({});
  CHECK(is_resumed);
  CHECK(is_undisturbed);
}

TEST_CASE("a step of sampled training allocates nothing when it is repeated", "[activation]")
{
  if (!support::counts_allocations) SKIP("allocations are not counted here");
  const bool measures = GENERATE(false, true);
  trainer it{{.measures = measures}};
  std::uint64_t step = 0;
  for (; step < 4; ++step) it.step(step);
  const auto before = support::allocations_so_far();
  for (; step < 8; ++step) it.step(step);
  CHECK((support::allocations_so_far() - before).all() == 0);
}

namespace {

/// The mean of |estimate - G|^2 over all draws of a choice, each by its probability. @param gram   <g_i, g_j>
double mean_error_of_all_draws(const support::row_sampling::division& by, const std::vector<double>& gram)
{
  std::vector<std::vector<support::row_sampling::overlap>> places;
  support::row_sampling::for_each_stratum(by, [&](const auto& in) { places.push_back(in); });
  const std::size_t all = by.share.size();
  std::vector<double> off(all);  // by what each row counts too much
  for (std::size_t row = 0; row < all; ++row) off[row] = by.is_always[row] ? 0 : -1;
  double sum = 0;
  const auto draw = [&](const auto& next, std::size_t place, double probability) -> void {
    if (place == places.size()) {
      double square = 0;
      for (std::size_t i = 0; i < all; ++i)
        for (std::size_t j = 0; j < all; ++j) square += off[i] * off[j] * gram[i * all + j];
      sum += probability * square;
      return;
    }
    for (const auto& each : places[place]) {
      const double counts = 1 / (by.drawn() * by.share[each.row]);
      off[each.row] += counts;
      next(next, place + 1, probability * each.length * by.drawn());
      off[each.row] -= counts;
    }
  };
  draw(draw, 0, 1);
  return sum;
}

}  // namespace

TEST_CASE("the reported noise is that of all draws, and of all batches of a step together", "[activation]")
{
  const auto x = numbers(1, rows * width);
  auto first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  std::vector<float> both;  // the products' slopes, row by row
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t at = 0; at < 5; ++at) both.push_back(first[row * 5 + at] *= row % 5 == 0 ? 4.0F : 0.25F);
    for (std::uint64_t at = 0; at < 3; ++at) both.push_back(second[row * 3 + at] *= row % 5 == 0 ? 4.0F : 0.25F);
  }
  const support::row_sampling::problem of{rows, width, 8, x, both};
  const std::vector<double> gram = of.gram();
  double gradient = 0;
  for (const double each : gram) gradient += each;
  for (const std::uint32_t batches : {1U, 2U}) {
    shared_input it{0.4, samples, true};
    constexpr std::uint64_t steps = 600;
    std::vector<double> errors, signals;
    std::vector<double> weights;
    act::sampling_report before, begin;
    for (std::uint64_t step = 0; step <= steps; ++step) {
      const float scale = step % 2 == 0 ? 1.0F : 64.0F;
      auto scaled_first = first, scaled_second = second;
      for (float& each : scaled_first) each *= scale;
      for (float& each : scaled_second) each *= scale;
      for (std::uint32_t micro = 0; micro < batches; ++micro) {
        const act::sampled_batch batch{.step = step, .samples = batch_0, .loss_scale = scale, .micro_batch = micro};
        it.keep(batch, x);
        weights.assign(it.kept->weights().begin(), it.kept->weights().end());
        (void)it.back(batch, scaled_first, scaled_second);
      }
      it.norms.commit();
      const act::sampling_report now = it.norms.report();
      if (step > 0) {  // with norms
        errors.push_back(now.since(before).inputs[0].error);
        signals.push_back(now.since(before).inputs[0].signal);
        REQUIRE(now.since(before).inputs[0].steps == 1);
      }
      before = now;
      if (step == 0) begin = now;
    }
    double error = 0, scatter = 0, signal = 0;
    for (const double each : errors) error += each / steps;
    for (const double each : signals) signal += each / steps;
    for (const double each : errors) scatter += (each - error) * (each - error) / (steps - 1);
    CHECK(before.since(begin).inputs[0].noise_deviation() == Catch::Approx(std::sqrt(scatter) / signal).epsilon(1e-9));
    const support::row_sampling::division by = support::row_sampling::divide(weights, it.kept->options().kept_of(rows));
    const double right = mean_error_of_all_draws(by, gram);
    REQUIRE(right == Catch::Approx(support::row_sampling::variance_of(by, gram)).epsilon(1e-9));
    const auto expect_mean = [&](const std::vector<double>& of_steps, double wanted) {
      double sum = 0, squares = 0;
      for (const double each : of_steps) sum += each, squares += each * each;
      const double mean = sum / steps, deviation = std::sqrt((squares / steps - mean * mean) / steps);
      INFO(batches << " batches: " << mean << " reported, " << wanted << " right, deviation " << deviation);
      CHECK(std::abs(mean - wanted) <= 4.8 * deviation + 1e-6 * wanted);
      CHECK(deviation < 0.1 * wanted);
    };
    expect_mean(errors, batches * right);
    expect_mean(signals, batches * batches * gradient);
  }
}

TEST_CASE("a report of sampled inputs has their bytes, no noise where all rows are kept, and no step that overflows",
          "[activation]")
{
  const auto x = numbers(1, rows * width), first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  auto infinite = first;
  infinite[7] = std::numeric_limits<float>::infinity();
  shared_input all{1, samples, true}, some{0.4, samples, true}, unmeasured{0.4};
  for (shared_input* const it : {&all, &some, &unmeasured})
    for (std::uint64_t step = 0; step < 3; ++step) {
      const act::sampled_batch batch{.step = step, .samples = batch_0};
      it->keep(batch, x);
      (void)it->back(batch, step == 1 ? infinite : first, second);
      it->norms.commit();
    }
  const act::sampling_costs of_all = all.norms.report().inputs[0], of_some = some.norms.report().inputs[0];
  CHECK(of_all.steps == 2);
  CHECK(of_all.error == 0);
  CHECK(of_all.noise() == 0);
  CHECK(of_all.signal > 0);
  CHECK(of_all.saved() == 0_B);
  CHECK(of_some.steps == 2);
  CHECK(of_some.noise() > 0);
  CHECK(of_some.exact == 512_B);                 // 12 rows of 8 numbers, in multiples of 256
  CHECK(of_some.kept == 256_B + 256_B + 256_B);  // 5 rows, 5 indices, 5 scales
  CHECK(of_some.ratio == 0.4);
  CHECK((of_some.spent_seconds > 0 && of_some.product_seconds > 0));
  const act::sampling_report none = unmeasured.norms.report();
  CHECK(none.inputs[0].steps == 0);
  CHECK(std::isnan(none.inputs[0].noise()));
  CHECK(
      none.json() ==
      R"([{"name": "input", "ratio": 0.4, "exact_bytes": 512, "kept_bytes": 768, "saved_bytes": 0, "steps": 0, )"
      R"("noise": null, "noise_deviation": null, "error": 0, "signal": 0, "spent_seconds": 0, "product_seconds": 0}])");
  // A step that is dropped is not counted, and one that is repeated counts once.
  const act::sampled_batch batch{.step = 3, .samples = batch_0};
  for (int attempt = 0; attempt < 2; ++attempt) {
    some.norms.forget();
    some.keep(batch, x);
    (void)some.back(batch, first, second);
  }
  some.norms.commit();
  CHECK(some.norms.report().inputs[0].steps == 3);
  const act::sampling_report twice = some.norms.report();
  CHECK(twice.since(twice).whole().signal == 0);
  CHECK(twice.whole().ratio == 0.4);  // of rows, not of bytes
  CHECK(std::isnan(twice.whole().noise_deviation()));
}

TEST_CASE("sums of noise have the units of each batch, and none of a step that a load ended", "[activation]")
{
  const auto x = numbers(1, rows * width), first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  const auto go = [&](shared_input& it, std::uint64_t step, float scale, std::uint32_t micro) {
    auto scaled_first = first, scaled_second = second;
    for (float& each : scaled_first) each *= scale;
    for (float& each : scaled_second) each *= scale;
    const act::sampled_batch batch{.step = step, .samples = batch_0, .loss_scale = scale, .micro_batch = micro};
    it.keep(batch, x);
    (void)it.back(batch, scaled_first, scaled_second);
  };
  std::vector<act::sampling_costs> seen;
  for (const std::array<float, 2> scales : {std::array{1.0F, 1.0F}, {1024.0F, 512.0F}, {0.25F, 64.0F}}) {
    shared_input it{0.4, samples, true};
    for (std::uint32_t micro = 0; micro < 2; ++micro) go(it, 3, scales[micro], micro);
    it.norms.commit();
    seen.push_back(it.norms.report().inputs[0]);
    CHECK(seen.back().signal == seen.front().signal);
    CHECK(seen.back().error == seen.front().error);
  }
  CHECK(seen.front().error > 0);

  for (const std::uint64_t of_samples : {std::uint64_t{0}, std::uint64_t{samples}}) {
    INFO(of_samples << " samples");
    support::memory_folder folder;
    shared_input it{0.4, of_samples, true};
    std::ranges::fill(it.m.acquire(it.first, cm::access::write).span(), 1.0F);
    std::ranges::fill(it.m.acquire(it.second, cm::access::write).span(), 1.0F);
    cm::checkpoint::save(it.m, folder);
    go(it, 0, 1, 0);
    it.norms.commit();
    const act::sampling_report once = it.norms.report();
    cm::checkpoint::load(it.m, folder);
    go(it, 0, 1, 0);  // ended by a load: it is not counted
    cm::checkpoint::load(it.m, folder);
    const act::sampling_report ended = it.norms.report();
    CHECK(ended.inputs[0].steps == 1);
    go(it, 0, 1, 0);
    it.norms.commit();
    const act::sampling_costs again = it.norms.report().since(ended).inputs[0];
    CHECK(again.steps == 1);
    CHECK(again.signal == Catch::Approx(once.inputs[0].signal));
    // No report is requested in between.
    cm::checkpoint::load(it.m, folder);
    const act::sampling_report before = it.norms.report();
    go(it, 0, 1, 0);
    cm::checkpoint::load(it.m, folder);
    go(it, 0, 1, 0);
    it.norms.commit();
    CHECK(it.norms.report().since(before).inputs[0].signal == Catch::Approx(once.inputs[0].signal));
  }
}

TEST_CASE("norms of a step do not depend on the order of its micro-batches and ranks", "[activation]")
{
  // The bytes of a cache that noted three batches, in an order.
  const std::array<std::array<std::uint64_t, 2>, 3> batches = {{{1, 4}, {4, 2}, {0, 2}}};
  const auto make = [](std::uint64_t seed) {
    auto made = std::make_unique<act::norm_cache>(act::norm_cache::options{.name = "n", .samples = 6, .seed = seed});
    (void)made->add("a", 2);
    tie(*made);
    return made;
  };
  const auto note = [&](act::norm_cache& to, std::size_t which, std::uint64_t step) {
    std::array<double, 4> squares{};
    for (std::size_t at = 0; at < 4; ++at) squares[at] = std::pow(1 + static_cast<double>(which * 4 + at), 2);
    if (which == 1) squares[3] = std::numeric_limits<double>::infinity();  // passed over
    to.note({0}, {.step = step, .samples = batches[which]}, squares);
  };
  const auto weights = [](act::norm_cache& of) {
    std::vector<double> all(12, 1.0);
    of.weigh({0}, {.step = 9, .samples = std::array<std::uint64_t, 6>{0, 1, 2, 3, 4, 5}}, all);
    return all;
  };
  const auto forward = make(1), back = make(1);
  for (const std::size_t which : {0U, 1U, 2U}) note(*forward, which, 3);
  for (const std::size_t which : {2U, 0U, 1U}) note(*back, which, 3);
  forward->commit();
  back->commit();
  const std::vector<double> right = weights(*forward);
  CHECK(weights(*back) == right);
  CHECK(right[0] == 9);                     // sample 0, of the third batch
  CHECK(right[4] == 11);                    // sample 2: the larger one of two
  CHECK(right[5] == 12);                    // the other was no number
  CHECK(right[2 * 3] == right[2 * 3 + 1]);  // sample 3 was not seen: the mean
  CHECK(right[8] == 5);                     // sample 4: of the second batch

  // Three ranks, one batch each, then a step in which one rank has none.
  struct rank_end {
    std::vector<std::vector<std::uint64_t>>& words;
    std::barrier<>& all_here;
    std::uint32_t mine;
    static std::uint32_t ranks() { return 3; }
    void exchange(std::span<const std::uint64_t> own, std::span<std::uint64_t> all)
    {
      words[mine].assign(own.begin(), own.end());
      all_here.arrive_and_wait();
      auto to = all.begin();
      for (const auto& each : words) to = std::ranges::copy(each, to).out;
      all_here.arrive_and_wait();
    }
  };
  std::vector<std::vector<std::uint64_t>> words(3);
  std::barrier<> all_here{3};
  std::vector<std::unique_ptr<act::norm_cache>> caches;
  for (std::uint32_t rank = 0; rank < 3; ++rank) caches.push_back(make(1));
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      rank_end end{words, all_here, rank};
      note(*caches[rank], 2 - rank, 3);
      caches[rank]->commit(end);
      if (rank > 0) note(*caches[rank], rank, 4);
      caches[rank]->commit(end);
      caches[rank]->commit(end);  // of nothing
    });
  for (std::thread& each : threads) each.join();
  note(*forward, 1, 4);
  note(*forward, 2, 4);
  forward->commit();
  for (const auto& each : caches) CHECK(weights(*each) == weights(*forward));

  // A rank with norms of more samples would write beyond those of the others.
  act::norm_cache larger{{.name = "n", .samples = 60, .seed = 1}};
  (void)larger.add("a", 2);
  tie(larger);
  const auto refused_with = [&](act::norm_cache& second, std::string_view why) {
    std::array<std::string, 3> refused;
    std::vector<std::thread> others;
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      others.emplace_back([&, rank] {
        rank_end end{words, all_here, rank};
        refused[rank] = support::refusal<cm::usage_error>([&] { (rank == 1 ? second : *caches[rank]).commit(end); });
      });
    for (std::thread& each : others) each.join();
    for (const std::string& each : refused) CHECK_THAT(each, ContainsSubstring(std::string{why}));
  };
  refused_with(larger, "rank 1 has other norms \"n\" than rank 0: 120 and 12");
  refused_with(*make(2), "rank 1 has the seed 2 for the norms \"n\", and rank 0 has 1");
  refused_with(*make(1), "rank 1 has committed other norms \"n\" than rank 0");
  note(*caches[0], 0, 5);
  note(*caches[1], 1, 6);
  refused_with(*caches[1], "rank 1 commits norms \"n\" of step 6, and a rank before it of step 5");
}

TEST_CASE("a load forgets norms that were noted before it, and its step comes next", "[activation]")
{
  support::memory_folder folder;
  shared_input it{0.5};
  std::ranges::fill(it.m.acquire(it.first, cm::access::write).span(), 1.0F);
  std::ranges::fill(it.m.acquire(it.second, cm::access::write).span(), 1.0F);
  const auto weights = [&](std::uint64_t step) {
    std::vector<double> all(std::size_t{rows}, 1.0);
    it.norms.weigh({0}, {.step = step, .samples = batch_0}, all);
    return all;
  };
  const std::vector<double> small(std::size_t{rows}, 4.0), large(std::size_t{rows}, 1e6);
  it.norms.note({0}, {.step = 2, .samples = batch_0}, small);
  it.norms.commit();
  cm::checkpoint::save(it.m, folder);
  CHECK_THROWS_WITH(weights(2), ContainsSubstring("was given step 2") && ContainsSubstring("of step 2 were committed"));
  // Step 3 is tried, and dropped for the checkpoint after step 2.
  it.norms.note({0}, {.step = 3, .samples = batch_0}, large);
  cm::checkpoint::load(it.m, folder);
  it.norms.note({0}, {.step = 3, .samples = batch_0}, small);
  it.norms.commit();
  CHECK(weights(4) == std::vector<double>(std::size_t{rows}, 2.0));
  // A later step is tried: nothing of it affects an earlier one. A load resets the step too.
  it.norms.note({0}, {.step = 4, .samples = batch_0}, large);
  it.norms.commit();
  it.norms.note({0}, {.step = 5, .samples = batch_0}, large);
  cm::checkpoint::load(it.m, folder);
  CHECK(weights(3) == std::vector<double>(std::size_t{rows}, 2.0));
  it.norms.commit();
  CHECK(weights(4) == std::vector<double>(std::size_t{rows}, 2.0));
  CHECK_THROWS_WITH(weights(3), ContainsSubstring("count steps up"));
  cm::checkpoint::load(it.m, folder);
  it.norms.forget();  // leaves what was loaded
  CHECK(weights(3) == std::vector<double>(std::size_t{rows}, 2.0));
}

TEST_CASE("norms begin behind a load of a checkpoint without norms", "[activation]")
{
  support::memory_folder folder;
  const auto declare = [](manager& m) {
    const auto made = m.add<float>({width, 2}, cm::role::parameter);
    m.name(made, "w");
    return made;
  };
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  {
    manager m{memory, {.chunk_bytes = 4_KiB}};
    std::ranges::fill(m.acquire(declare(m), cm::access::write).span(), 3.0F);
    cm::checkpoint::save(m, folder);
  }
  manager m{memory, {.chunk_bytes = 4_KiB}};
  act::norm_cache norms{{.name = "sampling", .samples = samples}};
  const auto site = norms.add("input", rows_of_sample);
  const auto weight = declare(m);
  act::sampled_input<manager, float> kept{m, norms, site, {.rows = rows, .width = width, .ratio = 0.5}, {weight}};
  cm::checkpoint::load(m, folder);
  m.use(norms);
  CHECK(m.acquire(weight, cm::access::read).span()[3] == 3);
  const auto x = numbers(1, rows * width);
  kept.keep({.step = 0, .samples = batch_0}, std::span<const float>{x});
  cm::checkpoint::save(m, folder);  // with norms from here on
  cm::checkpoint::load(m, folder);
}

TEST_CASE("micro-batches and replicas with the same numbers draw other rows, and are not taken for one another",
          "[activation]")
{
  shared_input it{0.4, 0}, alone{0.4, 0};
  const auto x = numbers(1, rows * width), y = numbers(9, rows * width);
  const auto first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  const act::sampled_batch batch{.step = 0, .samples = batch_0};
  const act::sampled_batch next{.step = 0, .samples = batch_0, .micro_batch = 1};
  const act::sampled_batch elsewhere{.step = 0, .samples = batch_0, .replica = 1};
  alone.keep(batch, x);
  const std::vector<float> right = alone.back(batch, first, second);
  it.keep(batch, x);
  CHECK_THROWS_WITH(it.keep(batch, y), ContainsSubstring("keeps other rows for this batch of step 0 already"));
  it.kept->keep(batch, std::span<const float>{x});  // the same once more, as of a block that runs forward again
  const bool is_kept = it.back(batch, first, second) == right;
  CHECK(is_kept);
  for (const act::sampled_batch& other : {next, elsewhere}) {
    it.keep(batch, x);
    it.keep(other, x);
    CHECK_THROWS_WITH(it.back(batch, first, second), ContainsSubstring("another batch"));
    const bool is_other = it.back(other, first, second) != right;
    CHECK(is_other);
  }
  // Two caches of one seed, and an input of one name.
  act::norm_cache others{{.name = "stage 1", .seed = 42}};
  const auto site = others.add("input", rows_of_sample);
  CHECK(others.key_of(site, batch).seed != it.norms.key_of({0}, batch).seed);
}

TEST_CASE("kept rows outlive a rehearsal and a call of keep that is refused", "[activation]")
{
  shared_input it{0.4}, alone{0.4};
  const auto x = numbers(1, rows * width), first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  const act::sampled_batch batch{.step = 0, .samples = batch_0};
  alone.keep(batch, x);
  const std::vector<float> right = alone.back(batch, first, second);
  it.keep(batch, x);
  CHECK_THROWS_WITH(it.kept->keep(batch, std::span{x}.first(7)), ContainsSubstring("7 elements"));
  CHECK_THROWS_WITH(it.kept->keep({.step = 0}, std::span<const float>{x}), ContainsSubstring("without numbers"));
  (void)it.m.rehearse([&] {
    (void)it.m.acquire(it.input, cm::access::write);
    it.kept->keep(batch, it.input);
    const auto product = [](const auto&) {};
    act::sampled(*it.kept, batch, cm::on_this_thread, act::linear_slope{std::span<const float>{}, 5U, [] {}, product});
  });
  const bool is_kept = it.back(batch, first, second) == right;
  CHECK(is_kept);
}

TEST_CASE("all gradients are looked at before the first product, and a product that throws can be called again",
          "[activation]")
{
  shared_input it{0.4};
  const auto x = numbers(1, rows * width), first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  const act::sampled_batch batch{.step = 0, .samples = batch_0};
  it.keep(batch, x);
  CHECK_THROWS_WITH(it.back(batch, first, first), ContainsSubstring("60 elements"));
  CHECK(it.order.empty());
  CHECK_THROWS_WITH(it.back({.step = 0, .samples = batch_0, .loss_scale = 0}, first, second),
                    ContainsSubstring("a loss scale of 0"));
  CHECK(it.order.empty());
  int calls = 0;
  const auto stop = [&](const auto&) {
    if (calls++ == 0) throw std::runtime_error{"stop"};
  };
  std::vector<double> sums;
  const auto add = [&](const auto& rows_of) { sums.push_back(double{rows_of.slopes[0]}); };
  const act::linear_slope one{std::span{first}, 5U, [] {}, add};
  const act::linear_slope two{std::span{second}, 3U, [] {}, stop};
  CHECK_THROWS_WITH(act::sampled(*it.kept, batch, cm::on_this_thread, one, two), ContainsSubstring("stop"));
  act::sampled(*it.kept, batch, cm::on_this_thread, one, two);
  REQUIRE(sums.size() == 2);
  CHECK(sums[0] == sums[1]);
  it.norms.commit();
  // The norms are those of one call.
  it.kept->keep({.step = 1, .samples = batch_0}, std::span<const float>{x});
  double h = 0, d = 0;
  for (std::size_t at = 0; at < width; ++at) h += double{x[at]} * double{x[at]};
  for (std::size_t at = 0; at < 5; ++at) d += double{first[at]} * double{first[at]};
  for (std::size_t at = 0; at < 3; ++at) d += double{second[at]} * double{second[at]};
  CHECK(it.kept->weights()[0] == Catch::Approx(std::sqrt(h * d)).epsilon(1.0 / 256));

  // A product that uses another input of the cache would change the squares of this one.
  shared_input plain{0.4};
  act::norm_cache norms{{.name = "two", .samples = samples}};
  const auto a = norms.add("a", rows_of_sample), b = norms.add("b", rows_of_sample);
  plain.m.use(norms);
  const act::sampling_options how{.rows = rows, .width = width, .ratio = 0.5};
  act::sampled_input<manager, float> outer{plain.m, norms, a, how, {plain.first}};
  act::sampled_input<manager, float> inner{plain.m, norms, b, how, {plain.first}};
  for (auto* each : {&outer, &inner}) each->keep(batch, std::span<const float>{x});
  const auto nested = [&](auto call) {
    act::sampled(outer, batch, cm::on_this_thread,
                 act::linear_slope{std::span{first}, 5U, [] {}, [&](const auto&) { call(); }});
  };
  const auto refused = ContainsSubstring("\"b\" was used by a product of \"a\"");
  CHECK_THROWS_WITH(nested([&] { act::sampled(inner, batch, cm::on_this_thread, two); }), refused);
  CHECK_THROWS_WITH(nested([&] { inner.keep(batch, std::span<const float>{x}); }), refused);
  nested([] {});
  act::sampled(inner, batch, cm::on_this_thread, two);
}

TEST_CASE("a rehearsal asks for what a step with sampled inputs takes", "[activation]")
{
  shared_input it{0.4}, plenty{0.4};
  const auto x = numbers(1, rows * width), first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  const act::sampled_batch batch{.step = 0, .samples = batch_0};
  const auto step = [&](shared_input& of) {
    const auto pin = of.m.acquire(of.input, cm::access::write);
    if (!of.m.rehearsing()) std::ranges::copy(x, pin.span().begin());
  };
  const cm::bytes needed =
      it.m.rehearse([&] {
            step(it);
            it.kept->keep(batch, it.input);
            const std::span<const float> none;
            std::uint64_t calls = 0;
            const auto count = [&](const auto& rows_of) { calls += rows_of.count; };
            act::sampled(*it.kept, batch, cm::on_this_thread, act::linear_slope{none, 5U, [] {}, count},
                         act::linear_slope{none, 3U, [] {}, count});
            REQUIRE(calls == 10);
          })
          .smallest_device;
  step(plenty);
  plenty.kept->keep(batch, plenty.input);
  (void)plenty.back(batch, first, second);
  CHECK(plenty.m.report().peak[cm::tier::device] <= needed);
  it.keep(batch, x);
  const bool is_same = it.back(batch, first, second) == [&] {
    plenty.norms.forget();
    plenty.keep(batch, x);
    return plenty.back(batch, first, second);
  }();
  CHECK(is_same);
}

TEST_CASE("an infinity in a gradient is not sampled away, and is no norm", "[activation]")
{
  shared_input it{0.2};
  const auto x = numbers(1, rows * width), second = numbers(3, rows * 3);
  std::uint64_t step = 0;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (std::uint64_t row = 0; row < rows; ++row) {
      auto first = numbers(2, rows * 5);
      first[row * 5 + 2] = bad;
      act::sampled_batch batch{.step = step++, .samples = batch_0, .loss_scale = 1'024};
      it.keep(batch, x);
      const std::vector<float> seen = it.back(batch, first, second);
      REQUIRE(std::ranges::all_of(seen.begin(), seen.begin() + width * 5, [](float each) { return std::isnan(each); }));
      it.norms.commit();
      batch.step = step++;
      auto input = x;
      input[row * width] = bad;
      it.keep(batch, input);
      REQUIRE(std::isnan(it.back(batch, numbers(2, rows * 5), second)[0]));
      it.norms.commit();
    }
}

TEST_CASE("rows and slopes of 16 bits are kept as they are, and scaled in single precision", "[activation]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  act::norm_cache norms{{.name = "sampling", .samples = samples, .seed = 42}};
  const auto site = norms.add("input", rows_of_sample);
  m.use(norms);
  const auto weight = m.add<cm::bf16>({width, 2}, cm::role::parameter);
  act::sampled_input<manager, cm::bf16> kept{m, norms, site, {.rows = rows, .width = width, .ratio = 0.5}, {weight}};
  std::vector<cm::bf16> x(rows * width);
  std::vector<cm::fp16> d(rows * 2);
  for (std::uint64_t at = 0; at < x.size(); ++at) x[at] = cm::bf16{number(at)};
  for (std::uint64_t at = 0; at < d.size(); ++at) d[at] = cm::fp16{60'000 * number(900 + at)};  // scaled beyond fp16
  const act::sampled_batch batch{.step = 0, .samples = batch_0};
  kept.keep(batch, std::span<const cm::bf16>{x});
  bool has_larger = false;
  act::sampled(
      kept, batch, cm::on_this_thread,
      act::linear_slope{std::span<const cm::fp16>{d}, 2, [] {},
                        [&](const auto& it) {
                          REQUIRE(it.count == 6);
                          for (std::uint64_t at = 0; at < it.count; ++at) {
                            std::uint64_t row = 0;  // which one it is
                            while (row < rows && it.rows[at * width].bits() != x[row * width].bits()) ++row;
                            REQUIRE(row < rows);
                            for (std::uint64_t column = 0; column < width; ++column)
                              REQUIRE(it.rows[at * width + column].bits() == x[row * width + column].bits());
                            const float scale = it.slopes[2 * at] / static_cast<float>(d[2 * row]);
                            REQUIRE(scale > 0.3F);
                            REQUIRE(it.slopes[2 * at + 1] / static_cast<float>(d[2 * row + 1]) == Catch::Approx(scale));
                            has_larger = has_larger || std::abs(it.slopes[2 * at]) > 65'504;
                          }
                        }});
  CHECK(has_larger);
}

TEST_CASE("a loss scale changes no choice", "[activation]")
{
  const auto x = numbers(1, rows * width), first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  std::vector<std::vector<float>> left;
  for (const float scale : {1.0F, 4'096.0F}) {
    shared_input it{0.4};
    const auto times = [&](std::vector<float> of) {
      for (float& each : of) each *= scale;
      return of;
    };
    for (std::uint64_t step = 0; step < 3; ++step) {
      const act::sampled_batch batch{.step = step, .samples = batch_0, .loss_scale = scale};
      it.keep(batch, x);
      left.push_back(it.back(batch, times(first), times(second)));
      for (float& each : left.back()) each /= scale;
      it.norms.commit();
    }
  }
  for (std::size_t step = 0; step < 3; ++step) CHECK(left[step] == left[step + 3]);
}

TEST_CASE("mistakes with sampled inputs are refused in one sentence", "[activation]")
{
  const auto x = numbers(1, rows * width), first = numbers(2, rows * 5), second = numbers(3, rows * 3);
  const act::sampled_batch batch{.step = 0, .samples = batch_0};

  SECTION("a ratio, sizes")
  {
    for (const double ratio : {0.0, -0.5, 1.01, std::numeric_limits<double>::quiet_NaN()})
      CHECK_THROWS_WITH(shared_input{ratio}, ContainsSubstring("\"input\" has a ratio of"));
  }
  SECTION("a layer that is not linear, and one that is frozen")
  {
    shared_input it{0.5};
    act::norm_cache norms{{.name = "more"}};
    const auto site = norms.add("x", 1);
    const act::sampling_options how{.rows = 4, .width = width, .ratio = 0.5};
    const auto refused = [&](const cm::shape& extents, cm::role part) {
      const auto weight = it.m.add<float>(extents, part);
      it.m.name(weight, "w" + std::to_string(cm::index_of(weight.id)));
      return support::refusal<cm::config_error>([&] {
        act::sampled_input<manager, float>{it.m, norms, site, how, {weight}};
      });
    };
    using cm::role;
    CHECK_THAT(refused({width}, role::parameter), ContainsSubstring("is no weight of a linear layer"));
    CHECK_THAT(refused({4, width, 3, 3}, role::parameter), ContainsSubstring("is no weight of a linear layer"));
    CHECK_THAT(refused({width + 1, 4}, role::parameter), ContainsSubstring("one of them is 8"));
    CHECK_THAT(refused({width, 4}, role::activation), ContainsSubstring("is no weight of a linear layer"));
    CHECK_THAT(refused({width, 4}, role::frozen), ContainsSubstring("no weight that is trained"));
  }
  SECTION("an input that is read after it was given to sampling")
  {
    shared_input it{0.5};
    it.keep(batch, x);
    CHECK_THROWS_WITH(it.m.acquire(it.input, cm::access::read), ContainsSubstring("hidden"));
  }
  SECTION("samples")
  {
    shared_input it{0.5};
    CHECK_THROWS_WITH(it.keep({.step = 0}, x), ContainsSubstring("samples without numbers"));
    CHECK_THROWS_WITH(it.keep({.samples = batch_0}, x), ContainsSubstring("no step"));
    constexpr std::array<std::uint64_t, 4> beyond = {0, 1, 12, 3};
    CHECK_THROWS_WITH(it.keep({.step = 0, .samples = beyond}, x),
                      ContainsSubstring("sample 12") && ContainsSubstring("of 12 samples"));
    CHECK_THROWS_WITH(it.keep({.step = 0, .samples = std::span{batch_0}.first(3)}, x),
                      ContainsSubstring("12 rows for 3 samples of 3 rows each"));
    for (const float scale : {0.0F, -1.0F, std::numeric_limits<float>::infinity()})
      CHECK_THROWS_WITH(it.keep({.step = 0, .samples = batch_0, .loss_scale = scale}, x),
                        ContainsSubstring("a loss scale"));
    CHECK_THROWS_WITH(it.kept->keep(batch, std::span{x}.first(7)), ContainsSubstring("7 elements"));
  }
  SECTION("calls out of order")
  {
    shared_input it{0.5};
    CHECK_THROWS_WITH(it.back(batch, first, second), ContainsSubstring("no rows of it are kept"));
    it.keep(batch, x);
    CHECK_THROWS_WITH(it.back({.step = 1, .samples = batch_0}, first, second), ContainsSubstring("another batch"));
    CHECK_THROWS_WITH(it.back(batch, second, second),
                      ContainsSubstring("36 elements") && ContainsSubstring("12 rows of 5"));
    (void)it.back(batch, first, second);
    CHECK_THROWS_WITH(it.back(batch, first, second), ContainsSubstring("no rows of it are kept"));
    CHECK_THROWS_WITH(it.keep({.step = 1, .samples = batch_0}, x),
                      ContainsSubstring("of step 0 were not committed before step 1"));
    it.norms.commit();
    CHECK_THROWS_WITH(it.keep(batch, x), ContainsSubstring("was given step 0, and the norms \"sampling\" of step 0"));
    shared_input fresh{0.5};
    const auto layer = fresh.m.add<float>({width, 2}, cm::role::parameter);
    const act::sampling_options how{.rows = rows, .width = width, .ratio = 0.5};
    using input_type = act::sampled_input<manager, float>;
    CHECK_THROWS_WITH((input_type{fresh.m, fresh.norms, {0}, how, {layer}}),
                      ContainsSubstring("layers with other weights"));
    (void)input_type{fresh.m, fresh.norms, {0}, how, {fresh.second, fresh.first}};  // more rows of the same layers
  }
  SECTION("a cache of another model, and one that no manager has")
  {
    act::norm_cache mine{{.name = "n", .samples = 4}}, other{{.name = "n", .samples = 4}};
    const auto site = mine.add("layer 0", 2);
    (void)other.add("layer 1", 2);
    CHECK_THROWS_WITH(mine.commit(), ContainsSubstring("before a manager was given them"));
    // A second cache of one name: the manager refuses it, and it stays unused.
    shared_input it{0.5};
    act::norm_cache twin{{.name = "sampling", .samples = 4}};
    const auto of_twin = twin.add("layer 0", 2);
    CHECK_THROWS_WITH(it.m.use(twin), ContainsSubstring("have one name"));
    std::array<double, 2> none{1, 1};
    CHECK_THROWS_WITH(twin.weigh(of_twin, {.step = 0, .samples = std::span{batch_0}.subspan(1, 1)}, none),
                      ContainsSubstring("before a manager was given them"));
    std::span<std::byte> saved, loaded;
    tie(mine);
    other.for_each_state([&](const cm::restart_state& state) { saved = state.content; });
    mine.for_each_state([&](const cm::restart_state& state) {
      loaded = state.content;
      state.check(saved);
    });
    REQUIRE(saved.size() == loaded.size());
    std::vector<std::byte> spoilt(saved.begin(), saved.end());
    spoilt.back() = std::byte{0xbf};  // a negative norm
    void (*check)(std::span<const std::byte>) = nullptr;
    act::norm_cache third{{.name = "n"}};
    third.for_each_state([&](const cm::restart_state& state) { check = state.check; });
    CHECK_THROWS_WITH(check(spoilt), ContainsSubstring("at byte 62"));
    spoilt.front() = std::byte{1};
    CHECK_THROWS_WITH(check(spoilt), ContainsSubstring("by rule 1"));
    spoilt.front() = std::byte{2};  // draws of weights that were no whole numbers
    CHECK_THROWS_WITH(check(spoilt), ContainsSubstring("by rule 2, and this version has rule 3"));
    std::ranges::copy(saved, loaded.begin());
    std::array<double, 2> weights{1, 1};
    CHECK_THROWS_WITH(mine.weigh(site, {.step = 0, .samples = std::span{batch_0}.subspan(1, 1)}, weights),
                      ContainsSubstring("are of another model"));
    CHECK_THROWS_WITH(mine.add("layer 2", 2), ContainsSubstring("after m.use()"));
    act::norm_cache names{{.name = "m"}};
    (void)names.add("a", 1);
    CHECK_THROWS_WITH(names.add("a", 1), ContainsSubstring("two sampled inputs are called \"a\""));
    CHECK_THROWS_WITH(names.add("b", 0), ContainsSubstring("no rows for a sample"));
    CHECK_THROWS_WITH(act::norm_cache{{}}, ContainsSubstring("without a name"));
    CHECK_THROWS_WITH((act::norm_cache{{.name = "k", .samples = UINT64_MAX}}.add("a", 2)),
                      ContainsSubstring("more than"));
  }
}

}  // namespace sampled_test
