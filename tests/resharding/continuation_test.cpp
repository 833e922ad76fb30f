// SPDX-License-Identifier: Apache-2.0
// W ranks -> W' ranks with all that a model may have: groups, weights that were never updated, buffers, states,
// masters. What the files hold is put together by hand, and is what one rank that never stopped would have saved.
#include "rig.hpp"
#include "stored_content.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <support/catch.hpp>
#include <support/memory_folder.hpp>
#include <support/refusal.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace continuation_test {

using namespace resharding;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;

namespace {

/// What is drawn: element type, W and W', and for both stage, blocks of a chunk, nodes, eviction, layout, capacity,
/// accumulation; then whether a plain manager has the training in between.
constexpr std::array<std::uint32_t, 18> choices{2, 4, 4, 4, 4, 3, 3, 2, 2, 5, 5, 2, 2, 2, 2, 3, 3, 2};
using row = std::array<std::uint32_t, choices.size()>;

phase phase_of(const row& it, std::size_t which)
{
  constexpr cm::sharding::zero stages[] = {cm::sharding::zero_1, cm::sharding::zero_2, cm::sharding::zero_3,
                                           cm::sharding::zero_3_reduce_last};
  constexpr const char* evictions[] = {"lru", "belady", "fifo", "list_order", "cost_aware"};
  constexpr const char* layouts[] = {"append_layout", "best_fit_layout"};
  phase made{{}, evictions[it[9 + which]], layouts[it[11 + which]]};
  job& how = made.how;
  how.ranks = 1 + it[1 + which];
  how.divided = stages[it[3 + which]];
  const bool is_one_node = it[7 + which] == 0;
  how.of_node = is_one_node ? how.ranks : how.ranks == 4 ? 2 : 1;
  how.frame = cm::bytes{std::uint64_t{how.of_node} * 4096 * 4 * (1 + it[5 + which])};
  how.is_tight = it[13 + which] == 1;
  how.micro_batches = it[15 + which] == 0 ? 1 : 2;
  how.sums_each = it[15 + which] != 2;
  how.steps = 2;
  how.clip = it[13] == it[14] ? 0.5F : 0.0F;
  return made;
}

template <class Element>
void pass_through_a_manager(memory_folder& folder, std::uint32_t step)
{
  arena memory{{.device_capacity = cm::bytes{8U << 20U}, .host_capacity = cm::bytes{8U << 20U}}};
  manager_type m{memory, {.chunk_bytes = cm::bytes{128U << 10U}}};
  declared<Element, manager_type> tensors{m};
  (void)checkpoint::load(m, folder);
  if (!tensors.was_told(step)) throw std::runtime_error{"a manager was told something else"};
  (void)checkpoint::save(m, folder);
}

template <class Element>
void expect_content(const memory_folder& folder, undisturbed<Element>& alone, const char* when)
{
  memory_folder other;
  alone.m.content().belongs_to(0);
  (void)checkpoint::save(alone.m, other);
  if (const std::string what = difference(newest_content(other), newest_content(folder)); !what.empty())
    throw std::runtime_error{std::string{when} + ": " + what};
}

template <class Element>
void train_on(const phase& now, std::uint32_t first, memory_folder& folder, const undisturbed<Element>& alone,
              bool resumes)
{
  on_ranks<Element>(now, first, alone.values, [&](std::uint32_t, model_type& model, rank_of_many<Element>& trainer) {
    if (resumes)
      (void)checkpoint::load(model, folder);
    else
      trainer.tensors.fill();
    if (!trainer.tensors.was_told(first))
      throw std::runtime_error{"states or buffers are others at step " + std::to_string(first)};
    trainer.check_all(first);
    for (std::uint32_t index = first; index < first + now.how.steps; ++index) {
      if (trainer.step(index) != alone.norms[index])
        throw std::runtime_error{"another norm in step " + std::to_string(index)};
      trainer.tensors.tell(index + 1);
      trainer.check_all(index + 1);
    }
    (void)checkpoint::save(model, folder, {.file_size = cm::bytes{60'000}, .round = cm::bytes{10'000}});
  });
}

template <class Element>
void run_as(const row& it)
{
  const phase before = phase_of(it, 0);
  const phase behind = phase_of(it, 1);
  undisturbed<Element> alone;
  memory_folder folder;
  alone.train(before.how);
  train_on(before, 0, folder, alone, false);
  expect_content(folder, alone, "saved");
  if (it[17] == 1) pass_through_a_manager<Element>(folder, before.how.steps);
  alone.train(behind.how);
  train_on(behind, before.how.steps, folder, alone, true);
  expect_content(folder, alone, "saved again");
}

/// @return   what differs, or nothing
std::string run(const row& it)
{
  return support::refusal<std::exception>([&] { it[0] == 0 ? run_as<float>(it) : run_as<cm::bf16>(it); });
}

row random_row(std::mt19937_64& random)
{
  row made{};
  for (std::size_t index = 0; index < made.size(); ++index)
    made[index] = static_cast<std::uint32_t>(random() % choices[index]);
  return made;
}

using pair_set = std::set<std::tuple<std::size_t, std::uint32_t, std::size_t, std::uint32_t>>;

pair_set pairs_of(const row& it)
{
  pair_set all;
  for (std::size_t left = 0; left < it.size(); ++left)
    for (std::size_t right = left + 1; right < it.size(); ++right) all.insert({left, it[left], right, it[right]});
  return all;
}
std::uint64_t all_pairs()
{
  std::uint64_t all = 0;
  for (std::size_t left = 0; left < choices.size(); ++left)
    for (std::size_t right = left + 1; right < choices.size(); ++right)
      all += std::uint64_t{choices[left]} * choices[right];
  return all;
}

/// Rows that have every pair of choices: of 40 random ones the best comes next. The same everywhere.
std::vector<row> cover()
{
  std::mt19937_64 random{7};
  pair_set seen;
  std::vector<row> rows;
  while (seen.size() < all_pairs()) {
    row best{};
    std::size_t most = 0;
    for (int tries = 0; tries < 40; ++tries) {
      const row next = random_row(random);
      std::size_t fresh = 0;
      for (const auto& it : pairs_of(next)) fresh += seen.contains(it) ? 0 : 1;
      if (fresh > most) most = fresh, best = next;
    }
    if (most == 0) continue;
    seen.merge(pairs_of(best));
    rows.push_back(best);
  }
  return rows;
}

std::string in_words(const row& it)
{
  std::string text;
  for (const std::uint32_t each : it) text += std::to_string(each);
  return text;
}

std::uint64_t differing(const std::vector<row>& rows)
{
  std::uint64_t wrong = 0;
  for (const row& it : rows) {
    const std::string what = run(it);
    if (what.empty()) continue;
    ++wrong;
    UNSCOPED_INFO(in_words(it) << ": " << what);
  }
  return wrong;
}

}  // namespace

TEST_CASE("files and weights of a training that goes on over other ranks are those of one that never stopped",
          "[resharding]")
{
  const std::vector<row> rows = cover();
  INFO(rows.size() << " trainings");
  CHECK(differing(rows) == 0);
}

TEST_CASE("a thousand random trainings go on over other ranks", "[resharding][.slow]")
{
  std::mt19937_64 random{1000};
  std::vector<row> rows;
  for (int count = 0; count < 1000; ++count) rows.push_back(random_row(random));
  CHECK(differing(rows) == 0);
}

TEST_CASE("weights of 16 bits load as float32 and the other way round, masters and states bit for bit", "[resharding]")
{
  const row it{1, 2, 3, 2, 0, 1, 0, 0, 1};
  undisturbed<cm::bf16> alone;
  alone.train(phase_of(it, 0).how);
  memory_folder folder;
  train_on(phase_of(it, 0), 0, folder, alone, false);
  const stored_content first = newest_content(folder);
  const auto copy = [&]<class Element>(const phase& to, Element) {
    on_ranks<Element>(to, 0, {}, [&](std::uint32_t, model_type& model, rank_of_many<Element>&) {
      (void)checkpoint::load(model, folder);
      (void)checkpoint::save(model, folder);
    });
  };
  copy(phase_of(it, 1), float{});
  stored_content wide = newest_content(folder);
  for (auto& [name, content] : wide) {  // what had no master was 16 bits
    const auto was = first.find(name);
    if (was == first.end() || was->second.type != cm::dtype::bfloat16) continue;
    CHECK(content.type == cm::dtype::float32);
    content = was->second;
  }
  CHECK(difference(first, wide) == "");
  copy(phase_of(it, 0), cm::bf16{});
  CHECK(difference(first, newest_content(folder)) == "");
}

}  // namespace continuation_test
