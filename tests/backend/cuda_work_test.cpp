// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_work.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <cstring>
#include <stdexcept>
#include <vector>

namespace cuda_work_test {

using namespace chunkmem;
using backend::copy_range;
using under_test::all_are;
using under_test::fault_of;
using under_test::kernel;
using under_test::rig;

TEST_CASE("the calling thread copies and fills memory of the host without any call", "[backend]")
{
  rig it;
  std::byte* const first = it.here(1'000);
  std::byte* const second = it.here(1'000);
  const std::uint64_t calls = it.mem().calls();
  it.mem().fill(first, std::byte{7}, bytes{1'000});
  it.mem().copy(second, first, bytes{1'000});
  std::vector<std::byte> pageable(100, std::byte{1});
  it.mem().fill(pageable.data(), std::byte{9}, bytes{100});
  CHECK(it.mem().calls() == calls);
  CHECK(all_are(second, 1'000, 7));
  CHECK(all_are(pageable, 9));
  it.mem().copy(pageable.data(), second, bytes{100});  // memory that is not from here might be a device's
  CHECK(all_are(pageable, 7));
  it.end();
}

TEST_CASE("what the calling thread copies to or from a device is done when it returns", "[backend]")
{
  rig it{support::fake_schedule::latest};
  std::byte* const there = it.there(1'000);
  std::byte* const here = it.here(1'000);
  it.mem().fill(there, std::byte{3}, bytes{1'000});
  it.mem().copy(here, there, bytes{1'000});
  CHECK(all_are(here, 1'000, 3));
  bool ran = false;
  it.mem().launch(agent::host, kernel([&ran] { ran = true; }));
  CHECK(ran);
  it.end();
}

TEST_CASE("many copies go with one call for each 64, and those of no bytes with none", "[backend]")
{
  rig it;
  constexpr std::size_t count = 150;
  std::byte* const here = it.here(count * 8);
  std::byte* const there = it.there(count * 8);
  std::byte* const back = it.here(count * 8);
  for (std::size_t i = 0; i < count * 8; ++i) here[i] = static_cast<std::byte>(i % 251);
  std::vector<copy_range> to_device;
  std::vector<copy_range> to_host;
  for (std::size_t i = 0; i < count; ++i) {
    to_device.push_back({.to = there + 8 * i, .from = here + 8 * i, .size = bytes{8}});
    to_host.push_back({.to = back + 8 * (count - 1 - i), .from = there + 8 * i, .size = bytes{8}});
    to_host.push_back({.to = nullptr, .from = nullptr, .size = bytes{}});
  }
  it.mem().copy_batch(to_device, agent::to_device);
  CHECK(it.gpu.calls("copy_batch") == 3);
  it.mem().wait(agent::to_host, it.mem().record(agent::to_device));
  it.mem().copy_batch(to_host, agent::to_host);
  CHECK(it.gpu.calls("copy_batch") == 6);
  CHECK(it.gpu.calls("copy") == 0);
  it.mem().wait(agent::host, it.mem().record(agent::to_host));
  for (std::size_t i = 0; i < count; ++i) REQUIRE(std::memcmp(back + 8 * (count - 1 - i), here + 8 * i, 8) == 0);
  it.mem().copy_batch({to_device.data(), 1}, agent::to_device);
  CHECK(it.gpu.calls("copy") == 1);
  it.mem().copy_batch({}, agent::to_device);
  it.mem().copy_batch(to_device, agent::host);
  CHECK(it.gpu.calls("copy_batch") == 9);
  std::vector<copy_range> bad = to_device;
  bad.back().from = nullptr;
  CHECK_THROWS_AS(it.mem().copy_batch(bad, agent::to_device), usage_error);
  CHECK(it.gpu.calls("copy_batch") == 9);
  it.end();
}

TEST_CASE("a batch of the calling thread that fails half way leaves nothing running", "[backend]")
{
  rig it{support::fake_schedule::latest};
  std::vector<std::byte> pageable(80, std::byte{4});
  std::byte* const there = it.there(80);
  std::byte* const here = it.here(80);
  std::vector<copy_range> copies;
  for (std::size_t i = 0; i < 80; ++i) copies.push_back({.to = there + i, .from = &pageable[i], .size = bytes{1}});
  it.gpu.fail_call_of("copy_batch", 2, 1);
  CHECK(fault_of([&] { it.mem().copy_batch(copies, agent::host); }).number == 1);
  pageable.assign(80, std::byte{5});
  pageable.shrink_to_fit();
  const std::uint64_t waits = it.gpu.synchronizations();
  it.mem().copy(here + 40, here, bytes{40});
  CHECK(it.gpu.synchronizations() == waits);
  CHECK(it.bytes_at(there, 64) == std::vector<std::byte>(64, std::byte{4}));
  it.end();
}

TEST_CASE("memory of the host is filled by a function of the host, that of devices by the runtime", "[backend]")
{
  rig it;
  std::byte* const here = it.here(1'000);
  std::byte* const there = it.there(1'000);
  it.mem().fill(here, std::byte{5}, bytes{1'000}, agent::to_host);
  CHECK((it.gpu.calls("launch_host") == 1 && it.gpu.calls("fill") == 0));
  it.mem().fill(there, std::byte{6}, bytes{1'000}, agent::to_host);
  CHECK((it.gpu.calls("launch_host") == 1 && it.gpu.calls("fill") == 1));
  it.mem().wait(agent::host, it.mem().record(agent::to_host));
  CHECK(all_are(here, 1'000, 5));
  CHECK(all_are(it.bytes_at(there, 1'000), 6));
  it.mem().fill(there, std::byte{}, bytes{}, agent::to_host);
  CHECK_THROWS_AS(it.mem().fill(nullptr, std::byte{}, bytes{1}, agent::to_host), usage_error);
  it.end();
}

TEST_CASE("memory of others is copied by streams like our own", "[backend]")
{
  rig it;
  support::fake_stream_handle theirs;
  support::fake_pool_handle pool;
  void* framework = nullptr;
  REQUIRE(it.gpu.create_stream(theirs) == 0);
  REQUIRE(it.gpu.create_pool(pool, 0, 0) == 0);
  REQUIRE(it.gpu.allocate_device(framework, 100, pool, theirs) == 0);
  REQUIRE(it.gpu.synchronize_stream(theirs) == 0);
  auto* const tensor = static_cast<std::byte*>(framework);
  it.mem().fill(tensor, std::byte{2}, bytes{100}, agent::compute);
  it.mem().wait(agent::host, it.mem().record(agent::compute));
  CHECK(all_are(it.bytes_at(tensor, 100), 2));
  REQUIRE(it.gpu.free_device(framework, theirs) == 0);
  REQUIRE(it.gpu.destroy_stream(theirs) == 0);
  REQUIRE(it.gpu.destroy_pool(pool) == 0);
  it.end();
}

TEST_CASE("a kernel that is refused was not enqueued, and its error is not left behind", "[backend]")
{
  rig it;
  int ran = 0;
  it.gpu.fail_call_of("launch_kernel", 2, 9);
  it.mem().launch(agent::compute, kernel([&ran] { ++ran; }));
  CHECK(fault_of([&] { it.mem().launch(agent::compute, kernel([&ran] { ran += 10; })); }).number == 9);
  CHECK(it.gpu.last_error() == 0);
  CHECK_FALSE(it.mem().is_lost());
  it.mem().launch(agent::compute, kernel([&ran] { ran += 100; }));
  it.mem().wait(agent::host, it.mem().record(agent::compute));
  CHECK(ran == 101);
  it.end();
}

TEST_CASE("an error that lay there before a launch is not blamed on its kernel", "[backend]")
{
  rig it;
  int ran = 0;
  CHECK(it.gpu.use_device(3) != 0);  // somebody's mistake, not looked at
  CHECK_NOTHROW(it.mem().launch(agent::compute, kernel([&ran] { ++ran; })));
  it.mem().wait(agent::host, it.mem().record(agent::compute));
  CHECK(ran == 1);
  it.end();
}

TEST_CASE("a launch that throws puts the device back and harms nothing", "[backend]")
{
  rig it;
  CHECK_THROWS_AS(
      it.mem().launch(agent::compute, [](support::fake_stream_handle) { throw std::runtime_error{"mine"}; }),
      std::runtime_error);
  CHECK_FALSE(it.mem().is_lost());
  it.end();
}

TEST_CASE("callables without arguments run in the order of their stream", "[backend]")
{
  rig it{support::fake_schedule::latest};
  std::vector<int> order;
  it.mem().launch(agent::compute, [&order] { order.push_back(1); });
  it.mem().launch(agent::compute, kernel([&order] { order.push_back(2); }));
  it.mem().launch(agent::compute, [&order] { order.push_back(3); });
  it.mem().launch(agent::host, [&order] { CHECK(order.empty()); });
  it.mem().wait(agent::host, it.mem().record(agent::compute));
  CHECK(order == std::vector{1, 2, 3});
  it.end();
}

TEST_CASE("mistakes of a caller are refused in the words of every stream backend", "[backend]")
{
  rig it;
  std::byte* const here = it.here(64);
  const agent unknown = static_cast<agent>(4);
  CHECK_THROWS_AS(it.mem().copy(here, here, 64_B, unknown), usage_error);
  CHECK_THROWS_AS(it.mem().fill(here, std::byte{}, 64_B, unknown), usage_error);
  CHECK_THROWS_AS(it.mem().launch(unknown, [] {}), usage_error);
  CHECK_THROWS_AS(it.mem().record(unknown), usage_error);
  CHECK_THROWS_AS(it.mem().wait(unknown, {}), usage_error);
  CHECK_THROWS_AS(it.mem().wait(agent::host, {.value = 0, .source = unknown}), usage_error);
  CHECK_THROWS_AS(it.mem().wait(agent::host, {.value = 1, .source = agent::to_host}), usage_error);
  CHECK_THROWS_AS(it.mem().wait(agent::host, {.value = 1, .source = agent::host}), usage_error);
  CHECK_THROWS_AS(it.mem().copy(nullptr, here, 64_B, agent::to_host), usage_error);
  CHECK_THROWS_AS(it.mem().copy(nullptr, here, 64_B), usage_error);
  CHECK_THROWS_AS(it.mem().stream(unknown), usage_error);
  CHECK_THROWS_AS(it.mem().adopt(support::fake_stream_handle{}), usage_error);
  it.end();
}

}  // namespace cuda_work_test
