// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/rehearsal.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/profile/profile_text.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rehearse_on_test {

namespace cm = chunkmem;
using namespace cm::literals;

namespace {

constexpr std::uint32_t layers = 5;
constexpr std::uint32_t width = 24;

/// The record of the last rehearsal as text.
template <class Manager>
[[nodiscard]] std::string rehearsed(const Manager& m)
{
  std::ostringstream out;
  cm::profile_text::write(out, m.rehearsed());
  return std::move(out).str();
}

/// Trains a chain of layers by plain loops. `guards`: none of them runs in a rehearsal, as where pins are null.
template <class Backend, class... Policies>
struct trainer {
  trainer(Backend& memory, bool guards_loops) : m{memory, {.chunk_bytes = 4_KiB}}, guards{guards_loops} { m.use(adam); }
  [[nodiscard]] bool runs() const { return !guards || !m.rehearsing(); }
  void fill()
  {
    for (std::uint32_t index = 0; index < layers; ++index)
      for (float& it : m.acquire(weights.slice(index), cm::access::write).span())
        it = 0.01F * static_cast<float>(index + 1);
  }
  void step()
  {
    const auto scope = m.iteration();
    auto work = m.lease(cm::tier::device, cm::bytes{3 * 4096});  // larger than any tensor
    if (runs()) work.template span<float>()[3 * 1024 - 1] = 1.0F;
    {
      const auto first = m.acquire(outputs.slice(0), cm::access::write);
      if (runs())
        for (float& it : first.span()) it = 1.0F;
    }
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto weight = m.acquire(weights.slice(index), cm::access::read);
      const auto before = m.acquire(outputs.slice(index), cm::access::read);
      const auto after = m.acquire(outputs.slice(index + 1), cm::access::write);
      if (!runs()) continue;
      const auto w = std::as_const(weight).span();
      for (std::size_t row = 0; row < width; ++row) {
        float sum = 0.0F;
        for (std::size_t column = 0; column < width; ++column) sum += w[row * width + column] * before.span()[column];
        after.span()[row] = sum;
      }
    }
    for (std::uint32_t index = layers; index-- > 0;) {
      auto weight = m.acquire(weights.slice(index), cm::access::read);
      const auto output = m.acquire(outputs.slice(index + 1), cm::access::read);
      const auto gradient = m.gradient(std::move(weight));
      if (runs())
        for (std::size_t row = 0; row < width; ++row)
          for (std::size_t column = 0; column < width; ++column)
            gradient.span()[row * width + column] = output.span()[row];
    }
    for (std::uint32_t index = 0; index <= layers; ++index) m.drop(outputs.slice(index));
    work.release();
    (void)cm::optimizer::step(m, adam, {.learning_rate = 0.01F, .clip = {.norm = 1.0F}});
  }
  [[nodiscard]] std::vector<float> values()
  {
    std::vector<float> all;
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto pin = m.acquire(weights.slice(index), cm::access::read);
      for (const float it : pin.span()) all.push_back(it);
    }
    return all;
  }

  cm::optimizer::adam adam;
  cm::manager<Backend, Policies...> m;
  cm::stacked<float> weights = m.template add_stacked<float>(layers, {width, width}, cm::role::parameter);
  cm::stacked<float> outputs = m.template add_stacked<float>(layers + 1, {width}, cm::role::activation);
  bool guards;
};

void check_equal(const cm::memory_requirement& one, const cm::memory_requirement& other)
{
  CHECK(one.smallest_device == other.smallest_device);
  CHECK(one.smallest_host == other.smallest_host);
  CHECK(one.largest_leases == other.largest_leases);
  CHECK(one.rehearsed);
  CHECK(other.rehearsed);
}

using arena = cm::backend::host_arena;
const cm::backend::host_arena_options room{.device_capacity = 64_KiB, .host_capacity = 256_KiB};

}  // namespace

TEST_CASE("plain loops without a test for null rehearse on scratch bytes, and need and record the same", "[manager]")
{
  arena memory{room};
  trainer<arena> guarded{memory, true};
  const cm::memory_requirement wanted = guarded.m.rehearse([&] { guarded.step(); });
  arena other{room};
  trainer<arena> plain{other, false};
  const cm::memory_requirement found = plain.m.rehearse([&] { plain.step(); }, cm::rehearse_on::scratch);
  check_equal(found, wanted);
  CHECK(rehearsed(plain.m) == rehearsed(guarded.m));
  check_equal(plain.m.rehearse([&] { plain.step(); }, cm::rehearse_on::scratch), wanted);  // and once more
  guarded.fill();
  plain.fill();
  for (int step = 0; step < 4; ++step) guarded.step(), plain.step();
  CHECK(plain.values() == guarded.values());
  CHECK(plain.m.report().divergences == 0);
  check_equal(plain.m.rehearse([&] { plain.step(); }, cm::rehearse_on::scratch), wanted);  // between real ones
  CHECK(plain.values() == guarded.values());
}

TEST_CASE("what is read on scratch bytes is zero, what is written is room enough, and nothing is left of it",
          "[manager]")
{
  arena memory{room};
  trainer<arena> it{memory, false};
  std::vector<bool> seen;
  const auto look = [&] {
    const auto read = it.m.acquire(it.weights.slice(0), cm::access::read);
    const auto written = it.m.acquire(it.weights.slice(1), cm::access::write);
    const auto lease = it.m.lease(cm::tier::host, 8_KiB);
    const auto small = it.m.lease(cm::tier::device, 256_B);
    const auto more = it.m.acquire(it.weights.slice(2), cm::access::read_write, cm::memory_location::host);
    REQUIRE(read.span().size() == width * width);
    for (float& value : written.span()) value = std::numeric_limits<float>::quiet_NaN();
    for (std::byte& value :
         lease.span<std::uint8_t>().size() == 8192 ? std::span{lease.data(), 8192} : std::span<std::byte>{})
      value = std::byte{255};
    more.span()[width * width - 1] = 1.0F;
    small.data()[255] = std::byte{1};
    bool is_zero = true;
    const auto values = std::as_const(read).span();
    for (const float value : values) is_zero = is_zero && value == 0.0F;
    seen.push_back(is_zero);
    for (const void* address : {static_cast<const void*>(read.data()), static_cast<const void*>(written.data()),
                                static_cast<const void*>(lease.data())})
      seen.push_back(reinterpret_cast<std::uintptr_t>(address) % 256 == 0);
  };
  (void)it.m.rehearse(look, cm::rehearse_on::scratch);
  CHECK(seen == std::vector<bool>(seen.size(), true));
  CHECK(seen.size() >= 4);
  CHECK(it.m.report().peak[cm::tier::host] == 0_B);
  bool is_null = false;
  (void)it.m.rehearse([&] { is_null = it.m.acquire(it.weights.slice(0), cm::access::read).span().size() == 0; });
  CHECK(is_null);
}

TEST_CASE("gradients that are not finite on scratch bytes change no decision", "[manager]")
{
  arena memory{room};
  trainer<arena> it{memory, false};
  const auto spoilt = [&] {
    it.step();
    for (std::uint32_t index = 0; index < layers; ++index) {
      auto gradient = it.m.gradient(it.weights.slice(index));
      if (it.runs())
        for (float& value : gradient.span()) value = std::numeric_limits<float>::infinity();
      it.m.gradient_done(std::move(gradient));
    }
    (void)cm::optimizer::step(it.m, it.adam, {.learning_rate = 0.01F, .clip = {.norm = 1.0F}});
  };
  const cm::memory_requirement on_scratch = it.m.rehearse(spoilt, cm::rehearse_on::scratch);
  const std::string record = rehearsed(it.m);
  it.guards = true;
  check_equal(it.m.rehearse(spoilt), on_scratch);
  CHECK(rehearsed(it.m) == record);
}

TEST_CASE("kernels on a stream have ended before their scratch bytes are given back", "[manager]")
{
  cm::backend::host_arena_options streams = room;
  streams.async_compute = true;
  arena memory{streams};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({1024}, cm::role::buffer);
  int ran = 0;
  const auto launch = [&] {
    const auto pin = m.acquire(weight, cm::access::write, cm::agent::compute);
    float* const to = pin.data();
    m.backend().launch(cm::agent::compute, [to, &ran] {
      for (int index = 0; index < 1024; ++index) to[index] = 1.0F;
      ++ran;
    });
  };
  (void)m.rehearse(launch, cm::rehearse_on::scratch);
  CHECK(ran == 1);
}

TEST_CASE("a rehearsal on scratch bytes ends as any, by an exception and inside another one", "[manager]")
{
  arena memory{room};
  trainer<arena> it{memory, false};
  CHECK_THROWS_AS(it.m.rehearse([] { throw std::runtime_error{"enough"}; }, cm::rehearse_on::scratch),
                  std::runtime_error);
  CHECK_FALSE(it.m.rehearsing());
  bool is_there = false;
  (void)it.m.rehearse(
      [&] {
        const auto before = it.m.acquire(it.weights.slice(0), cm::access::write);
        CHECK_THROWS_AS(it.m.rehearse([] {}, cm::rehearse_on::scratch), cm::usage_error);
        before.span()[0] = 1.0F;
        is_there = it.m.acquire(it.weights.slice(1), cm::access::read).span().size() > 0;
      },
      cm::rehearse_on::scratch);
  CHECK(is_there);
  std::optional<cm::lease<cm::manager<arena>::engine_type>> escaped;
  const auto let_escape = [&] { escaped.emplace(it.m.lease(cm::tier::device, 256_B)); };
  CHECK_THROWS_WITH(it.m.rehearse(let_escape, cm::rehearse_on::scratch),
                    Catch::Matchers::ContainsSubstring("outlived the step"));
  CHECK_FALSE(it.m.rehearsing());
  *escaped->data() = std::byte{1};  // a mistake of the trainer that stays in bytes of its own
  CHECK_NOTHROW(it.m.rehearse([] {}, cm::rehearse_on::scratch));
  *escaped->data() = std::byte{1};
  auto older = it.m.lease(cm::tier::device, 256_B);
  const auto let_another_escape = [&] {
    older.release();  // does not stand for the one that stays
    escaped.emplace(it.m.lease(cm::tier::device, 256_B));
  };
  CHECK_THROWS_WITH(it.m.rehearse(let_another_escape, cm::rehearse_on::scratch),
                    Catch::Matchers::ContainsSubstring("outlived the step"));
  escaped.reset();
  it.fill();
  it.step();
}

TEST_CASE("a device that the calling thread cannot address has no scratch bytes, and says so", "[manager]")
{
  cm::backend::simulated clock{{.device_capacity = 64_KiB, .host_capacity = 256_KiB}};
  cm::manager<cm::backend::simulated> m{clock, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({1024}, cm::role::buffer);
  const auto step = [&] { m.acquire(weight, cm::access::read).release(); };
  CHECK_THROWS_AS(m.rehearse(step, cm::rehearse_on::scratch), cm::usage_error);
  CHECK_THROWS_WITH(m.rehearse(step, cm::rehearse_on::scratch), Catch::Matchers::ContainsSubstring("cannot address"));
  CHECK_NOTHROW(m.rehearse(step));
}

}  // namespace rehearse_on_test
