#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace layout_bench {

/// A transformer as published in the examples of other engines. Elements, not bytes.
struct model_shape {
  std::string_view family;
  std::string_view name;
  std::uint64_t hidden;
  std::uint64_t layers;
  std::uint64_t vocabulary = 50'257;
  std::uint64_t positions = 1'024;
  std::uint64_t ffn = 0;       ///< 0: four times the hidden size
  std::uint64_t kv_width = 0;  ///< LLaMA: width of keys and values; 0: GPT
};

inline const std::vector<model_shape>& model_shapes()
{
  static const std::vector<model_shape> all{
      {"PatrickStar", "Bert", 768, 6, 30'522, 512},
      {"PatrickStar", "Bertlarge", 1024, 24, 30'522, 512},
      {"PatrickStar", "GPT2small", 1536, 24},
      {"PatrickStar", "GPT2_1B", 2048, 20},
      {"PatrickStar", "megatron_1.3B", 2048, 24},
      {"PatrickStar", "GPT2_2B", 2048, 40},
      {"PatrickStar", "megatron_3.9B", 2560, 24},
      {"PatrickStar", "GPT2_4B", 2304, 64},
      {"PatrickStar", "GPT3_6B", 3072, 53},
      {"PatrickStar", "GPT3_8B", 3072, 72},
      {"PatrickStar", "GPT3_10B", 4096, 50},
      {"PatrickStar", "GPT3_11B", 4096, 55},
      {"PatrickStar", "GPT3_12B", 4096, 60},
      {"PatrickStar", "GPT3_13B", 4096, 65},
      {"PatrickStar", "GPT3_15B", 4096, 78},
      {"PatrickStar", "GPT3_18B", 4096, 90},
      {"PatrickStar", "NV_18B", 6144, 40},
      {"PatrickStar", "NV_39B", 8192, 48},
      {"PatrickStar", "NV_76B", 10'240, 60},
      {"PatrickStar", "DS_20B", 8192, 25},
      {"PatrickStar", "DS_40B", 8192, 50},
      {"PatrickStar", "DS_50B", 8192, 62},
      {"PatrickStar", "DS_60B", 8192, 75},
      {"PatrickStar", "DS_68B", 9216, 66},
      {"PatrickStar", "175B", 12'288, 96},
      {"PatrickStar", "220B", 12'288, 120},
      {"PatrickStar", "250B", 12'288, 137},
      {"PatrickStar", "310B", 16'384, 128},
      {"PatrickStar", "454B", 20'480, 90},
      {"Gemini GPT", "medium", 1024, 24},
      {"Gemini GPT", "xl", 1600, 48},
      {"Gemini GPT", "10b", 4096, 50},
      {"Gemini GPT", "14b", 4096, 70},
      {"Gemini GPT", "20b", 8192, 25},
      {"Gemini GPT", "24b", 8192, 30},
      {"Gemini GPT", "30b", 8192, 37},
      {"Gemini GPT", "40b", 8192, 50},
      {"Gemini LLaMA", "100m", 1024, 4, 32'000, 0, 2048, 1024},
      {"Gemini LLaMA", "5b", 4096, 32, 32'000, 0, 11'008, 1024},
      {"Gemini LLaMA", "7b", 4096, 32, 32'000, 0, 11'008, 4096},
      {"Gemini LLaMA", "13b", 5120, 40, 32'000, 0, 13'824, 5120},
      {"Gemini LLaMA", "70b", 8192, 80, 32'000, 0, 28'672, 1024},
      {"Elixir GPT-2", "400m", 1024, 24},
      {"Elixir GPT-2", "1b", 1536, 32},
      {"Elixir GPT-2", "4b", 3072, 32},
      {"Elixir GPT-2", "10b", 4096, 48},
      {"Elixir GPT-2", "15b", 8192, 18},
      {"Elixir GPT-2", "20b", 8192, 24},
      {"Elixir GPT-2", "25b", 8192, 30},
      {"Elixir GPT-2", "30b", 8192, 36},
      {"Elixir GPT-2", "40b", 8192, 50},
      // OPT: vocabulary 50,272, positions 2,050; the sizes of its paper. 350m projects a narrow embedding of 512.
      {"Elixir OPT", "350m", 1024, 24, 50'272, 2'050},
      {"Elixir OPT", "1.3b", 2048, 24, 50'272, 2'050},
      {"Elixir OPT", "2.7b", 2560, 32, 50'272, 2'050},
      {"Elixir OPT", "6.7b", 4096, 32, 50'272, 2'050},
      {"Elixir OPT", "13b", 5120, 40, 50'272, 2'050},
      {"Elixir OPT", "30b", 7168, 48, 50'272, 2'050},
      {"Elixir OPT", "66b", 9216, 64, 50'272, 2'050},
      {"Elixir OPT", "175b", 12'288, 96, 50'272, 2'050},
  };
  return all;
}

/// A module is what PatrickStar keeps in one chunk.
struct declared_tensor {
  std::uint64_t elements;
  std::uint32_t module;
};

/// Tensors in the order of construction, in modules as the published models declare them.
class model_tensors {
 public:
  model_tensors(const model_shape& shape, bool with_vocabulary) : shape_{shape}
  {
    const bool llama = shape.kv_width != 0;
    const bool opt = shape.family == "Elixir OPT";
    const std::uint64_t h = shape.hidden;
    const std::uint64_t embedding = shape.name == "350m" && opt ? 512 : h;
    if (with_vocabulary) {
      module({shape.vocabulary * embedding});
      if (shape.positions != 0) module({shape.positions * h});
      if (shape.family == "PatrickStar" && shape.vocabulary == 30'522) module({2 * h}), module({h, h});
      if (embedding != h) module({embedding * h}), module({embedding * h});
    }
    for (std::uint64_t layer = 0; layer < shape.layers; ++layer) {
      if (llama) llama_layer();
      else if (opt) opt_layer();
      else gpt_layer();
    }
    llama ? module({h}) : module({h, h});
    if (with_vocabulary && llama) module({shape.vocabulary * h});  // not tied
  }

  [[nodiscard]] const std::vector<declared_tensor>& all() const { return all_; }

 private:
  void module(std::initializer_list<std::uint64_t> tensors)
  {
    for (const std::uint64_t elements : tensors) all_.push_back({elements, modules_});
    ++modules_;
  }
  void gpt_layer()
  {
    const std::uint64_t h = shape_.hidden;
    module({h, h});
    module({3 * h * h, 3 * h});
    module({h * h, h});
    module({h, h});
    module({4 * h * h, 4 * h});
    module({4 * h * h, h});
  }
  void opt_layer()
  {
    const std::uint64_t h = shape_.hidden;
    for (int projection = 0; projection < 4; ++projection) module({h * h, h});
    module({h, h});
    module({4 * h * h, 4 * h});
    module({4 * h * h, h});
    module({h, h});
  }
  void llama_layer()
  {
    const std::uint64_t h = shape_.hidden;
    module({h * h});
    module({h * shape_.kv_width});
    module({h * shape_.kv_width});
    module({h * h});
    for (int matrix = 0; matrix < 3; ++matrix) module({h * shape_.ffn});
    module({h});
    module({h});
  }

  const model_shape& shape_;
  std::vector<declared_tensor> all_;
  std::uint32_t modules_ = 0;
};

}  // namespace layout_bench
