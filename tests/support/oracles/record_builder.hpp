// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/profile/access_record.hpp>

#include <cstdint>
#include <vector>

namespace support {

/// Writes a record by hand, entry by entry.
class record_builder {
 public:
  std::uint32_t access(std::uint32_t slot, chunkmem::entry_kind kind = chunkmem::entry_kind::read)
  {
    record_.make_room();
    return record_.append({slot, 0, 0, kind, false, 0}, {});
  }
  /// An access that ends before the next entry.
  std::uint32_t brief(std::uint32_t slot, chunkmem::entry_kind kind = chunkmem::entry_kind::read)
  {
    const std::uint32_t access_index = access(slot, kind);
    release(access_index);
    return access_index;
  }
  std::uint32_t lease(chunkmem::entry_kind kind, std::uint64_t size)
  {
    record_.make_room();
    return record_.append({chunkmem::access_record::never, 0, 0, kind, false, 0},
                          {size, chunkmem::entry_detail::never, {}});
  }
  void release(std::uint32_t access_index) { record_.release(access_index); }
  void drop(std::uint32_t slot) { access(slot, chunkmem::entry_kind::drop); }

  [[nodiscard]] std::uint32_t size() const { return record_.size(); }
  chunkmem::access_record finish(const std::vector<std::uint32_t>& chunk_of_slot, std::uint32_t chunks)
  {
    record_.finish(chunk_of_slot, chunks);
    return record_;
  }

 private:
  chunkmem::access_record record_;
};

}  // namespace support
