// SPDX-License-Identifier: Apache-2.0
#if !__has_include(<catch2/catch_test_macros.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include <support/catch.hpp>

// A main program whose status is the result: 0 all passed, 1 something failed, 2 no case matches, 4 every case was
// skipped, which ctest shows as skipped. Catch2's own program may return the number of failures, and four of them would
// count as skipped. One skipped case among others never hides a failure.
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/interfaces/catch_interfaces_reporter.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

namespace {

bool any_failed = false;

struct failure_watch : Catch::EventListenerBase {
  using EventListenerBase::EventListenerBase;
  void testRunEnded(const Catch::TestRunStats& run) override { any_failed = run.totals.assertions.failed > 0; }
};
CATCH_REGISTER_LISTENER(failure_watch)

}  // namespace

int main(int argc, char** argv)
{
  const int status = Catch::Session{}.run(argc, argv);
  return any_failed ? 1 : status;
}
#else

namespace {

int cases_run = 0;

struct case_counter : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo&) override { ++cases_run; }
};
CATCH_REGISTER_LISTENER(case_counter)

}  // namespace

int main(int argc, char** argv)
{
  Catch::Session session;
  if (const int mistake = session.applyCommandLine(argc, argv); mistake != 0) return mistake;
  const auto& config = session.configData();
  const bool lists = config.showHelp || config.listTests || config.listTags || config.listReporters;
  const int failed = session.run();
  if (lists) return failed;
  if (failed != 0) return 1;
  if (cases_run == 0) {
    std::cout << "no test case matches\n";
    return 2;
  }
  return support::skipped_cases() == cases_run ? 4 : 0;
}
#endif
