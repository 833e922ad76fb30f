// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace workload {

/// How a layer is built.
enum class transformer_style : std::uint8_t {
  gpt,    ///< one matrix for queries, keys and values; biases; norms with gain and bias; MLP of two matrices
  bert,   ///< as gpt, with types of tokens and a norm after the embedding, and none after the last layer
  opt,    ///< as gpt, with a matrix each for queries, keys and values
  llama,  ///< as opt, without biases; norms with a gain alone; gated MLP of three matrices; no dropout
};

inline constexpr std::size_t transformer_style_count = 4;

[[nodiscard]] constexpr std::string_view name_of(transformer_style style) noexcept
{
  constexpr std::string_view names[transformer_style_count] = {"gpt", "bert", "opt", "llama"};
  return names[static_cast<std::size_t>(style)];
}

/// The member of a shape that cannot be, if there is one.
///
///     const shape_problem wrong = shape.problem();
///     if (!wrong.member.empty()) std::cerr << wrong.member << ' ' << wrong.why;
struct shape_problem {
  std::string_view member;  ///< empty: nothing
  std::string_view why;
};

/// A decoder or encoder of equal layers. Its parameters and costs follow from these numbers. Elements, not bytes.
///
///     const transformer_shape shape = shape_of("PatrickStar", "GPT2small");
struct transformer_shape {
  transformer_style style = transformer_style::gpt;
  std::uint64_t layers = 0;
  std::uint64_t hidden = 0;  ///< width of the stream between layers
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;  ///< heads of keys and values: fewer than heads where queries share them
  std::uint64_t ffn = 0;       ///< width inside the MLP
  std::uint64_t vocabulary = 0;
  std::uint64_t embedding = 0;  ///< width of the tables of tokens; where it is not `hidden`, two matrices project
  std::uint64_t positions = 0;  ///< rows of the table of positions; 0: they are not learned
  std::uint64_t sequence = 0;   ///< tokens that a row of a batch has
  bool ties_embedding = true;   ///< logits use the table of tokens

  static constexpr std::uint64_t most_layers = 65'536;

  [[nodiscard]] constexpr bool operator==(const transformer_shape&) const noexcept = default;

  [[nodiscard]] constexpr std::uint64_t kv_width() const noexcept { return hidden / heads * kv_heads; }
  [[nodiscard]] constexpr bool has_biases() const noexcept { return style != transformer_style::llama; }
  [[nodiscard]] constexpr bool has_gate() const noexcept { return style == transformer_style::llama; }
  [[nodiscard]] constexpr bool has_token_types() const noexcept { return style == transformer_style::bert; }
  [[nodiscard]] constexpr bool splits_qkv() const noexcept
  {
    return style == transformer_style::opt || style == transformer_style::llama;
  }
  [[nodiscard]] constexpr bool projects_embedding() const noexcept { return embedding != hidden; }
  /// Some models have no norm after the last layer, since each norm follows its part: BERT, and OPT where it projects.
  [[nodiscard]] constexpr bool has_final_norm() const noexcept
  {
    return style != transformer_style::bert && !(style == transformer_style::opt && projects_embedding());
  }

  /// The first thing that cannot be.
  [[nodiscard]] constexpr shape_problem problem() const noexcept
  {
    if (layers == 0) return {"layers", "is 0"};
    if (layers > most_layers) return {"layers", "is above 65536"};
    if (hidden == 0) return {"hidden", "is 0"};
    if (heads == 0) return {"heads", "is 0"};
    if (hidden % heads != 0) return {"heads", "does not divide hidden"};
    if (kv_heads == 0) return {"kv_heads", "is 0"};
    if (heads % kv_heads != 0) return {"kv_heads", "does not divide heads"};
    if (ffn == 0) return {"ffn", "is 0"};
    if (vocabulary == 0) return {"vocabulary", "is 0"};
    if (embedding == 0) return {"embedding", "is 0"};
    if (sequence == 0) return {"sequence", "is 0"};
    if (positions != 0 && positions < sequence) return {"positions", "is below sequence, and not 0"};
    return {};
  }
  /// @throws config_error   there is a problem
  constexpr void check() const
  {
    const shape_problem found = problem();
    if (found.member.empty()) return;
    throw config_error{error_text{} << "chunkmem: no transformer has this shape: " << found.member << " " << found.why
                                    << ": layers " << layers << ", hidden " << hidden << ", heads " << heads
                                    << ", kv_heads " << kv_heads << ", ffn " << ffn << ", vocabulary " << vocabulary
                                    << ", sequence " << sequence << " (change it)"};
  }
};

}  // namespace workload

}  // namespace chunkmem::inline v0
