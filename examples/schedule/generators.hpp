// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace schedule_example {

/// The schedules that a command line can name.
inline constexpr std::array<std::string_view, 10> generator_names{"gpipe", "1f1b",  "eager", "interleaved", "2bw",
                                                                  "zb-h1", "zb-h2", "zb-1p", "zb-2p",       "zb-v"};

/// Parameters of some generators in addition to the shape.
struct generator_numbers {
  std::uint32_t parts = 2;     ///< of a stage, for interleaved
  std::uint32_t versions = 2;  ///< of the weights, for 2bw
};

/// The schedule of a name. @param tell   called during searches, which take seconds with many stages
/// @return   nothing: no generator has this name   @throws chunkmem::config_error   the generator refuses the shape
[[nodiscard]] inline std::optional<chunkmem::pipeline::schedule> named_schedule(
    std::string_view name, const chunkmem::pipeline::pipeline_shape& shape, const generator_numbers& numbers = {},
    chunkmem::pipeline::search_listener tell = nullptr)
{
  using namespace chunkmem::pipeline;
  if (name == "gpipe") return make_schedule(gpipe{}, shape);
  if (name == "1f1b") return make_schedule(one_f_one_b{}, shape);
  if (name == "eager") return make_schedule(eager_one_f_one_b{}, shape);
  if (name == "interleaved") return make_schedule(interleaved{.parts = numbers.parts}, shape);
  if (name == "2bw") return make_schedule(pipedream_2bw{.versions = numbers.versions}, shape);
  if (name == "zb-h1") return make_schedule(zb_h1{}, shape);
  if (name == "zb-h2") return make_schedule(zb_h2{}, shape);
  if (name == "zb-1p") return make_schedule(zero_bubble{.limit = 1, .tell = tell}, shape);
  if (name == "zb-2p") return make_schedule(zero_bubble{.limit = 2, .tell = tell}, shape);
  if (name == "zb-v") return make_schedule(zb_v{.tell = tell}, shape);
  return std::nullopt;
}

}  // namespace schedule_example
