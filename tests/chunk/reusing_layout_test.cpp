// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk_layout.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <conformance/reusing_layout.hpp>
#include <support/catch.hpp>

#include <string>
#include <vector>

namespace reusing_layout_test {

using namespace chunkmem;

namespace {

struct without_erase : append_layout {
  void erase(const chunk_place& place, bytes size) = delete;
};
struct with_groups_of_no_answer : append_layout {
  void place_together(std::span<const bytes> sizes, std::span<chunk_place> places);
};
static_assert(reusing_layout<append_layout> && !reusing_layout<without_erase> &&
              !reusing_layout<with_groups_of_no_answer>);

/// Hands out what was given back without looking at what came after it: the mistake of an ordered list of gaps in which
/// a used gap stays in front.
class forgetful {
 public:
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "forgetful";
  void reset(bytes) { next_ = 0; }
  chunk_place place(bytes) { return {0, gap_ < next_ ? gap_ : next_++ * 256, 16}; }
  void erase(const chunk_place& place, bytes) { gap_ = place.offset; }
  bool place_together(std::span<const bytes>, std::span<chunk_place>) { return false; }

 private:
  std::uint64_t next_ = 0;
  std::uint64_t gap_ = UINT64_MAX;
};
static_assert(reusing_layout<forgetful>);

}  // namespace

TEST_CASE("a trial of reuse notices bytes that are handed out twice", "[chunk]")
{
  conformance::reuse_trial<forgetful> trial{forgetful{}, 256};
  for (int tensor = 0; tensor < 4; ++tensor) CHECK(trial.place(256).empty());
  trial.erase(0);
  CHECK(trial.place(256).empty());
  CHECK(trial.place(256) == "two tensors share a byte");
}

TEST_CASE("a trial of reuse notices a group that is refused without a reason", "[chunk]")
{
  conformance::reuse_trial<forgetful> trial{forgetful{}, 1'024};
  CHECK(trial.place_together({bytes{256}, bytes{256}}) == "a group that fits was refused");
  CHECK(trial.place_together({bytes{1'024}, bytes{256}}).empty());
}

}  // namespace reusing_layout_test
