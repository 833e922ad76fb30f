// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/basic_manager.hpp>
#include <chunkmem/manager/rank_manager.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The registered state of weight_versions: the newest version, and the progress of its update (0: complete).
inline constexpr std::string_view weight_versions_state = "weight_versions";

/// Keeps several versions of the weights of a stage, as lists of chunks.
///
/// The newest version is the value of each parameter, with masters and states. An older one is another list. An update
/// makes a new version in the bytes of the oldest: lists exchange their places, and 16-bit weights are written from
/// their masters. So no extra cast runs, and no weight with a master and a gradient is copied. A float32 weight is its
/// own master: it is copied once for each update, as is a weight without a gradient. Every version can be read in one
/// iteration, and chunks of all versions move like others.
///
/// Use, with `gradient::separate`:
///
///     weight_versions versions{m, plan.versions, dtype::bfloat16};   // before anything is acquired
///     fill(m);                                                       // the first weights
///     versions.start();
///     versions.acquire(weight, run.step.version)                     // a pin, for reading
///     versions.flip();                                               // a batch is over, between two iterations
///     auto scope = m.iteration("batch");                             // the next one
///     versions.update([&] { return optimizer::step(m, adam, options, pool); });
///
/// Replicas of a stage have a sharded_model `m`. Its shares have these lists, and every version of a weight is gathered
/// from its shares. An update copies the shares once, for every element type.
///
/// In a rehearsal a flip only counts; call `start` after it.
/// If a call throws, call it again: a flip has changed nothing, and an update continues where it stopped. A load of a
/// checkpoint ends an unfinished update. The object must live as long as its manager saves and loads. Cost: 2 or 4
/// bytes of each weight for each version but one. `flip` takes O(parameters + accesses of the records). Source:
/// double-buffered weights of PipeDream-2BW (Narayanan et al. 2021, arXiv 2006.09503), for any number of versions.
/// @tparam Manager   a manager or a sharded_model   @threads   one caller, that of the manager
template <class Manager>
class weight_versions {
 public:
  static constexpr std::uint32_t most_versions = 8;  ///< a manager keeps the plans of as many orders of lists

  /// Declares the lists. @param m   outlives this object   @param type   of all weights
  /// @throws config_error   no version, or more than most_versions
  /// @throws usage_error    the manager is sealed, or has such lists already
  weight_versions(Manager& m, std::uint32_t versions, dtype type) : m_{m}, versions_{versions}, type_{type}
  {
    if (versions == 0 || versions > most_versions)
      throw config_error{error_text{} << "chunkmem: " << versions << " versions of the weights (keep 1 to "
                                      << most_versions << "; more micro-batches in a batch need fewer)"};
    lists_[0] = value_list;
    for (std::uint32_t age = 1; age < versions; ++age) {
      const list_spec spec{names[age - 1], type, 1, list_use::weight};
      m.use(std::span{&spec, 1});
      lists_[age] = m.list(spec.name);
    }
    m.state(weight_versions_state, std::as_writable_bytes(std::span{&now_, 1}));
  }
  weight_versions(const weight_versions&) = delete;

  /// Makes all versions copies of the weights, as version `first`. Call it between iterations. Every replica calls it.
  /// @throws out_of_memory, device_error; comm_error   of replicas
  /// @throws usage_error   a weight was not written, is pinned, or has another type
  void start(std::uint32_t first = 0)
  {
    own().for_each_parameter([&](tensor_handle, const tensor_info& info) {
      expects(versions_ == 1 || info.type == type_, "a weight has another element type than its versions");
    });
    for (std::uint32_t age = 1; age < versions_; ++age)
      own().for_each_parameter([&](tensor_handle it, const tensor_info&) { copy(it, value_list, lists_[age]); });
    if constexpr (has_replicas)
      if (versions_ > 1 && !m_.rehearsing()) m_.gather_weights();
    now_ = {.newest = first};
  }
  [[nodiscard]] std::uint32_t kept() const noexcept { return versions_; }
  /// The version that the last update made, or that the next call of `update` makes.
  [[nodiscard]] std::uint32_t newest() const noexcept { return now_.newest; }
  /// @throws usage_error   the version is no longer kept, or not made yet
  [[nodiscard]] list_id list_of(std::uint32_t version) const
  {
    const std::uint32_t made = now_.newest - (now_.state == updated ? 0U : 1U);
    if (version > made || now_.newest - version >= versions_)
      throw usage_error{error_text{} << "chunkmem: version " << version << " of the weights cannot be read, and "
                                     << (version > made ? "is not made yet" : "is no longer kept") << " (of "
                                     << versions_ << (versions_ == 1 ? " version" : " versions") << " the newest is "
                                     << made << ")"};
    if constexpr (has_checks) was_read_ = true;
    return lists_[now_.newest - version];
  }

  /// A pin of a weight in a version, for reading. @param stream   its user
  /// @throws usage_error   as list_of; and as acquire of the manager
  template <element Element>
  [[nodiscard]] auto acquire(tensor<Element> weight, std::uint32_t version, agent stream = agent::host)
  {
    return m_.template acquire<Element>(weight, list_of(version), access::read, stream);
  }

  /// The bytes of the oldest version become those of a new one, which `update` makes. Call it between two iterations:
  /// the next one begins with the update. Save after the update: a load into other versions refuses an earlier save.
  /// @throws usage_error   the last flip had no update, masters are not made yet, or a version is pinned; with
  ///   checks::full also where weights are trained, and no version was acquired since the last flip
  void flip()
  {
    expects(now_.state == updated, "versions of weights were flipped twice without an update between");
    if constexpr (has_checks)
      expects(versions_ == 1 || m_.rehearsing() || was_read_ || !has_weights(),
              "no version of the weights was read since the last flip: runs read the manager's weights instead of the "
              "version "
              "of their step (acquire weights with versions.acquire(weight, run.step.version))");
    std::uint32_t age = versions_ - 1;
    try {
      for (; age > 0 && !m_.rehearsing(); --age) own().exchange(lists_[age], lists_[age - 1]);
    } catch (...) {
      for (; ++age < versions_;) own().exchange(lists_[age], lists_[age - 1]);
      throw;
    }
    now_ = {.newest = now_.newest + 1, .state = flipped};
    was_read_ = false;
  }

  /// Makes the new version by an optimizer's step. After a skipped step, the new version equals the one before.
  /// @param step   `step()` returns an optimizer::step_outcome
  /// @throws the errors of the step; out_of_memory, device_error: call `update` again
  template <class Step>
  optimizer::step_outcome update(Step&& step)
  {
    expects(now_.state != updated, "an update of weight versions needs a flip before it");
    if (now_.state == flipped) {
      copy_newest([&](tensor_handle it, const tensor_info& info) { return !is_written(it, info); });
      now_.state = copied;
    }
    if (now_.state == copied) {
      done_ = step();
      now_.state = !has_replicas && done_ == optimizer::step_result::skipped_nonfinite ? skipped : updated;
    }
    if (now_.state == skipped) {
      done_.result = optimizer::step_result::skipped_nonfinite;  // also where a load brought this state
      copy_newest([](tensor_handle, const tensor_info&) { return true; });
    }
    now_.state = updated;
    return done_;
  }

 private:
  static constexpr bool has_replicas = requires(Manager& m) { m.shares(); };
  static constexpr bool has_checks = Manager::engine_type::checks_type::is_on;
  static constexpr std::array<std::string_view, most_versions - 1> names{
      "weights/1", "weights/2", "weights/3", "weights/4", "weights/5", "weights/6", "weights/7"};

  /// The manager of this rank.
  [[nodiscard]] auto& own() const noexcept { return rank_manager(m_); }
  /// This rank has a trained weight.
  [[nodiscard]] bool has_weights() const
  {
    bool found = false;
    own().for_each_parameter([&](tensor_handle, const tensor_info&) { found = true; });
    return found;
  }
  /// The step writes the whole weight from its master. In a share, some weights may have no gradient.
  [[nodiscard]] bool is_written(tensor_handle it, const tensor_info& info) const
  {
    if constexpr (has_replicas)
      return false;
    else
      return m_.has_masters() && size_of(info.type) == 2 && (m_.rehearsing() || m_.has_gradient(it));
  }
  /// Copies the bytes of the version before. @param wants   `wants(handle, info)`: this weight too
  template <class Wants>
  void copy_newest(Wants wants)
  {
    if (versions_ == 1) return;
    own().for_each_parameter([&](tensor_handle it, const tensor_info& info) {
      if (wants(it, info)) copy(it, lists_[1], value_list);
    });
  }
  void copy(tensor_handle parameter, list_id from, list_id to)
  {
    const memory_location place = own().updates().place_of_update(parameter);
    const auto source = own().acquire_bytes(parameter, from, access::read, place);
    const auto target = own().acquire_bytes(parameter, to, access::write, place);
    if constexpr (has_bytes<std::remove_cvref_t<decltype(m_.backend())>>())
      if (!m_.rehearsing()) std::memcpy(target.data(), source.data(), source.size());
  }

  /// The progress between a flip and the end of its update.
  enum update_state : std::uint32_t {
    updated,  // the update is complete
    flipped,
    copied,   // weights that the step does not write have the bytes of the version before
    skipped,  // the step wrote nothing: all of them get these bytes
  };
  /// Saved with the manager: a load continues from the save.
  struct progress {
    std::uint32_t newest = 0;
    std::uint32_t state = updated;
  };

  Manager& m_;
  std::uint32_t versions_;
  dtype type_;
  progress now_;
  mutable bool was_read_ = false;               // with checks: some version since the last flip
  optimizer::step_outcome done_{};              // the last step
  std::array<list_id, most_versions> lists_{};  // by age
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
