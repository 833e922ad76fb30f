#include <chunkmem/placement/placement_policy.hpp>

#include <conformance/placement_policy.hpp>
#include <support/catch.hpp>

using namespace chunkmem;

namespace {

/// No more than the concept asks for; with a setting.
struct large_on_host {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "large_on_host";
  bytes limit = 1_KiB;
  tier home_of(role, bytes size) const { return size > limit ? tier::host : tier::device; }
};
static_assert(placement_policy<large_on_host>);

struct without_home : large_on_host {
  tier home_of(role, bytes) const = delete;
};
struct with_a_home_that_changes : large_on_host {
  tier home_of(role, bytes) { return tier::host; }
};
struct of_another_kind : large_on_host {
  using policy_kind = layout_kind;
};
static_assert(!placement_policy<without_home> && !placement_policy<with_a_home_that_changes> && !placement_policy<of_another_kind>);

}  // namespace

TEST_CASE("a placement may look at the size and have settings", "[placement]")
{
  conformance::placement_policy_laws<large_on_host>();
  conformance::placement_policy_laws(large_on_host{.limit = 2_MiB});
}
