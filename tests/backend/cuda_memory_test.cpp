// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_memory.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

namespace memory_of_user_test {

using namespace chunkmem;
using namespace chunkmem::literals;
using Catch::Matchers::ContainsSubstring;
using support::fake_cuda;
using support::fake_cuda_options;
using under_test::cuda;
using under_test::fault_of;
using under_test::tested_session;
using under_test::users_memory;
using source = cuda::memory_source;
using stream_type = support::fake_stream_handle;

namespace {

/// Memory of a user's GPU, which records the releases.
struct books {
  users_memory* of = nullptr;
  int takes = 0;
  int gives = 0;
  std::size_t live = 0;
  int device_seen = -1;

  [[nodiscard]] std::byte* take(std::size_t size, std::size_t alignment, bool on_device = true)
  {
    CHECK(alignment == 256);
    REQUIRE(of->gpu.current_device(device_seen) == 0);
    ++takes;
    live += size;
    return on_device ? of->on_device(size) : of->pinned(size);
  }
  void give(void* place, std::size_t size, std::size_t alignment)
  {
    CHECK(alignment == 256);
    REQUIRE(of->gpu.current_device(device_seen) == 0);
    ++gives;
    live -= size;
    CHECK(place != nullptr);
  }
};

/// As in CCCL 3: in stream order, and at once.
struct on_stream : books {
  void* allocate(stream_type stream, std::size_t size, std::size_t alignment)
  {
    CHECK(stream != stream_type{});
    return take(size, alignment);
  }
  void deallocate(stream_type, void* place, std::size_t size, std::size_t alignment) { give(place, size, alignment); }
  void* allocate_sync(std::size_t, std::size_t) { throw std::logic_error{"the other is better"}; }
  void deallocate_sync(void*, std::size_t, std::size_t) { throw std::logic_error{"the other is better"}; }
};
/// As in CCCL 2.
struct async : books {
  void* allocate(std::size_t, std::size_t) { throw std::logic_error{"the other is better"}; }
  void deallocate(void*, std::size_t, std::size_t) { throw std::logic_error{"the other is better"}; }
  void* allocate_async(std::size_t size, std::size_t alignment, stream_type) { return take(size, alignment); }
  void deallocate_async(void* place, std::size_t size, std::size_t alignment, stream_type)
  {
    give(place, size, alignment);
  }
};
struct synchronous : books {
  void* allocate_sync(std::size_t size, std::size_t alignment) { return take(size, alignment); }
  void deallocate_sync(void* place, std::size_t size, std::size_t alignment) { give(place, size, alignment); }
};
struct polymorphic : std::pmr::memory_resource, books {
  void* do_allocate(std::size_t size, std::size_t alignment) override { return take(size, alignment, false); }
  void do_deallocate(void* place, std::size_t size, std::size_t alignment) override { give(place, size, alignment); }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override
  {
    return this == &other;
  }
};

/// Copies there and back over two agents, and a kernel between.
std::vector<std::byte> some_work(cuda& memory)
{
  std::byte* const there = memory.allocate(tier::device, 4_KiB);
  std::byte* const other = memory.allocate(tier::device, bytes{100});
  std::byte* const here = memory.allocate(tier::host, 4_KiB);
  for (std::size_t i = 0; i < 4096; ++i) here[i] = static_cast<std::byte>(i * 7);
  memory.copy(there, here, 4_KiB, agent::to_device);
  memory.wait(agent::compute, memory.record(agent::to_device));
  memory.launch(agent::compute, under_test::kernel([there] {
                  for (std::size_t i = 0; i < 4096; ++i) there[i] ^= std::byte{0x55};
                }));
  memory.fill(other, std::byte{9}, bytes{100}, agent::compute);
  memory.copy(there + 100, other, bytes{100}, agent::compute);
  std::vector<std::byte> result(4096);
  memory.wait(agent::to_host, memory.record(agent::compute));
  memory.copy(here, there, 4_KiB, agent::to_host);
  memory.wait(agent::host, memory.record(agent::to_host));
  std::copy(here, here + 4096, result.begin());
  memory.release(tier::device, there);
  memory.release(tier::host, here);
  CHECK(memory.allocate(tier::device, 4_KiB) != nullptr);  // what is left is given back at the end
  return result;
}

std::string refusal(const backend::cuda_device_options& options, const cuda::memory_sources& given,
                    const fake_cuda& gpu)
{
  return support::refusal<config_error>([&] { const cuda memory{options, given, gpu}; });
}

}  // namespace

TEST_CASE("memory of the user's serves like the backend's own, and stays the user's", "[backend]")
{
  const bool is_second = GENERATE(false, true);
  const int device = is_second ? 1 : 0;
  const backend::cuda_device_options options{.device = device, .device_capacity = 64_KiB, .host_capacity = 64_KiB};
  const fake_cuda gpu{fake_cuda_options{.devices = 2}};
  std::vector<std::byte> expected;
  {
    cuda plain{options, gpu};
    expected = some_work(plain);
  }
  under_test::check_clean(gpu);
  {
    users_memory its{gpu, device};
    REQUIRE(gpu.use_device(0) == 0);
    on_stream first{{.of = &its}};
    async second{{.of = &its}};
    synchronous third{{.of = &its}};
    polymorphic pinned;
    pinned.of = &its;
    const source on_device[] = {source::slab(its.on_device(65'536), 64_KiB), source::pool(its.pool),
                                source::resource(first), source::resource(second), source::resource(third)};
    std::vector<std::byte> mapping(65'536 + 256);  // a mapping of the user's, that begins anywhere
    gpu.register_host(mapping.data(), mapping.size());
    const source on_host[] = {source{}, source::slab(its.pinned(65'536), 64_KiB),
                              source::slab(mapping.data(), bytes{mapping.size()}), source::resource(pinned)};
    for (const source& there : on_device)
      for (const source& here : on_host) {
        const auto before = gpu.live();
        {
          cuda memory{options, {.device = there, .host = here}, gpu};
          CHECK(memory.capacity(tier::device) == 64_KiB);
          CHECK(some_work(memory) == expected);
        }
        gpu.finish();
        CHECK(gpu.live().pools == before.pools);
        CHECK(gpu.live().streams == before.streams);
        if (there.what() != source::kind::resource && here.what() != source::kind::resource)
          CHECK(gpu.live() == before);
      }
    for (const books* const each :
         {static_cast<books*>(&first), static_cast<books*>(&second), static_cast<books*>(&third)}) {
      CHECK((each->takes == 12 && each->gives == 12 && each->live == 0));
      CHECK(each->device_seen == device);
    }
    CHECK((pinned.takes == 5 && pinned.gives == 5 && pinned.live == 0));
    const auto calls = gpu.calls("allocate_device");
    cuda memory{{.device = device}, {.device = on_device[0], .host = on_host[1]}, gpu};
    CHECK(memory.capacity(tier::device) == 64_KiB);  // of a slab: all of it
    CHECK(memory.capacity(tier::host) == 64_KiB);
    CHECK(memory.allocate(tier::device, 64_KiB) != nullptr);
    CHECK(gpu.calls("allocate_device") == calls);
    CHECK(gpu.pageable_copies() == 0);
    gpu.unregister_host(mapping.data());
  }
  under_test::check_clean(gpu);
}

TEST_CASE("memory that does not do is refused in a sentence, with its numbers", "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.devices = 2}};
  {
    users_memory its{gpu};
    users_memory others{gpu, 1};
    REQUIRE(gpu.use_device(0) == 0);
    std::byte* const place = its.on_device(4'096);
    std::byte* const pinned = its.pinned(4'096);
    const source slab = source::slab(place, bytes{4'096});
    CHECK_THAT(refusal({.device_capacity = bytes{4'097}}, {.device = slab}, gpu),
               ContainsSubstring("has 4096 B from its first aligned byte on, and its capacity is 4097 B"));
    CHECK_THAT(refusal({.device_capacity = bytes{1}, .host_capacity = bytes{5'000}},
                       {.host = source::slab(pinned, bytes{4'096})}, gpu),
               ContainsSubstring("has 4096 B from its first aligned byte on, and its capacity is 5000 B"));
    CHECK_THAT(refusal({}, {.device = source::slab(place, bytes{4'097})}, gpu),
               ContainsSubstring("does not have all of its 4097 B"));
    CHECK_THAT(refusal({}, {.device = source::slab(others.on_device(4'096), bytes{4'096})}, gpu),
               ContainsSubstring("is of device 1, and this backend is on device 0"));
    CHECK_THAT(refusal({}, {.device = source::slab(pinned, bytes{4'096})}, gpu),
               ContainsSubstring("is no memory of a device"));
    alignas(256) std::array<std::byte, 1'024> pageable{};
    CHECK_THAT(refusal({}, {.device = source::slab(pageable.data(), bytes{1'024})}, gpu),
               ContainsSubstring("is no memory of a device"));
    CHECK_THAT(refusal({.device_capacity = bytes{1}}, {.host = source::slab(pageable.data(), bytes{1'024})}, gpu),
               ContainsSubstring("is not pinned"));
    CHECK_THAT(refusal({.device_capacity = bytes{1}}, {.host = source::slab(place, bytes{1'024})}, gpu),
               ContainsSubstring("is not pinned"));
    CHECK_THAT(refusal({}, {.device = source::pool(its.pool)}, gpu), ContainsSubstring("(set device_capacity)"));
    synchronous resource{{.of = &its}};
    CHECK_THAT(refusal({.device_capacity = bytes{1}}, {.host = source::resource(resource)}, gpu),
               ContainsSubstring("(set host_capacity)"));
    CHECK_THROWS_WITH(source::slab(nullptr, bytes{4'096}), ContainsSubstring("at no address"));
    CHECK_THROWS_WITH(source::slab(place, bytes{}), ContainsSubstring("a slab of 0 B"));
    CHECK_THROWS_WITH(source::slab(place + 1, bytes{255}), ContainsSubstring("256 B of alignment"));
    CHECK_THROWS_AS(source::pool({}), config_error);
    gpu.fail_call_of("place_of", gpu.calls("place_of") + 1, 46);
    CHECK_THROWS_AS((cuda{{}, {.device = slab}, gpu}), device_error);
  }
  under_test::check_clean(gpu);
}

TEST_CASE("a slab gives aligned places, gaps again, and no byte twice", "[backend]")
{
  const fake_cuda gpu;
  {
    users_memory its{gpu};
    std::byte* const slab = its.on_device(4'096) + 1;
    cuda memory{{}, {.device = source::slab(slab, bytes{4'095})}, gpu};
    CHECK(memory.capacity(tier::device) == bytes{3'840});
    std::array<std::byte*, 3> parts{};
    for (std::byte*& each : parts) each = memory.allocate(tier::device, bytes{1'000});
    CHECK((parts[0] == slab + 255 && parts[1] == parts[0] + 1'024 && parts[2] == parts[1] + 1'024));
    CHECK_THROWS_AS(memory.allocate(tier::device, bytes{841}), out_of_memory);  // past the capacity
    std::byte* const last = memory.allocate(tier::device, bytes{768});          // to the last byte
    CHECK(last == parts[2] + 1'024);
    memory.release(tier::device, parts[1]);
    try {
      (void)memory.allocate(tier::device, bytes{1'025});
      FAIL("the gap is smaller");
    } catch (const out_of_memory& refused) {
      CHECK(refused.shortage().refused);
      CHECK(refused.shortage().requested == 1'025);
    }
    CHECK(memory.allocate(tier::device, bytes{1'024}) == parts[1]);
  }
  under_test::check_clean(gpu);
}

TEST_CASE("a resource that has nothing, throws, or gives what does not do changes nothing", "[backend]")
{
  struct moody : books {
    int mood = 0;
    void* allocate_sync(std::size_t size, std::size_t alignment)
    {
      if (mood == 0) throw std::bad_alloc{};
      if (mood == 1) return nullptr;
      if (mood == 2) throw std::runtime_error{"another time"};
      if (mood == 7) throw 7;
      if (mood == 6) throw usage_error{"of the library itself"};
      return take(size + 1, alignment, mood != 3) + (mood == 4 ? 1 : 0);
    }
    void deallocate_sync(void* place, std::size_t size, std::size_t alignment)
    {
      give(place, size + 1, alignment);
      throw std::runtime_error{"nobody hears this"};
    }
  };
  const fake_cuda gpu;
  {
    users_memory its{gpu};
    moody given{{.of = &its}};
    cuda memory{{.device_capacity = 1_KiB}, {.device = source::resource(given)}, gpu};
    const auto ask = [&] { return memory.allocate(tier::device, 1_KiB); };
    CHECK_THROWS_AS(ask(), out_of_memory);
    given.mood = 1;
    CHECK_THROWS_AS(ask(), out_of_memory);
    given.mood = 2;
    CHECK_THROWS_WITH(ask(), ContainsSubstring("device tier did not give 1024 B: another time (if it has no more"));
    CHECK(fault_of(ask).number == 0);
    CHECK_FALSE(memory.is_lost());
    given.mood = 3;
    CHECK_THROWS_WITH(ask(), ContainsSubstring("is no memory of a device"));
    given.mood = 4;
    CHECK_THROWS_WITH(ask(), ContainsSubstring("respect the alignment"));
    CHECK((given.takes == 2 && given.gives == 2));
    given.mood = 7;
    CHECK_THROWS_WITH(ask(), ContainsSubstring("an exception without a text"));
    given.mood = 6;
    CHECK_THROWS_AS(ask(), usage_error);
    given.mood = 5;
    CHECK(ask() != nullptr);
    CHECK_THROWS_AS(ask(), out_of_memory);
  }
  under_test::check_clean(gpu);
}

TEST_CASE("memory of a pool of the user's is freed once, since somebody else may have its address then", "[backend]")
{
  const fake_cuda gpu;
  {
    users_memory its{gpu};
    cuda memory{{.device_capacity = 4_KiB}, {.device = source::pool(its.pool)}, gpu};
    std::byte* const place = memory.allocate(tier::device, 4_KiB);
    const auto frees = gpu.calls("free_device");
    gpu.fail_after("free_device", frees + 1, 46);  // it was freed: the error is that of earlier work
    memory.release(tier::device, place);
    CHECK(gpu.calls("free_device") == frees + 1);
    CHECK_FALSE(memory.is_lost());
  }
  under_test::check_clean(gpu);
}

TEST_CASE("memory of the user's is no memory of others", "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.device_memory = 100'000}};
  {
    users_memory its{gpu};
    std::byte* const slab = its.on_device(40'960);
    {
      cuda memory{{}, {.device = source::slab(slab, bytes{40'960})}, gpu};
      CHECK(memory.other_bytes() == bytes{});
      CHECK(memory.allocate(tier::device, 8_KiB) != nullptr);
      CHECK(memory.other_bytes() == bytes{});
      REQUIRE(gpu.take_for_library(0, 1'000));
      CHECK(memory.other_bytes() == bytes{1'000});
    }
    users_memory second{gpu};
    cuda memory{{.device_capacity = 20_KiB}, {.device = source::pool(second.pool)}, gpu};
    std::byte* const place = memory.allocate(tier::device, 10_KiB);
    CHECK(memory.other_bytes() == bytes{41'960});
    memory.release(tier::device, place);
    CHECK(memory.other_bytes() == bytes{41'960});  // the pool keeps it
  }
  under_test::check_clean(gpu);
}

TEST_CASE("memory that stays beside work without an end is named by whose it is", "[backend]")
{
  const fake_cuda gpu;
  {
    users_memory its{gpu};
    synchronous resource{{.of = &its}};
    const auto told = [&](const cuda::memory_sources& given) {
      tested_session calls{gpu};
      backend::cuda_memory<fake_cuda> memory{calls, 0, 4_KiB, 4_KiB, given};
      for (const tier where : {tier::device, tier::host}) (void)memory.allocate(where, 1_KiB, its.stream);
      error_text text;
      memory.tell_what_stays(text);
      memory.give_all_back(its.stream);
      return std::string{text.view()};
    };
    CHECK(told({}) == "1024 B of the device stay with this process; 1024 B of the host stay with this process");
    CHECK_THAT(told({.device = source::slab(its.on_device(4'096), 4_KiB)}),
               ContainsSubstring("1024 B of the device lie in your slab and may still be written (do not use or free"));
    CHECK_THAT(told({.device = source::pool(its.pool)}), ContainsSubstring("not given back to your pool"));
    CHECK_THAT(told({.device = source::resource(resource)}), ContainsSubstring("not given back to your resource"));
    CHECK_THAT(told({.host = source::slab(its.pinned(4'096), 4_KiB)}),
               ContainsSubstring("1024 B of the host lie in your slab"));
  }
  under_test::check_clean(gpu);
}

TEST_CASE("a resource is a constant one too, and no temporary; an empty pair of braces is memory and no runtime",
          "[backend]")
{
  struct constant {
    books* of;
    [[nodiscard]] void* allocate(stream_type, std::size_t size, std::size_t alignment) const
    {
      return of->take(size, alignment);
    }
    void deallocate(stream_type, void* place, std::size_t size, std::size_t alignment) const
    {
      of->give(place, size, alignment);
    }
  };
  const auto is_taken = [](auto&& it) { return requires { source::resource(std::forward<decltype(it)>(it)); }; };
  constant changeable{.of = nullptr};
  CHECK(is_taken(changeable));
  CHECK(is_taken(std::as_const(changeable)));
  CHECK_FALSE(is_taken(constant{.of = nullptr}));
  const fake_cuda gpu;
  {
    users_memory its{gpu};
    books all{.of = &its};
    const constant given{.of = &all};
    cuda memory{{.device_capacity = 1_KiB}, {.device = source::resource(given)}, gpu};
    CHECK(memory.allocate(tier::device, 1_KiB) != nullptr);
    CHECK(all.takes == 1);
  }
  under_test::check_clean(gpu);
  const cuda plain{{.device_capacity = 1_KiB}, {}};
  CHECK(plain.capacity(tier::device) == 1_KiB);
}

}  // namespace memory_of_user_test
