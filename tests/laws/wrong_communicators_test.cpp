// SPDX-License-Identifier: Apache-2.0
#include <conformance/communicator.hpp>

#include "verdict.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <support/catch.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wrong_communicators_test {

using namespace chunkmem;
using backend::host_arena;
using collective::local_threads;
using collective::shares;
using collective::sum;

namespace {

/// Right: does nothing but what local_threads does. Each communicator below changes one of its calls by one mistake.
class forwards {
 public:
  using policy_kind = communicator_kind;
  static constexpr std::string_view name = "forwards";

  forwards(const collective::thread_group& group, rank_id rank) : inner{group, rank} {}
  forwards(const forwards&) = delete;
  virtual ~forwards() = default;

  rank_id rank() const noexcept { return inner.rank(); }
  std::uint32_t ranks() const noexcept { return inner.ranks(); }
  virtual void all_gather(host_arena& memory, agent stream, std::byte* whole, const shares& parts, std::uint32_t label)
  {
    inner.all_gather(memory, stream, whole, parts, label);
  }
  virtual void reduce_scatter(host_arena& memory, agent stream, std::byte* whole, const shares& parts, sum how,
                              std::uint32_t label)
  {
    inner.reduce_scatter(memory, stream, whole, parts, how, label);
  }
  virtual void all_reduce(host_arena& memory, agent stream, std::byte* whole, const shares& parts, sum how,
                          std::uint32_t label)
  {
    inner.all_reduce(memory, stream, whole, parts, how, label);
  }
  virtual void broadcast(host_arena& memory, agent stream, std::byte* place, bytes size, rank_id root,
                         std::uint32_t label)
  {
    inner.broadcast(memory, stream, place, size, root, label);
  }
  virtual void send(host_arena& memory, agent stream, std::byte* place, bytes size, rank_id to, std::uint32_t label)
  {
    inner.send(memory, stream, place, size, to, label);
  }
  virtual void receive(host_arena& memory, agent stream, std::byte* place, bytes size, rank_id from,
                       std::uint32_t label)
  {
    inner.receive(memory, stream, place, size, from, label);
  }
  virtual void barrier(host_arena& memory, agent stream, std::uint32_t label) { inner.barrier(memory, stream, label); }
  virtual void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)
  {
    inner.exchange(mine, all);
  }
  virtual void check() { inner.check(); }
  virtual void revoke() noexcept { inner.revoke(); }

 protected:
  local_threads inner;
};
static_assert(communicator<forwards, host_arena>);

/// Gives a sum where a mean was asked for.
struct forgets_the_scale : forwards {
  using forwards::forwards;
  void reduce_scatter(host_arena& memory, agent stream, std::byte* whole, const shares& parts, sum how,
                      std::uint32_t label) override
  {
    inner.reduce_scatter(memory, stream, whole, parts, {.type = how.type}, label);
  }
};
/// A rank alone has nothing to add, and so it does not scale.
struct does_nothing_alone : forwards {
  using forwards::forwards;
  void all_reduce(host_arena& memory, agent stream, std::byte* whole, const shares& parts, sum how,
                  std::uint32_t label) override
  {
    if (ranks() > 1) inner.all_reduce(memory, stream, whole, parts, how, label);
  }
};
/// Adds all types as float32.
struct adds_words : forwards {
  using forwards::forwards;
  void all_reduce(host_arena& memory, agent stream, std::byte* whole, const shares& parts, sum how,
                  std::uint32_t label) override
  {
    inner.all_reduce(memory, stream, whole, parts, {.type = dtype::float32, .scale = how.scale}, label);
  }
};
/// Adds the shares, and leaves each where it was added.
struct adds_shares_only : forwards {
  using forwards::forwards;
  void all_reduce(host_arena& memory, agent stream, std::byte* whole, const shares& parts, sum how,
                  std::uint32_t label) override
  {
    inner.reduce_scatter(memory, stream, whole, parts, how, label);
  }
};
/// Clears the run before it gathers, with its own share.
struct clears_before_it_gathers : forwards {
  using forwards::forwards;
  void all_gather(host_arena& memory, agent stream, std::byte* whole, const shares& parts, std::uint32_t label) override
  {
    memory.fill(whole, std::byte{0}, bytes{parts.whole}, stream);
    inner.all_gather(memory, stream, whole, parts, label);
  }
};
/// Rounds a run up to whole units, and clears what is behind it.
struct clears_behind_the_run : forwards {
  using forwards::forwards;
  void all_gather(host_arena& memory, agent stream, std::byte* whole, const shares& parts, std::uint32_t label) override
  {
    inner.all_gather(memory, stream, whole, parts, label);
    memory.fill(whole + parts.whole, std::byte{0}, bytes{8}, stream);
  }
};
/// Spreads what rank 0 has.
struct broadcasts_from_rank_zero : forwards {
  using forwards::forwards;
  void broadcast(host_arena& memory, agent stream, std::byte* place, bytes size, rank_id, std::uint32_t label) override
  {
    inner.broadcast(memory, stream, place, size, rank_id{0}, label);
  }
};
/// Sends whole words.
struct sends_whole_words : forwards {
  using forwards::forwards;
  void send(host_arena& memory, agent stream, std::byte* place, bytes size, rank_id to, std::uint32_t label) override
  {
    inner.send(memory, stream, place, bytes{size.count() / 4 * 4}, to, label);
  }
  void receive(host_arena& memory, agent stream, std::byte* place, bytes size, rank_id from,
               std::uint32_t label) override
  {
    inner.receive(memory, stream, place, bytes{size.count() / 4 * 4}, from, label);
  }
};
/// Gives the words of all ranks with its own ones first.
struct puts_its_words_first : forwards {
  using forwards::forwards;
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all) override
  {
    inner.exchange(mine, all);
    std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(mine.size() * index_of(rank())), all.end());
  }
};
/// Returns when all ranks have come.
struct waits_inside : forwards {
  using forwards::forwards;
  void barrier(host_arena& memory, agent stream, std::uint32_t label) override
  {
    inner.barrier(memory, stream, label);
    memory.wait(agent::host, memory.record(stream));
  }
};
/// Gives all work to one agent, whatever group it is for.
struct has_one_agent_for_all : forwards {
  using forwards::forwards;
  void all_gather(host_arena& memory, agent, std::byte* whole, const shares& parts, std::uint32_t label) override
  {
    inner.all_gather(memory, agent::to_device, whole, parts, label);
  }
};
/// Compares sizes, and no labels.
struct drops_labels : forwards {
  using forwards::forwards;
  void all_reduce(host_arena& memory, agent stream, std::byte* whole, const shares& parts, sum how,
                  std::uint32_t) override
  {
    inner.all_reduce(memory, stream, whole, parts, how, 0);
  }
};
/// Clears the place of a sum that has a new label, here 4, before the ranks have compared it.
struct moves_before_it_compares : forwards {
  using forwards::forwards;
  void all_reduce(host_arena& memory, agent stream, std::byte* whole, const shares& parts, sum how,
                  std::uint32_t label) override
  {
    memory.fill(whole, std::byte{0}, bytes{parts.whole != 0 && label == 4 ? 1U : 0U}, stream);
    inner.all_reduce(memory, stream, whole, parts, how, label);
  }
};
/// Has no barrier: sums are barriers enough.
struct has_no_barrier : forwards {
  using forwards::forwards;
  void barrier(host_arena&, agent, std::uint32_t) override {}
};
/// Leaves it to the next call to throw.
struct checks_nothing : forwards {
  using forwards::forwards;
  void check() override {}
};
/// Tells of every failure as a loss of a peer.
struct forgets_the_cause : forwards {
  using forwards::forwards;
  void check() override
  {
    try {
      inner.check();
    } catch (const comm_error& error) {
      throw comm_error{error_text{} << error.what(), {.failure = comm_failure::peer_lost}};
    }
  }
};
/// Lets a failed group go on with words.
struct exchanges_after_a_failure : forwards {
  using forwards::forwards;
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all) override
  {
    try {
      inner.exchange(mine, all);
    } catch (const comm_error&) {
      std::fill(all.begin(), all.end(), 0);
    }
  }
};
/// Leaves the end of a group to destructors.
struct revokes_nothing : forwards {
  using forwards::forwards;
  void revoke() noexcept override {}
};

/// Ranks that are threads, with communicators of a kind that is chosen when the program runs, so that the laws are
/// compiled once.
struct harness {
  using stage = support::rank_stage<forwards, host_arena>;
  using maker = std::unique_ptr<forwards> (*)(const collective::thread_group& group, rank_id rank);

  maker make;
  bool ends_soon = false;
  std::vector<std::uint32_t> worlds{1, 2, 3};

  std::vector<std::string> run(std::uint32_t ranks, call_ref<void(stage&)> body) const
  {
    std::vector<std::string> complaints(ranks);
    // Two of the communicators above let ranks wait for each other: the deadline ends that.
    const collective::thread_group_options options{.deadline = ends_soon ? 2'000'000'000U : 60'000'000'000U};
    const collective::thread_group group{ranks, options};
    const collective::thread_group second{ranks, options};
    support::on_ranks(ranks, [&](std::uint32_t rank) {
      complaints[rank] = support::complaint_of([&] {
        host_arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
        const std::unique_ptr<forwards> one = make(group, rank_id{rank});
        const std::unique_ptr<forwards> two = make(second, rank_id{rank});
        stage here{.ranks = *one, .others = *two, .backend = memory};
        body(here);
        return here.complaint;
      });
    });
    return complaints;
  }
};

template <class Communicator>
std::unique_ptr<forwards> made(const collective::thread_group& group, rank_id rank)
{
  return std::make_unique<Communicator>(group, rank);
}

template <class Communicator>
laws::verdict judge(std::string_view law, bool ends_soon = false)
{
  return {laws::name_of<Communicator>(), law,
          conformance::mistake_in_communicator(harness{made<Communicator>, ends_soon})};
}

}  // namespace

TEST_CASE("the laws of communicators hold for one that forwards", "[laws][communicator]")
{
  CHECK(conformance::mistake_in_communicator(harness{made<forwards>}) == "");
}

}  // namespace wrong_communicators_test

const laws::verdicts& laws::wrong_communicators()
{
  using namespace wrong_communicators_test;
  static const verdicts all{
      judge<forgets_the_scale>("left a wrong byte"),
      judge<does_nothing_alone>("left a wrong byte"),
      judge<adds_words>("left a wrong byte"),
      judge<adds_shares_only>("left a wrong byte"),
      judge<clears_before_it_gathers>("left a wrong byte"),
      judge<clears_behind_the_run>("bytes beside the run changed"),
      judge<broadcasts_from_rank_zero>("left a wrong byte"),
      judge<sends_whole_words>("left a wrong byte"),
      judge<puts_its_words_first>("exchange gave a wrong word"),
      judge<waits_inside>("words of callers did not pass while agents wait", true),
      judge<has_one_agent_for_all>("two groups of the same ranks disturb each other", true),
      judge<drops_labels>("bytes changed though ranks asked for different things"),
      judge<moves_before_it_compares>("bytes changed though ranks asked for different things"),
      judge<has_no_barrier>("barrier of a failed group does not throw the first cause"),
      judge<checks_nothing>("check of a failed group does not throw the first cause"),
      judge<forgets_the_cause>("check of a failed group does not throw the first cause"),
      judge<exchanges_after_a_failure>("exchange of a failed group does not throw the first cause"),
      judge<revokes_nothing>("check of a failed group does not throw the first cause"),
  };
  return all;
}
