#pragma once

#include <chunkmem/tensor/dtype.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// A list is one number beside each number of each parameter: a momentum, a variance, a master copy.
///
/// Lists are data: an optimizer says what it needs and the manager, which knows no optimizer, keeps it. A fresh list
/// is zero.
struct list_spec {
  std::string_view name;        ///< unique in a manager, such as "adam/momentum"; outlives the manager
  dtype type = dtype::float32;  ///< its size is the bytes for each parameter
  std::uint32_t version = 1;    ///< of the meaning of its bytes, for checkpoints
};

}  // namespace chunkmem::inline v0
