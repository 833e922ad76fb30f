// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/version_1.hpp>
#include <chunkmem/pipeline/load_from_stages.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_files.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>

#include <support/catch.hpp>
#include <support/managed_weights.hpp>
#include <support/memory_folder.hpp>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace load_from_stages_test {

using namespace chunkmem;
using namespace chunkmem::pipeline;
using Catch::Matchers::ContainsSubstring;
using chunkmem::pipeline::schedule;  // not that of a manager
using support::memory_folder;
using support::vector_type;
using support::width;

namespace {

constexpr std::uint32_t parts = 4;

/// A stage with some parts of the model, and some versions of their weights.
template <optimizer::numerics Rule>
struct stage_by {
  stage_by(std::uint32_t versions_kept, const std::vector<std::uint32_t>& own)
      : layers{64}, versions{layers.m(), versions_kept, dtype::bfloat16}
  {
    for (const std::uint32_t part : own) layers.declare(part);
    layers.m().use(adam);
    layers.m().state("words", std::as_writable_bytes(std::span{&words, 1}));
    layers.fill();
    versions.start();
  }
  stage_by(const stage_by&) = delete;

  /// One update, with gradients that every number of stages makes the same.
  void update()
  {
    {
      const auto scope = layers.m().iteration();
      for (const auto& [part, weight] : layers.parts())
        layers.set_gradient(part, support::numbers_of(100 + part + 10 * versions.newest(), width * width));
    }
    versions.flip();
    const auto scope = layers.m().iteration();
    (void)versions.update([&] { return optimizer::step(layers.m(), adam, {.learning_rate = 0.1F}); });
  }
  /// Of each part, the newest first.
  [[nodiscard]] std::map<std::uint32_t, std::vector<vector_type>> all()
  {
    std::map<std::uint32_t, std::vector<vector_type>> found;
    for (const auto& [part, weight] : layers.parts())
      for (std::uint32_t age = 0; age < versions.kept() && age <= versions.newest(); ++age)
        found[part].push_back(layers.read(versions.acquire(weight, versions.newest() - age)));
    return found;
  }

  optimizer::basic_adam<Rule> adam{{.weight_decay = 0.01F}, {.masters = true}};
  std::uint64_t words = 7;
  support::managed_layers<bf16> layers;
  pipeline::weight_versions<support::manager_of_layers> versions;
};
using stage_of_model = stage_by<optimizer::numerics::version_3>;

/// Those of a stage: its share of all parts, one behind the other.
std::vector<std::uint32_t> parts_of(std::uint32_t stage, std::uint32_t stages)
{
  std::vector<std::uint32_t> own;
  for (std::uint32_t part = 0; part < parts; ++part)
    if (part * stages / parts == stage) own.push_back(part);
  return own;
}

/// Calls `work(place, stage)` for each stage, in a thread of its own. @return   what each one said
template <class Stage = stage_of_model>
std::vector<std::string> on_stages(
    std::uint32_t stages, std::uint32_t versions,
    std::type_identity_t<call_ref<std::string(thread_stages::place& here, Stage& stage)>> work)
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = stages, .micro_batches = 2});
  std::vector<std::string> said(stages);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    Stage stage{versions, parts_of(here.stage(), stages)};
    try {
      said[here.stage()] = work(here, stage);
    } catch (const usage_error& refused) {
      said[here.stage()] = std::string{"usage: "} + refused.what();
    } catch (const error& failed) {
      said[here.stage()] = failed.what();
    }
  });
  return said;
}
void all_say(const std::vector<std::string>& said, const std::string& part)
{
  for (const std::string& each : said) CHECK_THAT(each, ContainsSubstring(part));
}

std::span<const memory_folder> all_of(const std::vector<memory_folder>& folders)
{
  return folders;
}

/// Folders of stages that have made three updates, and saved behind each.
template <class Stage = stage_of_model>
std::vector<memory_folder> saved_by(std::uint32_t stages, std::uint32_t versions)
{
  std::vector<memory_folder> folders(stages);
  all_say(on_stages<Stage>(stages, versions,
                           [&](auto& here, Stage& stage) -> std::string {
                             for (int update = 0; update < 3; ++update) {
                               stage.update();
                               (void)save_stages(here.all(), stage.layers.m(), folders[here.stage()], {.keep = 9});
                             }
                             return "saved";
                           }),
          "saved");
  return folders;
}

/// Weights of each part, by version, after some updates of a stage that has all of them.
std::map<std::uint32_t, std::vector<vector_type>> expected(std::uint32_t versions, int updates)
{
  stage_of_model alone{versions, {0, 1, 2, 3}};
  for (int update = 0; update < updates; ++update) alone.update();
  return alone.all();
}

}  // namespace

TEST_CASE("a checkpoint loads into another number of stages, which go on with the same bits", "[pipeline]")
{
  for (const std::uint32_t before : {1U, 2U, 3U, 4U}) {
    const std::vector<memory_folder> folders = saved_by(before, 2);
    for (const std::uint32_t now : {1U, 2U, 3U, 4U}) {
      CAPTURE(before, now);
      std::vector<std::map<std::uint32_t, std::vector<vector_type>>> loaded(now), later(now);
      const auto said = on_stages(now, 2, [&](auto& here, stage_of_model& stage) {
        const auto found = load_from_stages(here.all(), stage.layers.m(), all_of(folders));
        loaded[here.stage()] = stage.all();
        stage.update();
        later[here.stage()] = stage.all();
        return std::to_string(found.number) + ", " + std::to_string(stage.versions.newest());
      });
      all_say(said, "3, 4");
      std::map<std::uint32_t, std::vector<vector_type>> all, all_later;
      for (auto& each : loaded) all.merge(each);
      for (auto& each : later) all_later.merge(each);
      CHECK(all == expected(2, 3));
      CHECK(all_later == expected(2, 4));
    }
  }
}

TEST_CASE("a version that was not kept is the newest weights", "[pipeline]")
{
  const std::vector<memory_folder> folders = saved_by(2, 2);
  for (const std::uint32_t versions : {1U, 3U}) {
    std::map<std::uint32_t, std::vector<vector_type>> all;
    const auto said = on_stages(1, versions, [&](auto& here, stage_of_model& stage) {
      (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
      all = stage.all();
      return std::string{"loaded"};
    });
    all_say(said, "loaded");
    const auto kept = expected(2, 3);
    for (std::uint32_t part = 0; part < parts; ++part) {
      REQUIRE(all[part].size() == versions);
      CHECK(all[part][0] == kept.at(part)[0]);
      if (versions == 1) continue;
      CHECK(all[part][1] == kept.at(part)[1]);
      CHECK(all[part][2] == kept.at(part)[0]);
    }
  }
}

TEST_CASE("a damaged folder of one stage sends all stages to the generation before", "[pipeline]")
{
  std::vector<memory_folder> folders = saved_by(4, 1);
  folders[3].flip("generation-000003.manifest", 40);
  std::vector<std::size_t> skipped(3);
  all_say(on_stages(3, 1,
                    [&](auto& here, stage_of_model& stage) {
                      const auto found = load_from_stages(here.all(), stage.layers.m(), all_of(folders));
                      skipped[here.stage()] = found.skipped.size();
                      return std::to_string(found.number) + ", " + std::to_string(stage.versions.newest());
                    }),
          "2, 2");
  CHECK(skipped == std::vector<std::size_t>{1, 1, 1});
  for (const char* const manifest : {"generation-000001.manifest", "generation-000002.manifest"})
    folders[0].flip(manifest, 40);
  all_say(on_stages(3, 1,
                    [&](auto& here, stage_of_model& stage) {
                      (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
                      return std::string{};
                    }),
          "no generation in common that is whole");
}

TEST_CASE("damaged bytes of a tensor send all stages to the generation before, and newest passes it over", "[pipeline]")
{
  std::vector<memory_folder> folders = saved_by(2, 2);
  const auto load = [&](const load_from_stages_options& options) {
    return on_stages(3, 2, [&](auto& here, stage_of_model& stage) {
      return std::to_string(load_from_stages(here.all(), stage.layers.m(), all_of(folders), options).number);
    });
  };
  all_say(load({.newest = 2}), "2");
  for (const std::string& name : folders[1].names())
    if (name.starts_with("generation-000003-")) folders[1].flip(name, folders[1].content_of(name).size() - 1);
  all_say(load({}), "2");
  all_say(load({.newest = 1}), "1");
  all_say(load({.newest = 0}), "no generation in common");
}

TEST_CASE("a weight that its type does not reach is refused by all stages, before any writes", "[pipeline]")
{
  std::vector<memory_folder> folders(2);
  all_say(
      on_stages(2, 1,
                [&](auto& here, stage_of_model& stage) -> std::string {
                  stage.update();
                  auto& m = stage.layers.m();
                  if (here.stage() == 1)
                    for (float& it : m.template acquire<float>(stage.layers.parts().begin()->second, m.list("master"),
                                                               access::write, memory_location::host)
                                         .span())
                      it = 3.4e38F;
                  (void)save_stages(here.all(), m, folders[here.stage()], {.keep = 2});
                  return "saved";
                }),
      "saved");
  all_say(on_stages(1, 1,
                    [&](auto& here, stage_of_model& stage) -> std::string {
                      const auto before = stage.all();
                      try {
                        (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
                      } catch (const config_error& refused) {
                        if (stage.all() != before) return "something was written";
                        const auto done =
                            load_from_stages(here.all(), stage.layers.m(), all_of(folders), {.allow_overflow = true});
                        return std::string{refused.what()} +
                               (done.rounded.overflows == width * width ? ", counted" : ", not counted");
                      }
                      return "it was taken";
                    }),
          "would be infinite in bfloat16");
}

TEST_CASE("tensors without names of their own are refused, as two of them would be one", "[pipeline]")
{
  const auto rename = [](stage_of_model& stage, const std::string& name) {
    stage.layers.m().name(stage.layers.parts().begin()->second, name);
  };
  std::vector<memory_folder> folders(2);
  const auto save_as = [&](const std::string& name) {
    folders = std::vector<memory_folder>(2);
    all_say(on_stages(2, 1,
                      [&](auto& here, stage_of_model& stage) {
                        rename(stage, name);
                        (void)save_stages(here.all(), stage.layers.m(), folders[here.stage()]);
                        return std::string{"saved"};
                      }),
            "saved");
  };
  const auto load_as = [&](std::uint32_t stages, const std::string& name) {
    return on_stages(stages, 1, [&](auto& here, stage_of_model& stage) {
      rename(stage, name);
      (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
      return std::string{"loaded"};
    });
  };
  save_as("layer 0");  // of both stages
  all_say(load_as(1, "layer 0"), "two stages saved a tensor with the name");
  save_as("");
  all_say(load_as(1, ""), "two stages saved a tensor with the name");
  folders = saved_by(1, 1);
  all_say(load_as(1, ""), "tensor.0 has none");
  all_say(load_as(2, "part 0"), "two stages here have");
}

TEST_CASE("a tensor is lost to no name that looks like that of a list or of a copy", "[pipeline]")
{
  std::vector<memory_folder> folders(1);
  all_say(on_stages(1, 1,
                    [&](auto& here, stage_of_model& stage) {
                      stage.layers.m().name(stage.layers[3], "weights/1");
                      stage.layers.m().name(stage.layers[2], "block/part 0");
                      (void)save_stages(here.all(), stage.layers.m(), folders[0]);
                      return std::string{"saved"};
                    }),
          "saved");
  const auto load_parts = [&](const std::vector<std::uint32_t>& own, const std::vector<std::string>& names) {
    return on_stages(1, 1, [&](auto& here, stage_of_model&) {
      stage_of_model some{1, own};
      for (std::size_t index = 0; index < own.size(); ++index)
        if (!names[index].empty()) some.layers.m().name(some.layers[own[index]], names[index]);
      (void)load_from_stages(here.all(), some.layers.m(), all_of(folders), {.copies = {{"part 0", "part 9"}}});
      return std::string{"loaded"};
    });
  };
  all_say(load_parts({0, 1, 2, 3}, {"", "", "block/part 0", "weights/1"}), "loaded");
  all_say(load_parts({0, 1, 2}, {"", "", "block/part 0"}), "no stage here has");
  all_say(load_parts({0, 1, 3}, {"", "", "weights/1"}), "no stage here has");
  all_say(load_parts({1, 2, 3}, {"", "block/part 0", "weights/1"}), "no stage here has");
  all_say(load_parts({9, 1, 2, 3}, {"part 9", "", "block/part 0", "weights/1"}), "loaded");  // the copy took it
}

TEST_CASE("folders of two trainings, and of an update that was not done, are refused", "[pipeline]")
{
  std::vector<memory_folder> folders = saved_by(2, 2);
  std::vector<memory_folder> others = saved_by(2, 2);
  const auto load = [&] {
    return on_stages(1, 2, [&](auto& here, stage_of_model& stage) {
      (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
      return std::string{"loaded"};
    });
  };
  std::swap(folders[1], others[1]);
  all_say(load(), "two trainings");
  std::swap(folders[1], others[1]);
  all_say(load(), "loaded");
  all_say(on_stages(2, 2,
                    [&](auto& here, stage_of_model& stage) {
                      (void)load_stages(here.all(), stage.layers.m(), folders[here.stage()]);
                      stage.versions.flip();
                      (void)save_stages(here.all(), stage.layers.m(), folders[here.stage()]);
                      return std::string{"saved"};
                    }),
          "saved");
  all_say(load(), "before its update was done");
}

TEST_CASE("what was loaded from other stages is not saved into their folders", "[pipeline]")
{
  std::vector<memory_folder> folders = saved_by(2, 1);
  std::vector<memory_folder> fresh(2);
  all_say(on_stages(2, 1,
                    [&](auto& here, stage_of_model& stage) {
                      (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
                      return std::to_string(save_stages(here.all(), stage.layers.m(), fresh[here.stage()]).number);
                    }),
          "1");
  all_say(on_stages(2, 1,
                    [&](auto& here, stage_of_model& stage) {
                      (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
                      return std::to_string(save_stages(here.all(), stage.layers.m(), folders[here.stage()]).number);
                    }),
          "another training");
}

TEST_CASE("stages refuse a checkpoint that is not of their model, all of them", "[pipeline]")
{
  const std::vector<memory_folder> folders = saved_by(2, 1);
  const auto load_with = [&](std::uint32_t stages, auto change) {
    return on_stages(stages, 1, [&](auto& here, stage_of_model& stage) { return change(here, stage); });
  };
  all_say(load_with(2,
                    [&](auto& here, stage_of_model&) {  // part 3 has no stage
                      stage_of_model other{1, here.stage() == 0 ? std::vector{0U, 1U} : std::vector{2U}};
                      (void)load_from_stages(here.all(), other.layers.m(), all_of(folders));
                      return std::string{};
                    }),
          "no stage here has");
  all_say(load_with(2,
                    [&](auto& here, stage_of_model&) {
                      stage_of_model other{1, here.stage() == 0 ? std::vector{0U, 1U, 9U} : std::vector{2U, 3U}};
                      (void)load_from_stages(here.all(), other.layers.m(), all_of(folders));
                      return std::string{};
                    }),
          "it does not have");
  all_say(load_with(2,
                    [&](auto& here, stage_of_model& stage) {
                      const auto some = all_of(folders).first(here.stage() + 1U);
                      (void)load_from_stages(here.all(), stage.layers.m(), some);
                      return std::string{};
                    }),
          "give all of them the same");
  all_say(load_with(2,
                    [&](auto& here, stage_of_model& stage) {
                      (void)load_from_stages(here.all(), stage.layers.m(), std::span<const memory_folder>{});
                      return std::string{};
                    }),
          "usage: ");
}

TEST_CASE("other folders on another stage, of two saves or twice of one stage are refused, and the error names both",
          "[pipeline]")
{
  std::vector<memory_folder> folders = saved_by(2, 1);
  std::vector<memory_folder> turned(2), others = saved_by(2, 1);
  const auto copy = [](const memory_folder& from, memory_folder& to) {
    to = {};
    for (const std::string& name : from.names()) {
      const memory_folder::content bytes = from.content_of(name);
      CHECK(to.create(name).write(bytes) == bytes.size());
    }
  };
  const auto load = [&](const std::vector<memory_folder>& first, const std::vector<memory_folder>& second) {
    return on_stages(2, 1, [&](auto& here, stage_of_model& stage) {
      const auto& own = here.stage() == 0 ? first : second;
      return std::to_string(load_from_stages(here.all(), stage.layers.m(), all_of(own)).number);
    });
  };
  copy(folders[0], turned[1]);
  copy(folders[1], turned[0]);
  all_say(load(folders, turned), "folder 0 of the folders to load is another one on stage 1 than on stage 0");
  all_say(load(turned, turned), "3");
  all_say(load(folders, others), "is another one on stage 1");
  copy(folders[0], turned[0]);
  all_say(load(turned, turned), "folder 1 of the folders to load is that of stage 0, as folder 0");
  std::swap(folders[1], others[1]);
  all_say(load(folders, folders), "stages of two trainings");
  others.pop_back();
  all_say(load(others, others), "is that of stage 0 of 2, and the folders are 1");
}

TEST_CASE("other stages refuse a checkpoint of another version of the numerics", "[pipeline]")
{
  using first = stage_by<optimizer::numerics::version_1>;
  using second = stage_by<optimizer::numerics::version_3>;
  const auto load = [](const std::vector<memory_folder>& folders) {
    return [&](auto& here, auto& stage) -> std::string {
      (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
      return "loaded";
    };
  };
  const std::vector<memory_folder> older = saved_by<first>(2, 1), newer = saved_by<second>(2, 1);
  all_say(on_stages<first>(3, 1, load(older)), "loaded");
  all_say(on_stages<second>(3, 1, load(older)), "a checkpoint of version 1 of the numerics");
  all_say(on_stages<first>(3, 1, load(newer)), "a checkpoint of version 3 of the numerics");
  all_say(on_stages<second>(3, 1, load(newer)), "loaded");
}

TEST_CASE("a state that each stage has its own bytes of does not load into other stages", "[pipeline]")
{
  std::vector<memory_folder> folders(2);
  all_say(on_stages(2, 1,
                    [&](auto& here, stage_of_model& stage) {
                      stage.words = here.stage();
                      (void)save_stages(here.all(), stage.layers.m(), folders[here.stage()]);
                      return std::string{"saved"};
                    }),
          "saved");
  all_say(on_stages(1, 1,
                    [&](auto& here, stage_of_model& stage) {
                      (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
                      return std::string{};
                    }),
          "each stage saved its own bytes of state/words");
}

TEST_CASE("states that were saved before the first update begin at zero again on stages that have trained",
          "[pipeline]")
{
  std::vector<memory_folder> folders(2);
  all_say(on_stages(2, 1,
                    [&](auto& here, stage_of_model& stage) {
                      (void)save_stages(here.all(), stage.layers.m(), folders[here.stage()]);
                      return std::string{"saved"};
                    }),
          "saved");
  const auto right = expected(1, 2);
  for (const std::uint32_t stages : {1U, 2U, 3U})
    all_say(on_stages(stages, 1,
                      [&](auto& here, stage_of_model& stage) -> std::string {
                        for (int update = 0; update < 3; ++update) stage.update();
                        (void)load_from_stages(here.all(), stage.layers.m(), all_of(folders));
                        for (int update = 0; update < 2; ++update) stage.update();
                        for (const auto& [part, weights] : stage.all())
                          if (weights != right.at(part)) return "other weights";
                        return "loaded";
                      }),
            "loaded");
}

TEST_CASE("copies of a tied weight fill each other", "[pipeline]")
{
  const std::vector<memory_folder> folders = saved_by(2, 1);
  const auto load_with = [&](const load_from_stages_options& options) {
    std::vector<vector_type> both(2);
    const auto said = on_stages(1, 1, [&](auto& here, stage_of_model&) {
      stage_of_model tied{1, {0, 1, 2, 3, 9}};
      tied.layers.m().name(tied.layers[9], "copy of part 0");
      (void)load_from_stages(here.all(), tied.layers.m(), all_of(folders), options);
      both = {tied.all()[0][0], tied.all()[9][0]};
      return std::string{"loaded"};
    });
    return std::pair{said, both};
  };
  const auto [said, both] = load_with({.copies = {{"copy of part 0", "part 0"}}});
  all_say(said, "loaded");
  CHECK(both[0] == both[1]);
  CHECK(both[0] == expected(1, 3).at(0)[0]);
  all_say(load_with({}).first, "it does not have");
}

TEST_CASE("stages load in part: a weight begins anew with its own counts, and one is left out", "[pipeline]")
{
  const std::vector<memory_folder> folders = saved_by(2, 1);
  const auto right = expected(1, 3);
  for (const std::uint32_t stages : {1U, 2U})
    all_say(on_stages(stages, 1,
                      [&](auto& here, stage_of_model&) -> std::string {
                        std::vector<std::uint32_t> own = parts_of(here.stage(), stages);
                        const bool is_last = here.stage() + 1 == stages;
                        if (is_last) own.back() = 9;  // in the place of part 3
                        stage_of_model it{1, own};
                        auto& m = it.layers.m();
                        const auto before = it.all();
                        const load_from_stages_options options{.begins_anew = {"*part 9"}, .leaves_out = {"*part 3"}};
                        try {
                          (void)load_from_stages(here.all(), m, all_of(folders), {.begins_anew = {"*part 9"}});
                          return "part 3 was left out without leave";
                        } catch (const config_error&) {
                        }
                        const auto found = load_from_stages(here.all(), m, all_of(folders), options);
                        auto now = it.all();
                        for (const std::uint32_t part : own)
                          if (part != 9 && now.at(part)[0] != right.at(part)[0]) return "other weights";
                        if (!is_last) return found.names.begun_anew.empty() ? "right" : "something began anew";
                        if (now.at(9) != before.at(9)) return "what begins anew was written";
                        if (it.adam.progress.number != 3) return "another count";
                        if (it.adam.progress.missed.of(index_of(it.layers[9].id)) != 3)
                          return "another count of its own";
                        if (found.names.begun_anew.size() != 3) return "other names began anew";
                        return found.names.ignored.size() == 3 ? "right" : "other names were left out";
                      }),
            "right");
}

TEST_CASE("a copy of a tied weight has missed the updates of the other one, whichever was saved", "[pipeline]")
{
  const auto on_one = [](std::vector<memory_folder>& folders, bool has_both, bool saves) {
    std::vector<std::uint64_t> missed;
    const auto said = on_stages(1, 1, [&](auto& here, stage_of_model&) -> std::string {
      const std::vector<std::uint32_t> one{0, 1, 2, 3}, both{0, 1, 2, 3, 9};
      stage_of_model it{1, has_both ? both : one};
      if (has_both) it.layers.m().name(it.layers[9], "copy of part 0");
      const auto number_of = [&](std::uint32_t part) { return index_of(it.layers[part].id); };
      if (saves) {
        it.update();
        for (const std::uint32_t part : {0U, 2U}) it.adam.progress.missed.note(number_of(part));
        if (has_both) it.adam.progress.missed.note(number_of(9));
        it.adam.progress.missed.end();
        (void)save_stages(here.all(), it.layers.m(), folders[0]);
        return "done";
      }
      (void)load_from_stages(here.all(), it.layers.m(), all_of(folders), {.copies = {{"copy of part 0", "part 0"}}});
      for (const std::uint32_t part : has_both ? both : one)
        missed.push_back(it.adam.progress.missed.of(number_of(part)));
      return "done";
    });
    all_say(said, "done");
    return missed;
  };
  for (const bool saves_both : {false, true})
    for (const bool loads_both : {false, true}) {
      std::vector<memory_folder> folders(1);
      (void)on_one(folders, saves_both, true);
      std::vector<std::uint64_t> expected_ones{1, 0, 1, 0};
      if (loads_both) expected_ones.push_back(1);
      CHECK(on_one(folders, loads_both, false) == expected_ones);
    }
}

}  // namespace load_from_stages_test
