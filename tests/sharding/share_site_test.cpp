// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/share_site.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace share_site_test {

using namespace chunkmem;
using optimizer::parameter_bytes;
using optimizer::detail::update_request;

namespace {

constexpr tensor_handle share{tensor_id{2}, 1};

/// Records its calls.
template <bool HasBytes>
struct told_site {
  static constexpr bool has_bytes = HasBytes;
  static constexpr bool host_reaches = HasBytes;
  static constexpr bool counts_in_kernel = true;

  void begin() { log->push_back("begin"); }
  static bool overwrites(tensor_handle) { return true; }
  void update(int&, const parameter_bytes& all, const update_request&, memory_location)
  {
    log->push_back("update " + std::to_string(all.tensor) + ": " + std::to_string(all.elements));
  }
  void remake(const parameter_bytes& all, memory_location)
  {
    log->push_back("remake " + std::to_string(all.tensor) + ": " + std::to_string(all.elements));
  }
  void end(optimizer::step_decision, const optimizer::step_options&) { log->push_back("end"); }

  std::vector<std::string>* log;
};

template <bool HasBytes>
std::vector<std::string> told_of_a_step(sharding::share_runs& runs)
{
  std::vector<std::string> log;
  sharding::share_site site{told_site<HasBytes>{&log}, runs};
  int kernel = 0;
  parameter_bytes all;
  all.elements = 64;
  all.tensor = index_of(share.id);
  site.begin();
  site.update(kernel, all, {}, memory_location::host);
  site.end(optimizer::step_decision::update, {});
  return log;
}

}  // namespace

TEST_CASE("a site of shares updates the runs of a share, and where there are no bytes the share", "[sharding]")
{
  sharding::share_runs runs;
  runs.divide(share, {{0, 16, 7, 4096, true}, {16, 16, 8, 0, false}, {32, 32, 9, 0, true}});
  CHECK(told_of_a_step<true>(runs) == std::vector<std::string>{"begin", "update 7: 16", "update 9: 32", "end"});
  CHECK(told_of_a_step<false>(runs) == std::vector<std::string>{"begin", "update 2: 64", "end"});
  runs.lends(share);
  CHECK(told_of_a_step<true>(runs) ==
        std::vector<std::string>{"begin", "update 7: 16", "remake 8: 16", "update 9: 32", "end"});
}

TEST_CASE("tensors without a gradient are those that were named, of the whole model, whatever this rank has",
          "[sharding]")
{
  sharding::share_runs runs;
  std::vector<std::string> log;
  const sharding::share_site site{told_site<true>{&log}, runs};
  runs.divide(share, {{0, 16, 7, 4096, true}, {16, 16, 8, 0, false}});
  runs.expect_tensors(12);
  runs.expect_tensors(3);
  CHECK(site.tensors(1) == 12);
  runs.missing() = {8, 11};
  std::vector<std::uint32_t> found;
  int driver = 0;
  site.for_each_missing(driver, [&](std::uint32_t tensor) { found.push_back(tensor); });
  CHECK(found == std::vector<std::uint32_t>{8, 11});
}

TEST_CASE("a share is overwritten where its runs say so, whatever its site does", "[sharding]")
{
  sharding::share_runs runs;
  std::vector<std::string> log;
  const sharding::share_site site{told_site<true>{&log}, runs};
  runs.divide(share, {{0, 16, 7, 4096, true}, {16, 16, 8, 0, false}});
  CHECK_FALSE(site.overwrites(share));
  runs.overwrites(share, true);
  CHECK(site.overwrites(share));
}

}  // namespace share_site_test
