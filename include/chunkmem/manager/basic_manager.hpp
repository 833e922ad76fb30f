// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/control_block.hpp>
#include <chunkmem/manager/engine.hpp>
#include <chunkmem/manager/gathered_chunks.hpp>
#include <chunkmem/manager/gradient_store.hpp>
#include <chunkmem/manager/gradients.hpp>
#include <chunkmem/manager/model_builder.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/manager/registered_states.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/manager/residency_snapshot.hpp>
#include <chunkmem/manager/update_session.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

template <class Wanted, class... Choices>
inline constexpr bool is_one_of = (std::same_as<Wanted, Choices> || ...);

/// The value of type `Policy` among the given policies, or a default value.
template <class Policy>
[[nodiscard]] Policy policy_value()
{
  static_assert(std::default_initializable<Policy>,
                "chunkmem: a policy of this manager needs settings: pass a value of this policy to the constructor");
  return Policy{};
}
template <class Policy, class First, class... Rest>
[[nodiscard]] Policy policy_value(const First& first, const Rest&... rest)
{
  if constexpr (std::same_as<Policy, First>)
    return first;
  else
    return policy_value<Policy>(rest...);
}

/// Keeps the tensors of a model in chunks that move between the device and the host.
///
/// Declare tensors and lists, rehearse a step if you want its exact need of memory, fill the weights, then train inside
/// iterations:
/// ```
/// backend::host_arena memory{{.device_capacity = 64_MiB, .host_capacity = 1_GiB}};
/// manager<backend::host_arena> m{memory};
/// auto w = m.add<float>({rows, columns}, role::parameter);
/// m.use(adam);                                     // its lists, and its states that checkpoints save
/// { auto pin = m.acquire(w, access::write); ... }  // fill
/// auto it = m.iteration();
/// auto pin = m.acquire(w, access::read);           // forward
/// auto g = m.gradient(std::move(pin));             // backward
/// ```
/// Name the type through `manager`, which fills in the policies that are not given. A 16-bit parameter may have a
/// master in full precision, which its optimizer updates; the manager makes the master from the weight. Optimizers use
/// `updates()`, checkpoints `content()`, sharded models `gathered()`. Guarantees: a call that throws leaves tensors,
/// states and bytes as they were; evicted chunks stay evicted.
/// @threads one caller at a time, from any thread; two managers share nothing
template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction,
          placement_policy Placement, gradient_policy Gradient, transfer_policy Transfer, chunk_mover<Backend> Mover,
          trace_sink Sink, check_policy Checks = checks::none>
class basic_manager {
 public:
  using engine_type = engine<Backend, Rules, Eviction, Transfer, Mover, Sink, Checks>;
  template <pinned_element Element>
  using pin_type = pin<Element, engine_type>;
  /// Holds a pin of any element type without access to its bytes: they stay in place while it lives.
  ///
  ///     std::vector<manager<backend::host_arena>::kept_pin> pins;
  ///     pins.emplace_back(m.acquire(weight, access::read));  // of float
  ///     pins.emplace_back(m.acquire(table, access::read));   // of bf16
  using kept_pin = holder<engine_type, access_token>;
  using place_type = typename engine_type::place_type;  ///< where in the trainer a call stands; empty without checks
  using state_tiers_type = state_tiers<Placement>;

  /// A manager without tensors. Nothing is allocated before the first access.
  ///
  ///     backend::host_arena memory{{.device_capacity = 64_MiB, .host_capacity = 1_GiB}};
  ///     manager<backend::host_arena, eviction::lru> m{memory, {.chunk_bytes = 1_MiB}};
  /// @param given   policies with settings, by value, in any order
  /// @throws config_error   the chunk size is not a positive multiple of 256 B
  template <class... Given>
  explicit basic_manager(Backend& backend, const manager_options& options = {}, Given... given)
      : basic_manager{policy_values{policy_value<Layout>(given...), policy_value<Eviction>(given...),
                                    policy_value<Placement>(given...), policy_value<Gradient>(given...),
                                    policy_value<Transfer>(given...), policy_value<Mover>(given...),
                                    policy_value<Sink>(given...)},
                      backend, options}
  {
    static_assert((is_one_of<Given, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink, Checks> && ...),
                  "chunkmem: the type of a policy value is not among the policies of this manager: add it to the "
                  "arguments of manager<...>");
  }
  ~basic_manager();
  basic_manager(const basic_manager&) = delete;  // pass a manager by reference: its pins point to it

  // Declaring.

  /// Declares a tensor and returns its handle. Nothing is allocated: the tensor has bytes from its first write on.
  /// O(1).
  ///
  ///     const auto w = m.add<bf16>({256, 128}, role::parameter);
  ///     const auto bias = m.add<float>({128}, role::parameter, group_id{1});  // in a group of its own
  ///     const auto table = m.add<std::int32_t>({1'000}, role::buffer);        // no optimizer touches it
  /// @param group   parameters that share settings of the optimizer
  /// @throws usage_error   sealed already, or a role that the manager makes itself; size_overflow
  template <element Element>
  tensor<Element> add(const shape& extents, role part, group_id group = group_id{0})
  {
    return builder_.template add<Element>(extents, part, group);
  }
  /// Declares `layers` tensors of one shape; `slice(l)` is one of them.
  ///
  ///     const auto weights = m.add_stacked<float>(12, {768, 768}, role::parameter);
  ///     auto pin = m.acquire(weights.slice(3), access::write);  // the fourth of twelve tensors
  template <element Element>
  stacked<Element> add_stacked(std::uint32_t layers, const shape& extents, role part, group_id group = group_id{0})
  {
    expects(layers > 0, "a stack of tensors needs at least one layer");
    engine_.tensors().make_room(layers);
    const tensor<Element> first = add<Element>(extents, part, group);
    for (std::uint32_t layer = 1; layer < layers; ++layer) add<Element>(extents, part, group);
    return {first, layers};
  }
  /// Sets the name of a tensor in files and messages. A tensor without a name is "tensor.<number>".
  ///
  ///     m.name(w, "wte");  // before: "tensor.0"
  /// @throws usage_error   not of this manager; config_error   another tensor has this name, or no checkpoint could
  ///   hold it (see name_rules)
  void name(tensor_handle wanted, std::string_view text)
  {
    builder_.expect_own(wanted, "a tensor was named that this manager did not make");
    engine_.tensors().name(wanted.id, text);
  }
  /// Registers an object that a training depends on besides its weights: an optimizer kernel, a loss scale, learning
  /// rates. The manager keeps the lists of the object for each parameter, and checkpoints save and load its states by
  /// name, such as "adam/updates". No other call is needed.
  ///
  /// The object belongs to this manager for good and must not move: a copy of the object is not registered. A step
  /// refuses a kernel or a loss scale that its manager was not given; learning rates are plain numbers for a step,
  /// which does not check this.
  ///
  ///     optimizer::adam adam{{.weight_decay = 0.1F}};
  ///     auto scale = optimizer::loss_scale::dynamic();
  ///     m.use(adam), m.use(scale);  // before the first access
  /// @throws usage_error   the object was given to a manager before; sealed already, and the object has lists; a name
  ///   twice; or an optimizer for a parameter that is no float32, bfloat16 or float16; config_error   no checkpoint
  ///   could hold a name. Nothing was changed
  template <registrable Owner>
  void use(Owner& owner)
  {
    states_.add(owner, [&] {
      constexpr bool takes_steps = requires { owner.progress.registered; };
      if constexpr (takes_steps) engine_.tensors().expect_updated();
      if constexpr (requires { std::span<const list_spec>{owner.lists()}; })
        use(std::span<const list_spec>{owner.lists()});
      if constexpr (takes_steps) engine_.tensors().take_steps();
    });
  }
  /// Adds lists for each parameter, without an optimizer.
  ///
  ///     const list_spec own[] = {{"curvature"}};
  ///     m.use(own);  // a float32 for each element of each parameter; zeros at first
  /// @throws usage_error   sealed already, or a name twice
  /// @throws config_error   the name of a tensor begins like the name of a list, or no checkpoint could hold the name
  void use(std::span<const list_spec> specs) { builder_.add_lists(specs); }
  /// Registers bytes of the caller that checkpoints save and load, by name. The caller keeps ownership.
  ///
  ///     std::uint64_t cursor = 0;  // outlives the manager
  ///     m.state("data/cursor", std::as_writable_bytes(std::span{&cursor, 1}));
  /// @throws usage_error   a name twice; config_error   no checkpoint could hold the name
  void state(std::string_view name, std::span<std::byte> content) { states_.add(name, content); }

  // Planning.

  /// Ends the declarations and places all tensors in chunks; nothing is allocated yet. The first access seals a manager
  /// that is not sealed. The result has the waste of the chunks and a better size of chunks. Cost: a search, as for
  /// least_waste_chunks, where chunks waste more than 0.5 %. A seal by the first access does not search.
  ///
  ///     const memory_requirement need = m.seal();
  ///     const double waste = need.waste.now.percent();  // of the chunks, in percent
  /// @throws config_error   the device is smaller than the largest tensor; device and host together are smaller than
  ///                        the weights (the message lists each size that must grow; a rehearsed step is known to fit
  ///                        and is not checked);
  ///                        no gradient could ever lie in place; the placement cannot place this model; or the layout
  ///                        cannot be searched for the size of chunks
  memory_requirement seal() { return builder_.seal_and_report(); }

  /// Runs `step` with pins and leases that have no bytes, and finds the least memory that the step needs.
  ///
  /// `step` must make the same calls as a real step; its arithmetic is skipped where `rehearsing()` is true. Pointers
  /// that it keeps elsewhere, such as in structs of a C trainer, are null afterwards: rehearse on a copy of them.
  /// `step` runs once, and once more where the placement gives states other tiers after the measurement. Each run is
  /// two where updates wait for the next step, and three with `early_updates`, whose step has three variants.
  ///
  ///     const memory_requirement need = m.rehearse([&] { train_one_step(m); });
  ///     const bool fits = need.smallest_device <= 8_GiB && need.smallest_host <= 64_GiB;
  /// @param on   what pins and leases point to: with scratch bytes, plain loops need no test of `rehearsing()`; see
  ///   rehearse_on
  /// @param known   the answer of another manager with the same tensors, policies, capacities and step, such as a
  ///   manager in virtual time: neither the need nor `others` is searched again. Null: both are searched
  /// @param others   capacities of other devices, for `need.smallest_host_for`. Each one costs one more search for a
  ///   host. Each rank may give capacities of its own
  /// @throws config_error   the device or host capacity is too small for this step, or the placement refuses it
  /// @throws usage_error    scratch bytes for a device that the calling thread cannot address, or as a mistake in the
  ///   step
  memory_requirement rehearse(call_ref<void()> step, rehearse_on on = rehearse_on::nothing,
                              const memory_requirement* known = nullptr, std::span<const bytes> others = {});
  /// Inside `rehearse`: pins have no bytes, or scratch bytes.
  ///
  ///     const auto pin = m.acquire(w, access::read_write);
  ///     if (!m.rehearsing()) pin.data()[0] += 1.0F;  // a rehearsal has no bytes: data() is null
  [[nodiscard]] bool rehearsing() const noexcept { return engine_.rehearsing().is_running(); }
  /// Iterations of this name follow a profile from another run of this model, from the first iteration on.
  ///
  ///     m.use_profile(profile_text::read(file));  // profile_text::write(file, *m.profile()) wrote it in another run
  ///     const auto first = m.iteration();         // follows a plan already
  /// @throws config_error   the profile is not of this model; usage_error   such an iteration was recorded already, or
  ///   an iteration is running
  void use_profile(const access_record& record, std::string_view name = "train")
  {
    builder_.expect_ready();
    expects(!rehearsing(), "a profile was given to a manager in a rehearsal");
    expect_record_fits(record, engine_.tensors());
    auto tiers = builder_.try_tiers();
    builder_.measured(most_leased(record, tier::device));
    builder_.assign_tiers();
    engine_.use_record(name, record);
    tiers.keep();
  }
  /// Iterations of this name follow a plan that another run solved. Call it after `use_profile`.
  ///
  ///     m.use_plan(plan_text::read(file));  // plan_text::write(file, m.plan()) wrote it in an earlier run
  /// @throws config_error, usage_error
  void use_plan(const transfer::iteration_plan& plan, std::string_view name = "train")
  {
    builder_.expect_ready();
    engine_.use_plan(plan, name);
  }

  // Training.

  /// Begins an iteration, which ends with the object or with its `end()`. The first one of a name is recorded, and the
  /// next ones follow a plan. O(1) where the last iteration was as recorded.
  ///
  ///     {
  ///       auto it = m.iteration("evaluation");  // the record of the training stays as it is
  ///       it.pass(pass::forward, 0);
  ///       evaluate_one_batch(m);
  ///     }                                       // the iteration ends here
  /// @throws usage_error     another iteration is running, or a pin holds a weight whose master is to be made; or the
  ///                         last iteration ended with its scope and had named too few micro-batches: reported once;
  ///                         later iterations begin
  /// @throws config_error    several micro-batches under gradient::in_place: their gradients could not add up; or the
  ///                         placement refuses the leases of the last iteration
  /// @throws out_of_memory   arenas cannot be allocated, or no room to make masters; device_error   a copy could not
  ///                         start. Masters that this call made are gone again; evicted chunks stay evicted
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::string_view name, std::uint32_t micro_batches = 1,
                                                           place_type from = place_type{})
  {
    if constexpr (!Checks::is_on)
      return begin(name, micro_batches);
    else
      return engine_.within("iteration", from, [&] { return begin(name, micro_batches); });
  }
  /// Begins an iteration with the name "train".
  ///
  ///     auto it = m.iteration(4);    // gradients of four micro-batches add up
  ///     for (std::uint32_t which = 0; which < 4; ++which) {
  ///       it.pass(pass::forward, which);
  ///       it.pass(pass::backward, which);
  ///     }
  [[nodiscard]] chunkmem::iteration<engine_type> iteration(std::uint32_t micro_batches = 1,
                                                           place_type from = place_type{})
  {
    return iteration("train", micro_batches, from);
  }

  /// Runs `step`, one iteration that repeats, and keeps its work as a graph that can be replayed; see captured_step.
  ///
  ///     auto graph = m.capture(step);
  ///     if (!graph.replay()) step();  // false where the graph is out of date: the step runs as usual
  /// @throws usage_error    the step does not repeat yet; it has work that no graph can hold, such as work on the host
  ///                        (its earlier work is done, as after any exception in a step); or it was not the recorded
  ///                        iteration
  template <class Step>
    requires graph_backend<Backend>
  [[nodiscard]] auto capture(Step&& step)
  {
    static_assert(
        Transfer::plans,
        "chunkmem: a captured step follows a plan: name a transfer policy that plans, such as transfer::lookahead");
    return engine_.within("capture", place_type{}, [&] {
      builder_.expect_ready();
      expects(!rehearsing(), "a step cannot be captured in a rehearsal");
      return capture_step<Backend>(*link_, engine_.backend(), std::forward<Step>(step));
    });
  }

  /// A pin on the device, ready for the calling thread. The pin is const, unless `mode` is `access::read_write` or
  /// `access::write`. A variable of type `access` gives a const pin as well; see `pin::writable`. O(1) where the bytes
  /// are on the device; else the calling thread waits until their copy has ended.
  ///
  ///     const auto pin = m.acquire(w, access::read);          // waits for a copy only where w is elsewhere
  ///     const float first = pin.span()[0];                    // pin.data() is a const float*
  ///     for (float& x : m.acquire(bias, access::write).span()) x = 0;  // all of it is overwritten: nothing is loaded
  /// @throws out_of_memory   all chunks that could leave are pinned; the message names the capacity that this access
  ///   needs
  /// @throws usage_error     not written yet, in use where it must not be, or a tensor of another manager
  /// @throws device_error    a copy could not be started; try again when the device works
  template <element Element, access_choice Access>
  [[nodiscard, gnu::always_inline]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode,
                                                                                 place_type from = place_type{})
  {
    const auto take_it = [&] { return take(wanted, mode, agent::host); };
    if constexpr (!Checks::is_on)
      return {link_.get(), take_it};  // the hot path: nothing comes between
    else
      return engine_.within("acquire", from, [&] {
        return pin_type<pinned_as<Element, Access>>{link_.get(), take_it};
      });
  }
  /// A pin on the device, ready for a stream: the host does not wait, and later users of the bytes wait for the
  /// stream's work before the release.
  ///
  ///     const agent stream = m.adopt();                       // or agent::compute
  ///     const auto pin = m.acquire(w, access::read, stream);  // launch kernels on that stream while the pin lives
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode, agent stream,
                                                             place_type from = place_type{})
  {
    const auto take_for = [&] { return check(stream), take(wanted, mode, stream); };
    if constexpr (!Checks::is_on)
      return {link_.get(), take_for};
    else
      return engine_.within("acquire", from, [&] {
        return pin_type<pinned_as<Element, Access>>{link_.get(), take_for};
      });
  }
  /// A pin on the device or on the host, ready for the calling thread.
  ///
  ///     const auto pin = m.acquire(w, access::read, memory_location::host);  // for work on the CPU
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode, memory_location place,
                                                             place_type from = place_type{})
  {
    using result = pin_type<pinned_as<Element, Access>>;
    if (place == memory_location::device) return acquire(wanted, mode, from);
    return engine_.within("acquire", from, [&] {
      return result{link_.get(), [&] { return take_in(wanted, mode, place); }};
    });
  }
  /// A pin of a parameter in a list: a state of an optimizer, or a gradient between backward and step.
  ///
  ///     const auto pin = m.acquire<float>(w, m.list("adam/variance"), access::read, memory_location::host);
  ///     const float largest = std::ranges::max(pin.span());
  /// @throws usage_error   an element type that is not the list's own, or a list without an element for this parameter
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor_handle wanted, list_id list, Access mode,
                                                             memory_location place, place_type from = place_type{})
  {
    return engine_.within("acquire", from, [&] {
      expect_element<Element>(wanted, list);
      return list == value_list && writes(mode) ? acquire(tensor<Element>{wanted}, mode, place, from)
                                                : acquire_in<pinned_as<Element, Access>>(wanted, list, mode, place);
    });
  }
  /// Pins a tensor of this list on the device, ready for a stream.
  ///
  ///     const auto pin = m.acquire<float>(w, gradient_list, access::read, agent::compute);
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor_handle wanted, list_id list, Access mode,
                                                             agent stream, place_type from = place_type{})
  {
    return engine_.within("acquire", from, [&] {
      check(stream);
      expect_element<Element>(wanted, list);
      return list == value_list && writes(mode)
                 ? acquire(tensor<Element>{wanted}, mode, stream, from)
                 : acquire_in<pinned_as<Element, Access>>(wanted, list, mode, memory_location::device, stream);
    });
  }
  /// A pin of any tensor as bytes, whatever its element type, ready for the calling thread: for a save or a load.
  ///
  ///     const auto pin = m.acquire_bytes(w, access::read, memory_location::host);
  ///     file.write(reinterpret_cast<const char*>(pin.data()), static_cast<std::streamsize>(pin.size()));
  template <access_choice Access>
  [[nodiscard]] pin_type<pinned_as<std::uint8_t, Access>> acquire_bytes(tensor_handle wanted, Access mode,
                                                                        memory_location place,
                                                                        place_type from = place_type{})
  {
    return engine_.within("acquire_bytes", from, [&] {
      return pin_type<pinned_as<std::uint8_t, Access>>{link_.get(), [&] { return take_in(wanted, mode, place); }};
    });
  }
  /// A list of a parameter as bytes, on the host ready for `stream`. For optimizers: a weight written through this pin
  /// counts as equal to its master.
  ///
  ///     const auto pin = m.acquire_bytes(w, gradient_list, access::read, memory_location::host);
  template <access_choice Access>
  [[nodiscard]] pin_type<pinned_as<std::uint8_t, Access>> acquire_bytes(tensor_handle wanted, list_id list, Access mode,
                                                                        memory_location place,
                                                                        agent stream = agent::host,
                                                                        place_type from = place_type{})
  {
    return engine_.within("acquire_bytes", from, [&] {
      return acquire_in<pinned_as<std::uint8_t, Access>>(wanted, list, mode, place, stream);
    });
  }
  /// Pins a tensor of any element type on the device as plain bytes, ready for a stream.
  ///
  ///     const auto pin = m.acquire_bytes(w, gradient_list, access::read, agent::compute);
  template <access_choice Access>
  [[nodiscard]] pin_type<pinned_as<std::uint8_t, Access>> acquire_bytes(tensor_handle wanted, list_id list, Access mode,
                                                                        agent stream, place_type from = place_type{})
  {
    return engine_.within("acquire_bytes", from, [&] {
      check(stream);
      return acquire_in<pinned_as<std::uint8_t, Access>>(wanted, list, mode, memory_location::device, stream);
    });
  }
  /// A list of a parameter as bytes, for reading, ready for `stream`. The record of the iteration does not contain this
  /// access. For a save.
  ///
  ///     const auto pin = m.acquire_beside(w, value_list, memory_location::host, agent::host);
  [[nodiscard]] pin_type<const std::uint8_t> acquire_beside(tensor_handle wanted, list_id list, memory_location place,
                                                            agent stream, place_type from = place_type{})
  {
    return engine_.within("acquire_beside", from, [&] {
      return pin_type<const std::uint8_t>{
          link_.get(), [&] { return engine_.acquire_beside(builder_.slot_in(wanted, list), place, stream); }};
    });
  }

  /// Opens the gradient of the weight that `weight` holds. The pin of the weight is consumed, also where the gradient
  /// has no room, or a pin on the host blocks its chunk.
  ///
  ///     auto pin = m.acquire(w, access::read);
  ///     gradient_of_input(pin.data());
  ///     auto g = m.gradient(std::move(pin));  // pin is empty from here on
  ///     write_gradient(g.data(), g.beta());   // beta() is 0 at the first write of a step: set; else 1: add
  /// @tparam Kind   element type of the gradient, where it is not the weight's: float with wide gradients
  ///   (gradient::separate)
  /// @param how     zeros: for kernels that write some elements only. The agent fills the bytes with zeros, and beta()
  ///   is 1 from the first write on
  /// @throws usage_error   with the pin as it was: no parameter of this manager, rules without gradients, another
  ///                       element type, after gradient_done, or a gradient in place while another pin holds the
  ///                       weight
  template <class Kind = void, pinned_element Element>
  [[nodiscard]] auto gradient(pin_type<Element>&& weight, gradient_start how = gradient_start::undefined,
                              place_type from = place_type{})
  {
    return engine_.within("gradient", from, [&] {
      const access_token held = weight.details();
      expects(weight.is_of(link_.get()), "a gradient was requested with a pin of another manager");
      refuse_without_gradients();
      engine_.tensors().expects_of(held.slot, engine_.tensors().is_value_of_parameter(held.slot),
                                   "a gradient was requested with a pin that holds no parameter");
      using kind = std::conditional_t<std::is_void_v<Kind>, std::remove_const_t<Element>, Kind>;
      gradients_.template expect<kind>(held.slot, 1);
      weight.release();
      return open_gradient<kind>(held.slot, held.stream, how);
    });
  }
  /// Opens the gradient of a parameter by its handle, without a pin: for frameworks that own the gradients that they
  /// compute.
  ///
  ///     const auto g = m.gradient(w, agent::host, gradient_start::zeros);
  ///     g.data()[5] += 1.0F;  // an embedding writes some rows: the others are zeros
  template <class Kind = void, element Element>
  [[nodiscard]] auto gradient(tensor<Element> weight, agent stream = agent::host,
                              gradient_start how = gradient_start::undefined, place_type from = place_type{})
  {
    return engine_.within("gradient", from, [&] {
      check(stream);
      refuse_without_gradients();
      (void)builder_.slot_in(weight, gradient_list);
      using kind = std::conditional_t<std::is_void_v<Kind>, Element, Kind>;
      gradients_.template expect<kind>(builder_.slot_of(weight), 0);
      return open_gradient<kind>(builder_.slot_of(weight), stream, how);
    });
  }

  /// Marks the gradient as complete for this micro-batch, and releases the pin. In the last micro-batch of an
  /// iteration, the norms of a gradient that the calling thread wrote are taken now, while the gradient is in the
  /// cache. `optimizer::step` then needs no pass for norms.
  ///
  ///     auto g = m.gradient(w);
  ///     write_gradient(g.data(), g.beta());
  ///     m.gradient_done(std::move(g));  // takes the norm while the bytes are in the cache
  /// @throws usage_error   another pin holds the gradient
  template <element Element>
  void gradient_done(gradient_pin<Element, engine_type>&& last, place_type from = place_type{})
  {
    engine_.within("gradient_done", from, [&] {
      const access_token held = last.details();
      expects(last.is_of(link_.get()), "gradient_done with a pin of another manager");
      engine_.tensors().expects_of(held.slot, engine_.tensors()[held.slot].pins == 1,
                                   "gradient_done while another pin holds the gradient: release it before");
      engine_.expect_written(held, "gradient_done");
      note_done(last, held);
      last.release();
    });
  }
  /// Completes the gradient of a parameter by its handle, after the gradient's pins were released. Norms are taken
  /// where `stream` is the calling thread.
  ///
  ///     {
  ///       auto g = m.gradient(w);
  ///       write_gradient(g.data(), g.beta());
  ///     }                    // the pin ends here
  ///     m.gradient_done(w);
  template <element Element>
  void gradient_done(tensor<Element> weight, agent stream = agent::host, place_type from = place_type{})
  {
    engine_.within("gradient_done", from, [&] { finish_gradient(weight, stream); });
  }
  /// Marks the bytes of a tensor as dead: they are never copied again. For a tensor without bytes, the call only adds
  /// an entry to the record.
  ///
  ///     m.drop(activation);  // it leaves the device without a copy
  /// @throws usage_error   pinned; device_error   a planned copy could not start
  void drop(tensor_handle wanted, place_type from = place_type{})
  {
    engine_.within("drop", from, [&] { engine_.drop(builder_.slot_of(wanted)); });
  }
  /// Drops all gradients, for example to repeat a step. Gradients that were not written are skipped. Weights whose
  /// bytes their gradients had taken come back from their masters with the same bits.
  ///
  ///     run_backward(m);
  ///     m.drop_gradients();  // as before the backward pass: run it again
  /// @throws out_of_memory, device_error; usage_error   a pin blocks the tier where a weight is made again: the
  ///         gradient is gone and its weight unreadable; call again to continue. usage_error also where a gradient is
  ///         pinned, or an optimizer step is half done and needs the other gradients: nothing was dropped.
  void drop_gradients(place_type from = place_type{})
  {
    engine_.within("drop_gradients", from, [&] {
      engine_.pending().finish();
      engine_.gradients().expect_no_update("gradients cannot be dropped");
      if (engine_.tensors().parameters() > 0) builder_.expect_ready();
      gradients_.forget_step();
    });
  }
  /// Drops the gradient of one parameter: the next step skips this parameter.
  ///
  ///     m.drop_gradient(w);  // w keeps its value and its states in the next step
  /// @throws   as `drop_gradients`
  void drop_gradient(tensor_handle wanted, place_type from = place_type{})
  {
    engine_.within("drop_gradient", from, [&] {
      engine_.pending().finish();
      engine_.gradients().expect_no_update("a gradient cannot be dropped");
      engine_.gradients().note_dropped();  // a step that has decided and updated nothing decides again
      updates_.consume_gradient(wanted);
    });
  }

  /// Leases scratch bytes from the same budget, in multiples of 256 B. Chunks leave to make room.
  ///
  ///     const auto scratch = m.lease(tier::device, 64_KiB);  // the bytes are yours until the lease ends
  ///     auto* const numbers = reinterpret_cast<float*>(scratch.data());
  /// @throws out_of_memory   all chunks that could leave are pinned
  /// @throws usage_error   zero bytes
  [[nodiscard]] chunkmem::lease<engine_type> lease(tier where, bytes size, agent stream = agent::host,
                                                   place_type from = place_type{})
  {
    return engine_.within("lease", from, [&] {
      expects(size.count() > 0, "a lease of zero bytes");
      expects(is_tier(where), "a lease on a tier that no backend has (use tier::device or tier::host)");
      check(stream);
      builder_.expect_ready();
      return chunkmem::lease<engine_type>{
          link_.get(), [&] { return engine_.lease(where, align_up(size, tensor_alignment).count(), stream); }};
    });
  }
  /// For checks::full: this parameter may be without a gradient in any step, such as an expert that no token chose.
  /// Other check policies ignore the call.
  ///
  ///     m.without_gradient(expert);  // no check expects a gradient of this weight
  /// @throws usage_error   not of this manager
  void without_gradient(tensor_handle wanted)
  {
    (void)info(wanted);
    engine_.checks().allow_no_gradient(index_of(wanted.id));
  }
  /// For checks::full: looks at all bytes that no pin holds, for example at the end of a program. Other check policies
  /// ignore the call.
  ///
  ///     m.verify();  // at the end of a program: throws where a byte was written without a pin
  /// @throws usage_error   the mistakes found since the last call
  void verify(place_type from = place_type{})
  {
    engine_.within("verify", from, [&] { engine_.verify(); });
  }
  /// Exchanges the bytes of two lists without a copy, for example when weight versions flip. A plan is used again when
  /// the lists are back in the order that it was made for. Masters stay: they belong to the newest weights, and the
  /// next update writes weights from them. So exchange the weights back before a step, as pipeline::weight_versions
  /// does.
  ///
  ///     m.exchange(m.list("older"), m.list("newer"));  // O(chunks); no byte moves
  /// @throws usage_error   inside an iteration or rehearsal; in the middle of an optimizer step that failed, or that
  ///                       early_updates began; lists of two element types, or one of them is pinned; weights with
  ///                       masters under gradient::in_place, or that were written since their masters were made
  void exchange(list_id left, list_id right, place_type from = place_type{})
  {
    engine_.within("exchange", from, [&] { exchange_lists(left, right); });
  }

  // Queries. None of them moves a chunk.

  /// The counts since the manager was made, also of a manager whose device is lost.
  ///
  ///     const report seen = m.report();
  ///     std::cout << seen.loads << " loads, " << seen.stalls.seconds() << " s of waits\n";
  [[nodiscard]] chunkmem::report report() const { return engine_.snapshot(); }
  /// The places of all chunks and tensors now, as data; `to_string` makes a short text of them. Callable at any time,
  /// also inside an iteration and after a refused call, which moved nothing. O(frames + chunks + tensors log tensors),
  /// allocates.
  ///
  ///     const residency_snapshot now = m.residency();
  ///     std::cout << to_string(now);  // the tensors that lie in each tier
  [[nodiscard]] residency_snapshot residency() const { return take_snapshot_of(engine_, engine_.tensors().names()); }
  /// The last iteration differed from its record, or others held more of the device than usual.
  ///
  ///     if (m.drifted()) std::cerr << "this iteration was not the recorded one\n";
  [[nodiscard]] bool drifted() const noexcept
  {
    return engine_.schedule().last_changed() || engine_.external_memory().has_drifted();
  }
  /// From now on `source()` gives the bytes of the device that others hold, such as a framework's allocator. For the
  /// count of the backend: `[&] { return memory.other_bytes(); }`. The source is called at each pass and must outlive
  /// the manager.
  ///
  ///     const auto others = [&] { return bytes{framework_bytes()}; };  // outlives the manager
  ///     m.watch_external_memory(others);
  template <class Source>
  void watch_external_memory(Source& source) noexcept
  {
    engine_.external_memory().watch(source);
  }
  /// The bytes that the source of `watch_external_memory` gave: highest, percentiles, drift.
  ///
  ///     const bytes highest = m.external_memory().highest();  // that others held of the device
  [[nodiscard]] const external_memory_monitor& external_memory() const noexcept { return engine_.external_memory(); }
  /// The record of the iterations of this name, or null before the first one was recorded. Valid until the next
  /// iteration of this name ends.
  ///
  ///     if (const access_record* const record = m.profile()) profile_text::write(file, *record);
  [[nodiscard]] const access_record* profile(std::string_view name = "train") const noexcept
  {
    return engine_.schedule().record_of(name);
  }
  /// The record of the first run of the last rehearsed step. Empty before any rehearsal. Valid until the next
  /// rehearsal.
  ///
  ///     profile_text::write(file, m.rehearsed());  // a profile without a training
  [[nodiscard]] const access_record& rehearsed() const noexcept { return engine_.rehearsing().record(); }
  /// The solved plan of the iterations of this name. plan_text writes it to a file for the next run.
  ///
  ///     plan_text::write(file, m.plan());  // for use_plan in the next run
  /// @throws usage_error   these iterations have no plan yet
  [[nodiscard]] transfer::iteration_plan plan(std::string_view name = "train") const
  {
    return engine_.schedule().plan_of(name);
  }
  /// The chunk of each slot that a profile names. Valid until the next tensor is placed.
  ///
  ///     const std::size_t slots = m.chunk_of_slot().size();  // values, gradients and states of all tensors
  [[nodiscard]] std::span<const std::uint32_t> chunk_of_slot() const noexcept
  {
    return engine_.tensors().chunk_of_slot();
  }
  /// The slot of a tensor's values, as a profile names it. Seals a manager that is not sealed.
  ///
  ///     const std::uint32_t chunk = m.chunk_of_slot()[m.slot_of(w)];
  /// @throws usage_error   as `acquire`, for a tensor of another manager
  [[nodiscard]] std::uint32_t slot_of(tensor_handle wanted) { return index_of(builder_.slot_of(wanted)); }
  /// Accesses, leases and drops so far in the current iteration; 0 outside of an iteration.
  ///
  ///     const std::uint32_t before = m.access_index();
  ///     (void)m.acquire(w, access::read);
  ///     const std::uint32_t accesses = m.access_index() - before;  // 1
  [[nodiscard]] std::uint32_t access_index() const noexcept { return engine_.schedule().progress(); }
  /// An iteration is running.
  ///
  ///     if (!m.is_iterating()) m.exchange(m.list("older"), m.list("newer"));
  [[nodiscard]] bool is_iterating() const noexcept { return engine_.schedule().is_inside(); }

  /// A kind of bytes of all parameters by its name, such as "adam/momentum".
  ///
  ///     const list_id momentum = m.list("adam/momentum");
  ///     const auto pin = m.acquire<float>(w, momentum, access::read, memory_location::host);
  /// @throws usage_error   there is no list of this name
  [[nodiscard]] list_id list(std::string_view name) const { return engine_.tensors().list(name); }
  /// The policy that places states.
  ///
  ///     const double share = m.placement().device_share;  // of placement::update_share
  [[nodiscard]] const auto& placement() const noexcept { return builder_.tiers().policy(); }
  /// The placement uses other settings from now on. Bytes stay where they are. Where states have another tier now, the
  /// next iteration is a divergence, which is recorded. Cost: O(parameters).
  ///
  ///     m.use_placement(placement::update_share{.device_share = 0.5});  // of all updates, from the next iteration on
  /// @throws usage_error   in an iteration or a rehearsal; and as the placement's `assign`. Nothing was changed
  void use_placement(Placement policy)
  {
    expects(!is_iterating() && !rehearsing(), "a placement was given to a manager in an iteration: end it before");
    builder_.change_placement(std::move(policy));
  }
  /// 16-bit parameters have masters.
  ///
  ///     const std::uint64_t bytes_of_states = m.has_masters() ? 12 : 8;  // of Adam, for each 16-bit parameter
  [[nodiscard]] bool has_masters() const noexcept { return engine_.tensors().has_masters(); }
  /// Which uses of the tensor are legal next.
  ///
  ///     const bool written = m.state_of(w) != tensor_state::free;
  [[nodiscard]] tensor_state state_of(tensor_handle wanted)
  {
    return engine_.tensors()[builder_.slot_of(wanted)].state;
  }
  /// The parameter has a gradient for the next step. False for a gradient that already belongs to a step, whose update
  /// waits until the weight is used.
  ///
  ///     if (!m.has_gradient(expert)) ++experts_without_tokens;
  [[nodiscard]] bool has_gradient(tensor_handle wanted)
  {
    return is_filled(wanted, gradient_list) && !engine_.pending().has(builder_.slot_of(wanted));
  }
  /// The parameter has bytes in this list that were written or filled.
  ///
  ///     const bool is_loaded = m.is_filled(w, value_list);
  [[nodiscard]] bool is_filled(tensor_handle wanted, list_id list)
  {
    return engine_.tensors()[builder_.slot_in(wanted, list)].state != tensor_state::free;
  }
  /// The parameter has an element in this list: a 32-bit one has no master.
  ///
  ///     const bool has_master = m.has_masters() && m.is_in(w, m.list("master"));
  [[nodiscard]] bool is_in(tensor_handle wanted, list_id list) const
  {
    return engine_.tensors().is_in(wanted.id, list);
  }
  /// Parameters whose updates wait for the next use of their weights: see optimizer::late_updates.
  ///
  ///     late.step({.learning_rate = 1e-3F});
  ///     const std::size_t waiting = m.updates_pending();  // they run when their weights are used
  [[nodiscard]] std::size_t updates_pending() const noexcept { return engine_.pending().count(); }
  /// The declaration of a tensor. Valid until the next declaration. @throws usage_error   a tensor of another manager
  ///
  ///     const bool trained = m.info(w).part == role::parameter;
  [[nodiscard]] const tensor_info& info(tensor_handle wanted) const
  {
    builder_.expect_own(wanted, "info was requested of a tensor that another manager made");
    return engine_.tensors().info(wanted.id);
  }
  /// The name of a tensor in files and messages.
  ///
  ///     const std::string name = m.name_of(w);  // "tensor.0" where nobody named it
  [[nodiscard]] std::string name_of(tensor_handle wanted) const { return engine_.tensors().name_of(wanted.id); }
  /// Calls `visit(handle, info)` for each parameter, in the order of declaration. Callable before the manager is
  /// sealed.
  ///
  ///     std::uint64_t parameters = 0;
  ///     m.for_each_parameter([&](tensor_handle, const tensor_info& info) { parameters += info.extents.elements(); });
  /// @throws device_error   the device is lost
  template <class Visit>
  void for_each_parameter(Visit visit)
  {
    for_each_tensor([&](tensor_handle it, const tensor_info& info) {
      if (info.part == role::parameter) visit(it, info);
    });
  }
  /// Calls `visit(handle, info)` for each tensor of any role, in the order of declaration.
  ///
  ///     m.for_each_tensor([&](tensor_handle it, const tensor_info& info) {
  ///       std::cout << m.name_of(it) << ": " << name_of(info.part) << '\n';
  ///     });
  template <class Visit>
  void for_each_tensor(Visit visit)
  {
    engine_.health().expect_alive();
    for (std::uint32_t id = 0; id < engine_.tensors().tensors(); ++id)
      visit(builder_.handle_of(tensor_id{id}), engine_.tensors().info(tensor_id{id}));
  }
  /// Calls `visit(list, spec)` for each list that was added with `use`.
  ///
  ///     m.for_each_list([&](list_id, const list_spec& spec) { std::cout << spec.name << '\n'; });
  template <class Visit>
  void for_each_list(Visit visit) const
  {
    for (std::uint32_t index = 2; index < engine_.tensors().lists(); ++index)
      visit(list_id{index}, engine_.tensors().spec_of(list_id{index}));
  }

  // For optimizers, checkpoints and sharded models; a trainer needs none of these.

  [[nodiscard]] auto& updates() noexcept { return updates_; }  ///< see update_session
  [[nodiscard]] auto& content() noexcept { return content_; }  ///< see content_session
  [[nodiscard]] const auto& content() const noexcept { return content_; }
  /// For batches with fewer rows than declared: activations without bytes have other sizes from now on. See
  /// engine::resize.
  ///
  ///     m.resize_activations([&](auto set) { set(activation, 128_B); });  // the first 32 floats are used
  /// @param give   calls its argument with each tensor and its bytes, at most the declared ones; called twice
  /// @throws usage_error   no activation of this manager, or it holds bytes: no size has changed; device_error
  template <class Give>
  void resize_activations(Give give)
  {
    builder_.expect_ready();
    engine_.resize([&](auto set) {
      give([&](tensor_handle wanted, bytes size) {
        expects(info(wanted).part == role::activation, "another size was given to a tensor that is no activation");
        set(builder_.slot_of(wanted), size);
      });
    });
  }
  [[nodiscard]] gathered_access<engine_type> gathered() noexcept  ///< see gathered_access
  {
    return gathered_access<engine_type>{engine_};
  }
  /// The memory that the constructor was given.
  ///
  ///     const bytes all = m.backend().capacity(tier::device);
  [[nodiscard]] Backend& backend() const noexcept { return engine_.backend(); }
  /// Makes one more agent, for a stream of the caller.
  ///
  ///     const agent mine = m.adopt();
  ///     const auto pin = m.acquire(w, access::read, mine);
  [[nodiscard]] agent adopt() { return engine_.backend().adopt(); }

  // Mistakes. Each of these calls is refused with a sentence that names the right call. They return `auto`, so that the
  // sentence is the first error.

  template <class Other>
    requires(!element<Other>)
  auto add(const shape&, role, group_id = group_id{0})
  {
    static_assert(element<Other>,
                  "chunkmem: tensors are of float, bf16, fp16, std::int32_t, std::int64_t or std::uint8_t");
  }
  template <class Other>
    requires(!element<Other>)
  auto add_stacked(std::uint32_t, const shape& extents, role part, group_id group = group_id{0})
  {
    return add<Other>(extents, part, group);
  }
  template <element Element, class... Rest>
  auto acquire(stacked<Element>, const Rest&...)
  {
    static_assert(
        !element<Element>,
        "chunkmem: a stack has a tensor for each layer: name one, as in m.acquire(weights.slice(layer), ...)");
    return pin_type<Element>{};
  }
  template <element Element>
  auto acquire(tensor<Element>)
  {
    static_assert(!element<Element>,
                  "chunkmem: an acquire says how the bytes are used: add access::read, access::read_write or "
                  "access::write, as in m.acquire(weight, access::read)");
    return pin_type<Element>{};
  }
  template <element Element, access_choice Access>
  auto acquire(tensor<Element>, Access, place_type = place_type{}) const
  {
    static_assert(!element<Element>,
                  "chunkmem: an acquire may move chunks, also one for reading: take the manager by a reference without "
                  "const");
    return pin_type<Element>{};
  }
  template <element Element>
  auto name(stacked<Element>, std::string_view)
  {
    static_assert(!element<Element>,
                  "chunkmem: a stack has a tensor for each layer: name each of them, as in "
                  "m.name(weights.slice(layer), \"layer.\" + std::to_string(layer))");
  }
  template <element Element, class... Rest>
  auto gradient(stacked<Element>, const Rest&...)
  {
    static_assert(!element<Element>,
                  "chunkmem: a stack has a tensor for each layer: name one, as in m.gradient(weights.slice(layer))");
  }
  template <class Kind = void, pinned_element Element>
  auto gradient(const pin_type<Element>&, gradient_start = gradient_start::undefined)
  {
    static_assert(!pinned_element<Element>,
                  "chunkmem: a gradient ends the pin of its weight: write m.gradient(std::move(pin))");
  }
  template <element Element>
  auto gradient_done(const gradient_pin<Element, engine_type>&)
  {
    static_assert(!element<Element>,
                  "chunkmem: gradient_done ends the pin of the gradient: write m.gradient_done(std::move(g))");
  }

 private:
  struct policy_values {
    Layout layout;
    Eviction eviction;
    Placement placement;
    Gradient gradient;
    Transfer transfer;
    Mover mover;
    Sink sink;
  };

  /// Not a template over the given values, so that one object file has it (see compiled_manager.hpp).
  basic_manager(policy_values values, Backend& backend, const manager_options& options);

  [[nodiscard]] static const manager_options& checked(const manager_options& options)
  {
    const std::uint64_t chunk = options.chunk_bytes.count();
    if (options.chunk_bytes != least_waste_chunks && (chunk == 0 || chunk % tensor_alignment.count() != 0))
      throw config_error{error_text{} << "chunkmem: chunk_bytes is " << chunk
                                      << " B (give a positive multiple of 256 B, or least_waste_chunks)"};
    return options;
  }
  [[nodiscard]] static std::string details_of(const void* engine)
  {
    const auto& it = *static_cast<const engine_type*>(engine);
    return error_details(it, it.tensors().names());
  }
  /// For checks.
  static void wait_for_own_agents(void* engine) noexcept
  {
    static_cast<engine_type*>(engine)->arenas().wait_for_own_agents();
  }
  static void describe(void* engine, std::uint32_t slot, error_text& text) noexcept
  {
    text << static_cast<const engine_type*>(engine)->tensors().label(slot_id{slot});
  }
  void check(agent stream) const
  {
    expects(static_cast<std::size_t>(stream) < engine_.backend().agents(),
            "an agent that this backend does not have: adopt() makes one");
    expects(stream != agent::to_device && stream != agent::to_host,
            "the agents of the manager's own copies: use compute, or adopt() one");
  }

  [[nodiscard]] chunkmem::iteration<engine_type> begin(std::string_view name, std::uint32_t micro_batches);

  template <element Element>
  void finish_gradient(tensor<Element> weight, agent stream)
  {
    check(stream);
    const slot_id slot = builder_.slot_in(weight, gradient_list);
    const registry& tensors = engine_.tensors();
    tensors.expects_of(slot, has_gradient(weight), "gradient_done of a gradient that was not written");
    tensors.expects_of(slot, tensors[slot].pins == 0,
                       "gradient_done while a pin holds the gradient: release it before");
    engine_.expect_written(builder_.slot_of(weight), "gradient_done");
    const auto finish = [&](const auto& held) { note_done(held, held.details()); };
    if (stream != agent::host || !engine_type::host_addressable || engine_.gradients().micro_batches().expects_more())
      return engine_.gradients().finish(builder_.slot_of(weight));
    if (engine_.tensors().type_in(weight.id, gradient_list) == dtype_of<Element>)
      finish(acquire_in<const Element>(weight, gradient_list, access::read, memory_location::device));
    else
      finish(acquire_in<const float>(weight, gradient_list, access::read, memory_location::device));
  }
  void exchange_lists(list_id left, list_id right)
  try {
    expects(!rehearsing(), "lists cannot be exchanged in a rehearsal");
    engine_.gradients().expect_no_update("lists cannot be exchanged");
    builder_.expect_ready();
    engine_.exchange(left, right);
    if (left != right && (left == gradient_list || right == gradient_list)) engine_.gradients().forget_gradients();
  } catch (error& failed) {
    engine_.annotator().annotate(failed);
    throw;
  }
  static void refuse_without_gradients()
  {
    expects(state_machine<Rules>::is_legal(tensor_state::compute, tensor_event::consume),
            "a gradient under rules that know none");
  }

  /// The hot path has one test more than the engine: a write of a weight may make its master out of date.
  [[nodiscard, gnu::always_inline]] access_token take(tensor_handle wanted, access_mode mode, agent stream)
  {
    if (writes(mode) && engine_.tensors().has_masters()) [[unlikely]]
      return take_to_write(wanted, mode, stream);
    const slot_id slot = builder_.slot_of(wanted);
    if (stream != agent::host) return engine_.acquire(slot, kind_of(mode, memory_location::device), stream);
    if (mode == access::read) return engine_.template acquire_as<entry_kind::read>(slot);
    return mode == access::write ? engine_.template acquire_as<entry_kind::write>(slot)
                                 : engine_.template acquire_as<entry_kind::read_write>(slot);
  }
  [[nodiscard, gnu::noinline]] access_token take_to_write(tensor_handle wanted, access_mode mode, agent stream)
  {
    return take_in(wanted, mode, memory_location::device, stream);
  }
  [[nodiscard]] access_token take_in(tensor_handle wanted, access_mode mode, memory_location place,
                                     agent stream = agent::host)
  {
    const slot_id slot = builder_.slot_of(wanted);
    const entry_kind kind = kind_of(mode, place);
    if (!writes(mode)) return engine_.acquire_in_place(slot, kind, stream);
    gradients_.expect_writable(slot);
    const access_token result = engine_.acquire_in_place(slot, kind, stream);
    gradients_.note_written(slot);
    return result;
  }

  template <element Element>
  void expect_element(tensor_handle wanted, list_id list)
  {
    const slot_id slot = builder_.slot_in(wanted, list);
    if (const dtype own = engine_.tensors().type_in(wanted.id, list); own != dtype_of<Element>) [[unlikely]]
      throw usage_error{error_text{} << "chunkmem: " << engine_.tensors().label(slot)
                                     << ": a list was acquired with an element type that is not its own: "
                                     << chunkmem::name_of(dtype_of<Element>) << ", and it is of "
                                     << chunkmem::name_of(own) << " (name that type, as in m.acquire<float>(...))"};
  }
  template <pinned_element Element>
  [[nodiscard]] pin_type<Element> acquire_in(tensor_handle wanted, list_id list, access_mode mode,
                                             memory_location place, agent stream = agent::host)
  {
    return {link_.get(), [&] { return take_of_list(wanted, list, mode, place, stream); }};
  }
  [[nodiscard]] access_token take_of_list(tensor_handle wanted, list_id list, access_mode mode, memory_location place,
                                          agent stream)
  {
    const slot_id slot = builder_.slot_in(wanted, list);
    const entry_kind kind = kind_of(mode, place);
    if (writes(mode) && list != gradient_list) {
      engine_.pending().catch_up_to_write(slot);  // first: a save copies these bytes after their update
      gradients_.tell_of_change(slot);
    }
    if (list == value_list && mode == access::write) return gradients_.acquire_over(slot, kind, stream);
    if (list == gradient_list && writes(mode)) return gradients_.open_again(builder_.slot_of(wanted), kind, stream);
    return engine_.acquire_in_place(slot, kind, stream);
  }

  template <element Element>
  gradient_pin<Element, engine_type> open_gradient(slot_id value_slot, agent stream, gradient_start how)
  {
    const bool first = gradients_.is_fresh(value_slot);
    const entry_kind kind = kind_of(first ? access::write : access::read_write, memory_location::device);
    const bool has_beta = how == gradient_start::undefined;
    pin_type<Element> made{link_.get(), [&] { return gradients_.open(value_slot, kind, stream, has_beta); }};
    if (!first || has_beta) return {std::move(made), first ? 0.0F : 1.0F};
    if (!rehearsing()) fill_with_zeros(made, value_slot, stream);
    return {std::move(made), 1.0F};
  }
  /// @throws device_error   the gradient is dropped again; out_of_memory, device_error   as drop_gradient
  template <element Element>
  void fill_with_zeros(pin_type<Element>& fresh, slot_id value_slot, agent stream)
  try {
    auto* const begin = reinterpret_cast<std::byte*>(fresh.data());
    const bytes size{fresh.size() * sizeof(Element)};
    engine_.health().starting([&] { engine_.backend().fill(begin, std::byte{0}, size, stream); });
  } catch (const device_error&) {
    fresh.release();
    gradients_.consume(value_slot);
    throw;
  }

  template <class Pin>
  void note_done(const Pin& last, const access_token& held)
  {
    const slot_id value = engine_.tensors().value_of(held.slot);
    using kind = std::remove_const_t<typename Pin::element_type>;
    if constexpr (engine_type::host_addressable && engine_type::has_bytes && real_element<kind>) {
      using elements = std::span<const kind>;
      if (held.stream == agent::host && !engine_.gradients().micro_batches().expects_more())
        return engine_.gradients().finish(value, measure(rehearsing() ? elements{} : elements{last.span()}));
    }
    engine_.gradients().finish(value);
  }

  using builder_type = model_builder<engine_type, Layout, Placement, Gradient>;

  engine_type engine_;
  registered_states states_;
  manager_link<engine_type> link_;
  builder_type builder_;
  Eviction eviction_;  // of rehearsals
  gradient_store<engine_type, builder_type> gradients_;
  update_session<engine_type, builder_type> updates_;
  content_session<engine_type, builder_type> content_;
};

// Outside of the class, so not inline: where compiled_manager.hpp is included, the library has the code of these
// functions and of everything that only they call.

template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction,
          placement_policy Placement, gradient_policy Gradient, transfer_policy Transfer, chunk_mover<Backend> Mover,
          trace_sink Sink, check_policy Checks>
basic_manager<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink, Checks>::basic_manager(
    policy_values values, Backend& backend, const manager_options& options)
    : engine_{backend,
              checked(options),
              values.eviction,
              std::move(values.transfer),
              std::move(values.mover),
              std::move(values.sink)},
      link_{engine_},
      builder_{engine_, link_.owner(), std::move(values.layout), std::move(values.placement),
               std::move(values.gradient)},
      eviction_{std::move(values.eviction)},
      gradients_{engine_, builder_, *link_},
      updates_{engine_, builder_, gradients_, states_},
      content_{engine_, builder_, gradients_, states_}
{
  if (options.error_details) engine_.annotator().ask(&details_of, &engine_);
  engine_.checks().attach({&engine_, &wait_for_own_agents, &describe});
}

template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction,
          placement_policy Placement, gradient_policy Gradient, transfer_policy Transfer, chunk_mover<Backend> Mover,
          trace_sink Sink, check_policy Checks>
basic_manager<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink, Checks>::~basic_manager() =
    default;

template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction,
          placement_policy Placement, gradient_policy Gradient, transfer_policy Transfer, chunk_mover<Backend> Mover,
          trace_sink Sink, check_policy Checks>
auto basic_manager<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink, Checks>::begin(
    std::string_view name, std::uint32_t micro_batches) -> chunkmem::iteration<engine_type>
try {
  if (micro_batches == 0 || micro_batches > UINT16_MAX)
    throw usage_error{error_text{} << "chunkmem: an iteration has one to 65535 micro-batches, not " << micro_batches};
  if (!engine_type::gathers && micro_batches > 1 && builder_.gradient().takes_slot())
    throw config_error{
        "gradients of several micro-batches cannot add up where their weights lie (use gradient::separate)"};
  engine_.gradients().micro_batches().expect_told();
  engine_.gradients().micro_batches().reserve(micro_batches);
  builder_.expect_ready();
  const bool real = !rehearsing();
  if (real) {
    if (!engine_.schedule().is_inside()) builder_.revise_tiers();
    gradients_.begin([&] {
      engine_.external_memory().sample();
      engine_.begin_iteration(name);
    });
  } else {
    engine_.rehearsing().begin_iteration();
  }
  return chunkmem::iteration<engine_type>{*link_, micro_batches, real};
} catch (error& failed) {
  engine_.annotator().annotate(failed);
  throw;
}

template <stream_backend Backend, tensor_rules Rules, chunk_layout Layout, eviction_policy Eviction,
          placement_policy Placement, gradient_policy Gradient, transfer_policy Transfer, chunk_mover<Backend> Mover,
          trace_sink Sink, check_policy Checks>
memory_requirement basic_manager<Backend, Rules, Layout, Eviction, Placement, Gradient, Transfer, Mover, Sink,
                                 Checks>::rehearse(call_ref<void()> step, rehearse_on on,
                                                   const memory_requirement* known, std::span<const bytes> others)
{
  return rehearse_step(engine_, builder_, eviction_, step, on, known, others);
}

}  // namespace chunkmem::inline v0
