// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/registration.hpp>

#include <support/catch.hpp>

#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace registration_test {

using namespace chunkmem;

namespace {

void tie(registrations& manager, registration& owner)
{
  manager.make_room();
  manager.add(owner);
}

struct counter {
  registration registered{};
  int count = 0;
  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{"count", std::as_writable_bytes(std::span{&count, 1})});
  }
};
struct kernel {
  static constexpr std::string_view name = "toy";
  counter progress;
  float own = 0;
  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{"own", std::as_writable_bytes(std::span{&own, 1})});
  }
};
struct mute {
  registration registered;
};
struct stranger {
  int progress = 0;
};
static_assert(registrable<counter> && registrable<kernel> && registrable<mute> && !registrable<const kernel> &&
              !registrable<stranger>);
static_assert(std::is_nothrow_copy_constructible_v<registration> && std::is_nothrow_copy_assignable_v<registration>);

}  // namespace

TEST_CASE("a registration knows the manager that it was tied to, until that is gone", "[tensor]")
{
  registrations another;
  registration it;
  CHECK_FALSE(it.is_tied());
  {
    registrations manager;
    CHECK_FALSE(it.is_tied_to(manager));
    tie(manager, it);
    CHECK((it.is_tied() && it.is_tied_to(manager) && !it.is_tied_to(another)));
  }
  CHECK((it.is_tied() && !it.is_tied_to(another)));
}

TEST_CASE("a registration tells its manager that the owner is gone", "[tensor]")
{
  registrations manager;
  registration kept;
  tie(manager, kept);
  {
    registration it;
    CHECK(manager.next() == 1);
    tie(manager, it);
    CHECK((manager.has(0) && manager.has(1)));
  }
  CHECK((manager.has(0) && !manager.has(1)));
  registration later;
  tie(manager, later);
  CHECK((manager.has(2) && !manager.has(1)));
}

TEST_CASE("a copy of a registration is not tied, and an assignment keeps the tie", "[tensor]")
{
  registrations manager;
  counter it;
  it.count = 3;
  tie(manager, it.registered);
  counter copy = it;
  CHECK((copy.count == 3 && !copy.registered.is_tied()));
  const counter moved = std::move(copy);
  CHECK_FALSE(moved.registered.is_tied());
  it = counter{};
  CHECK((it.count == 0 && it.registered.is_tied_to(manager) && manager.has(0)));
  copy = it;
  CHECK_FALSE(copy.registered.is_tied());

  std::vector<counter> grown(1);
  tie(manager, grown[0].registered);
  grown.reserve(grown.capacity() + 1);  // the owner is elsewhere now
  CHECK_FALSE(manager.has(1));
  CHECK_FALSE(grown[0].registered.is_tied());
}

TEST_CASE("the states of an object are those of its progress and its own", "[tensor]")
{
  const auto names_of = [](auto&& owner) {
    std::string all;
    detail::for_each_state_of(owner, [&](const restart_state& it) {
      all += std::string{it.name} + ' ' + std::to_string(it.content.size()) + ' ';
    });
    return all;
  };
  CHECK(names_of(kernel{}) == "count 4 own 4 ");
  CHECK(names_of(counter{}) == "count 4 ");
  CHECK(names_of(mute{}).empty());
  CHECK(detail::name_of_type<kernel>() == "toy");
  CHECK(detail::name_of_type<counter>().empty());
  kernel it;
  CHECK(&detail::registration_of(it) == &it.progress.registered);
}

}  // namespace registration_test
