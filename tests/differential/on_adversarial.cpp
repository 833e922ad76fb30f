// SPDX-License-Identifier: Apache-2.0
#include "adapter.hpp"

#include <support/adversarial.hpp>

namespace differential {
namespace {

/// Some of its copies and fills cannot start, as a setting says.
class flaky : public support::adversarial {
 public:
  explicit flaky(const setting& it)
      : adversarial{{.device_capacity = device_bytes(it),
                     .host_capacity = host_bytes(it),
                     .when = static_cast<support::schedule>(it.schedule % 3),
                     .seed = it.seed,
                     .async_compute = it.async_compute}},
        every_{it.faults}
  {
  }
  using adversarial::copy, adversarial::fill;
  void copy(std::byte* to, const std::byte* from, cm::bytes size, cm::agent stream)
  {
    fail();
    adversarial::copy(to, from, size, stream);
  }
  void fill(std::byte* to, std::byte value, cm::bytes size, cm::agent stream)
  {
    fail();
    adversarial::fill(to, value, size, stream);
  }

 private:
  void fail()
  {
    if (every_ != 0 && ++count_ % every_ == 0)
      throw cm::device_error{cm::error_text{} << "chunkmem: a copy was told to fail"};
  }

  std::uint32_t every_;
  std::uint32_t count_ = 0;
};

static_assert(cm::stream_backend<flaky>);

struct adversarial_world {
  using backend = flaky;
  using manager = manager_on<backend, any_transfer>;
  static const setting& options(const setting& it) { return it; }
  template <class... Policies>
  static manager make(backend& memory, const cm::manager_options& options, const setting& it, Policies... policies)
  {
    return manager{memory, options, transfer_of(it), policies...};
  }
};

}  // namespace

std::unique_ptr<subject> on_adversarial(const setting& wanted)
{
  return std::make_unique<adapter<adversarial_world>>(wanted);
}

}  // namespace differential
