// SPDX-License-Identifier: Apache-2.0
// What exchange_dlpack.py calls: a manager with a tensor of each element type, and their bytes out and in by DLPack.
#include "newer_dlpack.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/interop/dlpack.hpp>
#include <chunkmem/manager/manager.hpp>

#include <cstdint>
#include <exception>
#include <string>

namespace cm = chunkmem;
using namespace cm::literals;

namespace {

using arena = cm::backend::host_arena;
using manager = cm::manager<arena>;

/// A device of two chunks for six tensors: lent tensors keep their places, all others are loaded and evicted.
struct rig {
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<float> as_float = m.add<float>({3, 4, 5}, cm::role::parameter);
  cm::tensor<cm::bf16> as_bf16 = m.add<cm::bf16>({3, 4, 5}, cm::role::parameter);
  cm::tensor<cm::fp16> as_fp16 = m.add<cm::fp16>({3, 4, 5}, cm::role::parameter);
  cm::tensor<std::int32_t> as_int32 = m.add<std::int32_t>({3, 4, 5}, cm::role::buffer);
  cm::tensor<std::int64_t> as_int64 = m.add<std::int64_t>({3, 4, 5}, cm::role::buffer);
  cm::tensor<std::uint8_t> as_uint8 = m.add<std::uint8_t>({3, 4, 5}, cm::role::buffer);

  /// Calls `use(tensor)` with that of the type of this number, in the order of cm::dtype.
  template <class Use>
  auto with(int type, Use use)
  {
    switch (static_cast<cm::dtype>(type)) {
      case cm::dtype::float32: return use(as_float);
      case cm::dtype::bfloat16: return use(as_bf16);
      case cm::dtype::float16: return use(as_fp16);
      case cm::dtype::int32: return use(as_int32);
      case cm::dtype::int64: return use(as_int64);
      default: return use(as_uint8);
    }
  }
};

rig* all = nullptr;
std::string last_error;

/// No exception may reach Python. @return   the result of `make`, or nothing with last_error set
template <class Result, class Make>
Result guarded(Make make)
{
  try {
    last_error.clear();
    return make();
  } catch (const std::exception& failed) {
    last_error = failed.what();
  }
  return Result{};
}

template <class Managed>
bool fill(int type, void* foreign)
{
  return guarded<bool>([&] {
    const auto it = cm::interop::own_dlpack(static_cast<Managed*>(foreign));
    all->with(type, [&](auto to) { cm::interop::fill(all->m, to, it->dl_tensor); });
    return true;
  });
}

template <class Managed>
void* lend(int type, bool writes)
{
  return guarded<void*>([&] {
    return all->with(type, [&](auto from) -> void* {
      if (writes) return cm::interop::to_dlpack<Managed>(all->m.acquire(from, cm::access::read_write), {3, 4, 5});
      if constexpr (cm::interop::dlpack_versioned<Managed>)
        return cm::interop::to_dlpack<Managed>(all->m.acquire(from, cm::access::read), {3, 4, 5});
      else
        return cm::interop::to_dlpack_without_const<Managed>(all->m.acquire(from, cm::access::read), {3, 4, 5});
    });
  });
}

}  // namespace

extern "C" {
void chunkmem_open()
{
  all = new rig;
}
void chunkmem_close()
{
  delete all;
  all = nullptr;
}
const char* chunkmem_error()
{
  return last_error.c_str();
}
bool chunkmem_fill_older(int type, void* foreign)
{
  return fill<DLManagedTensor>(type, foreign);
}
bool chunkmem_fill_newer(int type, void* foreign)
{
  return fill<newer_dlpack>(type, foreign);
}
void* chunkmem_lend_older(int type, bool writes)
{
  return lend<DLManagedTensor>(type, writes);
}
void* chunkmem_lend_newer(int type, bool writes)
{
  return lend<newer_dlpack>(type, writes);
}
bool chunkmem_is_held(int type)
{
  return all->with(type, [](auto it) { return all->m.state_of(it) == cm::tensor_state::compute; });
}
}
