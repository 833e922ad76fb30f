// SPDX-License-Identifier: Apache-2.0
#include <conformance/placement_policy.hpp>

#include "verdict.hpp"

#include <chunkmem/core/error.hpp>
#include <chunkmem/placement/placement_policy.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace wrong_placements_test {

using namespace chunkmem;
using placement::outlook;

namespace {

/// Right: the first states ride on the device, as many as fit beside what works there. Each placement below changes it
/// by one mistake.
struct first_that_fit {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "first_that_fit";
  bytes limit{1'000};

  tier preferred_tier(role, bytes size) const { return size > limit ? tier::host : tier::device; }
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    std::uint64_t need = now.working.count() + now.peak_leased.count();
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      need += now.states[index].count();
      tiers[index] = need <= now.device.count() ? tier::device : tier::host;
    }
  }
};

/// Large states go where nobody can update them.
struct sends_large_ones_to_disk : first_that_fit {
  tier preferred_tier(role, bytes size) const { return size > 1_KiB ? no_tier : tier::host; }
};

/// Keeps an account of what it promised, and so answers by the number of questions.
struct counts_questions : first_that_fit {
  tier preferred_tier(role, bytes) const { return ++asked_ > 7 ? tier::host : tier::device; }
  mutable int asked_ = 0;
};

/// Alternates, to spread states evenly.
struct takes_turns : first_that_fit {
  tier preferred_tier(role, bytes) const { return (is_next_on_host_ = !is_next_on_host_) ? tier::host : tier::device; }
  mutable bool is_next_on_host_ = false;
};

/// A copy begins with the default setting.
struct copies_no_setting : first_that_fit {
  copies_no_setting() = default;
  explicit copies_no_setting(bytes of_user) : limit_of_user{of_user} {}
  copies_no_setting(const copies_no_setting&) : copies_no_setting{} {}
  tier preferred_tier(role, bytes size) const { return size > limit_of_user ? tier::host : tier::device; }
  bytes limit_of_user{UINT64_MAX};
};

/// Subtracts what works on the device from a device that may be smaller.
struct counts_below_zero : first_that_fit {
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    std::uint64_t left = now.device.count() - now.working.count() - now.peak_leased.count();
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      const bool fits = now.states[index].count() <= left;
      tiers[index] = fits ? tier::device : tier::host;
      if (fits) left -= now.states[index].count();
    }
  }
};

/// Takes the largest first: one large state takes the room of two small ones as soon as it fits.
struct largest_that_fit : first_that_fit {
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    std::vector<std::size_t> order(tiers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t left, std::size_t right) { return now.states[left] > now.states[right]; });
    std::uint64_t need = now.working.count() + now.peak_leased.count();
    for (const std::size_t index : order) {
      const bool fits = need + now.states[index].count() <= now.device.count();
      tiers[index] = fits ? tier::device : tier::host;
      if (fits) need += now.states[index].count();
    }
  }
};

/// Writes tiers on the device and expects the others to be on the host already.
struct writes_device_tiers_only : first_that_fit {
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    std::vector<tier> wanted(tiers.size());
    first_that_fit::assign(now, wanted);
    for (std::size_t index = 0; index < tiers.size(); ++index)
      if (wanted[index] == tier::device) tiers[index] = tier::device;
  }
};

/// Ends before the last state.
struct passes_the_last_state_over : first_that_fit {
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    first_that_fit::assign(now, tiers.first(tiers.size() - 1));
  }
};

/// Gives tiers only once an iteration was measured.
struct waits_for_a_measure : first_that_fit {
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    if (now.is_measured) first_that_fit::assign(now, tiers);
  }
};

/// Keeps tiers unless more fits than last time, so that they do not go back and forth.
struct remembers_the_last_outlook : first_that_fit {
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    first_that_fit::assign(now, tiers);
    if (std::exchange(last_, now.device.count()) < now.device.count()) return;
    std::fill(tiers.begin(), tiers.end(), tier::host);
  }
  mutable std::uint64_t last_ = 0;
};

/// Refuses a device that has room for more than the states, to save the user money.
struct refuses_large_devices : first_that_fit {
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    if (now.device.count() > 15'000) throw config_error{"this device is larger than the model"};
    first_that_fit::assign(now, tiers);
  }
};

/// Refuses a model with an error that no caller expects.
struct refuses_with_another_error : first_that_fit {
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    if (now.working > now.device) throw usage_error{"what works on the device does not fit there"};
    first_that_fit::assign(now, tiers);
  }
};

/// Adds what may be all ones.
struct adds_without_a_check : first_that_fit {
  tier preferred_tier(role, bytes size) const { return size + bytes{256} > limit ? tier::host : tier::device; }
};

template <class Policy>
laws::verdict judge(std::string_view law, const Policy& policy = {})
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_profiled_placement(policy)};
}

}  // namespace

TEST_CASE("the laws of placement hold for the first states that fit", "[laws][placement]")
{
  conformance::profiled_placement_laws<first_that_fit>();
}

}  // namespace wrong_placements_test

const laws::verdicts& laws::wrong_placements()
{
  using namespace wrong_placements_test;
  static const verdicts all{
      judge<sends_large_ones_to_disk>("a tier is neither device nor host"),
      judge<counts_questions>("the same arguments gave two tiers"),
      judge<takes_turns>("the same arguments gave two tiers"),
      judge("a copy gives another tier", copies_no_setting{bytes{500}}),
      judge<counts_below_zero>("a larger device moved a state to the host"),
      judge<largest_that_fit>("a larger device moved a state to the host"),
      judge<writes_device_tiers_only>("assign left a tier as it found it"),
      judge<passes_the_last_state_over>("assign left a tier as it found it"),
      judge<waits_for_a_measure>("assign left a tier as it found it"),
      judge<remembers_the_last_outlook>("the same outlook gave two answers"),
      judge<refuses_large_devices>("a larger device was refused"),
      judge<refuses_with_another_error>("a call threw what no law lets it throw"),
      judge<adds_without_a_check>("a call threw what no law lets it throw"),
  };
  return all;
}
