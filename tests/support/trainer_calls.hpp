// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <cstdint>
#include <vector>

namespace support {

/// The agents of a managed run.
struct crew {
  chunkmem::agent main = chunkmem::agent::host;  ///< runs the kernels
  chunkmem::agent side = chunkmem::agent::host;  ///< runs those on biases and running means
};

/// The place where the calling thread fills tensors: on the device, if it can write there.
template <class Backend>
inline constexpr chunkmem::memory_location place_to_fill =
    Backend::host_addressable ? chunkmem::memory_location::device : chunkmem::memory_location::host;

/// The calls that all trainers make: pins and leases for the crew, and kernels on its agents.
template <class Manager, class Backend>
class trainer_calls {
 protected:
  template <class Kind>
  using tensor_of = chunkmem::tensor<Kind>;

  trainer_calls(Manager& manager, Backend& backend, const crew& workers)
      : m_{manager}, backend_{backend}, crew_{workers}
  {
  }

  template <class Kind>
  [[nodiscard]] auto use(tensor_of<Kind> it)
  {
    return m_.acquire(it, chunkmem::access::read, crew_.main);
  }
  template <class Kind>
  [[nodiscard]] auto make(tensor_of<Kind> it)
  {
    return m_.acquire(it, chunkmem::access::write, crew_.main);
  }
  [[nodiscard]] auto workspace(std::uint64_t elements)
  {
    return m_.lease(chunkmem::tier::device, chunkmem::bytes{elements * sizeof(float)}, crew_.main);
  }
  template <class Lease>
  [[nodiscard]] static float* numbers(const Lease& it)
  {
    return reinterpret_cast<float*>(it.data());
  }

  template <class Kernel>
  void launch(Kernel work)
  {
    launch(crew_.main, work);
  }
  template <class Kernel>
  void launch(chunkmem::agent stream, Kernel work)
  {
    if (!m_.rehearsing()) backend_.launch(stream, work);
  }

  template <class Kind>
  void forget(tensor_of<Kind> it)
  {
    if (m_.state_of(it) != chunkmem::tensor_state::free) m_.drop(it);
  }
  /// The elements of a tensor, or of a parameter in a list, read on the host.
  template <class Kind>
  [[nodiscard]] std::vector<Kind> copy_of(tensor_of<Kind> it)
  {
    const auto pin = m_.acquire(it, chunkmem::access::read, chunkmem::memory_location::host);
    return {pin.span().begin(), pin.span().end()};
  }
  template <class Kind>
  [[nodiscard]] std::vector<Kind> copy_of(tensor_of<Kind> it, chunkmem::list_id list)
  {
    const auto pin = m_.template acquire<Kind>(it, list, chunkmem::access::read, chunkmem::memory_location::host);
    return {pin.span().begin(), pin.span().end()};
  }

  Manager& m_;
  Backend& backend_;
  crew crew_;
};

}  // namespace support
