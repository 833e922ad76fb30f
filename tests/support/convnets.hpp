// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support::pictures {

using namespace chunkmem;

/// The operators of a convolutional network.
enum class picture_operator_kind : std::uint8_t {
  convolution,
  transposed_convolution,  ///< doubles both sides of a picture
  batch_norm,
  relu,  ///< in place
  max_pool,
  average_pool,   ///< over a whole channel
  addition,       ///< of two tensors of one shape
  concatenation,  ///< of the channels of two tensors
  linear,
};

inline constexpr std::size_t picture_operator_kind_count = 9;

[[nodiscard]] constexpr std::string_view name_of(picture_operator_kind kind) noexcept
{
  constexpr std::string_view names[picture_operator_kind_count] = {
      "convolution", "transposed_convolution", "batch_norm", "relu", "max_pool", "average_pool",
      "addition",    "concatenation",          "linear"};
  return names[static_cast<std::size_t>(kind)];
}

/// Whether an operator of this kind is a matrix product.
[[nodiscard]] constexpr bool is_product(picture_operator_kind kind) noexcept
{
  return kind == picture_operator_kind::convolution || kind == picture_operator_kind::transposed_convolution ||
         kind == picture_operator_kind::linear;
}

/// The costs of one operator for one picture of a batch. Elements, not bytes.
///
/// FLOP are those of matrix products, two for each multiplication; all other operators have 0. A product's backward
/// pass computes two gradients, each as costly as the forward pass. The first convolution computes only the gradient of
/// its weights, since the gradient of the picture has no reader.
///
///     for (const picture_operator& layer : network.operators) sum += layer.saved_elements;
struct picture_operator {
  picture_operator_kind kind = picture_operator_kind::convolution;
  std::uint64_t forward_flops = 0;    ///< [FLOP]
  std::uint64_t backward_flops = 0;   ///< [FLOP] of both gradients
  std::uint64_t parameters = 0;       ///< weights and biases; for a batch norm its gain and bias
  std::uint64_t input_elements = 0;   ///< of all tensors that it reads, parameters aside
  std::uint64_t output_elements = 0;  ///< of the tensor that it makes
  /// Elements of this operator that the backward pass needs: its output. A ReLU works in place and keeps 0; a
  /// concatenation keeps 0, since both of its parts are kept already.
  std::uint64_t saved_elements = 0;
  /// Outputs of earlier operators that wait for a later concatenation, or for its backward pass. They are saved
  /// elements of those operators, and stay until the operator that made them runs backward.
  std::uint64_t carried_elements = 0;
  bool is_carried = false;  ///< a later concatenation reads the output too
  /// The output connects this operator and all before it with all operators after it, carried tensors aside. The graph
  /// may be cut here.
  bool ends_block = false;

  [[nodiscard]] constexpr bool operator==(const picture_operator&) const noexcept = default;
};

/// A convolutional network: its operators in the order of the forward pass. All sums are for one picture of a batch.
///
/// The order is one in which each operator follows all operators that it reads from. Cost of each sum: O(operators).
///
///     const convnet network = resnet(50);
///     const std::uint64_t kept = network.saved_elements() * pictures;   // elements when the forward pass ends
struct convnet {
  std::string name;
  std::vector<picture_operator> operators;

  [[nodiscard]] bool operator==(const convnet&) const noexcept = default;

  /// Weights and biases of all operators. @throws size_overflow
  [[nodiscard]] std::uint64_t parameters() const { return total(&picture_operator::parameters); }
  /// [FLOP] of all matrix products. @throws size_overflow
  [[nodiscard]] std::uint64_t forward_flops() const { return total(&picture_operator::forward_flops); }
  /// [FLOP] of all gradients. @throws size_overflow
  [[nodiscard]] std::uint64_t backward_flops() const { return total(&picture_operator::backward_flops); }
  /// Elements that all operators make, those that a ReLU overwrites included. @throws size_overflow
  [[nodiscard]] std::uint64_t output_elements() const { return total(&picture_operator::output_elements); }
  /// Elements that the backward pass keeps of all operators, without the picture. @throws size_overflow
  [[nodiscard]] std::uint64_t saved_elements() const { return total(&picture_operator::saved_elements); }

  /// The most blocks that the network can be cut into. The last operator ends a block.
  [[nodiscard]] std::size_t blocks() const noexcept
  {
    return static_cast<std::size_t>(std::count_if(operators.begin(), operators.end(),
                                                  [](const picture_operator& layer) { return layer.ends_block; }));
  }

 private:
  [[nodiscard]] std::uint64_t total(std::uint64_t picture_operator::*member) const
  {
    checked sum;
    for (const picture_operator& layer : operators) sum += layer.*member;
    return sum.value();
  }
};

namespace detail {

/// The shape of a tensor of one picture. A vector has side 1.
struct picture_shape {
  std::uint64_t channels = 0;
  std::uint64_t side = 0;

  [[nodiscard]] checked elements() const { return checked{channels} * side * side; }
};

/// A square window that moves over a picture.
struct picture_window {
  std::uint64_t side = 1;
  std::uint64_t stride = 1;
  std::uint64_t padding = 0;  ///< on each of the four edges

  [[nodiscard]] std::uint64_t positions(std::uint64_t length) const
  {
    return (length + 2 * padding - side) / stride + 1;
  }
};

/// Appends operators to a network and tracks the shape of the last tensor.
///
/// A tensor that is read again later is a branch. While a branch is open, no operator ends a block. A tensor for a
/// later concatenation is carried instead: it is kept next to all operators that follow.
class picture_builder {
 public:
  picture_builder(std::string name, picture_shape picture) : shape_{picture} { network_.name = std::move(name); }

  [[nodiscard]] convnet finish() && { return std::move(network_); }

  /// Marks the last tensor, which is read twice. The second reader starts from it, or joins it with another tensor.
  [[nodiscard]] picture_shape open_branch()
  {
    ++open_branches_;
    return shape_;
  }
  /// Marks the last tensor, which a concatenation reads too.
  [[nodiscard]] picture_shape carry()
  {
    network_.operators.back().is_carried = true;
    network_.operators.back().ends_block = false;
    carried_ += shape_.elements();
    return shape_;
  }
  /// The next operator reads the start of a branch.
  void go_back_to(picture_shape branch) { shape_ = branch; }

  void convolve(std::uint64_t channels, picture_window window, bool has_bias = false)
  {
    const picture_shape input = shape_;
    shape_ = {channels, window.positions(input.side)};
    const checked weights = checked{window.side} * window.side * input.channels * channels;
    product(picture_operator_kind::convolution, weights * 2 * shape_.side * shape_.side,
            weights + (has_bias ? channels : 0), input.elements());
  }
  /// A window of 2 x 2 for each pixel of the input, with a bias.
  void convolve_up(std::uint64_t channels)
  {
    const picture_shape input = shape_;
    shape_ = {channels, input.side * 2};
    const checked weights = checked{4} * input.channels * channels;
    product(picture_operator_kind::transposed_convolution, weights * 2 * input.side * input.side, weights + channels,
            input.elements());
  }
  void linear(std::uint64_t outputs)
  {
    const checked inputs = shape_.elements();
    shape_ = {outputs, 1};
    product(picture_operator_kind::linear, inputs * 2 * outputs, inputs * outputs + outputs, inputs);
  }
  void batch_norm() { append(picture_operator_kind::batch_norm, checked{2} * shape_.channels, shape_.elements()); }
  void relu() { append(picture_operator_kind::relu, 0, shape_.elements()); }
  void norm_and_relu()
  {
    batch_norm();
    relu();
  }
  void max_pool(picture_window window)
  {
    const checked inputs = shape_.elements();
    shape_.side = window.positions(shape_.side);
    append(picture_operator_kind::max_pool, 0, inputs);
  }
  void average_pool()
  {
    const checked inputs = shape_.elements();
    shape_.side = 1;
    append(picture_operator_kind::average_pool, 0, inputs);
  }
  /// The innermost branch ends here.
  void add()
  {
    --open_branches_;
    append(picture_operator_kind::addition, 0, shape_.elements() * 2);
  }
  /// A carried tensor that is larger is cropped to the picture.
  void concatenate(picture_shape carried)
  {
    shape_.channels = (checked{shape_.channels} + carried.channels).value();
    append(picture_operator_kind::concatenation, 0, shape_.elements());
  }

 private:
  void append(picture_operator_kind kind, checked parameters, checked inputs)
  {
    const std::uint64_t outputs = shape_.elements().value();
    const bool keeps_nothing = kind == picture_operator_kind::relu || kind == picture_operator_kind::concatenation;
    picture_operator added;
    added.kind = kind;
    added.parameters = parameters.value();
    added.input_elements = inputs.value();
    added.output_elements = outputs;
    added.saved_elements = keeps_nothing ? 0 : outputs;
    added.carried_elements = carried_.value();
    added.ends_block = open_branches_ == 0;
    network_.operators.push_back(added);
  }
  void product(picture_operator_kind kind, checked flops, checked parameters, checked inputs)
  {
    const std::uint64_t gradients = network_.operators.empty() ? 1 : 2;
    append(kind, parameters, inputs);
    network_.operators.back().forward_flops = flops.value();
    network_.operators.back().backward_flops = (flops * gradients).value();
  }

  convnet network_;
  picture_shape shape_;
  std::uint64_t open_branches_ = 0;
  checked carried_ = 0;
};

inline constexpr picture_window one_pixel{};
[[nodiscard]] constexpr picture_window three_pixels(std::uint64_t stride = 1)
{
  return {3, stride, 1};
}
inline constexpr picture_window two_by_two{2, 2, 0};

inline constexpr std::uint64_t deepest_convnet = 65'536;

/// Three convolutions with a norm each; the addition precedes the last ReLU.
inline void append_bottleneck(picture_builder& builder, std::uint64_t width, std::uint64_t stride, bool projects)
{
  const picture_shape input = builder.open_branch();
  builder.convolve(width, one_pixel);
  builder.norm_and_relu();
  builder.convolve(width, three_pixels(stride));
  builder.norm_and_relu();
  builder.convolve(4 * width, one_pixel);
  builder.batch_norm();
  if (projects) {
    builder.go_back_to(input);
    builder.convolve(4 * width, {1, stride, 0});
    builder.batch_norm();
  }
  builder.add();
  builder.relu();
}

/// The part of a block with norms before its convolutions that the shortcut goes around.
inline void append_preactivated_convolutions(picture_builder& builder, std::uint64_t width, std::uint64_t stride,
                                             bool is_bottleneck)
{
  if (is_bottleneck) {
    builder.convolve(width, one_pixel);
    builder.norm_and_relu();
  }
  builder.convolve(width, three_pixels(stride));
  builder.norm_and_relu();
  if (is_bottleneck)
    builder.convolve(4 * width, one_pixel);
  else
    builder.convolve(width, three_pixels());
}

/// A projecting shortcut reads what the first ReLU made; any other reads the input of the block.
inline void append_preactivated_block(picture_builder& builder, std::uint64_t width, std::uint64_t stride,
                                      bool is_bottleneck, bool projects)
{
  if (projects) builder.norm_and_relu();
  const picture_shape input = builder.open_branch();
  if (!projects) builder.norm_and_relu();
  append_preactivated_convolutions(builder, width, stride, is_bottleneck);
  if (projects) {
    builder.go_back_to(input);
    builder.convolve(is_bottleneck ? 4 * width : width, {1, stride, 0});
  }
  builder.add();
}

/// Three stages for pictures of 32 x 32 and 10 classes. Each stage halves the side and doubles the width.
[[nodiscard]] inline convnet preactivated_network(std::string name, std::uint64_t blocks_of_stage, std::uint64_t width,
                                                  bool is_bottleneck)
{
  picture_builder builder{std::move(name), {3, 32}};
  builder.convolve(16, three_pixels());
  for (std::uint64_t stage = 0; stage < 3; ++stage) {
    for (std::uint64_t block = 0; block < blocks_of_stage; ++block) {
      const std::uint64_t stride = stage != 0 && block == 0 ? 2 : 1;
      append_preactivated_block(builder, (checked{width} * (1U << stage)).value(), stride, is_bottleneck, block == 0);
    }
  }
  builder.norm_and_relu();
  builder.average_pool();
  builder.linear(10);
  return std::move(builder).finish();
}

inline void append_two_convolutions(picture_builder& builder, std::uint64_t channels, bool pads)
{
  for (int convolution = 0; convolution < 2; ++convolution) {
    builder.convolve(channels, {3, 1, pads ? 1U : 0U}, true);
    builder.relu();
  }
}

inline void check_unet(std::uint64_t pixels, bool pads)
{
  if (pads && (pixels == 0 || pixels % 16 != 0))
    throw config_error{error_text{} << "chunkmem: no U-Net with padding takes a side of " << pixels
                                    << " pixels (give it a multiple of 16, such as 512)"};
  if (!pads && (pixels < 188 || pixels % 16 != 12))
    throw config_error{error_text{} << "chunkmem: no U-Net without padding takes a side of " << pixels
                                    << " pixels (give it 188 or a multiple of 16 more, such as 572)"};
}

}  // namespace detail

/// A ResNet of bottlenecks, for pictures of 3 x 224 x 224 and 1,000 classes.
///
/// The convolution of 3 x 3 has the stride of a block, as in all later implementations. Source: He et al. 2015,
/// arXiv 1512.03385; depth 200: He et al. 2016, arXiv 1603.05027, with its blocks in the older order.
///
///     const convnet network = resnet(50);   // 174 operators
///
/// @param  depth   50, 101, 152 or 200
/// @throws config_error   another depth
[[nodiscard]] inline convnet resnet(std::uint64_t depth)
{
  struct stages {
    std::uint64_t depth;
    std::uint64_t blocks[4];
  };
  constexpr stages known[] = {{50, {3, 4, 6, 3}}, {101, {3, 4, 23, 3}}, {152, {3, 8, 36, 3}}, {200, {3, 24, 36, 3}}};
  const stages* chosen = nullptr;
  for (const stages& candidate : known)
    if (candidate.depth == depth) chosen = &candidate;
  if (chosen == nullptr)
    throw config_error{error_text{} << "chunkmem: no ResNet of bottlenecks has " << depth
                                    << " layers (give it 50, 101, 152 or 200)"};
  detail::picture_builder builder{"ResNet-" + std::to_string(depth), {3, 224}};
  builder.convolve(64, {7, 2, 3});
  builder.norm_and_relu();
  builder.max_pool(detail::three_pixels(2));
  for (std::uint64_t stage = 0; stage < 4; ++stage)
    for (std::uint64_t block = 0; block < chosen->blocks[stage]; ++block)
      detail::append_bottleneck(builder, std::uint64_t{64} << stage, stage != 0 && block == 0 ? 2 : 1, block == 0);
  builder.average_pool();
  builder.linear(1000);
  return std::move(builder).finish();
}

/// A ResNet of bottlenecks with norms before convolutions, for pictures of 3 x 32 x 32 and 10 classes.
///
/// Source: He et al. 2016, arXiv 1603.05027.
///
///     const convnet network = preactivation_resnet(1001);   // 3,338 operators
///
/// @param  depth   2 more than a multiple of 9
/// @throws config_error   another depth, or one above 65,536
[[nodiscard]] inline convnet preactivation_resnet(std::uint64_t depth)
{
  if (depth < 11 || depth > detail::deepest_convnet || depth % 9 != 2)
    throw config_error{error_text{} << "chunkmem: no pre-activation ResNet has " << depth
                                    << " layers (give it 11 or a multiple of 9 more, 65,531 at most, such as 1001)"};
  return detail::preactivated_network("PreAct-ResNet-" + std::to_string(depth), (depth - 2) / 9, 16, true);
}

/// A wide ResNet of blocks of two convolutions, for pictures of 3 x 32 x 32 and 10 classes, without dropout.
///
/// Source: Zagoruyko and Komodakis 2016, arXiv 1605.07146.
///
///     const convnet network = wide_resnet(28, 10);   // 92 operators
///
/// @param  depth   4 more than a multiple of 6
/// @param  width   channels of a stage, in multiples of 16, 32 and 64
/// @throws config_error    another depth, one above 65,536, or width 0
/// @throws size_overflow   a number of elements or FLOP needs more than 64 bits
[[nodiscard]] inline convnet wide_resnet(std::uint64_t depth, std::uint64_t width)
{
  if (depth < 10 || depth > detail::deepest_convnet || depth % 6 != 4)
    throw config_error{error_text{} << "chunkmem: no wide ResNet has " << depth
                                    << " layers (give it 10 or a multiple of 6 more, 65,536 at most, such as 28)"};
  if (width == 0) throw config_error{"chunkmem: a wide ResNet has width 0 (give it 1 at least, such as 10)"};
  return detail::preactivated_network("WRN-" + std::to_string(depth) + "-" + std::to_string(width), (depth - 4) / 6,
                                      (checked{width} * 16).value(), false);
}

/// VGG of 16 layers (its configuration D), for pictures of 3 x 224 x 224 and 1,000 classes, without dropout.
///
/// Source: Simonyan and Zisserman 2014, arXiv 1409.1556.
///
///     const convnet network = vgg16();   // 36 operators
[[nodiscard]] inline convnet vgg16()
{
  struct stage {
    std::uint64_t convolutions;
    std::uint64_t channels;
  };
  detail::picture_builder builder{"VGG16", {3, 224}};
  for (const stage& current : {stage{2, 64}, stage{2, 128}, stage{3, 256}, stage{3, 512}, stage{3, 512}}) {
    for (std::uint64_t convolution = 0; convolution < current.convolutions; ++convolution) {
      builder.convolve(current.channels, detail::three_pixels(), true);
      builder.relu();
    }
    builder.max_pool(detail::two_by_two);
  }
  for (int layer = 0; layer < 2; ++layer) {
    builder.linear(4096);
    builder.relu();
  }
  builder.linear(1000);
  return std::move(builder).finish();
}

/// A U-Net for grey pictures and 2 classes, without dropout.
///
/// Without padding each convolution of 3 x 3 takes two pixels from both sides of a picture, as in the paper, and a
/// skip is cropped before its concatenation. Every skip but the outermost lies inside another, so only operators
/// before the first pool and after the last concatenation end blocks. Source: Ronneberger et al. 2015, arXiv
/// 1505.04597.
///
///     const convnet network = unet(572, false);   // 49 operators
///
/// @param  pixels   side of a picture. With padding: a multiple of 16. Without: 188, or a multiple of 16 more
/// @param  pads     convolutions keep the side
/// @throws config_error    another side
/// @throws size_overflow   a number of elements or FLOP needs more than 64 bits
[[nodiscard]] inline convnet unet(std::uint64_t pixels, bool pads)
{
  detail::check_unet(pixels, pads);
  detail::picture_builder builder{"U-Net-" + std::to_string(pixels) + (pads ? "-same" : "-valid"), {1, pixels}};
  std::vector<detail::picture_shape> skips;
  for (std::uint64_t channels = 64; channels < 1024; channels *= 2) {
    detail::append_two_convolutions(builder, channels, pads);
    skips.push_back(builder.carry());
    builder.max_pool(detail::two_by_two);
  }
  detail::append_two_convolutions(builder, 1024, pads);
  for (std::uint64_t channels = 512; channels >= 64; channels /= 2) {
    builder.convolve_up(channels);
    builder.concatenate(skips.back());
    skips.pop_back();
    detail::append_two_convolutions(builder, channels, pads);
  }
  builder.convolve(2, detail::one_pixel, true);
  return std::move(builder).finish();
}

/// The names that convnet_of() knows.
///
///     for (const std::string_view name : convnet_names) std::cout << name << '\n';
inline constexpr std::string_view convnet_names[] = {"ResNet-50", "ResNet-200",      "PreAct-ResNet-1001", "VGG16",
                                                     "WRN-28-10", "U-Net-572-valid", "U-Net-512-same"};

/// The network with this name.
///
///     const convnet network = convnet_of("WRN-28-10");
///
/// @throws config_error   there is none of that name; the text lists all names
[[nodiscard]] inline convnet convnet_of(std::string_view name)
{
  if (name == "ResNet-50") return resnet(50);
  if (name == "ResNet-200") return resnet(200);
  if (name == "PreAct-ResNet-1001") return preactivation_resnet(1001);
  if (name == "VGG16") return vgg16();
  if (name == "WRN-28-10") return wide_resnet(28, 10);
  if (name == "U-Net-572-valid") return unet(572, false);
  if (name == "U-Net-512-same") return unet(512, true);
  error_text text;
  text << "chunkmem: no picture network is named " << name << " (take one of:";
  for (const std::string_view known : convnet_names) text << " " << known;
  throw config_error{text << ")"};
}

}  // namespace support::pictures
