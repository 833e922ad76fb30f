// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/dtype.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// What a list is to the values beside it.
enum class list_use : std::uint8_t {
  state,    ///< of an optimizer: a fresh one is zero
  master,   ///< the value in full precision: 16-bit parameters alone have it, a fresh one is the value
  weight,   ///< the value at another time. Ranks gather it as they gather the value
  scratch,  ///< void after a load: checkpoints leave it out
};

/// A list is one number beside each number of each parameter: a momentum, a variance, a master copy.
///
///     const list_spec lists[] = {{.name = "mine/average"}, {.name = "mine/sign", .type = dtype::uint8}};
///     m.use(lists);
///
/// Lists are data: an optimizer says what it needs and the manager, which knows no optimizer, keeps it.
struct list_spec {
  std::string_view name;        ///< unique in a manager, such as "adam/momentum"; outlives the manager
  dtype type = dtype::float32;  ///< its size is the bytes for each parameter; a master is float32
  std::uint32_t version = 1;    ///< of the meaning of its bytes, for checkpoints
  list_use use = list_use::state;
};

/// The master list that every optimizer for 16-bit parameters shares.
inline constexpr list_spec master_list{"master", dtype::float32, 1, list_use::master};

}  // namespace chunkmem::inline v0
