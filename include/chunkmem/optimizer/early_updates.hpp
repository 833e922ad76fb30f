// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_driver.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// The value is rounded from its master, so it need not be kept. Not where the gradient has the value's bytes.
[[nodiscard]] inline bool is_made_again(const parameter_bytes& all) noexcept
{
  return all.master() != nullptr && all.value != all.gradient;
}

/// Calls `visit(data, size)` for the bytes that an update of this parameter overwrites and that cannot be made again:
/// the value, then the lists.
template <class Visit>
void for_written_bytes(const parameter_bytes& all, Visit visit)
{
  if (!is_made_again(all)) visit(all.value, static_cast<std::size_t>(all.elements * size_of(all.value_type)));
  for (std::size_t index = 0; index < all.list_count; ++index)
    if (all.lists[index].data != nullptr)
      visit(all.lists[index].data, static_cast<std::size_t>(all.elements * size_of(all.lists[index].type)));
}

/// The most bytes that `keep_bytes` writes for one parameter. @tparam Driver   knows the lists of a parameter
template <class Driver, class Info>
[[nodiscard]] std::uint64_t undo_size(const Driver& driver, const Info& info)
{
  std::uint64_t size = info.extents.elements() * size_of(info.type);
  driver.for_each_list(info, [&](auto, dtype type) { size += info.extents.elements() * size_of(type); });
  return size;
}

/// Copies these bytes to `room`, one after the other.
inline void keep_bytes(const parameter_bytes& all, std::byte* room)
{
  for_written_bytes(all, [&](const std::byte* data, std::size_t size) {
    std::memcpy(room, data, size);
    room += size;
  });
}
/// Copies the kept bytes back. A value that was not kept is rounded from its master, as its last update rounded it.
inline void bring_back_bytes(const parameter_bytes& all, const std::byte* room)
{
  for_written_bytes(all, [&](std::byte* data, std::size_t size) {
    std::memcpy(data, room, size);
    room += size;
  });
  if (is_made_again(all)) round_from_master(all);
}

}  // namespace detail

/// Steps whose updates do not wait for the norm. Each parameter is updated when its gradient is complete, as if no
/// clipping or skip were needed, and the overwritten bytes are kept. If the norm of all gradients then requires one,
/// the bytes are restored and the step is repeated as `optimizer::step` takes it. So all bits are those of
/// `optimizer::step`.
///
///     optimizer::early_updates early{m, adam, 64_MiB, pool};   // after the manager, as long as the loop lives
///     for (...) {
///       auto iteration = m.iteration();
///       ...                                                    // forward and backward pass
///       early.step({.learning_rate = 1e-3F, .clip = {.norm = 1.0F}});
///     }
///
/// Good where the calling thread runs ahead of a device that is still in its backward pass, where updates on the host
/// take longer than a forward pass (otherwise `late_updates` hides them as well), and where most steps are not clipped.
/// Poor where most steps are clipped: an undone update is computed twice, and the iteration is a divergence. If no
/// gradient has to be measured, a step is that of `optimizer::step`.
///
/// `undo_bytes` limits the parameters that are updated early. It is a lease on the host while the step runs. A
/// parameter takes the bytes of its value and its lists: 14 for each element with Adam and a master, 12 in float32. A
/// parameter is not updated early if
/// - its bytes do not fit into the rest of `undo_bytes`;
/// - a list has no numbers yet, such as before the first step;
/// - the norm of the gradients up to its own is already over the limit.
/// If the host has no room of `undo_bytes` in a later step, that step updates nothing early and is counted.
///
/// A rehearsal runs the trainer's step three times: without early updates, as the first step; with undone updates; and
/// as most steps. It proves room for all three.
///
/// Over ranks: `early_updates early{model, adam, 64_MiB}` of a sharded_model, in place of `model.step`. Each rank
/// updates its shares when their gradients are added, before ranks exchange their norms. Ranks may have different
/// `undo_bytes`, and may update different parameters early. A share counts as one parameter.
///
/// A loop may change between `step`, late and early updates from step to step. Only this object finishes a step that it
/// has begun.
///
/// Source: speculation, then validation, of SuperOffload (Lian et al. 2025, arXiv 2509.21271). There the update is
/// inverted. Here its bytes are kept, since an inverse is not exact.
/// @threads   one caller, that of the manager
template <class Manager, optimizer_kernel Kernel, executor Executor = const serial>
class early_updates {
  using taker_type = typename detail::step_taker_of<Manager, Kernel, Executor>::type;

 public:
  /// @param owner   a manager or a sharded_model, with one such object
  /// @param kernel, workers   outlive this, as the owner does
  /// @param undo_bytes   of host memory for one step; 0: no parameter is updated early
  explicit early_updates(Manager& owner, Kernel& kernel, bytes undo_bytes, Executor& workers = on_this_thread)
      : owner_{owner}, taker_{owner, kernel, workers}, undo_bytes_{undo_bytes}
  {
  }
  early_updates(const early_updates&) = delete;

  /// Takes a step. @return   as `optimizer::step`
  /// Guarantee: as `optimizer::step`: call again, and the final bits are those of an undisturbed step. If the step
  /// threw before its decision, only this object can finish it, with the options that it began with.
  /// @throws as `optimizer::step`; out_of_memory also if the host never had room for `undo_bytes`; std::bad_alloc
  /// @throws usage_error   a rehearsal while the last step is half done, or other options for it; nothing was done
  step_outcome step(const step_options& options = {},
                    typename taker_type::place_type from = typename taker_type::place_type{})
  {
    expects(!driver().rehearsing() || !is_guessed() || driver().is_forgotten(),
            "a rehearsal of early_updates whose last step is half done: call its step again first");
    const step_outcome outcome = taker_.take(options, timing{*this}, from);
    early_ = driver().rehearsing() ? early_ : counted_;
    return outcome;
  }

  /// Parameters that the last step updated before the norm was known, and whose update stayed.
  [[nodiscard]] std::size_t early() const noexcept { return early_; }
  /// Steps that updated nothing early, since the host had no `undo_bytes` in one piece at that moment.
  [[nodiscard]] std::uint64_t steps_without_room() const noexcept { return without_room_; }

 private:
  using driver_type = typename taker_type::driver_type;
  static_assert(driver_type::undoes,
                "chunkmem: early_updates keeps bytes on the host to undo updates, and these updates run on the device "
                "(give it workers of the host, or use step or late_updates)");
  using room_type = decltype(std::declval<Manager&>().lease(tier::host, bytes{}));

  /// The time of updates: before the decision as many as can be undone, after it the others.
  struct timing {
    static constexpr bool lets_wait = false;
    static constexpr bool guesses = true;

    early_updates& self;

    void begin(driver_type& driver, typename driver_type::place_type from) const
    {
      if (self.room_ && self.is_guessed() && !driver.is_forgotten()) {
        if (!self.done_.empty() || !driver.has_other_gradients()) return;
        driver.forget_guess();  // no parameter is updated yet: gradients opened since then belong to the step
      }
      driver.keep_kernel();
      self.forget();
      driver.begin(from);
    }
    void decide(driver_type& driver) const
    {
      if (!self.is_guessed()) {
        self.counted_ = 0;
        if (!driver.needs_measures() || self.undo_bytes_ == bytes{} || !self.take_room()) return self.taker_.decide();
        self.begin_guess();
      }
      self.rehearses_taking_back_ = driver.rehearsing() && self.takes_back_in_rehearsal();
      self.guess();
      self.resolve();
    }
    [[nodiscard]] static constexpr bool is_due(std::uint32_t) noexcept { return true; }
    static constexpr void passed(std::uint32_t) noexcept {}
    static constexpr void end(driver_type&) noexcept {}
  };

  struct early_update {
    std::uint32_t parameter;  // in the order of declaration
    std::uint64_t begin;      // of its bytes in the leased room
    bool in_place;            // its gradient lay in the value's bytes
  };

  [[nodiscard]] driver_type& driver() noexcept { return taker_.driver(); }
  [[nodiscard]] bool is_guessed() const noexcept
  {
    return taker_.driver().progress().decision == step_decision::guessed;
  }

  /// A rehearsal runs three variants of a step. The first has no early updates while lists have no numbers. The second
  /// undoes its updates. The third is that of most steps. @return   the second variant runs now
  [[nodiscard]] bool takes_back_in_rehearsal() noexcept { return driver().rehearse_turns(3) == 1; }

  /// Leases the room. @return   false: the host has no room now, and had room before
  /// @throws out_of_memory   the host never had room
  bool take_room()
  {
    try {
      room_.emplace(owner_.lease(tier::host, undo_bytes_));
    } catch (const out_of_memory&) {
      if (!has_had_room_) throw;
      ++without_room_;
      driver().keep_record();
      return false;
    }
    has_had_room_ = true;
    return true;
  }

  void begin_guess()
  {
    done_.reserve(driver().parameters());
    driver().order_by_completion();
    driver().begin_guess();
  }

  /// Measures and updates gradients in their order. Continues where it stopped.
  void guess()
  {
    driver().for_each_from(next_, [&](tensor_handle parameter, const tensor_info& info) {
      if (driver().has_gradient(parameter)) {
        taker_.measure(parameter, info);
        gradient_measure seen = seen_;
        seen.add(driver().measure_of(parameter));
        goes_on_ = goes_on_ && driver().is_usual(seen);
        const bool has_all = driver().has_all_lists(parameter, info);
        if (driver().is_half_done(parameter) || (goes_on_ && has_all && fits(info)))
          goes_on_ = try_update(parameter, info);
        makes_lists_ = makes_lists_ || !has_all;
        seen_ = seen;
      }
      ++next_;
    });
  }

  /// The room has enough left for the bytes that an update of this parameter overwrites.
  [[nodiscard]] bool fits(const tensor_info& info) const
  {
    return used_ + detail::undo_size(taker_.driver(), info) <= undo_bytes_.count();
  }

  /// @return   false: the room is too small for its bytes, so this step updates no more parameters early
  bool try_update(tensor_handle parameter, const tensor_info& info)
  {
    try {
      update(parameter, info);
      return true;
    } catch (const out_of_memory&) {
      if (driver().is_half_done(parameter)) throw;  // a failed call has updated a part of it: it has to be finished
      return false;
    }
  }

  /// @pre the gradient is finite and below the limit: pinning the value ends a gradient in its bytes
  void update(tensor_handle parameter, const tensor_info& info)
  {
    const bool is_in_place = driver().guess(
        parameter, info, [&](const parameter_bytes& all) { detail::keep_bytes(all, room_->data() + used_); });
    done_.push_back({info.ordinal, used_, is_in_place});
    used_ += detail::undo_size(driver(), info);
  }

  /// Decides, and then keeps or undoes the updates. Continues where it stopped.
  void resolve()
  {
    if (!verdict_) verdict_ = taker_.judge();
    const bool keeps = driver().confirms(*verdict_) && !rehearses_taking_back_;
    if (!keeps || makes_lists_) driver().keep_record();  // the next steps use weights and lists in another order
    for (; resolved_ < done_.size(); ++resolved_) {
      const early_update& each = done_[resolved_];
      if (keeps)
        driver().confirm(each.parameter);
      else
        driver().take_back(each.parameter, each.in_place, [&](const parameter_bytes& all) {
          detail::bring_back_bytes(all, room_->data() + each.begin);
        });
    }
    counted_ = keeps ? done_.size() : 0;
    driver().take(*verdict_);
    forget();
  }

  void forget() noexcept
  {
    room_.reset();
    done_.clear();
    verdict_.reset();
    seen_ = {};
    used_ = 0;
    next_ = 0;
    resolved_ = 0;
    goes_on_ = true;
    makes_lists_ = false;
  }

  Manager& owner_;
  taker_type taker_;
  bytes undo_bytes_;
  std::optional<room_type> room_;  // from the begin of a step to its decision
  std::vector<early_update> done_;
  std::optional<detail::step_verdict> verdict_;
  gradient_measure seen_;
  std::uint64_t used_ = 0;    // bytes of the room
  std::uint32_t next_ = 0;    // in the order of the step
  std::size_t resolved_ = 0;  // number of early updates that are resolved
  std::size_t counted_ = 0;
  std::size_t early_ = 0;
  std::uint64_t without_room_ = 0;  // steps
  bool has_had_room_ = false;       // also in a rehearsal
  bool goes_on_ = true;
  bool makes_lists_ = false;  // of some parameter, which is therefore not early
  bool rehearses_taking_back_ = false;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
