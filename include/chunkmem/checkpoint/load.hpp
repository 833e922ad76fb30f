#pragma once

#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/checkpoint/whole_generation.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/tensor/half.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

struct load_options {
  bool allow_fresh_start = false;  ///< an empty folder is no error
  loader_limits limits{};
};

/// What a load found.
struct loaded_generation {
  std::uint64_t number = 0;                 ///< 0 after a fresh start
  std::vector<skipped_generation> skipped;  ///< newer ones that could not be used
};

namespace detail {

/// Where the bytes of an item are.
struct item_source {
  const whole_generation::file* file = nullptr;
  const stored_tensor* tensor = nullptr;
  std::uint64_t sum = 0;  ///< of its bytes, when all of the file were checked
};

[[nodiscard]] inline bool is_convertible(dtype from, dtype to) noexcept
{
  const auto is_real = [](dtype type) { return type == dtype::float32 || is_16_bit(type); };
  return from == to || (is_real(from) && is_real(to));
}

template <class From, class To>
void convert(std::span<const std::byte> from, std::byte* to) noexcept
{
  for (std::size_t at = 0; at < from.size() / sizeof(From); ++at) {
    From value;
    std::memcpy(&value, from.data() + at * sizeof(From), sizeof value);
    const To made = round_to<To>(to_float(value));
    std::memcpy(to + at * sizeof(To), &made, sizeof made);
  }
}
template <class From>
void convert(std::span<const std::byte> from, std::byte* to, dtype type) noexcept
{
  if (type == dtype::float32) return convert<From, float>(from, to);
  type == dtype::bfloat16 ? convert<From, bf16>(from, to) : convert<From, fp16>(from, to);
}
/// Elements of one real type become those of another, rounded to nearest. @pre is_convertible, and not equal
inline void convert(std::span<const std::byte> from, dtype from_type, std::byte* to, dtype to_type) noexcept
{
  if (from_type == dtype::float32) return convert<float>(from, to, to_type);
  from_type == dtype::bfloat16 ? convert<bf16>(from, to, to_type) : convert<fp16>(from, to, to_type);
}

[[noreturn]] inline void refuse_model(std::string_view what, std::string_view name)
{
  throw config_error{error_text{} << "chunkmem: this checkpoint is not of this model: " << what << ": " << name
                                  << " (declare the model, its lists and states as when it was saved)"};
}

/// Finds the bytes of each item, and refuses a checkpoint of another model before anything is written.
[[nodiscard]] inline std::vector<item_source> match(const std::vector<model_item>& items, const whole_generation& from)
{
  std::map<std::string_view, item_source> stored;
  for (const auto& file : from.files)
    for (std::size_t at = 0; at < file.tensors.size(); ++at)
      if (const stored_tensor& it = file.tensors[at]; !stored.emplace(it.name, item_source{&file, &it, file.sums[at]}).second)
        refuse_model("two files have one name", it.name);
  const std::set<std::string_view> empty(from.content.empty.begin(), from.content.empty.end());
  std::vector<item_source> sources;
  std::size_t found = 0;
  for (const model_item& it : items) {
    const auto known = stored.find(it.name);
    if (known == stored.end() && !empty.contains(it.name)) refuse_model("it does not have", it.name);
    if (known == stored.end() && it.is_filled && !it.starts_at_zero) refuse_model("it was saved without bytes for", it.name);
    sources.push_back(known == stored.end() ? item_source{} : known->second);
    if (known == stored.end()) continue;
    ++found;
    if (known->second.tensor->extents != it.extents) refuse_model("another shape", it.name);
    if (!is_convertible(known->second.tensor->type, it.type)) refuse_model("another element type", it.name);
  }
  if (found != stored.size()) {
    for (const model_item& it : items) stored.erase(it.name);
    refuse_model("this model does not have", stored.begin()->first);
  }
  return sources;
}

template <class Manager>
void match_lists(const Manager& m, const manifest& stored)
{
  m.for_each_list([&](list_id, const list_spec& spec) {
    for (const stored_list& it : stored.lists)
      if (it.name == spec.name && it.version != spec.version) refuse_model("another version of a list", it.name);
  });
}

/// @throws corrupt_data   these are not the bytes that were checked
inline void check_sum(const item_source& from, const io::checksum& found)
{
  if (found.value() != from.sum)
    throw corrupt_data{error_text{} << "chunkmem: " << from.file->name << " was changed while it was loaded, at " << from.tensor->name
                                    << " (load again: some tensors are written, others are not)"};
}

/// Reads elements of one type and writes them as another, block by block, and proves that they are those that were checked.
template <file_reader Reader>
void read_converted(Reader& file, const item_source& from, std::span<std::byte> to, dtype type)
{
  const std::uint64_t begin = from.file->payload + from.tensor->begin;
  io::checksum sum;
  if (from.tensor->type == type) {
    io::read_all(file, begin, to);
    sum.add(to);
    return check_sum(from, sum);
  }
  const std::size_t width = size_of(from.tensor->type);
  const std::size_t elements = to.size() / size_of(type);
  std::vector<std::byte> block(std::min<std::size_t>(elements * width, block_size));
  for (std::size_t at = 0; at < elements; at += block.size() / width) {
    const std::span part = std::span{block}.first(std::min(block.size(), (elements - at) * width));
    io::read_all(file, begin + at * width, part);
    sum.add(part);
    convert(part, from.tensor->type, to.data() + at * size_of(type), type);
  }
  check_sum(from, sum);
}

/// A 16-bit value with a master: both are made from what was saved, the value as its optimizer would make it.
template <class Manager, file_reader Reader>
void fill_item(Manager& m, const model_item& it, const item_source& from, Reader& file)
{
  model_item part = it;
  const auto write = [&](list_id list, dtype type) {
    part.list = list;
    part.type = type;
    with_bytes(m, part, access::write, [&](std::span<std::byte> to) { read_converted(file, from, to, type); });
  };
  if (it.master != list_id::none) write(it.master, dtype::float32);
  it.is_state() ? write(value_list, it.type) : write(it.master != list_id::none ? value_list : it.list, it.value_type);
}

/// @param open   the first files, since they were checked
template <class Manager, file_folder Folder>
void fill(Manager& m, const Folder& folder, const whole_generation& from, std::vector<typename Folder::reader>& open,
          const std::vector<model_item>& items, const std::vector<item_source>& sources)
{
  const auto fill_from = [&](const whole_generation::file& file, typename Folder::reader& reader) {
    for (std::size_t at = 0; at < items.size(); ++at)
      if (sources[at].file == &file) fill_item(m, items[at], sources[at], reader);
  };
  for (std::size_t at = 0; at < from.files.size(); ++at) {
    if (at < open.size()) {
      fill_from(from.files[at], open[at]);
    } else {
      auto again = folder.open(from.files[at].name);
      fill_from(from.files[at], again);
    }
  }
  for (std::size_t at = 0; at < items.size(); ++at)
    if (sources[at].file == nullptr && items[at].is_filled)
      with_bytes(m, items[at], access::write, [](std::span<std::byte> to) { std::fill(to.begin(), to.end(), std::byte{0}); });
}

[[noreturn]] inline void refuse_folder(const std::vector<skipped_generation>& skipped)
{
  if (skipped.empty())
    throw io_error{"there is no checkpoint in this folder (name another one, or allow a fresh start)"};
  throw io_error{error_text{} << "chunkmem: none of the " << skipped.size() << " generations in this folder is whole; the newest, number "
                              << skipped.front().number << ": " << skipped.front().why
                              << " (where somebody saves into it with keep = 1 just now, try again)"};
}

}  // namespace detail

/// Fills a manager and its registered states from the newest generation that is whole.
///
/// The model, its lists and its states are declared as when they were saved; capacity, layout, size of chunks, policies, backend and the
/// element types of values and lists may be others: real numbers are rounded to nearest. Everything is read and checked before
/// anything is written, and each tensor is checked again as it is written: where this returns, all bytes are those of one generation.
/// Gradients are dropped then, and an optimizer step that is half done is void: the next one begins anew.
///
/// @throws config_error    it is a checkpoint of another model; nothing was changed
/// @throws io_error        there is no generation, or none that is whole, and no leave to start afresh; or a file could not be read again
///                         when its bytes were wanted: some tensors are loaded then, and until a load gets through
///                         nothing is saved and no step is taken
/// @throws corrupt_data    a file was changed after it was checked: as a file that could not be read again
/// @throws usage_error     inside an iteration; out_of_memory   no room to write a tensor; device_error; std::bad_alloc   no room for names
/// @complexity             two passes over the files, one over the tensors
template <class Manager, file_folder Folder>
loaded_generation load(Manager& m, const Folder& folder, const load_options& options = {})
{
  expects(!m.is_iterating() && !m.rehearsing(), "a checkpoint was to be loaded inside an iteration or a rehearsal");
  const std::vector<model_item> items = detail::items_of(m);
  loaded_generation result;
  std::vector<typename Folder::reader> open;
  const std::optional<whole_generation> from = newest_whole(folder, result.skipped, options.limits, &open);
  if (!from) {
    if (options.allow_fresh_start && result.skipped.empty()) return result;
    detail::refuse_folder(result.skipped);
  }
  detail::match_lists(m, from->content);
  const std::vector<detail::item_source> sources = detail::match(items, *from);
  m.begin_load();
  detail::fill(m, folder, *from, open, items, sources);
  m.end_load();
  result.number = from->content.generation;
  return result;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
