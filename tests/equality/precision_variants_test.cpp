// SPDX-License-Identifier: Apache-2.0
#include "precision_run.hpp"

#include <chunkmem/placement/placements.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/own_policies.hpp>

#include <string>

namespace precision_variants_test {

using namespace precision;
using support::any_backend;
using support::device_only;
using support::one_each_layout;

namespace {

setting setting_for(bool in_place, mixed::precision kind, std::uint8_t size, bool launched)
{
  setting it;
  it.at[setting::eviction] = 1;
  it.at[setting::size] = size;
  it.at[setting::transfer] = 1;
  it.at[setting::gradient] = in_place ? 1 : 0;
  it.at[setting::kind] = static_cast<std::uint8_t>(kind);
  it.at[setting::optimizer] = size % 2;
  it.at[setting::place] = launched ? 3 : 2;
  return it;
}

/// What a run has beside its setting.
struct circumstances {
  bool least_host = false;  ///< the room that the rehearsal names, and one frame to read the results back by
  bool overflows = true;    ///< in two of its steps
  support::every_placement placement{"optimizer_on_host"};
};

template <class Manager>
std::string train_with(const setting& it, const circumstances& with)
{
  using trainer = mixed::trainer<Manager, any_backend, cm::bf16>;
  support::policies chosen = policies_of(it);
  chosen.layout = support::every_layout{"size_class_layout"};
  chosen.placement = with.placement;
  support::any_options options = support::adversarial_options{.device_capacity = plenty,
                                                              .host_capacity = plenty,
                                                              .when = support::schedule::latest,
                                                              .async_compute = it.launched()};
  const auto need = [&] {
    any_backend memory{options};
    const mixed::crew workers = crew_of(it, memory);
    Manager m = support::make_manager<Manager>(memory, chunks, chosen);
    return trainer{m, memory, it.recipe(), workers}.rehearse();
  };
  options.device_capacity = device_for(it.at[setting::size], need());
  if (with.least_host) options.host_capacity = need().smallest_host + frame;
  mixed::recipe how = it.recipe();
  how.evaluates = !with.least_host;  // the rehearsal knows of no other loop
  if (!with.overflows) how.spoilt[0] = how.spoilt[1] = mixed::never;
  const mixed::outcome right = mixed::reference{how}.train();
  any_backend memory{options};
  const mixed::crew workers = crew_of(it, memory);
  std::string difference;
  {
    Manager m = support::make_manager<Manager>(memory, chunks, chosen);
    trainer run{m, memory, how, workers};
    run.rehearse();
    try {
      difference = right.difference(run.train());
    } catch (const std::exception& failed) {
      return failed.what();
    }
    if (difference.empty()) difference = broken_promise(m.report());
  }
  memory.drain();
  return difference.empty() && !memory.faults().empty() ? memory.faults().front() : difference;
}

template <class Manager = support::any_manager<any_backend>>
void train_all(const circumstances& with = {})
{
  for (const bool in_place : {false, true})
    for (const bool launched : {false, true})
      for (const std::uint8_t size : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{3}}) {
        const setting it = setting_for(in_place, mixed::precision::bf16, size, launched);
        INFO(it.name());
        const std::string difference = train_with<Manager>(it, with);
        CHECK(difference == "");
      }
}

}  // namespace

TEST_CASE("16-bit training whose optimizer works on the device gives the same bits", "[equality]")
{
  train_all({.placement = support::every_placement{device_only{}}});
}

TEST_CASE("16-bit training gives the same bits wherever a placement keeps the states", "[equality]")
{
  train_all({.placement = support::every_placement{cm::placement::device_margin{}}});
  train_all({.placement = support::every_placement{cm::placement::fixed_split{}}});
  train_all({.placement = support::every_placement{cm::placement::update_share{.device_share = 0.5}}});
}

TEST_CASE("16-bit training with a layout of one's own gives the same bits", "[equality]")
{
  train_all<cm::manager<any_backend, support::chosen_gradient, one_each_layout>>();
}

TEST_CASE("16-bit training in chunks by size classes gives the same bits", "[equality]")
{
  train_all();
}

TEST_CASE("16-bit training with the least host that the rehearsal names gives the same bits", "[equality]")
{
  train_all({.least_host = true, .overflows = false});
}

TEST_CASE("a skipped step on the least host does not stop those after it", "[equality]")
{
  train_all({.least_host = true});
}

}  // namespace precision_variants_test
