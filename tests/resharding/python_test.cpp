// SPDX-License-Identifier: Apache-2.0
// Saves of several ranks as one file for Python's safetensors, and its files as the weights of several ranks: compared
// with an uninterrupted training on one rank that was filled by hand.
#include "rig.hpp"

#include <checkpoint/exchange.hpp>
#include <checkpoint/small_model.hpp>
#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace python_test {

using namespace resharding;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

namespace {

constexpr std::string_view name = "model.safetensors";

phase phase_of(std::uint32_t ranks)
{
  return {.how = {.ranks = ranks,
                  .steps = 3,
                  .of_node = ranks,
                  .clip = 0.5F,
                  .frame = cm::bytes{std::uint64_t{ranks} * 4096 * 4}}};
}

template <class Element>
std::string_view bytes_of(const std::vector<Element>& values)
{
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element)};
}
template <class Element>
std::string line_of(const std::string& tensor, const std::vector<Element>& values)
{
  return checkpoints::line_of({tensor, cm::dtype_of<Element>, {values.size()}, 0, 0}, bytes_of(values));
}
template <class To, class From>
std::vector<To> rounded(const std::vector<From>& values)
{
  std::vector<To> result;
  for (const From it : values) result.push_back(cm::round_to<To>(cm::to_float(it)));
  return result;
}

/// What a file of this training has to hold. @tparam To   what the numbers are rounded to; void: as they were saved,
/// masters for 16-bit weights that have one
template <class To, class Element>
std::string listing_of(undisturbed<Element>& alone)
{
  std::map<std::string, std::string> lines;
  const auto add = [&]<class From>(const std::string& tensor, const std::vector<From>& values) {
    if constexpr (std::is_void_v<To>)
      lines[tensor] = line_of(tensor, values);
    else
      lines[tensor] = line_of(tensor, rounded<To>(values));
  };
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    const auto& weight = alone.tensors.weights[index];
    const std::string tensor = alone.m.name_of(weight);
    if constexpr (sizeof(Element) == 4) {
      add(tensor, alone.values.back()[index]);
    } else {
      if (index == frozen)
        add(tensor, alone.values.back()[index]);
      else {
        const auto pin = alone.m.template acquire<float>(weight, alone.m.list("master"), cm::access::read,
                                                         cm::memory_location::host);
        add(tensor, std::vector<float>(pin.span().begin(), pin.span().end()));
      }
    }
  }
  add(alone.m.name_of(alone.tensors.buffer), std::vector<float>(7, static_cast<float>(phase_of(3).how.steps) + 0.5F));
  std::string text;
  for (const auto& [key, line] : lines) text += line;
  return text;
}

template <class Element>
void trained_on_three_ranks_opens(const checkpoints::python& other)
{
  checkpoints::temporary_folder place;
  const phase now = phase_of(3);
  undisturbed<Element> alone;
  alone.train(now.how);
  on_ranks<Element>(now, 0, alone.values, [&](std::uint32_t, model_type& model, rank_of_many<Element>& trainer) {
    posix_folder folder{place.path()};
    trainer.tensors.fill();
    for (std::uint32_t index = 0; index < now.how.steps; ++index) {
      (void)trainer.step(index);
      trainer.tensors.tell(index + 1);
    }
    (void)checkpoint::save(model, folder, {.file_size = cm::bytes{60'000}});
  });
  posix_folder folder{place.path()};
  const auto opened = [&](const checkpoint::export_options& options) {
    CHECK(checkpoint::export_generation(folder, folder, name, options) == 1);
    return other.read(place.path() + '/' + std::string{name});
  };
  CHECK(opened({}) == listing_of<void>(alone));
  CHECK(opened({.type = cm::dtype::bfloat16}) == listing_of<cm::bf16>(alone));
  CHECK(opened({.type = cm::dtype::float16}) == listing_of<cm::fp16>(alone));
}

template <class Element>
std::vector<Element> first_values(std::size_t index)
{
  std::vector<Element> values;
  for (std::uint64_t i = 0; i < sizes[index]; ++i)
    values.push_back(cm::round_to<Element>(support::ranks::first_value(index, i)));
  return values;
}

/// Everything but what a file has to bring.
template <class Element, class Model>
void begin_with_other_values(declared<Element, Model>& tensors)
{
  for (const auto& it : tensors.weights)
    for (Element& value : tensors.m.acquire(it, cm::access::write).span()) value = cm::round_to<Element>(99.0F);
}

template <class Element>
void what_python_wrote_trains(const checkpoints::python& other)
{
  checkpoints::temporary_folder place;
  const phase now = phase_of(2);
  undisturbed<Element> by_hand;
  by_hand.train(now.how);
  std::string listing;
  for (std::size_t index = 0; index < sizes.size(); ++index)
    listing += line_of(by_hand.m.name_of(by_hand.tensors.weights[index]), first_values<Element>(index));
  listing += line_of(by_hand.m.name_of(by_hand.tensors.buffer), std::vector<float>(7, 0.5F));
  listing += line_of(by_hand.m.name_of(by_hand.tensors.empty), std::vector<float>(3, 0.25F));
  REQUIRE(other.write(place.path(), listing, std::string{name}));

  on_ranks<Element>(now, 0, by_hand.values, [&](std::uint32_t, model_type& model, rank_of_many<Element>& trainer) {
    const posix_folder folder{place.path()};
    begin_with_other_values(trainer.tensors);
    if (checkpoint::import_values(model, folder, name).tensors != sizes.size() + 2)
      throw std::runtime_error{"it took another number of tensors"};
    trainer.check_all(0);
    for (std::uint32_t index = 0; index < now.how.steps; ++index)
      if (trainer.step(index) != by_hand.norms[index])
        throw std::runtime_error{"another norm in step " + std::to_string(index)};
    trainer.check_all(now.how.steps);
  });

  const posix_folder folder{place.path()};
  undisturbed<Element> alone;
  begin_with_other_values(alone.tensors);
  CHECK(checkpoint::import_values(alone.m, folder, name).tensors == sizes.size() + 2);
  alone.train(now.how);
  CHECK(alone.norms == by_hand.norms);
  for (std::size_t index = 0; index < sizes.size(); ++index)
    CHECK(support::ranks::equal(alone.values.back()[index].data(), by_hand.values.back()[index]));
}

}  // namespace

TEST_CASE("Python's safetensors opens what three ranks saved, bit for bit, in every element type of weights",
          "[resharding][.python]")
{
  const checkpoints::python other;
  if (!other.is_there()) SKIP(checkpoints::no_python);
  trained_on_three_ranks_opens<float>(other);
  trained_on_three_ranks_opens<cm::bf16>(other);
  trained_on_three_ranks_opens<cm::fp16>(other);
}

TEST_CASE("what Python's safetensors wrote trains on two ranks and on one as if it were filled by hand",
          "[resharding][.python]")
{
  const checkpoints::python other;
  if (!other.is_there()) SKIP(checkpoints::no_python);
  what_python_wrote_trains<float>(other);
  what_python_wrote_trains<cm::bf16>(other);
  what_python_wrote_trains<cm::fp16>(other);
}

}  // namespace python_test
