// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <conformance/memory_backend.hpp>
#include <support/catch.hpp>
#include <support/hostile.hpp>
#include <support/rank_schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// The laws of a communicator, for ranks that are threads or processes. A harness has `worlds`, the numbers of ranks to
// try, and `run(ranks, body)`, which calls `body(stage)` on every rank with new communicators and returns the complaint
// of each; a stage is like support::rank_stage. Bodies use only the communicator to talk.
namespace conformance {

/// Bytes of one rank on its device between two guards, which nothing may touch.
template <class Stage>
class rank_memory {
 public:
  rank_memory(Stage& stage, const support::rank_bytes& content)
      : at_{&stage},
        size_{content.size()},
        memory_{stage.backend, chunkmem::tier::device, chunkmem::bytes{size_ + 2 * guard}}
  {
    stage.backend.fill(memory_.data(), mark, chunkmem::bytes{size_ + 2 * guard});
    stage.backend.copy(data(), content.data(), chunkmem::bytes{size_});
  }
  [[nodiscard]] std::byte* data() const noexcept { return memory_.data() + guard; }
  /// Waits for all work of the stage's agents.
  [[nodiscard]] support::rank_bytes now() const
  {
    at_->finish();
    const auto all = contents(at_->backend, memory_.data(), size_ + 2 * guard);
    for (std::uint64_t index = 0; index < guard; ++index)
      at_->expect(all[index] == mark && all[guard + size_ + index] == mark, "bytes beside the run changed", index);
    return {all.begin() + guard, all.end() - guard};
  }

 private:
  static constexpr std::uint64_t guard = 64;
  static constexpr std::byte mark{0xA5};

  Stage* at_;
  std::uint64_t size_;
  block<std::remove_reference_t<decltype(std::declval<Stage&>().backend)>> memory_;
};

/// Every rank makes one call on random bytes; the results are those of the model.
template <class Stage>
void does_as_the_model(Stage& stage, const support::rank_call& it, std::uint64_t seed)
{
  using chunkmem::collective::operation;
  const std::uint32_t ranks = stage.ranks.ranks();
  std::vector<support::rank_bytes> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    all.push_back(support::bytes_of_rank(it.type, it.size, rank, seed));
  const rank_memory<Stage> mine{stage, all[stage.rank()]};
  support::give(stage.ranks, stage.backend, stage.stream, mine.data(), it);
  support::play(all, it);
  const support::rank_bytes found = mine.now();
  stage.ranks.check();
  const auto parts = chunkmem::collective::shares::of(chunkmem::bytes{it.size}, ranks);
  const bool is_own_only = it.what == operation::reduce_scatter;
  const std::uint64_t begin = is_own_only ? parts.begin(stage.rank()) : 0;
  const std::uint64_t end = is_own_only ? parts.end(stage.rank()) : it.size;
  for (std::uint64_t byte = begin; byte < end; ++byte)
    stage.expect(found[byte] == all[stage.rank()][byte],
                 std::string{name_of(it.what)} + " of " + std::to_string(it.size) + " B of " +
                     std::string{name_of(it.type)} + " left a wrong byte",
                 byte);
}

/// None, less than a unit, one unit, uneven and empty shares, equal shares, a last one that is empty.
[[nodiscard]] inline std::vector<std::uint64_t> run_sizes(std::uint32_t ranks)
{
  const std::uint64_t unit = chunkmem::tensor_alignment.count();
  return {0, 4, unit, unit * ranks - 4, unit * ranks, unit * ranks + 4};
}

/// Laws 2 and 3.
template <class Stage>
void moves_and_adds_shares(Stage& stage)
{
  using chunkmem::dtype;
  using chunkmem::collective::operation;
  std::uint64_t seed = 0;
  for (const std::uint64_t size : run_sizes(stage.ranks.ranks())) {
    does_as_the_model(stage, {.what = operation::all_gather, .size = size}, ++seed);
    for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16})
      for (const operation what : {operation::reduce_scatter, operation::all_reduce})
        for (const float scale : {1.0F, 1.0F / static_cast<float>(stage.ranks.ranks())})
          does_as_the_model(stage, {.what = what, .size = size, .type = type, .label = 3, .scale = scale}, ++seed);
  }
}

/// Law 4.
template <class Stage>
void moves_from_each_root(Stage& stage)
{
  using chunkmem::collective::operation;
  const std::uint32_t ranks = stage.ranks.ranks();
  for (std::uint32_t root = 0; root < ranks; ++root) {
    for (const std::uint64_t size : {0U, 1U, 333U})
      does_as_the_model(stage, {.what = operation::broadcast, .size = size, .root = root}, root);
    if (ranks == 1) continue;
    // A ring: each rank in turn sends to the next one.
    for (const std::uint64_t size : {0U, 1U, 333U})
      does_as_the_model(
          stage, {.what = operation::send, .size = size, .root = root, .peer = (root + 1) % ranks, .label = root},
          root + 100);
  }
  if (ranks == 1) return;
  // All at once: a send may wait for its receive, so ranks of even and odd numbers begin differently.
  const rank_memory<Stage> out{stage, support::rank_bytes(50, std::byte(stage.rank()))};
  const rank_memory<Stage> in{stage, support::rank_bytes(50, std::byte{99})};
  const std::uint32_t next = (stage.rank() + 1) % ranks;
  const std::uint32_t before = (stage.rank() + ranks - 1) % ranks;
  const auto send = [&] {
    stage.ranks.send(stage.backend, stage.stream, out.data(), chunkmem::bytes{50}, chunkmem::rank_id{next}, 1);
  };
  if (stage.rank() % 2 == 0) send();
  stage.ranks.receive(stage.backend, stage.stream, in.data(), chunkmem::bytes{50}, chunkmem::rank_id{before}, 1);
  if (stage.rank() % 2 == 1) send();
  stage.expect(in.now() == support::rank_bytes(50, std::byte(before)), "a ring of sends left wrong bytes");
}

/// Law 5: words of callers pass while agents wait.
template <class Stage>
void exchanges_beside_agents(Stage& stage)
{
  const std::uint32_t ranks = stage.ranks.ranks();
  try {
    for (std::uint64_t words = 0; words < 40; words = 2 * words + 1) {
      if (stage.rank() == 0)
        stage.ranks.barrier(stage.backend, stage.stream, 1);  // its agent waits until the words have passed
      std::vector<std::uint64_t> mine(words, stage.rank() * 1'000 + words);
      std::vector<std::uint64_t> all(words * ranks, 7);
      stage.ranks.exchange(mine, all);
      for (std::uint64_t place = 0; place < all.size(); ++place)
        stage.expect(all[place] == place / words * 1'000 + words, "exchange gave a wrong word", place);
      if (stage.rank() != 0) stage.ranks.barrier(stage.backend, stage.stream, 1);
    }
    stage.finish();
    stage.ranks.check();
  } catch (const chunkmem::comm_error& error) {
    stage.expect(false, std::string{"words of callers did not pass while agents wait: "} + error.what());
  }
}

/// All laws at once: a schedule without waits, with fresh bytes and checks now and then.
template <class Stage>
void plays_schedule(Stage& stage, std::uint64_t seed, std::size_t calls)
{
  const std::uint32_t ranks = stage.ranks.ranks();
  std::vector<support::rank_bytes> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    all.push_back(support::bytes_of_rank(chunkmem::dtype::float32, support::schedule_room, rank, seed));
  const rank_memory<Stage> mine{stage, all[stage.rank()]};
  std::uint64_t number = 0;
  for (const support::rank_call& it : support::random_schedule(seed, ranks, calls)) {
    support::give(stage.ranks, stage.backend, stage.stream, mine.data(), it);
    support::play(all, it);
    if (++number % 16 != 0) continue;
    stage.expect(mine.now() == all[stage.rank()], "wrong bytes after so many calls", number);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      all[rank] = support::bytes_of_rank(number % 32 == 0 ? chunkmem::dtype::float32 : chunkmem::dtype::bfloat16,
                                         support::schedule_room, rank, seed + number);
    stage.backend.copy(mine.data(), all[stage.rank()].data(), chunkmem::bytes{support::schedule_room});
  }
  stage.expect(mine.now() == all[stage.rank()], "wrong bytes at the end", number);
  stage.ranks.check();
}

/// Two groups of the same ranks on two agents of each do not disturb each other, in whatever order they are given work.
template <class Stage>
void works_beside_another(Stage& stage)
{
  using chunkmem::collective::operation;
  const std::uint32_t ranks = stage.ranks.ranks();
  const support::rank_call sum{
      .what = operation::all_reduce, .size = 1'500, .type = chunkmem::dtype::float32, .scale = 0.25F};
  const support::rank_call gather{.what = operation::all_gather, .size = 1'316};
  std::vector<support::rank_bytes> one;
  std::vector<support::rank_bytes> two;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    one.push_back(support::bytes_of_rank(chunkmem::dtype::float32, 1'600, rank, 1));
    two.push_back(support::bytes_of_rank(chunkmem::dtype::uint8, 1'600, rank, 2));
  }
  const rank_memory<Stage> here{stage, one[stage.rank()]};
  const rank_memory<Stage> there{stage, two[stage.rank()]};
  try {
    for (std::uint32_t round = 0; round < 20; ++round) {
      const bool is_first = (round + stage.rank()) % 2 == 0;
      if (is_first) support::give(stage.ranks, stage.backend, stage.stream, here.data(), sum);
      support::give(stage.others, stage.backend, stage.other, there.data(), gather);
      if (!is_first) support::give(stage.ranks, stage.backend, stage.stream, here.data(), sum);
      support::play(one, sum);
      support::play(two, gather);
    }
    stage.finish();
    stage.ranks.check();
    stage.others.check();
  } catch (const chunkmem::comm_error& error) {
    stage.finish();  // before the places end
    stage.expect(false, std::string{"two groups of the same ranks disturb each other: "} + error.what());
    return;
  }
  stage.expect(here.now() == one[stage.rank()], "the first of two groups left wrong bytes");
  stage.expect(there.now() == two[stage.rank()], "the second of two groups left wrong bytes");
}

/// True where `call()` throws a comm_error of this kind.
[[nodiscard]] inline bool fails_as(chunkmem::comm_failure kind, chunkmem::call_ref<void()> call)
{
  try {
    call();
  } catch (const chunkmem::comm_error& error) {
    return error.fault().failure == kind && std::string{error.what()}.starts_with("chunkmem: ");
  }
  return false;
}

/// Law 7: every call of a failed group throws. It ends with the first call that does not, since the work of that call
/// on an agent would use freed memory.
template <class Stage>
void all_calls_fail(Stage& stage, chunkmem::comm_failure kind)
{
  std::byte place[8]{};
  std::vector<std::uint64_t> all(stage.ranks.ranks());
  const std::uint64_t word[1]{};
  const auto parts = chunkmem::collective::shares::of(chunkmem::bytes{8}, stage.ranks.ranks());
  const chunkmem::rank_id next{(stage.rank() + 1) % stage.ranks.ranks()};
  auto& ranks = stage.ranks;
  auto& memory = stage.backend;
  const chunkmem::bytes size{8};
  const auto fails = [&](const char* what, chunkmem::call_ref<void()> call) {
    const bool does = fails_as(kind, call);
    stage.expect(does, std::string{what} + " of a failed group does not throw the first cause");
    return does;
  };
  (void)(fails("check", [&] { ranks.check(); }) &&
         fails("all_gather", [&] { ranks.all_gather(memory, stage.stream, place, parts, 0); }) &&
         fails("reduce_scatter", [&] { ranks.reduce_scatter(memory, stage.stream, place, parts, {}, 0); }) &&
         fails("all_reduce", [&] { ranks.all_reduce(memory, stage.stream, place, parts, {}, 0); }) &&
         fails("broadcast", [&] { ranks.broadcast(memory, stage.stream, place, size, next, 0); }) &&
         fails("send", [&] { ranks.send(memory, stage.stream, place, size, next, 0); }) &&
         fails("receive", [&] { ranks.receive(memory, stage.stream, place, size, next, 0); }) &&
         fails("barrier", [&] { ranks.barrier(memory, stage.stream, 0); }) &&
         fails("exchange", [&] { ranks.exchange(word, all); }));
  try {
    stage.finish();                        // before the places end
  } catch (const chunkmem::comm_error&) {  // it had failed
  }
}

/// Law 6: the last rank makes another call than the others.
template <class Stage>
void refuses_a_difference(Stage& stage, const support::rank_call& asked, const support::rank_call& other)
{
  const bool is_other = stage.rank() + 1 == stage.ranks.ranks();
  const auto before = support::bytes_of_rank(chunkmem::dtype::uint8, support::schedule_room, stage.rank(), 5);
  const rank_memory<Stage> mine{stage, before};
  try {
    support::give(stage.ranks, stage.backend, stage.stream, mine.data(), is_other ? other : asked);
  } catch (const chunkmem::comm_error&) {  // the others were faster
  }
  stage.expect(mine.now() == before, "bytes changed though ranks asked for different things");
  all_calls_fail(stage, chunkmem::comm_failure::mismatch);
}

/// Law 8.
template <class Stage>
void ends_by_revoke(Stage& stage)
{
  try {
    if (stage.rank() == 0)
      stage.ranks.revoke();
    else
      stage.ranks.barrier(stage.backend, stage.stream, 0);
  } catch (const chunkmem::comm_error&) {  // revoked before it asked
  }
  stage.finish();
  if (stage.rank() != 0) all_calls_fail(stage, chunkmem::comm_failure::revoked);
}
template <class Stage>
void ends_by_a_loss(Stage& stage)
{
  if (stage.rank() == 0) return;  // and its communicator ends
  try {
    stage.ranks.barrier(stage.backend, stage.stream, 0);
  } catch (const chunkmem::comm_error&) {
  }
  stage.finish();
  all_calls_fail(stage, chunkmem::comm_failure::peer_lost);
}

// The attempts of the suite: `attempt(ranks, body)` runs the body in the harness, and checks the complaints of the
// ranks.

/// Laws 1 to 5.
template <class Harness, class Attempt>
void attempt_moves(const Harness& harness, Attempt attempt)
{
  using stage = typename Harness::stage;
  for (const std::uint32_t ranks : harness.worlds)
    attempt(ranks, [](stage& this_stage) { moves_and_adds_shares(this_stage); });
  for (const std::uint32_t ranks : harness.worlds)
    attempt(ranks, [](stage& this_stage) { moves_from_each_root(this_stage); });
  for (const std::uint32_t ranks : harness.worlds)
    attempt(ranks, [](stage& this_stage) { exchanges_beside_agents(this_stage); });
  for (const std::uint32_t ranks : harness.worlds)
    attempt(ranks, [](stage& this_stage) { works_beside_another(this_stage); });
}

/// Laws 6 to 8, of each harness with two or more ranks.
template <class Harness, class Attempt>
void attempt_failures(const Harness& harness, Attempt attempt)
{
  using chunkmem::collective::operation;
  using stage = typename Harness::stage;
  const support::rank_call asked{
      .what = operation::all_reduce, .size = 256, .type = chunkmem::dtype::float16, .label = 3, .scale = 0.5F};
  std::vector<support::rank_call> others(7, asked);
  others[0].what = operation::reduce_scatter;
  others[1].size = 260;
  others[2].type = chunkmem::dtype::bfloat16;
  others[3].label = 4;
  others[4].scale = 1;
  others[5] = {.what = operation::barrier, .label = 3};
  others[6] = {.what = operation::send, .size = 256, .root = 0, .label = 3};
  for (const std::uint32_t ranks : harness.worlds) {
    if (ranks < 2) continue;
    others[6].peer = ranks - 1;
    for (const support::rank_call& other : others)
      attempt(ranks, [&](stage& this_stage) { refuses_a_difference(this_stage, asked, other); });
    const support::rank_call from_0{.what = operation::broadcast, .size = 99, .root = 0};
    const support::rank_call from_1{.what = operation::broadcast, .size = 99, .root = 1};
    attempt(ranks, [&](stage& this_stage) { refuses_a_difference(this_stage, from_0, from_1); });
    attempt(ranks, [](stage& this_stage) { ends_by_revoke(this_stage); });
    attempt(ranks, [](stage& this_stage) { ends_by_a_loss(this_stage); });
  }
}

/// Every rank's complaint is one assertion of the running test case; all attempts are made, since ranks may be
/// processes.
template <class Harness>
[[nodiscard]] auto checked_by(const Harness& harness)
{
  return [&harness](std::uint32_t ranks, chunkmem::call_ref<void(typename Harness::stage&)> body) {
    for (const std::string& complaint : harness.run(ranks, body)) CHECK(complaint == "");
  };
}

template <class Harness, class Body>
void on_each_world(const Harness& harness, Body body)
{
  for (const std::uint32_t ranks : harness.worlds) checked_by(harness)(ranks, body);
}

/// Laws 1 to 5.
template <class Harness>
void communicator_moves_bytes(const Harness& harness)
{
  attempt_moves(harness, checked_by(harness));
}

template <class Harness>
void communicator_plays_schedules(const Harness& harness, std::uint64_t seed, std::size_t calls)
{
  CAPTURE(seed);
  on_each_world(harness, [=](typename Harness::stage& at) { plays_schedule(at, seed, calls); });
}

/// Laws 6 to 8, of each harness with two or more ranks.
template <class Harness>
void communicator_fails_for_all(const Harness& harness)
{
  attempt_failures(harness, checked_by(harness));
}

/// The broken law of a communicator, by the first rank that noticed; empty: none. For ranks of one process:
/// attempts end with the first complaint.
template <class Harness>
[[nodiscard]] std::string mistake_in_communicator(const Harness& harness)
{
  std::string mistake;
  const auto attempt = [&](std::uint32_t ranks, chunkmem::call_ref<void(typename Harness::stage&)> body) {
    if (!mistake.empty()) return;
    for (const std::string& complaint : harness.run(ranks, body))
      if (mistake.empty()) mistake = complaint;
  };
  attempt_moves(harness, attempt);
  for (const std::uint32_t ranks : harness.worlds)
    attempt(ranks, [](typename Harness::stage& at) { plays_schedule(at, 1, 40); });
  attempt_failures(harness, attempt);
  return mistake;
}

}  // namespace conformance
