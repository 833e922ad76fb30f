// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/generation_reader.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace older_check_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using Catch::Matchers::ContainsSubstring;
using cm::io::posix_folder;
using numbers = std::vector<std::uint64_t>;

namespace {

/// Counts how often each file is opened, in a thread too, and fails to sync while it is stuck.
class counted_folder {
  struct state {
    explicit state(const std::string& path) : folder{path} {}
    posix_folder folder;
    std::mutex mutex;
    std::map<std::string, int> opened;
    bool is_stuck = false;
  };

 public:
  using writer = posix_folder::writer;
  using reader = posix_folder::reader;

  explicit counted_folder(const std::string& path) : state_{std::make_shared<state>(path)} {}
  [[nodiscard]] counted_folder again() const { return *this; }
  [[nodiscard]] auto identity() const { return state_->folder.identity(); }

  /// Files of tensors. Nobody reads meanwhile.
  [[nodiscard]] const std::map<std::string, int>& opened() const { return state_->opened; }
  void stick(bool is_stuck) { state_->is_stuck = is_stuck; }

  [[nodiscard]] writer create(std::string_view name) { return state_->folder.create(name); }
  [[nodiscard]] reader open(std::string_view name) const
  {
    const std::lock_guard guard{state_->mutex};
    if (name.ends_with(".safetensors")) ++state_->opened[std::string{name}];
    return state_->folder.open(name);
  }
  void rename(std::string_view from, std::string_view to) { state_->folder.rename(from, to); }
  bool remove(std::string_view name) noexcept { return state_->folder.remove(name); }
  void sync()
  {
    if (state_->is_stuck) throw cm::io::failed("syncing", "a folder", EIO);
    state_->folder.sync();
  }
  [[nodiscard]] std::vector<std::string> names() const { return state_->folder.names(); }

 private:
  std::shared_ptr<state> state_;
};
static_assert(cm::shareable_folder<counted_folder> && cm::shareable_folder<posix_folder>);

constexpr checkpoint::save_options keeps_three{.keep = 3};

}  // namespace

TEST_CASE("a generation is read at most once, and not by the save that writes it", "[checkpoint]")
{
  temporary_folder place;
  counted_folder folder{place.path()};
  small_model model;
  for (std::uint64_t turn = 1; turn <= 8; ++turn) {
    (void)checkpoint::save(model.m, folder, keeps_three);
    CHECK(checkpoint::finish_save(model.m).view().empty());
  }
  CHECK(checkpoint::generations_in(folder) == numbers{8, 7, 6});
  CHECK(folder.opened().size() == 6);  // 2 and 3 at the fourth save, then one at each
  for (const auto& [name, times] : folder.opened()) {
    INFO(name);
    CHECK(times == 1);
  }
  CHECK_FALSE(folder.opened().contains("generation-000008-00000.safetensors"));
}

TEST_CASE("what was read in one folder says nothing of another, nor of a number that is given again", "[checkpoint]")
{
  temporary_folder one, two;
  counted_folder first{one.path()}, second{two.path()};
  small_model model;
  const auto save = [&](counted_folder& folder) {
    (void)checkpoint::save(model.m, folder);
    CHECK(checkpoint::finish_save(model.m).view().empty());
  };
  for (int turn = 0; turn < 3; ++turn) save(first);
  for (int turn = 0; turn < 3; ++turn) save(second);
  const std::string both = "generation-000002-00000.safetensors";
  CHECK(first.opened().at(both) == 1);
  CHECK(second.opened().at(both) == 1);
  for (const std::string& name : second.names()) REQUIRE(second.remove(name));
  for (int turn = 0; turn < 3; ++turn) save(second);
  CHECK(second.opened().at(both) == 2);
}

TEST_CASE("a removal that failed behind a save is said once, by the next save where nobody asked", "[checkpoint]")
{
  temporary_folder place;
  counted_folder folder{place.path()};
  small_model model;
  for (const bool asks : {true, false}) {
    for (int turn = 0; turn < 2; ++turn) (void)checkpoint::save(model.m, folder);
    (void)checkpoint::finish_save(model.m);
    // The manifest of an older one is removed, and then the folder does not sync.
    const auto saved = checkpoint::save(model.m, folder);
    CHECK(saved.clean_up.view().empty());
    (void)checkpoint::finish_save(model.m);
    checkpoint::detail::older_check& older = checkpoint::detail::older_check_of(model.m);
    for (int more = 0; more < 2; ++more) (void)checkpoint::save(model.m, folder, {.keep = 9});
    (void)checkpoint::finish_save(model.m);
    folder.stick(true);
    older.start(folder, saved.number + 2, 2);
    older.wait();
    folder.stick(false);
    if (asks) {
      CHECK_THAT(std::string{checkpoint::finish_save(model.m).view()}, ContainsSubstring("errno 5"));
      CHECK(checkpoint::finish_save(model.m).view().empty());
    } else {
      CHECK_THAT(std::string{checkpoint::save(model.m, folder).clean_up.view()}, ContainsSubstring("errno 5"));
    }
  }
}

TEST_CASE("the folder's object may end before older generations are removed", "[checkpoint]")
{
  temporary_folder place;
  small_model model;
  for (int turn = 0; turn < 4; ++turn) {
    posix_folder folder{place.path()};
    (void)checkpoint::save(model.m, folder);
  }
  (void)checkpoint::finish_save(model.m);
  CHECK(checkpoint::generations_in(posix_folder{place.path()}) == numbers{4, 3});
}

TEST_CASE("a load and the end of the manager wait for the removal, and a background save goes on beside it",
          "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  for (int turn = 0; turn < 3; ++turn) {
    small_model model;
    for (int save = 0; save < 3; ++save) (void)checkpoint::save(model.m, folder);
    const auto newest = checkpoint::generations_in(folder).front();
    if (turn == 0) CHECK(checkpoint::load(model.m, folder).number == newest);
    if (turn == 1) CHECK(checkpoint::save_async(model.m, folder).wait().number == newest + 1);
    if (turn == 1) CHECK(checkpoint::finish_save(model.m).view().empty());
    if (turn < 2) CHECK(checkpoint::generations_in(folder).size() == 2);
  }
  CHECK(checkpoint::generations_in(folder).size() == 2);
}

TEST_CASE("a child that is forked behind a save leaves the removal to its parent, and saves for itself", "[checkpoint]")
{
  if (support::thread_sanitized) return;  // children are not for it
  temporary_folder place;
  posix_folder folder{place.path()};
  std::optional<small_model> model{std::in_place};
  for (int save = 0; save < 3; ++save) (void)checkpoint::save(model->m, folder);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // the thread does not exist here: nobody waits for it
    bool is_saved = false;
    try {
      for (int save = 0; save < 2; ++save) (void)checkpoint::save(model->m, folder);
      is_saved = checkpoint::finish_save(model->m).view().empty();
    } catch (...) {
    }
    model.reset();
    std::_Exit(is_saved ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(checkpoint::finish_save(model->m).view().empty());
  CHECK(checkpoint::generations_in(folder) == numbers{5, 4});
}

}  // namespace older_check_test
