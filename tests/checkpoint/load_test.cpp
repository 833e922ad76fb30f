// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/load.hpp>

#include "rig.hpp"

#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <support/count_allocations.hpp>
#include <support/emulated.hpp>
#include <support/every_policy.hpp>
#include <support/fake_device.hpp>
#include <support/figures.hpp>
#include <support/forked_child.hpp>
#include <support/oracles/dice.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iostream>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

template struct checkpoints::rig<checkpoints::arena_manager, checkpoints::arena, chunkmem::bf16>;
template struct checkpoints::rig<checkpoints::arena_manager, checkpoints::arena, float>;

namespace load_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

namespace {

constexpr std::uint32_t saved_at = 3;
constexpr std::uint32_t steps = 6;

/// The settings after each resume: other capacities, layouts, sizes of chunks, evictions and places of gradients.
constexpr surroundings elsewhere[] = {
    {.chunk = 4_KiB},
    {.chunk = 8_KiB, .device = 64_KiB, .eviction = "cost_aware", .layout = "size_class_layout"},
    {.chunk = 16_KiB, .device = 128_KiB, .eviction = "lru", .in_place = true},
};

template <class Element>
void resume_everywhere(mixed::precision kind)
{
  const mixed::recipe how = recipe_for(kind, steps);
  const mixed::outcome right = uninterrupted<Element>(how);
  temporary_folder place;
  posix_folder folder{place.path()};
  for (surroundings around : elsewhere) {
    if (sizeof(Element) == 4) around.in_place = false;
    arena_rig<Element> before{around, how};
    before.m.content().belongs_to(1);
    before.initialise();
    before.train(saved_at);
    const auto saved = checkpoint::save(before.m, folder, {.file_size = 16_KiB});
    CHECK(saved.files > 1);
    const mixed::outcome then = before.values();
    auto background = checkpoint::save_async(before.m, folder);
    before.train(steps);
    CHECK(background.wait().number == saved.number + 1);
    CHECK(right.difference(before.values()) == "");  // a save changes nothing
    for (surroundings other : elsewhere) {
      if (sizeof(Element) == 4) other.in_place = false;
      INFO("chunks of " << around.chunk.count() << " B, then of " << other.chunk.count() << " B");
      arena_rig<Element> after{other, how};
      const auto found = checkpoint::load(after.m, folder);
      CHECK(found.number == saved.number + 1);
      CHECK(found.skipped.empty());
      CHECK(after.cursor == saved_at);
      CHECK(then.difference(after.values()) == "");
      after.train(steps);
      CHECK(right.difference(after.values()) == "");
    }
  }
}

/// A model of one 16-bit weight and one buffer.
template <class Weight>
struct one_weight {
  explicit one_weight(std::vector<cm::list_spec> lists = {}, std::uint64_t rows = 3)
      : m{memory, {.chunk_bytes = 4_KiB}},
        lists_{std::move(lists)},
        weight{m.template add<Weight>({rows, 5}, cm::role::parameter)},
        buffer{m.template add<std::int32_t>({7}, cm::role::buffer)}
  {
    m.name(weight, "weight");
    m.use(lists_);
    m.state("turn", std::as_writable_bytes(std::span{&turn, 1}));
  }
  void fill(float value)
  {
    for (auto& it : m.acquire(weight, cm::access::write).span()) it = cm::round_to<Weight>(value);
    for (auto& it : m.acquire(buffer, cm::access::write).span()) it = -4;
  }
  [[nodiscard]] float first() { return cm::to_float(m.acquire(weight, cm::access::read).span()[0]); }

  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m;
  std::vector<cm::list_spec> lists_;
  cm::tensor<Weight> weight;
  cm::tensor<std::int32_t> buffer;
  int turn = 0;
};

constexpr cm::list_spec momentum{"momentum", cm::dtype::float32};
constexpr cm::list_spec half_momentum{"momentum", cm::dtype::bfloat16};

template <class Weight>
void fill_list(one_weight<Weight>& model, std::string_view list, float value)
{
  const auto pin =
      model.m.template acquire<float>(model.weight, model.m.list(list), cm::access::write, cm::memory_location::host);
  for (float& it : pin.span()) it = value;
}

/// The newest file with this ending, changed in one byte.
void damage(const std::string& folder, const std::string& end)
{
  std::filesystem::path newest;
  for (const auto& entry : std::filesystem::directory_iterator{folder})
    if (entry.path().string().ends_with(end)) newest = std::max(newest, entry.path());
  std::fstream file{newest, std::ios::in | std::ios::out | std::ios::binary};
  file.seekg(-20, std::ios::end);
  const auto at = file.tellg();
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 4));
}

}  // namespace

TEST_CASE("training goes on with the same bits in other surroundings", "[checkpoint]")
{
  SECTION("fp32")
  {
    resume_everywhere<float>(mixed::precision::fp32);
  }
  SECTION("bf16")
  {
    resume_everywhere<cm::bf16>(mixed::precision::bf16);
  }
}

TEST_CASE("a checkpoint goes through a device that the calling thread cannot read", "[checkpoint]")
{
  using device = support::fake_device;
  temporary_folder place;
  posix_folder folder{place.path()};
  one_weight<cm::bf16> before{{cm::master_list, momentum}};
  before.fill(1.0F);
  fill_list(before, "master", 1.0F / 3.0F);
  fill_list(before, "momentum", 0.25F);
  (void)checkpoint::save(before.m, folder);

  device memory{support::fake_device_options{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<device, support::every_eviction> m{memory, {.chunk_bytes = 8_KiB}};
  const auto weight = m.add<cm::bf16>({3, 5}, cm::role::parameter);
  m.name(weight, "weight");
  (void)m.add<std::int32_t>({7}, cm::role::buffer);
  m.use(before.lists_);
  int turn = 0;
  m.state("turn", std::as_writable_bytes(std::span{&turn, 1}));
  (void)checkpoint::load(m, folder);
  m.acquire(weight, cm::access::read, cm::agent::compute).release();  // now it is on the device
  (void)checkpoint::save(m, folder);

  one_weight<cm::bf16> after{{cm::master_list, momentum}};
  CHECK(checkpoint::load(after.m, folder).number == 2);
  CHECK(after.first() == cm::to_float(cm::round_to<cm::bf16>(1.0F / 3.0F)));
  CHECK(after.m.acquire<float>(after.weight, after.m.list("momentum"), cm::access::read, cm::memory_location::host)
            .span()[14] == 0.25F);
}

TEST_CASE("a damaged generation is skipped and reported, and an older one is taken", "[checkpoint]")
{
  for (const char* const which : {".manifest", ".safetensors"}) {
    temporary_folder place;
    posix_folder folder{place.path()};
    one_weight<float> model;
    for (const float value : {1.0F, 2.0F, 3.0F}) {
      model.fill(value);
      (void)checkpoint::save(model.m, folder, {.keep = 3});
    }
    damage(place.path(), which);
    one_weight<float> again;
    const auto found = checkpoint::load(again.m, folder);
    CHECK(found.number == 2);
    REQUIRE(found.skipped.size() == 1);
    CHECK(found.skipped[0].number == 3);
    CHECK(found.skipped[0].why.find("damaged") != std::string::npos);
    CHECK(again.first() == 2.0F);
  }
}

TEST_CASE("a fresh start has to be allowed, and is none where a generation is damaged", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  one_weight<float> model;
  CHECK_THROWS_AS(checkpoint::load(model.m, folder), cm::io_error);
  CHECK(checkpoint::load(model.m, folder, {.allow_fresh_start = true}).number == 0);
  model.fill(1.0F);
  (void)checkpoint::save(model.m, folder);
  damage(place.path(), ".manifest");
  CHECK_THROWS_AS(checkpoint::load(model.m, folder, {.allow_fresh_start = true}), cm::io_error);
}

TEST_CASE("element types of values and lists may be others", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  one_weight<cm::bf16> model{{cm::master_list, momentum}};
  model.fill(1.0F);
  fill_list(model, "master", 1.0F / 3.0F);
  fill_list(model, "momentum", 0.1F);
  (void)checkpoint::save(model.m, folder);

  one_weight<float> full{{momentum}};
  (void)checkpoint::load(full.m, folder);
  CHECK(full.first() == 1.0F / 3.0F);

  one_weight<cm::fp16> half{{cm::master_list, half_momentum}};
  (void)checkpoint::load(half.m, folder);
  CHECK(half.first() == cm::to_float(cm::round_to<cm::fp16>(1.0F / 3.0F)));
  CHECK(half.m.acquire<float>(half.weight, half.m.list("master"), cm::access::read, cm::memory_location::host)
            .span()[14] == 1.0F / 3.0F);
  const auto moment =
      half.m.acquire<cm::bf16>(half.weight, half.m.list("momentum"), cm::access::read, cm::memory_location::host);
  CHECK(cm::to_float(moment.span()[0]) == cm::to_float(cm::round_to<cm::bf16>(0.1F)));
}

TEST_CASE("a load into a narrower type refuses what would become infinite, and counts what became zero", "[checkpoint]")
{
  using Catch::Matchers::ContainsSubstring;
  using checkpoint::rounded_numbers;
  temporary_folder place;
  posix_folder folder{place.path()};
  one_weight<float> model{{momentum}};
  model.fill(1e5F);
  fill_list(model, "momentum", 1e-44F);
  (void)checkpoint::save(model.m, folder);

  one_weight<cm::fp16> plain{{half_momentum}};  // without a master: nothing is written
  plain.fill(3.0F);
  const std::uint64_t elements = plain.m.acquire(plain.weight, cm::access::read).size();
  CHECK_THROWS_WITH(checkpoint::load(plain.m, folder),
                    ContainsSubstring("of the elements of ") && ContainsSubstring("would be infinite in float16"));
  CHECK(plain.first() == 3.0F);
  CHECK(checkpoint::load(plain.m, folder, {.allow_overflow = true}).rounded ==
        rounded_numbers{.overflows = elements, .underflows = elements});
  CHECK(std::isinf(plain.first()));

  one_weight<cm::fp16> half{{cm::master_list, momentum}};  // a weight that is made from its master
  half.fill(3.0F);
  CHECK_THROWS_AS(checkpoint::load(half.m, folder), cm::config_error);
  CHECK_THROWS_AS(half.first(), cm::usage_error);  // it had begun: no tensor has bytes
  CHECK(checkpoint::load(half.m, folder, {.allow_overflow = true}).rounded == rounded_numbers{.overflows = elements});
  one_weight<cm::bf16> brain{{cm::master_list, momentum}};
  CHECK(checkpoint::load(brain.m, folder).rounded == rounded_numbers{});
}

TEST_CASE("a checkpoint of another model is refused before anything is changed", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  {
    one_weight<float> model{{momentum}};
    model.fill(1.0F);
    fill_list(model, "momentum", 0.5F);
    (void)checkpoint::save(model.m, folder);
  }
  const auto refused = [&](auto& other, const char* why) {
    other.fill(7.0F);
    other.turn = 3;
    CHECK_THAT(support::refusal<cm::config_error>([&] { (void)checkpoint::load(other.m, folder); }),
               Catch::Matchers::ContainsSubstring(why));
    CHECK(other.first() == 7.0F);
    CHECK(other.turn == 3);
  };
  one_weight<float> without_list;
  refused(without_list, "this model does not have: momentum/weight");
  one_weight<float> more_lists{{momentum, {"variance"}}};
  refused(more_lists, "it does not have: variance/weight");
  one_weight<float> other_shape{{momentum}, 4};
  refused(other_shape, "another shape: ");
  one_weight<float> other_version{{{"momentum", cm::dtype::float32, 2}}};
  refused(other_version, "another version of a list: momentum");
  one_weight<float> other_state{{momentum}};
  int more = 0;
  other_state.m.state("more", std::as_writable_bytes(std::span{&more, 1}));
  refused(other_state, "it does not have: state/more");
  one_weight<std::int32_t> other_type{{momentum}};
  CHECK_THAT(support::refusal<cm::config_error>([&] { (void)checkpoint::load(other_type.m, folder); }),
             Catch::Matchers::ContainsSubstring("another element type: "));
}

TEST_CASE("tensors without bytes are saved as such", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  one_weight<float> model{{momentum}};
  for (auto& it : model.m.acquire(model.weight, cm::access::write).span()) it = 2.0F;
  (void)checkpoint::save(model.m, folder);  // without the buffer, and without a momentum

  one_weight<float> fresh{{momentum}};
  (void)checkpoint::load(fresh.m, folder);
  CHECK(fresh.first() == 2.0F);
  CHECK_THROWS_AS(fresh.m.acquire(fresh.buffer, cm::access::read), cm::usage_error);

  one_weight<float> used{{momentum}};
  for (auto& it : used.m.acquire(used.weight, cm::access::write).span()) it = 1.0F;
  fill_list(used, "momentum", 9.0F);
  (void)checkpoint::load(used.m, folder);
  CHECK(used.m.acquire<float>(used.weight, used.m.list("momentum"), cm::access::read, cm::memory_location::host)
            .span()[0] == 0.0F);

  one_weight<float> filled{{momentum}};
  filled.fill(1.0F);
  CHECK_THROWS_AS(checkpoint::load(filled.m, folder), cm::config_error);
}

TEST_CASE("a state that the model does not have, or has in another size, is refused by name", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  std::array<int, 2> turns{1, 2};
  model.m.state("turns", std::as_writable_bytes(std::span{turns}));
  (void)checkpoint::save(model.m, folder);
  const auto refusal = [&](small_model& other) {
    other.fill(7.0F);
    try {
      (void)checkpoint::load(other.m, folder, {.allow_fresh_start = true});
      return std::string{"it was loaded"};
    } catch (const cm::config_error& refused) {
      CHECK(other.holds(7.0F));
      return std::string{refused.what()};
    }
  };
  small_model without;
  CHECK(refusal(without).find("this model does not have: state/turns") != std::string::npos);
  small_model shorter;
  int turn = 5;
  shorter.m.state("turns", std::as_writable_bytes(std::span{&turn, 1}));
  CHECK(refusal(shorter).find("another shape: state/turns") != std::string::npos);
  CHECK(turn == 5);
}

TEST_CASE("saving and loading take a few blocks of memory, however large tensors are", "[checkpoint]")
{
  if (!support::counts_allocations) SKIP("allocations are not counted here");
  temporary_folder place;
  posix_folder folder{place.path()};
  const auto trained = [&](auto element, bool saves) {
    using Element = decltype(element);
    arena memory{{.device_capacity = 40_MiB, .host_capacity = 40_MiB}};
    cm::manager<arena> m{memory, {.chunk_bytes = 32_MiB}};
    const auto it = m.add<Element>({8 << 20}, cm::role::frozen);
    std::uint32_t next = 0;
    for (Element& value : m.acquire(it, cm::access::write).span())
      value = cm::round_to<Element>(saves ? static_cast<float>(next++ % 251) : 0.0F);
    const auto most =
        support::most_bytes_of([&] { saves ? (void)checkpoint::save(m, folder) : (void)checkpoint::load(m, folder); });
    next = 0;
    bool is_right = true;  // no block is taken for another: 251 divides none
    for (const Element& value : m.acquire(it, cm::access::read).span())
      is_right = is_right && cm::to_float(value) == static_cast<float>(next++ % 251);
    CHECK(is_right);
    return most;
  };
  CHECK(trained(float{}, true) < (64 << 10));
  CHECK(trained(float{}, false) < (33 << 20));  // eight blocks of 4 MiB, which are proven one by one
  CHECK(trained(cm::bf16{}, false) < (33 << 20));
}

TEST_CASE("a checkpoint is loaded between iterations alone", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  one_weight<float> model;
  model.fill(1.0F);
  (void)checkpoint::save(model.m, folder);
  const auto scope = model.m.iteration();
  CHECK_THROWS_AS(checkpoint::load(model.m, folder), cm::usage_error);
}

namespace {

/// Trains and saves after each step until it is killed. Reports each finished save. Never returns.
[[noreturn]] void train_until_killed(const std::string& path, int says)
{
  try {
    posix_folder folder{path};
    arena_rig<cm::bf16> run{surroundings{}, recipe_for(mixed::precision::bf16, steps)};
    if (checkpoint::load(run.m, folder, {.allow_fresh_start = true}).number == 0) run.initialise();
    for (;;) {
      run.train(run.cursor + 1);  // so that no two generations have the same bytes
      const auto number = checkpoint::save(run.m, folder, {.file_size = 16_KiB}).number;
      if (::write(says, &number, sizeof number) != sizeof number) std::_Exit(2);
    }
  } catch (...) {
  }
  std::_Exit(3);
}

/// @param saves_first   the time begins when the first save was reported
/// @return   the last save that the child reported, or 0
std::uint64_t kill_after(const std::string& path, unsigned microseconds, bool saves_first)
{
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = support::fork_child();
  REQUIRE(child >= 0);
  if (child == 0) train_until_killed(path, ends[1]);
  ::close(ends[1]);
  std::uint64_t said = 0;
  if (saves_first) CHECK(::read(ends[0], &said, sizeof said) == sizeof said);
  ::usleep(microseconds);
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));  // it neither failed nor ended
  for (std::uint64_t number = 0; ::read(ends[0], &number, sizeof number) == sizeof number;) said = number;
  ::close(ends[0]);
  return said;
}

/// The results of an uninterrupted training after each step. Steps are requested in order.
class course {
 public:
  course() { run_.initialise(); }
  [[nodiscard]] mixed::outcome after(std::uint32_t cursor)
  {
    REQUIRE(cursor >= run_.cursor);
    run_.train(cursor);
    return run_.values();
  }

 private:
  arena_rig<cm::bf16> run_{surroundings{}, recipe_for(mixed::precision::bf16, steps)};
};

/// The number of killed trainings that resumed with the right bits.
struct resumptions {
  int kills = 0;    ///< after the first save of a folder
  int early = 0;    ///< before it: nothing to resume from
  int resumed = 0;  ///< with the bits of the step at which the generation was saved, and none skipped
};

/// Resumes after a kill. @param known   the newest reported generation, or 0
/// @return   the generation that was found, or 0
std::uint64_t resume(const std::string& path, std::uint64_t known, course& right, resumptions& sum)
{
  posix_folder folder{path};
  arena_rig<cm::bf16> after{elsewhere[1], recipe_for(mixed::precision::bf16, steps)};
  const auto found = checkpoint::load(after.m, folder, {.allow_fresh_start = true});
  if (after.cursor == 0 && known == 0) {  // each save has a step before it
    ++sum.early;
    return 0;
  }
  ++sum.kills;
  INFO("generation " << found.number << ", known " << known << ", step " << after.cursor);
  CHECK(found.skipped.empty());
  CHECK(found.number >= known);
  REQUIRE(after.cursor > 0);
  CHECK(found.number >= after.cursor);  // a step before each save, and a number that a killed save used up is left out
  const std::string difference = right.after(after.cursor).difference(after.values());
  CHECK(difference == "");
  sum.resumed +=
      difference.empty() && found.skipped.empty() && found.number >= known && found.number >= after.cursor ? 1 : 0;
  return found.number;
}

/// @param kills   of savers that had saved before
resumptions resume_after_kills(int kills)
{
  support::dice dice{7};
  resumptions sum;
  while (sum.kills < kills) {
    const temporary_folder place;
    course right;
    std::uint64_t known = 0;
    for (int kill = 0; kill < 20 && sum.kills < kills; ++kill) {
      const std::uint64_t said = kill_after(place.path(), 1'000 + dice.below(30'000), kill > 0 && known == 0);
      known = resume(place.path(), std::max(known, said), right, sum);
    }
    REQUIRE(sum.early <= sum.kills);  // a folder's first kill at most
  }
  std::cout << sum.kills << " killed savers, " << sum.resumed << " resumed with the right bits; " << sum.early
            << " were killed before their first save\n";
  return sum;
}

}  // namespace

TEST_CASE("whatever moment a save is killed at, training goes on from whole bits", "[checkpoint]")
{
  if (support::thread_sanitized) return;  // children that start threads are not for it
  if (support::is_emulated()) SKIP("the emulator does not fork a process with threads");
  constexpr int kills = support::sanitized ? 20 : 100;
  const resumptions sum = resume_after_kills(kills);
  CHECK(sum.resumed == sum.kills);
  support::write_figures("test_checkpoint_kills", "build/bench/bin/test_checkpoint.checkpoint",
                         {{"checkpoint.kills_resumed_percent", 100.0 * sum.resumed / sum.kills, "%", "==", 100}});
}

TEST_CASE("so it is ten thousand times", "[checkpoint][.slow]")
{
  CHECK(resume_after_kills(10'000).resumed == 10'000);
}

TEST_CASE("no step of the training that is killed leaves the bytes as they were", "[checkpoint]")
{
  course right;
  mixed::outcome before = right.after(1);
  for (std::uint32_t step = 2; step <= 60; ++step) {
    const mixed::outcome now = right.after(step);
    CHECK(now.difference(before) != "");
    before = now;
  }
}

}  // namespace load_test
