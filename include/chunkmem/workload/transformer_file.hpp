// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/json_fields.hpp>
#include <chunkmem/workload/transformer_shape.hpp>
#include <chunkmem/workload/transformer_tensors.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace workload {

/// A transformer that a file describes.
///
///     const transformer_file model = read_transformer("models/gpt2.json");
struct transformer_file {
  std::string name;
  transformer_shape shape;

  [[nodiscard]] bool operator==(const transformer_file&) const noexcept = default;
};

namespace detail {

[[nodiscard]] inline transformer_style style_of(json_fields& fields)
{
  const std::string found = fields.text("style");
  for (std::size_t style = 0; style < transformer_style_count; ++style)
    if (name_of(static_cast<transformer_style>(style)) == found) return static_cast<transformer_style>(style);
  fields.refuse("style", "is no style that is known", "write gpt, bert, opt or llama");
}

[[nodiscard]] inline transformer_file transformer_of(json_fields fields)
{
  transformer_file made;
  made.name = fields.text("name");
  (void)fields.text("source");
  made.shape.style = style_of(fields);
  made.shape.layers = fields.whole("layers");
  made.shape.hidden = fields.whole("hidden");
  made.shape.heads = fields.whole("heads");
  made.shape.kv_heads = fields.whole("kv_heads");
  made.shape.ffn = fields.whole("ffn");
  made.shape.vocabulary = fields.whole("vocabulary");
  made.shape.embedding = fields.whole("embedding");
  made.shape.positions = fields.whole("positions");
  made.shape.sequence = fields.whole("sequence");
  made.shape.ties_embedding = fields.truth("ties_embedding");
  fields.finish();
  if (const shape_problem wrong = made.shape.problem(); !wrong.member.empty())
    fields.refuse(wrong.member, wrong.why, "correct it");
  try {
    (void)parameters_of(made.shape);
  } catch (const size_overflow&) {
    fields.refuse("hidden", "makes more parameters with the other sizes than 64 bits count", "write smaller ones");
  }
  return made;
}

}  // namespace detail

/// A transformer from JSON text: one object with a name, a source, and each member of transformer_shape.
/// @param file   a name for messages
/// @throws format_error   one sentence with the file and the key that is wrong
[[nodiscard]] inline transformer_file parse_transformer(std::string_view text, std::string_view file)
{
  return detail::transformer_of(json_fields{text, file});
}

/// The same from a file. @throws io_error   it cannot be read
[[nodiscard]] inline transformer_file read_transformer(const std::string& path)
{
  return detail::transformer_of(json_fields::of_file(path));
}

}  // namespace workload

}  // namespace chunkmem::inline v0
