// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/chunk_mover.hpp>
#include <chunkmem/manager/control_block.hpp>
#include <chunkmem/manager/engine.hpp>
#include <chunkmem/manager/gradient_store.hpp>
#include <chunkmem/manager/gradients.hpp>
#include <chunkmem/manager/manager_options.hpp>
#include <chunkmem/manager/model_builder.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/manager/registered_states.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>
#include <chunkmem/trace/trace_sink.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <cstdint>
#include <utility>
#include <vector>

/// The objects that a part of a manager needs, without a manager.
namespace manager_parts {

namespace cm = chunkmem;
using namespace cm::literals;
using numbers = std::vector<std::uint32_t>;

inline constexpr cm::list_spec momentum_and_master[] = {{"momentum"}, cm::master_list};

/// An engine, a builder of its model, and the small parts that the others take by reference.
///
/// Declare by `add`, then name slots: those of parameters have the numbers of their declaration. `fill` and `first_of`
/// write and read a slot as a trainer does.
template <class Placement = cm::placement::optimizer_on_host, class Gradient = cm::gradient::separate>
struct parts_rig {
  using engine_type = cm::engine<cm::backend::host_arena, cm::training_rules, cm::eviction::belady,
                                 cm::transfer::lookahead, cm::copy_mover, cm::trace::null_sink>;
  using builder_type = cm::model_builder<engine_type, cm::append_layout, Placement, Gradient>;
  template <class Element>
  using pin_type = cm::pin<Element, engine_type>;

  explicit parts_rig(cm::bytes device = 64_KiB, cm::bytes host = 256_KiB,
                     const cm::manager_options& options = {.chunk_bytes = 4_KiB}, Placement placement = {})
      : memory{{.device_capacity = device, .host_capacity = host}},
        engine{memory, options, {}, {}, {}, {}},
        builder{engine, link.owner(), {}, std::move(placement), {}}
  {
  }

  template <cm::element Element>
  cm::tensor<Element> add(std::uint64_t elements, cm::role part = cm::role::parameter)
  {
    return builder.template add<Element>({elements}, part, cm::group_id{0});
  }
  [[nodiscard]] cm::tensor_state state_of(cm::slot_id slot) const { return engine.tensors()[slot].state; }
  [[nodiscard]] cm::slot_id master_of(cm::slot_id value) const { return engine.tensors().master_of(value); }

  template <class Element>
  [[nodiscard]] pin_type<Element> hold(cm::slot_id slot, cm::access_mode mode,
                                       cm::memory_location place = cm::memory_location::device)
  {
    return {link.get(), [&] { return engine.acquire_in_place(slot, cm::kind_of(mode, place)); }};
  }
  template <class Element>
  void fill(cm::slot_id slot, float with, cm::memory_location place = cm::memory_location::device)
  {
    const pin_type<Element> pin = hold<Element>(slot, cm::access_mode::write, place);
    for (Element& each : pin.span()) each = cm::round_to<Element>(with);
  }
  template <class Element>
  [[nodiscard]] float first_of(cm::slot_id slot, cm::memory_location place = cm::memory_location::device)
  {
    const pin_type<const Element> pin = hold<const Element>(slot, cm::access_mode::read, place);
    return cm::to_float(pin.span()[0]);
  }

  /// An iteration that ends with its scope.
  [[nodiscard]] cm::iteration<engine_type> iterate()
  {
    engine.gradients().micro_batches().reserve(1);
    engine.begin_iteration("train");
    return {*link, 1, true};
  }
  /// A rehearsed step made every gradient and read no weight after it: gradients lie in their weights from here on.
  /// @pre sealed
  void lend_weights()
  {
    engine.rehearsing().begin(engine.tensors());
    for (const cm::slot_id each : cm::ids<cm::slot_id>(engine.tensors().parameters()))
      (void)hold<std::uint8_t>(engine.tensors().gradient_of(each), cm::access_mode::write);
    engine.rehearsing().end();
    engine.gradients().places().learn(engine.rehearsing().record(), engine.tensors());
    engine.settle_gradients();
  }
  void lose_device()
  try {
    engine.health().ordering([] { throw cm::device_error{cm::error_text{} << "chunkmem: lost (this is a test)"}; });
  } catch (const cm::device_error&) {
  }

  cm::backend::host_arena memory;
  engine_type engine;
  cm::registered_states states;
  cm::manager_link<engine_type> link{engine};
  builder_type builder;
};

/// For a change_watch: counts its calls in an int.
inline void count_call(void* context, cm::chunk_id) noexcept
{
  ++*static_cast<int*>(context);
}

/// For pending_updates: records the updated slots in a `numbers`.
inline void note_update(void* context, cm::slot_id value)
{
  static_cast<numbers*>(context)->push_back(cm::index_of(value));
}

}  // namespace manager_parts
