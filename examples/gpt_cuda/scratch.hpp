// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunkmem.hpp>

#include <cstdint>
#include <utility>

namespace gpt::cuda {

/// The offset of an array of elements in a scratch lease.
template <class Element>
struct block {
  std::uint64_t at = 0;  ///< bytes from the beginning
};

/// Lays arrays out one after the other, each at a multiple of 256 bytes.
class block_plan {
 public:
  template <class Element>
  [[nodiscard]] block<Element> add(std::uint64_t elements)
  {
    const std::uint64_t index = end_;
    end_ = (index + elements * sizeof(Element) + 255) / 256 * 256;
    return {index};
  }
  [[nodiscard]] chunkmem::bytes size() const noexcept { return chunkmem::bytes{end_}; }

 private:
  std::uint64_t end_ = 0;
};

/// Device memory for the blocks of a plan, for the life of this object: from the same budget as the chunks.
template <class Manager>
class scratch {
 public:
  scratch(Manager& manager, const block_plan& plan)
      : lease_{manager.lease(chunkmem::tier::device, plan.size(), chunkmem::agent::compute)}
  {
  }

  /// Null in a rehearsal.
  template <class Element>
  [[nodiscard]] Element* operator[](block<Element> which) const
  {
    std::byte* const begin = lease_.data();
    return begin == nullptr ? nullptr : reinterpret_cast<Element*>(begin + which.at);
  }

 private:
  decltype(std::declval<Manager&>().lease(chunkmem::tier::device, chunkmem::bytes{}, chunkmem::agent::compute)) lease_;
};

}  // namespace gpt::cuda
