// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>

#include <cstdint>
#include <memory>
#include <span>

namespace gpt::cuda {

/// Any communicator as the control group of NCCL ranks: one type of training serves ranks that are threads and
/// processes.
class control {
 public:
  /// @param ranks   outlives this
  template <class Ranks>
  explicit control(Ranks& ranks)
      : of_{std::make_unique<known<Ranks>>(ranks)}, rank_{ranks.rank()}, ranks_{ranks.ranks()}
  {
  }

  [[nodiscard]] chunkmem::rank_id rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all) { of_->exchange(mine, all); }
  void check() { of_->check(); }
  void revoke() noexcept { of_->revoke(); }

 private:
  struct any {
    virtual ~any() = default;
    virtual void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all) = 0;
    virtual void check() = 0;
    virtual void revoke() noexcept = 0;
  };
  template <class Ranks>
  struct known final : any {
    explicit known(Ranks& of) noexcept : ranks{of} {}
    void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all) override
    {
      ranks.exchange(mine, all);
    }
    void check() override { ranks.check(); }
    void revoke() noexcept override { ranks.revoke(); }
    Ranks& ranks;
  };

  std::unique_ptr<any> of_;
  chunkmem::rank_id rank_;
  std::uint32_t ranks_;
};

}  // namespace gpt::cuda
