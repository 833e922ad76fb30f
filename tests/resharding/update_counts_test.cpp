// SPDX-License-Identifier: Apache-2.0
// Trainings in which weights miss updates, for reasons and in places of all kinds, beside one in scalar code.
#include "plain_counts.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/pipeline/load_from_stages.hpp>
#include <chunkmem/pipeline/stage_files.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <checkpoint/small_model.hpp>
#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace update_counts_test {

namespace cm = chunkmem;
using namespace cm::literals;
using namespace plain_counts;
using plain_counts::place;
using arena = cm::backend::host_arena;
using threads = cm::collective::local_threads;
using manager_type = cm::manager<arena>;
using model_type = cm::sharded_model<arena, threads>;
using support::memory_folder;
using folders_type = std::vector<memory_folder>;

namespace {

void expect(bool holds, const std::string& what)
{
  if (!holds) throw std::runtime_error{what};
}

cm::optimizer::step_options options_of(const step& now)
{
  return {.learning_rate = learning_rate, .clip = {.norm = now.clip}};
}
cm::optimizer::adam new_kernel()
{
  return cm::optimizer::adam{{.weight_decay = weight_decay}};
}

/// Some tensors of the model, in a manager or over ranks.
template <class Model>
struct declared {
  explicit declared(Model& model, std::size_t begin = 0, std::size_t end = tensors) : m{model}, first{begin}
  {
    for (std::size_t tensor = begin; tensor < end; ++tensor) {
      weights.push_back(m.template add<float>({sizes[tensor]}, cm::role::parameter));
      m.name(weights.back(), "w" + std::to_string(tensor));
    }
  }
  void fill()
  {
    for (std::size_t index = 0; index < weights.size(); ++index) {
      const auto pin = m.acquire(weights[index], cm::access::write, cm::memory_location::host);
      for (std::size_t element = 0; element < pin.size(); ++element)
        pin.span()[element] = first_value(first + index, element);
    }
  }
  /// @param is_first   of the ranks: the others add nothing
  void differentiate(const step& now, bool is_first = true)
  {
    for (std::size_t index = weights.size(); index-- > 0;) {
      if (!now.has_gradient[first + index]) continue;
      const auto pin = m.gradient(weights[index]);
      for (std::size_t element = 0; element < pin.size(); ++element)
        pin.span()[element] = is_first ? gradient(now, first + index, element) : 0.0F;
    }
  }
  void compare(const training& wanted)
  {
    for (std::size_t index = 0; index < weights.size(); ++index) {
      const auto pin = m.acquire(weights[index], cm::access::read, cm::memory_location::host);
      expect(std::ranges::equal(pin.span(), wanted[first + index].value), "w" + std::to_string(first + index));
    }
  }

  Model& m;
  std::size_t first;
  std::vector<cm::tensor<float>> weights;
};

void compare_states(declared<manager_type>& own, const training& wanted)
{
  own.compare(wanted);
  const auto same = [&](std::size_t index, const char* list, const std::vector<float>& values) {
    if (!own.m.is_filled(own.weights[index], own.m.list(list)))
      return std::ranges::count(values, 0.0F) == std::ssize(values);
    const auto pin = own.m.template acquire<float>(own.weights[index], own.m.list(list), cm::access::read,
                                                   cm::memory_location::host);
    return std::ranges::equal(pin.span(), values);
  };
  for (std::size_t index = 0; index < own.weights.size(); ++index) {
    expect(same(index, "adam/momentum", wanted[own.first + index].momentum), "a momentum");
    expect(same(index, "adam/variance", wanted[own.first + index].variance), "a variance");
  }
}
void compare_counts(const cm::optimizer::step_progress& progress, const training& wanted)
{
  expect(progress.number == wanted.steps(), "the number of steps");
  for (std::uint32_t tensor = 0; tensor < tensors; ++tensor)
    expect(progress.number - progress.missed.of(tensor) == wanted[tensor].updates,
           "the count of w" + std::to_string(tensor));
}

/// A phase of one manager. @param from   what the phase before saved; empty: this is the first
/// Updates on the device that the calling thread decides.
template <class Owner>
using kernels_on = cm::optimizer::device_updates<Owner, cm::optimizer::loop_launcher>;

folders_type train_alone(const phase& now, const folders_type& from, training& wanted)
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 256_KiB}};
  manager_type m{memory, {.chunk_bytes = 1_KiB}};
  declared<manager_type> own{m};
  cm::optimizer::adam kernel = new_kernel();
  m.use(kernel);
  own.fill();
  if (from.size() > 1) {
    const cm::collective::thread_group group{1, {}};
    threads all{group, cm::rank_id{0}};
    (void)cm::pipeline::load_from_stages(all, m, std::span<const memory_folder>{from});
  } else if (!from.empty()) {
    (void)cm::checkpoint::load(m, from[0]);
  }
  compare_counts(kernel.progress, wanted);
  compare_states(own, wanted);
  cm::optimizer::late_updates late{m, kernel};
  cm::optimizer::early_updates early{m, kernel, 4_KiB};
  kernels_on<manager_type> device{m};
  for (const step& it : now.steps) {
    const auto scope = m.iteration();
    own.differentiate(it);
    wanted.take(it);
    switch (it.when) {
      case timing::at_once: (void)cm::optimizer::step(m, kernel, options_of(it)); break;
      case timing::late: (void)late.step(options_of(it)); break;
      case timing::on_device: (void)cm::optimizer::step(m, kernel, options_of(it), device); break;
      case timing::early: (void)early.step(options_of(it)); break;
      case timing::dropped: m.drop_gradients(); break;
    }
  }
  folders_type to(1);
  (void)cm::checkpoint::save(m, to[0]);
  compare_counts(kernel.progress, wanted);
  compare_states(own, wanted);
  return to;
}

folders_type train_on_ranks(const phase& now, const folders_type& from, training& wanted)
{
  const training before = wanted;
  folders_type to(1);
  std::vector<std::string> said(now.ranks);
  const cm::collective::thread_group group{now.ranks, {}};
  const cm::sharding::zero kinds[] = {cm::sharding::zero_1, cm::sharding::zero_2, cm::sharding::zero_3};
  support::on_ranks(now.ranks, [&](std::uint32_t rank) {
    said[rank] = support::refusal<std::exception>([&] {
      const cm::bytes frame{now.ranks * std::uint64_t{16'384}};
      arena memory{{.device_capacity = 40 * frame, .host_capacity = 40 * frame}};
      threads here{group, cm::rank_id{rank}};
      model_type m{memory, here, {.chunk_bytes = frame}, {.divided = kinds[now.zero - 1]}};
      declared<model_type> own{m};
      cm::optimizer::adam kernel = new_kernel();
      m.use(kernel);
      own.fill();
      if (!from.empty()) (void)cm::checkpoint::load(m, from[0]);
      training twin = before;
      compare_counts(kernel.progress, twin);
      cm::optimizer::late_updates late{m, kernel};
      cm::optimizer::early_updates early{m, kernel, frame};
      kernels_on<model_type> device{m};
      for (const step& it : now.steps) {
        const auto scope = m.iteration();
        own.differentiate(it, rank == 0);
        twin.take(it);
        switch (it.when) {
          case timing::late: (void)late.step(options_of(it)); break;
          case timing::on_device: (void)m.step(kernel, options_of(it), device); break;
          case timing::early: (void)early.step(options_of(it)); break;
          default: (void)m.step(kernel, options_of(it));
        }
      }
      compare_counts(kernel.progress, twin);
      own.compare(twin);
      (void)cm::checkpoint::save(m, to[0]);
      if (rank == 0) wanted = twin;
    });
  });
  for (const std::string& it : said) expect(it.empty(), it);
  return to;
}

folders_type train_on_stages(const phase& now, const folders_type& from, training& wanted)
{
  const training before = wanted;
  folders_type to(2);
  std::vector<std::string> said(2);
  const cm::collective::thread_group group{2, {}};
  support::on_ranks(2, [&](std::uint32_t stage) {
    try {
      arena memory{{.device_capacity = 64_KiB, .host_capacity = 256_KiB}};
      threads all{group, cm::rank_id{stage}};
      manager_type m{memory, {.chunk_bytes = 1_KiB}};
      declared<manager_type> own{m, stage == 0 ? 0 : first_of_second_stage,
                                 stage == 0 ? first_of_second_stage : tensors};
      cm::optimizer::adam kernel = new_kernel();
      m.use(kernel);
      own.fill();
      if (!from.empty()) (void)cm::pipeline::load_from_stages(all, m, std::span<const memory_folder>{from});
      cm::pipeline::stage_step steps{all};
      cm::optimizer::late_updates late{m, kernel};
      kernels_on<manager_type> device{m};
      training twin = before;
      for (const step& it : now.steps) {
        const auto scope = m.iteration();
        own.differentiate(it);
        twin.take(it);
        const auto number = [&](cm::tensor_handle weight) {
          return static_cast<std::uint32_t>(own.first + cm::index_of(weight.id));
        };
        switch (it.when) {
          case timing::late: (void)steps.take(m, late, options_of(it), number); break;
          case timing::on_device: (void)steps.take(m, kernel, options_of(it), device, number); break;
          default: (void)steps.take(m, kernel, options_of(it), cm::on_this_thread, number);
        }
      }
      compare_states(own, twin);
      (void)cm::pipeline::save_stages(all, m, to[stage]);
      if (stage == 0) wanted = twin;
    } catch (const std::exception& failed) {
      said[stage] = failed.what();
    }
  });
  for (const std::string& it : said) expect(it.empty(), it);
  return to;
}

folders_type train_on_device(const phase& now, const folders_type& from, training& wanted)
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 256_KiB, .async_compute = true}};
  manager_type m{memory, {.chunk_bytes = 1_KiB}};
  declared<manager_type> own{m};
  cm::optimizer::device_optimizer<manager_type, cm::optimizer::adam, cm::optimizer::loop_launcher> kernel{m,
                                                                                                          new_kernel()};
  own.fill();
  kernel.prepare();
  if (!from.empty()) (void)cm::checkpoint::load(m, from[0]);
  for (const step& it : now.steps) {
    const auto scope = m.iteration();
    own.differentiate(it);
    wanted.take(it);
    kernel.step(options_of(it));
  }
  expect(kernel.progress().updates == wanted.steps(), "the number of steps");
  compare_states(own, wanted);
  folders_type to(1);
  (void)cm::checkpoint::save(m, to[0]);
  return to;
}

/// @return   what differs from the training in scalar code, or nothing
std::string train(const std::vector<phase>& history, training& wanted)
{
  folders_type folders;
  bool is_on_device = false;
  return support::refusal<std::exception>([&] {
    for (const phase& now : history) {
      if (now.where == place::ranks && folders.size() > 1) folders = train_alone({}, folders, wanted);
      is_on_device = now.where == place::device;
      switch (now.where) {
        case place::alone: folders = train_alone(now, folders, wanted); break;
        case place::ranks: folders = train_on_ranks(now, folders, wanted); break;
        case place::stages: folders = train_on_stages(now, folders, wanted); break;
        case place::device: folders = train_on_device(now, folders, wanted); break;
      }
    }
    if (!is_on_device) (void)train_alone({}, folders, wanted);
  });
}

/// @return   how many were equal
std::uint64_t train_histories(std::uint64_t count)
{
  std::uint64_t equal = 0;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    training wanted;
    const std::string complaint = train(draw_history(seed), wanted);
    INFO("seed " << seed);
    CHECK(complaint == "");
    equal += complaint.empty() ? 1 : 0;
  }
  return equal;
}

std::string list_of(const std::vector<float>& values)
{
  std::ostringstream text;
  text.precision(9);
  for (const float it : values) text << (text.tellp() > 0 ? ", " : "") << (std::isfinite(it) ? it : 0.0F);
  return '[' + text.str() + ']';
}
/// A history for pytorch_adam.py: what each weight begins with, the gradients of each step, and how it ended here.
std::string words_of(const std::vector<phase>& history, const training& ended)
{
  std::ostringstream text;
  text << R"({"learning_rate": )" << learning_rate << R"(, "weight_decay": )" << weight_decay << R"(, "first": [)";
  const training fresh;
  for (std::size_t tensor = 0; tensor < tensors; ++tensor)
    text << (tensor > 0 ? ", " : "") << list_of(fresh[tensor].value);
  text << R"(], "steps": [)";
  const char* between = "";
  for (const phase& each : history)
    for (const step& now : each.steps) {
      text << std::exchange(between, ", ") << R"({"counts": )"
           << (now.is_spoilt || now.when == timing::dropped ? "false" : "true") << R"(, "clip": )" << now.clip
           << R"(, "gradients": [)";
      for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
        std::vector<float> values;
        for (std::size_t element = 0; element < sizes[tensor]; ++element)
          values.push_back(gradient(now, tensor, element));
        text << (tensor > 0 ? ", " : "") << (now.has_gradient[tensor] ? list_of(values) : "null");
      }
      text << "]}";
    }
  text << R"(], "last": [)";
  for (std::size_t tensor = 0; tensor < tensors; ++tensor)
    text << (tensor > 0 ? ", " : "") << list_of(ended[tensor].value);
  text << R"(], "updates": [)";
  for (std::size_t tensor = 0; tensor < tensors; ++tensor) text << (tensor > 0 ? ", " : "") << ended[tensor].updates;
  return text.str() + "]}\n";
}

}  // namespace

TEST_CASE("weights that miss updates count their own, whoever trains them, and wherever they go on", "[resharding]")
{
  constexpr std::uint64_t histories = 250;
  const std::uint64_t equal = train_histories(histories);
  support::write_figures("test_resharding_counts", "build/test/bin/test_resharding",
                         {{"optimizer.histories_equal_percent", 100 * equal / histories, "%", "==", 100}});
}

TEST_CASE("weights that have missed updates go on with their own counts where nothing misses one any more",
          "[resharding]")
{
  for (const place where : {place::alone, place::ranks, place::stages, place::device}) {
    std::vector<phase> history(2);
    for (std::uint64_t number = 0; number < 6; ++number) {
      phase& now = history[number / 3];
      now.where = where;
      now.ranks = where == place::ranks ? 2 : 1;
      now.steps.push_back({.number = number});
      now.steps.back().has_gradient.fill(true);
      now.steps.back().has_gradient[1] = number >= 3;  // from the load on
    }
    training ended;
    INFO("place " << static_cast<int>(where));
    CHECK(train(history, ended) == "");
    CHECK((ended[0].updates == 6 && ended[1].updates == 3));
  }
}

TEST_CASE("a hundred histories end as with PyTorch's AdamW, within its rounding, and with its counts",
          "[resharding][.pytorch]")
{
  const char* const interpreter = std::getenv("CHUNKMEM_PYTHON");
  const std::string script = "'" + (std::filesystem::path{__FILE__}.parent_path() / "pytorch_adam.py").string() + "' ";
  if (interpreter == nullptr || std::system((interpreter + (' ' + script) + "ask").c_str()) != 0)
    SKIP("PyTorch was not found (CHUNKMEM_PYTHON names a Python that has it)");
  checkpoints::temporary_folder place;
  const std::string file = place.path() + "/histories";
  {
    std::ofstream to{file};
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      training ended;
      INFO("seed " << seed);
      REQUIRE(train(draw_history(seed), ended) == "");
      to << words_of(draw_history(seed), ended);
    }
  }
  CHECK(std::system((interpreter + (' ' + script) + "compare '" + file + "'").c_str()) == 0);
}

TEST_CASE("so they do in ten thousand histories", "[resharding][.slow]")
{
  CHECK(train_histories(10'000) == 10'000);
}

}  // namespace update_counts_test
