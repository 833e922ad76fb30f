// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lent_bytes.hpp"

#include <unordered_set>

namespace libtorch_gpt {

/// Storages that live in any case, such as those of frozen weights. Views count as their tensors do.
class storage_set {
 public:
  void add(const at::Tensor& tensor) { known_.insert(storage_of(tensor)); }
  [[nodiscard]] bool has(const at::Tensor& tensor) const { return known_.contains(storage_of(tensor)); }

 private:
  std::unordered_set<const void*> known_{};
};

}  // namespace libtorch_gpt
