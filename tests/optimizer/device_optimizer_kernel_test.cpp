// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <support/catch.hpp>

#include <span>
#include <type_traits>

namespace device_optimizer_kernel_test {

using namespace chunkmem;
using namespace chunkmem::optimizer;

namespace {

static_assert(device_optimizer_kernel<adam> && device_optimizer_kernel<sgd> && !device_optimizer_kernel<int>);

/// A kernel of a user, for the host alone.
struct descend {
  static constexpr std::string_view name = "descend";
  [[nodiscard]] static std::span<const list_spec> lists() noexcept { return {}; }
  void update(const update_spans&, const step_settings&) const noexcept {}
  step_progress progress;
};
static_assert(optimizer_kernel<descend> && !device_optimizer_kernel<descend>);

template <class Work, class Kernel>
bool works_by(const Kernel& kernel, group_id group = group_id{0})
{
  bool found = false;
  kernel.with_arithmetic(group,
                         [&]<class Chosen>(std::type_identity<Chosen>) { found = std::is_same_v<Chosen, Work>; });
  return found;
}

}  // namespace

TEST_CASE("the options of a group choose its arithmetic", "[optimizer]")
{
  adam with_adam;
  with_adam.group(group_id{1}, {.weight_decay = 0.1F, .decoupled = false});
  CHECK(works_by<optimizer::detail::adam_work<false>>(with_adam));
  CHECK(works_by<optimizer::detail::adam_work<true>>(with_adam, group_id{1}));
  sgd with_sgd;
  with_sgd.group(group_id{1}, {.nesterov = true});
  CHECK(works_by<optimizer::detail::momentum_sgd_work<false>>(with_sgd));
  CHECK(works_by<optimizer::detail::momentum_sgd_work<true>>(with_sgd, group_id{1}));
  CHECK(works_by<optimizer::detail::plain_sgd_work>(sgd{{.momentum = 0.0F}}));
}

}  // namespace device_optimizer_kernel_test
