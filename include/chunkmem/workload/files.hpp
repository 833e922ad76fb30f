// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/json_fields.hpp>
#include <chunkmem/workload/machine.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace workload {

namespace detail {

/// A number and its source: {"value": 8, "source": "..."}.
class sourced_fields {
 public:
  explicit sourced_fields(json_fields& fields) : fields_{fields} {}

  [[nodiscard]] std::uint64_t whole(const std::string& key, std::uint64_t most = UINT64_MAX)
  {
    const std::uint64_t value = fields_.whole(key + ".value", most);
    (void)fields_.text(key + ".source");
    return value;
  }
  [[nodiscard]] double number(const std::string& key)
  {
    const double value = fields_.number(key + ".value");
    (void)fields_.text(key + ".source");
    return value;
  }

 private:
  json_fields& fields_;
};

[[nodiscard]] inline machine machine_of(json_fields fields)
{
  sourced_fields all{fields};
  machine made;
  made.name = fields.text("name");
  made.nodes = static_cast<std::uint32_t>(all.whole("nodes", UINT32_MAX));
  made.devices = static_cast<std::uint32_t>(all.whole("devices", UINT32_MAX));
  made.device_bytes = bytes{all.whole("device_bytes")};
  made.host_bytes = bytes{all.whole("host_bytes")};
  for (const named_rate& it : named_rates) made.rates.*it.rate = all.number(std::string{it.name});
  fields.finish();
  if (const machine_problem wrong = made.problem(); !wrong.member.empty())
    fields.refuse(std::string{wrong.member} + ".value", wrong.why, "correct it");
  try {
    (void)made.memory();
  } catch (const size_overflow&) {
    fields.refuse("host_bytes.value", "makes more bytes with all devices and nodes than 64 bits count", "correct it");
  }
  return made;
}

}  // namespace detail

/// A machine from JSON text: one object with a name. For each other member of machine and of machine_rates it has an
/// object {"value": number, "source": "where it is from"}. No member may be missing.
/// @param file   a name for messages
/// @throws format_error   one sentence with the file and the key that is wrong
[[nodiscard]] inline machine parse_machine(std::string_view text, std::string_view file)
{
  return detail::machine_of(json_fields{text, file});
}

/// The same from a file. @throws io_error   it cannot be read
[[nodiscard]] inline machine read_machine(const std::string& path)
{
  return detail::machine_of(json_fields::of_file(path));
}

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
  fields.refuse("style", "is no known style", "write gpt, bert, opt or llama");
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
  if (fields.has("head_width")) made.shape.head_width = fields.whole("head_width");
  if (fields.has("has_qkv_biases")) made.shape.has_qkv_biases = fields.truth("has_qkv_biases");
  if (fields.has("norms_heads")) made.shape.norms_heads = fields.truth("norms_heads");
  if (fields.has("experts")) made.shape.experts = fields.whole("experts");
  if (fields.has("experts_for_token")) made.shape.experts_for_token = fields.whole("experts_for_token");
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

/// A transformer from JSON text: one object with a name, a source, and each member of transformer_shape. Members from
/// `head_width` on may be left out.
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
