// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/load.hpp>

#include "small_model.hpp"
#include "watched_folder.hpp"

#include <chunkmem/checkpoint/save.hpp>
#include <support/memory_folder.hpp>
#include <support/sanitized.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace changed_while_loading_test {

/// A load returns one whole generation, whatever happens to its files meanwhile.

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

namespace {

void flip_last_byte(const std::string& path)
{
  std::fstream file{path, std::ios::in | std::ios::out | std::ios::binary};
  file.seekg(-1, std::ios::end);
  const auto at = file.tellg();
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
  REQUIRE(file.good());
}

/// The result of a load with a disturbance.
enum class outcome : std::uint8_t { whole, refused };

template <class Load>
outcome outcome_of(Load load)
{
  try {
    load();
    return outcome::whole;
  } catch (const cm::corrupt_data&) {
  } catch (const cm::io_error&) {
  }
  return outcome::refused;
}

/// A 16-bit weight, perhaps with a master: what is saved is fp32.
struct half_weight {
  explicit half_weight(bool has_master)
  {
    if (has_master) m.use(lists);
  }
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<cm::bf16> weight = m.add<cm::bf16>({700}, cm::role::parameter);
  std::vector<cm::list_spec> lists{cm::master_list};
};

}  // namespace

TEST_CASE("bytes that change while they are loaded are never taken for those that were checked", "[checkpoint]")
{
  temporary_folder place;
  watched_folder folder{posix_folder{place.path()}};
  small_model saved;
  (void)checkpoint::save(saved.m, folder, {.file_size = 1_B});
  folder.before_read(SIZE_MAX, {});
  small_model counted;
  (void)checkpoint::load(counted.m, folder);
  const std::size_t reads = folder.reads();
  std::size_t refused = 0;
  for (const char* const file : {"/generation-000001-00000.safetensors", "/generation-000001-00001.safetensors",
                                 "/generation-000001-00002.safetensors"})
    for (std::size_t index = 0; index < reads; ++index) {
      INFO("before read " << index << " of " << reads << ": " << file);
      small_model after;
      folder.before_read(index, [&] { flip_last_byte(place.path() + file); });
      const outcome found = outcome_of([&] { (void)checkpoint::load(after.m, folder); });
      flip_last_byte(place.path() + file);
      if (found == outcome::whole) REQUIRE(after.holds(1.5F));
      refused += found == outcome::refused ? 1 : 0;
    }
  CHECK(refused > reads);
  CHECK(refused < 3 * reads);  // what was read by then stays right
}

TEST_CASE("a weight that becomes a value and its master gets both from bytes that were proven", "[checkpoint]")
{
  temporary_folder place;
  watched_folder folder{posix_folder{place.path()}};
  half_weight saved{true};
  for (auto& it : saved.m.acquire(saved.weight, cm::access::write).span()) it = cm::round_to<cm::bf16>(1.0F);
  for (float& it :
       saved.m.acquire<float>(saved.weight, saved.m.list("master"), cm::access::write, cm::memory_location::host)
           .span())
    it = 1.0F;
  (void)checkpoint::save(saved.m, folder);
  for (const bool has_master : {true, false}) {
    const auto load = [&] {
      half_weight after{has_master};
      (void)checkpoint::load(after.m, folder);
      for (const auto it : after.m.acquire(after.weight, cm::access::read).span()) REQUIRE(cm::to_float(it) == 1.0F);
      if (!has_master) return;
      for (const float it :
           after.m.acquire<float>(after.weight, after.m.list("master"), cm::access::read, cm::memory_location::host)
               .span())
        REQUIRE(it == 1.0F);
    };
    folder.before_read(SIZE_MAX, {});
    load();
    const std::size_t reads = folder.reads();
    for (std::size_t index = 0; index < reads; ++index) {
      INFO("before read " << index << " of " << reads);
      folder.before_read(index, [&] { flip_last_byte(place.path() + "/generation-000001-00000.safetensors"); });
      CHECK(outcome_of(load) == outcome::refused);
      flip_last_byte(place.path() + "/generation-000001-00000.safetensors");
    }
  }
}

namespace {

/// A model of layers, each in a file of its own.
struct layered {
  explicit layered(std::uint32_t count) : layers{count}
  {
    const cm::shape two{2};  // a list of one call is a dangling pointer to g++ 12 at -O1
    stack = m.add_stacked<float>(layers, two, cm::role::frozen);
  }
  void fill(float value)
  {
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      for (float& it : m.acquire(stack.slice(layer), cm::access::write).span()) it = value;
  }
  [[nodiscard]] bool holds(float value)
  {
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      for (const float it : m.acquire(stack.slice(layer), cm::access::read).span())
        if (it != value) return false;
    return true;
  }

  std::uint32_t layers;
  arena memory{{.device_capacity = 256_KiB, .host_capacity = 256_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> stack;
};

/// Every n-th read of a load. Headers and tensors are read in turn, and neither number is even.
constexpr std::uint32_t pace = support::sanitized ? 11 : 3;

/// At every such read of a load all files are removed, and another generation is saved under the same number.
/// @return   the number of loads that gave the older generation, whole
int older_ones(std::uint32_t layers)
{
  layered model{layers};
  layered after{layers};
  int older = 0;
  const std::size_t reads = 2 + 2 * std::size_t{layers};  // the manifest, of its run too; a header and a tensor
  for (std::size_t index = 0; index < reads; index += pace) {
    INFO("before read " << index << " of " << reads);
    watched_folder folder{support::memory_folder{}};
    model.fill(1.0F);
    (void)checkpoint::save(model.m, folder, {.file_size = 1_B});
    int turns = 0;
    folder.before_read(index, [&] {
      ++turns;
      for (const std::string& name : folder.names()) REQUIRE(folder.remove(name));
      model.fill(2.0F);
      REQUIRE(checkpoint::save(model.m, folder, {.file_size = 1_B}).number == 1);
    });
    const outcome found = outcome_of([&] { (void)checkpoint::load(after.m, folder); });
    REQUIRE(turns == 1);
    if (found == outcome::whole) REQUIRE((after.holds(1.0F) || after.holds(2.0F)));
    older += found == outcome::whole && after.holds(1.0F) ? 1 : 0;
  }
  return older;
}

}  // namespace

TEST_CASE("a generation that is saved again under its number while it is loaded does not become a mixture",
          "[checkpoint]")
{
  constexpr std::uint32_t open = checkpoint::detail::most_open;
  CHECK(older_ones(open) >= static_cast<int>(open / pace));  // files that stay open are what was checked
  // a name leads to another file: only behind the last open nothing changes
  CHECK(older_ones(open + 6) <= 1);
}

}  // namespace changed_while_loading_test
