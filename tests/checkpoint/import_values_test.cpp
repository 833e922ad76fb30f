// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/import_values.hpp>

#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>

#include <support/catch.hpp>
#include <support/memory_folder.hpp>
#include <support/refusal.hpp>
#include <support/simulated_folder.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>
#include "small_model.hpp"

namespace safetensors_file_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using checkpoint::safetensors_file;
using support::simulated_folder;

namespace {

std::string length_of(std::uint64_t size)
{
  std::string text;
  for (unsigned byte = 0; byte < 8; ++byte) text += static_cast<char>(size >> (8 * byte) & 0xffU);
  return text;
}
std::string refusal(const std::string& content, const checkpoint::loader_limits& limits = {})
{
  simulated_folder folder;
  folder.put("file", content);
  return support::refusal<format_error>([&] {
    const safetensors_file file{std::as_const(folder).open("file"), "file", limits};
  });
}

}  // namespace

TEST_CASE("a file of another program is opened by its header", "[checkpoint]")
{
  const std::string header = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
                             R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}  )";
  simulated_folder folder;
  folder.put("file", length_of(header.size()) + header + "aabbbbBBBBxx" + std::string());
  CHECK_THAT(refusal(length_of(header.size()) + header + "aabbbbBBBB"), ContainsSubstring("cannot be used"));
  safetensors_file file{std::as_const(folder).open("file"), "file"};
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.payload() == 8 + header.size());
  std::string found(8, '\0');
  file.read(0, file.payload() + file.tensors()[1].begin, std::as_writable_bytes(std::span{found}));
  CHECK(found == "bbBBBBxx");
  CHECK_THROWS_AS(file.read(0, file.payload() + 5, std::as_writable_bytes(std::span{found})), io_error);
}

TEST_CASE("what is no such file is refused", "[checkpoint]")
{
  CHECK_THAT(refusal("1234567"), ContainsSubstring("shorter than its first number"));
  for (const std::uint64_t size : {std::uint64_t{3}, std::uint64_t{1} << 40, UINT64_MAX})
    CHECK_THAT(refusal(length_of(size) + "{}"), ContainsSubstring("longer than the file"));
  CHECK_THAT(refusal(length_of(2) + "{}", {.header = bytes{1}}), ContainsSubstring("or than the limit"));
  CHECK_THAT(refusal(length_of(2) + "[]"), ContainsSubstring("does not begin with {"));
  CHECK(refusal(length_of(2) + "{}") == "");
}

}  // namespace safetensors_file_test

namespace import_values_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using Catch::Matchers::ContainsSubstring;
using support::memory_folder;

namespace {

/// A weight of any type, with a master where it has 16 bits, and a momentum.
template <class Element>
struct one_weight {
  explicit one_weight(cm::shape extents = {6, 3}) : w{m.add<Element>(extents, cm::role::parameter)}
  {
    m.use(lists);
    m.name(w, "w");
  }
  void fill(float value)
  {
    for (auto& it : m.acquire(w, cm::access::write).span()) it = cm::round_to<Element>(value);
    for (float& it :
         m.template acquire<float>(w, m.list("momentum"), cm::access::write, cm::memory_location::host).span())
      it = 5;
  }
  [[nodiscard]] float value() { return cm::to_float(m.acquire(w, cm::access::read).span()[17]); }
  [[nodiscard]] float in(std::string_view list)
  {
    return m.template acquire<float>(w, m.list(list), cm::access::read, cm::memory_location::host).span()[17];
  }
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<Element> w;
  std::vector<cm::list_spec> lists{cm::master_list, {"momentum", cm::dtype::float32}};
};

memory_folder file_of(float value)
{
  memory_folder folder;
  one_weight<float> model;
  model.fill(value);
  checkpoint::export_values(model.m, folder, "weights");
  return folder;
}

}  // namespace

TEST_CASE("weights come from a plain file, rounded to their types, masters with all digits", "[checkpoint]")
{
  const memory_folder folder = file_of(1.001F);
  one_weight<float> same;
  CHECK(checkpoint::import_values(same.m, folder, "weights").tensors == 1);
  CHECK(same.value() == 1.001F);
  one_weight<cm::bf16> half;
  (void)checkpoint::import_values(half.m, folder, "weights");
  CHECK(half.value() == 1.0F);
  CHECK(half.in("master") == 1.001F);
}

TEST_CASE("an optimizer begins anew behind an import, states of the trainer are left alone", "[checkpoint]")
{
  const memory_folder folder = file_of(2.0F);
  one_weight<float> model;
  int turn = 7;
  model.m.state("turn", std::as_writable_bytes(std::span{&turn, 1}));
  model.fill(9.0F);
  (void)checkpoint::import_values(model.m, folder, "weights");
  CHECK(model.value() == 2.0F);
  CHECK(model.in("momentum") == 0.0F);
  CHECK(turn == 7);
  memory_folder saved;
  CHECK(checkpoint::save(model.m, saved).number == 1);
}

TEST_CASE("a weight that a file does not have gets the update that waited for it", "[checkpoint]")
{
  const memory_folder folder = file_of(2.0F);
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::sgd sgd;
  m.use(sgd);
  const auto weight = m.add<float>({5}, cm::role::parameter);
  m.name(weight, "of this model alone");
  for (float& it : m.acquire(weight, cm::access::write).span()) it = 9;
  cm::optimizer::late_updates late{m, sgd};
  {
    const auto scope = m.iteration();
    for (float& it : m.gradient(weight).span()) it = 1;
    (void)late.step({.learning_rate = 1});
  }
  CHECK(late.waiting() == 1);
  CHECK(checkpoint::import_values(m, folder, "weights", {.takes_part = true}).kept.size() == 1);
  CHECK(m.acquire(weight, cm::access::read).span()[4] == 8.0F);
}

TEST_CASE("an optimizer begins anew behind an import, also lists that an update which waited has just filled",
          "[checkpoint]")
{
  const memory_folder folder = file_of(2.0F);
  for (const bool is_late : {false, true}) {
    cm::optimizer::sgd sgd{{.momentum = 0.5F}};
    arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
    cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
    m.use(sgd);
    const auto weight = m.add<float>({6, 3}, cm::role::parameter);
    m.name(weight, "w");
    for (float& it : m.acquire(weight, cm::access::write).span()) it = 9;
    cm::optimizer::late_updates late{m, sgd};
    const auto train = [&](float slope, bool waits) {
      const auto scope = m.iteration();
      for (float& it : m.gradient(weight).span()) it = slope;
      waits ? (void)late.step({.learning_rate = 1}) : (void)cm::optimizer::step(m, sgd, {.learning_rate = 1});
    };
    train(64, is_late);
    (void)checkpoint::import_values(m, folder, "weights", {.takes_part = true});
    train(1, false);
    CHECK(m.acquire(weight, cm::access::read).span()[0] == 1.0F);
  }
}

TEST_CASE("what a file calls as an optimizer's states is not read as those", "[checkpoint]")
{
  memory_folder folder;
  one_weight<float> model;
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> without_lists{memory, {.chunk_bytes = 4_KiB}};
  const auto short_one = without_lists.add<float>({2, 1}, cm::role::parameter);
  without_lists.name(short_one, "momentum/w");  // as large as a part of the model's momentum
  for (float& it : without_lists.acquire(short_one, cm::access::write).span()) it = 3;
  checkpoint::export_values(without_lists, folder, "weights");
  model.fill(9.0F);
  const auto done = checkpoint::import_values(model.m, folder, "weights", {.takes_part = true});
  CHECK((done.tensors == 0 && done.ignored == std::vector<std::string>{"momentum/w"}));
  CHECK((model.value() == 9.0F && model.in("momentum") == 0.0F));
}

TEST_CASE("names and shapes of a file are those of the model, unless a part is enough", "[checkpoint]")
{
  const memory_folder folder = file_of(2.0F);
  one_weight<float> turned{{3, 6}};
  turned.fill(1);
  CHECK_THROWS_WITH(
      checkpoint::import_values(turned.m, folder, "weights"),
      ContainsSubstring("the file weights is not of this model: another shape: w of F32 [6,3] there, float32 [3,6] "
                        "here (declare the tensor as the file has it, or give it another name)"));
  CHECK_THROWS_AS(checkpoint::import_values(turned.m, folder, "weights"), cm::config_error);
  CHECK_THROWS_WITH(checkpoint::import_values(turned.m, folder, "weights", {.takes_part = true}),
                    ContainsSubstring("here (declare"));  // a part would not help
  CHECK(turned.value() == 1.0F);

  one_weight<float> more;
  const auto head = more.m.add<float>({2}, cm::role::parameter);
  const auto mean = more.m.add<float>({2}, cm::role::buffer);
  more.m.name(head, "head");
  for (float& it : more.m.acquire(head, cm::access::write).span()) it = 3;
  for (float& it : more.m.acquire(mean, cm::access::write).span()) it = 4;
  more.fill(1);
  CHECK_THROWS_WITH(checkpoint::import_values(more.m, folder, "weights"), ContainsSubstring("it does not have: head"));
  CHECK(more.value() == 1.0F);
  const auto done = checkpoint::import_values(more.m, folder, "weights", {.takes_part = true});
  CHECK(done.tensors == 1);
  CHECK(done.kept == std::vector<std::string>{"head"});
  CHECK(more.value() == 2.0F);
  CHECK(more.m.acquire(head, cm::access::read).span()[1] == 3);
  CHECK(more.m.acquire(mean, cm::access::read).span()[1] == 4);  // a buffer that the file does not have

  one_weight<float> other;
  other.m.name(other.w, "v");
  other.fill(1);
  CHECK_THROWS_AS(checkpoint::import_values(other.m, folder, "weights"), cm::config_error);
  CHECK(checkpoint::import_values(other.m, folder, "weights", {.takes_part = true}).ignored ==
        std::vector<std::string>{"w"});
  CHECK(other.value() == 1.0F);
  CHECK_THROWS_AS(checkpoint::import_values(other.m, folder, "nothing"), cm::io_error);
}

TEST_CASE("finite numbers that a narrower type does not reach are refused by name, before anything is written",
          "[checkpoint]")
{
  const memory_folder folder = file_of(1e5F);
  one_weight<cm::fp16> half;
  half.fill(2.0F);
  CHECK_THROWS_WITH(checkpoint::import_values(half.m, folder, "weights"),
                    ContainsSubstring("18 of the elements of w are finite as they are stored, and would be infinite in "
                                      "float16"));
  CHECK(half.value() == 2.0F);
  CHECK(half.in("momentum") == 5.0F);
  const auto found = checkpoint::import_values(half.m, folder, "weights", {.allow_overflow = true});
  CHECK(found.rounded == checkpoint::rounded_numbers{.overflows = 18});
  CHECK(std::isinf(half.value()));
  one_weight<cm::bf16> brain;
  CHECK(checkpoint::import_values(brain.m, folder, "weights").rounded == checkpoint::rounded_numbers{});
  const memory_folder huge = file_of(3.4e38F), small = file_of(1e-8F), infinite = file_of(HUGE_VALF);
  CHECK_THROWS_AS(checkpoint::import_values(brain.m, huge, "weights"), cm::config_error);
  CHECK(checkpoint::import_values(half.m, small, "weights").rounded == checkpoint::rounded_numbers{.underflows = 18});
  CHECK(half.value() == 0.0F);
  CHECK(checkpoint::import_values(half.m, infinite, "weights").rounded == checkpoint::rounded_numbers{});
}

TEST_CASE("numbers of another kind are refused", "[checkpoint]")
{
  memory_folder folder;
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> whole{memory, {.chunk_bytes = 4_KiB}};
  const auto numbers = whole.add<std::int32_t>({6, 3}, cm::role::buffer);
  whole.name(numbers, "w");
  for (auto& it : whole.acquire(numbers, cm::access::write).span()) it = 1;
  checkpoint::export_values(whole, folder, "weights");
  one_weight<float> model;
  CHECK_THROWS_WITH(checkpoint::import_values(model.m, folder, "weights"),
                    ContainsSubstring("another element type: w"));
}

}  // namespace import_values_test
