// SPDX-License-Identifier: Apache-2.0
// Random work on a cuda_device, with captures and replays in between, against the same work in sequence.
#include <chunkmem/backend/cuda_device.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>
#include <support/sanitized.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace cuda_random_test {

using namespace chunkmem;
using support::fake_schedule;
using under_test::cuda;
using under_test::kernel;
using under_test::rig;

namespace {

constexpr std::size_t length = 64;
constexpr std::size_t place_count = 6;  // the first three on the device, the others on the host
using contents = std::array<std::array<std::byte, length>, place_count>;

void mix(std::byte* to, const std::byte* from, int salt) noexcept
{
  for (std::size_t i = 0; i < length; ++i)
    to[i] = static_cast<std::byte>(std::to_integer<int>(to[i]) * 3 + std::to_integer<int>(from[length - 1 - i]) + salt);
}

/// Records the content of each place and its last user, and makes only the waits that these uses need.
class random_work {
 public:
  random_work(rig& on, std::uint64_t seed, std::size_t agents) : rig_{&on}, random_{seed}
  {
    for (std::size_t i = built_in_agents; i < agents; ++i) (void)mem().adopt();
    agents_ = agents;
    for (std::size_t i = 0; i < place_count; ++i) {
      at_[i] = i < 3 ? on.there(length) : on.here(length);
      mem().fill(at_[i], std::byte{}, bytes{length});
      expected_[i].fill(std::byte{});
    }
  }

  void steps(int count)
  {
    for (int i = 0; i < count; ++i) one();
  }

  /// Writes steps down, launches them, and now and then again.
  void captured_steps(int count)
  {
    mem().begin_capture();
    is_capturing_ = true;
    const auto before = uses_;
    replay_.clear();
    steps(count);
    is_capturing_ = false;
    cuda::graph_type graph = mem().end_capture();
    uses_ = before;
    for (std::uint64_t launches = 1 + below(3); launches > 0; --launches) {
      if (below(2) == 0) steps(3);
      mem().launch(graph);
      for (const auto& step : replay_) step(expected_);
      uses_ = {};  // a launch follows all, and all that streams are given later follows it
      after_graph_ = mem().record(static_cast<agent>(1 + below(agents_ - 1)));
    }
  }

  void check()
  {
    mem().wait(agent::host, after_graph_);
    for (std::size_t i = 0; i < place_count; ++i) {
      for (std::size_t stream = 1; stream < agents_; ++stream)
        if ((uses_[i].used >> stream & 1) != 0) mem().wait(agent::host, uses_[i].last[stream]);
      std::array<std::byte, length> found{};
      mem().copy(found.data(), at_[i], bytes{length});
      CHECK(found == expected_[i]);
    }
  }

 private:
  struct uses {
    std::array<event, max_agents> last{};
    unsigned used = 0;
    unsigned wrote = 0;
  };

  [[nodiscard]] cuda& mem() noexcept { return rig_->mem(); }
  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return random_() % end; }

  void follow(agent stream, const uses& it, unsigned mask)
  {
    for (std::size_t source = 0; source < agents_; ++source)
      if ((mask >> source & 1) != 0 && static_cast<agent>(source) != stream) mem().wait(stream, it.last[source]);
  }
  void note(agent stream, std::size_t place, event point, bool wrote)
  {
    uses& it = uses_[place];
    if (wrote) it = {};
    it.last[static_cast<std::size_t>(stream)] = point;
    it.used |= 1U << static_cast<unsigned>(stream);
    if (wrote) it.wrote |= 1U << static_cast<unsigned>(stream);
  }

  void one()
  {
    const auto stream = static_cast<agent>(is_capturing_ ? 1 + below(agents_ - 1) : below(agents_));
    const std::size_t to = below(place_count);
    const std::size_t from = (to + 1 + below(place_count - 1)) % place_count;
    const int salt = static_cast<int>(below(250));
    const std::uint64_t kind = below(4);
    const bool reads = kind != 0;
    if (is_capturing_ && (kind == 3 || (kind == 0 && to >= 3))) return;
    if (stream == agent::host) mem().wait(stream, after_graph_);
    follow(stream, uses_[to], uses_[to].used);
    if (reads) follow(stream, uses_[from], uses_[from].wrote);
    if (kind == 0) mem().fill(at_[to], static_cast<std::byte>(salt), bytes{length}, stream);
    if (kind == 1) mem().copy(at_[to], at_[from], bytes{length}, stream);
    const auto work = [to_here = at_[to], from_here = at_[from], salt] { mix(to_here, from_here, salt); };
    if (kind == 2) mem().launch(stream, kernel(work));
    if (kind == 3) mem().launch(stream, work);
    const event point = mem().record(stream);
    if (reads) note(stream, from, point, false);
    note(stream, to, point, true);
    const std::function<void(contents&)> step = [=](contents& all) {
      if (kind == 0) all[to].fill(static_cast<std::byte>(salt));
      if (kind == 1) all[to] = all[from];
      if (kind >= 2) mix(all[to].data(), all[from].data(), salt);
    };
    if (is_capturing_)
      replay_.push_back(step);
    else
      step(expected_);
  }

  rig* rig_;
  std::mt19937_64 random_;
  std::size_t agents_ = built_in_agents;
  bool is_capturing_ = false;
  std::array<std::byte*, place_count> at_{};
  contents expected_{};
  std::array<uses, place_count> uses_;
  event after_graph_;  ///< the calling thread waits for the last launch itself
  std::vector<std::function<void(contents&)>> replay_;
};

/// `disturb` is called before each part of the work.
template <class Disturb>
void run_random_work(std::uint64_t seed, fake_schedule when, int rounds, const Disturb& disturb)
{
  INFO("seed " << seed << ", schedule " << static_cast<int>(when));
  rig it{when, seed};
  random_work work{it, seed, built_in_agents + seed % 3};
  for (int round = 0; round < rounds; ++round) {
    disturb(it);
    work.steps(20);
    work.captured_steps(15);
    if (round % 2 == 0) work.check();
  }
  work.check();
  CHECK_FALSE(it.mem().is_lost());
  it.end();
}

}  // namespace

TEST_CASE("random work of all agents, with captures and replays, gives the bytes of one thing after the other",
          "[backend]")
{
  const auto when = GENERATE(fake_schedule::random, fake_schedule::earliest, fake_schedule::latest);
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 10U : 40U); ++seed)
    run_random_work(seed, when, 4, [](rig& it) { CHECK(it.mem().recoveries() == 0); });
}

TEST_CASE("random work gives the same bytes where events fail every now and then", "[backend]")
{
  const auto when = GENERATE(fake_schedule::random, fake_schedule::latest);
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 6U : 20U); ++seed) {
    std::mt19937_64 random{seed};
    std::uint64_t recoveries = 0;
    run_random_work(seed, when, 4, [&](rig& it) {
      // Inside a capture nothing recovers, so only the work that comes before the next one may fail.
      for (const char* const function : {"record_event", "wait_event"})
        it.gpu.fail_call_of(function, it.gpu.calls(function) + 1 + random() % 4, 1);
      it.gpu.fail_call_of("synchronize_event", it.gpu.calls("synchronize_event") + 1, 46);
      recoveries = it.mem().recoveries();
    });
    CHECK(recoveries > 0);
  }
}

}  // namespace cuda_random_test
