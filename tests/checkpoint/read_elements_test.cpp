// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/stored_index.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace read_elements_test {

using namespace chunkmem;
using namespace chunkmem::checkpoint;

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

}  // namespace read_elements_test
