// SPDX-License-Identifier: Apache-2.0
// Gradients of shares in the bytes of their weights: the bits of gradients that lie apart, and 14 B for each parameter.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/failing.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>
#include <support/train_on_ranks.hpp>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gradients_in_place_test {

namespace cm = chunkmem;
using Catch::Matchers::ContainsSubstring;
using support::ranks::job;
using support::ranks::train_by;
using support::ranks::updates;

constexpr cm::sharding::zero stages[] = {cm::sharding::zero_1, cm::sharding::zero_2, cm::sharding::zero_3,
                                         cm::sharding::zero_3_reduce_last};

TEST_CASE(
    "gradients in place over ranks have the bits of one rank, whatever the stage, the time of updates and the room",
    "[sharding]")
{
  for (const cm::sharding::zero& divided : stages)
    for (const updates when : {updates::at_once, updates::late, updates::early})
      for (const bool is_tight : {false, true}) {
        if (is_tight && when != updates::at_once) continue;
        const std::uint32_t ranks = is_tight ? 3 : 2;
        job wanted{.ranks = ranks, .steps = 3, .divided = divided, .rehearses = is_tight, .is_tight = is_tight};
        wanted.in_place = true;
        wanted.micro_batches = divided == cm::sharding::zero_3 ? 1 : 2;
        wanted.when = when;
        wanted.clip = when == updates::early ? 1e6F : 1;
        wanted.undo_kilobytes = 4096;
        INFO("stage " << &divided - stages + 1 << ", time " << static_cast<int>(when) << (is_tight ? ", tight" : ""));
        CHECK(train_by<cm::bf16, cm::ownership::sharded>({}, wanted) == std::vector<std::string>(ranks));
      }
}

TEST_CASE("early updates that overwrite gradients in place are taken back where the step is clipped", "[sharding]")
{
  for (const float clip : {1.0F, 100.0F, 400.0F}) {  // by the first gradient, behind some of them, by all
    job wanted{.ranks = 2, .steps = 4, .clip = clip, .in_place = true, .when = updates::early, .undo_kilobytes = 4096};
    INFO("clip " << clip);
    CHECK(train_by<cm::fp16, cm::ownership::sharded>({}, wanted) == std::vector<std::string>(2));
  }
}

TEST_CASE("a device that uses every freedom has the bits of gradients in place too", "[sharding]")
{
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    job wanted{.ranks = 2, .divided = stages[seed % 4], .clip = 1, .on_compute = true};
    wanted.in_place = true;
    wanted.when = static_cast<updates>(seed % 3);
    wanted.undo_kilobytes = 4096;
    wanted.is_tight = wanted.rehearses = seed % 2 == 0;
    INFO("seed " << seed);
    CHECK(train_by<cm::bf16, cm::ownership::sharded>({.transfer = "planned"}, wanted,
                                                     support::adversarial_ranks{seed}) == std::vector<std::string>(2));
  }
}

constexpr std::uint32_t ranks = 2;
constexpr cm::bytes frame{ranks * 16384};
using memory_type = support::failing<cm::backend::host_arena>;

struct setting {
  cm::sharding::zero divided = cm::sharding::zero_3;
  bool in_place = true;
  std::uint32_t frames = 40;
  std::uint32_t more = 0;   ///< weights, which fill a unit each
  bool tries_again = true;  ///< a call whose copy fails is made again
  updates when = updates::at_once;
  float clip = 1;
};

/// A rank that trains weights of 16 bits in three units, of which one is frozen and two weights share one, and a weight
/// of 32 bits, whose gradient lies apart.
template <class... Policies>
struct trainer_with {
  using model_type =
      cm::sharded_model<memory_type, cm::collective::local_threads, support::chosen_gradient, Policies...>;
  static constexpr std::uint64_t sizes[] = {16'384, 5000, 7000, 6000};
  static constexpr std::size_t frozen = 1;
  static constexpr std::size_t unused = 3;  // in odd steps

  memory_type memory;
  cm::collective::local_threads here;
  model_type m;
  cm::optimizer::adam adam{{}};
  std::vector<cm::tensor<cm::bf16>> weights;
  cm::tensor<float> wide;
  std::optional<cm::optimizer::late_updates<model_type, cm::optimizer::adam>> late;
  std::optional<cm::optimizer::early_updates<model_type, cm::optimizer::adam>> early;
  float scale = 1;
  float clip;
  bool tries_again;

  trainer_with(const cm::collective::thread_group& group, std::uint32_t rank, const setting& how)
      : memory{support::failure_plan{},
               cm::backend::host_arena_options{.device_capacity = frame * how.frames, .host_capacity = frame * 60}},
        here{group, cm::rank_id{rank}},
        m{memory, here, {.chunk_bytes = frame}, {.divided = how.divided}, support::chosen_gradient{how.in_place}},
        clip{how.clip},
        tries_again{how.tries_again}
  {
    m.use(adam);
    for (std::size_t index = 0; index < std::size(sizes); ++index)
      weights.push_back(
          m.template add<cm::bf16>({sizes[index]}, index == frozen ? cm::role::frozen : cm::role::parameter));
    for (std::uint32_t count = 0; count < how.more; ++count)
      weights.push_back(m.template add<cm::bf16>({sizes[0]}, cm::role::parameter));
    wide = m.template add<float>({5000}, cm::role::parameter);
    if (how.when == updates::late) late.emplace(m, adam);
    if (how.when == updates::early) early.emplace(m, adam, frame * 12);
  }
  void fill()
  {
    for (const auto it : weights)
      for (cm::bf16& value : m.acquire(it, cm::access::write).span()) value = cm::round_to<cm::bf16>(1.0F);
    for (float& value : m.acquire(wide, cm::access::write).span()) value = 1;
  }
  [[nodiscard]] static bool has_gradient(std::size_t index, std::uint32_t step)
  {
    return index != frozen && (index != unused || step % 2 == 0);
  }
  void differentiate(std::uint32_t step)
  {
    again([&] { (void)m.acquire(wide, cm::access::read).size(); });
    for (const auto it : weights) again([&] { (void)m.acquire(it, cm::access::read).size(); });
    const float own = scale * static_cast<float>(cm::index_of(here.rank()) + 1 + step);
    for (std::size_t index = weights.size(); index-- > 0;) {
      if (!has_gradient(index, step)) continue;
      again([&] { (void)m.acquire(weights[index], cm::access::read).size(); });
      again([&] {
        const auto gradient = m.gradient(weights[index]);
        float next = own * static_cast<float>(index + 1);
        for (cm::bf16& value : gradient.span()) value = cm::round_to<cm::bf16>(next += 0.125F);
      });
      again([&] { m.gradient_done(weights[index]); });
    }
    again([&] {
      for (float& value : m.gradient(wide).span()) value = own;
    });
    again([&] { m.gradient_done(wide); });
  }
  /// Makes the call again until no copy of it fails, where it may.
  template <class Work>
  void again(Work work)
  {
    for (;;) {
      try {
        return work();
      } catch (const cm::device_error&) {
        if (!tries_again) throw;
      }
    }
  }
  [[nodiscard]] static cm::optimizer::step_options options(float clip = 1)
  {
    return {.learning_rate = 0.125F, .clip = {.norm = clip}};
  }
  cm::optimizer::step_outcome step()
  {
    if (early) return early->step(options(clip));
    return late ? late->step(options(clip)) : m.step(adam, options(clip));
  }
  void train(std::uint32_t first, std::uint32_t last)
  {
    for (std::uint32_t step = first; step < last; ++step) {
      const auto scope = m.iteration();
      differentiate(step);
      (void)this->step();
    }
  }
  [[nodiscard]] std::vector<float> values()
  {
    std::vector<float> all;
    for (const auto it : weights)
      again([&] {
        for (const cm::bf16 value : m.acquire(it, cm::access::read).span()) all.push_back(cm::to_float(value));
      });
    again([&] {
      for (const float value : m.acquire(wide, cm::access::read).span()) all.push_back(value);
    });
    return all;
  }
  /// Shares whose gradients lie in their bytes now.
  [[nodiscard]] std::size_t lent()
  {
    std::size_t count = 0;
    for (const auto& it : m.units()) count += m.shares().state_of(it.share) == cm::tensor_state::gradient ? 1U : 0U;
    return count;
  }
};
using trainer = trainer_with<>;

/// The result of `work(trainer)` on rank 0; the other ranks do the same.
template <class Trainer = trainer, class Work>
auto on_ranks(const setting& how, Work work)
{
  std::vector<std::optional<decltype(work(std::declval<Trainer&>()))>> found(ranks);
  std::vector<std::string> said(ranks);
  const cm::collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    said[rank] = support::refusal<std::exception>([&] {
      Trainer it{group, rank, how};
      found[rank].emplace(work(it));
    });
  });
  CHECK(said == std::vector<std::string>(ranks));
  REQUIRE((found[0] && found[1]));
  CHECK(*found[0] == *found[1]);
  return *std::move(found[0]);
}
/// The sentence that this call is refused with.
template <class Work>
std::string refusal(Work work)
{
  return support::refusal<cm::usage_error>(work);
}
/// Weights after so many steps.
std::vector<float> trained(const setting& how, std::uint32_t steps)
{
  return on_ranks(how, [&](trainer& it) {
    it.fill();
    it.train(0, steps);
    return it.values();
  });
}

TEST_CASE("a parameter has 14 B on its rank with gradients in place and 16 B with gradients apart, in every stage",
          "[sharding]")
{
  constexpr std::uint32_t more = 8;
  constexpr std::uint64_t halves = (2 + more) * 16'384 / ranks;  // trained units, which fill a frame each
  constexpr std::uint64_t wide = 2 * 4'096 / ranks;
  for (const cm::sharding::zero& divided : stages) {
    INFO("stage " << &divided - stages + 1);
    const auto need_of = [&](bool in_place) {
      cm::memory_requirement need;
      (void)on_ranks({divided, in_place, 3, more}, [&](trainer& it) {
        const cm::memory_requirement seen = it.m.rehearse([&] {
          const auto scope = it.m.iteration();
          it.differentiate(0);
          (void)it.step();
        });
        if (cm::index_of(it.here.rank()) == 0) need = seen;
        return seen.smallest_host.count();
      });
      return need;
    };
    const auto bytes_of = [](const cm::memory_requirement& need) {
      return need.by_role[cm::role::parameter] + need.by_role[cm::role::gradient] +
             need.by_role[cm::role::optimizer_state];
    };
    const cm::memory_requirement apart = need_of(false), in_place = need_of(true);
    CHECK(in_place.by_role[cm::role::parameter] == cm::bytes{2 * halves + 4 * wide});
    CHECK(in_place.by_role[cm::role::gradient] == cm::bytes{4 * wide});
    CHECK(bytes_of(apart) == cm::bytes{16 * (halves + wide)});
    CHECK(bytes_of(in_place) == cm::bytes{14 * halves + 16 * wide});
    CHECK(apart.chunks - in_place.chunks == bytes_of(apart) - bytes_of(in_place));
    CHECK(in_place.smallest_device <= apart.smallest_device);
    CHECK(apart.smallest_host - in_place.smallest_host >= 4 * frame);
  }
}

TEST_CASE(
    "a weight that is gathered is not read between its gradient and its step, and from the next iteration on it is",
    "[sharding]")
{
  for (const cm::sharding::zero& divided : stages) {
    INFO("stage " << &divided - stages + 1);
    std::vector<float> seen;
    const std::vector<float> found = on_ranks({.divided = divided}, [&](trainer& it) {
      const bool is_first = cm::index_of(it.here.rank()) == 0;
      const auto read = [&] { return static_cast<float>(it.m.acquire(it.weights[0], cm::access::read).size()); };
      it.m.name(it.weights[0], "table");
      it.fill();
      it.train(0, 2);
      for (std::uint32_t step = 2; step < 4; ++step) {
        const auto scope = it.m.iteration();
        it.differentiate(step);
        const std::string refused = refusal(read);
        if (is_first) {
          seen.push_back(static_cast<float>(it.lent()));
          seen.push_back(refused.find("'table': a weight was read between its gradient and its step") != refused.npos);
        }
        (void)it.step();
      }
      it.train(4, 5);
      return it.values();
    });
    CHECK(found == trained({.divided = divided, .in_place = false}, 5));
    // The step that refuses it has both units in place. The next one lets that unit alone, and sums the other one last.
    CHECK(seen == (divided.parameters ? std::vector<float>{2, 1, 0, 0} : std::vector<float>{2, 0, 1, 0}));
  }
}

TEST_CASE(
    "a unit that iterations read between its gradient and its step has gradients of its own, and is never refused",
    "[sharding]")
{
  for (const cm::sharding::zero& divided : stages)
    for (const bool rehearses : {false, true}) {
      INFO("stage " << &divided - stages + 1 << (rehearses ? ", rehearsed" : ""));
      std::vector<std::size_t> lent;
      const std::vector<float> found = on_ranks({.divided = divided}, [&](trainer& it) {
        const auto train = [&](std::uint32_t step) {
          const auto scope = it.m.iteration();
          it.differentiate(step);
          (void)it.m.acquire(it.weights[0], cm::access::read).size();
          if (!it.m.rehearsing() && cm::index_of(it.here.rank()) == 0) lent.push_back(it.lent());
          (void)it.step();
        };
        if (rehearses) (void)it.m.rehearse([&] { train(0); });
        it.fill();
        for (std::uint32_t step = 0; step < 3; ++step) train(step);
        return it.values();
      });
      CHECK(found == trained({.divided = divided, .in_place = false}, 3));
      // Where weights stay whole, reads of them ask no share. In step 1 one unit is added by the step alone.
      const std::size_t first = divided.parameters ? 0 : 1;
      CHECK(lent == std::vector<std::size_t>{rehearses ? first + 1 : 0, first, first + 1});
    }
}

TEST_CASE("a weight that is read in its list is the weight or refused while its gradient has its bytes", "[sharding]")
{
  for (const cm::sharding::zero& divided : stages)
    for (const std::uint32_t frames : {9U, 40U}) {
      INFO("stage " << &divided - stages + 1 << ", frames " << frames);
      const std::uint32_t refusals = on_ranks({.divided = divided, .frames = frames, .more = 3}, [&](trainer& it) {
        it.fill();
        it.train(0, 2);
        const std::vector<float> wanted = it.values();
        const auto scope = it.m.iteration();
        it.differentiate(2);
        std::uint32_t refused = 0;
        std::size_t first = 0;
        for (const auto weight : it.weights) {
          const std::string said = refusal([&] {
            const auto pin = it.m.acquire(weight, cm::value_list, cm::access::read);
            for (std::size_t index = 0; index < pin.size(); ++index)
              if (cm::to_float(pin.span()[index]) != wanted[first + index])
                throw std::runtime_error{"a gradient was read as a weight"};
          });
          if (said.find("a weight was read between its gradient and its step") != said.npos) ++refused;
          first += it.m.info(weight).elements;
        }
        (void)it.step();
        return refused;
      });
      CHECK((refusals > 0) == divided.parameters);
    }
}

TEST_CASE("weights are gathered behind the gradients that have the bytes of their shares, never from them",
          "[sharding]")
{
  for (const cm::sharding::zero& divided : stages) {
    INFO("stage " << &divided - stages + 1);
    const std::vector<float> found = on_ranks({.divided = divided}, [&](trainer& it) {
      it.fill();
      it.train(0, 2);
      {
        const auto scope = it.m.iteration();
        it.differentiate(2);
      }
      const std::string refused = refusal([&] { it.m.gather_weights(); });
      if (refused.find("gradients have the bytes of their shares") == refused.npos) throw std::runtime_error{refused};
      it.m.drop_gradients();
      it.m.gather_weights();
      it.train(2, 4);
      return it.values();
    });
    CHECK(found == trained({.divided = divided, .in_place = false}, 4));
  }
}

TEST_CASE("weights come back from their masters where a step is skipped, or gradients are dropped at once or late",
          "[sharding]")
{
  for (const cm::sharding::zero& divided : stages) {
    const std::vector<float> wanted = trained({.divided = divided, .in_place = false}, 6);
    for (const bool in_place : {false, true})
      for (const int how : {0, 1, 2, 3}) {
        INFO("stage " << &divided - stages + 1 << ", way " << how << (in_place ? ", in place" : ""));
        const std::vector<float> found = on_ranks({divided, in_place, 3}, [&](trainer& it) {
          it.fill();
          it.train(0, 4);
          const std::vector<float> before = it.values();
          if (how == 0) it.scale = std::numeric_limits<float>::infinity();
          try {
            const auto scope = it.m.iteration();
            it.differentiate(4);
            if (how == 0) (void)it.step();
            if (how == 1) it.m.drop_gradients();
            if (how == 3) throw std::runtime_error{"a trainer that gives up"};  // the next iteration follows the plan
          } catch (const std::runtime_error&) {
          }
          if (how >= 2) {  // the iteration, or a plan for it, gathers weights that are not there
            const auto scope = it.m.iteration();
            (void)it.m.acquire(it.wide, cm::access::read).size();
            const std::string refused = refusal([&] { (void)it.m.acquire(it.weights[0], cm::access::read); });
            if (refused.empty() != (!in_place || !divided.parameters)) throw std::runtime_error{refused};
            it.m.drop_gradients();
          }
          if (it.values() != before) throw std::runtime_error{"a weight is another one"};
          it.scale = 1;
          it.train(4, 6);
          return it.values();
        });
        CHECK(found == wanted);
      }
  }
}

TEST_CASE("several micro-batches are refused before the first step where the next one would gather gradients",
          "[sharding]")
{
  for (const cm::sharding::zero& divided : stages) {
    const std::string said = on_ranks({.divided = divided}, [&](trainer& it) {
      it.fill();
      return support::refusal<cm::config_error>([&] { (void)it.m.iteration(2); });
    });
    CHECK(said.empty() == (divided != cm::sharding::zero_3));
    if (divided == cm::sharding::zero_3)
      CHECK_THAT(said, ContainsSubstring("use zero_3_reduce_last, zero_2 or zero_1"));
  }
}

TEST_CASE("ranks that place their gradients otherwise are told so before the first step", "[sharding]")
{
  std::vector<std::string> said(ranks);
  const cm::collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    trainer it{group, rank, {.in_place = rank == 0}};
    it.fill();
    said[rank] = refusal([&] { (void)it.m.iteration(); });
  });
  for (const std::string& each : said)
    CHECK_THAT(each, ContainsSubstring("ranks have different gradient policies: rank 1"));
}

TEST_CASE("a save refuses gradients in place that are open, and trainings go on from one with gradients here or there",
          "[sharding]")
{
  for (const cm::sharding::zero& divided : stages)
    for (const bool in_place : {false, true}) {
      INFO("stage " << &divided - stages + 1 << (in_place ? ", in place" : ""));
      support::memory_folder folder;
      std::vector<float> wanted = on_ranks({divided, in_place}, [&](trainer& it) {
        it.fill();
        it.train(0, 3);
        (void)cm::checkpoint::save(it.m, folder);
        const auto scope = it.m.iteration();
        it.differentiate(3);
        if (refusal([&] { (void)cm::checkpoint::save(it.m, folder); }).empty())
          throw std::runtime_error{"a save with open gradients"};
        (void)it.step();
        return it.values();
      });
      CHECK(wanted == trained({.divided = divided, .in_place = false}, 4));
      CHECK(wanted == on_ranks({divided, !in_place}, [&](trainer& it) {
              it.fill();
              it.train(0, 2);
              {
                const auto scope = it.m.iteration();
                it.differentiate(2);  // its gradients are open: the load drops them
              }
              (void)cm::checkpoint::load(it.m, folder);
              it.train(3, 4);
              return it.values();
            }));
    }
}

/// The fewest frames that a training runs on.
std::uint32_t least_frames(setting how)
{
  for (how.frames = 1;; ++how.frames) {
    bool fits[ranks] = {};
    const cm::collective::thread_group group{ranks, {}};
    support::on_ranks(ranks, [&](std::uint32_t rank) {
      try {
        trainer it{group, rank, how};
        it.fill();
        it.train(0, 4);
        fits[rank] = true;
      } catch (const cm::out_of_memory&) {
      } catch (const cm::comm_error&) {  // the other rank has the cause
      }
    });
    if (fits[0] && fits[1]) return how.frames;
  }
}

/// A training in which copy `fatal` of rank 1 fails, counted from step `first`; each call that fails is made again.
/// @return   its weights   @param copies   becomes their count
std::vector<float> trained_past_a_failure(const setting& how, std::uint32_t first, std::uint64_t fatal,
                                          std::uint64_t& copies)
{
  return on_ranks(how, [&](trainer& it) {
    it.fill();
    it.train(0, first);
    const std::uint64_t before = it.memory.copies();
    const bool fails = cm::index_of(it.here.rank()) == 1;
    if (fails) it.memory.set_plan({.copy = before + fatal});
    for (std::uint32_t step = first; step < 4; ++step) {
      std::optional<cm::sharding::rank_iteration<trainer::model_type>> scope;
      it.again([&] { scope.emplace(it.m, [&] { return it.m.shares().iteration("train"); }); });
      it.differentiate(step);
      it.again([&] { (void)it.step(); });
      it.again([&] { scope.reset(); });
    }
    if (fails) copies = it.memory.copies() - before;
    return it.values();
  });
}

/// Each copy fails once. @param more   frames than the least, each of them   @param starts   as `first`
void fail_copies(std::initializer_list<std::uint32_t> more, std::initializer_list<std::uint32_t> starts,
                 updates when = updates::at_once, float clip = 1)
{
  for (const cm::sharding::zero& divided : {cm::sharding::zero_2, cm::sharding::zero_3})
    for (const bool in_place : {false, true}) {
      setting how{.divided = divided, .in_place = false, .clip = clip};
      const std::vector<float> wanted = trained(how, 4);
      how.in_place = in_place;
      how.when = when;
      const std::uint32_t least = least_frames(how);
      for (const std::uint32_t extra : more)
        for (const std::uint32_t first : starts) {
          how.frames = least + extra;
          std::uint64_t all = 0;
          std::uint64_t copies = 0;
          CHECK(trained_past_a_failure(how, first, UINT64_MAX / 2, all) == wanted);
          CHECK(all > 10 * (std::uint64_t{4} - first));  // in each step that is left
          for (std::uint64_t fatal = 0; fatal < all; ++fatal) {
            INFO((divided == cm::sharding::zero_3 ? "zero_3" : "zero_2")
                 << (in_place ? ", in place, " : ", apart, ") << "time " << static_cast<int>(when) << ", " << how.frames
                 << " frames, from step " << first << ", copy " << fatal << " of " << all);
            CHECK(trained_past_a_failure(how, first, fatal, copies) == wanted);
          }
        }
    }
}

TEST_CASE("gradients over ranks, in place or apart, end with the same bits on the least device, whatever copy fails",
          "[sharding]")
{
  fail_copies({0}, {2});
}

TEST_CASE("so they do where updates are late", "[sharding]")
{
  fail_copies({0}, {2}, updates::late);
}

TEST_CASE("so they do where updates are early, and stay", "[sharding]")
{
  fail_copies({4}, {1}, updates::early, 1e9F);
}

TEST_CASE("where the rank ends whose copy failed on the least device, it says so, and the other one that it is gone",
          "[sharding]")
{
  for (const bool in_place : {false, true}) {
    setting how{.divided = cm::sharding::zero_3, .in_place = in_place};
    how.frames = least_frames(how);
    std::uint64_t all = 0;
    (void)trained_past_a_failure(how, 2, UINT64_MAX / 2, all);
    CHECK(all > 20);
    how.tries_again = false;
    for (std::uint64_t fatal = 0; fatal < all; ++fatal) {
      std::string said[ranks];
      const cm::collective::thread_group group{ranks, {}};
      support::on_ranks(ranks, [&](std::uint32_t rank) {
        try {
          trainer it{group, rank, how};
          it.fill();
          it.train(0, 2);
          if (rank == 1) it.memory.set_plan({.copy = it.memory.copies() + fatal});
          it.train(2, 4);
        } catch (const cm::device_error& failed) {
          said[rank] = failed.what();
        } catch (const cm::comm_error& failed) {
          said[rank] = failed.what();
        }
      });
      INFO((in_place ? "in place" : "apart") << ", copy " << fatal);
      CHECK_THAT(said[0], ContainsSubstring("rank 1"));
      CHECK_THAT(said[1], ContainsSubstring("copy failed as planned"));
    }
  }
}

TEST_CASE("so they do on devices that are somewhat larger, and from the first step on", "[sharding][.slow]")
{
  fail_copies({0, 1, 2, 3, 6}, {0, 2});
  fail_copies({0, 1, 2, 3, 6}, {0, 2}, updates::late);
  for (const float clip : {1.0F, 1e9F}) fail_copies({0, 1, 4}, {0, 1, 2, 3}, updates::early, clip);
}

TEST_CASE("kernels update gradients in place of shares, at once and late, also where weights of a share have none",
          "[sharding]")
{
  for (const cm::sharding::zero& divided : stages) {
    const std::vector<float> wanted = trained({.divided = divided, .in_place = false}, 4);
    for (const bool is_late : {false, true}) {
      INFO("stage " << &divided - stages + 1 << (is_late ? ", late" : ""));
      CHECK(wanted == on_ranks({.divided = divided}, [&](trainer& it) {
              cm::optimizer::device_updates<trainer::model_type, cm::optimizer::loop_launcher> device{it.m};
              cm::optimizer::late_updates late{it.m, it.adam, device};
              it.fill();
              for (std::uint32_t step = 0; step < 4; ++step) {
                const auto scope = it.m.iteration();
                it.differentiate(step);
                (void)(is_late ? late.step(trainer::options()) : it.m.step(it.adam, trainer::options(), device));
              }
              it.m.finish_updates();
              return it.values();
            }));
    }
  }
}

TEST_CASE("replicas of a stage take its steps with gradients in place, at once and late", "[sharding]")
{
  for (const cm::sharding::zero& divided : stages) {
    const std::vector<float> wanted = trained({.divided = divided, .in_place = false}, 4);
    for (const bool is_late : {false, true}) {
      INFO("stage of ZeRO " << &divided - stages + 1 << (is_late ? ", late" : ""));
      CHECK(wanted == on_ranks({.divided = divided}, [&](trainer& it) {
              const cm::collective::thread_group one_stage{1, {}};
              cm::collective::local_threads pipeline{one_stage, cm::rank_id{0}};
              cm::pipeline::stage_step<cm::collective::local_threads> step{pipeline};
              cm::optimizer::late_updates late{it.m, it.adam};
              const auto number_of = [](cm::tensor_handle weight) { return cm::index_of(weight.id); };
              it.fill();
              for (std::uint32_t now = 0; now < 4; ++now) {
                const auto scope = it.m.iteration();
                it.differentiate(now);
                if (is_late)
                  (void)step.take(it.m, late, trainer::options(), number_of);
                else
                  (void)step.take(it.m, it.adam, trainer::options(), cm::on_this_thread, number_of);
              }
              it.m.finish_updates();
              return it.values();
            }));
    }
  }
}

TEST_CASE("versions of weights over ranks are refused with gradients in place, before the first step", "[sharding]")
{
  const cm::collective::thread_group group{1, {}};
  memory_type memory{support::failure_plan{},
                     cm::backend::host_arena_options{.device_capacity = frame * 20, .host_capacity = frame * 20}};
  cm::collective::local_threads here{group, cm::rank_id{0}};
  trainer::model_type m{memory, here, {.chunk_bytes = frame}, {}, support::chosen_gradient{true}};
  cm::optimizer::adam adam{{}};
  m.use(adam);
  const auto weight = m.add<cm::bf16>({100}, cm::role::parameter);
  cm::pipeline::weight_versions versions{m, 2, cm::dtype::bfloat16};
  for (cm::bf16& value : m.acquire(weight, cm::access::write).span()) value = cm::round_to<cm::bf16>(1.0F);
  versions.start();
  CHECK_THAT(refusal([&] { versions.flip(); }), ContainsSubstring("under gradient::in_place (use separate)"));
}

TEST_CASE("checks find no mistake in gradients in place over ranks", "[sharding]")
{
  for (const cm::sharding::zero& divided : stages)
    CHECK(trained({.divided = divided, .in_place = false}, 4) ==
          on_ranks<trainer_with<cm::checks::full>>({.divided = divided}, [&](auto& it) {
            it.fill();
            it.train(0, 4);
            return it.values();
          }));
}

}  // namespace gradients_in_place_test
