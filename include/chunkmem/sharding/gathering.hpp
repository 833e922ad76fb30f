#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/manager/gathering_mover.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace sharding {

/// A mover for ranks: chunks of one rank are copied, chunks of all ranks are gathered and summed by equal shares.
///
/// Cost: a gather of n bytes over W ranks moves n (W-1)/W to each and from each, a sum the same. Source: ZeRO-3 (Rajbhandari et al.
/// 2021, arXiv 2104.07857), on the chunks of PatrickStar (Fang et al. 2021, arXiv 2108.05818).
template <class Communicator>
class gathering {
 public:
  using policy_kind = mover_kind;
  static constexpr std::string_view name = "gathering";

  gathering() = default;  ///< to be given a group before it moves anything
  /// @param ranks    outlives this   @param worker   does nothing but the work of these ranks: adopt() one
  gathering(Communicator& ranks, agent worker) noexcept : ranks_{&ranks}, worker_{worker} {}

  template <class Backend>
  void bring(Backend& backend, std::byte* to, const std::byte* from, bytes size, agent who)
  {
    copy_mover{}.bring(backend, to, from, size, who);
  }
  template <class Backend>
  void take(Backend& backend, std::byte* to, const std::byte* from, bytes size, agent who)
  {
    copy_mover{}.take(backend, to, from, size, who);
  }

  [[nodiscard]] agent worker() const noexcept { return worker_; }
  template <class Backend>
  void gather(Backend& backend, std::byte* whole, bytes size, std::uint32_t label)
  {
    ranks_->all_gather(backend, worker_, whole, collective::shares::of(size, ranks_->ranks()), label);
  }
  template <class Backend>
  void sum(Backend& backend, std::byte* whole, bytes size, std::uint32_t label, collective::sum how)
  {
    ranks_->reduce_scatter(backend, worker_, whole, collective::shares::of(size, ranks_->ranks()), how, label);
  }

 private:
  Communicator* ranks_ = nullptr;
  agent worker_ = agent::to_device;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
