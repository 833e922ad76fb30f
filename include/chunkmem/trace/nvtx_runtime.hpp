// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<nvtx3/nvToolsExt.h>)
#error "chunkmem: trace/nvtx_runtime.hpp needs nvtx3/nvToolsExt.h: link chunkmem::cuda, or name its include folder"
#else

#include <chunkmem/trace/nvtx_sink.hpp>

#include <nvtx3/nvToolsExt.h>
#include <cstdint>

namespace chunkmem::inline v0 {
namespace trace {

/// NVTX 3, which comes with the CUDA toolkit as headers alone. For any C++20 compiler; `NVTX_DISABLE` makes it empty.
///
///     nvtx_domain<nvtx_runtime> domain{"my trainer"};
///
/// Without state. Cost: some nanoseconds a call without a profiler. @threads   any
class nvtx_runtime {
 public:
  using domain_type = nvtxDomainHandle_t;
  using range_type = nvtxRangeId_t;

  [[nodiscard]] domain_type create_domain(const char* name) const noexcept { return nvtxDomainCreateA(name); }
  void destroy_domain(domain_type domain) const noexcept { nvtxDomainDestroy(domain); }
  void name_category(domain_type domain, std::uint32_t category, const char* name) const noexcept
  {
    nvtxDomainNameCategoryA(domain, category, name);
  }
  void mark(domain_type domain, const char* text, std::uint32_t category, std::uint64_t payload) const noexcept
  {
    const nvtxEventAttributes_t it = attributes(text, category, payload);
    nvtxDomainMarkEx(domain, &it);
  }
  [[nodiscard]] range_type start(domain_type domain, const char* text, std::uint64_t payload) const noexcept
  {
    const nvtxEventAttributes_t it = attributes(text, 0, payload);
    return nvtxDomainRangeStartEx(domain, &it);
  }
  void end(domain_type domain, range_type range) const noexcept { nvtxDomainRangeEnd(domain, range); }
  void push(domain_type domain, const char* text) const noexcept
  {
    const nvtxEventAttributes_t it = attributes(text, 0, 0);
    nvtxDomainRangePushEx(domain, &it);
  }
  void pop(domain_type domain) const noexcept { nvtxDomainRangePop(domain); }

 private:
  [[nodiscard]] static nvtxEventAttributes_t attributes(const char* text, std::uint32_t category,
                                                        std::uint64_t payload) noexcept
  {
    nvtxEventAttributes_t it{};
    it.version = NVTX_VERSION;
    it.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    it.category = category;
    it.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    it.payload.ullValue = payload;
    it.messageType = NVTX_MESSAGE_TYPE_ASCII;
    it.message.ascii = text;
    return it;
  }
};

static_assert(nvtx_api<nvtx_runtime> && trace_sink<nvtx_sink<nvtx_runtime>>);

}  // namespace trace
}  // namespace chunkmem::inline v0

#endif
