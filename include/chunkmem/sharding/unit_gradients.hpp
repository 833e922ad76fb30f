// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/manager/gradients.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/sharding/zero.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// `to` becomes `from`, or `to + from`, element by element in single precision, rounded to the type of gradients;
/// enqueued on `stream`.
///
/// Cost: one pass.
/// @param adds   false: the old bytes of `to` are undefined
/// @throws usage_error   sums where the host cannot reach the bytes: there one micro-batch is summed over ranks at a
///   time
template <real_element Element, class Backend>
void add_gradient(Backend& backend, Element* to, const Element* from, std::uint64_t elements, bool adds, agent stream)
{
  if (!adds)
    return backend.copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                        bytes{elements} * sizeof(Element), stream);
  if constexpr (Backend::host_addressable)
    backend.launch(stream, [to, from, elements]() noexcept {
      const float_environment standard;
      for (std::uint64_t index = 0; index < elements; ++index)
        to[index] = round_to<Element>(strict_fp::sum(to_float(to[index]), to_float(from[index])));
    });
  else
    throw usage_error{
        "gradients of several micro-batches were summed over ranks one by one where the host cannot reach them (use "
        "sharding::zero_1 or zero_3_reduce_last)"};
}

namespace detail {

// Not members of the template below: all managers share the containers of these types.

/// The gradient of one tensor.
struct gradient_note {
  std::uint32_t unit = 0;
  std::uint64_t done = 0;   ///< the moment at which it was declared done; 0: it is open
  bool is_written = false;  ///< since its unit was opened
  bool is_of_step = false;
};

/// The gradients of one unit.
struct unit_note {
  std::vector<std::uint32_t> tensors;
  std::size_t done = 0;
  bool is_open = false;
  bool is_held = false;
  bool is_summed = false;
  bool is_joined = false;    ///< this rank's own gradients have the sum
  std::optional<bool> adds;  ///< to own gradients: the value before a first try opened them
};

}  // namespace detail

/// Gradients from a backward pass until the sums in the shares of ranks.
///
///     unit_gradients<Manager> gradients;
///     gradients.reset(unit_of, units.size(), {}, adder);
///     const auto name = [] { return std::string{"head"}; };
///     const auto opened = gradients.open(m, units[0], 0, agent::host, name);  // add to its bytes if opened.adds
///
/// A unit's gradients stay whole on the device from the first one that is opened to the last one that is declared done.
/// Then they are added over ranks, this rank's share is added to its own gradients, and the room is free again. Where
/// they are added in the last micro-batch alone, they may leave the device between micro-batches. The
/// micro_batch_ledger of the manager has the present micro-batch. A sharded_model has one.
template <class Manager>
class unit_gradients {
 public:
  using pin_type = typename Manager::template pin_type<std::uint8_t>;

  /// A gradient that is being written: the pin of its unit, and whether to add to the present bytes.
  struct opened {
    pin_type unit;
    bool adds = false;
  };

  /// @param unit_of   by tensor   @param adder   an agent that adds the sums over ranks to own gradients, during the
  ///   backward pass
  void reset(std::span<const std::uint32_t> unit_of, std::uint32_t units, const sharding_options& options, agent adder)
  {
    adder_ = adder;
    scale_ = options.sum_scale;
    sums_each_ = options.divided.gradients;
    notes_.assign(unit_of.size(), {});
    open_.assign(units, {});
    holds_.clear();
    holds_.resize(units);
    begun_.clear();
    begun_.resize(units);
    for (std::size_t index = 0; index < unit_of.size(); ++index) {
      notes_[index].unit = unit_of[index];
      open_[unit_of[index]].tensors.push_back(static_cast<std::uint32_t>(index));
    }
  }

  /// @param name   `name()`: of the tensor
  /// @throws usage_error   it was declared done in this micro-batch, or an optimizer step is half done; out_of_memory,
  ///   device_error   call it again to continue
  [[nodiscard]] opened open(Manager& m, const unit_tensors& unit, std::uint32_t tensor, agent stream,
                            call_ref<std::string()> name)
  {
    m.updates().gradients().expect_no_update("a gradient was requested");  // else the step could not be called again
    ++opened_so_far_;
    detail::gradient_note& it = notes_[tensor];
    detail::unit_note& of = open_[it.unit];
    expects(!of.is_summed,
            "a gradient was requested while the sum of its unit over ranks is half done (call what threw "
            "again: gradient_done, pass or step; or drop_gradients)");
    micro_batches(m).expect_open(it.done, [&] { return "tensor '" + name() + "'"; });
    pin_type& kept = begun_[it.unit].unit;
    if (kept.is_live() && kept.details().stream != stream) kept.release();
    opened result{kept.is_live() ? std::move(kept)
                                 : m.acquire(unit.gradients, of.is_open ? access::read_write : access::write, stream),
                  it.is_written};
    try {
      if (!of.is_open && !m.rehearsing()) fill_with_zeros(m, unit, result.unit, stream);
      of.is_open = true;
      if (!of.is_held) holds_[it.unit] = m.acquire(unit.gradients, access::read, stream);
      of.is_held = true;
    } catch (...) {
      kept = std::move(result.unit);
      throw;
    }
    it.is_written = it.is_of_step = true;
    return result;
  }
  /// The number of calls of `open`.
  [[nodiscard]] std::uint64_t opened_so_far() const noexcept { return opened_so_far_; }
  /// The gradient is complete in this micro-batch. With the last one of a unit, the unit is added over ranks, or may
  /// leave the device until a later micro-batch. @throws usage_error; as finish: call it again to continue
  void done(Manager& m, const unit_tensors& unit, std::uint32_t tensor)
  {
    detail::gradient_note& it = notes_[tensor];
    expects(it.is_written, "gradient_done of a gradient that was not written");
    detail::unit_note& of = open_[it.unit];
    if (std::exchange(it.done, micro_batches(m).moment()) == 0) ++of.done;
    if (of.done == of.tensors.size()) end_unit(m, unit, it.unit);
  }
  /// Adds a unit over ranks. Every rank calls it, in the same order. A repeated call continues where it stopped.
  /// @throws out_of_memory, device_error, comm_error
  void finish(Manager& m, const unit_tensors& unit, std::uint32_t index)
  {
    detail::unit_note& of = open_[index];
    begun_[index].unit.release();  // of a call that was not made again
    if (!of.is_open) return;
    if (!of.is_held) {
      holds_[index] = m.acquire(unit.gradients, access::read_write, adder_);
      of.is_held = true;
    }
    if (!of.is_summed) m.gathered().sum(unit.gradients.id, index, {unit.gradient_type, scale_});
    of.is_summed = true;
    if (!of.is_joined) join(m, unit, of, begun_[index]);
    of.is_joined = true;
    holds_[index].release();
    m.drop(unit.gradients);
    close(index);
  }
  /// Failed calls are not repeated: releases their pins.
  void let_go() noexcept
  {
    for (begun& it : begun_) it.release();
  }
  /// Closes all gradients; their bytes are void.
  void forget(Manager& m, std::span<const unit_tensors> units)
  {
    let_go();
    for (std::uint32_t index = 0; index < open_.size(); ++index) {
      if (!open_[index].is_open) continue;
      holds_[index].release();
      m.drop(units[index].gradients);
      close(index);
    }
    forget_step();
  }
  /// Ends a micro-batch. A unit with at least one gradient declared done is complete; unwritten gradients count as
  /// zeros.
  void end_micro_batch(Manager& m, std::span<const unit_tensors> units)
  {
    for (std::uint32_t index = 0; index < open_.size(); ++index)
      if (open_[index].done > 0) end_unit(m, units[index], index);
  }
  /// The step of these gradients is over.
  void forget_step() noexcept
  {
    for (detail::gradient_note& it : notes_) it.is_of_step = false;
  }
  /// Puts the state of this step aside until `end_rehearsal`. @throws usage_error   a gradient is open: nothing changed
  void begin_rehearsal()
  {
    expects(std::ranges::none_of(open_, &detail::unit_note::is_open),
            "a rehearsal while gradients are open (declare them done and end the micro-batch, call step or "
            "drop_gradients first)");
    kept_ = notes_;
  }
  /// A rehearsal is over: restores the state before it.
  void end_rehearsal() noexcept
  {
    forget_rehearsal();
    notes_.swap(kept_);
  }
  /// A rehearsal begins its step, perhaps once more.
  void forget_rehearsal() noexcept
  {
    let_go();
    for (std::uint32_t index = 0; index < open_.size(); ++index)
      if (open_[index].is_open) close(index);
    forget_step();
  }

  [[nodiscard]] bool is_open(std::uint32_t unit) const noexcept { return open_[unit].is_open; }
  /// A gradient of this tensor was opened since the last step.
  [[nodiscard]] bool is_of_step(std::uint32_t tensor) const noexcept { return notes_[tensor].is_of_step; }
  /// As above, for every tensor of a unit.
  [[nodiscard]] bool is_whole_of_step(std::uint32_t unit) const noexcept
  {
    return std::ranges::all_of(open_[unit].tensors, [&](std::uint32_t tensor) { return is_of_step(tensor); });
  }

 private:
  using read_pin_type = typename Manager::template pin_type<const std::uint8_t>;

  /// Pins of a call whose copy failed: the repeated call continues with them. So each access is made once, and the
  /// manager decides as on the ranks whose copies succeeded.
  struct begun {
    pin_type unit;                                            ///< of `open`
    holder<typename Manager::engine_type, access_token> own;  ///< of `join`: this rank's gradients
    read_pin_type sum;                                        ///< of `join`: gradients of the unit
    std::byte* to = nullptr;                                  ///< bytes of `own`

    void release() noexcept
    {
      sum.release();
      own.release();
      unit.release();
    }
  };

  [[nodiscard]] static const micro_batch_ledger& micro_batches(Manager& m) noexcept
  {
    return m.updates().gradients().micro_batches();
  }

  static void fill_with_zeros(Manager& m, const unit_tensors& unit, const pin_type& pin, agent stream)
  {
    m.backend().fill(reinterpret_cast<std::byte*>(pin.data()), std::byte{0},
                     bytes{unit.elements} * size_of(unit.gradient_type), stream);
  }

  void end_unit(Manager& m, const unit_tensors& unit, std::uint32_t index)
  {
    if (sums_each_ || micro_batches(m).is_last()) return finish(m, unit, index);
    detail::unit_note& of = open_[index];
    holds_[index].release();
    of.is_held = false;
    of.done = 0;
    for (const std::uint32_t tensor : of.tensors) notes_[tensor].done = 0;
  }

  void close(std::uint32_t index) noexcept
  {
    detail::unit_note& of = open_[index];
    holds_[index].release();
    begun_[index].release();
    of.is_open = of.is_held = of.is_summed = of.is_joined = false;
    of.done = 0;
    of.adds.reset();
    for (const std::uint32_t tensor : of.tensors) {
      notes_[tensor].is_written = false;
      notes_[tensor].done = 0;
    }
  }

  void join(Manager& m, const unit_tensors& unit, detail::unit_note& of, begun& kept)
  {
    with_element(unit.type, [&]<class Element>(Element) {
      if (unit.gradient_type == dtype_of<Element>)
        join_as<Element>(m, unit, tensor<Element>{unit.share}, of, kept);
      else
        join_as<float>(m, unit, tensor<Element>{unit.share}, of, kept);
    });
  }
  template <class Kind, class Element>
  void join_as(Manager& m, const unit_tensors& unit, tensor<Element> weight, detail::unit_note& of, begun& kept)
  {
    if (!kept.own.is_live()) {
      auto to = m.template gradient<Kind>(weight, adder_);
      const bool adds = to.beta() != 0;
      if (!of.adds) of.adds = adds;
      kept.to = reinterpret_cast<std::byte*>(to.data());
      kept.own = std::move(to);
    }
    if (!kept.sum.is_live()) kept.sum = m.acquire(unit.gradients, access::read, adder_);
    if (!m.rehearsing())
      add_gradient(m.backend(), reinterpret_cast<Kind*>(kept.to),
                   reinterpret_cast<const Kind*>(kept.sum.data()) + unit.share_begin, unit.share_elements, *of.adds,
                   adder_);
    kept.release();
  }

  std::vector<detail::gradient_note> notes_;  // by tensor of the plan
  std::vector<detail::gradient_note> kept_;   // while a rehearsal runs
  std::vector<detail::unit_note> open_;       // by unit
  /// by unit: keeps it on the device while it is written and summed
  std::vector<read_pin_type> holds_;
  std::vector<begun> begun_;  // by unit
  agent adder_ = agent::host;
  std::uint64_t opened_so_far_ = 0;
  float scale_ = 1;
  bool sums_each_ = true;  ///< in every micro-batch; else once, in the last one
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
