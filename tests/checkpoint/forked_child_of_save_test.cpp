// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_async.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <support/forked_child.hpp>
#include <support/gated_folder.hpp>
#include <support/sanitized.hpp>

#include <optional>

namespace forked_child_of_save_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using support::is_refused_to_children;
using support::result_in_child;

TEST_CASE("a forked child ends a save in the background without waiting for it, and can do nothing else with it",
          "[checkpoint]")
{
  if (support::thread_sanitized) SKIP("the thread sanitizer allows no fork of a program with threads");
  const bool lends = GENERATE(false, true);
  CAPTURE(lends);
  support::gated_folder folder;
  small_model model;
  folder.set_open(false);
  std::optional<checkpoint::pending_save> pending{checkpoint::save_async(model.m, folder, {.lends = lends})};
  CHECK(result_in_child([&] {
          if (!is_refused_to_children([&] { (void)pending->wait(); })) return 1;
          if (!is_refused_to_children([&] { (void)pending->is_over(); })) return 2;
          if (!is_refused_to_children([&] { (void)pending->most_buffered(); })) return 3;
          pending->detach();
          pending.reset();
          return 0;
        }) == 0);
  folder.set_open(true);
  CHECK(pending->wait().number == 1);
  small_model after;
  CHECK(checkpoint::load(after.m, folder).number == 1);
  CHECK(after.holds(1.5F));
}

TEST_CASE("files of a save that is under way stay where they are when a forked child ends", "[checkpoint]")
{
  temporary_folder place;
  cm::io::posix_folder folder{place.path()};
  std::optional<checkpoint::generation_part<cm::io::posix_folder>> part{std::in_place, folder, std::uint64_t{1}};
  const std::byte content[4] = {};
  for (int file = 0; file < 2; ++file) {
    part->begin_file(4);
    part->write(content);
    if (file == 0) part->end_file();
  }
  CHECK(folder.names().size() == 2);
  CHECK(result_in_child([&] {
          part.reset();
          return 0;
        }) == 0);
  CHECK(folder.names().size() == 2);
  part.reset();
  CHECK(folder.names().empty());
}

}  // namespace forked_child_of_save_test
