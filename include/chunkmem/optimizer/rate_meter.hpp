// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/report.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/transfer/update_split.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>

// rate_meter, and metered_copies, which measures the rates of links for it.

namespace chunkmem::inline v0 {

namespace optimizer {

/// The rates of one rank, from its updates and copies one by one. A rate is that of the fastest update or copy of its
/// kind: slower ones touched memory for the first time, or waited for room.
///
///     rate_meter meter;
///     const metered_copies copies{m};
///     const auto pin = m.acquire(weight, access::read);
///     copies.end(meter);
///     ... meter.rates().to_device_bytes_per_second
class rate_meter {
 public:
  void add_update(bool on_device, const parameter_bytes& all, double seconds) noexcept
  {
    const auto elements = static_cast<double>(all.elements);
    take(on_device ? device_ : host_, elements, seconds);
    elements_ += elements;
    double states = 0;
    for (std::size_t list = 0; list < all.list_count; ++list)
      states += static_cast<double>(size_of(all.lists[list].type));
    states_ += states * elements;
    gradients_ += static_cast<double>(size_of(all.gradient_type)) * elements;
    values_ += static_cast<double>(size_of(all.value_type)) * elements;
  }
  /// Copies that were begun together.
  void add_copies(bytes down, double down_seconds, bytes up, double up_seconds) noexcept
  {
    take(to_host_, static_cast<double>(down.count()), down_seconds);
    take(to_device_, static_cast<double>(up.count()), up_seconds);
  }

  /// The largest double for a rate that was not measured.
  [[nodiscard]] transfer::update_rates rates() const noexcept
  {
    const auto known = [](double rate) { return rate > 0 ? rate : std::numeric_limits<double>::max(); };
    return {.host_updates_per_second = known(host_),
            .device_updates_per_second = known(device_),
            .to_device_bytes_per_second = known(to_device_),
            .to_host_bytes_per_second = known(to_host_)};
  }
  /// The bytes of one parameter; the defaults before any update.
  [[nodiscard]] transfer::update_traffic traffic() const noexcept
  {
    if (!(elements_ > 0)) return {};
    return {.state_bytes = states_ / elements_,
            .gradient_bytes = gradients_ / elements_,
            .value_bytes = values_ / elements_,
            .host_update_bytes = (2 * states_ + gradients_ + values_) / elements_};
  }

 private:
  static void take(double& rate, double units, double seconds) noexcept
  {
    if (units > 0 && seconds > 0) rate = std::max(rate, std::min(units / seconds, std::numeric_limits<double>::max()));
  }

  double host_ = 0;  // parameters per second
  double device_ = 0;
  double to_device_ = 0;  // bytes per second
  double to_host_ = 0;
  double elements_ = 0;
  double states_ = 0;  // bytes
  double gradients_ = 0;
  double values_ = 0;
};

/// The copies that one call of the manager starts, while no other work runs.
///
///     const metered_copies copies{m};
///     const auto pin = m.acquire(weight, access::read);
///     copies.end(meter);
///
/// Cost: waits for all copies and for all work of compute, twice.
template <class Manager>
class metered_copies {
 public:
  /// @param manager   outlives this object
  explicit metered_copies(Manager& manager) : m_{manager}
  {
    for (const agent each : {agent::compute, agent::to_host, agent::to_device}) await(each);
    before_ = m_.report();
    begin_ = seconds();
  }
  metered_copies(const metered_copies&) = delete;

  /// The copies were started: waits for them, and adds their rates to `into`.
  void end(rate_meter& into) const
  {
    await(agent::to_host);
    const double down = seconds() - begin_;
    await(agent::to_device);
    const double up = seconds() - begin_;
    const report moved = m_.report().copies_since(before_);
    into.add_copies(moved.written_back, down, moved.loaded, up);
  }

 private:
  void await(agent which) const { m_.backend().wait(agent::host, m_.backend().record(which)); }
  [[nodiscard]] double seconds() const { return static_cast<double>(m_.backend().now()) * 1e-9; }

  Manager& m_;
  report before_;
  double begin_ = 0;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
