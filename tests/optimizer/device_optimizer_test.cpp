// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/device_optimizer.hpp>

#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/update_site.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <kernels/stored_parameter.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/fake_cuda.hpp>
#include <support/kernel_launcher.hpp>
#include <support/oracles/dice.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace device_step_memory_test {

using namespace chunkmem::optimizer;

namespace {

template <class Kernel>
void places_are_apart(const device_step_sizes& sizes)
{
  using memory_type = device_step_memory<Kernel>;
  struct alignas(16) quad {
    char bytes[16];
  };
  const std::uint64_t size = memory_type::size(sizes).count();
  std::vector<quad> owner(size / 16 + 1);
  auto* const start = reinterpret_cast<std::byte*>(owner.data());
  const memory_type memory{start, sizes};
  std::uint64_t end = 0;
  const auto follows = [&](const auto* place, std::uint64_t count) {
    const auto at = static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(place) - start);
    CHECK(at >= end);
    CHECK(at < end + 16);
    CHECK(at % alignof(std::remove_cvref_t<decltype(*place)>) == 0);
    end = at + count * sizeof(*place);
  };
  follows(memory.state(), 1);
  follows(memory.rates(), sizes.groups);
  CHECK(memory.host_bytes().count() == end);
  follows(memory.factors(), sizes.groups);
  follows(memory.ranges(), sizes.parameters);
  follows(memory.measures(), sizes.parameters);
  follows(memory.sums(), sizes.blocks);
  CHECK(size == end);
}

}  // namespace

TEST_CASE("places in the memory of a device step follow each other, aligned and apart", "[optimizer]")
{
  for (const device_step_sizes& sizes :
       {device_step_sizes{}, device_step_sizes{1, 1, 1}, device_step_sizes{3, 7, 100}}) {
    places_are_apart<adam>(sizes);
    places_are_apart<sgd>(sizes);
  }
}

TEST_CASE("the memory of a device step costs what its comment says", "[optimizer]")
{
  CHECK(device_step_memory<adam>::size({2, 10, 1000}).count() == 72 + 2 * (4 + 48) + 10 * 40 + 1000 * 24);
}

}  // namespace device_step_memory_test

namespace device_step_test {

using namespace kernels;
using namespace cm::literals;
using cm::agent;
using cm::dtype;
using cm::tier;

namespace {

constexpr std::size_t sizes[] = {5'000, 1, 3, 700, 4'096, 130};
constexpr std::uint64_t spoilt_step = 3;

cm::group_id group_of(std::size_t index)
{
  return cm::group_id{static_cast<std::uint32_t>(index % 2)};
}
bool has_gradient(std::size_t index, std::uint64_t step)
{
  return (index + step) % 4 != 0;
}

opt::device_step_options options_with(const opt::loss_scale& scale)
{
  return {.clip = {.norm = 0.7F, .value = 0.6F}, .may_skip = true, .seed = 9, .loss = opt::rule_of(scale)};
}

/// Parameters of all kinds, with the effect of a host's step.
template <class Kernel>
struct host_model {
  explicit host_model(const Kernel& how) : kernel{how}
  {
    const bool masters = !kernel.lists().empty() && kernel.lists().back().use == cm::list_use::master;
    const auto kinds = parameter_cases(masters);
    for (std::size_t index = 0; index < std::size(sizes); ++index)
      parameters.emplace_back(kernel, kinds[index % kinds.size()], sizes[index]);
  }

  void differentiate(std::uint64_t step)
  {
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      stored_parameter& it = parameters[index];
      fresh[index] = it.describe(started[index] ? 2 : 1).fresh_master;
      over[index] = it.how.in_place && started[index];
      if (!has_gradient(index, step)) continue;
      placed_bytes& target = over[index] ? it.value : it.gradient;
      for (std::size_t bytes = 0; bytes < target.size(); bytes += cm::size_of(it.how.gradient))
        put(target.data() + bytes, it.how.gradient,
            support::tame(1000 * step + 17 * index + bytes + salt) * scale.scale());
      if (step == spoilt_step && index == 0)
        put(target.data(), it.how.gradient, -std::numeric_limits<float>::infinity());
    }
  }
  static void put(std::byte* to, dtype type, float value)
  {
    const cm::bf16 brain = cm::round_to<cm::bf16>(value);
    const cm::fp16 half = cm::round_to<cm::fp16>(value);
    if (type == dtype::float32) std::memcpy(to, &value, 4);
    if (type == dtype::bfloat16) std::memcpy(to, &brain, 2);
    if (type == dtype::float16) std::memcpy(to, &half, 2);
  }

  [[nodiscard]] opt::parameter_bytes describe(std::size_t index)
  {
    opt::parameter_bytes all = parameters[index].describe(over[index] ? 2 : 1);
    all.fresh_master = fresh[index];
    all.tensor = static_cast<std::uint32_t>(index);
    return all;
  }

  /// The rules of `step`, spelled out.
  void step(std::uint64_t now, const opt::device_step_options& options)
  {
    cm::serial alone;
    cm::gradient_measure all;
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      const opt::parameter_bytes bytes = describe(index);
      if (has_gradient(index, now))
        all.add(opt::measure_parameter(bytes.gradient, bytes.gradient_type, bytes.elements, alone));
    }
    const double norm = opt::norm_of(all, options.clip.order) / static_cast<double>(scale.scale());
    const double clipped = all.finite ? static_cast<double>(opt::clip_factor(norm, options.clip.norm)) : 1.0;
    const opt::gradient_transform how{static_cast<float>(clipped / static_cast<double>(scale.scale())),
                                      options.clip.value};
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      if (!has_gradient(index, now)) {
        missed[index] += all.finite ? 1 : 0;
        continue;
      }
      const opt::parameter_bytes bytes = describe(index);
      started[index] = true;
      if (all.finite)
        opt::update_parameter(kernel, bytes, how, {rates[index % 2], number + 1, group_of(index), missed[index]},
                              options.seed, alone);
      else
        restore(index);
    }
    all.finite ? scale.updated() : scale.skipped();
    number += all.finite ? 1 : 0;
  }
  /// The effects of a skipped step: fresh masters made, overwritten values made again.
  void restore(std::size_t index)
  {
    stored_parameter& it = parameters[index];
    if (!fresh[index] && !over[index]) return;
    const auto of_type = [&]<class Element>(Element) {
      for (std::size_t element = 0; element < it.elements; ++element) {
        Element half{};
        float wide = 0;
        std::memcpy(&half, it.value.data() + 2 * element, 2);
        std::memcpy(&wide, it.lists.back().data() + 4 * element, 4);
        if (fresh[index]) wide = cm::to_float(half);
        if (over[index]) half = cm::round_to<Element>(wide);
        std::memcpy(it.value.data() + 2 * element, &half, 2);
        std::memcpy(it.lists.back().data() + 4 * element, &wide, 4);
      }
    };
    it.how.value == dtype::bfloat16 ? of_type(cm::bf16{}) : of_type(cm::fp16{});
  }

  Kernel kernel;
  std::vector<stored_parameter> parameters;
  bool started[std::size(sizes)] = {};
  bool fresh[std::size(sizes)] = {};
  bool over[std::size(sizes)] = {};
  std::uint64_t missed[std::size(sizes)] = {};
  opt::loss_scale scale = opt::loss_scale::dynamic({.initial = 1024.0F, .window = 2});
  float rates[2] = {0.01F, 0.002F};
  std::uint64_t number = 0;
  std::uint64_t salt = 0;  ///< of gradients
};

/// The same parameters in the memory of a device, stepped by kernels.
template <class Kernel, class Backend, class Launcher>
struct device_model {
  using memory_type = opt::device_step_memory<Kernel>;

  device_model(const host_model<Kernel>& like, Backend& on)
      : kernel{like.kernel}, backend{on}, memory{nullptr, {}}, scale{like.scale}
  {
    opt::device_step_sizes needed{.groups = 2, .parameters = like.parameters.size(), .blocks = 0};
    for (const stored_parameter& it : like.parameters) {
      places.emplace_back();
      places.back().push_back(take(it.value.size()));
      places.back().push_back(take(it.gradient.size()));
      for (const placed_bytes& list : it.lists) places.back().push_back(take(list.size()));
      needed.blocks += opt::blocks_of(it.elements);
    }
    memory = memory_type{take(memory_type::size(needed).count()), needed};
    opt::device_step_state state;
    std::memcpy(&state.loss, scale.bytes().data(), sizeof state.loss);
    write(memory.state(), &state, sizeof state);
    write(memory.rates(), like.rates, sizeof like.rates);
    const std::vector<opt::block_range> ranges(needed.parameters);
    write(memory.ranges(), ranges.data(), ranges.size() * sizeof(opt::block_range));
  }

  std::byte* take(std::uint64_t size) { return backend.allocate(tier::device, cm::bytes{(size + 255) / 256 * 256}); }
  void write(void* to, const void* from, std::uint64_t size)
  {
    backend.copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), cm::bytes{size}, agent::host);
  }
  /// Everything but the gradients, which are written apart.
  void upload(host_model<Kernel>& from)
  {
    for (std::size_t index = 0; index < places.size(); ++index) {
      write(places[index][0], from.parameters[index].value.data(), from.parameters[index].value.size());
      for (std::size_t list = 0; list < from.parameters[index].lists.size(); ++list)
        write(places[index][2 + list], from.parameters[index].lists[list].data(),
              from.parameters[index].lists[list].size());
    }
  }
  void upload_gradients(host_model<Kernel>& from, std::uint64_t step)
  {
    for (std::size_t index = 0; index < places.size(); ++index) {
      if (!has_gradient(index, step)) continue;
      const placed_bytes& gradient = from.over[index] ? from.parameters[index].value : from.parameters[index].gradient;
      write(places[index][from.over[index] ? 0 : 1], gradient.data(), gradient.size());
    }
  }
  [[nodiscard]] bool holds(host_model<Kernel>& expected)
  {
    bool same = true;
    const auto compare = [&](const std::byte* place, const placed_bytes& bytes) {
      placed_bytes found{bytes.size(), 0};
      backend.copy(found.data(), place, cm::bytes{bytes.size()}, agent::host);
      same = same && std::memcmp(found.data(), bytes.data(), bytes.size()) == 0;
    };
    for (std::size_t index = 0; index < places.size(); ++index) {
      compare(places[index][0], expected.parameters[index].value);
      for (std::size_t list = 0; list < expected.parameters[index].lists.size(); ++list)
        compare(places[index][2 + list], expected.parameters[index].lists[list]);
    }
    return same;
  }

  void step(host_model<Kernel>& like, std::uint64_t now, const opt::device_step_options& options)
  {
    opt::device_step<Kernel, Backend, Launcher> run{kernel, memory, options, backend, agent::compute, launcher};
    run.begin();
    for (std::size_t back = places.size(); back-- > 0 && options.measures();) {
      const opt::parameter_bytes all = describe(like, back);
      if (has_gradient(back, now)) run.measure(back, all.gradient, all.gradient_type, all.elements);
    }
    run.decide();
    std::vector<std::uint32_t> missing;
    for (std::size_t index = 0; index < places.size(); ++index)
      if (has_gradient(index, now))
        run.update(describe(like, index), group_of(index), like.over[index], index);
      else
        missing.push_back(static_cast<std::uint32_t>(index));
    run.miss(missing);
    run.finish();
  }
  [[nodiscard]] opt::parameter_bytes describe(host_model<Kernel>& like, std::size_t index) const
  {
    opt::parameter_bytes all = like.describe(index);
    all.value = places[index][0];
    all.gradient = places[index][like.over[index] ? 0 : 1];
    for (std::size_t list = 0; list < all.list_count; ++list) all.lists[list].data = places[index][2 + list];
    return all;
  }
  [[nodiscard]] opt::device_step_state state()
  {
    opt::device_step_state found;
    backend.wait(agent::host, backend.record(agent::compute));
    backend.copy(reinterpret_cast<std::byte*>(&found), reinterpret_cast<const std::byte*>(memory.state()),
                 cm::bytes{sizeof found}, agent::host);
    return found;
  }

  Kernel kernel;
  Backend& backend;
  memory_type memory;
  opt::loss_scale scale;
  std::vector<std::vector<std::byte*>> places;  ///< of each parameter: value, gradient, lists
  Launcher launcher;
};

template <class Device, class Host>
void check_states(Device& device, Host& host)
{
  const opt::device_step_state state = device.state();
  CHECK(state.number == host.number);
  CHECK(std::memcmp(&state.loss, host.scale.bytes().data(), sizeof state.loss) == 0);
}

template <class Launcher, class Kernel, class Backend>
void steps_like_the_host(const Kernel& kernel, Backend& backend)
{
  host_model<Kernel> host{kernel};
  device_model<Kernel, Backend, Launcher> device{host, backend};
  const opt::device_step_options options = options_with(host.scale);
  device.upload(host);
  for (std::uint64_t step = 1; step <= 7; ++step) {
    INFO("step " << step);
    host.differentiate(step);
    device.upload_gradients(host, step);
    device.step(host, step, options);
    host.step(step, options);
    check_states(device, host);
    REQUIRE(device.holds(host));
  }
  CHECK(host.scale.skips() == 1);
}

const opt::adam half_everywhere{{.weight_decay = 0.1F}, {.moments = dtype::bfloat16, .masters = false}};

using gpu_type = cm::backend::cuda_device<support::fake_cuda>;

cm::backend::cuda_device_options capacities()
{
  return {.device_capacity = 1_MiB, .host_capacity = 1_MiB};
}

}  // namespace

TEST_CASE("steps of kernels are those of the host: bytes, number, loss scale, whatever is skipped", "[optimizer]")
{
  const auto run = [](const auto& kernel) {
    cm::backend::host_arena arena{{.device_capacity = 1_MiB, .host_capacity = 1_MiB, .async_compute = true}};
    steps_like_the_host<opt::loop_launcher>(kernel, arena);
  };
  opt::adam adam{{.weight_decay = 0.1F}, {.moments = dtype::bfloat16}};
  run(adam);
  adam.group(cm::group_id{1}, {.beta1 = 0.5F, .weight_decay = 0.2F, .decoupled = false});
  run(adam);
  run(half_everywhere);
  run(opt::sgd{{.weight_decay = 0.1F}});
  run(opt::sgd{{.momentum = 0.0F}, {.masters = false}});
}

TEST_CASE("steps launched as kernels of a GPU are those of the host", "[optimizer]")
{
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    support::fake_cuda gpu{{.seed = seed}};
    {
      gpu_type backend{capacities(), gpu};
      steps_like_the_host<support::kernel_launcher>(opt::adam{{.weight_decay = 0.1F}}, backend);
    }
    CHECK(gpu.faults().empty());
  }
}

TEST_CASE("a step that is captured once repeats itself, with new gradients, rates and decisions", "[optimizer]")
{
  support::fake_cuda gpu{{.seed = 5}};
  {
    gpu_type backend{capacities(), gpu};
    host_model<opt::adam> host{half_everywhere};
    device_model<opt::adam, gpu_type, support::kernel_launcher> device{host, backend};
    const opt::device_step_options options = options_with(host.scale);
    device.upload(host);
    host.differentiate(1);
    backend.begin_capture();
    device.step(host, 1, options);
    auto graph = backend.end_capture();
    for (std::uint64_t replay = 0; replay < 4; ++replay) {
      host.salt = 12'345 * replay;
      host.rates[1] *= 0.5F;
      host.differentiate(1);
      if (replay == 2) host.put(host.parameters[1].gradient.data(), host.parameters[1].how.gradient, INFINITY);
      device.upload_gradients(host, 1);
      device.write(device.memory.rates(), host.rates, sizeof host.rates);
      backend.launch(graph);
      host.step(1, options);
      check_states(device, host);
      REQUIRE(device.holds(host));
    }
    CHECK(host.scale.skips() == 1);
  }
  CHECK(gpu.faults().empty());
}

TEST_CASE("a device step refuses what its memory has no room for, and bytes that do not fit", "[optimizer]")
{
  cm::backend::host_arena arena{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  host_model<opt::adam> host{opt::adam{}};
  device_model<opt::adam, cm::backend::host_arena, opt::loop_launcher> device{host, arena};
  host.differentiate(1);
  opt::device_step run{device.kernel, device.memory, {}, arena, agent::compute, device.launcher};
  const opt::parameter_bytes all = device.describe(host, 0);
  run.begin();
  CHECK_THROWS_AS(run.measure(6, all.gradient, all.gradient_type, 1), cm::usage_error);
  CHECK_THROWS_AS(run.measure(0, all.gradient, all.gradient_type, 1'000'000), cm::usage_error);
  CHECK_THROWS_AS(run.update(all, cm::group_id{2}, false), cm::usage_error);
  CHECK_THROWS_AS(run.update(all, cm::group_id{0}, false, 6), cm::usage_error);
  const std::vector<std::uint32_t> none{6}, many(opt::missed_kernel::most + 1);
  CHECK_THROWS_AS(run.miss(none), cm::usage_error);
  CHECK_THROWS_AS(run.miss(many), cm::usage_error);
  opt::parameter_bytes fewer = all;
  fewer.list_count = 1;
  CHECK_THROWS_AS(run.update(fewer, cm::group_id{0}, false), cm::usage_error);
  using step_type = opt::device_step<opt::adam, cm::backend::host_arena, opt::loop_launcher>;
  const opt::device_step_options wrong{.clip = {.norm = -1.0F}};
  CHECK_THROWS_AS((step_type{device.kernel, device.memory, wrong, arena, agent::compute, device.launcher}),
                  cm::usage_error);
}

}  // namespace device_step_test

namespace device_optimizer_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using support::any_backend;
using support::chosen_gradient;

namespace {

constexpr std::uint32_t layers = 5;
constexpr std::uint64_t elements = 1'500;

/// A few parameters of each type, in two groups; gradients come from dice. Trains with `step` or with a
/// device_optimizer.
template <class Element, class Kernel>
struct model {
  using manager = cm::manager<any_backend, chosen_gradient>;
  using device = cm::optimizer::device_optimizer<manager, Kernel, cm::optimizer::loop_launcher>;

  model(const Kernel& how, bool on_device, const cm::optimizer::loss_scale& scale_of_loss, cm::bytes capacity,
        bool in_place = false)
      : memory{cm::backend::host_arena_options{
            .device_capacity = capacity, .host_capacity = 1_MiB, .async_compute = true}},
        m{memory, {.chunk_bytes = 8_KiB}, chosen_gradient{in_place}},
        kernel{how},
        scale{scale_of_loss}
  {
    weights = m.template add_stacked<Element>(layers, {elements}, cm::role::parameter);
    biases = m.template add_stacked<float>(layers, {7}, cm::role::parameter, cm::group_id{1});
    if (on_device)
      optimizer.emplace(m, kernel, cm::optimizer::loop_launcher{}, scale);
    else {
      m.use(kernel);
      m.use(scale);
    }
    support::dice dice{99};
    for (std::uint32_t index = 0; index < layers; ++index) {
      for (Element& value : m.acquire(weights.slice(index), cm::access::write, cm::memory_location::host).span())
        value = cm::round_to<Element>(random(dice));
      for (float& value : m.acquire(biases.slice(index), cm::access::write, cm::memory_location::host).span())
        value = random(dice);
    }
    if (on_device) optimizer->prepare();
  }

  static float random(support::dice& dice) { return static_cast<float>(dice.between(0, 2000)) / 1000.0F - 1.0F; }

  /// @param spoilt   the gradient of this layer gets an infinity
  void differentiate(std::uint64_t now, std::uint32_t spoilt)
  {
    support::dice dice{now};
    for (std::uint32_t index = 0; index < layers; ++index) {
      if (index == now % layers) continue;  // not every parameter has a gradient in every step
      auto weight = m.acquire(weights.slice(index), cm::access::read);
      const auto gradient = m.gradient(std::move(weight));
      for (Element& value : gradient.span()) value = cm::round_to<Element>(random(dice));
      if (index == spoilt)
        gradient.span()[elements / 2] = cm::round_to<Element>(std::numeric_limits<float>::infinity());
      for (float& value : m.gradient(biases.slice(index)).span()) value = random(dice);
    }
  }

  void step(const cm::optimizer::step_options& options)
  {
    if (optimizer) return optimizer->step(options);
    cm::optimizer::step_options with_scale = options;
    with_scale.loss_scale = &scale;
    cm::optimizer::step(m, kernel, with_scale);
  }

  /// Calls step again until it gets through. @return   how often it failed
  int step_stubbornly(const cm::optimizer::step_options& options)
  {
    for (int failures = 0;; ++failures) {
      try {
        step(options);
        return failures;
      } catch (const cm::device_error&) {
      }
    }
  }

  [[nodiscard]] std::vector<std::byte> everything()
  {
    std::vector<std::byte> all;
    m.for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info& info) {
      add(all, it, cm::value_list);
      for (const cm::list_spec& spec : kernel.lists())
        if (spec.use == cm::list_use::state || info.type != cm::dtype::float32) add(all, it, m.list(spec.name));
    });
    return all;
  }
  void add(std::vector<std::byte>& all, cm::tensor_handle it, cm::list_id list)
  {
    const auto pin = m.acquire_bytes(it, list, cm::access::read, cm::memory_location::host);
    const auto bytes = std::as_bytes(pin.span());
    all.insert(all.end(), bytes.begin(), bytes.end());
  }

  any_backend memory;
  manager m;
  Kernel kernel;
  cm::optimizer::loss_scale scale;
  std::optional<device> optimizer;
  cm::stacked<Element> weights{};
  cm::stacked<float> biases{};
};

using cm::optimizer::adam;
using cm::optimizer::loss_scale;
using cm::optimizer::sgd;
using cm::optimizer::step_options;
constexpr std::uint32_t no_layer = layers;

/// Both ways of training, side by side. @return   whether every byte was the same after every step
template <class Element, class Kernel>
bool agree(const Kernel& kernel, const step_options& options, const loss_scale& scale, cm::bytes capacity = 64_KiB,
           bool in_place = false)
{
  model<Element, Kernel> host{kernel, false, scale, capacity, in_place};
  model<Element, Kernel> device{kernel, true, scale, capacity, in_place};
  for (std::uint64_t now = 1; now <= 6; ++now) {
    for (auto* it : {&host, &device}) {
      const auto scope = it->m.iteration();
      it->differentiate(now, now == 3 ? 1 : no_layer);
      it->step(options);
    }
    if (host.everything() != device.everything()) return false;
    const auto progress = device.optimizer->progress();
    if (progress.updates != host.scale.updates() || progress.skips != host.scale.skips()) return false;
    if (progress.loss_scale != host.scale.scale()) return false;
  }
  return host.scale.skips() == 1;
}

}  // namespace

TEMPLATE_TEST_CASE("a step on the device has the bits of a step on the host", "[optimizer]", float, cm::bf16, cm::fp16)
{
  const loss_scale dynamic = loss_scale::dynamic({.initial = 1024.0F, .window = 2});
  const step_options clips{.learning_rate = 0.01F, .clip = {.norm = 0.5F, .value = 0.02F}, .seed = 5};
  const float rates[] = {0.01F, 0.5F};
  CHECK(agree<TestType>(adam{{.weight_decay = 0.1F}}, {.learning_rate = 0.01F}, loss_scale::fixed(1.0F)));
  CHECK(agree<TestType>(adam{{.decoupled = false}}, {.group_rates = rates}, dynamic));
  CHECK(agree<TestType>(adam{{}, {.moments = cm::dtype::bfloat16, .masters = false}}, clips, loss_scale::fixed(8.0F)));
  CHECK(agree<TestType>(sgd{{.momentum = 0.9F, .nesterov = true}}, clips, dynamic));
  CHECK(agree<TestType>(sgd{{.momentum = 0.0F}, {.masters = false}},
                        {.clip = {.norm = 1.0F, .order = cm::optimizer::norm_order::l1}}, dynamic));
}

TEMPLATE_TEST_CASE("so it has on a small device, and with gradients in the places of weights", "[optimizer]", cm::bf16,
                   cm::fp16)
{
  const loss_scale dynamic = loss_scale::dynamic({.initial = 4.0F, .window = 2});
  CHECK(agree<TestType>(adam{}, {}, dynamic, 48_KiB));
  CHECK(agree<TestType>(adam{}, {.clip = {.norm = 2.0F}}, dynamic, 48_KiB, true));
  CHECK(agree<TestType>(sgd{{.momentum = 0.5F}, {.momentum = cm::dtype::bfloat16}}, {}, dynamic, 64_KiB, true));
}

TEST_CASE("a norm that is not finite clips on the device as on the host, and rates are those of the call",
          "[optimizer]")
{
  const sgd kernel{{.momentum = 0.0F}};
  model<float, sgd> host{kernel, false, loss_scale::fixed(1.0F), 64_KiB};
  model<float, sgd> device{kernel, true, loss_scale::fixed(1.0F), 64_KiB};
  const std::vector<std::byte> before = device.everything();
  for (auto* it : {&host, &device}) {
    const auto scope = it->m.iteration();
    it->differentiate(2, 1);
    float rates[] = {0.5F, 0.25F};
    const step_options options{.group_rates = rates, .clip = {.norm = 1.0F}, .skip_nonfinite = false};
    it->optimizer ? it->optimizer->step(options) : static_cast<void>(cm::optimizer::step(it->m, it->kernel, options));
    rates[0] = rates[1] = 9.0F;  // what is enqueued has its own
  }
  const std::vector<std::byte> after = device.everything();
  const bool same = host.everything() == after;
  CHECK(same);
  std::size_t changed = 0, nans = 0;
  for (std::size_t at = 0; at + 4 <= after.size(); at += 4) {
    float value = 0;
    std::memcpy(&value, after.data() + at, 4);
    nans += std::isnan(value) ? 1 : 0;
    changed += std::memcmp(before.data() + at, after.data() + at, 4) != 0 ? 1 : 0;
  }
  CHECK(nans == 1);
  CHECK(changed == 1);
  CHECK(device.optimizer->progress().norm == std::numeric_limits<double>::infinity());
}

namespace {

/// Trains by kernels on the device, and the calling thread decides: at once, late, and at times on the host.
template <class Model>
struct decided_by_host {
  using device_type = cm::optimizer::device_updates<typename Model::manager, cm::optimizer::loop_launcher>;

  explicit decided_by_host(Model& trained) : it{trained} {}

  cm::optimizer::step_outcome step(std::uint64_t now, step_options options)
  {
    options.loss_scale = &it.scale;
    if (now % 4 == 0) return cm::optimizer::step(it.m, it.kernel, options);
    return now % 2 == 0 ? late.step(options) : cm::optimizer::step(it.m, it.kernel, options, device);
  }

  Model& it;
  device_type device{it.m};
  cm::optimizer::late_updates<typename Model::manager, decltype(Model::kernel), device_type> late{it.m, it.kernel,
                                                                                                  device};
};

template <class Element, class Kernel>
std::string differs(const Kernel& kernel, const step_options& options, const loss_scale& scale,
                    cm::bytes capacity = 64_KiB, bool in_place = false)
{
  using model_type = model<Element, Kernel>;
  model_type host{kernel, false, scale, capacity, in_place}, other{kernel, false, scale, capacity, in_place};
  decided_by_host<model_type> device{other};
  for (std::uint64_t now = 1; now <= 7; ++now) {
    step_options with_scale = options;
    with_scale.loss_scale = &host.scale;
    const auto of_host = host.m.iteration();
    host.differentiate(now, now == 3 ? 1 : no_layer);
    const auto wanted = cm::optimizer::step(host.m, host.kernel, with_scale);
    const auto of_device = other.m.iteration();
    other.differentiate(now, now == 3 ? 1 : no_layer);
    const auto outcome = device.step(now, options);
    if (outcome.result != wanted.result || outcome.norm != wanted.norm) return "another outcome";
    if (now != 2 && host.everything() != other.everything()) return "other bytes behind step " + std::to_string(now);
    if (host.kernel.progress.number != other.kernel.progress.number) return "another count";
    if (host.scale.scale() != other.scale.scale()) return "another loss scale";
  }
  return host.scale.skips() == 1 ? "" : "nothing was skipped";
}

}  // namespace

TEST_CASE("kernels update what the calling thread decides, with the bits of the host, at once and late", "[optimizer]")
{
  const loss_scale dynamic = loss_scale::dynamic({.initial = 1024.0F, .window = 2});
  const step_options clips{.learning_rate = 0.01F, .clip = {.norm = 0.5F, .value = 0.02F}, .seed = 5};
  CHECK(differs<float>(adam{{.weight_decay = 0.1F}}, {.learning_rate = 0.01F}, dynamic) == "");
  CHECK(differs<cm::bf16>(adam{{}, {.moments = cm::dtype::bfloat16, .masters = false}}, clips, dynamic) == "");
  CHECK(differs<cm::bf16>(adam{}, {.clip = {.norm = 2.0F}}, dynamic, 56_KiB, true) == "");
}

TEST_CASE("a step whose kernels cannot be started is finished by the next call, and a rehearsal proves its room",
          "[optimizer]")
{
  using small = model<cm::bf16, adam>;
  const loss_scale scale = loss_scale::fixed(2.0F);
  const auto train = [&](std::optional<std::uint64_t> failing_copy, cm::bytes capacity, int& failures) {
    small it{adam{}, false, scale, capacity, true};
    decided_by_host<small> device{it};
    for (std::uint64_t now = 1; now <= 3; ++now) {
      const auto scope = it.m.iteration();
      it.differentiate(now, no_layer);
      if (now == 2 && failing_copy) it.memory.set_plan({.copy = it.memory.copies() + *failing_copy});
      for (bool ended = false; !ended;) {
        try {
          (void)device.step(now == 2 ? 1 : now, {.clip = {.norm = 1.0F}});
          ended = true;
        } catch (const cm::device_error&) {
          ++failures;
        }
      }
      it.memory.set_plan({});
    }
    return it.everything();
  };
  int failures = 0;
  const auto expected = train({}, 64_KiB, failures);
  REQUIRE(failures == 0);
  int failed = 0;
  for (std::uint64_t copy = 0;; ++copy) {
    failures = 0;
    INFO("copy " << copy);
    REQUIRE(train(copy, 64_KiB, failures) == expected);
    if (failures == 0) break;
    failed += failures;
  }
  CHECK(failed >= 10);

  small asked{adam{}, false, scale, 64_KiB, true};
  decided_by_host<small> device{asked};
  cm::bytes least{};
  const auto rehearsed = [&](std::uint64_t now) {
    const auto scope = asked.m.iteration();
    for (std::uint32_t index = 0; index < layers; ++index) {
      (void)asked.m.gradient(asked.m.acquire(asked.weights.slice(index), cm::access::read));
      (void)asked.m.gradient(asked.biases.slice(index));
    }
    (void)device.step(now, {.clip = {.norm = 1.0F}});
  };
  for (const std::uint64_t now : {1U, 2U})
    least = std::max(least, asked.m.rehearse([&] { rehearsed(now); }).smallest_device);
  CAPTURE(least.count());
  CHECK(least > 40_KiB);  // gradient, two moments, master and value, in chunks of 8 KiB, and the lease
  failures = 0;
  CHECK(train({}, cm::align_up(least, 8_KiB), failures) == expected);
}

TEST_CASE("a step on the device that fails anywhere is finished by the next call", "[optimizer]")
{
  using small = model<cm::bf16, adam>;
  const loss_scale scale = loss_scale::fixed(2.0F);
  const auto train = [&](std::optional<std::uint64_t> failing_copy, int& failures) {
    small it{adam{}, true, scale, 48_KiB, true};
    for (std::uint64_t now = 1; now <= 2; ++now) {
      const auto scope = it.m.iteration();
      it.differentiate(now, now == 2 ? 1 : no_layer);
      if (now == 2 && failing_copy) it.memory.set_plan({.copy = it.memory.copies() + *failing_copy});
      failures += it.step_stubbornly({.clip = {.norm = 1.0F}});
      it.memory.set_plan({});
    }
    return it.everything();
  };
  int failures = 0;
  const auto expected = train({}, failures);
  REQUIRE(failures == 0);
  int failed = 0;
  for (std::uint64_t copy = 0;; ++copy) {
    failures = 0;
    INFO("copy " << copy);
    REQUIRE(train(copy, failures) == expected);
    if (failures == 0) break;
    failed += failures;
  }
  CHECK(failed >= 10);
}

TEST_CASE("a step on the device that is half done keeps its rates", "[optimizer]")
{
  int failures = 0, refusals = 0;
  const auto train = [&](std::optional<std::uint64_t> failing_launch) {
    model<cm::bf16, adam> it{adam{}, true, loss_scale::fixed(2.0F), 48_KiB};
    const auto scope = it.m.iteration();
    it.differentiate(1, no_layer);
    if (failing_launch) it.memory.set_plan({.copy = it.memory.copies() + *failing_launch});
    const bool fails = [&] {
      try {
        it.step({.learning_rate = 0.01F});
        return false;
      } catch (const cm::device_error&) {
        return true;
      }
    }();
    it.memory.set_plan({});
    if (fails) {
      ++failures;
      const float others[] = {0.5F, 0.25F};
      try {
        it.optimizer->set_rates(others);
      } catch (const cm::usage_error&) {
        ++refusals;
      }
      it.step({.learning_rate = 0.01F});
    }
    return it.everything();
  };
  const auto expected = train({});
  int before = -1;
  for (std::uint64_t launch = 0; failures != before; ++launch) {
    before = failures;
    INFO("launch " << launch);
    CHECK((train(launch) == expected));
  }
  CHECK(refusals >= 3);
}

TEST_CASE("kernels read the loss scale where the device keeps it", "[optimizer]")
{
  model<cm::bf16, adam> it{adam{}, true, loss_scale::dynamic({.initial = 64.0F, .window = 1}), 64_KiB};
  float seen[2] = {};
  for (float& now : seen) {
    const auto scope = it.m.iteration();
    const auto scale = it.optimizer->scale_on();
    it.memory.launch(cm::agent::compute, [to = &now, from = scale.data()] { *to = *from; });
    it.differentiate(1, no_layer);
    it.optimizer->step({});
  }
  CHECK(it.optimizer->progress().loss_scale == 256.0F);
  CHECK((seen[0] == 64.0F && seen[1] == 128.0F));
}

TEST_CASE("an optimizer on the device says what it cannot do", "[optimizer]")
{
  using plain = model<float, adam>;
  plain it{adam{}, true, loss_scale::fixed(1.0F), 64_KiB};
  loss_scale other = loss_scale::fixed(2.0F);
  CHECK_THROWS_AS(it.optimizer->step({.loss_scale = &other}), cm::usage_error);
  const float one_rate[] = {1.0F};
  CHECK_THROWS_AS(it.optimizer->set_rates(one_rate), cm::usage_error);
  it.differentiate(1, no_layer);
  const std::vector<std::byte> before = it.everything();
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -0.5F}) {
    const float rates[] = {0.5F, wrong};
    CHECK_THROWS_AS(it.optimizer->step({.learning_rate = wrong}), cm::usage_error);
    CHECK_THROWS_AS(it.optimizer->step({.group_rates = rates}), cm::usage_error);
    CHECK_THROWS_WITH(it.optimizer->set_rates(rates), ContainsSubstring("a learning rate of "));
  }
  CHECK(it.everything() == before);
  it.optimizer->step({});
  CHECK(it.optimizer->progress().updates == 1);
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 4_KiB, .host_capacity = 4_KiB}};
  plain::manager empty{memory, {.chunk_bytes = 4_KiB}};
  CHECK_THROWS_AS((plain::device{empty, adam{}}), cm::usage_error);
}

TEST_CASE("a number of updates on the device that a checkpoint cannot have is refused before the first step",
          "[optimizer]")
{
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  model<float, adam>::manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({100}, cm::role::parameter);
  model<float, adam>::device device{m, adam{}};
  std::optional<cm::tensor<std::uint8_t>> buffer;  // of the optimizer
  m.for_each_tensor([&](cm::tensor_handle handle, const cm::tensor_info& info) {
    if (info.part == cm::role::buffer) buffer = cm::tensor<std::uint8_t>{handle};
  });
  REQUIRE(buffer);
  const auto load = [&](std::uint64_t number) {
    const auto pin = m.acquire(*buffer, cm::access::write, cm::memory_location::host);
    cm::optimizer::device_step_state state;
    state.number = number;
    std::memset(pin.data(), 0, pin.size());
    std::memcpy(pin.data(), &state, sizeof state);
  };
  for (float& value : m.acquire(weight, cm::access::write).span()) value = 1.0F;
  load(UINT64_MAX);
  CHECK_THROWS_WITH(device.prepare(), ContainsSubstring("an optimizer step after 18446744073709551615 updates"));
  CHECK_THROWS_AS(device.step(), cm::usage_error);
  load(7);
  for (float& value : m.gradient(weight).span()) value = 1.0F;
  device.step();
  CHECK(m.acquire(weight, cm::access::read).span()[0] < 1.0F);
}

TEST_CASE("a rehearsed step on the device needs what the real one needs", "[optimizer]")
{
  model<cm::bf16, adam> it{adam{}, true, loss_scale::fixed(1.0F), 64_KiB};
  const auto need = it.m.rehearse([&] {
    const auto scope = it.m.iteration();
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto gradient = it.m.gradient(it.weights.slice(index));
    }
    it.optimizer->step({});
  });
  // Gradient, two moments, master, value and the optimizer's buffer at once, in chunks of 8 KiB.
  CHECK(need.smallest_device >= 48_KiB);
  CHECK(need.smallest_device <= 64_KiB);
  CHECK(it.optimizer->kernel().progress.reached == 0);
}

}  // namespace device_optimizer_test
