// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/import_values.hpp>

#include "checkpoint_rig.hpp"

#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <support/memory_folder.hpp>
#include <support/refusal.hpp>

#include <cmath>
#include <string>

namespace rank_import_test {

using namespace rank_checkpoints;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;

namespace {

/// The save of three ranks as a file of weights alone.
memory_folder exported(float begin)
{
  memory_folder folder;
  memory_folder to;
  on_ranks({3}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(begin);
    tensors.cursor[0] = rank;
    model.acquire(tensors.buffer, cm::access::write).span()[2] = static_cast<float>(rank);
    (void)checkpoint::save(model, folder);
  });
  (void)checkpoint::export_generation(folder, to, "weights", {.rank = 2});
  memory_folder nothing;
  CHECK_THROWS_AS(checkpoint::export_generation(folder, nothing, "weights", {.rank = 3}), cm::config_error);
  CHECK(nothing.names().empty());
  return to;
}

}  // namespace

TEST_CASE("what ranks saved and one file holds comes back on any ranks", "[sharding]")
{
  const memory_folder folder = exported(3);
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks)
    for (const auto& divided : {cm::sharding::zero_1, cm::sharding::zero_3})
      on_ranks({ranks, 0, 3, divided}, [&](std::uint32_t, model_type& model, auto& tensors) {
        const auto done = checkpoint::import_values(model, folder, "weights");
        expect(done.tensors == 4 && tensors.holds(3), "other weights");
        expect(model.acquire(tensors.buffer, cm::access::read).span()[2] == 2, "the buffer of another rank");
        expect(tensors.cursor[0] == 0, "a state of the trainer");
      });
}

TEST_CASE("numbers that a narrower type does not reach are refused on all ranks, and counted over all", "[sharding]")
{
  memory_folder saved, file;
  arena memory{{.device_capacity = room, .host_capacity = room}};
  manager_type wide{memory, {.chunk_bytes = 256_KiB}};
  const auto numbers = wide.add<float>({20'000}, cm::role::frozen);  // so many that every rank has some
  wide.name(numbers, "w");
  {
    const auto pin = wide.acquire(numbers, cm::access::write);
    for (std::size_t index = 0; index < pin.size(); ++index)
      pin.span()[index] = index % 2 == 0 ? 3.4e38F : index % 4 == 1 ? 1e-45F : 1.0F;
  }
  (void)checkpoint::save(wide, saved);
  checkpoint::export_values(wide, file, "weights");
  constexpr checkpoint::rounded_numbers all{.overflows = 10'000, .underflows = 5'000};
  for (std::uint32_t ranks = 1; ranks <= 3; ++ranks)
    for (const auto& divided : {cm::sharding::zero_1, cm::sharding::zero_3}) {
      std::vector<std::string> said(ranks);
      cm::sharding::thread_ranks{ranks, ranks}.run([&](cm::sharding::thread_ranks::place& here) {
        said[here.rank()] = support::refusal<std::exception>([&] {
          arena own{{.device_capacity = room, .host_capacity = room}};
          model_type model{own, here.process_groups(), {.chunk_bytes = 64_KiB * ranks}, {.divided = divided}};
          const auto narrow = model.add<cm::bf16>({20'000}, cm::role::frozen);
          model.name(narrow, "w");
          for (cm::bf16& it : model.acquire(narrow, cm::access::write).span()) it = cm::bf16{2.0F};
          const auto refuses = [&](auto work) {
            try {
              work();
              expect(false, "it was taken");
            } catch (const cm::config_error& refused) {
              const std::string text = refused.what();
              expect(text.find("of the elements of w are finite") != text.npos, text);
              expect(text.find("would be infinite in bfloat16") != text.npos, text);
            }
            expect(cm::to_float(model.acquire(narrow, cm::access::read).span()[0]) == 2.0F, "it was written");
          };
          refuses([&] { (void)checkpoint::load(model, saved); });
          refuses([&] { (void)checkpoint::import_values(model, file, "weights"); });
          expect(checkpoint::load(model, saved, {.allow_overflow = true}).rounded == all, "another count of a load");
          expect(checkpoint::import_values(model, file, "weights", {.allow_overflow = true}).rounded == all,
                 "another count of an import");
          expect(std::isinf(cm::to_float(model.acquire(narrow, cm::access::read).span()[19'998])), "no infinity");
        });
      });
      for (const std::string& it : said) CHECK(it == "");
    }
}

TEST_CASE("a file of another model is refused on all ranks", "[sharding]")
{
  const memory_folder folder = exported(3);
  const auto said = [&](auto before) {
    return said_on({2, 0, 8}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
      before(rank, model, tensors);
      (void)checkpoint::import_values(model, folder, "weights", {.takes_part = true});
    });
  };
  for (const std::string& it : said([](std::uint32_t, model_type&, auto&) {})) CHECK(it.empty());
  for (const std::string& it : said([](std::uint32_t, model_type& m, auto& t) { m.name(t.small, "other"); }))
    CHECK(it.find("other makes the difference") != it.npos);
  // kept as they are
  for (const std::string& it :
       said([](std::uint32_t, model_type& m, auto& t) { m.name(t.buffer, "large buffer"), m.name(t.fixed, "f"); }))
    CHECK(it.empty());
  for (const std::string& it : said_on({2}, [&](std::uint32_t rank, model_type& m, auto&) {
         (void)checkpoint::import_values(m, folder, "weights", {.takes_part = rank == 0});
       }))
    CHECK(it.find("same takes_part") != it.npos);
  for (const std::string& it : said_on({2}, [&](std::uint32_t rank, model_type& m, auto&) {
         checkpoint::import_options options{.takes_part = true};
         options.names = {{"none", rank == 0 ? "one" : "other"}};
         (void)checkpoint::import_values(m, folder, "weights", options);
       }))
    CHECK(it.find("same names") != it.npos);
  for (const std::string& it : said_on({2}, [&](std::uint32_t, model_type& model, auto&) {
         (void)checkpoint::import_values(model, folder, "nothing");
       }))
    CHECK(it.find("nothing") != it.npos);
}

TEST_CASE("ranks that see files with other values are told the tensor, and weights stay as they were", "[sharding]")
{
  const memory_folder folder = exported(3);
  const memory_folder other = exported(4);
  const auto said = said_on({3}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(1);
    const std::string refusal = support::refusal<cm::config_error>(
        [&] { (void)checkpoint::import_values(model, rank == 2 ? other : folder, "weights"); });
    expect(tensors.holds(1), "a weight that changed");
    throw cm::config_error{refusal};
  });
  for (const std::string& it : said) {
    CHECK(it.find("ranks see different files: tensor ") != it.npos);
    CHECK(it.find(" on rank 2, and tensor ") != it.npos);
  }
}

TEST_CASE("values that an import replaces need not be the same before it, those that it keeps do", "[sharding]")
{
  const memory_folder folder = exported(3);
  for (const bool keeps : {false, true}) {
    const auto said = said_on({2, 0, 8}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
      if (keeps) model.name(tensors.fixed, "kept");
      tensors.fill(static_cast<float>(rank));
      (void)checkpoint::import_values(model, folder, "weights", {.takes_part = true});
      const auto scope = model.iteration();
    });
    for (const std::string& it : said)
      CHECK((keeps ? it.find("ranks have different first values: weight kept filled") != it.npos : it.empty()));
  }
}

TEST_CASE("a file with a part of the weights of a unit is taken where the others were filled before", "[sharding]")
{
  memory_folder saved, file;
  arena memory{{.device_capacity = room, .host_capacity = room}};
  manager_type other{memory, {.chunk_bytes = 256_KiB}};
  const auto small = other.add<float>({5}, cm::role::parameter);
  other.name(small, "small");
  for (float& it : other.acquire(small, cm::access::write).span()) it = 9;
  (void)checkpoint::save(other, saved);
  (void)checkpoint::export_generation(saved, file, "weights");
  on_self([&](auto& model, auto& tensors) {
    float next = 3 + 300 * 70;  // of `fill`, behind the large weight
    CHECK_THROWS_AS(checkpoint::import_values(model, file, "weights", {.takes_part = true}), cm::config_error);
    tensors.fill(3);
    CHECK(checkpoint::import_values(model, file, "weights", {.takes_part = true}).kept.size() == 2);
    CHECK(model.acquire(tensors.small, cm::access::read).span()[4] == 9);
    CHECK_FALSE(tensors.holds(3));
    for (float& it : model.acquire(tensors.small, cm::access::write).span()) it = next++;
    CHECK(tensors.holds(3));
  });
}

}  // namespace rank_import_test
