// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/chunk_mover.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace support {

/// The recorded gathers and sums of a mover.
struct told_of_ranks {
  struct one {
    std::uint32_t label = 0;
    std::uint64_t size = 0;
    chunkmem::collective::sum how;  ///< of sums
  };
  std::vector<one> gathers;
  std::vector<one> sums;
  std::uint64_t awaits = 0;
  std::uint64_t checks = 0;
  std::optional<chunkmem::comm_error> failed;  ///< their failure

  [[nodiscard]] std::vector<std::uint32_t> gathered() const
  {
    std::vector<std::uint32_t> labels;
    for (const one& it : gathers) labels.push_back(it.label);
    return labels;
  }
};

/// A gathering mover that is the only rank, and records its calls. A sum changes nothing.
struct told_gatherer : chunkmem::copy_mover {
  using policy_kind = chunkmem::mover_kind;
  static constexpr std::string_view name = "told_gatherer";

  told_of_ranks* told = nullptr;
  chunkmem::agent stream = chunkmem::agent::to_device;
  bool fills = false;  ///< a gather fills the second half with the number of gathers

  [[nodiscard]] chunkmem::agent worker() const noexcept { return stream; }
  [[nodiscard]] chunkmem::agent worker_of_sums() const noexcept { return stream; }
  [[nodiscard]] chunkmem::agent worker_of_shares() const noexcept { return chunkmem::agent::to_device; }
  template <class Backend>
  void gather(Backend& memory, std::byte* whole, chunkmem::bytes size, std::uint32_t label)
  {
    told->gathers.push_back({label, size.count(), {}});
    const chunkmem::bytes half{size.count() / 2};
    if (fills) memory.fill(whole + half.count(), static_cast<std::byte>(told->gathers.size()), half, stream);
  }
  template <class Backend>
  void sum(Backend&, std::byte*, chunkmem::bytes size, std::uint32_t label, chunkmem::collective::sum how)
  {
    told->sums.push_back({label, size.count(), how});
  }
  template <class Backend>
  void await(Backend&, chunkmem::event)
  {
    ++told->awaits;
  }
  void check()
  {
    ++told->checks;
    if (told->failed) throw chunkmem::comm_error{*told->failed};
  }
};

}  // namespace support
