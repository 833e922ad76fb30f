// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/loop_sampling.hpp>
#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/row_choice.hpp>
#include <chunkmem/activation/sampled.hpp>
#include <chunkmem/activation/sampled_input.hpp>
#include <chunkmem/activation/sampling_kernels.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/fake_device.hpp>
#include <support/figures.hpp>
#include <support/kernel_launcher.hpp>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace sampled_on_stream_test {

/// Inputs that kernels sample on a stream: the bits of those that the calling thread samples.

namespace cm = chunkmem;
namespace act = chunkmem::activation;
using namespace cm::literals;
using act::detail::choice_state;
using Catch::Matchers::ContainsSubstring;
using support::any_backend;

namespace {

/// Numbers that repeat on every machine, some of them denormal, some 0.
float number(std::uint64_t seed)
{
  seed = (seed + 1) * 0x9e3779b97f4a7c15U;
  seed ^= seed >> 29U;
  seed *= 0xbf58476d1ce4e5b9U;
  const float size = seed % 16 == 0 ? 1e-39F : seed % 16 == 1 ? 0.0F : seed % 16 == 2 ? 50.0F : 1.0F;
  return size * static_cast<float>(static_cast<std::int64_t>(seed >> 40U) - (1 << 23)) / (1 << 23);
}

template <class Number>
bool same_bits(const std::vector<Number>& left, const std::vector<Number>& right)
{
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(Number)) == 0);
}

/// A choice and its rows, as kernels find them one after another.
template <class Element>
struct by_kernels {
  std::vector<Element> rows;
  std::vector<std::int32_t> indices;
  std::vector<float> scales;
  std::uint64_t always = 0;

  by_kernels(const std::vector<Element>& input, std::size_t count, std::size_t kept,
             const act::detail::expected_norms& how, const std::vector<std::uint16_t>& norms,
             const cm::rounding_key& key)
      : rows(input.size() / count * kept), indices(kept), scales(kept)
  {
    const std::size_t width = input.size() / count, parts = (width + 4095) / 4096;
    std::vector<double> sums(count * parts);
    std::vector<std::uint64_t> numbers(count), keys(count), sorted(count), units(count + 1), places(kept),
        ordered(kept), largest((count + 1023) / 1024);
    choice_state state{};
    const auto run = [](const auto& kernel) { cm::optimizer::loop_launcher::run(kernel); };
    run(act::detail::row_squares_kernel<Element>{input.data(), count, width, sums.data()});
    run(act::detail::add_squares_kernel{sums.data(), numbers.data(), count, parts, true});
    run(act::detail::weigh_kernel{numbers.data(), norms.data(), count, how});
    run(act::detail::largest_number_kernel{numbers.data(), count, largest.data()});
    run(act::detail::largest_number_kernel{largest.data(), largest.size(), &state.largest, true});
    run(act::detail::keys_kernel{numbers.data(), keys.data(), count, &state});
    run(act::detail::sort_down_kernel{keys.data(), sorted.data(), count});
    run(act::detail::units_kernel{sorted.data(), units.data(), count});
    run(act::detail::add_up_kernel{units.data(), count + 1});
    const act::detail::row_line line{sorted.data(), units.data(), count, kept};
    run(act::detail::always_kernel{line, &state});
    run(act::detail::places_kernel{line, &state, places.data(), key});
    run(act::detail::sort_down_kernel{places.data(), ordered.data(), kept});
    run(act::detail::keep_rows_kernel<Element>{ordered.data(), input.data(), rows.data(), indices.data(), scales.data(),
                                               kept, width});
    always = state.always;
  }
};

template <class Element>
void compare_kernels(std::size_t count, std::size_t width, std::size_t kept, bool has_norms, bool has_nan)
{
  INFO(count << " rows of " << width << ", " << kept << " kept");
  std::vector<Element> input(count * width);
  for (std::size_t at = 0; at < input.size(); ++at) input[at] = Element{number(at + kept)};
  if (has_nan) input[width * (count / 2)] = Element{std::numeric_limits<float>::quiet_NaN()};
  std::vector<std::uint16_t> norms(count);
  act::detail::expected_norms how;
  if (has_norms) {
    for (std::size_t row = 0; row < count; ++row)
      norms[row] = row % 3 == 0 ? std::uint16_t{0} : cm::bf16{1 + std::abs(number(row + 77))}.bits();
    how = {1.3, 1.3 / 1024, true};
  }
  const cm::rounding_key key{.seed = 9, .step = kept, .tensor = 3, .list = 1};
  const by_kernels<Element> made{input, count, kept, how, norms, key};

  std::vector<double> weights(count);
  act::detail::add_squares(cm::on_this_thread, std::span<const Element>{input}, std::span{weights});
  for (std::size_t row = 0; row < count; ++row) {
    weights[row] = std::sqrt(weights[row]);
    if (has_norms) weights[row] *= how.of(norms[row]);
  }
  act::row_choice choice{count};
  std::vector<std::int32_t> indices(kept);
  std::vector<float> scales(kept);
  const std::size_t always = choice.choose(weights, indices, scales, key);
  REQUIRE(indices == made.indices);
  REQUIRE(same_bits(scales, made.scales));
  if (!has_nan && kept < count) REQUIRE(always == made.always);
  for (std::size_t at = 0; at < kept; ++at) {
    const auto row = static_cast<std::size_t>(indices[at]);
    REQUIRE(std::memcmp(made.rows.data() + at * width, input.data() + row * width, width * sizeof(Element)) == 0);
  }
}

}  // namespace

TEST_CASE("kernels choose the rows that the calling thread chooses", "[activation]")
{
  for (const bool has_norms : {false, true}) {
    compare_kernels<float>(1, 5, 1, has_norms, false);
    compare_kernels<float>(1'500, 7, 450, has_norms, false);
    compare_kernels<float>(24, 4'097, 7, has_norms, false);
    compare_kernels<float>(7, 9'000, 3, has_norms, false);
    compare_kernels<cm::bf16>(96, 40, 29, has_norms, false);
    compare_kernels<cm::fp16>(96, 33, 90, has_norms, false);
    compare_kernels<cm::fp16>(96, 33, 96, has_norms, false);
    compare_kernels<float>(50, 3, 20, has_norms, true);
  }
}

namespace {

constexpr std::uint32_t width = 64, rows_of_sample = 3, samples = 12, most_samples = 4, in_step = 6, inputs = 3;
constexpr std::uint64_t rows = std::uint64_t{rows_of_sample} * most_samples;
constexpr std::uint64_t outputs[2] = {5, 3};

/// Writes numbers, as the previous layer would.
template <class Element>
struct write_kernel {
  Element* to;
  std::uint64_t size, seed;
  float factor;
  std::uint64_t bad;  ///< this one is NaN

  [[nodiscard]] std::uint64_t count() const noexcept { return size; }
  [[nodiscard]] const write_kernel& prepared() const noexcept { return *this; }
  void operator()(std::uint64_t at) const noexcept
  {
    to[at] = Element{at == bad ? std::numeric_limits<float>::quiet_NaN() : factor * number(seed + at)};
  }
};

/// sum = rows^T slopes, one element.
struct product_kernel {
  const cm::bf16* of_rows;
  const float* slopes;
  float* sum;
  std::uint64_t kept, many;

  [[nodiscard]] std::uint64_t count() const noexcept { return width * many; }
  [[nodiscard]] const product_kernel& prepared() const noexcept { return *this; }
  void operator()(std::uint64_t at) const noexcept
  {
    float total = 0;
    for (std::uint64_t row = 0; row < kept; ++row)
      total = std::fma(static_cast<float>(of_rows[row * width + at / many]), slopes[row * many + at % many], total);
    sum[at] = total;
  }
};

/// Words of ranks that are threads.
struct rank_end {
  std::vector<std::vector<std::uint64_t>>& words;
  std::barrier<>& all_here;
  std::uint32_t mine;

  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(words.size()); }
  void exchange(std::span<const std::uint64_t> own, std::span<std::uint64_t> all)
  {
    words[mine].assign(own.begin(), own.end());
    all_here.arrive_and_wait();
    auto to = all.begin();
    for (const auto& each : words) to = std::ranges::copy(each, to).out;
    all_here.arrive_and_wait();
  }
};

/// Every part on a thread of its own.
struct some_threads {
  unsigned many;
  [[nodiscard]] unsigned threads() const { return many; }
  template <class Work>
  void run(unsigned parts, Work&& work) const
  {
    std::vector<std::thread> others;
    for (unsigned part = 1; part < parts; ++part) others.emplace_back([&work, part] { work(part); });
    work(0);
    for (std::thread& each : others) each.join();
  }
};

struct settings {
  cm::bytes device = 256_KiB;
  std::string_view eviction = "lru";
  double ratio = 0.4;
  std::uint64_t of_samples = samples;
  std::uint64_t bad_step = 3;  ///< that has a NaN in a gradient
  bool single = false;         ///< six batches of one sample, else one of four and one of two
  unsigned threads = 1;        ///< of a calling thread
  rank_end* rank = nullptr;    ///< of ranks that share the batches of a step
  std::uint64_t steps = 6;
};

/// Three inputs, each read by two layers, forward and backward in some batches of each step.
///
/// Numbers are written and products are done by kernels, with a launcher or at once.
template <class Backend, class Launcher>
class training {
 public:
  using eviction_type = cm::eviction::any_eviction<cm::eviction::lru, cm::eviction::belady, cm::eviction::fifo>;
  using manager_type = cm::manager<Backend, cm::transfer::no_prefetch, eviction_type>;
  using input_type = act::sampled_input<manager_type, cm::bf16, Launcher>;

  training(Backend& memory, const settings& how)
      : how_{how},
        memory_{memory},
        m{memory, {.chunk_bytes = 2_KiB}, eviction_type{how.eviction}},
        norms_{{.name = "sampling", .samples = how.of_samples, .seed = 42}}
  {
    std::array<act::norm_cache::site, inputs> sites{};
    for (std::uint32_t which = 0; which < inputs; ++which)
      sites[which] = norms_.add("input " + std::to_string(which), rows_of_sample);
    m.use(norms_);
    for (std::uint32_t which = 0; which < inputs; ++which) {
      const auto first = m.template add<float>({width, outputs[0]}, cm::role::parameter);
      const auto second = m.template add<float>({outputs[1], width}, cm::role::frozen);
      kept_.emplace_back(m, norms_, sites[which],
                         act::sampling_options{.rows = rows, .width = width, .ratio = how.ratio},
                         std::initializer_list<cm::tensor_handle>{first, second});
      hidden_[which] = m.template add<cm::bf16>({rows, width}, cm::role::activation);
      sums_[which] = m.template add<float>({width, 8}, cm::role::activation);
    }
    first_slope_ = m.template add<float>({rows, outputs[0]}, cm::role::activation);
    second_slope_ = m.template add<cm::fp16>({rows, outputs[1]}, cm::role::activation);
  }

  void step(std::uint64_t number_of_step)
  {
    auto iteration = m.iteration("train");
    for (std::uint64_t at = 0; at < in_step; ++at)
      now_[at] = (number_of_step * 5 + at * (number_of_step % 2 == 0 ? 1 : 7)) % samples;
    const std::uint32_t rank = how_.rank != nullptr ? how_.rank->mine : 0,
                        ranks = how_.rank != nullptr ? how_.rank->ranks() : 1;
    std::uint32_t micro = 0;
    for (std::size_t at = 0, many = 0; at < in_step; at += many, ++micro) {
      many = how_.single ? 1 : std::min<std::size_t>(most_samples, in_step - at);
      const act::sampled_batch batch{
          .step = number_of_step, .samples = std::span{now_}.subspan(at, many), .loss_scale = 64};
      if (micro % ranks != rank) continue;
      for (std::uint32_t which = 0; which < inputs; ++which) forward(which, batch, many * rows_of_sample);
      for (std::uint32_t which = inputs; which-- > 0;) backward(which, batch, many * rows_of_sample);
      if (how_.single) read_sums();
    }
    if (how_.rank != nullptr)
      norms_.commit(*how_.rank);
    else
      norms_.commit();
    if (!how_.single) read_sums();
  }

  /// All products of all steps, and the norms that are kept.
  [[nodiscard]] const std::vector<float>& products() const noexcept { return products_; }
  [[nodiscard]] std::vector<float> state()
  {
    std::vector<float> all;
    m.content().states().for_each([&](std::string_view, std::span<const std::byte> content) {
      for (const std::byte each : content) all.push_back(static_cast<float>(std::to_integer<int>(each)));
    });
    return all;
  }
  [[nodiscard]] std::vector<float> left()
  {
    std::vector<float> all = state();
    all.insert(all.end(), products_.begin(), products_.end());
    return all;
  }
  void forget_products() { products_.clear(); }
  [[nodiscard]] act::norm_cache& norms() noexcept { return norms_; }
  [[nodiscard]] input_type& input(std::size_t which) noexcept { return kept_[which]; }
  void end_last_input() { kept_.pop_back(); }

 private:
  static constexpr bool is_on_stream = input_type::is_on_stream;
  static constexpr cm::agent stream = is_on_stream ? cm::agent::compute : cm::agent::host;

  template <class Kernel>
  void run(const Kernel& kernel)
  {
    if constexpr (is_on_stream)
      Launcher{}(memory_, stream, kernel);
    else
      cm::optimizer::loop_launcher::run(kernel);
  }
  template <class Element>
  auto written(cm::tensor<Element> tensor, std::uint64_t size, std::uint64_t seed, float factor = 1,
               std::uint64_t bad = UINT64_MAX)
  {
    auto pin = m.acquire(tensor, cm::access::write, stream);
    run(write_kernel<Element>{pin.data(), size, seed, factor, bad});
    return pin;
  }
  void forward(std::uint32_t which, const act::sampled_batch& batch, std::uint64_t here)
  {
    (void)written(hidden_[which], here * width, 1'000 * which + batch.samples[0] * 64);
    const auto pin = m.acquire(hidden_[which], cm::access::read, stream);
    const std::span<const cm::bf16> x{pin.data(), here * width};
    if constexpr (is_on_stream)
      kept_[which].keep(batch, x, stream);
    else
      kept_[which].keep(batch, x, workers_);
  }
  void backward(std::uint32_t which, const act::sampled_batch& batch, std::uint64_t here)
  {
    const std::uint64_t seed = 5'000 + 100 * which + batch.samples[0] * 64;
    const bool is_bad = batch.step == how_.bad_step && which == 1;
    const auto first = written(first_slope_, here * outputs[0], seed, 64, is_bad ? 4 : UINT64_MAX);
    const auto second = written(second_slope_, here * outputs[1], seed + 500, 64);
    const auto sum = m.acquire(sums_[which], cm::access::write, stream);  // both micro-batches: the last one stays
    const auto into = [&](std::uint64_t begin, std::uint64_t many) {
      return [&, begin, many](const auto& it) {
        run(product_kernel{it.rows, it.slopes, sum.data() + begin, it.count, many});
      };
    };
    const std::span<const float> d{first.data(), here * outputs[0]};
    const std::span<const cm::fp16> e{second.data(), here * outputs[1]};
    const auto nothing = [] {};
    const act::linear_slope one{d, outputs[0], nothing, into(0, outputs[0])};
    const act::linear_slope two{e, outputs[1], nothing, into(width * outputs[0], outputs[1])};
    if constexpr (is_on_stream)
      act::sampled(kept_[which], batch, stream, one, two);
    else
      act::sampled(kept_[which], batch, workers_, one, two);
  }
  void read_sums()
  {
    for (std::uint32_t which = 0; which < inputs; ++which) {
      const auto pin = m.acquire(sums_[which], cm::access::read, cm::memory_location::host);
      products_.insert(products_.end(), pin.span().begin(), pin.span().begin() + width * 8);
    }
  }

  settings how_;
  some_threads workers_{how_.threads};
  Backend& memory_;

 public:
  manager_type m;

 private:
  act::norm_cache norms_;
  std::deque<input_type> kept_;
  std::array<cm::tensor<cm::bf16>, inputs> hidden_;
  std::array<cm::tensor<float>, inputs> sums_;
  cm::tensor<float> first_slope_;
  cm::tensor<cm::fp16> second_slope_;
  std::array<std::uint64_t, in_step> now_{};
  std::vector<float> products_;
};

/// Less than all inputs need together: kept rows are evicted between the passes.
constexpr cm::bytes tight_device = 12_KiB;

template <class Launcher, class Backend>
std::vector<float> trained_on(Backend& memory, const settings& how)
{
  training<Backend, Launcher> it{memory, how};
  for (std::uint64_t step = 0; step < how.steps; ++step) it.step(step);
  if (how.device == tight_device) REQUIRE(it.m.report().evictions > 0);
  return it.left();
}

/// By the calling thread.
std::vector<float> right_for(const settings& how)
{
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 256_KiB, .host_capacity = 256_KiB}};
  settings roomy = how;
  roomy.device = 256_KiB;
  return trained_on<act::by_calling_thread>(memory, roomy);
}

using on_loops = act::loop_sampling<cm::optimizer::loop_launcher>;
using on_fake_gpu = act::loop_sampling<support::kernel_launcher>;

std::vector<float> on_adversarial(const settings& how, support::schedule when, std::uint64_t seed,
                                  support::adversarial::wait_filter skips = {})
{
  any_backend memory{support::adversarial_options{
      .device_capacity = how.device, .host_capacity = 256_KiB, .when = when, .seed = seed, .async_compute = true}};
  if (skips) memory.skip_wait(std::move(skips));
  const std::vector<float> left = trained_on<on_loops>(memory, how);
  memory.drain();
  if (memory.counters().skipped == 0) REQUIRE(memory.faults().empty());
  return left;
}

}  // namespace

TEST_CASE("inputs that are sampled on a stream have the bits of the calling thread, at any legal time", "[activation]")
{
  for (const double ratio : {0.4, 1.0})
    for (const std::uint64_t of_samples : {std::uint64_t{samples}, std::uint64_t{0}}) {
      INFO(ratio << ", " << of_samples << " samples with norms");
      settings how{.ratio = ratio, .of_samples = of_samples};
      const std::vector<float> right = right_for(how);
      REQUIRE(std::ranges::any_of(right, [](float each) { return std::isnan(each); }));
      for (const auto when : {support::schedule::latest, support::schedule::earliest, support::schedule::random})
        for (const cm::bytes device : {256_KiB, tight_device}) {
          how.device = device;
          const bool is_same = same_bits(on_adversarial(how, when, 7), right);
          CHECK(is_same);
        }
    }
}

TEST_CASE("a commit that does not wait for its norms is seen", "[activation]")
{
  const settings how{.bad_step = 99};
  const std::vector<float> right = right_for(how);
  const auto without = [&](auto skips) {
    return same_bits(on_adversarial(how, support::schedule::latest, 7, skips), right);
  };
  const bool is_same = without([](cm::agent, cm::event, std::uint64_t) { return false; });
  CHECK(is_same);
  // The calling thread waits for compute only in commit.
  const bool is_seen = !without([](cm::agent stream, cm::event point, std::uint64_t) {
    return stream == cm::agent::host && point.source == cm::agent::compute;
  });
  CHECK(is_seen);
}

TEST_CASE("inputs that are sampled on the fake GPU have the bits of the calling thread", "[activation]")
{
  for (const auto when : {support::fake_schedule::latest, support::fake_schedule::random})
    for (const cm::bytes device : {256_KiB, tight_device}) {
      const settings how{.device = device};
      support::fake_device memory{{.device_capacity = device, .host_capacity = 256_KiB, .when = when, .seed = 5}};
      const bool is_same = same_bits(trained_on<on_fake_gpu>(memory, how), right_for(how));
      CHECK(is_same);
      CHECK(memory.faults().empty());
    }
}

TEST_CASE("a step that samples on a stream allocates nothing when it is repeated, and waits in commit alone",
          "[activation]")
{
  if (!support::counts_allocations) SKIP("allocations are not counted here");
  any_backend memory{
      cm::backend::host_arena_options{.device_capacity = 256_KiB, .host_capacity = 256_KiB, .async_compute = true}};
  training<any_backend, on_loops> it{memory, {}};
  std::uint64_t step = 0;
  for (; step < 4; ++step) it.step(step);
  it.forget_products();
  const auto before = support::allocations_so_far();
  const auto other = it.m.report().waits.other;
  for (; step < 8; ++step) {
    it.step(step);
    it.forget_products();
  }
  CHECK((support::allocations_so_far() - before).all() == 0);
  CHECK(it.m.report().waits.other == other);
}

TEST_CASE("norms on their way are dropped by forget", "[activation]")
{
  any_backend memory{support::adversarial_options{
      .device_capacity = 256_KiB, .host_capacity = 256_KiB, .when = support::schedule::latest, .async_compute = true}};
  training<any_backend, on_loops> it{memory, {}};
  constexpr std::array<std::uint64_t, most_samples> some = {7, 2, 11, 5};
  const act::sampled_batch batch{.step = 0, .samples = some};
  std::vector<cm::bf16> x(rows * width, cm::bf16{1.0F});
  std::vector<float> d(rows * outputs[0], 1.0F);
  auto& first = it.input(0);
  // The adversarial device is memory of the host, so a span of the test serves as device memory.
  const act::linear_slope product{std::span<const float>{d}, outputs[0], [] {}, [](const auto&) {}};
  const auto there_and_back = [&] {
    first.keep(batch, std::span<const cm::bf16>{x}, cm::agent::compute);
    act::sampled(first, batch, cm::agent::compute, product);
  };
  there_and_back();
  it.norms().forget();
  std::vector<double> weights(rows, 1.0);
  it.norms().weigh({0}, {.step = 0, .samples = some}, weights);
  CHECK(weights == std::vector<double>(rows, 1.0));
  CHECK_THROWS_WITH(act::sampled(first, batch, cm::agent::compute, product),
                    ContainsSubstring("no rows of it are kept"));
  CHECK_THROWS_WITH(first.keep({.step = 0}, std::span<const cm::bf16>{x}, cm::agent::compute),
                    ContainsSubstring("without numbers"));
  CHECK_THROWS_WITH(first.keep(batch, std::span<const cm::bf16>{x}.first(7), cm::agent::compute),
                    ContainsSubstring("7 elements"));
  there_and_back();
  it.norms().commit();
  std::vector<double> later(rows, 1.0);
  it.norms().weigh({0}, {.step = 1, .samples = some}, later);
  CHECK(later[0] == Catch::Approx(std::sqrt(5.0)).epsilon(1.0 / 128));
  // Norms that do not come, as from a device that failed, erase none.
  (void)it.norms().note_later({0}, {.step = 1, .samples = some}, rows);
  it.norms().commit();
  std::vector<double> then(rows, 1.0);
  it.norms().weigh({0}, {.step = 2, .samples = some}, then);
  CHECK(then == later);
  memory.drain();
  CHECK(memory.faults().empty());
}

namespace {

/// The norms that are left where an input ends between `sampled` and `commit`.
template <class Launcher, class Backend>
std::vector<float> left_by_input_that_ends(Backend& memory)
{
  training<Backend, Launcher> it{memory, {}};
  it.step(0);
  constexpr std::array<std::uint64_t, most_samples> some = {0, 2, 1, 5};
  const act::sampled_batch batch{.step = 1, .samples = some};
  const std::vector<cm::bf16> x(rows * width, cm::bf16{1.0F});
  std::vector<float> d(rows * outputs[0], 3.0F);
  d[0] = std::numeric_limits<float>::infinity();  // of a row whose norm stays
  const act::linear_slope product{std::span<const float>{d}, outputs[0], [] {}, [](const auto&) {}};
  auto& last = it.input(inputs - 1);
  const std::vector<float> before = it.state();
  if constexpr (std::is_same_v<Launcher, act::by_calling_thread>) {
    last.keep(batch, std::span<const cm::bf16>{x});
    act::sampled(last, batch, cm::on_this_thread, product);
  } else {
    last.keep(batch, std::span<const cm::bf16>{x}, cm::agent::compute);
    act::sampled(last, batch, cm::agent::compute, product);
  }
  it.end_last_input();
  it.norms().commit();
  const std::vector<float> after = it.state();
  CHECK(after != before);
  return after;
}

}  // namespace

TEST_CASE("norms on their way from an input that ends are those of the calling thread", "[activation]")
{
  any_backend plain{cm::backend::host_arena_options{.device_capacity = 256_KiB, .host_capacity = 256_KiB}};
  const std::vector<float> right = left_by_input_that_ends<act::by_calling_thread>(plain);
  any_backend memory{support::adversarial_options{
      .device_capacity = 256_KiB, .host_capacity = 256_KiB, .when = support::schedule::latest, .async_compute = true}};
  const bool is_same = same_bits(left_by_input_that_ends<on_loops>(memory), right);
  CHECK(is_same);
  memory.drain();
  CHECK(memory.faults().empty());
}

namespace {

/// Eight inputs of one layer each, whose steps can be rehearsed.
template <class Launcher>
struct eight_layers {
  static constexpr std::uint64_t rows = 1'024, width = 16;
  using training_type = training<any_backend, Launcher>;
  using input_type = typename training_type::input_type;

  eight_layers(cm::bytes device, cm::bytes host, std::uint64_t columns)
      : many{columns},
        x(rows * width, cm::bf16{1.0F}),
        d(rows * columns, 1.0F),
        memory{
            cm::backend::host_arena_options{.device_capacity = device, .host_capacity = host, .async_compute = true}},
        m{memory, {.chunk_bytes = 2_KiB}, typename training_type::eviction_type{"lru"}}
  {
    std::vector<act::norm_cache::site> sites;
    for (int layer = 0; layer < 8; ++layer)
      sites.push_back(norms.add("layer " + std::to_string(layer), static_cast<std::uint32_t>(rows)));
    m.use(norms);
    for (const act::norm_cache::site each : sites) {
      const auto weight = m.template add<float>({width, columns}, cm::role::parameter);
      kept.emplace_back(m, norms, each, act::sampling_options{.rows = rows, .width = width, .ratio = 0.1},
                        std::initializer_list<cm::tensor_handle>{weight});
    }
  }
  void keep(std::size_t which, std::uint64_t step)
  {
    const auto all = m.rehearsing() ? std::span<const cm::bf16>{} : std::span<const cm::bf16>{x};
    if constexpr (input_type::is_on_stream)
      kept[which].keep({.step = step, .samples = one}, all, cm::agent::compute);
    else
      kept[which].keep({.step = step, .samples = one}, all);
  }
  void back(std::size_t which, std::uint64_t step)
  {
    const auto all = m.rehearsing() ? std::span<const float>{} : std::span<const float>{d};
    const act::linear_slope product{all, many, [] {}, [](const auto&) {}};
    const act::sampled_batch batch{.step = step, .samples = one};
    if constexpr (input_type::is_on_stream)
      act::sampled(kept[which], batch, cm::agent::compute, product);
    else
      act::sampled(kept[which], batch, cm::on_this_thread, product);
  }
  void step(std::uint64_t number, bool commits = true)
  {
    auto iteration = m.iteration("train");
    for (std::size_t layer = 0; layer < 8; ++layer) keep(layer, number);
    keep(7, number);  // as a block that runs again
    for (std::size_t layer = 8; layer-- > 0;) back(layer, number);
    if (commits) norms.commit();
  }

  std::uint64_t many;
  std::vector<cm::bf16> x;  // read by the stream until `memory` ends
  std::vector<float> d;
  std::array<std::uint64_t, 1> one{2};
  any_backend memory;
  typename training_type::manager_type m;
  act::norm_cache norms{{.name = "sampling", .samples = 4, .seed = 1}};
  std::deque<input_type> kept;
};

}  // namespace

TEST_CASE("a step that samples on a stream runs in the capacities that its rehearsal finds", "[activation]")
{
  const auto needs = [](cm::bytes device, cm::bytes host, bool commits) {
    eight_layers<on_loops> it{device, host, 4};
    return it.m.rehearse([&] { it.step(0, commits); });
  };
  const cm::bytes device = needs(1_MiB, 1_MiB, true).smallest_device;
  const cm::bytes host = needs(device, 1_MiB, true).smallest_host;
  CHECK(needs(device, 1_MiB, false).smallest_host == host);
  eight_layers<on_loops> it{device, host, 4};
  CHECK(it.m.rehearse([&] { it.step(0); }).smallest_host == host);
  CHECK_NOTHROW(it.m.rehearse([&] { it.step(0); }, cm::rehearse_on::scratch));
  for (std::uint64_t step = 0; step < 3; ++step) REQUIRE_NOTHROW(it.step(step));
  CHECK(host >= 16_KiB);  // a lease of 2 KiB for each input
}

TEST_CASE("rows that are kept on a stream and forgotten leave no lease behind", "[activation]")
{
  eight_layers<on_loops> it{1_MiB, 64_KiB, 4};
  const auto rounds = [&](std::uint64_t step, std::uint64_t many) {
    for (std::uint64_t round = 0; round < many; ++round) {
      it.one[0] = round % 4;
      it.keep(0, step);
      it.kept[0].forget();
    }
  };
  REQUIRE_NOTHROW(rounds(0, 40));  // no norm is known: 2 KiB in each round would be 80
  it.step(0);
  REQUIRE_NOTHROW(rounds(1, 40));
  it.keep(0, 1);
  it.back(0, 1);
  REQUIRE_NOTHROW(rounds(1, 40));  // behind norms that are on their way
  it.norms.commit();
}

TEST_CASE("rows that are kept on a stream and forgotten leave no lease behind, often", "[activation][.slow]")
{
  eight_layers<on_loops> it{1_MiB, 1_MiB, 4};
  REQUIRE_NOTHROW([&] {
    for (int round = 0; round < 5'000; ++round) {
      it.keep(0, 0);
      it.kept[0].forget();
    }
  }());
}

namespace {

template <class Launcher>
void compare_leases(std::uint64_t columns, bool is_back_largest)
{
  eight_layers<Launcher> it{4_MiB, 1_MiB, columns};
  const auto sizes = it.kept[0].working_bytes(columns);
  const auto leased = [&](bool both) {
    return it.m
        .rehearse([&] {
          auto iteration = it.m.iteration("train");
          it.keep(0, 0);
          if (both) it.back(0, 0);
        })
        .largest_leases;
  };
  CHECK(leased(false) == sizes.forward);
  CHECK(leased(true) == sizes.most());
  CHECK(sizes.most() == (is_back_largest ? sizes.backward : sizes.forward));
}

}  // namespace

TEST_CASE("the working bytes of a sampled input are what it leases", "[activation]")
{
  compare_leases<on_loops>(4, false);
  compare_leases<on_loops>(301, true);
  compare_leases<act::by_calling_thread>(4, true);
  compare_leases<act::by_calling_thread>(301, true);
}

namespace {

/// For one backend alone, and one that cannot add up.
struct of_arena : cm::optimizer::loop_launcher {
  std::uint64_t temporary_bytes(std::uint64_t) const { return 0; }
  void sort_down(any_backend&, cm::agent, const std::uint64_t*, std::uint64_t*, std::uint64_t, std::byte*,
                 std::uint64_t) const;
  void add_up(any_backend&, cm::agent, std::uint64_t*, std::uint64_t, std::byte*, std::uint64_t) const;
};
struct that_sorts_alone : cm::optimizer::loop_launcher {
  std::uint64_t temporary_bytes(std::uint64_t) const { return 0; }
  void sort_down(any_backend&, cm::agent, const std::uint64_t*, std::uint64_t*, std::uint64_t, std::byte*,
                 std::uint64_t) const;
};
static_assert(act::sampling_launcher<on_loops> && act::sampling_launcher<on_fake_gpu>);
static_assert(act::sampling_launcher<of_arena>);
static_assert(!act::sampling_launcher<that_sorts_alone>);

}  // namespace

TEST_CASE("an input that is refused on a stream has declared nothing", "[activation]")
{
  using training_type = training<any_backend, on_loops>;
  any_backend memory{
      cm::backend::host_arena_options{.device_capacity = 256_KiB, .host_capacity = 256_KiB, .async_compute = true}};
  training_type::manager_type m{memory, {.chunk_bytes = 2_KiB}, training_type::eviction_type{"lru"}};
  act::norm_cache norms{{.name = "sampling", .samples = 4, .measures_noise = true}};
  const auto site = norms.add("input", rows_of_sample);
  m.use(norms);
  const auto weight = m.add<float>({width, 4}, cm::role::parameter);
  const act::sampling_options how{.rows = rows, .width = width, .ratio = 0.5};
  CHECK_THROWS_WITH((training_type::input_type{m, norms, site, how, {weight}}),
                    ContainsSubstring("cannot be measured on a stream"));
  CHECK(norms.report().inputs[0].kept == 0_B);
  CHECK(norms.report().inputs[0].exact == 0_B);
  const auto next = m.add<float>({width, 4}, cm::role::parameter);
  CHECK(cm::index_of(next.id) == cm::index_of(weight.id) + 1);
}

namespace {

/// Runs of all products of settings.
struct tally {
  std::uint32_t runs = 0, identical = 0;

  void add(bool is_identical)
  {
    ++runs;
    identical += is_identical ? 1 : 0;
  }
  [[nodiscard]] double percent() const { return 100.0 * identical / runs; }
};

/// Eviction x capacity x {1 to 3 threads, a stream of host_arena, adversarial, fake CUDA}.
void compare_backends(tally& seen, double ratio, std::initializer_list<cm::bytes> capacities, std::uint64_t seeds)
{
  for (const std::string_view eviction : {"lru", "belady", "fifo"})
    for (const cm::bytes device : capacities) {
      const settings how{.device = device, .eviction = eviction, .ratio = ratio};
      const std::vector<float> right = right_for(how);
      for (unsigned threads = 1; threads <= 3; ++threads) {
        settings mine = how;
        mine.threads = threads;
        any_backend memory{cm::backend::host_arena_options{.device_capacity = device, .host_capacity = 256_KiB}};
        seen.add(same_bits(trained_on<act::by_calling_thread>(memory, mine), right));
      }
      any_backend memory{
          cm::backend::host_arena_options{.device_capacity = device, .host_capacity = 256_KiB, .async_compute = true}};
      seen.add(same_bits(trained_on<on_loops>(memory, how), right));
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        for (const auto when : {support::schedule::latest, support::schedule::random})
          seen.add(same_bits(on_adversarial(how, when, seed), right));
        support::fake_device gpu{{.device_capacity = device,
                                  .host_capacity = 256_KiB,
                                  .when = support::fake_schedule::latest,
                                  .seed = seed}};
        seen.add(same_bits(trained_on<on_fake_gpu>(gpu, how), right));
      }
    }
}

/// 1 to 3 ranks, whose batches are of one sample.
void compare_ranks(tally& seen)
{
  using training_type = training<any_backend, on_loops>;
  const settings how{.single = true};
  constexpr std::size_t of_batch = std::size_t{inputs} * width * 8;
  std::vector<float> right, state;
  for (std::uint32_t ranks = 1; ranks <= 3; ++ranks) {
    std::vector<std::vector<std::uint64_t>> words(ranks);
    std::barrier<> all_here{ranks};
    std::deque<rank_end> ends;
    std::vector<std::vector<float>> products(ranks), states(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) ends.push_back({words, all_here, rank});
    const auto train = [&](std::uint32_t rank) {
      settings mine = how;
      mine.rank = &ends[rank];
      any_backend memory{
          cm::backend::host_arena_options{.device_capacity = 256_KiB, .host_capacity = 256_KiB, .async_compute = true}};
      training_type it{memory, mine};
      for (std::uint64_t step = 0; step < how.steps; ++step) it.step(step);
      products[rank] = it.products();
      states[rank] = it.state();
    };
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) threads.emplace_back(train, rank);
    for (std::thread& each : threads) each.join();
    std::vector<float> together;
    for (std::uint64_t batch = 0; batch < how.steps * in_step; ++batch) {
      // Batches of a step go round; each rank has in_step / ranks of them.
      const std::uint64_t in = batch % in_step, rank = in % ranks;
      const std::uint64_t place = batch / in_step * (in_step / ranks) + in / ranks;
      const auto from = products[rank].begin() + static_cast<std::ptrdiff_t>(place * of_batch);
      together.insert(together.end(), from, from + static_cast<std::ptrdiff_t>(of_batch));
    }
    if (ranks == 1) right = together, state = states[0];
    seen.add(same_bits(together, right));
    for (const auto& each : states) seen.add(same_bits(each, state));
  }
}

/// Squares of rows with each instruction set that this processor has, and by a kernel.
template <class Element>
void compare_instruction_sets(tally& seen)
{
  for (const std::size_t length : {1U, 31U, 64U, 1'000U, 4'096U}) {
    std::vector<Element> row(length);
    for (std::size_t at = 0; at < length; ++at) row[at] = Element{number(at)};
    double kernels = 0;
    cm::optimizer::loop_launcher::run(act::detail::row_squares_kernel<Element>{row.data(), 1, length, &kernels});
    const auto with = [&](auto add) {
      cm::detail::measure_rows sums;
      add(sums, row.data(), length);
      seen.add(sums.folded().squares == kernels);
    };
    with([](auto& sums, const Element* from, std::size_t count) { sums.add(from, count); });
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
      with([](auto& sums, const Element* from, std::size_t count) { cm::detail::add_with_avx2(sums, from, count); });
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      with([](auto& sums, const Element* from, std::size_t count) { cm::detail::add_with_avx512(sums, from, count); });
#endif
  }
}

}  // namespace

TEST_CASE("sampled bits are the same for capacities, evictions, threads, ranks, instruction sets and backends",
          "[activation]")
{
  tally seen;
  compare_backends(seen, 0.4, {256_KiB, tight_device}, 1);
  compare_ranks(seen);
  compare_instruction_sets<float>(seen);
  compare_instruction_sets<cm::bf16>(seen);
  compare_instruction_sets<cm::fp16>(seen);
  CHECK(seen.runs > 80);
  CHECK(seen.identical == seen.runs);
  support::write_figures("test_activation.sampled_on_stream", "build/bench/bin/test_activation.sampled_on_stream",
                         {{"activation.sampled_bits_identical_percent", seen.percent(), "%", "==", 100}});
}

TEST_CASE("sampled bits are the same in a larger product of settings", "[activation][.slow]")
{
  tally seen;
  for (const double ratio : {0.3, 0.5, 0.75, 1.0})
    compare_backends(seen, ratio, {256_KiB, 16_KiB, 14_KiB, tight_device}, 8);
  CHECK(seen.identical == seen.runs);
}

}  // namespace sampled_on_stream_test
