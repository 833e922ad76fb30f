// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stored_content.hpp"
#include "turns.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/counting_ranks.hpp>
#include <support/failing.hpp>
#include <support/rank_threads.hpp>
#include <support/simulated_folder.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// A tiny model that several ranks save into a folder where everything goes wrong that can.
namespace resharding {

using support::counting_ranks;
using tiny_arena = support::failing<cm::backend::host_arena>;  // nothing fails
using tiny_type = cm::sharded_model<tiny_arena, counting_ranks>;

/// A weight of which every rank has a part, not all of them whole blocks; and a state.
struct tiny_tensors {
  tiny_tensors(tiny_type& model, std::uint32_t ranks)
      : m{model}, weight{model.add<float>({std::uint64_t{ranks} * 4096 - 4000}, cm::role::parameter)}
  {
    m.state("cursor", std::as_writable_bytes(std::span{cursor}));
  }
  void fill(std::uint32_t seed)
  {
    cursor[0] = seed;
    float next = static_cast<float>(seed) * 1000;
    for (float& it : m.acquire(weight, cm::access::write).span()) it = next++;
  }
  [[nodiscard]] bool holds(std::uint32_t seed)
  {
    const auto pin = m.acquire(weight, cm::access::read);
    bool same = cursor[0] == seed;
    for (std::size_t index = 0; index < pin.span().size(); ++index)
      same = same && pin.span()[index] == static_cast<float>(seed) * 1000 + static_cast<float>(index);
    return same;
  }
  tiny_type& m;
  cm::tensor<float> weight;
  std::array<std::uint32_t, 1> cursor{};
};

struct dying {};  ///< what a rank throws that ends: no error of the library

/// How a rank leaves an exchange.
enum class ending : std::uint8_t {
  before,   ///< it ends and takes no part
  behind,   ///< it took part, and ends
  unheard,  ///< it took part, and the answer did not come: a comm_error there, and not on others
};

/// The planned events of a save.
struct attempt {
  std::uint32_t ranks = 2;
  std::uint32_t sized_for = 0;             ///< a model as so many ranks have it; 0: these
  std::uint64_t order = 1;                 ///< seed of turns
  std::uint32_t seed = 1;                  ///< of values
  std::optional<std::uint64_t> ends_at{};  ///< at this exchange of the save a rank ends
  std::uint32_t who_ends = 0;
  ending kind = ending::before;
  std::array<rank_lies, 4> lies{};
  cm::checkpoint::save_options options{.keep = 1};
};

struct ended {
  std::vector<std::string> how;  ///< of each rank: "saved", or the class of what it threw and its text
  std::uint64_t exchanges = 0;   ///< of the save
  std::vector<std::string> clean_up{};
};

/// The class of the exception of `work()`, and its text.
inline std::string outcome_of(cm::call_ref<void()> work)
{
  try {
    work();
    return "saved";
  } catch (const dying&) {
    return "died";
  } catch (const support::power_cut&) {
    return "power";
  } catch (const cm::io_error& it) {
    return std::string{"io: "} + it.what();
  } catch (const cm::comm_error& it) {
    return std::string{"comm: "} + it.what();
  } catch (const cm::usage_error& it) {
    return std::string{"usage: "} + it.what();
  } catch (const cm::config_error& it) {
    return std::string{"config: "} + it.what();
  } catch (const cm::corrupt_data& it) {
    return std::string{"corrupt: "} + it.what();
  } catch (const std::exception& it) {
    return std::string{"other: "} + it.what();
  }
}

/// Runs `work(rank, ranks, model, tensors, folder)` on every rank, each with its view of the folder. @return   how each
/// ended
using work_on_folder = cm::call_ref<void(std::uint32_t rank, counting_ranks& ranks, tiny_type& model,
                                         tiny_tensors& tensors, rank_folder& folder, turns& order)>;
inline std::vector<std::string> on_folder(support::simulated_folder folder, const attempt& how, work_on_folder work)
{
  std::vector<std::string> ends(how.ranks);
  turns order{how.ranks, how.order};
  const cm::collective::thread_group group{how.ranks};
  support::on_ranks(how.ranks, [&](std::uint32_t rank) {
    ends[rank] = outcome_of([&] {
      tiny_arena memory{support::failure_plan{},
                        cm::backend::host_arena_options{.device_capacity = cm::bytes{1U << 20U},
                                                        .host_capacity = cm::bytes{1U << 20U}}};
      cm::collective::local_threads inner{group, cm::rank_id{rank}};
      counting_ranks ranks{inner};
      ranks.into = [&](std::uint64_t) { order.meets(rank); };
      tiny_type model{memory, ranks, {.chunk_bytes = cm::bytes{std::uint64_t{how.ranks} * 16384}}};
      tiny_tensors tensors{model, how.sized_for == 0 ? how.ranks : how.sized_for};
      rank_folder view{folder, order, rank, how.lies[rank]};
      work(rank, ranks, model, tensors, view, order);
    });
    order.ends(rank);
  });
  return ends;
}

/// One save. @param said   called on each rank that saved, before it ends
inline ended save_once(support::simulated_folder folder, const attempt& how, cm::call_ref<void()> said)
{
  ended all;
  std::atomic<std::uint64_t> exchanges{0};
  all.clean_up.resize(how.ranks);
  all.how = on_folder(folder, how,
                      [&](std::uint32_t rank, counting_ranks& ranks, tiny_type& model, tiny_tensors& tensors,
                          rank_folder& view, turns& order) {
                        model.shares().content().belongs_to(1);
                        tensors.fill(how.seed);
                        const std::uint64_t first = ranks.exchanges;
                        const auto ends = [&how, rank, first](std::uint64_t number) {
                          return how.ends_at && rank == how.who_ends && number - first == *how.ends_at;
                        };
                        ranks.into = [&, ends](std::uint64_t number) {
                          if (ends(number) && how.kind == ending::before) throw dying{};
                          order.meets(rank);
                        };
                        ranks.out = [&, ends](std::uint64_t number) {
                          if (!ends(number) || how.kind == ending::before) return;
                          if (how.kind == ending::behind) throw dying{};
                          throw cm::comm_error{"chunkmem: the answer of other ranks did not come"};
                        };
                        const auto saved = cm::checkpoint::save(model, view, how.options);
                        all.clean_up[rank] = std::string{saved.clean_up.view()};
                        exchanges = ranks.exchanges - first;
                        said();
                      });
  all.exchanges = exchanges;
  return all;
}
inline ended save_once(support::simulated_folder folder, const attempt& how)
{
  return save_once(std::move(folder), how, [] {});
}

/// Which of the values that are known a folder holds, by its newest whole generation: 0 where there is none, -1 for a
/// mixture, -3 where a loader would have to skip one: a manifest without all of its files.
class known_values {
 public:
  /// Values of a seed, as the folder has them now.
  void learn(std::uint32_t seed, const support::simulated_folder& folder) { known_[seed] = newest_content(folder); }

  /// Temporary files are nothing to a loader: disks that differ in them alone are asked once.
  [[nodiscard]] std::int64_t newest(const support::simulated_folder& left)
  {
    support::disk_content key = left.content();
    std::erase_if(key, [](const auto& it) { return it.first.ends_with(".tmp"); });
    const auto [place, is_new] = asked_.try_emplace(std::move(key), 0);
    if (is_new) place->second = look(left);
    return place->second;
  }
  [[nodiscard]] const std::map<support::disk_content, std::int64_t>& asked() const { return asked_; }

 private:
  [[nodiscard]] std::int64_t look(const support::simulated_folder& left) const
  {
    for (const std::uint64_t it : cm::checkpoint::generations_in(left))
      if (!cm::checkpoint::is_whole(left, it)) return -3;
    std::vector<cm::checkpoint::skipped_generation> skipped;
    const auto found = cm::checkpoint::newest_whole(left, skipped);
    if (!found) return 0;
    const stored_content content = content_of(left, found->generation());
    for (const auto& [seed, values] : known_)
      if (content == values) return seed;
    return -1;
  }

  std::map<std::uint32_t, stored_content> known_;
  std::map<support::disk_content, std::int64_t> asked_;
};

}  // namespace resharding
