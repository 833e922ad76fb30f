// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/nvtx_runtime.hpp>

#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace nvtx_runtime_test {

using namespace chunkmem;

namespace {

std::vector<std::string>* heard = nullptr;

void say(const std::string& text)
{
  if (heard != nullptr) heard->push_back(text);
}
std::string told(const nvtxEventAttributes_t* it)
{
  const bool whole = it->version == NVTX_VERSION && it->size == sizeof *it &&
                     it->messageType == NVTX_MESSAGE_TYPE_ASCII && it->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  return whole ? std::string{it->message.ascii} + " " + std::to_string(it->category) + " " +
                     std::to_string(it->payload.ullValue)
               : "damaged";
}

extern "C" {
void hear_mark(nvtxDomainHandle_t, const nvtxEventAttributes_t* it)
{
  say("mark " + told(it));
}
nvtxRangeId_t hear_start(nvtxDomainHandle_t, const nvtxEventAttributes_t* it)
{
  return say("start " + told(it)), 12;
}
void hear_end(nvtxDomainHandle_t, nvtxRangeId_t range)
{
  say("end " + std::to_string(range));
}
int hear_push(nvtxDomainHandle_t, const nvtxEventAttributes_t* it)
{
  return say("push " + told(it)), 0;
}
int hear_pop(nvtxDomainHandle_t)
{
  return say("pop"), 0;
}
void hear_category(nvtxDomainHandle_t, std::uint32_t index, const char* name)
{
  say(std::to_string(index) + " is " + name);
}
nvtxDomainHandle_t hear_domain(const char* name)
{
  return say(std::string{"domain "} + name), nullptr;
}
void hear_destroy(nvtxDomainHandle_t)
{
  say("destroy");
}

int listen(NvtxGetExportTableFunc_t tables)
{
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  const auto set = [&](unsigned index, auto* function) {
    *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainMarkEx, &hear_mark);
  set(NVTX_CBID_CORE2_DomainRangeStartEx, &hear_start);
  set(NVTX_CBID_CORE2_DomainRangeEnd, &hear_end);
  set(NVTX_CBID_CORE2_DomainRangePushEx, &hear_push);
  set(NVTX_CBID_CORE2_DomainRangePop, &hear_pop);
  set(NVTX_CBID_CORE2_DomainNameCategoryA, &hear_category);
  set(NVTX_CBID_CORE2_DomainCreateA, &hear_domain);
  set(NVTX_CBID_CORE2_DomainDestroy, &hear_destroy);
  return 1;
}
}

// The profiler of this test is a part of it, by the way that NVTX has for this. Before the first call of NVTX, thus
// before main.
[[maybe_unused]] const bool is_listening = (InitializeInjectionNvtx2_fnptr = &listen) != nullptr;

}  // namespace

TEST_CASE("a profiler hears what the sink tells", "[trace]")
{
  std::vector<std::string> calls;
  heard = &calls;
  {
    trace::nvtx_domain<trace::nvtx_runtime> domain;
    CHECK(calls.size() == 1 + happening_count);
    CHECK((calls[0] == "domain chunkmem" && calls[2] == "2 is write_back"));
    calls.clear();
    trace::nvtx_sink sink{domain};
    {
      const trace::nvtx_scope pass{domain, "forward"};
      sink.record({.what = trace_event_kind::load, .bytes = 64});
    }
    sink.record({.what = trace_event_kind::iteration, .bytes = 1});
  }
  heard = nullptr;
  CHECK(calls == std::vector<std::string>{"push forward 0 0", "start iteration 0 1", "mark load 1 64", "pop", "end 12",
                                          "destroy"});
}

TEST_CASE("nvtx_sink over NVTX keeps the laws of a trace sink", "[trace]")
{
  trace::nvtx_domain<trace::nvtx_runtime> domain;
  conformance::trace_sink_laws(trace::nvtx_sink{domain});
}

}  // namespace nvtx_runtime_test
