// SPDX-License-Identifier: Apache-2.0
// Trainings that are saved by W ranks and go on over W', divided in another way, with the bits of one that never
// stopped.
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/ownership/ownerships.hpp>

#include <support/catch.hpp>
#include <support/every_policy.hpp>
#include <support/figures.hpp>
#include <support/memory_folder.hpp>
#include <support/refusal.hpp>
#include <support/train_on_ranks.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace resharding_test {

namespace cm = chunkmem;
namespace checkpoint = cm::checkpoint;
using namespace cm::literals;
using support::memory_folder;
using support::ranks::job;
using support::ranks::updates;

namespace {

constexpr std::uint32_t saved_at = 2;  ///< steps before the save
constexpr std::uint32_t steps = 4;

const cm::optimizer::adam the_kernel{{.weight_decay = 0.01F}};

/// How one side of a move divides the model.
struct side {
  std::uint32_t ranks = 1;
  std::uint32_t blocks = 2;   ///< of a chunk, for each rank that divides it
  std::uint32_t stage = 3;    ///< of ZeRO; 0: stage 3 whose gradients are added once
  std::uint32_t of_node = 1;  ///< ranks that divide a chunk

  [[nodiscard]] job as_job(std::uint32_t until, std::uint64_t seed) const
  {
    constexpr cm::sharding::zero stages[] = {cm::sharding::zero_3_reduce_last, cm::sharding::zero_1,
                                             cm::sharding::zero_2, cm::sharding::zero_3};
    job result{.ranks = ranks};
    result.steps = until;
    result.micro_batches = 1 + static_cast<std::uint32_t>(seed % 2);
    result.divided = stages[stage];
    result.of_node = of_node;
    result.clip = seed % 3 == 0 ? 0.0F : 1.5F;
    constexpr updates times[] = {updates::late, updates::late, updates::at_once, updates::early};
    result.when = times[seed % 4];
    if (result.when == updates::early) {
      result.clip = 1e6F;  // no update is taken back
      result.undo_kilobytes = 1024;
    }
    result.scale = seed % 5 == 0 ? 1.0F / static_cast<float>(ranks) : 1.0F;
    result.frame = cm::bytes{std::uint64_t{of_node} * blocks * 4096 * 4};
    result.frames = (ranks == 1 ? 52 : 42) + static_cast<std::uint32_t>(seed % 20);
    return result;
  }
};

/// Policies of both sides of a move.
using policies = support::policy_names;

struct move {
  side from, to;
  std::uint32_t element = 0;  ///< of weights: float32, bf16, fp16
  std::uint64_t seed = 0;
};

/// Runs `work(model, trainer)` on each rank of a job. @return   what the first that failed said
template <class Element, class Ownership, class Work>
std::string on_ranks(const job& wanted, const policies& chosen, const cm::optimizer::adam& kernel,
                     const support::ranks::history<Element>& values, Work work)
{
  using ranks_type = support::ranks::ends_of<Ownership>;
  using model_type = support::ranks::chosen_model<Ownership>;
  std::vector<std::string> said(wanted.ranks);
  cm::sharding::thread_ranks{wanted.ranks, wanted.of_node}.run([&](cm::sharding::thread_ranks::place& here) {
    said[here.rank()] = support::complaint_of([&] {
      cm::backend::host_arena memory{
          {.device_capacity = wanted.frame_bytes() * wanted.frames, .host_capacity = wanted.frame_bytes() * 256}};
      model_type model{memory,
                       support::ranks::ends_as<ranks_type>(here),
                       {.chunk_bytes = wanted.frame_bytes()},
                       {.divided = wanted.divided, .sum_scale = wanted.scale},
                       support::every_eviction{chosen.eviction},
                       support::every_layout{chosen.layout},
                       support::every_placement{chosen.placement},
                       support::every_transfer{chosen.transfer}};
      support::ranks::one_of_many<Element, model_type, cm::optimizer::adam> trainer{model, kernel, wanted, values};
      work(model, trainer);
      return trainer.complaint;
    });
  });
  const auto found = std::ranges::find_if(said, [](const std::string& it) { return !it.empty(); });
  return found == said.end() ? std::string{} : *found;
}

/// All lists of an optimizer at the end, by name.
template <class Element>
std::vector<std::string_view> lists_of()
{
  std::vector<std::string_view> names{"adam/momentum", "adam/variance"};
  if (sizeof(Element) == 2) names.push_back(cm::master_list.name);
  return names;
}

/// The same steps without a stop, on one rank: first in the grouping of one side, then in that of the other.
template <class Element>
struct reference {
  reference(const job& first, const job& then, const cm::optimizer::adam& kernel) : one{first, kernel}
  {
    one.go_on(then);
    for (const std::string_view name : lists_of<Element>()) lists.push_back(one.list(name));
  }
  support::ranks::one_rank<Element, cm::optimizer::adam> one;
  std::vector<std::vector<std::vector<float>>> lists;
};

/// Trains on from what the folder has, and compares everything. @return   what differs
template <class Element, class Ownership>
std::string go_on(const memory_folder& folder, const job& then, const cm::optimizer::adam& kernel,
                  reference<Element>& right, const policies& chosen = {})
{
  return on_ranks<Element, Ownership>(then, chosen, kernel, right.one.values, [&](auto& model, auto& trainer) {
    if (then.frames % 2 == 0) (void)trainer.least_device();
    (void)checkpoint::load(model, folder);
    trainer.go_on(saved_at);
    for (std::size_t index = 0; index < right.lists.size(); ++index)
      trainer.check_list(lists_of<Element>()[index], right.lists[index]);
    if (trainer.complaint.empty() && !std::ranges::equal(trainer.norms, std::span{right.one.norms}.subspan(saved_at)))
      trainer.complaint = "another norm";
  });
}

/// Trains until the save.
template <class Element, class Ownership>
std::string train_and_save(memory_folder& folder, const job& first, const cm::optimizer::adam& kernel,
                           const reference<Element>& right, cm::bytes file_size, const policies& chosen = {})
{
  return on_ranks<Element, Ownership>(first, chosen, kernel, right.one.values, [&](auto& model, auto& trainer) {
    trainer.start();  // a save does what waits
    (void)checkpoint::save(model, folder, {.file_size = file_size, .round = 50_KiB});
  });
}

template <class Element>
std::string reshard(const move& how, const policies& chosen)
{
  using cm::ownership::hierarchical;
  const job first = how.from.as_job(saved_at, how.seed);
  const job then = how.to.as_job(steps, how.seed / 7);
  reference<Element> right{first, then, the_kernel};
  memory_folder folder;
  const std::string said = train_and_save<Element, hierarchical>(
      folder, first, the_kernel, right, cm::bytes{how.seed % 2 == 0 ? 100'000U : 1U << 30U}, chosen);
  return said.empty() ? go_on<Element, hierarchical>(folder, then, the_kernel, right, chosen) : said;
}

std::string run(const move& how)
{
  switch (how.element) {
    case 0: return reshard<float>(how, {});
    case 1: return reshard<cm::bf16>(how, {.layout = "best_fit_layout", .transfer = "planned"});
    default: return reshard<cm::fp16>(how, {.eviction = "lru"});
  }
}

/// Ranks of a node, one of those that divide them.
std::uint32_t node_of(std::uint32_t ranks, std::uint64_t which)
{
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t size = ranks; size > 0; --size)
    if (ranks % size == 0) sizes.push_back(size);
  return sizes[which % sizes.size()];
}

/// All numbers of ranks on both sides with each other, and of the other choices those that this seed draws.
std::vector<move> moves(std::uint64_t seed)
{
  std::mt19937_64 random{seed};
  std::vector<move> all;
  for (std::uint32_t from = 1; from <= 4; ++from)
    for (std::uint32_t to = 1; to <= 4; ++to) {
      const auto draw = [&](std::uint32_t ranks) {
        side result{ranks, 2 + static_cast<std::uint32_t>(random() % 3), static_cast<std::uint32_t>(random() % 4), 1};
        result.of_node = node_of(ranks, random() % 2 == 0 ? 0 : random());
        return result;
      };
      move one{draw(from), draw(to), static_cast<std::uint32_t>(random() % 3), random() % 1000};
      all.push_back(one);
    }
  return all;
}

/// The choices of a move, each as a number.
std::array<std::uint32_t, 7> words_of(const move& it)
{
  return {it.from.ranks, it.to.ranks, it.from.blocks, it.to.blocks, it.from.stage, it.to.stage, it.element};
}

std::uint64_t differing(const std::vector<move>& all)
{
  std::uint64_t wrong = 0;
  for (const move& it : all) {
    const std::string said = run(it);
    if (said.empty()) continue;
    ++wrong;
    UNSCOPED_INFO(it.from.ranks << " ranks in nodes of " << it.from.of_node << ", stage " << it.from.stage << ", to "
                                << it.to.ranks << " in nodes of " << it.to.of_node << ", stage " << it.to.stage
                                << ", element " << it.element << ", seed " << it.seed << ": " << said);
  }
  return wrong;
}

std::vector<move> moves_in_ci()
{
  std::vector<move> all;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U, 6U}) {
    const auto more = moves(seed);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace

TEST_CASE("the moves that are tried have every pair of ranks, sizes of chunks, stages and element types",
          "[resharding]")
{
  constexpr std::array<std::uint32_t, 7> choices{4, 4, 3, 3, 4, 4, 3};
  std::set<std::array<std::uint32_t, 4>> pairs;
  for (const move& it : moves_in_ci()) {
    const auto words = words_of(it);
    for (std::uint32_t left = 0; left < words.size(); ++left)
      for (std::uint32_t right = left + 1; right < words.size(); ++right)
        pairs.insert({left, words[left], right, words[right]});
  }
  std::size_t wanted = 0;
  for (std::size_t left = 0; left < choices.size(); ++left)
    for (std::size_t right = left + 1; right < choices.size(); ++right)
      wanted += std::size_t{choices[left]} * choices[right];
  CHECK(pairs.size() == wanted);
}

TEST_CASE(
    "what W ranks saved goes on over W', in other chunks and stages, with the bits of a training that never stopped",
    "[resharding]")
{
  const auto all = moves_in_ci();
  const std::uint64_t wrong = differing(all);
  CHECK(wrong == 0);
  support::write_figures(
      "test_resharding", "ctest --preset test -R resharding",
      {{"checkpoint.reshard_identical_percent", 100 * (all.size() - wrong) / all.size(), "%", "==", 100}});
}

TEST_CASE("chunks of one owner each go to ranks that share them, and back", "[resharding]")
{
  using namespace cm::ownership;
  job groups = side{3, 0, 3, 3}.as_job(saved_at, 4);
  groups.frame = cm::bytes{std::uint64_t{20} * 4096 * 4};  // holds the largest tensor
  groups.frames = 50;
  job shares = side{2, 2, 2, 2}.as_job(steps, 5);
  {
    reference<float> right{groups, shares, the_kernel};
    memory_folder folder;
    CHECK(train_and_save<float, whole>(folder, groups, the_kernel, right, 1_GiB) == "");
    CHECK(go_on<float, hierarchical>(folder, shares, the_kernel, right) == "");
  }
  std::swap(groups.steps, shares.steps);
  reference<float> right{shares, groups, the_kernel};
  memory_folder folder;
  CHECK(train_and_save<float, hierarchical>(folder, shares, the_kernel, right, 1_GiB) == "");
  CHECK(go_on<float, whole>(folder, groups, the_kernel, right) == "");
}

TEST_CASE("a manager goes on with what ranks saved, and they with what it saved", "[resharding]")
{
  using one_rank = support::ranks::one_rank<float, cm::optimizer::adam>;
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    INFO(ranks << " ranks");
    const job first = side{ranks, 2, 3, ranks}.as_job(saved_at, ranks);
    const job then = side{ranks, 3, 1, 1}.as_job(steps, 3);
    reference<float> right{first, then, the_kernel};
    {
      one_rank saver{first, the_kernel};
      memory_folder folder;
      (void)checkpoint::save(saver.manager(), folder, {.file_size = 100'000_B});
      CHECK(go_on<float, cm::ownership::hierarchical>(folder, then, the_kernel, right) == "");
    }
    memory_folder folder;
    CHECK(train_and_save<float, cm::ownership::hierarchical>(folder, first, the_kernel, right, 1_GiB) == "");
    job none = first;
    none.steps = 0;
    one_rank alone{none, the_kernel};
    (void)checkpoint::load(alone.manager(), folder);
    alone.take_up(saved_at);
    CHECK(alone.values[saved_at] == right.one.values[saved_at]);
    alone.go_on(then);
    CHECK(alone.values[steps] == right.one.values[steps]);
    CHECK(alone.list("adam/variance") == right.lists[1]);
  }
}

TEST_CASE("every combination of ranks, sizes of chunks and stages goes on with the same bits", "[resharding][.slow]")
{
  std::vector<move> all;
  std::uint64_t seed = 0;
  for (std::uint32_t from = 1; from <= 4; ++from)
    for (std::uint32_t to = 1; to <= 4; ++to)
      for (std::uint32_t blocks = 0; blocks < 4; ++blocks)
        for (std::uint32_t stages = 0; stages < 16; ++stages, ++seed)
          all.push_back({{from, 2 + blocks % 2, stages % 4, node_of(from, seed)},
                         {to, 2 + blocks / 2, stages / 4, node_of(to, seed / 2)},
                         static_cast<std::uint32_t>(seed % 3),
                         seed});
  CHECK(differing(all) == 0);
}

}  // namespace resharding_test
