// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/vector_set.hpp>

#include <chunkmem/optimizer/instruction_set.hpp>
#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cmath>
#include <cstring>
#include <vector>

namespace vector_set_test {

using namespace chunkmem;
using namespace chunkmem::optimizer;
using namespace chunkmem::optimizer::detail;

namespace {

struct results {
  std::vector<float> settled, roots;
};

// One text for each set, as in element_pass.
#define CHUNKMEM_TRY(SET, TARGET)                                                    \
  TARGET void try_##SET(const std::vector<float>& numbers, results& out)             \
  {                                                                                  \
    using real = SET::real;                                                          \
    for (std::size_t index = 0; index < numbers.size(); index += sizeof(real) / 4) { \
      real value, root;                                                              \
      std::memcpy(&value, numbers.data() + index, sizeof value);                     \
      SET::root(root, value);                                                        \
      SET::settle(value);                                                            \
      SET::settle(root);                                                             \
      std::memcpy(out.settled.data() + index, &value, sizeof value);                 \
      std::memcpy(out.roots.data() + index, &root, sizeof root);                     \
    }                                                                                \
  }
CHUNKMEM_TRY(baseline_lanes, )
#if defined(__x86_64__)
CHUNKMEM_TRY(avx2_lanes, [[gnu::target("avx2,fma,f16c")]])
CHUNKMEM_TRY(avx512_lanes, [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]])
#endif
#undef CHUNKMEM_TRY

}  // namespace

TEST_CASE("each set settles numbers and takes roots as it is done for one", "[optimizer]")
{
  std::vector<float> numbers = support::hostile_numbers(4096, 1);
  for (std::size_t index = 0; index < numbers.size(); index += 3) numbers[index] = std::fabs(numbers[index]);
  results expected{numbers, numbers};
  for (std::size_t index = 0; index < numbers.size(); ++index) {
    expected.settled[index] = settled(numbers[index]);
    expected.roots[index] = settled(std::sqrt(numbers[index]));
  }
  const auto check = [&](void (*work)(const std::vector<float>&, results&)) {
    results seen{numbers, numbers};
    work(numbers, seen);
    CHECK(support::same_bits(seen.settled, expected.settled));
    CHECK(support::same_bits(seen.roots, expected.roots));
  };
  check(try_baseline_lanes);
#if defined(__x86_64__)
  if (is_available(instruction_set::avx2)) check(try_avx2_lanes);
  if (is_available(instruction_set::avx512)) check(try_avx512_lanes);
#endif
}

}  // namespace vector_set_test
