// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/decision_kernels.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_driver.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>
#include <chunkmem/optimizer/update_site.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

/// The sizes from which the memory of a device step follows.
///
///     const bytes room = device_step_memory<adam>::size({.groups = 1, .parameters = 10, .blocks = 1'000});
struct device_step_sizes {
  std::uint64_t groups = 1;
  std::uint64_t parameters = 0;
  std::uint64_t blocks = 0;  ///< of all gradients together: the sum of `blocks_of(elements)`
};

/// The layout of a device step's memory: one run of device memory, which the caller owns.
///
///     const device_step_sizes sizes{.groups = 1, .parameters = 10, .blocks = 1'000};
///     std::byte* const start = memory.allocate(tier::device, device_step_memory<adam>::size(sizes));
///     const device_step_memory<adam> places{start, sizes};
///
/// The part that the host writes comes first: the state, once, and the learning rates of the groups, whenever they
/// change. Where `device_step::update` gets indices of parameters, the host writes zeros to the ranges once. Size: 72
/// B, and 4 B and the kernel's factors for each group, 40 B for each parameter, 24 B for each block of 4,096 elements
/// of a gradient.
template <device_optimizer_kernel Kernel>
class device_step_memory {
 public:
  using factors_type = typename Kernel::device_factors;

  /// Bytes to allocate, at a multiple of 16.
  [[nodiscard]] static bytes size(const device_step_sizes& sizes)
  {
    return bytes{device_step_memory{nullptr, sizes}.end_};
  }

  /// @param start   device memory, or null where only sizes are needed
  device_step_memory(std::byte* start, const device_step_sizes& sizes) noexcept : start_{start}, sizes_{sizes}
  {
    end_ = sizeof(device_step_state);
    rates_ = take<float>(sizes.groups);
    host_end_ = end_;
    factors_ = take<factors_type>(sizes.groups);
    ranges_ = take<block_range>(sizes.parameters);
    measures_ = take<gradient_measure>(sizes.parameters);
    sums_ = take<gradient_measure>(sizes.blocks);
  }

  [[nodiscard]] const device_step_sizes& sizes() const noexcept { return sizes_; }
  /// Bytes from the start that the host may write in one copy: the state, then a rate for each group.
  [[nodiscard]] bytes host_bytes() const noexcept { return bytes{host_end_}; }

  [[nodiscard]] device_step_state* state() const noexcept { return at<device_step_state>(0); }
  [[nodiscard]] float* rates() const noexcept { return at<float>(rates_); }
  [[nodiscard]] factors_type* factors() const noexcept { return at<factors_type>(factors_); }
  [[nodiscard]] block_range* ranges() const noexcept { return at<block_range>(ranges_); }
  [[nodiscard]] gradient_measure* measures() const noexcept { return at<gradient_measure>(measures_); }
  [[nodiscard]] gradient_measure* sums() const noexcept { return at<gradient_measure>(sums_); }

 private:
  template <class Thing>
  [[nodiscard]] std::uint64_t take(std::uint64_t count) noexcept
  {
    const std::uint64_t begin = (end_ + alignof(Thing) - 1) / alignof(Thing) * alignof(Thing);
    end_ = begin + count * sizeof(Thing);
    return begin;
  }
  template <class Thing>
  [[nodiscard]] Thing* at(std::uint64_t offset) const noexcept
  {
    return reinterpret_cast<Thing*>(start_ + offset);
  }

  std::byte* start_;
  device_step_sizes sizes_;
  std::uint64_t rates_ = 0, factors_ = 0, ranges_ = 0, measures_ = 0, sums_ = 0, host_end_ = 0, end_ = 0;
};

/// The options of a device step that a captured step repeats. Learning rates and the loss scale are in device memory
/// instead.
///
///     const device_step_options options{.clip = {.norm = 1.0F}, .loss = {.options = {}, .is_dynamic = true}};
struct device_step_options {
  clipping clip{};
  bool may_skip = true;  ///< an infinity or NaN in any gradient skips the update
  std::uint64_t seed = 0;
  loss_scale_rule loss{};  ///< the change of the scale after the step

  /// A step has to measure the gradients before it updates.
  [[nodiscard]] constexpr bool measures() const noexcept { return may_skip || clip.norm > 0.0F; }
};

/// Enqueues one optimizer step on one agent, part by part; the device takes its decisions.
///
/// In this order: `begin`; `measure` for each gradient, in any order, if `options.measures()`; `decide`; `update` for
/// each parameter with a gradient; `miss` for those without; `finish`. The bits are those of `step`. No call allocates,
/// waits or reads from the device, so all of it can be captured once and repeated.
///
/// @tparam Launcher   `launcher(backend, stream, kernel)` enqueues a `device_kernel`
template <device_optimizer_kernel Kernel, class Backend, class Launcher>
class device_step {
 public:
  /// All arguments outlive the last call.
  /// @throws usage_error   a limit is negative or no number
  device_step(const Kernel& kernel, const device_step_memory<Kernel>& memory, const device_step_options& options,
              Backend& backend, agent stream, const Launcher& launcher)
      : kernel_{kernel}, memory_{memory}, options_{options}, backend_{backend}, stream_{stream}, launcher_{launcher}
  {
    check(options.clip);
  }

  /// Clears the measures, and computes the factors of the next update of every group.
  /// @throws device_error   may be called again
  void begin()
  {
    blocks_ = 0;
    launch(clear_ranges_kernel{memory_.ranges(), memory_.sizes().parameters});
    for (std::uint64_t index = 0; index < memory_.sizes().groups; ++index)
      launch_factors(group_id{static_cast<std::uint32_t>(index)}, nullptr);
  }

  /// Measures a gradient.
  /// @param index   of the parameter, in the order of declaration
  /// @throws usage_error    the memory was made for fewer parameters or blocks
  /// @throws device_error   may be called again
  void measure(std::uint64_t index, const std::byte* gradient, dtype type, std::uint64_t elements)
  {
    const std::uint64_t blocks = blocks_of(elements);
    expects(index < memory_.sizes().parameters && blocks <= memory_.sizes().blocks - blocks_,
            "a gradient that the memory of a device step has no room for (count its parameters and blocks in "
            "device_step_sizes)");
    launch(measure_kernel{gradient, type, elements, memory_.sums(), memory_.ranges() + index, blocks_});
    blocks_ += blocks;
  }

  /// Decides: update or skip, and the factor of all gradients.
  /// @throws device_error   may be called again
  void decide()
  {
    const std::uint64_t tensors = options_.measures() ? memory_.sizes().parameters : 0;
    launch(sum_blocks_kernel{memory_.sums(), memory_.ranges(), memory_.measures(), tensors});
    launch(decide_kernel{memory_.measures(), tensors, options_.clip, options_.may_skip, memory_.state()});
  }

  /// Updates one parameter, unless the device decided to skip.
  ///
  /// @param all              as `update_parameter` takes it, with pointers into device memory
  /// @param is_overwritten   the gradient lies in the value's bytes: a skipped step makes the value again
  /// @param index            of the parameter, in the order of declaration: its missed updates do not count. None: it
  ///   has missed no update
  /// @throws usage_error     the bytes do not fit the kernel, or the memory has no such group or parameter
  /// @throws device_error    no update was enqueued: may be called again
  void update(const parameter_bytes& all, group_id group, bool is_overwritten,
              std::optional<std::uint64_t> index = std::nullopt)
  {
    detail::check(kernel_, all);
    expects(index_of(group) < memory_.sizes().groups && (!index || *index < memory_.sizes().parameters),
            "an update of a group or a parameter that the memory of a device step has no room for");
    if (index) launch_factors(group, memory_.ranges() + *index);
    const device_parameter it = on_device(all, is_overwritten);
    kernel_.with_arithmetic(group, [&]<class Work>(std::type_identity<Work>) {
      detail::check_numerics<Kernel, Work>();
      launch(update_kernel<Work, factors_type>{it, memory_.state(), memory_.factors() + index_of(group), options_.seed,
                                               options_.clip.value});
    });
  }

  /// These parameters have no gradient: they miss the step, if the device decides to update. Call it once for each
  /// parameter.
  /// @param indices          of the parameters, in the order of declaration: at most `missed_kernel::most`
  /// @throws usage_error     the memory has no such parameter
  /// @throws device_error    nothing was enqueued: may be called again
  void miss(std::span<const std::uint32_t> indices)
  {
    expects(indices.size() <= missed_kernel::most, "more parameters missed an update than one kernel counts");
    for (const std::uint32_t index : indices)
      expects(index < memory_.sizes().parameters,
              "a parameter without a gradient that the memory of a device step has no room for");
    launch(missed_kernel{memory_.state(), memory_.ranges(), indices});
  }

  /// Counts the step and changes the loss scale. Call it once for each step.
  /// @throws device_error   nothing was enqueued
  void finish() { launch(finish_kernel{memory_.state(), options_.loss}); }

 private:
  using factors_type = typename Kernel::device_factors;
  using options_type = std::remove_cvref_t<decltype(std::declval<const Kernel&>().options(group_id{0}))>;

  /// @param of   a tensor of the group, or null: the factors of a group stay until the next ones are computed
  void launch_factors(group_id group, const block_range* of)
  {
    launch(factors_kernel<options_type, factors_type>{kernel_.options(group), memory_.state(),
                                                      memory_.rates() + index_of(group),
                                                      memory_.factors() + index_of(group), of});
  }
  template <device_kernel Part>
  void launch(const Part& part)
  {
    launcher_(backend_, stream_, part);
  }

  const Kernel& kernel_;
  device_step_memory<Kernel> memory_;
  device_step_options options_;
  Backend& backend_;
  agent stream_;
  const Launcher& launcher_;
  std::uint64_t blocks_ = 0;  ///< whose sums have a place
};

/// The progress of the steps on a device.
///
///     const device_progress so_far = optimizer.progress();
///     std::cout << so_far.updates << " updates, norm " << so_far.norm << '\n';
struct device_progress {
  std::uint64_t updates = 0;  ///< steps that updated
  std::uint64_t skips = 0;    ///< steps that found an infinity or NaN and changed nothing
  double norm = 0.0;          ///< of the last step's gradients, as in step_outcome
  float loss_scale = 1.0F;    ///< for the next loss
};

/// The loss scale of a device_optimizer in device memory, pinned while this object lives.
///
///     const auto scale = optimizer.scale_on(agent::compute);
///     multiply_loss(scale.data());  // a kernel on compute
template <class Manager>
class device_scale {
 public:
  using pin_type = typename Manager::template pin_type<const std::uint8_t>;
  explicit device_scale(pin_type&& state) noexcept : state_{std::move(state)} {}

  /// One float in device memory; null in a rehearsal.
  [[nodiscard]] const float* data() const
  {
    const auto* const state = reinterpret_cast<const device_step_state*>(state_.data());
    return state == nullptr ? nullptr : &state->loss.scale;
  }

 private:
  pin_type state_;
};

/// An optimizer whose steps run on the device: kernels measure the gradients, decide, and update. The calling thread
/// waits for nothing. The bits are those of `step` with the same kernel.
///
///     device_optimizer<manager<backend::host_arena>, adam, loop_launcher> optimizer{m, adam{}};
///     optimizer.prepare();                       // with the filling of weights
///     optimizer.step({.learning_rate = 1e-3F});  // after each backward pass
///
/// Make it after the parameters are declared and before their first access, for as long as the manager lives. The state
/// from step to step, such as the count of updates and the loss scale, is in a buffer of the manager, and a checkpoint
/// holds it with the lists. Nothing has to be registered. Another device_optimizer can continue from it, `step` cannot.
/// States and masters are brought to the device for the update of their parameter, for every placement policy. Good
/// where the device has room or the links are fast; poor where links are slow, since states that do not stay are copied
/// twice in each step.
///
/// The device counts the updates of each parameter, as the host does: a parameter without a gradient misses a step, and
/// a skipped step counts for no parameter. A captured step has one more small kernel for each parameter, which computes
/// its bias correction. So has a step that is not captured, once a parameter has missed an update.
///
/// @tparam Launcher   starts kernels: `cuda_launcher` (launch_kernels.cuh), or `loop_launcher` where the device is host
///   memory
/// @threads           one caller, that of the manager
template <class Manager, device_optimizer_kernel Kernel, class Launcher>
class device_optimizer {
 public:
  /// @param scale   factor of the loss; from here on the device changes it
  /// @throws usage_error   no parameter is declared, the manager is sealed, or it has lists of these names
  device_optimizer(Manager& owner, Kernel kernel, Launcher launcher = {},
                   const loss_scale& scale = loss_scale::fixed(1.0F))
      : manager_{owner}, kernel_{std::move(kernel)}, launcher_{std::move(launcher)}, scale_{scale}
  {
    manager_.for_each_parameter([this](tensor_handle parameter, const tensor_info& info) {
      index_of_tensor_.resize(index_of(parameter.id) + std::size_t{1}, no_parameter);
      index_of_tensor_.back() = static_cast<std::uint32_t>(sizes_.parameters);
      ++sizes_.parameters;
      sizes_.groups = std::max(sizes_.groups, std::uint64_t{index_of(info.group)} + 1);
      sizes_.blocks += blocks_of(info.extents.elements());
    });
    expects(sizes_.parameters > 0, "an optimizer on the device before any parameter was declared (declare them first)");
    manager_.use(kernel_.lists());
    manager_.use(constants_);
    buffer_ = manager_.template add<std::uint8_t>({memory_type::size(sizes_).count()}, role::buffer);
    missing_.reserve(sizes_.parameters);
  }
  device_optimizer(const device_optimizer&) = delete;

  /// Writes the initial counts. The first step calls it too; call it when weights are filled, so that all iterations
  /// are alike. Counts from a loaded checkpoint stay.
  /// @throws usage_error   a loaded checkpoint has an impossible number of updates
  /// @throws config_error   or an impossible loss scale
  /// @throws out_of_memory, device_error   call again
  void prepare()
  {
    if (manager_.rehearsing() || (is_prepared_ && !is_loaded_anew())) return;
    if (manager_.state_of(buffer_) != tensor_state::free)  // a checkpoint was loaded
      look_at_loaded();
    else if (!is_prepared_)
      write_beginning();
    loads_ = manager_.updates().gradients().loads();
    is_prepared_ = true;
  }

  /// Updates every parameter that has a gradient and drops the gradients; returns when all work is enqueued on compute.
  ///
  /// The device alone skips a step: the accesses are the same, and no value changes. In a capture the learning rates
  /// are those of the last `set_rates`. Guarantee: safe to call again where it throws, as `step`.
  /// @throws out_of_memory, device_error   a parameter could not be loaded, or a kernel could not be started; call
  ///   again
  /// @throws usage_error    as `step`; or options.loss_scale, which belongs to the constructor here
  void step(const step_options& options = {}, typename Manager::place_type from = typename Manager::place_type{})
  {
    expects(options.loss_scale == nullptr,
            "a step on the device with a loss scale: give it to the optimizer's constructor");
    detail::step_driver<Manager, Kernel, site> driver{manager_, kernel_, site{*this, on_device(options)}};
    driver.run(options, detail::update_at_once{}, from);
  }

  /// Sets the learning rates of the next replays of a captured step. Enqueued: replays that were started before keep
  /// their rates. A step that is not captured writes those of its options.
  /// @throws usage_error   not one rate for each group; a rate that is no number, infinite or negative; while a step is
  ///   half done; or inside a capture, which would repeat them; out_of_memory, device_error
  void set_rates(std::span<const float> rates)
  {
    expects(
        !is_capturing(),
        "learning rates were set inside a capture, which would set them again with each replay (set them before it)");
    expects(
        kernel_.progress.decision == step_decision::open ||
            kernel_.progress.forgotten != manager_.updates().gradients().forgotten(),
        "learning rates were set while a step on the device is half done, which has others (call step again first)");
    expects(rates.size() == sizes_.groups, "learning rates for a device that are not one for each group of parameters");
    for (std::size_t index = 0; index < rates.size(); ++index) {
      check_learning_rate(rates[index]);
      detail::check_products(kernel_, group_id{static_cast<std::uint32_t>(index)}, rates[index]);
    }
    prepare();
    const auto buffer = manager_.acquire(buffer_, access::read_write, agent::compute);
    write_rates(memory_type{reinterpret_cast<std::byte*>(buffer.data()), sizes_},
                [&](std::size_t index) { return rates[index]; });
  }

  /// The loss scale in device memory, for kernels on `stream` while the result lives: for losses that the host never
  /// reads.
  /// @throws out_of_memory, device_error
  [[nodiscard]] device_scale<Manager> scale_on(agent stream = agent::compute)
  {
    prepare();
    return device_scale<Manager>{manager_.acquire(buffer_, access::read, stream)};
  }

  /// The progress of the steps so far. Waits for them, as the only call here. Outside of iterations it may move chunks
  /// that the plan of the next iteration relies on: if you call it after every step, call it inside, at the end. Not in
  /// a capture.
  /// @throws out_of_memory, device_error; usage_error   inside a capture
  [[nodiscard]] device_progress progress()
  {
    prepare();
    const auto buffer = manager_.acquire(buffer_, access::read, agent::compute);
    const auto room = manager_.lease(tier::host, bytes{sizeof(device_step_state)}, agent::compute);
    auto& backend = manager_.backend();
    backend.copy(room.data(), reinterpret_cast<const std::byte*>(buffer.data()), bytes{sizeof(device_step_state)},
                 agent::compute);
    backend.wait(agent::host, backend.record(agent::compute));
    device_step_state state;
    std::memcpy(&state, room.data(), sizeof state);
    return {state.loss.updates, state.loss.skips, state.norm, state.loss.scale};
  }

  [[nodiscard]] const Kernel& kernel() const noexcept { return kernel_; }

 private:
  using memory_type = device_step_memory<Kernel>;
  using backend_type = std::remove_reference_t<decltype(std::declval<Manager&>().backend())>;
  static constexpr std::uint32_t no_parameter = UINT32_MAX;

  /// A checkpoint was loaded since the last check. False inside a capture: captured work reads the device.
  [[nodiscard]] bool is_loaded_anew() { return manager_.updates().gradients().loads() != loads_ && !is_capturing(); }
  void look_at_loaded()
  {
    const auto buffer = manager_.acquire(buffer_, access::read, memory_location::host);
    device_step_state state;
    std::memcpy(&state, buffer.data(), sizeof state);
    detail::check_updates(state.number);
    loss_scale::check(std::as_bytes(std::span{&state.loss, 1}));
    const block_range* const ranges = memory_at(const_cast<std::uint8_t*>(buffer.data())).ranges();
    std::vector<std::uint64_t> missed(index_of_tensor_.size());
    for (std::size_t tensor = 0; tensor < missed.size(); ++tensor)
      if (index_of_tensor_[tensor] != no_parameter) missed[tensor] = ranges[index_of_tensor_[tensor]].missed;
    detail::check_missed(state.number, missed,
                         [this](std::uint32_t tensor) { return detail::name_of_parameter(manager_, tensor); });
    has_missed_ = std::ranges::count(missed, std::uint64_t{0}) != std::ssize(missed);
  }
  /// The position among the parameters; no_parameter for a tensor that was declared after this optimizer.
  [[nodiscard]] std::uint32_t place_of(std::uint32_t tensor) const noexcept
  {
    return tensor < index_of_tensor_.size() ? index_of_tensor_[tensor] : no_parameter;
  }
  void write_beginning()
  {
    device_step_state state;
    state.number = kernel_.progress.number;
    std::memcpy(&state.loss, scale_.bytes().data(), sizeof state.loss);
    const auto buffer = manager_.acquire(buffer_, access::write, memory_location::host);
    std::memset(buffer.data(), 0, buffer.size());
    std::memcpy(buffer.data(), &state, sizeof state);
    block_range* const ranges = memory_at(buffer.data()).ranges();
    for (std::uint32_t tensor = 0; tensor < index_of_tensor_.size(); ++tensor) {
      const std::uint64_t missed = kernel_.progress.missed.of(tensor);
      if (index_of_tensor_[tensor] == no_parameter || missed == 0) continue;
      ranges[index_of_tensor_[tensor]].missed = static_cast<std::uint32_t>(std::min<std::uint64_t>(missed, UINT32_MAX));
      has_missed_ = true;
    }
  }
  [[nodiscard]] memory_type memory_at(std::uint8_t* buffer) const noexcept
  {
    return {reinterpret_cast<std::byte*>(buffer), sizes_};
  }

  [[nodiscard]] device_step_options on_device(const step_options& options) const noexcept
  {
    const bool scales = scale_.is_dynamic() || scale_.scale() != 1.0F;
    return {.clip = options.clip,
            .may_skip = options.skip_nonfinite || scales,
            .seed = options.seed,
            .loss = rule_of(scale_)};
  }
  [[nodiscard]] bool is_capturing() const
  {
    if constexpr (graph_backend<backend_type>)
      return manager_.backend().is_capturing();
    else
      return false;
  }

  template <class RateOf>
  void write_rates(const memory_type& memory, RateOf rate_of)
  {
    float rates[rates_kernel::most];
    for (std::size_t first = 0; first < sizes_.groups; first += rates_kernel::most) {
      const std::size_t count = std::min<std::size_t>(rates_kernel::most, sizes_.groups - first);
      for (std::size_t index = 0; index < count; ++index) rates[index] = rate_of(first + index);
      launcher_(manager_.backend(), agent::compute, rates_kernel{memory.rates() + first, {rates, count}});
    }
  }

  /// Where the steps run: kernels on the device, enqueued on compute.
  class site {
   public:
    static constexpr bool has_bytes = false;  // of a kernel on the host: nothing is kept or undone
    static constexpr bool host_reaches = false;
    static constexpr bool counts_in_kernel = false;  // device memory has the counts

    site(device_optimizer& self, const device_step_options& options) : self_{self}, options_{options} {}

    template <class Work>
    void at_place(memory_location, Work work) const
    {
      work(agent::compute);
    }
    void begin()
    {
      self_.prepare();
      buffer_.emplace(self_.manager_.acquire(self_.buffer_, access::read_write, agent::compute));
      enqueued_.emplace(self_.kernel_, memory(), options_, self_.manager_.backend(), agent::compute, self_.launcher_);
    }
    template <class Driver>
    void decide(Driver& driver)
    {
      const bool launches = !driver.rehearsing();
      if (launches && !self_.is_capturing())
        self_.write_rates(
            memory(), [&](std::size_t group) { return driver.rate_of(group_id{static_cast<std::uint32_t>(group)}); });
      if (launches) {
        self_.missing_.clear();
        driver.for_each_missing([&](tensor_handle, const tensor_info& info) {
          if (info.ordinal < self_.sizes_.parameters) self_.missing_.push_back(info.ordinal);
        });
        self_.has_missed_ = self_.has_missed_ || !self_.missing_.empty();
        enqueued_->begin();
      }
      if (options_.measures())
        driver.for_each_gradient([&](tensor_handle parameter, const tensor_info& info) {
          driver.read_gradient(parameter, [&](const std::byte* gradient, agent) {
            enqueued_->measure(info.ordinal, gradient, info.gradient, info.extents.elements());
          });
        });
      if (launches) enqueued_->decide();
      driver.keep({});  // for the calling thread; the device may decide to skip
    }
    [[nodiscard]] static constexpr bool overwrites(tensor_handle) noexcept { return true; }
    void update(const Kernel&, const parameter_bytes& all, const detail::update_request& request, agent)
    {
      // A graph may run when other steps have missed updates.
      const bool may_have_missed = self_.has_missed_ || self_.is_capturing();
      enqueued_->update(all, request.settings.group, has_master(all),
                        may_have_missed ? std::optional<std::uint64_t>{self_.place_of(all.tensor)} : std::nullopt);
    }
    /// Where a launch fails, the next call continues after the launches that succeeded.
    void end(step_decision, const step_options&)
    {
      std::vector<std::uint32_t>& missing = self_.missing_;
      while (!missing.empty()) {
        const std::size_t count = std::min(missing.size(), missed_kernel::most);
        enqueued_->miss(std::span{missing}.last(count));
        missing.resize(missing.size() - count);
      }
      enqueued_->finish();
    }

   private:
    /// With a master, the value was not loaded to the device, so it is always written: made again if the step is
    /// skipped.
    [[nodiscard]] static bool has_master(const parameter_bytes& all) noexcept
    {
      return std::any_of(all.lists, all.lists + all.list_count,
                         [](const list_bytes& list) { return list.use == list_use::master; });
    }
    [[nodiscard]] memory_type memory() const { return self_.memory_at(buffer_->data()); }

    device_optimizer& self_;
    device_step_options options_;
    std::optional<typename Manager::template pin_type<std::uint8_t>> buffer_;
    std::optional<device_step<Kernel, backend_type, Launcher>> enqueued_;
  };

  /// The states of the kernel that never change, such as its version of the numerics. States that change are on the
  /// device.
  struct kernel_constants {
    static constexpr std::string_view name = Kernel::name;
    template <class Visit>
    void for_each_state(Visit visit)
    {
      const auto visit_constant = [&](const restart_state& it) {
        if (it.is_constant) visit(it);
      };
      if constexpr (requires { kernel.for_each_state(visit_constant); }) kernel.for_each_state(visit_constant);
    }

    Kernel& kernel;
    registration registered{};
  };

  Manager& manager_;
  Kernel kernel_;
  kernel_constants constants_{kernel_};
  Launcher launcher_;
  loss_scale scale_;
  device_step_sizes sizes_;
  tensor<std::uint8_t> buffer_{};
  std::vector<std::uint32_t> index_of_tensor_;  // in the order of parameters, by tensor
  std::vector<std::uint32_t> missing_;  // parameters without a gradient in this step, not yet sent to the device
  std::uint64_t loads_ = 0;             // of the manager, at the last check of the buffer
  bool is_prepared_ = false;
  bool has_missed_ = false;  // some parameter may have missed an update
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
