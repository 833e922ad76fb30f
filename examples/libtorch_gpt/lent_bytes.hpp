// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch.hpp"

#include <chunkmem/tensor/dtype.hpp>

#include <concepts>
#include <cstddef>

namespace libtorch_gpt {

/// LibTorch's name of an element type.
template <chunkmem::element Element>
inline constexpr at::ScalarType scalar_of = std::same_as<Element, float>            ? at::kFloat
                                            : std::same_as<Element, chunkmem::bf16> ? at::kBFloat16
                                                                                    : at::kHalf;

/// A tensor over bytes that another object owns.
[[nodiscard]] inline at::Tensor view_of(void* bytes, at::IntArrayRef sizes, at::ScalarType type, at::Device device)
{
  return at::for_blob(bytes, sizes)
      .options(at::TensorOptions{}.dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

/// The storage that a tensor is a view of: tensors with the same result share a storage.
[[nodiscard]] inline const void* storage_of(const at::Tensor& tensor)
{
  return tensor.storage().unsafeGetStorageImpl();
}

namespace detail {

/// Newer releases of LibTorch let a storage refuse access. In older ones its address is null: matrix products refuse
/// null too, and other kernels crash. Wrong bytes are never read silently.
template <class Storage>
void set_readable(Storage& storage, bool readable)
{
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
    if (readable)
      storage.clear_data_ptr_access_error_msg_();
    else
      storage.release_data_and_set_meta_custom_data_ptr_error_msg_("not acquired");  // short: it must not allocate
  }
}

}  // namespace detail

/// From now on the storage of `tensor`, and of every view of it that autograd has saved, has these bytes.
///
/// Autograd saves tensors that share the storage, and not its address, so it reads the bytes that the storage has in
/// the backward pass. No version counter changes, since the values are the same.
inline void lend_bytes(const at::Tensor& tensor, void* bytes)
{
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  detail::set_readable(storage, true);
  storage.set_data_ptr_noswap(at::DataPtr{bytes, tensor.device()});
  storage.set_nbytes(static_cast<std::size_t>(tensor.numel()) * tensor.element_size());
}

/// The storage has no bytes: reading it is an error or a crash, see set_readable. Nothing is freed, since the storage
/// never owned the bytes.
inline void take_bytes_back(const at::Tensor& tensor)
{
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(at::DataPtr{nullptr, tensor.device()});
  storage.set_nbytes(std::size_t{0});
  detail::set_readable(storage, false);
}

}  // namespace libtorch_gpt
