// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/first_failure.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/self.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>
#include <support/rank_threads.hpp>

#include <atomic>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace first_failure_test {

using namespace chunkmem;

TEST_CASE("the first failure stays, and is thrown each time", "[collective]")
{
  collective::first_failure failure;
  CHECK_NOTHROW(failure.check());
  failure.tell({error_text{} << "chunkmem: first", {.failure = comm_failure::revoked, .rank = 3}});
  failure.tell({error_text{} << "chunkmem: second", {.failure = comm_failure::deadline, .rank = 4}});
  for (int i = 0; i < 2; ++i) {
    CHECK(failure.is_there());
    CHECK_THROWS_WITH(failure.check(), "chunkmem: first");
  }
}

TEST_CASE("of failures told at once all threads see the same one", "[collective]")
{
  collective::first_failure failure;
  std::atomic<std::uint32_t> sum{0};
  std::atomic<std::uint32_t> last{0};
  support::on_ranks(4, [&](std::uint32_t rank) {
    failure.tell({error_text{} << "chunkmem: one of four", {.rank = rank + 1}});
    try {
      failure.check();
    } catch (const comm_error& error) {
      sum += error.fault().rank;
      last = error.fault().rank;
    }
  });
  CHECK(last != 0);
  CHECK(sum == 4 * last);
}

}  // namespace first_failure_test

namespace call_test {

using namespace chunkmem;
using collective::call;
using collective::fingerprint;
using collective::operation;

std::uint64_t value_of(const std::vector<call>& calls)
{
  fingerprint all;
  for (const call& it : calls) all.add(it);
  return all.value();
}

TEST_CASE("every field of a call is in its fingerprint", "[collective]")
{
  const call one{
      .what = operation::all_reduce, .type = dtype::bfloat16, .size = 1'024, .root = 1, .label = 2, .scale = 3};
  std::vector<call> others(8, one);
  others[1].what = operation::all_gather;
  others[2].type = dtype::float16;
  others[3].size = std::uint64_t{1'024} << 32U;
  others[4].root = 2;
  others[5].label = 1;
  others[6].scale = 4;
  std::swap(others[7].root, others[7].label);
  std::set<std::uint64_t> values;
  for (const call& it : others) values.insert(fingerprint_of(it));
  CHECK(values.size() == others.size());
}

TEST_CASE("sequences of calls that were changed in one place have other fingerprints", "[collective]")
{
  std::vector<call> calls;
  for (std::uint32_t index = 0; index < 40; ++index)
    calls.push_back({.what = static_cast<operation>(support::scrambled(index) % 8),
                     .size = support::scrambled(index + 99) % 4,
                     .label = index % 3});
  std::set<std::uint64_t> values{value_of(calls)};
  std::size_t tried = 1;
  for (std::size_t index = 0; index < calls.size(); ++index) {
    auto other = calls;
    other[index].size += 1;
    values.insert(value_of(other));
    other = calls;
    other.erase(other.begin() + static_cast<std::ptrdiff_t>(index), other.end());
    values.insert(value_of(other));
    tried += 2;
    if (index == 0 || calls[index] == calls[index - 1]) continue;
    other = calls;
    std::swap(other[index], other[index - 1]);
    values.insert(value_of(other));
    ++tried;
  }
  CHECK(values.size() == tried);
}

TEST_CASE("operations have names", "[collective]")
{
  CHECK(name_of(operation::all_gather) == "all_gather");
  CHECK(name_of(operation::exchange) == "exchange");
}

}  // namespace call_test

namespace communicator_test {

using namespace chunkmem;

/// Not required by the laws: a rank that cannot give up.
struct cannot_revoke : collective::self {
  void revoke() noexcept = delete;
};
struct unnamed : collective::self {
  static constexpr int name = 1;
};

TEST_CASE("a communicator has a name, its kind and every operation", "[collective]")
{
  STATIC_REQUIRE(communicator<collective::self, backend::host_arena>);
  STATIC_REQUIRE_FALSE(communicator<cannot_revoke, backend::host_arena>);
  STATIC_REQUIRE_FALSE(tells_failure<cannot_revoke>);
  STATIC_REQUIRE_FALSE(communicator<unnamed, backend::host_arena>);
  STATIC_REQUIRE_FALSE(communicator<int, backend::host_arena>);
}

}  // namespace communicator_test
