// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/rank_content.hpp>

#include "checkpoint_rig.hpp"

#include <chunkmem/checkpoint/model_content.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace rank_content_test {

using namespace rank_checkpoints;
using cm::sharding::rank_content;

namespace {

/// Elements that ranks write of a tensor: from, to.
using runs = std::map<std::string, std::vector<std::pair<std::uint64_t, std::uint64_t>>>;

struct seen {
  runs written;
  std::map<std::string, std::uint64_t> elements;
  std::vector<std::vector<std::string>> divided;
};

seen contents(const division& how)
{
  seen all;
  all.divided.resize(how.ranks);
  std::mutex mutex;
  on_ranks(how, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(1);
    rank_content<model_type> content{model};
    content.collect();
    const std::lock_guard guard{mutex};
    for (std::size_t index = 0; index < content.items().size(); ++index) {
      const auto& it = content.items()[index];
      if (content.is_own(index)) continue;
      std::uint64_t end = 0;
      for (const auto& piece : it.pieces) {
        expect(piece.begin >= end && (piece.begin + piece.elements) * size_of(it.type) <= it.size(),
               "pieces overlap, or leave their item");
        end = piece.begin + piece.elements;
        if (it.is_written) all.written[piece.name].emplace_back(piece.first, piece.first + piece.elements);
      }
    }
    content.for_each_shared([&](const std::string& name, const auto& extents, std::size_t) {
      all.elements[name] = cm::checkpoint::size_of_tensor(cm::dtype::uint8, extents).count();
    });
    content.for_each_divided([&](const std::string& name, const auto&) { all.divided[rank].push_back(name); });
  });
  return all;
}

}  // namespace

TEST_CASE("all elements of each tensor in each list are written by one rank, however ranks divide them", "[sharding]")
{
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks)
    for (std::uint32_t of_node = 1; of_node <= ranks; ++of_node) {
      if (ranks % of_node != 0) continue;
      INFO(ranks << " ranks in nodes of " << of_node);
      seen all = contents({ranks, of_node});
      CHECK(all.elements == std::map<std::string, std::uint64_t>{{"layers[3]", 21000},
                                                                 {"small", 5},
                                                                 {"tensor.2", 270},
                                                                 {"momentum/layers[3]", 21000},
                                                                 {"momentum/small", 5}});
      for (auto& [name, parts] : all.written) {
        std::ranges::sort(parts);
        std::uint64_t next = 0;
        for (const auto& [first, end] : parts) {
          CHECK(first == next);
          next = end;
        }
        CHECK(next == all.elements.at(name));
        const bool is_cut = parts.size() > 1;
        const bool is_filled = !name.starts_with("momentum");
        for (const auto& rank : all.divided)
          CHECK((std::ranges::find(rank, name) != rank.end()) == (is_cut && is_filled));
      }
      CHECK(all.written.size() == all.elements.size());
    }
}

TEST_CASE("ranks that write the same shares take turns, unit by unit", "[sharding]")
{
  std::vector<std::uint64_t> units(4);
  on_ranks({4, 2, 1}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(1);
    rank_content<model_type> content{model};
    content.collect();
    for (std::size_t index = 0; index < content.items().size(); ++index)
      units[rank] += !content.is_own(index) && content.items()[index].is_written ? 1 : 0;
  });
  for (const std::uint64_t it : units) CHECK(it > 0);
}

TEST_CASE("ranks of other tensors, names, lists or states hear which is the first that differs", "[sharding]")
{
  const auto said = [](auto differ) {
    return said_on({3}, [&](std::uint32_t rank, model_type& model, auto&) {
      differ(rank, model);
      rank_content<model_type> content{model};
      content.collect();
      content.agree_on_names();
    });
  };
  for (const std::string& it : said([](std::uint32_t, model_type&) {})) CHECK(it.empty());
  for (const std::string& it : said([](std::uint32_t rank, model_type& m) {
         (void)m.add<float>({rank == 1 ? 3U : 4U, 2}, cm::role::parameter);
       }))
    CHECK(it.find("ranks have different models: parameter tensor.4 of float32 3 2 on rank 1, and parameter tensor.4 of "
                  "float32 4 2 on "
                  "rank 0") != it.npos);
  for (const std::string& it : said([](std::uint32_t rank, model_type& m) {
         if (rank == 2) (void)m.add<float>({3}, cm::role::buffer);
       }))
    CHECK(
        it.find("ranks have different models: buffer tensor.4 of float32 3 on rank 2, and list momentum 1 on rank 0") !=
        it.npos);
  for (const std::string& it : said([](std::uint32_t rank, model_type& m) {
         if (rank == 0) (void)m.add<float>({3}, cm::role::buffer);
       }))
    CHECK(
        it.find("ranks have different models: buffer tensor.4 of float32 3 on rank 0, and list momentum 1 on rank 1") !=
        it.npos);
  static std::array<std::byte, 9> more{};
  for (const std::string& it :
       said([](std::uint32_t rank, model_type& m) { m.state("rng", std::span{more}.first(rank == 1 ? 8 : 9)); }))
    CHECK(it.find("ranks have different models: state rng 8 on rank 1, and state rng 9 on rank 0") != it.npos);
  for (const std::string& it : said([](std::uint32_t rank, model_type& m) {
         if (rank != 1) m.state("rng", more);
       }))
    CHECK(it.find("ranks have different models: nothing like it on rank 1, and state rng 9 on rank 0") != it.npos);
}

TEST_CASE("over ranks no name may look like that of a part, and none may come twice", "[sharding]")
{
  const auto said = [](std::string_view name) {
    return said_on({2}, [&](std::uint32_t, model_type& model, auto& tensors) {
      model.name(tensors.fixed, name);
      rank_content<model_type> content{model};
      content.collect();
    });
  };
  for (const std::string& it : said("w[0:4]"))
    CHECK(it.find("the name w[0:4] would be that of a part of a tensor") != it.npos);
  for (const std::string& it : said("small")) CHECK(it.find("two tensors of this model are called small") != it.npos);
  for (const std::string& it : said("running mean")) CHECK(it.find("are called running mean") != it.npos);
  for (const char* const fine : {"other", "other[3]", "other[:]"})
    for (const std::string& it : said(fine)) CHECK(it.empty());
}

}  // namespace rank_content_test
