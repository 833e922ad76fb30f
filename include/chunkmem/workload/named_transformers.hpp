// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace workload {

/// A shape with published figures.
///
///     for (const named_transformer& it : named_transformers) std::cout << it.family << ' ' << it.name << '\n';
struct named_transformer {
  std::string_view family;
  std::string_view name;
  transformer_shape shape;
};

namespace detail {

/// GPT-2's vocabulary and positions, as the examples of all three engines use them.
[[nodiscard]] constexpr transformer_shape gpt_like(std::uint64_t hidden, std::uint64_t layers, std::uint64_t heads,
                                                   std::uint64_t sequence = 1024) noexcept
{
  return {transformer_style::gpt, layers, hidden, heads, heads, 4 * hidden, 50'257, hidden, 1024, sequence, true};
}
[[nodiscard]] constexpr transformer_shape bert_like(std::uint64_t hidden, std::uint64_t layers,
                                                    std::uint64_t heads) noexcept
{
  return {transformer_style::bert, layers, hidden, heads, heads, 4 * hidden, 30'522, hidden, 512, 512, true};
}
[[nodiscard]] constexpr transformer_shape opt_like(std::uint64_t hidden, std::uint64_t layers, std::uint64_t heads,
                                                   std::uint64_t embedding = 0) noexcept
{
  const std::uint64_t table = embedding == 0 ? hidden : embedding;
  return {transformer_style::opt, layers, hidden, heads, heads, 4 * hidden, 50'272, table, 2050, 1024, true};
}
[[nodiscard]] constexpr transformer_shape llama_like(std::uint64_t hidden, std::uint64_t layers, std::uint64_t heads,
                                                     std::uint64_t kv_heads, std::uint64_t ffn) noexcept
{
  return {transformer_style::llama, layers, hidden, heads, kv_heads, ffn, 32'000, hidden, 0, 4096, false};
}

}  // namespace detail

/// The models of publications on chunk-based engines, as configured in their examples.
///
/// PatrickStar: Fang et al. 2022 (arXiv 2108.05818), examples of its release 0.4. Gemini: ColossalAI's GPT and LLaMA
/// examples of 2023. Elixir: Huang et al. 2022 (arXiv 2212.05339), its benchmarks, whose OPT are those of Zhang et al.
/// 2022 (arXiv 2205.01068): two rows of positions more than the 2,048 it was trained with, and 350m with a table of
/// width 512.
inline constexpr named_transformer named_transformers[] = {
    {"PatrickStar", "Bert", detail::bert_like(768, 6, 12)},
    {"PatrickStar", "Bertlarge", detail::bert_like(1024, 24, 16)},
    {"PatrickStar", "GPT2small", detail::gpt_like(1536, 24, 16, 128)},
    {"PatrickStar", "GPT2_1B", detail::gpt_like(2048, 20, 16)},
    {"PatrickStar", "megatron_1.3B", detail::gpt_like(2048, 24, 32)},
    {"PatrickStar", "GPT2_2B", detail::gpt_like(2048, 40, 16)},
    {"PatrickStar", "megatron_3.9B", detail::gpt_like(2560, 24, 40)},
    {"PatrickStar", "GPT2_4B", detail::gpt_like(2304, 64, 16)},
    {"PatrickStar", "GPT3_6B", detail::gpt_like(3072, 53, 16)},
    {"PatrickStar", "GPT3_8B", detail::gpt_like(3072, 72, 16)},
    {"PatrickStar", "GPT3_10B", detail::gpt_like(4096, 50, 16)},
    {"PatrickStar", "GPT3_11B", detail::gpt_like(4096, 55, 16)},
    {"PatrickStar", "GPT3_12B", detail::gpt_like(4096, 60, 16)},
    {"PatrickStar", "GPT3_13B", detail::gpt_like(4096, 65, 16)},
    {"PatrickStar", "GPT3_15B", detail::gpt_like(4096, 78, 16)},
    {"PatrickStar", "GPT3_18B", detail::gpt_like(4096, 90, 16)},
    {"PatrickStar", "NV_18B", detail::gpt_like(6144, 40, 16)},
    {"PatrickStar", "NV_39B", detail::gpt_like(8192, 48, 16)},
    {"PatrickStar", "NV_76B", detail::gpt_like(10'240, 60, 16)},
    {"PatrickStar", "DS_20B", detail::gpt_like(8192, 25, 16)},
    {"PatrickStar", "DS_40B", detail::gpt_like(8192, 50, 16)},
    {"PatrickStar", "DS_50B", detail::gpt_like(8192, 62, 16)},
    {"PatrickStar", "DS_60B", detail::gpt_like(8192, 75, 16)},
    {"PatrickStar", "DS_68B", detail::gpt_like(9216, 66, 16)},
    {"PatrickStar", "175B", detail::gpt_like(12'288, 96, 96)},
    {"PatrickStar", "220B", detail::gpt_like(12'288, 120, 96)},
    {"PatrickStar", "250B", detail::gpt_like(12'288, 137, 96)},
    {"PatrickStar", "310B", detail::gpt_like(16'384, 128, 128)},
    {"PatrickStar", "454B", detail::gpt_like(20'480, 90, 128)},
    {"Gemini GPT", "medium", detail::gpt_like(1024, 24, 16)},
    {"Gemini GPT", "xl", detail::gpt_like(1600, 48, 32)},
    {"Gemini GPT", "10b", detail::gpt_like(4096, 50, 16)},
    {"Gemini GPT", "14b", detail::gpt_like(4096, 70, 16)},
    {"Gemini GPT", "20b", detail::gpt_like(8192, 25, 16)},
    {"Gemini GPT", "24b", detail::gpt_like(8192, 30, 16)},
    {"Gemini GPT", "30b", detail::gpt_like(8192, 37, 16)},
    {"Gemini GPT", "40b", detail::gpt_like(8192, 50, 16)},
    {"Gemini LLaMA", "100m", detail::llama_like(1024, 4, 32, 32, 2048)},
    {"Gemini LLaMA", "5b", detail::llama_like(4096, 32, 32, 8, 11'008)},
    {"Gemini LLaMA", "7b", detail::llama_like(4096, 32, 32, 32, 11'008)},
    {"Gemini LLaMA", "13b", detail::llama_like(5120, 40, 40, 40, 13'824)},
    {"Gemini LLaMA", "70b", detail::llama_like(8192, 80, 64, 8, 28'672)},
    {"Elixir GPT-2", "400m", detail::gpt_like(1024, 24, 16)},
    {"Elixir GPT-2", "1b", detail::gpt_like(1536, 32, 24)},
    {"Elixir GPT-2", "4b", detail::gpt_like(3072, 32, 24)},
    {"Elixir GPT-2", "10b", detail::gpt_like(4096, 48, 32)},
    {"Elixir GPT-2", "15b", detail::gpt_like(8192, 18, 64)},
    {"Elixir GPT-2", "20b", detail::gpt_like(8192, 24, 64)},
    {"Elixir GPT-2", "25b", detail::gpt_like(8192, 30, 64)},
    {"Elixir GPT-2", "30b", detail::gpt_like(8192, 36, 64)},
    {"Elixir GPT-2", "40b", detail::gpt_like(8192, 50, 16)},
    {"Elixir OPT", "350m", detail::opt_like(1024, 24, 16, 512)},
    {"Elixir OPT", "1.3b", detail::opt_like(2048, 24, 32)},
    {"Elixir OPT", "2.7b", detail::opt_like(2560, 32, 32)},
    {"Elixir OPT", "6.7b", detail::opt_like(4096, 32, 32)},
    {"Elixir OPT", "13b", detail::opt_like(5120, 40, 40)},
    {"Elixir OPT", "30b", detail::opt_like(7168, 48, 56)},
    {"Elixir OPT", "66b", detail::opt_like(9216, 64, 72)},
    {"Elixir OPT", "175b", detail::opt_like(12'288, 96, 96)},
};

/// @throws config_error   there is none of that name in that family
[[nodiscard]] constexpr const transformer_shape& shape_of(std::string_view family, std::string_view name)
{
  for (const named_transformer& it : named_transformers)
    if (it.family == family && it.name == name) return it.shape;
  throw config_error{error_text{} << "chunkmem: no transformer is named " << name << " in the family " << family
                                  << " (workload/named_transformers.hpp lists them)"};
}

}  // namespace workload

}  // namespace chunkmem::inline v0
