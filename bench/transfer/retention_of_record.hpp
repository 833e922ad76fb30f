// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../eviction/gpt_trace.hpp"

#include <chunkmem/transfer/record_uses.hpp>

#include <cstdint>
#include <vector>

namespace transfer_bench {

namespace cm = chunkmem;

/// A recorded step as the input of retention planning: every access is an access, leases lower the capacity.
class retention_of_record {
 public:
  explicit retention_of_record(const eviction_bench::trace& what) : leased_frames_(what.record.size())
  {
    for (const std::uint32_t frames : what.frames_of_chunk) sizes_.push_back(frames * eviction_bench::frame_bytes);
    std::vector<std::uint64_t> leased(what.record.size(), 0);
    for (std::uint32_t now = 0; now < what.record.size(); ++now) {
      const cm::access_entry& entry = what.record.entries()[now];
      const cm::entry_detail& detail = what.record.details()[now];
      if (entry.kind == cm::entry_kind::lease_device)
        for (std::uint32_t index = now; index < detail.until; ++index) leased[index] += detail.bytes;
      if (cm::is_access(entry.kind)) uses_.push_back({entry.slot, now, detail.until, kind_of(entry.kind)});
    }
    for (std::size_t now = 0; now < leased.size(); ++now)
      leased_frames_[now] =
          static_cast<std::uint32_t>((leased[now] + eviction_bench::frame_bytes - 1) / eviction_bench::frame_bytes);
  }

  /// @param device_frames   not below least_frames()
  [[nodiscard]] cm::transfer::retention_input on(std::uint32_t device_frames)
  {
    room_.clear();
    for (const std::uint32_t leased : leased_frames_)
      room_.push_back((device_frames - leased) * eviction_bench::frame_bytes);
    return {sizes_, uses_, room_, {}, true};
  }

  /// The frames of the uses and leases of the fullest access.
  [[nodiscard]] std::uint32_t least_frames() const
  {
    std::uint32_t least = 0;
    for (std::uint32_t now = 0; now < leased_frames_.size(); ++now) {
      std::uint64_t frames = leased_frames_[now];
      for (const auto& it : uses_)
        if (cm::transfer::is_on_device(it.kind) && it.begin <= now && now < it.end)
          frames += sizes_[it.chunk] / eviction_bench::frame_bytes;
      least = std::max(least, static_cast<std::uint32_t>(frames));
    }
    return least;
  }

 private:
  static cm::transfer::use_kind kind_of(cm::entry_kind kind)
  {
    using cm::transfer::use_kind;
    const bool on_host = cm::place_of(kind) == cm::memory_location::host;
    switch (cm::access_of(kind)) {
      case cm::access::read: return on_host ? use_kind::host_read : use_kind::read;
      case cm::access::read_write: return on_host ? use_kind::host_update : use_kind::update;
      default: return on_host ? use_kind::host_overwrite : use_kind::overwrite;
    }
  }

  std::vector<std::uint64_t> sizes_;
  std::vector<cm::transfer::retention_use> uses_;
  std::vector<std::uint32_t> leased_frames_;
  std::vector<std::uint64_t> room_;
};

}  // namespace transfer_bench
