// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/content_match.hpp>
#include <chunkmem/checkpoint/file_name_rule.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/same_file.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// An open safetensors file of any program: its table of tensors, and its bytes. It has no checksums: damaged tensors
/// are not detected.
///
///     safetensors_file file{folder.open("model.safetensors"), "model.safetensors"};
///     for (const stored_tensor& it : file.tensors()) std::puts(it.name.c_str());
template <file_reader Reader>
class safetensors_file {
 public:
  /// @param name   for messages @throws format_error   it is no safetensors file, or exceeds the limits of a loader;
  ///   io_error
  safetensors_file(Reader file, std::string name, const loader_limits& limits = {})
      : file_{std::move(file)}, name_{std::move(name)}
  {
    constexpr std::uint64_t number = 8;
    const std::uint64_t size = file_.size();
    std::byte length[number];
    if (size < number)
      throw format_error{error_text{} << "chunkmem: the safetensors file " << name_
                                      << " is shorter than its first number"};
    io::read_all(file_, 0, length, name_);
    const std::uint64_t header = detail::header_text_size(length);
    if (header > size - number || header > limits.header.count())
      throw format_error{error_text{} << "chunkmem: the header of the safetensors file " << name_
                                      << " is longer than the file, or than the limit"};
    std::string text(static_cast<std::size_t>(header), '\0');
    io::read_all(file_, number, std::as_writable_bytes(std::span{text}), name_);
    payload_ = number + header;
    tensors_ = read_table(text, size - payload_, limits, name_);
  }

  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept { return tensors_; }
  /// The first byte after the header.
  [[nodiscard]] std::uint64_t payload() const noexcept { return payload_; }
  /// Reads bytes from `begin` on. @throws io_error   also where the file has become shorter
  void read(std::uint32_t, std::uint64_t begin, std::span<std::byte> to) { io::read_all(file_, begin, to, name_); }

 private:
  Reader file_;
  std::string name_;
  std::uint64_t payload_ = 0;
  std::vector<stored_tensor> tensors_;
};

/// The options of an import.
///
///     import_values(m, folder, "model.safetensors", {.takes_part = true});
struct import_options {
  /// weights that the file lacks stay as they are, and tensors that the model lacks are ignored
  bool takes_part = false;
  /// true: finite numbers beyond the range of a model's tensor become infinite; false: such a file is refused
  bool allow_overflow = false;
  std::vector<std::string> begins_anew{};  ///< weights that the file may lack, as load_options
  std::vector<std::string> leaves_out{};   ///< names of the file that count as absent, as load_options
  std::vector<file_name_rule> names{};     ///< of the model's tensors in the file, where they differ
  loader_limits limits{};
};

/// The result of an import.
///
///     const imported_values found = import_values(m, folder, "model.safetensors");
struct imported_values {
  std::uint64_t tensors = 0;         ///< number of filled tensors
  std::vector<std::string> kept;     ///< weights that the file does not have
  std::vector<std::string> ignored;  ///< tensors of the file that the model does not have
  rounded_numbers rounded{};         ///< numbers that became zero or infinite in a narrower type
};

namespace detail {

/// Whether an item comes from a file of weights, or is initialized anew with them; not states of the trainer.
[[nodiscard]] inline bool is_imported(const model_item& item)
{
  if (item.is_state()) return false;
  if (item.starts_at_zero || item.pieces.empty()) return item.is_filled;  // the second: a share of padding alone
  return std::ranges::any_of(item.pieces, [](const item_piece& it) { return it.stored != nullptr; });
}

/// Sets the lists of an optimizer to zeros, also where a tensor of the file has the name of a list: its type and shape
/// were not compared.
inline void begin_states_anew(std::vector<model_item>& items)
{
  for (model_item& item : items)
    if (item.starts_at_zero) item.pieces.clear();
}

}  // namespace detail

namespace detail {

/// Compares a file of weights with a model, and sets where the bytes of each piece of its items are.
/// @return   the result of the import @throws config_error   the two do not match
template <class Content>
[[nodiscard]] imported_values match_import(Content& content, const stored_index& index, const match_rules& rules)
{
  file_match match{index, rules};
  content.for_each_shared([&](const std::string& name, const auto& extents, std::size_t position) {
    if (const model_item& item = content.items()[position]; !item.starts_at_zero) match.add(name, extents, item.type);
  });
  for (std::size_t position = 0; position < content.items().size(); ++position)
    if (const model_item& item = content.items()[position];
        content.is_own(position) && !item.is_state() && !item.starts_at_zero)
      match.add(item.name, item.extents, item.type, item.part == role::buffer ? absence::stays : absence::refused);
  begin_states_anew(content.items());
  matched_names names = match.take_names();
  settle_items(content, match, rules);
  return {names.loaded.size(), std::move(names.begun_anew), std::move(names.ignored), {}};
}

}  // namespace detail

/// Fills the weights of a manager, or of a model over ranks, and buffers that the file has, from a safetensors file of
/// any program, by the names of tensors.
///
/// - Real numbers are rounded to the types of the model. Where finite numbers would become infinite, the file is
///   refused, unless `allow_overflow` permits it. `rounded` counts these, and numbers that became zero.
/// - A 16-bit weight with a master gets both from the file.
/// - The lists of an optimizer begin anew, as zeros.
/// - Registered states are left alone, and so are counts of steps that are no list (`adam.progress`, a
///   device_optimizer's buffer). Import before the first step, or set them back.
/// - The file has no checksums: only its form is checked.
/// - Over ranks every rank has to call this, and all have to see the file. Each reads its shards.
///
/// Use:
///
///     checkpoint::import_values(m, folder, "model.safetensors");
///
/// @throws config_error   names or shapes differ, or numbers would become infinite; format_error   the file is no
///   safetensors file; nothing was changed
/// @throws io_error       the file cannot be read: some tensors are filled. Until an import or a load succeeds, saves
///   and optimizer steps are refused
/// @throws usage_error    inside an iteration, or a rule of names has two stars; otherwise as load
/// @throws comm_error     a rank is gone. Ranks throw other errors together, and config_error also where a part of a
///   unit would stay as it is, or ranks see files with different values: nothing was changed
/// @complexity            one pass over the tensors, and one more over those of a wider type than the model's. Each of
///   several ranks first reads all tensors that the model takes, to compare them, and then its shards
template <class Model, file_folder Folder>
imported_values import_values(Model& model, const Folder& folder, std::string_view file_name,
                              const import_options& options = {})
{
  content_of_model<Model> content{model};
  auto& ranks = content.ranks();
  auto& m = content.manager();
  content.finish_updates();  // of weights that the file lacks, before lists are asked whether they are filled
  collective::all_or_none(ranks, [&] {
    if (m.updates().pending().is_served()) m.updates().finish_updates();
    content.collect();
  });
  content.agree_on_model();
  collective::agree_on(ranks, options.takes_part ? 1 : 0,
                       "some ranks load a part of a file, and others all of it (give all of them the same takes_part)");
  collective::agree_on(ranks, detail::word_of_patterns(options.begins_anew, options.leaves_out, options.names),
                       "ranks differ in names, begins_anew or leaves_out (give all of them the "
                       "same names, begins_anew and leaves_out)");
  collective::agree_on(ranks, options.allow_overflow ? 1 : 0,
                       "some ranks let numbers become infinite, and others do not (give all of them the same "
                       "allow_overflow)");
  std::optional<safetensors_file<typename Folder::reader>> file;
  std::optional<stored_index> index;
  imported_values result;
  const std::string source = "the file " + std::string{file_name};
  const detail::match_rules rules{source,
                                  "name tensors as the file does, or set takes_part to true",
                                  "declare the tensor as the file has it, or give it another name",
                                  options.begins_anew,
                                  options.leaves_out,
                                  options.takes_part,
                                  options.names};
  collective::all_or_none(ranks, [&] {
    detail::expect_rules(options.names);
    file.emplace(folder.open(file_name), std::string{file_name}, options.limits);
    index.emplace(file->tensors(), file->payload());
    result = detail::match_import(content, *index, rules);
  });
  expect_same_values(ranks, *index, *file, result.ignored);
  narrowing found{options.allow_overflow}, again{true};
  detail::check_items(content, &detail::is_imported, *file, found);
  result.rounded = detail::sum_over_ranks(ranks, found.total());
  content.begin_fill();
  collective::all_or_none(ranks, [&] { m.content().begin_load(); });
  detail::fill_items(content, &detail::is_imported, *file, again);
  const std::set<std::string_view> kept(result.kept.begin(), result.kept.end());
  content.end_fill([&](const std::string& name) { return !kept.contains(name); });
  m.content().end_load();
  return result;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
