// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <support/catch.hpp>
#include <support/temporary_folder.hpp>

namespace checkpoints {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;

using support::temporary_folder;

/// Three tensors of one training, one of them of 16 bits.
struct small_model {
  small_model()
  {
    m.name(a, "a");
    m.name(b, "b");
    m.name(half, "half");
    m.content().belongs_to(1);
    fill(1.5F);
  }
  void fill(float value)
  {
    for (float& it : m.acquire(a, cm::access::write).span()) it = value;
    for (float& it : m.acquire(b, cm::access::write).span()) it = -2.0F * value;
    for (auto& it : m.acquire(half, cm::access::write).span()) it = cm::round_to<cm::bf16>(3.0F * value);
  }
  [[nodiscard]] bool holds(float value)
  {
    for (const float it : m.acquire(a, cm::access::read).span())
      if (it != value) return false;
    for (const float it : m.acquire(b, cm::access::read).span())
      if (it != -2.0F * value) return false;
    for (const auto it : m.acquire(half, cm::access::read).span())
      if (cm::to_float(it) != 3.0F * value) return false;
    return true;
  }
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<cm::bf16> half = m.add<cm::bf16>({3}, cm::role::frozen);
  cm::tensor<float> a = m.add<float>({2, 4}, cm::role::frozen);
  cm::tensor<float> b = m.add<float>({300}, cm::role::buffer);
};

}  // namespace checkpoints
