// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/sinks.hpp>

#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>
#include <support/forked_child.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include <unistd.h>

namespace csv_sink_test {

using namespace chunkmem;

namespace {

/// A file of this process, gone at the end.
struct scratch {
  scratch()
      : path{(std::filesystem::temp_directory_path() / ("chunkmem-" + std::to_string(::getpid()) + ".csv")).string()}
  {
  }
  ~scratch() { std::remove(path.c_str()); }
  [[nodiscard]] std::string text() const
  {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
  }
  std::string path;
};

}  // namespace

TEST_CASE("csv_sink keeps the laws of a sink, and writes a line for each event", "[trace]")
{
  const scratch file;
  trace::csv_file table{file.path};
  conformance::trace_sink_laws(trace::csv_sink{table});
  table.close();
  table.close();
  const std::string text = file.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 4'000 * happening_count + 1);
  CHECK(std::count(text.begin(), text.end(), ',') == 6 * (4'000 * happening_count + 1));
}

TEST_CASE("a table of events is what other programs expect", "[trace]")
{
  const scratch file;
  {
    trace::csv_file table{file.path};
    trace::csv_sink sink{table};
    sink.record({.what = trace_event_kind::load, .chunk = chunk_id{3}, .bytes = 4096, .begin = 10, .end = 12});
    sink.record({.what = trace_event_kind::iteration, .from = tier::device, .to = tier::device, .bytes = 7});
  }
  CHECK(file.text() ==
        "what,chunk,bytes,from,to,begin_ns,end_ns\n"
        "load,3,4096,host,device,10,12\n"
        "iteration,,7,device,device,0,0\n");
}

TEST_CASE("a table that cannot be written says so when it is opened or closed", "[trace]")
{
  CHECK_THROWS_AS(trace::csv_file{"/nowhere/at/all.csv"}, io_error);
  if (!std::filesystem::exists("/dev/full")) return;
  trace::csv_file full{"/dev/full"};
  trace::csv_sink sink{full};
  for (int turn = 0; turn < 10'000; ++turn) sink.record({.bytes = 1});
  try {
    full.close();
    FAIL("a full disk was not noticed");
  } catch (const io_error& failed) {
    CHECK(failed.fault().number == ENOSPC);
  }
}

TEST_CASE("a forked child adds no line of its parent a second time", "[trace]")
{
  const scratch file;
  static std::optional<trace::csv_file> table;
  table.emplace(file.path);
  table->add({.bytes = 1});
  CHECK(support::result_in_child([] {
          table->add({.bytes = 2});
          std::exit(7);
          return 0;
        }) == 7);
  table->close();
  const std::string text = file.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}

TEST_CASE("a table of events never goes through a link", "[trace]")
{
  const auto path = std::filesystem::temp_directory_path() / ("chunkmem_csv_link_" + std::to_string(::getpid()));
  const std::string precious = path.string() + ".precious";
  std::ofstream{precious} << "kept";
  std::filesystem::remove(path);
  std::filesystem::create_symlink(precious, path);
  CHECK_THROWS_AS(trace::csv_file{path.string()}, io_error);
  CHECK(std::filesystem::file_size(precious) == 4);
  std::filesystem::remove(path);
  std::filesystem::create_hard_link(precious, path);
  CHECK_NOTHROW(trace::csv_file{path.string()});
  CHECK(std::filesystem::file_size(precious) == 4);
  std::filesystem::remove(path);
  std::filesystem::remove(precious);
}

}  // namespace csv_sink_test
