#include <chunkmem/sharding/rank_save.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/sharding/rank_load.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <support/catch.hpp>
#include <support/memory_folder.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace rank_save_test {

using namespace chunkmem;
using arena = backend::host_arena;
using threads = collective::local_threads;

namespace {

constexpr bytes room = 16_MiB;

/// A model of a few tensors, one larger than a chunk, one of a few elements.
template <class Manager>
struct declared {
  explicit declared(Manager& m) : large{m.template add<float>({300, 70}, role::parameter)}, small{m.template add<float>({5}, role::parameter)}, fixed{m.template add<bf16>({90, 3}, role::frozen)}
  {
    m.name(large, "large");
    m.name(small, "small");
  }
  void fill(Manager& m)
  {
    int next = 0;
    for (float& it : m.acquire(large, access::write).span()) it = static_cast<float>(next++);
    for (float& it : m.acquire(small, access::write).span()) it = -static_cast<float>(next++);
    for (bf16& it : m.acquire(fixed, access::write).span()) it = round_to<bf16>(static_cast<float>(next++ % 97));
  }
  [[nodiscard]] bool holds(Manager& m)
  {
    int next = 0;
    bool same = true;
    for (const float it : m.acquire(large, access::read).span()) same = same && it == static_cast<float>(next++);
    for (const float it : m.acquire(small, access::read).span()) same = same && it == -static_cast<float>(next++);
    for (const bf16 it : m.acquire(fixed, access::read).span()) same = same && to_float(it) == static_cast<float>(next++ % 97);
    return same;
  }
  tensor<float> large;
  tensor<float> small;
  tensor<bf16> fixed;
};

template <class Work>
void on_ranks(std::uint32_t ranks, bytes chunk, Work work)
{
  using model_type = sharded_model<arena, threads>;
  sharding::thread_ranks{ranks}.run([&](sharding::thread_ranks::place& here) {
    arena memory{{.device_capacity = room, .host_capacity = room}};
    model_type model{memory, here.all(), {.chunk_bytes = chunk}};
    declared<model_type> tensors{model};
    work(here.rank(), model, tensors);
  });
}

}  // namespace

TEST_CASE("what some ranks saved loads on others, and in a manager, and back", "[sharding]")
{
  for (std::uint32_t from = 1; from <= 4; ++from) {
    support::memory_folder folder;
    on_ranks(from, bytes{from} * 16384 * 2, [&](std::uint32_t, auto& model, auto& tensors) {
      tensors.fill(model);
      const auto saved = checkpoint::save(model, folder, {.file_size = 64_KiB, .round = 1000_B});
      if (saved.number != 1) throw std::runtime_error{"number"};
    });
    for (std::uint32_t to = 1; to <= 4; ++to)
      on_ranks(to, bytes{to} * 16384 * 3, [&](std::uint32_t rank, auto& model, auto& tensors) {
        const auto loaded = checkpoint::load(model, folder);
        if (loaded.number != 1 || !tensors.holds(model)) throw std::runtime_error{"rank " + std::to_string(rank) + " has other weights"};
      });
    arena memory{{.device_capacity = room, .host_capacity = room}};
    manager<arena> m{memory, {.chunk_bytes = 256_KiB}};
    declared<manager<arena>> tensors{m};
    CHECK(checkpoint::load(m, folder).number == 1);
    CHECK(tensors.holds(m));
  }
}

}  // namespace rank_save_test
