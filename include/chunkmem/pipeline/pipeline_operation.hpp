// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The steps of a stage. The letters in brackets are those of pictures and files.
enum class operation_kind : std::uint8_t {
  forward,             ///< [F] of a micro-batch through a part
  backward,            ///< [BW] the gradients of the input and of the weights
  backward_input,      ///< [B] the gradient of the input alone
  backward_weight,     ///< [W] the gradients of the weights, after [B]
  recompute,           ///< [R] a second forward run, for activations that the first one did not save
  send_activation,     ///< [SA] the output of a part, to the stage of the next part
  receive_activation,  ///< [RA] the input of a part
  send_gradient,       ///< [SG] the gradient of a part's input, to the stage of the part before
  receive_gradient,    ///< [RG] the gradient of a part's output
  offload,             ///< [O] the activations that a part saved, to the host
  reload,              ///< [L] the same, back to the device
  update,              ///< [U] of the weights of a part, which makes a new version
};

inline constexpr std::array<std::string_view, 12> operation_letters{"F",  "BW", "B",  "W", "R", "SA",
                                                                    "RA", "SG", "RG", "O", "L", "U"};
inline constexpr std::array<std::string_view, 12> operation_names{"forward",
                                                                  "backward",
                                                                  "backward_input",
                                                                  "backward_weight",
                                                                  "recompute",
                                                                  "send_activation",
                                                                  "receive_activation",
                                                                  "send_gradient",
                                                                  "receive_gradient",
                                                                  "offload",
                                                                  "reload",
                                                                  "update"};

[[nodiscard]] constexpr std::string_view letters_of(operation_kind kind) noexcept
{
  const auto index = static_cast<std::size_t>(kind);
  return index < operation_letters.size() ? operation_letters[index] : "?";
}
[[nodiscard]] constexpr std::string_view name_of(operation_kind kind) noexcept
{
  const auto index = static_cast<std::size_t>(kind);
  return index < operation_names.size() ? operation_names[index] : "an unknown step";
}

/// Whether the stage computes. Transfers and copies run aside.
[[nodiscard]] constexpr bool computes(operation_kind kind) noexcept
{
  return kind <= operation_kind::recompute;
}
[[nodiscard]] constexpr bool sends(operation_kind kind) noexcept
{
  return kind == operation_kind::send_activation || kind == operation_kind::send_gradient;
}
[[nodiscard]] constexpr bool receives(operation_kind kind) noexcept
{
  return kind == operation_kind::receive_activation || kind == operation_kind::receive_gradient;
}

/// One step of a stage: which part of the model, which micro-batch, which version of the weights.
///
///     const operation first{.kind = operation_kind::forward, .part = 0, .micro_batch = 3, .version = 0};
struct operation {
  operation_kind kind = operation_kind::forward;
  std::uint32_t part = 0;         ///< of the model, counted from its input
  std::uint32_t micro_batch = 0;  ///< counted over all batches; of an update: the last one of its batch
  std::uint32_t version = 0;      ///< of the weights that it reads; of an update: the version that it makes

  [[nodiscard]] constexpr bool operator==(const operation&) const noexcept = default;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
