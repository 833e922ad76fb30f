// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/first_values.hpp>

#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <vector>

namespace first_values_test {

using chunkmem::sharding::first_values;

TEST_CASE("every bit of every value, and how many there are, makes another word", "[sharding]")
{
  std::set<std::uint64_t> words;
  std::uint64_t made = 0;
  for (const std::size_t size : {0U, 1U, 7U, 8U, 31U, 32U, 33U, 70U}) {
    std::vector<std::byte> values(size);
    words.insert(first_values::word_of(values));
    ++made;
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      values[bit / 8] ^= std::byte{1} << bit % 8;
      words.insert(first_values::word_of(values));
      ++made;
      values[bit / 8] ^= std::byte{1} << bit % 8;
    }
  }
  CHECK(words.size() == made);
}

TEST_CASE("the word of all is that of what each weight was filled with last, in any order", "[sharding]")
{
  const std::vector<float> zero{0.0F}, minus{-0.0F}, nan{std::numeric_limits<float>::quiet_NaN()};
  const auto bytes = [](const std::vector<float>& it) { return std::as_bytes(std::span{it}); };
  first_values left, right;
  for (first_values* each : {&left, &right}) each->reset(3);
  CHECK(left.word() == 0);
  left.note(0, bytes(zero));
  left.note(2, bytes(nan));
  CHECK(left.word() != right.word());
  right.note(2, bytes(minus));
  right.note(0, bytes(zero));
  CHECK(left.word() != right.word());
  right.note(2, bytes(nan));
  CHECK(left.word() == right.word());
  CHECK(left.named(0, "a") != right.named(0, "b"));
  right.note(0, bytes(minus));
  CHECK(left.word() != right.word());
  right.forget(0);
  CHECK(right.of(0) == 0);
  left.forget(0);
  CHECK(left.word() == right.word());
  left.forget();
  CHECK(left.word() == 0);
}

}  // namespace first_values_test
