// SPDX-License-Identifier: Apache-2.0
#include <gpu/dense_runs.hpp>
#include <gpu/machine.hpp>
#include <support/catch.hpp>

#include <utility>

using gpu::dense_setting;
using gpu::room;

namespace {

template <class Train>
void check_against_the_host(Train train, const dense_setting& setting)
{
  INFO("16 bits: " << setting.half << ", gradients in place: " << setting.in_place << ", room "
                   << static_cast<int>(setting.device));
  CHECK(train(setting) == gpu::train_on_host(setting));
}
/// float32; 16 bits with gradients apart; 16 bits with gradients in place. Each in three rooms.
template <class Train>
void check_every_room(Train train, dense_setting setting = {})
{
  for (const auto& [half, in_place] : {std::pair{false, false}, std::pair{true, false}, std::pair{true, true}})
    for (const room device : {room::smallest, room::half_more, room::unlimited}) {
      setting.half = half;
      setting.in_place = in_place;
      setting.device = device;
      check_against_the_host(train, setting);
    }
}

}  // namespace

TEST_CASE("training by kernels on a GPU leaves the bytes that training on the host leaves", "[gpu][equality]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  check_every_room(gpu::train_on_gpu);
}

TEST_CASE("so it does when the optimizer runs on the GPU too", "[gpu][equality]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  check_every_room(gpu::train_and_update_on_gpu);
}

TEST_CASE("replays of a captured step leave the bytes of steps", "[gpu][equality]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  check_every_room(gpu::train_by_graph_on_gpu, {.same_batch = true, .steps = 12});
}
