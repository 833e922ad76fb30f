// SPDX-License-Identifier: Apache-2.0
#include "patient.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace background_save_test {

/// A save in the background whose thread does not start, whose folder fails, or that finds no memory on either thread:
/// a typed error from the call or from its wait, nothing left of it, and the next save is whole.

using namespace fault_sweeps;
using support::fault_point;
using support::fault_source;

namespace {

/// The errors that a trainer got, and its results.
struct saved {
  std::vector<std::byte> bytes;
  int errors = 0;
  std::string other;  ///< thrown, and of no documented kind
};

struct model {
  backend memory{cm::backend::host_arena_options{64_KiB, 64_KiB}};
  cm::manager<backend, support::chosen_gradient> m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> layers = m.add_stacked<float>(3, {500}, cm::role::parameter);

  model()
  {
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      const auto pin = m.acquire(layers.slice(layer), cm::access::write);
      for (std::size_t index = 0; index < pin.size(); ++index)
        pin.span()[index] = static_cast<float>(layer * 1000 + index);
    }
  }
};

/// Saves until it worked. @param buffer   of the save: a small one makes the caller wait for the thread
/// @param copying   threads that copy what is lent; 0: nothing is
saved save(model& it, support::memory_folder& folder, cm::bytes buffer, std::uint32_t copying)
{
  saved result;
  const auto met = [&] {
    if (++result.errors == 2) support::faults.repair();
    if (result.errors == 20) throw std::runtime_error{"the same error for ever"};
  };
  try {
    for (bool done = false; !done;) {
      try {
        (void)cm::checkpoint::save_async(
            it.m, folder,
            {.files = {.file_size = 3_KiB}, .buffer = buffer, .lends = copying > 0, .copying_threads = copying})
            .wait();
        done = true;
      } catch (const cm::io_error&) {
        met();
      } catch (const std::bad_alloc&) {
        met();
      }
    }
  } catch (const std::exception& error) {
    support::faults.disarm();
    result.other = error.what();
  }
  support::faults.disarm();
  if (result.other.empty()) {
    model after;
    REQUIRE(cm::checkpoint::load(after.m, folder).skipped.empty());
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      const auto pin = after.m.acquire(after.layers.slice(layer), cm::access::read);
      const auto bytes = std::as_bytes(pin.span());
      result.bytes.insert(result.bytes.end(), bytes.begin(), bytes.end());
    }
  }
  return result;
}

}  // namespace

TEST_CASE("a background save that fails is a typed error and leaves the next one whole", "[faults]")
{
  std::uint64_t runs = 0;
  for (const std::uint32_t copying : {0U, 0U, 1U}) {
    const cm::bytes buffer = runs == 0 ? 700_B : 1_MiB;
    model it;
    support::memory_folder first;
    support::faults.arm({});
    const saved quiet = save(it, first, buffer, copying);
    REQUIRE(quiet.errors == 0);
    REQUIRE(quiet.bytes.size() == 6000);
    std::array<std::uint64_t, support::fault_sources> quiet_calls{};  // the runs below count anew
    for (std::size_t index = 0; index < quiet_calls.size(); ++index)
      quiet_calls[index] = support::faults.calls(static_cast<fault_source>(index));
    for (const fault_source from : {fault_source::heap, fault_source::file, fault_source::thread}) {
      const std::uint64_t calls = quiet_calls[static_cast<std::size_t>(from)];
      REQUIRE(calls > 0);
      std::uint64_t errors = 0;
      std::uint64_t silent = 0;  // points at which nothing failed
      // The trainer may be far ahead of the thread or not, so the queue between them has more or fewer blocks of
      // memory, and the last allocations of the quiet run are not made in every run.
      const int tries = from == fault_source::heap ? 20 : 1;
      // under a sanitizer every fifth: odd, so that errors come once and for good by turns
      const std::uint64_t pace = support::sanitized && from != fault_source::thread ? 5 : 1;
      for (std::uint64_t index = 0; index < calls; index += pace) {
        INFO(support::name_of(from) << " " << index << " of " << calls << ", buffer " << buffer.count() << " B, "
                                    << copying << " threads copy");
        bool struck = false;
        for (int attempt = 0; attempt < tries && !struck; ++attempt) {
          const std::int64_t blocks = support::live_blocks;
          {
            support::memory_folder folder;
            support::faults.arm({from, index, index % 2 == 1});
            const saved found = save(it, folder, buffer, copying);
            struck = support::faults.struck() > 0;
            errors += static_cast<std::uint64_t>(found.errors);
            REQUIRE(found.other == "");
            REQUIRE(found.bytes == quiet.bytes);
            ++runs;
          }
          const std::int64_t left = support::live_blocks - blocks;  // a check that prints has blocks of its own
          REQUIRE(left == 0);
        }
        silent += struck ? 0 : 1;
      }
      CHECK(silent <= (from == fault_source::heap ? calls / 20 / pace : 0));
      // sorting does without memory, and what cannot be taken away is the next save's affair
      CHECK(errors * 2 > calls / pace);
    }
  }
  std::cout << "background saves: " << runs << " runs with a fault on either thread, each followed by a whole one\n";
}

namespace {

/// Three weights of a manager whose updates are late.
struct late_training {
  using manager_type = cm::manager<backend, support::chosen_gradient>;

  backend memory{cm::backend::host_arena_options{64_KiB, 256_KiB}};
  manager_type m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> layers = m.add_stacked<float>(3, {500}, cm::role::parameter);
  cm::optimizer::adam kernel{};
  cm::optimizer::late_updates<manager_type, cm::optimizer::adam> late{m, kernel};

  late_training()
  {
    m.use(kernel);
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      std::ranges::fill(m.acquire(layers.slice(layer), cm::access::write).span(), 2.0F);
  }
  void step()
  {
    const auto scope = m.iteration();
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      for (float& element : m.gradient(m.acquire(layers.slice(layer), cm::access::read)).span())
        element = 1.0F + static_cast<float>(layer);
    (void)late.step({.learning_rate = 0.1F});
  }
  [[nodiscard]] std::vector<float> values()
  {
    std::vector<float> all;
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      const auto pin = m.acquire(layers.slice(layer), cm::access::read);
      all.insert(all.end(), pin.span().begin(), pin.span().end());
    }
    return all;
  }
};

/// Saves behind late updates until it worked. @return   how many errors came, each of a documented kind
int save_behind_updates(late_training& run, support::memory_folder& folder)
{
  int errors = 0;
  const auto meet = [&](auto work) {
    for (;;) {
      try {
        return work();
      } catch (const cm::error&) {
      } catch (const std::bad_alloc&) {
      }
      if (++errors == 2) support::faults.repair();
      if (errors == 20) throw std::runtime_error{"the same error for ever"};
    }
  };
  meet([&] {
    auto pending = cm::checkpoint::save_async(run.m, folder, {.lends = true, .copying_threads = 1});
    run.late.finish();
    (void)pending.wait();
  });
  meet([&] { run.late.finish(); });
  return errors;
}

}  // namespace

TEST_CASE("a save behind late updates that meets a fault leaves the updates right, and the next save whole", "[faults]")
{
  std::vector<float> right;
  std::uint64_t runs = 0;
  std::uint64_t errors = 0;
  for (const fault_source from : {fault_source::heap, fault_source::file, fault_source::thread, fault_source::copy}) {
    std::uint64_t calls = 1;
    for (std::uint64_t index = 0; index <= calls; ++index) {  // the first run is a quiet one
      INFO(support::name_of(from) << " " << index << " of " << calls);
      late_training run;
      support::memory_folder folder;
      run.step();
      run.step();
      REQUIRE(run.late.waiting() == 3);
      support::faults.arm(index == 0 ? fault_point{} : fault_point{from, index - 1, index % 2 == 1});
      const int met = save_behind_updates(run, folder);
      if (index == 0) calls = support::faults.calls(from);
      support::faults.disarm();
      errors += static_cast<std::uint64_t>(met);
      if (index == 0) REQUIRE(met == 0);
      if (right.empty()) right = run.values();
      REQUIRE(run.values() == right);
      late_training loaded;
      REQUIRE(cm::checkpoint::load(loaded.m, folder).skipped.empty());
      REQUIRE(loaded.values() == right);
      ++runs;
    }
  }
  CHECK(errors > runs / 2);
}

TEST_CASE("a device, a pool and a stream without a thread are typed errors, and the next try has them all", "[faults]")
{
  const auto run = [](const fault_point& point) {
    const std::int64_t blocks = support::live_blocks;
    int errors = 0;
    support::faults.arm(point);
    {
      std::optional<backend> memory;
      std::optional<pool> workers;
      for (bool done = false; !done;) {
        try {
          if (!memory) memory.emplace(cm::backend::host_arena_options{64_KiB, 64_KiB, true});
          while (memory->agents() < 6) (void)memory->adopt();
          if (!workers) workers.emplace(4U);
          done = true;
        } catch (const cm::device_error&) {
          if (++errors == 2) support::faults.repair();
        } catch (const std::bad_alloc&) {
          if (++errors == 2) support::faults.repair();
        }
      }
      support::faults.disarm();
      CHECK(memory->agents() == 6);
      CHECK(workers->threads() == 4);
    }
    const std::int64_t left = support::live_blocks - blocks;
    CHECK(left == 0);
    return errors;
  };
  CHECK(run({}) == 0);
  CHECK(support::faults.calls(fault_source::thread) == 8);
  for (const fault_source from : {fault_source::thread, fault_source::heap}) {
    (void)run({});
    const std::uint64_t calls = support::faults.calls(from);
    for (std::uint64_t index = 0; index < calls; ++index) {
      INFO(support::name_of(from) << " " << index);
      CHECK(run({from, index, false}) == 1);
      CHECK(run({from, index, true}) == 2);
    }
  }
}

}  // namespace background_save_test
