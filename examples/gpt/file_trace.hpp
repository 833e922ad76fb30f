// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/trace/chrome_sink.hpp>

namespace gpt {

/// A trace sink that is there or not, decided by the command line: one manager type instead of two.
class file_trace {
 public:
  using policy_kind = chunkmem::sink_kind;
  static constexpr std::string_view name = "file_trace";

  file_trace() = default;
  /// @param trace   outlives this; null records nothing
  explicit file_trace(chunkmem::trace::chrome_trace* trace) noexcept : trace_{trace} {}

  void record(const chunkmem::trace_event& event) noexcept
  {
    if (trace_ != nullptr) trace_->add(event);
  }

 private:
  chunkmem::trace::chrome_trace* trace_ = nullptr;
};

static_assert(chunkmem::trace_sink<file_trace>);

}  // namespace gpt
