// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>

#include <string>
#include <string_view>

namespace gpt {

/// Reads sizes such as `64MiB`, `1.5GiB`, `512KiB`, `1B`.
/// @param option   named in the sentence of a refusal
/// @throws problem   no number, negative, zero, no unit, less than a byte, or more than 1 EiB
[[nodiscard]] chunkmem::bytes parse_size(std::string_view option, std::string_view text);

/// `12.3 MiB`: three or four figures, the unit that fits.
[[nodiscard]] std::string size_text(chunkmem::bytes size);

}  // namespace gpt
