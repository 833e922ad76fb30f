// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/load.hpp>

#include "small_model.hpp"
#include "watched_folder.hpp"

#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace one_pass_load_test {

/// A load reads each byte once, to its place. No byte of a damaged file is left where the trainer could read it.

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

namespace {

constexpr std::uint64_t elements = 3'500'001;  // of 4 bytes: three blocks, and the begin of another

constexpr cm::list_spec momentum{"momentum", cm::dtype::float32};

/// Two weights of 16 bits with masters, their momentum, a buffer, and a state. Tensors are longer than blocks, and
/// begin and end inside of them.
struct large_model {
  explicit large_model(bool has_momentum = true)
  {
    m.name(large, "large");
    m.name(small, "small");
    m.name(buffer, "buffer");
    lists.push_back(cm::master_list);
    if (has_momentum) lists.push_back(momentum);
    m.use(lists);
    m.state("turn", std::as_writable_bytes(std::span{&turn, 1}));
    m.content().belongs_to(1);
  }

  /// Values that begin with any seed: what each span below holds is a part of them.
  template <class Element>
  [[nodiscard]] static std::span<const Element> values(std::uint32_t seed, std::size_t count)
  {
    static const std::vector<Element> all = [] {
      constexpr std::size_t period = 65'521;
      std::vector<Element> made(elements + 16);
      for (std::size_t index = 0; index < period; ++index)
        if constexpr (std::is_same_v<Element, std::int32_t>)
          made[index] = static_cast<std::int32_t>(index);
        else
          made[index] = cm::round_to<Element>(static_cast<float>(index));
      for (std::size_t done = period; done < made.size(); done += period)
        std::memcpy(&made[done], made.data(), std::min(period, made.size() - done) * sizeof(Element));
      return made;
    }();
    return std::span{all}.subspan(seed, count);
  }
  template <class Element>
  static void write(std::span<Element> to, std::uint32_t seed)
  {
    std::ranges::copy(std::as_bytes(values<Element>(seed, to.size())), std::as_writable_bytes(to).begin());
  }
  template <class Element>
  [[nodiscard]] static bool equal(std::span<const Element> held, std::uint32_t seed)
  {
    return std::memcmp(held.data(), values<Element>(seed, held.size()).data(), held.size_bytes()) == 0;
  }

  template <class Visit>
  void for_each_list(Visit visit)
  {
    for (const auto weight : {large, small})
      for (const cm::list_spec& list : lists) visit(weight, m.list(list.name));
  }
  /// @param fills_momentum   else it has no bytes yet
  void fill(std::uint32_t seed, bool fills_momentum = true)
  {
    turn = seed;
    for (const auto weight : {large, small}) write<cm::bf16>(m.acquire(weight, cm::access::write).span(), seed);
    for_each_list([&](auto weight, cm::list_id list) {
      if (m.list("master") != list && !fills_momentum) return;
      write<float>(m.acquire<float>(weight, list, cm::access::write, cm::memory_location::host).span(), seed);
    });
    write<std::int32_t>(m.acquire(buffer, cm::access::write).span(), seed);
  }
  [[nodiscard]] bool holds(std::uint32_t seed, bool has_momentum = true)
  {
    static const std::vector<float> zeros(elements);
    bool same = turn == seed;
    for_each_list([&](auto weight, cm::list_id list) {
      const auto pin = m.acquire<float>(weight, list, cm::access::read, cm::memory_location::host);
      if (m.list("master") != list && !has_momentum)
        same = same && std::memcmp(pin.span().data(), zeros.data(), pin.span().size_bytes()) == 0;
      else
        same = same && equal<float>(pin.span(), seed);
    });
    for (const auto weight : {large, small})
      same = same && equal<cm::bf16>(m.acquire(weight, cm::access::read).span(), seed);
    return same && equal<std::int32_t>(m.acquire(buffer, cm::access::read).span(), seed);
  }
  /// Nothing that was loaded can be read, and nothing is trained or saved.
  void expect_refusals(posix_folder& folder)
  {
    CHECK_THROWS_AS(m.acquire(large, cm::access::read), cm::usage_error);
    CHECK_THROWS_AS(m.acquire(small, cm::access::read), cm::usage_error);
    CHECK_THROWS_AS(m.acquire(buffer, cm::access::read), cm::usage_error);
    CHECK_THROWS_AS(m.acquire<float>(large, m.list("master"), cm::access::read, cm::memory_location::host),
                    cm::usage_error);
    CHECK_THROWS_AS(checkpoint::save(m, folder), cm::usage_error);
    cm::optimizer::sgd kernel{};
    CHECK_THROWS_AS(cm::optimizer::step(m, kernel, {.learning_rate = 1.0F}), cm::usage_error);
    for (const auto weight : {large, small})
      for (const float it :
           m.acquire<float>(weight, m.list("momentum"), cm::access::read, cm::memory_location::host).span())
        if (it != 0.0F) FAIL("bytes of a failed load can be read");
  }

  arena memory{{.device_capacity = 48_MiB, .host_capacity = 48_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 16_MiB}};
  std::vector<cm::list_spec> lists;
  cm::tensor<cm::bf16> large = m.add<cm::bf16>({elements}, cm::role::parameter);
  cm::tensor<cm::bf16> small = m.add<cm::bf16>({77}, cm::role::parameter);
  cm::tensor<std::int32_t> buffer = m.add<std::int32_t>({1'300'000}, cm::role::buffer);
  std::uint32_t turn = 0;
};

void flip(const std::filesystem::path& path, std::uint64_t at)
{
  std::fstream file{path, std::ios::in | std::ios::out | std::ios::binary};
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 16));
  REQUIRE(file.good());
}

/// Files of tensors of a generation.
std::vector<std::filesystem::path> files_of(const std::string& folder, const std::string& generation)
{
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator{folder})
    if (entry.path().extension() == ".safetensors" &&
        entry.path().filename().string().starts_with("generation-" + generation))
      found.push_back(entry.path());
  return found;
}

}  // namespace

TEST_CASE("a load reads each byte once", "[checkpoint]")
{
  temporary_folder place;
  watched_folder folder{posix_folder{place.path()}};
  large_model saved;
  saved.fill(5);
  (void)checkpoint::save(saved.m, folder);
  std::uint64_t size = 0;
  for (const auto& entry : std::filesystem::directory_iterator{place.path()}) size += entry.file_size();
  REQUIRE(size > 7 * checkpoint::sum_block);
  large_model loaded;
  folder.before_read(SIZE_MAX, {});
  (void)checkpoint::load(loaded.m, folder);
  INFO(folder.bytes_read() << " bytes of " << size);
  CHECK(folder.bytes_read() >= size);
  CHECK(static_cast<double>(folder.bytes_read()) <= 1.01 * static_cast<double>(size));
  CHECK(loaded.holds(5));
}

TEST_CASE("a load by threads gives the same bytes, and finds the same damage", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  large_model saved;
  saved.fill(1);
  (void)checkpoint::save(saved.m, folder);
  saved.fill(2);
  (void)checkpoint::save(saved.m, folder);
  cm::optimizer::thread_pool workers{4};
  large_model loaded;
  CHECK(checkpoint::load(loaded.m, folder, {}, workers).number == 2);
  CHECK(loaded.holds(2));
  flip(files_of(place.path(), "000002").front(), 2 * checkpoint::sum_block + 100);
  CHECK(checkpoint::load(loaded.m, folder, {}, workers).number == 1);
  CHECK(loaded.holds(1));
}

TEST_CASE("wherever a generation is damaged, all of the older one is loaded, or nothing can be read", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  {
    large_model saved;
    saved.fill(7, false);  // the older generation has no momentum
    (void)checkpoint::save(saved.m, folder);
    saved.fill(9);
    (void)checkpoint::save(saved.m, folder);
  }
  large_model loaded;
  loaded.fill(3);
  std::size_t damages = 0;
  constexpr std::uint64_t pace = support::sanitized ? 5 : 1;  // no factor of the 8 blocks of all values
  for (const auto& file : files_of(place.path(), "000002"))
    for (std::uint64_t at = 70'000; at < std::filesystem::file_size(file); at += pace * checkpoint::sum_block) {
      INFO("byte " << at << " of " << file);
      flip(file, at);
      const auto found = checkpoint::load(loaded.m, folder);
      CHECK(found.number == 1);
      REQUIRE(found.skipped.size() == 1);
      CHECK(found.skipped[0].why.find("damaged") != std::string::npos);
      CHECK(loaded.holds(7, false));
      flip(file, at);
      if (damages++ % 3 != 0) continue;
      CHECK(checkpoint::load(loaded.m, folder).number == 2);  // what the other tests for momentum begin with
      CHECK(loaded.holds(9));
    }
  CHECK(damages > 7 / pace);

  REQUIRE(checkpoint::load(loaded.m, folder).number == 2);
  loaded.turn = 1234;
  const auto refused = [&] {
    try {
      (void)checkpoint::load(loaded.m, folder);
      return false;
    } catch (const cm::io_error& failed) {
      return std::string{failed.what()}.find("none of the 2 generations in this folder is whole") != std::string::npos;
    }
  };
  const auto flip_last = [](const auto& file) { flip(file, std::filesystem::file_size(file) - 1); };
  const auto flip_middle = [](const auto& file) { flip(file, std::filesystem::file_size(file) / 2); };
  const auto newer = files_of(place.path(), "000002");
  for (const auto& file : files_of(place.path(), "000001")) flip_last(file);
  for (const auto& file : newer) flip_last(file);
  CHECK(refused());  // the states are in the last block, which is read before anything is written
  CHECK(loaded.turn == 1234);
  loaded.turn = 9;
  CHECK(loaded.holds(9));
  for (const auto& file : newer) flip_last(file), flip_middle(file);
  CHECK(refused());
  CHECK(loaded.turn == 9);
  loaded.expect_refusals(folder);
  for (const auto& file : newer) flip_middle(file);
  CHECK(checkpoint::load(loaded.m, folder).number == 2);
  CHECK(loaded.holds(9));
}

TEST_CASE("a process that lacks files takes no older generation for it", "[checkpoint]")
{
  temporary_folder place;
  watched_folder folder{posix_folder{place.path()}};
  small_model model;
  for (int save = 0; save < 2; ++save) (void)checkpoint::save(model.m, folder);
  folder.before_read(SIZE_MAX, {});
  CHECK(checkpoint::load(model.m, folder).number == 2);
  const std::size_t reads = folder.reads();
  for (std::size_t index = 0; index < reads; ++index) {
    INFO("read " << index);
    folder.before_read(index, [] { throw cm::io::failed("reading", "a file", EMFILE); });
    std::uint64_t number = 2;
    try {
      number = checkpoint::load(model.m, folder).number;
    } catch (const cm::io_error& failed) {
      CHECK(failed.fault().number == EMFILE);
    }
    CHECK(number == 2);
    folder.before_read(index, [] { throw cm::io::failed("reading", "a file", EIO); });
    CHECK(checkpoint::load(model.m, folder).number >= 1);
  }
  CHECK(model.holds(1.5F));
}

TEST_CASE("a checkpoint is not loaded under a pin of the trainer", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  (void)checkpoint::save(model.m, folder);
  model.fill(2.5F);
  {
    const auto pin = model.m.acquire(model.b, cm::access::read);
    CHECK_THROWS_AS(checkpoint::load(model.m, folder), cm::usage_error);
    CHECK(pin.span()[0] == -5.0F);
  }
  CHECK(model.holds(2.5F));
  (void)checkpoint::load(model.m, folder);
  CHECK(model.holds(1.5F));
}

TEST_CASE("a value that was saved before its master keeps the bits of its NaN", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  const auto nan = std::bit_cast<cm::bf16>(std::uint16_t{0x7f81});
  const auto with_model = [&](bool has_master, auto use) {
    arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
    cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
    const auto weight = m.add<cm::bf16>({9}, cm::role::parameter);
    const std::array lists{cm::master_list};
    if (has_master) m.use(lists);
    use(m, weight);
  };
  with_model(false, [&](auto& m, auto weight) {
    for (auto& it : m.acquire(weight, cm::access::write).span()) it = nan;
    (void)checkpoint::save(m, folder);
  });
  with_model(true, [&](auto& m, auto weight) {
    (void)checkpoint::load(m, folder);
    for (const auto it : m.acquire(weight, cm::access::read).span())
      REQUIRE(std::bit_cast<std::uint16_t>(it) == 0x7f81);
  });
}

}  // namespace one_pass_load_test
