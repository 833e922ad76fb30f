#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/transfer/early_loads.hpp>
#include <chunkmem/transfer/lease_tide.hpp>
#include <chunkmem/transfer/lookahead.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/retention_plan.hpp>
#include <chunkmem/transfer/stay_links.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Solves the recorded iteration once: which chunk stays on the device between which uses, so that the fewest bytes move.
///
/// Where its plan moves more than the eviction policy would, as windows of several frames and the tide may have it, the
/// policy decides; so it never moves more. So it does where the host has no room for every chunk.
/// Copies start as early as with `lookahead`, whose `window` it has.
/// Good where an iteration repeats; poor where each is another one, since every record is solved anew.
/// Cost: one solution for each record, see retention_plan; nothing while a plan is followed.
class planned {
 public:
  using policy_kind = transfer_kind;
  static constexpr std::string_view name = "planned";
  static constexpr bool plans = true;

  /// How many moments ahead of its use a copy may start.
  std::uint32_t window = 1U << 30;

  void schedule(const schedule_input& input, std::vector<move>& actions)
  {
    ahead_.window = window;
    ahead_.schedule(input, actions);
  }

  [[nodiscard]] retention retain(const retention_request& request)
  {
    const access_record& record = request.record;
    if (record.empty() || !tide_.read(record, request.device, request.frame)) return {};
    uses_.read(record, request.chunk_of_slot, static_cast<std::uint32_t>(request.chunks.size()), request.live);
    sizes_.clear();
    for (const chunk& it : request.chunks) sizes_.push_back(it.frames * request.frame.count());
    if (std::accumulate(sizes_.begin(), sizes_.end(), std::uint64_t{0}) > request.host.count()) return {};
    room_.clear();
    for (std::uint32_t now = 0; now < record.size(); ++now) room_.push_back(tide_.dry_frames(now) * request.frame.count());
    try {
      plan_ = plan_retention(retention_problem{{sizes_, uses_.uses(), room_, {}, true}});
    } catch (const out_of_memory&) {  // a chunk has to lie between leases
      return {};
    }
    retention answer = links_.link(uses_, plan_.stays, tide_, record.size());
    answer.early = early_.choose(uses_, plan_.stays, tide_, {sizes_, room_, answer.borders});
    links_.expect(answer.early);
    return answer;
  }

  /// What the last record was solved to, with its certificate.
  [[nodiscard]] const retention_plan& solution() const noexcept { return plan_; }

 private:
  lookahead ahead_;
  lease_tide tide_;
  record_uses uses_;
  stay_links links_;
  early_loads early_;
  retention_plan plan_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint64_t> room_;
};

static_assert(retaining_transfer<planned>);

}  // namespace transfer

}  // namespace chunkmem::inline v0
