// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <support/catch.hpp>
#include <support/every_policy.hpp>
#include <support/refusal.hpp>
#include <support/train_on_ranks.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// A small model over ranks that is saved and loaded.
namespace rank_checkpoints {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using threads = cm::collective::local_threads;
using model_type = support::ranks::chosen_model<cm::ownership::hierarchical>;
using manager_type = cm::manager<arena>;

inline constexpr cm::bytes room = 16_MiB;
inline const std::vector<cm::list_spec> momenta{
    {.name = "momentum", .type = cm::dtype::float32, .version = 1, .use = cm::list_use::state}};

/// A few tensors, one larger than a chunk may be, one of a few elements, a frozen one, a buffer and a state of each
/// rank.
template <class Model>
struct declared {
  explicit declared(Model& model)
      : m{model},
        large{m.template add<float>({300, 70}, cm::role::parameter)},
        small{m.template add<float>({5}, cm::role::parameter)},
        fixed{m.template add<cm::bf16>({90, 3}, cm::role::frozen)},
        buffer{m.template add<float>({7}, cm::role::buffer)}
  {
    m.use(momenta);
    m.name(large, "layers[3]");  // brackets that mean nothing in a checkpoint
    m.name(small, "small");
    m.name(buffer, "running mean");
    m.state("cursor", std::as_writable_bytes(std::span{cursor}));
  }
  void fill(float begin)
  {
    each(cm::access::write,
         [&, next = begin](auto& it) mutable { it = cm::round_to<std::remove_reference_t<decltype(it)>>(next++); });
    for (float& it : m.acquire(buffer, cm::access::write).span()) it = begin;
  }
  [[nodiscard]] bool holds(float begin)
  {
    bool same = true;
    each(cm::access::read, [&, next = begin](const auto& it) mutable {
      same = same && cm::to_float(it) == cm::to_float(cm::round_to<std::remove_cvref_t<decltype(it)>>(next++));
    });
    return same;
  }

  Model& m;
  cm::tensor<float> large;
  cm::tensor<float> small;
  cm::tensor<cm::bf16> fixed;
  cm::tensor<float> buffer;
  std::array<std::uint32_t, 3> cursor{};

 private:
  template <cm::access_choice Access, class Use>
  void each(Access how, Use use)
  {
    for (auto& it : m.acquire(large, how).span()) use(it);
    for (auto& it : m.acquire(small, how).span()) use(it);
    for (auto& it : m.acquire(fixed, how).span()) use(it);
  }
};

/// How ranks divide the model.
struct division {
  std::uint32_t ranks = 2;
  std::uint32_t of_node = 0;  ///< 0: all
  std::uint32_t blocks = 2;   ///< of a chunk, for each rank
  cm::sharding::zero divided = cm::sharding::zero_3;

  [[nodiscard]] cm::bytes chunk() const
  {
    return cm::bytes{std::uint64_t{of_node == 0 ? ranks : of_node} * 16384 * blocks};
  }
};

/// The error of each rank in `work(rank, model, tensors)`: nothing, or the text of the exception.
using work_of_rank = cm::call_ref<void(std::uint32_t rank, model_type& model, declared<model_type>& tensors)>;
inline std::vector<std::string> said_on(const division& how, work_of_rank work)
{
  std::vector<std::string> said(how.ranks);
  cm::sharding::thread_ranks{how.ranks, how.of_node == 0 ? how.ranks : how.of_node}.run(
      [&](cm::sharding::thread_ranks::place& here) {
        said[here.rank()] = support::refusal<std::exception>([&] {
          arena memory{{.device_capacity = room, .host_capacity = room}};
          model_type model{memory,
                           here.process_groups(),
                           {.chunk_bytes = how.chunk()},
                           {.divided = how.divided},
                           support::every_eviction{"belady"},
                           support::every_layout{"size_class_layout"},
                           support::every_placement{"optimizer_on_host"},
                           support::every_transfer{"lookahead"}};
          declared<model_type> tensors{model};
          work(here.rank(), model, tensors);
        });
      });
  return said;
}

/// The words of each of two ranks, and of a manager that has the same model, on `work(rank, model, tensors)`.
template <class Work>
std::vector<std::string> said_by_each_kind(Work work)
{
  std::vector<std::string> said = said_on({2}, work);
  arena memory{{.device_capacity = room, .host_capacity = room}};
  manager_type m{memory, {.chunk_bytes = 256_KiB}};
  declared<manager_type> tensors{m};
  try {
    work(0U, m, tensors);
    said.emplace_back();
  } catch (const std::exception& failed) {
    said.emplace_back(failed.what());
  }
  return said;
}

/// The same where nothing is thrown.
inline void on_ranks(const division& how, work_of_rank work)
{
  for (const std::string& it : said_on(how, work))
    if (!it.empty()) throw std::runtime_error{it};
}

/// Calls `work(model, tensors)` with a model over a communicator that is one rank by its type.
template <class Work>
void on_self(Work work)
{
  using model = cm::sharded_model<arena, cm::collective::self>;
  arena memory{{.device_capacity = room, .host_capacity = room}};
  cm::collective::self alone;
  model m{memory, alone, {.chunk_bytes = 256_KiB}};
  declared<model> tensors{m};
  work(m, tensors);
}

inline void expect(bool holds, std::string_view what)
{
  if (!holds) throw std::runtime_error{std::string{what}};
}

}  // namespace rank_checkpoints
