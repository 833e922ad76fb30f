// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/stored_index.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/refusal.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stored_index_test {

using namespace chunkmem;
using namespace chunkmem::checkpoint;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Entries of one file, one after the other.
whole_generation::file file_of(const std::vector<std::pair<std::string, std::vector<std::uint64_t>>>& entries,
                               dtype type = dtype::float32)
{
  whole_generation::file made;
  made.payload = 256;
  std::uint64_t end = 0;
  for (const auto& [name, extents] : entries) {
    const std::uint64_t size = size_of_tensor(type, extents).count();
    made.tensors.push_back({name, type, extents, end, end + size});
    end += size;
  }
  return made;
}
whole_generation generation_of(const std::vector<whole_generation::file>& files,
                               const std::vector<divided_tensor>& divided)
{
  whole_generation made;
  made.files = files;
  made.content.divided = divided;
  return made;
}
std::string refusal(const std::vector<whole_generation::file>& files, const std::vector<divided_tensor>& divided)
{
  const whole_generation made = generation_of(files, divided);
  return support::refusal([&] { const stored_index index{made}; });
}

}  // namespace

TEST_CASE("names of parts say which elements they are, in one spelling", "[checkpoint]")
{
  CHECK(part_name("w", 0, 4096) == "w[0:4096]");
  const auto part = part_of_name("a[b][4096:8192]");
  REQUIRE(part);
  CHECK(part->tensor == "a[b]");
  CHECK(part->first == 4096);
  CHECK(part->end == 8192);
  for (const char* const none :
       {"w", "w[]", "w[:]", "w[1]", "w[1:]", "w[:1]", "w[2:2]", "w[3:2]", "w[01:2]", "w[1:2", "w[1:2]x", "w[-1:2]",
        "w[+1:2]", "w[1:2 ]", "w[0:18446744073709551616]", "[", "]", "", "w[0:4096][rank 0 of 2]"})
    CHECK_FALSE(part_of_name(none));
}

TEST_CASE("parts of a tensor are put together in the order of elements, whichever files they are in", "[checkpoint]")
{
  const auto made = generation_of(
      {file_of({{"small", {2, 3}}, {"w[8:12]", {4}}}), file_of({{"w[0:8]", {8}}, {"v[0:4]", {4}}})}, {{"w", {3, 4}}});
  const stored_index index{made};
  CHECK(index.all().size() == 3);
  const stored_value* const w = index.find("w");
  REQUIRE(w != nullptr);
  CHECK(w->extents == std::vector<std::uint64_t>{3, 4});
  REQUIRE(w->runs.size() == 2);
  CHECK((w->runs[0].first == 0 && w->runs[0].elements == 8 && w->runs[0].file == 1 && w->runs[0].begin == 256));
  CHECK((w->runs[1].first == 8 && w->runs[1].elements == 4 && w->runs[1].file == 0 && w->runs[1].begin == 256 + 24));
  REQUIRE(index.find("v[0:4]") != nullptr);  // nobody divided a "v": that is a name
  CHECK(index.find("v[0:4]")->extents == std::vector<std::uint64_t>{4});
  CHECK(index.find("v") == nullptr);
  CHECK(index.find("small")->runs.front().elements == 6);
}

TEST_CASE("parts that are missing, overlap or do not fit are refused with the tensor's name", "[checkpoint]")
{
  const divided_tensor w{"w", {12}};
  CHECK(refusal({file_of({{"w[0:8]", {8}}}), file_of({{"w[8:12]", {4}}})}, {w}) == "");
  CHECK_THAT(refusal({file_of({{"w[0:8]", {8}}})}, {w}),
             ContainsSubstring("w: a part is missing or too much, from element 8"));
  CHECK_THAT(refusal({}, {w}), ContainsSubstring("w: a part is missing or too much, from element 0"));
  CHECK_THAT(refusal({file_of({{"w[8:12]", {4}}})}, {w}), ContainsSubstring("w: a part is missing, from element 0"));
  CHECK_THAT(refusal({file_of({{"w[0:8]", {8}}, {"w[4:12]", {8}}})}, {w}), ContainsSubstring("w: its parts overlap"));
  CHECK_THAT(refusal({file_of({{"w[0:12]", {12}}, {"w[4:8]", {4}}})}, {w}), ContainsSubstring("w: its parts overlap"));
  CHECK_THAT(refusal({file_of({{"w[0:8]", {8}}, {"w[8:16]", {8}}})}, {w}),
             ContainsSubstring("a part is missing or too much, from element 16"));
  CHECK_THAT(refusal({file_of({{"w[0:12]", {3, 4}}})}, {w}), ContainsSubstring("w: a part has another size"));
  CHECK_THAT(refusal({file_of({{"w[0:12]", {11}}})}, {w}), ContainsSubstring("w: a part has another size"));
  CHECK_THAT(refusal({file_of({{"w[0:8]", {8}}}), file_of({{"w[8:12]", {4}}}, dtype::bfloat16)}, {w}),
             ContainsSubstring("several element types"));
  CHECK_THAT(refusal({file_of({{"a", {1}}}), file_of({{"a", {1}}})}, {}),
             ContainsSubstring("two tensors of one name: a"));
  CHECK_THAT(refusal({file_of({{"w", {12}}})}, {w}), ContainsSubstring("two tensors of one name: w"));
  CHECK_THAT(refusal({}, {w, w}), ContainsSubstring("two tensors of one name: w"));
  CHECK_THAT(refusal({}, {{"w", {UINT64_MAX, 2}}}), ContainsSubstring("w: it has more elements than can be counted"));
}

TEST_CASE("a plain file is an index too", "[checkpoint]")
{
  const auto file = file_of({{"a", {2}}, {"b[0:4]", {4}}});
  const stored_index index{file.tensors, 1000};
  CHECK(index.all().size() == 2);
  CHECK(index.find("b[0:4]")->runs.front().begin == 1008);
}

namespace {

/// Files in memory.
struct files {
  std::vector<std::vector<std::byte>> all;
  void read(std::uint32_t file, std::uint64_t begin, std::span<std::byte> to) const
  {
    REQUIRE(begin + to.size() <= all.at(file).size());
    std::memcpy(to.data(), all[file].data() + begin, to.size());
  }
};

/// A tensor whose element n is n % 251, cut into runs in several files.
template <class Element>
struct divided {
  explicit divided(std::uint64_t elements)
  {
    support::dice dice{elements};
    from.all.resize(3);
    value.type = dtype_of<Element>;
    value.extents = {elements};
    for (std::uint64_t first = 0; first < elements;) {
      const std::uint64_t count = std::min<std::uint64_t>(elements - first, 1 + dice.below(9000));
      auto& file = from.all[dice.below(3)];
      file.resize(file.size() + dice.below(5));  // something in between
      value.runs.push_back({first, count, static_cast<std::uint32_t>(&file - from.all.data()), file.size()});
      for (std::uint64_t index = first; index < first + count; ++index) {
        const Element it = round_to<Element>(static_cast<float>(index % 251));
        const auto* const bytes = reinterpret_cast<const std::byte*>(&it);
        file.insert(file.end(), bytes, bytes + sizeof it);
      }
      first += count;
    }
  }
  files from;
  stored_value value;
};

template <class From, class To>
void check_all()
{
  constexpr std::uint64_t elements = 40'000;
  divided<From> stored{elements};
  support::dice dice{7};
  for (int turn = 0; turn < 60; ++turn) {
    const std::uint64_t first = turn == 0 ? 0 : dice.below(elements);
    const std::uint64_t count = turn == 0 ? elements : dice.below(static_cast<std::uint32_t>(elements - first) + 1);
    std::vector<To> to(count + 1, round_to<To>(-1.0F));
    read_elements(stored.from, stored.value, first, count, reinterpret_cast<std::byte*>(to.data()), dtype_of<To>);
    bool is_right = to_float(to[count]) == -1.0F;  // not one too many
    for (std::uint64_t index = 0; index < count; ++index)
      is_right = is_right && to_float(to[index]) == static_cast<float>((first + index) % 251);
    REQUIRE(is_right);
  }
}

}  // namespace

TEST_CASE("any elements of a divided tensor are read, as any real type", "[checkpoint]")
{
  check_all<float, float>();
  check_all<float, bf16>();
  check_all<float, fp16>();
  check_all<bf16, float>();
  check_all<bf16, fp16>();
  check_all<fp16, bf16>();
  check_all<fp16, fp16>();
}

TEST_CASE("real numbers become others, whole ones only themselves", "[checkpoint]")
{
  for (const dtype from : {dtype::float32, dtype::bfloat16, dtype::float16})
    for (const dtype to : {dtype::float32, dtype::bfloat16, dtype::float16}) CHECK(is_convertible(from, to));
  for (const dtype whole : {dtype::int32, dtype::int64, dtype::uint8}) {
    CHECK(is_convertible(whole, whole));
    CHECK_FALSE(is_convertible(whole, dtype::float32));
    CHECK_FALSE(is_convertible(dtype::bfloat16, whole));
  }
  CHECK_FALSE(is_convertible(dtype::int32, dtype::int64));
}

TEST_CASE("tensors of several folders are found in one index, by files that are counted over all of them",
          "[checkpoint]")
{
  const whole_generation first = generation_of({file_of({{"a", {4}}}), file_of({{"state/x", {2}}})}, {});
  const whole_generation second =
      generation_of({file_of({{"w[0:3]", {3}}}), file_of({{"w[3:5]", {2}}, {"state/x", {2}}})}, {{"w", {5}}});
  const stored_index one{first}, other{second};
  stored_index both{{}, 0};
  CHECK(both.join(one, 0).empty());
  CHECK(both.join(other, 2) == std::vector<std::string_view>{"state/x"});
  CHECK(both.all().size() == 3);
  CHECK(both.find("a")->runs[0].file == 0);
  CHECK(both.find("state/x")->runs[0].file == 1);
  REQUIRE(both.find("w")->runs.size() == 2);
  CHECK(both.find("w")->runs[0].file == 2);
  CHECK(both.find("w")->runs[1].file == 3);
  CHECK(both.find("w")->runs[1].first == 3);
}

}  // namespace stored_index_test
