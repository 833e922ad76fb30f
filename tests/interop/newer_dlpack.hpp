// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/interop/dlpack.hpp>

#include <cstdint>

/// The struct of DLPack 1 as its documents lay it out, so that it is tested with the older header too.
struct newer_dlpack {
  struct {
    std::uint32_t major = 0;
    std::uint32_t minor = 0;
  } version;
  void* manager_ctx = nullptr;
  void (*deleter)(newer_dlpack*) = nullptr;
  std::uint64_t flags = 0;
  DLTensor dl_tensor{};
};

static_assert(chunkmem::interop::dlpack_versioned<newer_dlpack>);
#if defined(DLPACK_MAJOR_VERSION) && DLPACK_MAJOR_VERSION >= 1
static_assert(chunkmem::interop::dlpack_versioned<DLManagedTensorVersioned> &&
              sizeof(newer_dlpack) == sizeof(DLManagedTensorVersioned));
#endif
