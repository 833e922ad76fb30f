#include "adapter.hpp"

#include <support/adversarial.hpp>

namespace differential {
namespace {

struct adversarial_world {
  using backend = support::adversarial;
  using manager = manager_on<backend, any_transfer>;
  static support::adversarial_options options(const setting& it)
  {
    return {.device_capacity = device_bytes(it),
            .host_capacity = host_bytes(it),
            .when = static_cast<support::schedule>(it.schedule % 3),
            .seed = it.seed,
            .async_compute = it.async_compute};
  }
  template <class... Policies>
  static manager make(backend& memory, const cm::manager_options& options, const setting& it, Policies... policies)
  {
    return manager{memory, options, transfer_of(it), policies...};
  }
};

}  // namespace

std::unique_ptr<subject> on_adversarial(const setting& wanted) { return std::make_unique<adapter<adversarial_world>>(wanted); }

}  // namespace differential
