// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/workload/named_transformers.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <cstdint>
#include <vector>

namespace max_model {

namespace workload = chunkmem::workload;

/// A tensor and its module. PatrickStar keeps a module in one chunk.
struct declared_tensor {
  std::uint64_t elements;
  std::uint32_t module;
};

/// Tensors in the order of construction, with the tensors around the layers (the vocabulary) or without them.
class model_tensors {
 public:
  model_tensors(const workload::transformer_shape& shape, bool with_vocabulary)
  {
    using enum workload::transformer_operator;
    for (const workload::transformer_tensor& it : workload::tensors_of(shape)) {
      const bool is_outside = it.part == embedding || it.part == logits;
      if (is_outside && !with_vocabulary) continue;
      if (all_.empty()) first_ = it.module;
      all_.push_back({it.elements(), it.module - first_});
    }
  }

  [[nodiscard]] const std::vector<declared_tensor>& all() const { return all_; }

 private:
  std::vector<declared_tensor> all_;
  std::uint32_t first_ = 0;
};

}  // namespace max_model
