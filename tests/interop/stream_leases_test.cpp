// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/tier_memory.hpp>

#include <chunkmem/core/error.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

namespace stream_leases_test {

namespace cm = chunkmem;

namespace {

/// A manager and its backend in one, which write down what they are asked.
struct notes {
  struct lease_type {
    std::byte* at = nullptr;
    std::string* log = nullptr;
    lease_type() = default;
    lease_type(std::byte* address, std::string* to) : at{address}, log{to} {}
    lease_type(lease_type&& other) noexcept : at{other.at}, log{std::exchange(other.log, nullptr)} {}
    lease_type& operator=(lease_type&& other) noexcept
    {
      std::swap(at, other.at);
      std::swap(log, other.log);
      return *this;
    }
    ~lease_type()
    {
      if (log != nullptr) *log += "end ";
    }
    [[nodiscard]] bool is_live() const { return log != nullptr; }
    [[nodiscard]] std::byte* data() const { return at; }
  };

  lease_type lease(cm::tier where, cm::bytes size, cm::agent stream)
  {
    text += "lease " + std::string{name_of(where)} + " " + std::to_string(size.count()) + " for " +
            std::to_string(static_cast<int>(stream)) + " ";
    return {&memory[used++], &text};
  }
  notes& backend() { return *this; }
  cm::agent adopt(int stream)
  {
    if (stream == 0) throw cm::usage_error{"a default stream"};
    text += "adopt " + std::to_string(stream) + " ";
    return static_cast<cm::agent>(++adopted);
  }
  cm::event record(cm::agent stream)
  {
    text += "record " + std::to_string(static_cast<int>(stream)) + " ";
    return {1, stream};
  }
  void wait(cm::agent stream, cm::event point)
  {
    text +=
        std::to_string(static_cast<int>(stream)) + " waits for " + std::to_string(static_cast<int>(point.source)) + " ";
  }
  std::string told()
  {
    std::string said = std::move(text);
    text.clear();
    return said;
  }

  std::string text;
  std::byte memory[16] = {};
  std::size_t used = 0;
  int adopted = 3;
};

}  // namespace

TEST_CASE("a stream is adopted once, and its leases are its own", "[interop]")
{
  notes m;
  cm::interop::stream_leases<notes, int> leases{m};
  void* const first = leases.take(7, cm::tier::device, 100, 256);
  CHECK(m.told() == "adopt 7 lease device 100 for 4 ");
  void* const second = leases.take(7, cm::tier::device, 0, 1);
  CHECK(m.told() == "lease device 1 for 4 ");
  void* const third = leases.take(cm::tier::host, 100, 64);
  CHECK(m.told() == "lease host 100 for 0 ");
  CHECK(leases.live() == 3);
  leases.give(7, first, 100);
  CHECK(m.told() == "end ");
  leases.give(7, second, 0);
  leases.give(third, 100);
  CHECK(m.told() == "end end ");
  CHECK((leases.live() == 0 && leases.unknown_returns() == 0 && leases.unordered_returns() == 0));
}

TEST_CASE("what comes back in another stream is ordered behind it first", "[interop]")
{
  notes m;
  cm::interop::stream_leases<notes, int> leases{m};
  void* const first = leases.take(7, cm::tier::device, 100, 256);
  void* const second = leases.take(cm::tier::device, 100, 256);
  (void)m.told();
  leases.give(9, first, 100);
  CHECK(m.told() == "adopt 9 record 5 4 waits for 5 end ");
  leases.give(7, second, 100);
  CHECK(m.told() == "record 4 0 waits for 4 end ");
}

TEST_CASE("what is wrong is refused or counted", "[interop]")
{
  notes m;
  cm::interop::stream_leases<notes, int> leases{m};
  CHECK_THROWS_AS((void)leases.take(0, cm::tier::device, 100, 256), cm::usage_error);
  CHECK_THROWS_AS((void)leases.take(cm::tier::device, 100, 512), std::bad_alloc);
  CHECK(m.told().empty());
  void* const data = leases.take(cm::tier::device, 100, 256);
  leases.give(data, 101);
  leases.give(7, &m, 100);
  CHECK(leases.unknown_returns() == 2);
  leases.give(0, data, 100);
  CHECK(leases.unordered_returns() == 1);
  CHECK(leases.live() == 0);
}

}  // namespace stream_leases_test
