// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/device_optimizer.hpp>

#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/optimizer/update_site.hpp>
#include <kernels/stored_parameter.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>
#include <support/kernel_launcher.hpp>

#include <cstring>
#include <limits>
#include <vector>

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

/// Parameters of all kinds, with what a host's step does to them.
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
      if (!has_gradient(index, now)) continue;
      const opt::parameter_bytes bytes = describe(index);
      started[index] = true;
      if (all.finite)
        opt::update_parameter(kernel, bytes, how, {rates[index % 2], number + 1, group_of(index)}, options.seed, alone);
      else
        restore(index);
    }
    all.finite ? scale.updated() : scale.skipped();
    number += all.finite ? 1 : 0;
  }
  /// What a skipped step leaves behind: fresh masters made, overwritten values made again.
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
    for (std::size_t index = 0; index < places.size(); ++index)
      if (has_gradient(index, now)) run.update(describe(like, index), group_of(index), like.over[index]);
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
  opt::parameter_bytes fewer = all;
  fewer.list_count = 1;
  CHECK_THROWS_AS(run.update(fewer, cm::group_id{0}, false), cm::usage_error);
  using step_type = opt::device_step<opt::adam, cm::backend::host_arena, opt::loop_launcher>;
  const opt::device_step_options wrong{.clip = {.norm = -1.0F}};
  CHECK_THROWS_AS((step_type{device.kernel, device.memory, wrong, arena, agent::compute, device.launcher}),
                  cm::usage_error);
}

}  // namespace device_step_test
