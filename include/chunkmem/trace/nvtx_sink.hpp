// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/trace/trace_sink.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {
namespace trace {

/// The calls of NVTX that a sink needs. `nvtx_runtime` models it in programs; tests have a list of calls. All calls are
/// valid without a profiler.
template <class Api>
concept nvtx_api =
    requires(const Api& api, typename Api::domain_type domain, typename Api::range_type range, const char* text) {
      {
        api.create_domain(text)
      } noexcept -> std::same_as<typename Api::domain_type>;
      {
        api.destroy_domain(domain)
      } noexcept;
      {
        api.name_category(domain, std::uint32_t{}, text)
      } noexcept;
      {
        api.mark(domain, text, std::uint32_t{}, std::uint64_t{})
      } noexcept;
      {
        api.start(domain, text, std::uint64_t{})
      } noexcept -> std::same_as<typename Api::range_type>;
      {
        api.end(domain, range)
      } noexcept;
      {
        api.push(domain, text)
      } noexcept;
      {
        api.pop(domain)
      } noexcept;
    };

/// A domain of NVTX with the ranges that are open in it. The user owns it; an nvtx_sink adds to it.
///
///     nvtx_domain<nvtx_runtime> domain{"my trainer"};  // given to an nvtx_sink, and outlives its manager
///
/// An iteration is a range, from its first event to its end, with its number as payload. Every other event is a mark in
/// a category of its kind, with its bytes as payload. The profiler itself shows a copy as a bar, on its stream.
///
/// @threads   one caller
template <nvtx_api Api>
class nvtx_domain {
 public:
  /// @param name   of the domain; outlives this object
  explicit nvtx_domain(const char* name = "chunkmem", Api api = {}) noexcept
      : api_{std::move(api)}, domain_{api_.create_domain(name)}
  {
    for (std::size_t index = 0; index < happening_count; ++index)
      api_.name_category(domain_, category_of(static_cast<trace_event_kind>(index)),
                         name_of(static_cast<trace_event_kind>(index)).data());
  }
  nvtx_domain(const nvtx_domain&) = delete;
  nvtx_domain& operator=(const nvtx_domain&) = delete;
  ~nvtx_domain()
  {
    close();
    api_.destroy_domain(domain_);
  }

  void add(const trace_event& event) noexcept
  {
    if (event.what == trace_event_kind::iteration) {
      number_ = event.bytes + 1;
      return close();
    }
    if (!open_) {
      range_ = api_.start(domain_, "iteration", number_);
      open_ = true;
    }
    api_.mark(domain_, name_of(event.what).data(), category_of(event.what), event.bytes);
  }

  void push(const char* name) noexcept { api_.push(domain_, name); }
  void pop() noexcept { api_.pop(domain_); }

 private:
  /// 0 stands for no category.
  [[nodiscard]] static std::uint32_t category_of(trace_event_kind what) noexcept
  {
    return static_cast<std::uint32_t>(what) + 1;
  }

  void close() noexcept
  {
    if (open_) api_.end(domain_, range_);
    open_ = false;
  }

  Api api_;
  typename Api::domain_type domain_;
  typename Api::range_type range_{};
  std::uint64_t number_ = 1;  ///< of the running iteration
  bool open_ = false;
};

/// A range of the calling thread, such as a pass or a layer, for the lifetime of this object.
///
///     const nvtx_scope forward{domain, "forward"};  // until the end of the scope
template <nvtx_api Api>
class nvtx_scope {
 public:
  nvtx_scope(nvtx_domain<Api>& domain, const char* name) noexcept : domain_{&domain} { domain.push(name); }
  nvtx_scope(const nvtx_scope&) = delete;
  nvtx_scope& operator=(const nvtx_scope&) = delete;
  ~nvtx_scope() { domain_->pop(); }

 private:
  nvtx_domain<Api>* domain_;
};

/// Shows each event in a profiler of CUDA, such as Nsight Systems.
///
/// Passed by value, it points to a domain that the user keeps. Good for seeing on one timeline why a stream waits;
/// without a profiler its calls return at once. Source: NVTX 3. Cost: one call for each event; no allocation in
/// chunkmem.
///
/// Use:
///
///     trace::nvtx_domain<trace::nvtx_runtime> domain{"my trainer"};            // outlives the manager
///     using sink = trace::nvtx_sink<trace::nvtx_runtime>;
///     cm::manager<memory_type, sink> m{memory, options, sink{domain}};
///     const trace::nvtx_scope forward{domain, "forward"};                      // a range of the calling thread
///
/// @threads   one caller per domain
template <nvtx_api Api>
class nvtx_sink {
 public:
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "nvtx_sink";

  /// @param domain   outlives the sink and its copies
  explicit nvtx_sink(nvtx_domain<Api>& domain) noexcept : domain_{&domain} {}

  void record(const trace_event& event) noexcept { domain_->add(event); }

 private:
  nvtx_domain<Api>* domain_;
};

}  // namespace trace
}  // namespace chunkmem::inline v0
