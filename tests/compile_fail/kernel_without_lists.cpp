// expect: error: static assertion.*an optimizer kernel lacks something: static name, lists\(\)
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/step.hpp>

#include <span>
#include <string_view>
#include <utility>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

struct descent {
  static constexpr std::string_view name = "descent";
#ifdef CHUNKMEM_COMPILES
  static std::span<const cm::list_spec> lists() noexcept { return {}; }
#endif
  void update(const cm::optimizer::update_spans&, const cm::optimizer::step_settings&) const noexcept {}
  cm::optimizer::step_progress progress;
};

using take_step = decltype(cm::optimizer::step(std::declval<manager&>(), std::declval<descent&>()));
