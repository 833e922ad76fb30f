// SPDX-License-Identifier: Apache-2.0
// The states that `use` registers survive a restart without another call.
#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>

#include "small_model.hpp"

#include <chunkmem/activation/random_stream.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/version_1.hpp>

#include <support/refusal.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace used_states_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using Catch::Matchers::ContainsSubstring;
using cm::io::posix_folder;

namespace {

/// A few weights whose gradients follow from the number of the step, a loss scale that moves, and rates that are
/// changed on the way.
struct training {
  training()
  {
    m.content().belongs_to(1);
    m.use(adam);
    m.use(scale);
    m.use(rates);
  }
  void fill()
  {
    for (float& it : m.acquire(first, cm::access::write).span()) it = 0.5F;
    for (cm::bf16& it : m.acquire(second, cm::access::write).span()) it = cm::bf16{-1.0F};
  }
  void step(std::uint32_t now)
  {
    if (now == 2) rates.set(cm::group_id{1}, 0.02F);
    const auto scope = m.iteration();
    const float loss = scale.scale() * (now == 1 ? 1e38F : 0.01F * static_cast<float>(now + 1));  // one step is skipped
    for (float& it : m.gradient(first).span()) it = loss * 3.0F;
    for (cm::bf16& it : m.gradient(second).span()) it = cm::bf16{loss};
    cm::optimizer::step(m, adam, {.group_rates = rates, .loss_scale = &scale});
  }
  [[nodiscard]] std::vector<float> everything()
  {
    std::vector<float> all{scale.scale(), static_cast<float>(scale.updates()), static_cast<float>(adam.progress.number),
                           rates.of(cm::group_id{1})};
    for (const float it : m.acquire(first, cm::access::read).span()) all.push_back(it);
    for (const cm::bf16 it : m.acquire(second, cm::access::read).span()) all.push_back(static_cast<float>(it));
    for (const char* const list : {"adam/momentum", "adam/variance"})
      for (const float it : m.acquire<float>(first, m.list(list), cm::access::read, cm::memory_location::host).span())
        all.push_back(it);
    return all;
  }

  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::adam adam{{.weight_decay = 0.1F}};
  cm::optimizer::loss_scale scale = cm::optimizer::loss_scale::dynamic({.initial = 8.0F, .window = 2});
  cm::optimizer::learning_rates rates{0.1F, 0.05F};
  cm::tensor<float> first = m.add<float>({40}, cm::role::parameter);
  cm::tensor<cm::bf16> second = m.add<cm::bf16>({30}, cm::role::parameter, cm::group_id{1});
};

constexpr std::uint32_t saved_at = 4, steps = 8;

}  // namespace

TEST_CASE(
    "a training that goes on from a checkpoint has the bits of one without a stop, with no state registered by hand",
    "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  training right;
  right.fill();
  for (std::uint32_t now = 0; now < steps; ++now) {
    if (now == saved_at) (void)checkpoint::save(right.m, folder);
    right.step(now);
  }
  training after;
  (void)checkpoint::load(after.m, folder);
  CHECK(after.adam.progress.number == saved_at - 1);  // one was skipped
  CHECK(after.rates.of(cm::group_id{1}) == 0.02F);
  for (std::uint32_t now = saved_at; now < steps; ++now) after.step(now);
  CHECK(after.everything() == right.everything());

  training forgetful;  // the check above sees what is not restored
  (void)checkpoint::load(forgetful.m, folder);
  forgetful.adam.progress.number = 0;
  for (std::uint32_t now = saved_at; now < steps; ++now) forgetful.step(now);
  CHECK(forgetful.everything() != right.everything());
}

TEST_CASE(
    "a file has the missed updates that are not zero, by the names of their weights; what it does not name is zero",
    "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  training saved;
  saved.fill();
  saved.m.name(saved.second, "bias");
  const auto names = [&] {
    std::vector<std::string> all;
    for (const auto& item : checkpoint::content_of(saved.m))
      if (item.name.find("missed") != item.name.npos) all.push_back(item.name);
    return all;
  };
  saved.step(0);
  CHECK(names().empty());
  (void)checkpoint::save(saved.m, folder);
  for (int count = 0; count < 3; ++count) {
    const auto scope = saved.m.iteration();
    for (float& it : saved.m.gradient(saved.first).span()) it = 1.0F;
    cm::optimizer::step(saved.m, saved.adam, {.group_rates = saved.rates, .loss_scale = &saved.scale});
  }
  CHECK(names() == std::vector<std::string>{"state/adam/missed/bias"});
  (void)checkpoint::save(saved.m, folder);
  training after;
  after.m.name(after.second, "bias");
  const auto missed = [&](const cm::tensor_handle& weight) {
    return after.adam.progress.missed.of(cm::index_of(weight.id));
  };
  (void)checkpoint::load(after.m, folder);
  CHECK((missed(after.first) == 0 && missed(after.second) == 3 && after.adam.progress.number == 4));
  (void)checkpoint::load(after.m, folder, {.newest = 1});  // as every file was before weights counted
  CHECK((missed(after.second) == 0 && after.adam.progress.number == 1));
}

TEST_CASE("missed updates that no training can have are refused by a load, or by the next step", "[checkpoint]")
{
  for (const std::uint64_t missed : {std::uint64_t{2}, cm::optimizer::most_updates + 1}) {
    temporary_folder place;
    posix_folder folder{place.path()};
    training saved;
    saved.fill();
    saved.step(0);
    std::memcpy(saved.adam.progress.missed.bytes_of(1).data(), &missed, sizeof missed);
    (void)checkpoint::save(saved.m, folder);
    training after;
    if (missed == 2) {
      (void)checkpoint::load(after.m, folder);
      CHECK_THROWS_WITH(after.step(2), ContainsSubstring("after 1 updates, of which tensor.1 has missed 2 ("));
      continue;
    }
    CHECK_THROWS_AS(checkpoint::load(after.m, folder), cm::config_error);
    CHECK(after.adam.progress.number == 0);
    CHECK(after.adam.progress.missed.of(1) == 0);
  }
}

TEST_CASE("a resumed network draws the numbers of the training that was saved, or is told that it cannot",
          "[checkpoint]")
{
  namespace act = cm::activation;
  struct network {
    explicit network(std::uint64_t seed, const char* name = "encoder") : numbers{name, seed}
    {
      m.content().belongs_to(1);
      m.acquire(weight, cm::access::write).span()[0] = 1;
    }
    arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
    cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
    cm::tensor<float> weight = m.add<float>({1}, cm::role::parameter);
    act::random_stream numbers;
  };
  temporary_folder place;
  posix_folder folder{place.path()};
  network saved{42};
  saved.m.use(saved.numbers);
  (void)checkpoint::save(saved.m, folder);
  for (const std::uint64_t seed : {0U, 42U, 7U}) {
    network again{seed};
    again.m.use(again.numbers);
    (void)checkpoint::load(again.m, folder);
    // of the file's seed, by a calculation in another language
    CHECK(again.numbers.key(7, 3, 1).seed == 0x6d95e4ea1cae5e3cU);
    CHECK(again.numbers.key(7, 3, 1).step == 7);
    CHECK(again.numbers.key(7, 3, 1).tensor == 3);
    CHECK(again.numbers.key(7, 3, 1).list == 0x8000'0001U);
  }
  network renamed{42, "decoder"};
  renamed.m.use(renamed.numbers);
  CHECK_THROWS_WITH(checkpoint::load(renamed.m, folder), ContainsSubstring("state/decoder/random"));
  CHECK(renamed.numbers.key(0, 0, 0).seed == 0xbe73e5295eb900d3U);

  // A file from before there were names has no such state; a file of a later rule has another number.
  temporary_folder older;
  posix_folder older_folder{older.path()};
  network unnamed{42};
  (void)checkpoint::save(unnamed.m, older_folder);
  network named{42};
  named.m.use(named.numbers);
  CHECK_THROWS_WITH(checkpoint::load(named.m, older_folder), ContainsSubstring("state/encoder/random"));
  network same{42};
  CHECK_NOTHROW(checkpoint::load(same.m, older_folder));
  temporary_folder later;
  posix_folder later_folder{later.path()};
  network by_other_rule{42};
  std::array<std::uint64_t, 2> content{42, 3};
  by_other_rule.m.state("encoder/random", std::as_writable_bytes(std::span{content}));
  (void)checkpoint::save(by_other_rule.m, later_folder);
  CHECK_THROWS_WITH(checkpoint::load(named.m, later_folder),
                    ContainsSubstring("by rule 3, and this version draws by rule 2"));
}

TEST_CASE("states of `use` have the names and bytes of states that were registered by hand", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> by_hand{memory, {.chunk_bytes = 4_KiB}};
  by_hand.content().belongs_to(1);
  cm::optimizer::adam adam;
  auto scale = cm::optimizer::loss_scale::fixed(8.0F);
  adam.progress.number = 41;
  const float before[] = {0.25F, 0.125F};
  float rates[] = {0.25F, 0.125F};
  by_hand.use(adam.lists());
  by_hand.state("adam/updates", std::as_writable_bytes(std::span{&adam.progress.number, 1}));
  std::uint64_t numerics = 2;  // versions before this one
  by_hand.state("adam/numerics", std::as_writable_bytes(std::span{&numerics, 1}));
  by_hand.state("loss scale", scale.bytes());
  by_hand.state("learning rates", std::as_writable_bytes(std::span{rates}));
  const auto first = by_hand.add<float>({40}, cm::role::parameter);
  const auto second = by_hand.add<cm::bf16>({30}, cm::role::parameter, cm::group_id{1});
  for (float& it : by_hand.acquire(first, cm::access::write).span()) it = 0.5F;
  for (cm::bf16& it : by_hand.acquire(second, cm::access::write).span()) it = cm::bf16{1.0F};
  (void)checkpoint::save(by_hand, folder);
  training used;
  (void)checkpoint::load(used.m, folder);
  CHECK(used.adam.progress.number == 41);
  CHECK(used.scale.scale() == 8.0F);
  CHECK((used.rates.of(cm::group_id{0}) == before[0] && used.rates.of(cm::group_id{1}) == before[1]));
}

namespace {

/// One weight and an optimizer by some version of the numerics. A base of it: it has to live as long as the manager.
template <class Kernel>
struct versioned {
  explicit versioned(bool takes_any = false) : kernel{{}, {.takes_any_numerics = takes_any}}
  {
    m.content().belongs_to(1);
    m.use(kernel);
    m.acquire(weight, cm::access::write).span()[0] = 1;
  }
  [[nodiscard]] bool names_numerics()
  {
    for (const auto& item : checkpoint::content_of(m))
      if (item.name == std::string{"state/"}.append(Kernel::name).append("/numerics")) return true;
    return false;
  }
  void step()
  {
    const auto scope = m.iteration();
    m.gradient(weight).span()[0] = 1;
    cm::optimizer::step(m, kernel, {.learning_rate = 0.5F});
  }
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<float> weight = m.add<float>({1}, cm::role::parameter);
  Kernel kernel;
};

template <template <cm::optimizer::numerics> class Kernel, cm::optimizer::numerics Older, cm::optimizer::numerics Newer>
void check_versions()
{
  const auto text_of = [](cm::optimizer::numerics rule) { return std::to_string(static_cast<int>(rule)); };
  const std::string older = text_of(Older), newer = text_of(Newer);
  temporary_folder place;
  posix_folder folder{place.path()};
  versioned<Kernel<Older>> first;
  first.step();
  CHECK(first.names_numerics() ==
        (Older != cm::optimizer::numerics::version_1));  // a file as before there were versions
  (void)checkpoint::save(first.m, folder);
  versioned<Kernel<Older>> same;
  CHECK_NOTHROW(checkpoint::load(same.m, folder));
  versioned<Kernel<Newer>> other;
  CHECK_THROWS_WITH(
      checkpoint::load(other.m, folder),
      ContainsSubstring("a checkpoint of version " + older + " of the numerics, and this optimizer has version " +
                        newer + " (train on with optimizer::numerics::version_" + older +
                        ", or give .takes_any_numerics = true: later updates have other bits)"));
  CHECK(other.kernel.progress.number == 0);
  versioned<Kernel<Newer>> any{true};
  (void)checkpoint::load(any.m, folder);
  CHECK(any.kernel.progress.number == 1);
  any.step();
  CHECK(any.names_numerics());
  (void)checkpoint::save(any.m, folder);
  CHECK_NOTHROW(checkpoint::load(other.m, folder));  // it is of the newer version now
  CHECK(other.kernel.progress.number == 2);
  CHECK_THROWS_WITH(checkpoint::load(same.m, folder),
                    ContainsSubstring("a checkpoint of version " + newer + " of the numerics"));
}

}  // namespace

TEST_CASE("a resume by another version of the numerics says so, and goes on where it was told to", "[checkpoint]")
{
  using enum cm::optimizer::numerics;
  check_versions<cm::optimizer::basic_adam, version_1, version_3>();
  check_versions<cm::optimizer::basic_adam, version_2, version_3>();
  check_versions<cm::optimizer::basic_sgd, version_1, version_3>();
}

TEST_CASE("a state of `use` that cannot be right is refused by a load that changes nothing", "[checkpoint]")
{
  const auto refusal = [](auto spoil) {
    temporary_folder place;
    posix_folder folder{place.path()};
    training wrong;
    wrong.fill();
    wrong.step(0);
    spoil(wrong);
    (void)checkpoint::save(wrong.m, folder);
    training other;
    other.fill();
    other.step(0);
    const std::vector<float> before = other.everything();
    const std::string said = support::refusal<cm::config_error>([&] { (void)checkpoint::load(other.m, folder); });
    CHECK(other.everything() == before);
    other.step(2);  // it goes on
    CHECK(other.adam.progress.number == 2);
    return said;
  };
  for (const std::uint64_t number : {UINT64_MAX, cm::optimizer::most_updates + 1})
    CHECK_THAT(refusal([&](training& it) { it.adam.progress.number = number; }),
               ContainsSubstring("a checkpoint of an optimizer after " + std::to_string(number) + " updates"));
  CHECK_THAT(refusal([](training& it) {
               const float none = 0.0F;
               std::memcpy(it.scale.bytes().data() + 16, &none, sizeof none);
             }),
             ContainsSubstring("a checkpoint with a loss scale of 0"));
  CHECK_THAT(refusal([](training& it) {
               it.rates.for_each_state([](const cm::restart_state& state) {
                 const float negative = -0.5F;
                 std::memcpy(state.content.data(), &negative, sizeof negative);
               });
             }),
             ContainsSubstring("a checkpoint with a learning rate of -0.5"));
}

TEST_CASE("a save and a load after the optimizer is gone say so and change nothing", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  m.content().belongs_to(1);
  std::optional<cm::optimizer::adam> adam{std::in_place};
  m.use(*adam);
  const auto weight = m.add<float>({40}, cm::role::parameter);
  for (float& it : m.acquire(weight, cm::access::write).span()) it = 0.5F;
  (void)checkpoint::save(m, folder);
  adam.reset();
  CHECK_THROWS_WITH(checkpoint::save(m, folder),
                    ContainsSubstring("the owner of the state adam/updates was given to use() and is gone"));
  CHECK_THROWS_AS(checkpoint::load(m, folder), cm::usage_error);
  CHECK(m.acquire(weight, cm::access::read).span()[0] == 0.5F);
  checkpoint::export_values(m, folder, "weights.safetensors");  // which needs no states
}

}  // namespace used_states_test
