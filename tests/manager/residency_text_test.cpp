// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/residency_text.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace residency_text_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;

TEST_CASE("the text of a snapshot says of both tiers what is held, and of chunks where they lie and why", "[manager]")
{
  arena memory{{.device_capacity = 6_KiB, .host_capacity = 16_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(6, {128}, cm::role::frozen);
  const auto wide = m.add<float>({512}, cm::role::buffer);
  m.name(weights.slice(4), "h.2.bias");
  m.name(wide, "mask");
  for (std::uint32_t at = 0; at < 6; ++at) m.acquire(weights.slice(at), cm::access::write).release();
  m.acquire(wide, cm::access::write).release();
  CHECK_THAT(to_string(m.residency()),
             ContainsSubstring("residency outside of iterations, after 0 whole ones; frames of 1024 B\n"));
  const auto scope = m.iteration();
  const auto first = m.acquire(weights.slice(4), cm::access::read);
  const auto second = m.acquire(weights.slice(0), cm::access::read, cm::at::host);
  const auto third = m.acquire(wide, cm::access::read);
  const auto lease = m.lease(cm::tier::device, 512_B);
  const std::string text = to_string(m.residency());
  CAPTURE(text);
  CHECK_THAT(text, ContainsSubstring("residency at moment 4 of an iteration, after 0 whole ones; frames of 1024 "
                                     "B\ndevice: capacity 6144 B, in use "));
  CHECK_THAT(text, ContainsSubstring("  leases: 512 B at 5632\nhost: capacity 16384 B, in use "));
  CHECK_THAT(text, ContainsSubstring("chunks: 4, of them 3 pinned, "));
  CHECK_THAT(text,
             ContainsSubstring(", pins on the host 1 (writing 0); 1024 B: tensor.0 compute (pins 1), tensor.1 hold\n"));
  CHECK_THAT(text, ContainsSubstring(", pins on the device 1; 1024 B: h.2.bias compute (pins 1), tensor.5 hold\n"));
  CHECK_THAT(text, ContainsSubstring("(buffer): device frames "));
  CHECK_THAT(text, ContainsSubstring("; 2048 B: mask compute (pins 1)\n"));
  CHECK(text.find("tensor.3") > text.find("mask"));  // what is not pinned comes after what is
}

TEST_CASE("the text of many chunks is short, and counts what it leaves out", "[manager]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 2_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(4'000, {64}, cm::role::frozen);  // four in a chunk
  for (std::uint32_t at = 0; at < 4'000; at += 4) m.acquire(weights.slice(at), cm::access::write).release();
  const auto pin = m.acquire(weights.slice(3'996), cm::access::read);
  std::vector<cm::lease<decltype(m)::engine_type>> leases;
  for (int at = 0; at < 9; ++at) leases.push_back(m.lease(cm::tier::host, 256_B));
  const auto snapshot = m.residency();
  REQUIRE(snapshot.chunks.size() == 1'000);
  CHECK(to_string(snapshot).size() < 6'000);
  const std::string text = to_string(snapshot, 3);
  CHECK(std::count(text.begin(), text.end(), '\n') < 14);
  CHECK_THAT(text, ContainsSubstring("  chunk 999 (frozen): "));  // pinned: before all others
  CHECK(text.find("  chunk 999") < text.find("  chunk 0 "));
  CHECK_THAT(text, ContainsSubstring("tensor.3996 compute (pins 1), tensor.3997 free, tensor.3998 free, and 1 more\n"));
  CHECK_THAT(text, ContainsSubstring("  and 997 more\n"));
  CHECK_THAT(text, ContainsSubstring(", and 6 more\n"));
  CHECK_THAT(to_string(snapshot, 0), ContainsSubstring("  and 1000 more\n"));
}

TEST_CASE("a name cannot begin a line of its own, nor speak to the terminal", "[manager]")
{
  arena memory{{.device_capacity = 6_KiB, .host_capacity = 16_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto plain = m.add<float>({16}, cm::role::frozen);
  const auto forged = m.add<float>({16}, cm::role::frozen);
  m.acquire(plain, cm::access::write).release();
  m.acquire(forged, cm::access::write).release();
  const std::string before = to_string(m.residency());
  m.name(forged, "a\n  chunk 7 (frozen): not on device\r\x1b[31m\x7f\\n\t\u00e9");
  const std::string text = to_string(m.residency());
  CAPTURE(text);
  CHECK(std::count(text.begin(), text.end(), '\n') == std::count(before.begin(), before.end(), '\n'));
  CHECK_THAT(text, ContainsSubstring(R"(a\n  chunk 7 (frozen): not on device\x0d\x1b[31m\x7f\\n\x09)"
                                     "\u00e9 hold"));
  cm::residency_snapshot lists = m.residency();
  lists.lists = {"values", "mine\nforged"};
  for (auto& chunk : lists.chunks) chunk.list = 1;
  CHECK_THAT(to_string(lists), ContainsSubstring(R"((mine\nforged): )") && !ContainsSubstring("\nforged"));
}

TEST_CASE("a derived chunk is told as one whose share is elsewhere, behind what has bytes of its own", "[manager]")
{
  arena memory{{.device_capacity = 6_KiB, .host_capacity = 16_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(3, {256}, cm::role::frozen);
  for (std::uint32_t at = 0; at < 3; ++at) m.acquire(weights.slice(at), cm::access::write).release();
  cm::residency_snapshot it = m.residency();
  it.chunks[0].place = {.host = cm::chunk::elsewhere};
  it.chunks[1].place = {.device = 2, .host = cm::chunk::elsewhere};
  it.chunks[2].place = {.host = 3};
  const std::string text = to_string(it);
  CAPTURE(text);
  CHECK_THAT(text, ContainsSubstring("chunk 0 (frozen): not on device, host share elsewhere; 1024 B"));
  CHECK_THAT(text, ContainsSubstring("chunk 1 (frozen): device frame 2, host share elsewhere; 1024 B"));
  CHECK_THAT(text, ContainsSubstring("chunk 2 (frozen): not on device, host frame 3 without valid bytes; 1024 B"));
  CHECK(text.find("chunk 1 (") < text.find("chunk 0 ("));
  CHECK(text.find("chunk 2 (") < text.find("chunk 0 ("));  // that one lies nowhere
}

TEST_CASE("a snapshot of nothing is told too", "[manager]")
{
  const std::string text = to_string(cm::residency_snapshot{});
  CHECK_THAT(text, ContainsSubstring("chunks: 0, of them 0 pinned"));
  CHECK_THAT(text, ContainsSubstring("device: capacity 0 B"));
  CHECK_THAT(text, !ContainsSubstring("frames: "));
}

}  // namespace residency_text_test
