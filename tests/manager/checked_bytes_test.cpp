// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/copy_engine.hpp>

#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

namespace checked_bytes_test {

using namespace chunkmem;
using namespace chunkmem::literals;

namespace {

/// Writes down what it hears.
struct hearing_part : checks::no_checks {
  std::vector<checks::pin_event> compared;
  std::vector<std::uint32_t> forgotten, gone;
  checks::pin_event last;
  std::uint32_t slots = 0, parameters = 0;

  void reset(std::uint32_t all, std::uint32_t trained) { slots = all, parameters = trained; }
  void pinned(const checks::pin_event& pin) { last = pin; }
  void released(const checks::pin_event& pin) noexcept { last = pin; }
  bool is_watched(std::uint32_t) const noexcept { return true; }
  void compare(const checks::pin_event& copy) noexcept { compared.push_back(copy); }
  void forget(std::uint32_t cell) noexcept { forgotten.push_back(cell); }
  void gradient_gone(std::uint32_t parameter) noexcept { gone.push_back(parameter); }
};
struct hearing {
  using policy_kind = checks_kind;
  static constexpr std::string_view name = "hearing";
  static constexpr bool is_on = true;
  using part = hearing_part;
};

/// Two parameters, with slots 0 and 1 and gradients 2 and 3, and a gathered tensor, slot 4.
registry three_tensors()
{
  registry tensors;
  tensors.add({64}, dtype::float32, role::parameter, group_id{0});
  tensors.add({64}, dtype::float32, role::parameter, group_id{0});
  tensors.add({64}, dtype::uint8, role::gathered, group_id{0});
  tensors.seal(append_layout{}, 1_KiB);
  return tensors;
}

}  // namespace

TEST_CASE("a gradient in its weight's bytes has the weight's cell", "[manager]")
{
  registry tensors = three_tensors();
  checked_bytes<hearing, true> watch;
  watch.reset(tensors);
  CHECK(watch.part().slots == 5);
  CHECK(watch.part().parameters == 2);
  std::byte content[256]{};
  watch.pinned(slot_id{3}, content, access::write);
  CHECK(watch.part().last.cell == 3);
  CHECK(watch.part().last.content.size() == 256);
  tensors.move_gradient(slot_id{1}, tensors[slot_id{1}].chunk, tensors[slot_id{1}].offset);
  watch.pinned(slot_id{3}, content, access::write);
  CHECK(watch.part().last.cell == 1);
  CHECK(watch.part().last.slot == 3);
}

TEST_CASE("bytes of a gathered tensor do not stay", "[manager]")
{
  const registry tensors = three_tensors();
  checked_bytes<hearing, true> watch;
  watch.reset(tensors);
  std::byte content[256]{};
  watch.released(slot_id{4}, content, access::read);
  CHECK_FALSE(watch.part().last.retained);
  watch.released(slot_id{0}, content, access::read);
  CHECK(watch.part().last.retained);
}

TEST_CASE("all tensors of a chunk are looked at where it leaves", "[manager]")
{
  const registry tensors = three_tensors();
  checked_bytes<hearing, true> watch;
  watch.reset(tensors);
  std::byte chunk[1024]{};
  watch.compare_chunk(tensors[slot_id{0}].chunk, chunk);
  REQUIRE(watch.part().compared.size() == 2);
  CHECK(watch.part().compared[0].content.data() == chunk);
  CHECK(watch.part().compared[1].content.data() == chunk + 256);
}

TEST_CASE("a dropped gradient is dead unless its weight has the bytes again", "[manager]")
{
  registry tensors = three_tensors();
  checked_bytes<hearing, true> watch;
  watch.reset(tensors);
  tensors.move_gradient(slot_id{1}, tensors[slot_id{1}].chunk, tensors[slot_id{1}].offset);
  tensors[slot_id{1}].state = tensor_state::hold;
  CHECK_FALSE(watch.dropped(slot_id{3}));
  CHECK(watch.part().gone == std::vector<std::uint32_t>{1});
  CHECK(watch.part().forgotten.empty());
  tensors[slot_id{1}].state = tensor_state::gradient;
  CHECK(watch.dropped(slot_id{3}));
  CHECK(watch.part().forgotten == std::vector<std::uint32_t>{1});
  CHECK(watch.dropped(slot_id{0}));
  CHECK(watch.part().forgotten == std::vector<std::uint32_t>{1, 0});
}

TEST_CASE("where the calling thread cannot read the bytes, or the policy is off, nothing is looked at", "[manager]")
{
  STATIC_REQUIRE_FALSE(checked_bytes<hearing, false>::sees_bytes);
  STATIC_REQUIRE_FALSE(checked_bytes<checks::none, true>::sees_bytes);
  STATIC_REQUIRE_FALSE(checked_bytes<checks::none, true>::is_on);
  const registry tensors = three_tensors();
  checked_bytes<hearing, false> watch;
  watch.reset(tensors);
  std::byte content[256]{};
  watch.pinned(slot_id{0}, content, access::read);
  CHECK(watch.part().last.content.empty());
  CHECK_FALSE(watch.is_watched(slot_id{0}));
}

}  // namespace checked_bytes_test
