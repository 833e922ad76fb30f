// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error_text.hpp>
#include <chunkmem/core/ids.hpp>

#include <string_view>

namespace chunkmem::inline v0 {

/// What a message calls the bytes of a tensor in a list. The views belong to the manager.
///
///     throw usage_error{error_text{} << "chunkmem: " << tensor_label{id, "embedding", "value"} << " was not written"};
struct tensor_label {
  tensor_id tensor = tensor_id::none;
  std::string_view name;  ///< empty where the trainer gave none
  std::string_view list;  ///< such as "value" or "gradient"

  /// "tensor 'embedding' (value)"; without a name, "tensor 12 (value)".
  friend error_text& operator<<(error_text& text, const tensor_label& label) noexcept
  {
    text << "tensor ";
    if (label.name.empty())
      text << index_of(label.tensor);
    else
      text << "'" << label.name << "'";
    return text << " (" << label.list << ")";
  }
};

}  // namespace chunkmem::inline v0
