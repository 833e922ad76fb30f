// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/fake_cuda_codes.hpp>
#include <support/fake_cuda_types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace support {

/// The state of each calling thread.
struct fake_caller {
  std::thread::id thread;
  std::vector<int> contexts{};  ///< the stack of its contexts, by device; empty until a call needed one
  int last_error = 0;

  [[nodiscard]] int device() const noexcept { return contexts.empty() ? 0 : contexts.back(); }
};

/// Counts the calls, and chooses those that fail.
///
/// @threads   one at a time: the fake's lock is held
class fake_calls {
 public:
  explicit fake_calls(const fake_cuda_options& options)
      : faults_stay_{options.faults_stay}, lost_(static_cast<std::size_t>(std::max(options.devices, 1)))
  {
    history_.reserve(std::size_t{1} << 16);  // once, so that counting allocates nothing later
  }

  std::uint64_t operations = 0;    ///< operations that ran on streams
  std::uint64_t after_sticky = 0;  ///< calls of threads that know of the device's loss, without pops
  std::uint64_t pageable = 0;      ///< copies from or to host memory that is not pinned

  void fail_call(std::uint64_t call, int code, bool persistent) { calls_.add(call, code, persistent); }
  void fail_operation(std::uint64_t operation, int code) { operations_.add(operation, code, false); }
  void fail_call_of(fake_call which, std::uint64_t call, int code, bool persistent)
  {
    of_[index(which)].add(call, code, persistent);
  }
  void fail_after(fake_call which, std::uint64_t call, int code) { after_[index(which)].add(call, code, false); }
  /// The code that a successful call returns.
  [[nodiscard]] int code_after(fake_call which) const { return after_[index(which)].code_for(count(which)); }
  void unload() noexcept { is_unloaded_ = true; }

  [[nodiscard]] std::uint64_t count() const noexcept { return history_.size(); }
  [[nodiscard]] std::uint64_t count(fake_call which) const noexcept { return counts_[index(which)]; }
  [[nodiscard]] fake_call call(std::uint64_t number) const { return history_.at(number - 1); }
  /// The code that a device was lost with; that of any device; and the number of lost devices.
  [[nodiscard]] int sticky(int device) const noexcept { return lost_[static_cast<std::size_t>(device)].code; }
  [[nodiscard]] int sticky() const noexcept
  {
    const auto found = std::ranges::find_if(lost_, [](const loss& it) { return it.code != 0; });
    return found == lost_.end() ? 0 : found->code;
  }
  [[nodiscard]] std::ptrdiff_t losses() const noexcept
  {
    return std::ranges::count_if(lost_, [](const loss& it) { return it.code != 0; });
  }

  /// Counts a call of a thread with this device. @return   0, or the code of its failure
  int admit(fake_call which, int devices, int device)
  {
    ++counts_[index(which)];
    if (which != fake_call::launch_kernel) history_.push_back(which);
    if (is_unloaded_) return fake_code::unloading;
    if (lost_[static_cast<std::size_t>(device)].is_told && which != fake_call::pop_context) ++after_sticky;
    if (sticky(device) != 0) return sticky(device);
    if (devices == 0 && which != fake_call::last_error) return fake_code::no_device;
    int code = which == fake_call::launch_kernel ? 0 : calls_.code_for(count());
    if (code == 0) code = of_[index(which)].code_for(count(which));
    if (code != 0 && is_sticky_fake_code(code)) lose(code, device);
    return code;
  }

  /// Counts an operation. @return   false where it faults; then the device is lost
  bool admit_operation(int device)
  {
    ++operations;
    const int code = operations_.code_for(operations);
    if (code == 0) return true;
    lose(code, device);
    return false;
  }

  /// A call returns its code: true where it reports the loss of the device. A launch reports nothing; last_error does.
  bool tell(fake_call which, int code) noexcept
  {
    if (code == 0 || which == fake_call::launch_kernel) return false;
    bool is_lost = false;
    for (loss& it : lost_) {
      if (it.code != code) continue;
      is_lost = it.is_told = true;
    }
    return is_lost;
  }

  void lose(int code, int device) noexcept
  {
    for (std::size_t i = 0; i < lost_.size(); ++i)
      if (lost_[i].code == 0 && (!faults_stay_ || i == static_cast<std::size_t>(device))) lost_[i].code = code;
  }

  [[nodiscard]] fake_caller& caller()
  {
    const auto self = std::this_thread::get_id();
    const auto found = std::ranges::find(callers_, self, &fake_caller::thread);
    return found != callers_.end() ? *found : callers_.emplace_back(fake_caller{.thread = self});
  }

  [[nodiscard]] static fake_call which(std::string_view name)
  {
    const auto found = std::ranges::find(fake_call_names, name);
    if (found == fake_call_names.end()) throw std::invalid_argument{"the fake has no such function"};
    return static_cast<fake_call>(found - fake_call_names.begin());
  }

 private:
  struct loss {
    int code = 0;
    bool is_told = false;
  };
  class plan {
   public:
    void add(std::uint64_t number, int code, bool persistent)
    {
      if (persistent)
        from_ = {number, code};
      else
        at_[number] = code;
    }
    [[nodiscard]] int code_for(std::uint64_t number) const
    {
      if (from_.second != 0 && number >= from_.first) return from_.second;
      if (at_.empty()) return 0;
      const auto found = at_.find(number);
      return found == at_.end() ? 0 : found->second;
    }

   private:
    std::map<std::uint64_t, int> at_;
    std::pair<std::uint64_t, int> from_{};
  };

  static std::size_t index(fake_call which) noexcept { return static_cast<std::size_t>(which); }

  std::vector<fake_call> history_;
  std::array<std::uint64_t, fake_call_names.size()> counts_{};
  std::deque<fake_caller> callers_;  // references stay valid
  plan calls_;
  plan operations_;
  std::array<plan, fake_call_names.size()> of_;
  std::array<plan, fake_call_names.size()> after_;
  bool faults_stay_;
  std::vector<loss> lost_;  ///< by device
  bool is_unloaded_ = false;
};

}  // namespace support
