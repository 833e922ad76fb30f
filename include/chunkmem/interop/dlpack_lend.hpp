// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/interop/dlpack_returns.hpp>
#include <chunkmem/interop/dlpack_type.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {
namespace interop {

namespace detail {

/// The parts of one lent tensor: the struct, the arrays that it points to, and the pin.
template <dlpack_managed Managed, class Pin>
class lent_pin final : public lent_tensor {
 public:
  lent_pin(const shape& extents, DLDevice where, const dlpack_returns* returns) : rank_{extents.rank()}
  {
    if (returns != nullptr) home_ = dlpack_returns::address{*returns};
    std::int64_t stride = 1;
    for (std::size_t axis = rank_; axis-- > 0;) {
      extents_[axis] = static_cast<std::int64_t>(extents[axis]);
      strides_[axis] = stride;
      stride *= extents_[axis];
    }
    managed_.dl_tensor.device = where;
    managed_.dl_tensor.ndim = static_cast<int>(rank_);
    managed_.dl_tensor.dtype = dlpack_type_of(dtype_of<std::remove_const_t<typename Pin::element_type>>);
    managed_.dl_tensor.shape = extents_;
    managed_.dl_tensor.strides = strides_;  // newer readers want them, also where they are the usual ones
    managed_.dl_tensor.byte_offset = 0;
    managed_.manager_ctx = this;
    managed_.deleter = &come_back;
  }

  /// Takes the pin over. Cannot fail.
  Managed* take(Pin&& held, void* data, bool reads_only) noexcept
  {
    pin_ = std::move(held);
    managed_.dl_tensor.data = data;
    if constexpr (dlpack_versioned<Managed>) {
      managed_.version.major = dlpack_major_version;
      managed_.version.minor = 0;
      managed_.flags = reads_only ? dlpack_read_only : 0;
    }
    return &managed_;
  }

 private:
  static void come_back(Managed* self)
  {
    auto* const it = static_cast<lent_pin*>(self->manager_ctx);
    dlpack_returns::address home = std::move(it->home_);
    if (home.is_known())
      dlpack_returns::address::drop(std::move(home), it);
    else
      delete it;
  }

  Managed managed_{};
  std::size_t rank_;
  std::int64_t extents_[shape::max_rank] = {};
  std::int64_t strides_[shape::max_rank] = {};
  dlpack_returns::address home_;
  Pin pin_;
};

}  // namespace detail

/// How a pin is lent.
///
///     const lending how{.device_id = 1, .returns = &returns};
///     DLManagedTensor* const lent = to_dlpack<DLManagedTensor>(std::move(pin), extents, how);
struct lending {
  int device_id = 0;                        ///< of the GPU, as the consumer counts them; memory of the host has none
  const dlpack_returns* returns = nullptr;  ///< the mailbox of the tensor; null: its deleter ends the pin itself
};

namespace detail {

template <dlpack_managed Managed, pinned_element Element, class Engine>
[[nodiscard]] Managed* lend_pin(pin<Element, Engine>&& held, const shape& extents, const lending& how)
{
  using pin_type = pin<Element, Engine>;
  const access_token& known = held.details();
  void* const data = held.data_without_const();
  if (data == nullptr)
    throw usage_error{"a pin of a rehearsal has no bytes to lend (ask the manager whether it is rehearsing)"};
  if (held.size() != extents.elements())
    throw usage_error{error_text{} << "chunkmem: a tensor of " << held.size()
                                   << " elements was to be lent with a shape of " << extents.elements()
                                   << " (give the shape that it was declared with)"};
  const bool on_gpu = !Engine::host_addressable && place_of(known.kind) == memory_location::device;
  const DLDevice where{on_gpu ? kDLCUDA : kDLCPU, on_gpu ? how.device_id : 0};
  const bool reads_only = !writes(access_of(known.kind));
  auto lent = std::make_unique<lent_pin<Managed, pin_type>>(extents, where, how.returns);
  return lent.release()->take(std::move(held), data, reads_only);
}

}  // namespace detail

/// Lends the bytes of a pin: the tensor stays where it is until the consumer calls the deleter.
///
/// - A pin for a stream is ready for that stream alone. Let the consumer work on that stream, and call the deleter no
///   earlier than its last work is enqueued there.
/// - A pin in memory of a CUDA device is lent as memory of that device, and any other pin as memory of the CPU.
/// - A pin for reading has the read-only flag of DLPack 1. The older struct has no such flag: take
///   `to_dlpack_without_const`.
/// - Call the deleter before the manager goes, like the end of any pin. Call it within the iteration of the pin, so
///   that the step follows its record. Without `returns`, call it on a thread that may call the manager.
///
/// Use:
///
///     DLManagedTensor* lent = interop::to_dlpack(std::move(pin), m.info(weight).extents);
///     at::Tensor seen = at::fromDLPack(lent);   // of LibTorch; its end ends the pin
///
/// Cost: one allocation.
/// @tparam Managed   DLManagedTensor, or DLManagedTensorVersioned of DLPack 1
/// @param held       moved from only where this returns
/// @param extents    extents of the tensor, as declared, or any others with as many elements
/// @throws usage_error      released, moved from, of a rehearsal (which has no bytes), or another number of elements
/// @throws std::bad_alloc   no room for the struct
template <dlpack_managed Managed = DLManagedTensor, pinned_element Element, class Engine>
[[nodiscard]] Managed* to_dlpack(pin<Element, Engine>&& held, const shape& extents, const lending& how = {})
{
  static_assert(dlpack_versioned<Managed> || !std::is_const_v<Element>,
                "chunkmem: DLManagedTensor cannot say that a tensor is read only: lend a pin for reading as "
                "DLManagedTensorVersioned, or by to_dlpack_without_const");
  return detail::lend_pin<Managed>(std::move(held), extents, how);
}

/// Lends a pin for reading in the older struct. Its consumers do not learn that they must not write.
///
/// If a consumer writes, the bytes depend on the capacity: they are kept while the chunk stays on the device, and lost
/// when it leaves. `checks::full` reports the change when the tensor comes back.
/// @throws   as to_dlpack
template <dlpack_managed Managed = DLManagedTensor, pinned_element Element, class Engine>
[[nodiscard]] Managed* to_dlpack_without_const(pin<Element, Engine>&& held, const shape& extents,
                                               const lending& how = {})
{
  return detail::lend_pin<Managed>(std::move(held), extents, how);
}

}  // namespace interop
}  // namespace chunkmem::inline v0
