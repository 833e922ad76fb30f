// SPDX-License-Identifier: Apache-2.0
#include <saving/least_overhead.hpp>

#include <support/catch.hpp>

namespace least_overhead_test {

using saving_bench::least_overhead_of;
using saving_bench::save_case;

namespace {

/// 10 GB at 1 GB/s beside steps of 2 s, which leave half of the host's memory rate unused.
save_case usual()
{
  return {.bytes = 10e9, .writing = 1e9, .spare = 10e9, .host_memory = 40e9, .step = 2, .step_bytes = 40e9};
}

}  // namespace

TEST_CASE("a save costs nothing that the disk writes within a step", "[saving]")
{
  save_case it = usual();
  it.writing = 5e9;
  it.spare = 0;
  CHECK(least_overhead_of(it).overhead == 0);
  CHECK(least_overhead_of(it).steps == 1);
}

TEST_CASE("what fits neither on the disk nor in spare memory is waited for", "[saving]")
{
  save_case it = usual();
  it.spare = 4e9;  // the disk has to write 6 GB before the last change
  CHECK(least_overhead_of(it).seconds == Catch::Approx(4));
  CHECK(least_overhead_of(it).steps == 3);  // 10 s are 4 of waiting and 3 steps
  CHECK(least_overhead_of(it).overhead == Catch::Approx(100 * 4. / 6));
  it.forward = 1;  // the last change comes a forward pass later
  it.update_bytes = 30e9;
  CHECK(least_overhead_of(it).seconds == Catch::Approx(3));
}

TEST_CASE("copies take the time that their bytes take in the host's memory", "[saving]")
{
  save_case it = usual();
  CHECK(least_overhead_of(it).seconds == 0);  // 40 + 2 * 10 GB, and less for what is written
  it.step_bytes = 80e9;
  CHECK(least_overhead_of(it).seconds == Catch::Approx(100e9 / 41e9 - 2));
  CHECK(least_overhead_of(it).steps == 5);
  it.forward = 0.5;  // and with it the updates of another step
  CHECK(least_overhead_of(it).seconds == 0);
  it.update_bytes = 30e9;
  CHECK(least_overhead_of(it).seconds == Catch::Approx(130e9 / 41e9 - 2.5));
}

TEST_CASE("what the disk writes in time is read, and not copied", "[saving]")
{
  save_case it = usual();
  it.writing = 4e9;  // 2.5 s, longer than a step
  it.step_bytes = 85e9;
  CHECK(least_overhead_of(it).seconds == Catch::Approx(105e9 / 44e9 - 2));  // the rest of 0.1 s is copied
  it.step_bytes = 95e9;
  CHECK(least_overhead_of(it).seconds == Catch::Approx(105e9 / 40e9 - 2));  // longer than the disk takes for all
  it.writing = 20e9;
  CHECK(least_overhead_of(it).seconds == Catch::Approx(105e9 / 40e9 - 2));
}

TEST_CASE("what lies on the device crosses its link first", "[saving]")
{
  save_case it = usual();
  it.writing = 20e9;
  it.on_device = 10e9;
  it.from_device = 4e9;
  CHECK(least_overhead_of(it).seconds == Catch::Approx(0.5));
  CHECK(least_overhead_of(it).overhead == Catch::Approx(25));
}

}  // namespace least_overhead_test
