// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <support/catch.hpp>

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

namespace rows_test {

namespace {

using Catch::Matchers::ContainsSubstring;
using namespace schedule_example;

std::string rows(const options& chosen, std::size_t columns = 160)
{
  std::ostringstream out;
  print_rows(out, simulate(chosen), columns);
  return out.str();
}
std::string table(const options& chosen)
{
  std::ostringstream out;
  print_table(out, simulate(chosen));
  return out.str();
}
options named(std::string_view name, std::uint32_t stages, std::uint32_t micro_batches, std::uint32_t batches = 1)
{
  options chosen;
  chosen.schedule = name;
  chosen.shape.stages = stages;
  chosen.shape.micro_batches = micro_batches;
  chosen.shape.batches = batches;
  return chosen;
}

}  // namespace

TEST_CASE("the rows of 1f1b are these", "[schedule]")
{
  CHECK(rows(named("1f1b", 4, 6)) ==
        R"(one_f_one_b: 4 stages, 6 micro-batches
a cell is 1 s; F: forward, B: backward

stage 0  F0 F1 F2 F3                   B0--- F4 B1--- F5 B2---    B3---    B4---    B5---
stage 1     F0 F1 F2             B0--- F3 B1--- F4 B2--- F5 B3---    B4---    B5---
stage 2        F0 F1       B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4---    B5---
stage 3           F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5---
)");
}

TEST_CASE("rows have small letters for further parts, and updates where they take the stage's time", "[schedule]")
{
  options chosen = named("interleaved", 2, 2);
  chosen.update = 1;
  CHECK(rows(chosen) == R"(interleaved: 2 stages, 2 micro-batches
a cell is 0.5 s; F: forward, B: backward, U: update; small letters: not the stage's first part

stage 0  F0 F1 f0 f1       b0---    b1--- B0--- B1--- U1 u1
stage 1     F0 F1 f0 b0--- f1 b1--- B0--- B1--- U1 u1
)");
  chosen.updates_aside = true;
  CHECK_THAT(rows(chosen), !ContainsSubstring("U1") && !ContainsSubstring("update"));
}

TEST_CASE("long rows are cut, and a line says so", "[schedule]")
{
  CHECK(rows(named("1f1b", 2, 3), 24) == R"(one_f_one_b: 2 stages, 3 micro-batches
a cell is 1 s; F: forward, B: backward

stage 0  F0 F1       B0
stage 1     F0 B0--- F1
(the first 5 of 12 cells; --svg draws all of them)
)");
}

TEST_CASE("the table has peaks, idle time and the slack of updates", "[schedule]")
{
  CHECK(table(named("2bw", 2, 2, 2)) == R"(
stage     runs   idle %     peak versions    slack
    0        8     20.0      2.0        2        1
    1        8     20.0      1.0        2        2
idle: of the total time; peak: micro-batches whose activations are saved at once; versions: of the weights
slack: pairs of runs that an update aside may take at no cost, with two sets of gradients
gradients: 1 update late: made with weights that are as many updates old
total 15 s, bubble rate 20.0 %
)");
  CHECK_THAT(table(named("zb-h2", 4, 8)), !ContainsSubstring("slack") && ContainsSubstring("bubble rate 0.0 %"));
}

TEST_CASE("steps are listed with letters, micro-batch and part", "[schedule]")
{
  std::ostringstream out;
  print_steps(out, simulate(named("1f1b", 2, 2)));
  CHECK(out.str() == R"(
steps of stage 0
  F0 SA0 RG0 F1 SA1 RG1 BW0 BW1 U1

steps of stage 1
  RA0 RA1 F0 BW0 SG0 F1 BW1 SG1 U1
)");
  out.str("");
  print_steps(out, simulate(named("interleaved", 2, 2)));
  CHECK_THAT(out.str(), ContainsSubstring("F0/2") && ContainsSubstring("BW0/3"));
}

TEST_CASE("runs much shorter than others do not stretch the rows", "[schedule]")
{
  options chosen = named("zb-h1", 2, 2);
  chosen.shape.seconds = {.forward = 8, .backward_input = 8, .backward_weight = 1e-6};
  CHECK_THAT(rows(chosen), ContainsSubstring("a cell is 1 s"));
}

}  // namespace rows_test
