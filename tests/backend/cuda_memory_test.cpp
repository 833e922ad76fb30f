// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_memory.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <cstdint>

namespace cuda_memory_test {

using namespace chunkmem;
using support::fake_cuda;
using under_test::fault_of;
using under_test::tested_session;
using tested_memory = backend::cuda_memory<fake_cuda>;

namespace {

struct one_stream {
  explicit one_stream(const support::fake_cuda_options& options = {}) : gpu{options}, calls{gpu}
  {
    REQUIRE(gpu.create_stream(own) == 0);
  }
  ~one_stream() { CHECK(gpu.destroy_stream(own) == 0); }

  fake_cuda gpu;
  tested_session calls;
  support::fake_stream_handle own;
};

}  // namespace

TEST_CASE("memory comes from a private pool and from pinned memory, and goes back", "[backend]")
{
  const bool has_pools = GENERATE(true, false);
  const fake_cuda gpu = [&] {
    one_stream it{support::fake_cuda_options{.has_pools = has_pools}};
    {
      tested_memory all{it.calls, 0, bytes{10'000}, bytes{5'000}};
      CHECK(it.gpu.live().pools == (has_pools ? 1u : 0u));
      std::byte* const there = all.allocate(tier::device, bytes{10'000}, it.own);
      std::byte* const here = all.allocate(tier::host, bytes{100}, it.own);
      CHECK(all.holds(tier::device, there + 9'999, bytes{1}));
      CHECK_FALSE(all.holds(tier::device, there + 9'999, bytes{2}));
      CHECK_FALSE(all.holds(tier::host, there, bytes{1}));
      CHECK(all.holds(tier::host, here, bytes{100}));
      CHECK(it.gpu.live().device_allocations == 1);
      CHECK(it.gpu.live().pinned_allocations == 1);
      CHECK(it.gpu.copy(there, here, 100, it.own) == 0);
      CHECK(it.calls.finish(it.own));
      all.release(tier::device, there, it.own);
      all.release(tier::host, nullptr, it.own);
      all.release(tier::host, there, it.own);
      CHECK(all.ledger().unknown_releases() == 1);
      CHECK(it.gpu.live().device_allocations == 0);
      all.give_all_back(it.own);
    }
    CHECK(it.calls.allocations() == it.gpu.allocations() - 1);  // the stream is the test's
    return it.gpu;
  }();
  under_test::check_clean(gpu);
}

TEST_CASE("fresh device memory may be used by every stream at once", "[backend]")
{
  one_stream it{support::fake_cuda_options{.when = support::fake_schedule::latest}};
  support::fake_stream_handle other;
  REQUIRE(it.gpu.create_stream(other) == 0);
  tested_memory all{it.calls, 0, bytes{10'000}, bytes{}};
  std::byte* const there = all.allocate(tier::device, bytes{10'000}, it.own);
  CHECK(it.gpu.fill(there, 3, 10'000, other) == 0);
  CHECK(it.gpu.synchronize_stream(other) == 0);
  CHECK(it.gpu.faults().empty());
  all.give_all_back(it.own);
  CHECK(it.gpu.destroy_stream(other) == 0);
}

TEST_CASE("what the system does not have is out_of_memory below the capacity", "[backend]")
{
  one_stream it{support::fake_cuda_options{.device_memory = 1'000, .pinned_memory = 1'000}};
  tested_memory all{it.calls, 0, bytes{std::uint64_t{1} << 40}, bytes{std::uint64_t{1} << 40}};
  for (const tier where : {tier::device, tier::host}) {
    try {
      (void)all.allocate(where, bytes{1'001}, it.own);
      FAIL("not refused");
    } catch (const out_of_memory& refused) {
      CHECK(refused.shortage().refused);
      CHECK(refused.shortage().where == where);
    }
    CHECK(all.ledger().live(where) == bytes{});
    CHECK(all.allocate(where, bytes{1'000}, it.own) != nullptr);
  }
  CHECK(it.gpu.last_error() == 0);
  all.give_all_back(it.own);
}

TEST_CASE("another error of an allocation is a device_error and changes nothing", "[backend]")
{
  one_stream it;
  tested_memory all{it.calls, 0, bytes{1'000}, bytes{1'000}};
  it.gpu.fail_call_of("allocate_device", 1, 1);
  it.gpu.fail_call_of("allocate_pinned", 1, 1);
  for (const tier where : {tier::device, tier::host}) {
    CHECK(fault_of([&] { (void)all.allocate(where, bytes{1'000}, it.own); }).number == 1);
    CHECK(all.ledger().live(where) == bytes{});
    CHECK(all.allocate(where, bytes{1'000}, it.own) != nullptr);
  }
  CHECK_THROWS_AS(all.allocate(no_tier, bytes{1}, it.own), usage_error);
  CHECK_THROWS_AS(all.allocate(tier::host, bytes{}, it.own), usage_error);
  all.give_all_back(it.own);
}

TEST_CASE("memory is freed in a second try where the first failed", "[backend]")
{
  one_stream it;
  {
    tested_memory all{it.calls, 0, bytes{1'000}, bytes{1'000}};
    std::byte* const there = all.allocate(tier::device, bytes{1'000}, it.own);
    (void)all.allocate(tier::host, bytes{1'000}, it.own);
    it.gpu.fail_call_of("free_device", 1, 1);
    it.gpu.fail_call_of("free_pinned", 1, 1);
    all.release(tier::device, there, it.own);
    all.give_all_back(it.own);
  }
  CHECK(it.gpu.live().total() == 1);  // the test's stream
  CHECK(it.gpu.faults().empty());
}

TEST_CASE("a pool that cannot be made is an error", "[backend]")
{
  one_stream it;
  it.gpu.fail_call_of("create_pool", 1, 801);
  CHECK(fault_of([&] { const tested_memory all{it.calls, 0, bytes{1}, bytes{}}; }).number == 801);
  CHECK(it.gpu.live().pools == 0);
}

}  // namespace cuda_memory_test
