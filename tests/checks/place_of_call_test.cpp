// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include <support/catch.hpp>
#include "mistakes.hpp"

#include <string>

namespace place_of_call_test {

using namespace mistakes;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Details of the error that `work` throws.
template <class Work>
std::string details_of(Work work)
{
  try {
    work();
  } catch (const cm::error& error) {
    return std::string{error.details()};
  }
  return "no error";
}

[[nodiscard]] std::string at_line(int line)
{
  return "called at place_of_call_test.cpp:" + std::to_string(line);
}

}  // namespace

TEST_CASE("an error says where in the trainer its call stands", "[checks]")
{
  rig<> it;
  const auto fresh = it.weights.slice(0);
  it.m.drop(fresh);
  CHECK(details_of([&] { (void)it.m.acquire(fresh, cm::access::read); }) == at_line(__LINE__));
  const auto host = cm::memory_location::host;
  CHECK(details_of([&] { (void)it.m.acquire(fresh, cm::access::read, host); }) == at_line(__LINE__));
  CHECK(details_of([&] { (void)it.m.acquire(fresh, cm::access::read, cm::agent::compute); }) == at_line(__LINE__));
  CHECK(details_of([&] { it.m.drop(cm::tensor<float>{}); }) == at_line(__LINE__));
  CHECK(details_of([&] { (void)it.m.lease(cm::tier::device, 1_MiB); }) == at_line(__LINE__));
  CHECK(details_of([&] { it.m.gradient_done(fresh); }) == at_line(__LINE__));
  CHECK(details_of([&] { (void)it.m.iteration(0); }) == at_line(__LINE__));
  CHECK(details_of([&] { (void)it.m.gradient(cm::tensor<float>{}); }) == at_line(__LINE__));
  CHECK(details_of([&] { cm::optimizer::step(it.m, it.sgd, {}, cm::on_this_thread); }) == at_line(__LINE__));
}

TEST_CASE("an error about a mistake of before says where the call stands that hears of it", "[checks]")
{
  rig<> it;
  {
    const auto pin = it.m.acquire(it.weights.slice(0), cm::access::read);
    write_unseen(pin.data(), 4.0F);
  }
  CHECK(details_of([&] { (void)it.m.acquire(it.weights.slice(1), cm::access::read); }) == at_line(__LINE__));
}

TEST_CASE("below the details that were asked for", "[checks]")
{
  cm::backend::host_arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena, cm::checks::full> m{memory, {.chunk_bytes = 4_KiB, .error_details = true}};
  const auto w = m.add<float>({100}, cm::role::parameter);
  const std::string details = details_of([&] { (void)m.acquire(w, cm::access::read); });
  CHECK_THAT(details, ContainsSubstring("tensors:") || ContainsSubstring("frames:"));
  CHECK_THAT(details, ContainsSubstring("\ncalled at place_of_call_test.cpp:"));
}

TEST_CASE("without checks there is no place, and nothing is passed for it", "[checks]")
{
  using manager = cm::manager<cm::backend::host_arena>;
  STATIC_REQUIRE(std::is_empty_v<manager::place_type>);
  cm::backend::host_arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto w = m.add<float>({100}, cm::role::parameter);
  CHECK(details_of([&] { (void)m.acquire(w, cm::access::read); }) == "");
}

using chunkmem::checks::call_place;

namespace {

unsigned line_of_call(call_place from = call_place{})
{
  return from.line;
}

}  // namespace

TEST_CASE("a defaulted parameter is the place of the call, without folders", "[checks]")
{
  CHECK(line_of_call() == __LINE__);
  chunkmem::error_text text;
  text << call_place{"a/b/trainer.cpp", 12} << " and " << call_place{"plain.cpp", 3};
  CHECK(std::string{text.view()} == "trainer.cpp:12 and plain.cpp:3");
}

}  // namespace place_of_call_test
