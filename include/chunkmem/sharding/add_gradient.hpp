// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace sharding {

/// `to` becomes `from`, or `to + from`, element by element in single precision, rounded to the type of gradients;
/// enqueued on `stream`.
///
/// @param adds   false: what `to` holds is undefined Cost: one pass. @throws usage_error   sums where the host cannot
/// reach the bytes: there one micro-batch is summed over ranks at a time
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
        "gradients of several micro-batches were summed over ranks one by one where the host cannot reach them (take "
        "sharding::zero_1 or zero_3_reduce_last)"};
}

}  // namespace sharding

}  // namespace chunkmem::inline v0
