// SPDX-License-Identifier: Apache-2.0
// Where one rank throws, leaves or falls silent at any call, every other rank ends: its waits, its destructors, and
// those of its backend and groups, whichever of these lives longer.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/counting_ranks.hpp>
#include <support/fake_device.hpp>
#include <support/fake_nccl.hpp>
#include <support/figures.hpp>
#include <support/two_divided_tensors.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace ends_of_ranks_test {

using namespace chunkmem;
using collective::local_threads;
using nccl_type = collective::nccl<support::fake_nccl, local_threads>;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::uint64_t first_deadline = 300'000'000;  // nanoseconds; each call is one at least once with it
constexpr std::uint64_t no_hurry = 60'000'000'000;     // of groups that lose nobody
constexpr std::uint32_t ranks = 4;
constexpr std::uint32_t lost_rank = 1;
constexpr bytes frame{65536};
constexpr bytes device = frame * 14;
constexpr bytes host = frame * 30;

enum class way { throws, leaves, silent };

/// One loss of a rank: when, how, and what lives how long.
struct loss {
  bool two_nodes = false;
  bool groups_outlive = false;  ///< the backend; else the other way round
  bool agreed = false;          ///< calls are not compared any more
  way how = way::throws;
  std::uint64_t at = 0;  ///< which call of the lost rank's next steps
  std::uint64_t deadline = first_deadline;

  [[nodiscard]] std::string text() const
  {
    return std::string{two_nodes ? "two nodes" : "one group"} +
           (groups_outlive ? ", groups outlive" : ", groups inside") + (agreed ? ", agreed" : "") + ", way " +
           std::to_string(static_cast<int>(how)) + ", call " + std::to_string(at);
  }
};

struct left : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A group of NCCL on threads: its rank in it is made of both.
struct meeting_place {
  meeting_place(std::uint32_t size, std::uint64_t its_deadline)
      : deadline{its_deadline},
        threads{size, {.deadline = deadline}},
        nccl{std::make_shared<support::fake_nccl_world>(static_cast<int>(size))}
  {
  }
  std::uint64_t deadline;
  collective::thread_group threads;
  std::shared_ptr<support::fake_nccl_world> nccl;
};

/// This rank's end of a group.
template <class Group>
struct member {
  member(meeting_place& in, const support::fake_cuda&, std::uint32_t rank)
    requires std::same_as<Group, local_threads>
      : group{in.threads, rank_id{rank}}
  {
  }
  member(meeting_place& in, const support::fake_cuda& runtime, std::uint32_t rank)
    requires std::same_as<Group, nccl_type>
      : control{std::in_place, in.threads, rank_id{rank}},
        group{*control, collective::nccl_options{.deadline = in.deadline},
              support::fake_nccl{in.nccl, runtime, static_cast<int>(rank), {}}}
  {
  }
  std::optional<local_threads> control;
  Group group;
  support::counting<Group> counted{group};
};

/// The identity that `fake_nccl` makes: with it a rank makes its communicator although the others never come.
const std::vector<std::byte> known_identity(support::fake_nccl::id_size, std::byte{0x5a});

/// Threads reach each other's bytes by the host.
template <class Group>
using backend_of = std::conditional_t<std::same_as<Group, local_threads>, backend::host_arena, support::fake_device>;

inline void make_backend(std::optional<backend::host_arena>& it, const support::fake_cuda&)
{
  it.emplace(backend::host_arena_options{.device_capacity = device, .host_capacity = host});
}
inline void make_backend(std::optional<support::fake_device>& it, const support::fake_cuda& runtime)
{
  it.emplace(support::fake_device_options{.device_capacity = device, .host_capacity = host}, runtime);
}

/// Four ranks that are threads, one of which is lost. Threads that hang keep it alive.
template <class Group>
class world : public std::enable_shared_from_this<world<Group>> {
 public:
  explicit world(const loss& what) : what_{what} {}

  struct outcome {
    bool is_reached = false;  ///< the lost rank came to its call
    std::uint32_t ended = 0;
    double slowest = 0;  ///< of the other ranks: from the loss to the end of all their destructors [s]
  };

  outcome run()
  {
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      std::thread{[self = this->shared_from_this(), rank] {
        self->live(rank);
        self->note_end(rank);
      }}.detach();
    std::unique_lock lock{mutex_};
    constexpr std::chrono::seconds patience{60};  // a machine may stand still; a hang is for ever
    (void)changed_.wait_for(lock, patience, [this] { return ends_.size() == ranks - 1; });
    outcome found{.is_reached = lost_at_.has_value(), .ended = ended_, .slowest = 0};
    if (lost_at_)
      for (const auto end : ends_)
        found.slowest = std::max(found.slowest, std::chrono::duration<double>(end - *lost_at_).count());
    may_wake_ = true;
    changed_.notify_all();
    (void)changed_.wait_for(lock, patience, [this] { return ended_ == ranks; });
    found.ended = ended_;
    return found;
  }

 private:
  void live(std::uint32_t rank)
  {
    try {
      const support::fake_cuda runtime{support::fake_cuda_options{.when = support::fake_schedule::earliest}};
      std::optional<backend_of<Group>> outer;
      if (!what_.groups_outlive) make_backend(outer, runtime);
      member<Group> all{all_, runtime, rank};
      member<Group> node{nodes_[rank / 2], runtime, rank % 2};
      member<Group> across{places_[rank % 2], runtime, rank / 2};
      std::optional<backend_of<Group>> inner;
      if (what_.groups_outlive) make_backend(inner, runtime);
      backend_of<Group>& memory = what_.groups_outlive ? *inner : *outer;
      using counted = support::counting<Group>;
      using nodes = sharding::process_groups<counted>;
      const std::vector<member<Group>*> groups{&all, &node, &across};
      if (what_.two_nodes) {
        nodes both{all.counted, node.counted, across.counted};
        train<sharded_model<backend_of<Group>, nodes, ownership::hierarchical>>(rank, memory, both, groups);
      } else {
        train<sharded_model<backend_of<Group>, counted>>(rank, memory, all.counted, groups);
      }
    } catch (const std::exception&) {  // each rank has an error, or leaves
    }
  }
  template <class Model, class Ranks>
  void train(std::uint32_t rank, backend_of<Group>& memory, Ranks& over, const std::vector<member<Group>*>& groups)
  {
    support::two_divided_tensors<Model> it{memory, over};
    it.step();
    for (member<Group>* const one : groups) {
      if constexpr (requires { one->group.agreed(true); }) one->group.agreed(what_.agreed);
      if (rank == lost_rank)
        one->counted.before = [this](std::uint64_t) {
          if (calls_++ == what_.at) lose();
        };
    }
    try {
      for (int step = 0; step < 2; ++step) it.step();
    } catch (const left&) {  // as a rank that has fewer steps
    }
  }
  void lose()
  {
    std::unique_lock lock{mutex_};
    lost_at_ = clock_type::now();
    if (what_.how == way::silent) changed_.wait(lock, [this] { return may_wake_; });
    if (what_.how == way::leaves) throw left{"leaves"};
    throw std::runtime_error{"is lost"};
  }
  void note_end(std::uint32_t rank)
  {
    const std::lock_guard lock{mutex_};
    if (rank != lost_rank) ends_.push_back(clock_type::now());
    ++ended_;
    changed_.notify_all();
  }

  loss what_;
  meeting_place all_{ranks, what_.deadline};
  meeting_place nodes_[2]{meeting_place{2, what_.deadline}, meeting_place{2, what_.deadline}};
  meeting_place places_[2]{meeting_place{2, what_.deadline}, meeting_place{2, what_.deadline}};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t calls_ = 0;  // of the lost rank
  std::optional<clock_type::time_point> lost_at_;
  std::vector<clock_type::time_point> ends_;
  std::uint32_t ended_ = 0;
  bool may_wake_ = false;
};

/// Two groups of two ranks on one device. Rank 0 has given an operation to the second one, which waits for rank 1 on
/// its stream, when it hears of the loss through the first one, or has an error of its own. Threads that hang keep it
/// alive.
class stuck_operation : public std::enable_shared_from_this<stuck_operation> {
 public:
  static constexpr std::uint32_t calls = 5;

  stuck_operation(std::uint32_t call, bool groups_outlive, way how, bool hears, std::uint64_t deadline)
      : call_{call},
        groups_outlive_{groups_outlive},
        how_{how},
        hears_{hears},
        first_{2, deadline},
        second_{2, deadline}
  {
  }
  [[nodiscard]] std::string text() const
  {
    return "call " + std::to_string(call_) + (groups_outlive_ ? ", groups outlive" : ", groups inside") + ", way " +
           std::to_string(static_cast<int>(how_)) + (hears_ ? ", heard" : ", an error of its own");
  }

  /// Rank 0 came to the moment in which its operation waits.
  [[nodiscard]] bool was_stuck() const { return was_stuck_; }
  /// @return   rank 0 ended
  bool run()
  {
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      std::thread{[self = shared_from_this(), rank] {
        self->live(rank);
        const std::lock_guard lock{self->mutex_};
        self->has_ended_[rank] = true;
        self->changed_.notify_all();
      }}.detach();
    std::unique_lock lock{mutex_};
    constexpr std::chrono::seconds patience{60};
    const bool is_over = changed_.wait_for(lock, patience, [this] { return has_ended_[0]; });
    may_wake_ = true;
    changed_.notify_all();
    return changed_.wait_for(lock, patience, [this] { return has_ended_[1]; }) && is_over;
  }

 private:
  void live(std::uint32_t rank)
  {
    try {
      const support::fake_cuda runtime{support::fake_cuda_options{.when = support::fake_schedule::earliest}};
      const support::fake_device_options room{.device_capacity = frame, .host_capacity = frame};
      std::optional<support::fake_device> outer;
      if (!groups_outlive_) outer.emplace(room, runtime);
      member<nccl_type> first{first_, runtime, rank};
      member<nccl_type> second{second_, runtime, rank};
      std::optional<support::fake_device> inner;
      if (groups_outlive_) inner.emplace(room, runtime);
      support::fake_device& gpu = groups_outlive_ ? *inner : *outer;
      first.group.agreed(true);
      second.group.agreed(true);
      std::byte* const place = gpu.allocate(tier::device, bytes{4096});
      first.group.barrier(gpu, agent::compute, 0);
      if (rank == 1) be_lost();
      wait_for_lost_rank(second.group, gpu, place);
      was_stuck_ = true;
      if (!hears_) throw std::runtime_error{"an error of this rank alone"};
      for (;;) {
        first.group.all_gather(gpu, agent::compute, place + 1024, parts(), 2);
        first.group.finish(gpu, agent::compute);
      }
    } catch (const std::exception&) {  // each rank has one
    }
  }
  void wait_for_lost_rank(nccl_type& group, support::fake_device& gpu, std::byte* place)
  {
    switch (call_) {
      case 0: return group.all_gather(gpu, agent::to_host, place, parts(), 1);
      case 1: return group.reduce_scatter(gpu, agent::to_host, place, parts(), {}, 1);
      case 2: return group.all_reduce(gpu, agent::to_host, place, parts(), {}, 1);
      case 3: return group.broadcast(gpu, agent::to_host, place, bytes{512}, rank_id{1}, 1);
      default: return group.receive(gpu, agent::to_host, place, bytes{512}, rank_id{1}, 1);
    }
  }
  [[nodiscard]] static collective::shares parts() { return collective::shares::of(bytes{512}, 2); }
  [[noreturn]] void be_lost()
  {
    std::unique_lock lock{mutex_};
    if (how_ == way::silent) changed_.wait(lock, [this] { return may_wake_; });
    throw std::runtime_error{"is lost"};
  }

  std::uint32_t call_;
  bool groups_outlive_;
  way how_;
  bool hears_;  ///< of the loss, else it has an error of its own
  meeting_place first_;
  meeting_place second_;
  std::atomic<bool> was_stuck_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_ended_[2] = {};
  bool may_wake_ = false;
};

template <class Group>
struct search {
  double over = 0;  ///< the slowest end behind its deadline [s]
  std::uint32_t tried = 0;
  std::vector<std::string> hangs;

  /// Losses wait for most of their time: eight at once.
  void run(const std::vector<loss>& losses)
  {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t index = next++; index < losses.size(); index = next++) run(losses[index]);
    };
    std::vector<std::thread> threads;
    for (int index = 0; index < 8; ++index) threads.emplace_back(work);
    for (std::thread& it : threads) it.join();
  }

 private:
  /// A machine that stands still makes ranks late before the loss: then once more, with a longer deadline.
  void run(loss what)
  {
    typename world<Group>::outcome found = std::make_shared<world<Group>>(what)->run();
    for (int tries = 0; tries < 3 && !found.is_reached && found.ended == ranks; ++tries) {
      what.deadline *= 4;
      found = std::make_shared<world<Group>>(what)->run();
    }
    const std::lock_guard lock{mutex_};
    if (found.ended < ranks) hangs.push_back(what.text());
    if (!found.is_reached) return;
    ++tried;
    over = std::max(over, found.slowest - static_cast<double>(what.deadline) / 1e9);
  }

  std::mutex mutex_;
};

constexpr std::uint64_t calls_of_two_steps = 14;  // of the lost rank, in one group and in two nodes

/// All of them, or one for each call. Threads compare every call: there `agreed` does not exist.
template <class Group>
std::vector<loss> losses(bool all_combinations)
{
  constexpr std::uint64_t combinations = std::same_as<Group, nccl_type> ? 12 : 6;
  std::vector<loss> found;
  for (const bool two_nodes : {false, true})
    for (std::uint64_t at = 0; at < calls_of_two_steps; ++at)
      for (std::uint64_t which = 0; which < combinations; ++which)
        if (all_combinations || which == (5 * at + (two_nodes ? 2 : 0)) % combinations)
          found.push_back({.two_nodes = two_nodes,
                           .groups_outlive = which % 2 == 1,
                           .agreed = which >= 6,
                           .how = static_cast<way>(which / 2 % 3),
                           .at = at});
  return found;
}

}  // namespace

TEST_CASE("where a rank is lost at any call over NCCL, every other rank ends with all that it made", "[sharding]")
{
  search<nccl_type> all;
  all.run(losses<nccl_type>(false));
  CHECK(all.hangs == std::vector<std::string>{});
  CHECK(all.tried == 2 * calls_of_two_steps);
}

TEST_CASE("where a rank is lost at any call over threads, every other rank ends with all that it made", "[sharding]")
{
  search<local_threads> all;
  all.run(losses<local_threads>(false));
  CHECK(all.hangs == std::vector<std::string>{});
  CHECK(all.tried == 2 * calls_of_two_steps);
}

TEST_CASE("an operation that waits for a lost rank holds up no end of another group, of the backend or of the rank",
          "[sharding]")
{
  std::vector<std::string> hangs;
  std::uint32_t stuck = 0;
  std::vector<std::thread> threads;
  std::mutex mutex;
  for (std::uint32_t call = 0; call < stuck_operation::calls; ++call)
    for (const bool groups_outlive : {false, true})
      for (const way how : {way::throws, way::silent})
        threads.emplace_back([&, call, groups_outlive, how] {
          for (const bool hears : {false, true}) {
            std::shared_ptr<stuck_operation> it;
            bool has_ended = true;  // a machine that stands still makes rank 0 late before: then with a longer deadline
            for (std::uint64_t tries = 0; tries < 4 && has_ended && (it == nullptr || !it->was_stuck()); ++tries) {
              it = std::make_shared<stuck_operation>(call, groups_outlive, how, hears, first_deadline << (2 * tries));
              has_ended = it->run();
            }
            const std::lock_guard lock{mutex};
            stuck += it->was_stuck() ? 1U : 0U;
            if (!has_ended) hangs.push_back(it->text());
          }
        });
  for (std::thread& it : threads) it.join();
  CHECK(hangs == std::vector<std::string>{});
  CHECK(stuck == 8 * stuck_operation::calls);
}

TEST_CASE("an abort that does not return, or leaves its operation on the stream, holds up no end", "[sharding]")
{
  for (const bool leaves : {false, true})
    for (const bool group_outlives : {false, true}) {
      INFO("leaves " << leaves << ", group outlives " << group_outlives);
      meeting_place place{2, first_deadline / 3};
      const support::fake_cuda runtime{support::fake_cuda_options{.when = support::fake_schedule::earliest}};
      const support::fake_nccl::plan stuck{.abort_waits = !leaves, .abort_leaves = leaves};
      {
        local_threads control{place.threads, rank_id{0}};
        std::optional<nccl_type> group;
        std::optional<support::fake_device> gpu{std::in_place, support::fake_device_options{.device_capacity = frame},
                                                runtime};
        group.emplace(control, known_identity, collective::nccl_options{.deadline = place.deadline},
                      support::fake_nccl{place.nccl, runtime, 0, stuck});
        group->agreed(true);
        std::byte* const bytes_of_gpu = gpu->allocate(tier::device, bytes{4096});
        group->all_gather(*gpu, agent::compute, bytes_of_gpu, collective::shares::of(bytes{512}, 2), 1);
        if (!group_outlives) group.reset();
        gpu->release(tier::device, bytes_of_gpu);
        CHECK(gpu->is_lost());
        CHECK_THROWS_AS(gpu->record(agent::compute), device_error);
        place.nccl->release();  // so that the played GPU can end
        gpu.reset();
        group.reset();
      }
      CHECK(place.nccl->aborts == 1);
    }
}

TEST_CASE("after a failure, new groups work on the same backend once the failed ones have ended", "[sharding]")
{
  meeting_place failed{2, first_deadline / 3};
  meeting_place later{1, no_hurry};
  const support::fake_cuda runtime{support::fake_cuda_options{.when = support::fake_schedule::earliest}};
  support::fake_device gpu{{.device_capacity = frame}, runtime};
  std::byte* const place = gpu.allocate(tier::device, bytes{4096});
  {
    local_threads control{failed.threads, rank_id{0}};
    nccl_type lone{control, known_identity, {.deadline = failed.deadline}, {failed.nccl, runtime, 0, {}}};
    lone.agreed(true);
    lone.all_gather(gpu, agent::compute, place, collective::shares::of(bytes{512}, 2), 1);
    CHECK_THROWS_AS(lone.finish(gpu, agent::compute), comm_error);
    member<nccl_type> early{later, runtime, 0};
    CHECK_THROWS_AS(early.group.all_gather(gpu, agent::compute, place, collective::shares::of(bytes{512}, 1), 1),
                    usage_error);
  }
  meeting_place again{1, no_hurry};
  member<nccl_type> fresh{again, runtime, 0};
  fresh.group.all_gather(gpu, agent::compute, place, collective::shares::of(bytes{512}, 1), 1);
  fresh.group.finish(gpu, agent::compute);
  CHECK_FALSE(gpu.is_lost());
}

TEST_CASE("where a rank is lost at any call, in every order of ends, the others end by their deadline",
          "[sharding][.slow]")
{
  search<nccl_type> nccl;
  nccl.run(losses<nccl_type>(true));
  search<local_threads> threads;
  threads.run(losses<local_threads>(true));
  CHECK(nccl.hangs == std::vector<std::string>{});
  CHECK(threads.hangs == std::vector<std::string>{});
  CHECK(nccl.tried == 24 * calls_of_two_steps);
  CHECK(threads.tried == 12 * calls_of_two_steps);
  const double over = std::max(nccl.over, threads.over);
  std::cout << nccl.tried + threads.tried << " losses, the slowest end " << over << " s behind its deadline\n";
  CHECK(over <= 0.5);
  support::write_figures("ends_of_ranks", "ctest --preset slow -R sharding.slow",
                         {{"cuda.survivors_over_deadline_seconds", over, "s", "<=", 0.5},
                          {"cuda.ends_that_hang", nccl.hangs.size() + threads.hangs.size(), "ends", "==", 0}});
}

}  // namespace ends_of_ranks_test
