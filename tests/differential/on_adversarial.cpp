#include "adapter.hpp"

#include <support/adversarial.hpp>

namespace differential {
namespace {

struct adversarial_world {
  using backend = support::adversarial;
  using manager = manager_on<backend, any_transfer>;
  static support::adversarial_options options(const setting& it)
  {
    return {.device_capacity = cm::bytes{std::uint64_t{it.frame} * it.device_frames + 256 * it.device_rest},
            .host_capacity = cm::bytes{std::uint64_t{it.frame} * it.host_frames},
            .when = static_cast<support::schedule>(it.schedule % 3),
            .seed = it.seed,
            .async_compute = it.async_compute};
  }
  template <class... Policies>
  static manager make(backend& memory, const cm::manager_options& options, const setting& it, Policies... policies)
  {
    return manager{memory, options, any_transfer{any_transfer::names[it.transfer % any_transfer::names.size()]}, policies...};
  }
};

}  // namespace

std::unique_ptr<subject> on_adversarial(const setting& wanted) { return std::make_unique<adapter<adversarial_world>>(wanted); }

}  // namespace differential
