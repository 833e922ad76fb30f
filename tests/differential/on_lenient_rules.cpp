// SPDX-License-Identifier: Apache-2.0
#include "adapter.hpp"

#include <support/adversarial.hpp>

namespace differential {
namespace {

/// The rules of training, and one that lets a pinned tensor be dropped: an illegal transition without an error (as in
/// Gemini, whose chunks ignore transitions outside of their table).
struct lenient_rules {
  using policy_kind = cm::rules_kind;
  static constexpr std::string_view name = "lenient_rules";
  using from = cm::tensor_state;
  using what = cm::tensor_event;

  static constexpr cm::transition table[] = {
      {from::free, what::materialize, from::hold},   {from::free, what::drop, from::free},
      {from::hold, what::acquire, from::compute},    {from::hold, what::drop, from::free},
      {from::compute, what::acquire, from::compute}, {from::compute, what::consume, from::gradient},
      {from::compute, what::release, from::hold},    {from::compute, what::drop, from::free},  // the bug
      {from::gradient, what::release, from::hold},
  };
};

struct lenient_world {
  using backend = support::adversarial;
  using manager = manager_on<backend, any_transfer, lenient_rules>;
  static support::adversarial_options options(const setting& it)
  {
    return {.device_capacity = device_bytes(it), .host_capacity = host_bytes(it), .seed = it.seed};
  }
  template <class... Policies>
  static manager make(backend& memory, const cm::manager_options& options, const setting& it, Policies... policies)
  {
    return manager{memory, options, transfer_of(it), policies...};
  }
};

}  // namespace

std::unique_ptr<subject> on_lenient_rules(const setting& wanted)
{
  return std::make_unique<adapter<lenient_world>>(wanted);
}

}  // namespace differential
