#include "generator.hpp"
#include "machine.hpp"

#include <support/catch.hpp>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

/// Random programs on a manager, compared call by call with a model of vectors and states. What differs is printed as a test.

using namespace differential;

namespace {

/// A difference without its numbers.
std::string kind_of(const std::string& difference) { return difference.substr(0, difference.find_first_of("0123456789;(")); }

/// Runs programs of one world. @return   how many differed; the first is shrunk and printed
std::uint64_t run_world(world where, std::uint64_t first, std::uint64_t programs, std::size_t length, tally& sum)
{
  std::uint64_t differing = 0;
  for (std::uint64_t seed = first; seed < first + programs; ++seed) {
    const setting wanted = random_setting(seed, where);
    const program calls = random_program(seed, length);
    const std::string difference = run_program(wanted, calls, sum);
    if (difference.empty() || differing++ > 0) continue;
    const auto fails = [&](const program& fewer) {
      tally ignored;
      return kind_of(run_program(wanted, fewer, ignored)) == kind_of(difference);
    };
    const program least = shrunk(calls, fails);
    tally ignored;
    std::cout << ("seed " + std::to_string(seed) + ", " + difference + "\n" + as_test(wanted, least, run_program(wanted, least, ignored)));
    if(0) UNSCOPED_INFO("seed " << seed << ", " << difference << '\n' << as_test(wanted, least, run_program(wanted, least, ignored)));
  }
  return differing;
}

}  // namespace

TEST_CASE("random operations equal the model on the adversarial backend", "[differential]")
{
  tally sum;
  const char* const programs = std::getenv("PROGRAMS");
  const char* const first = std::getenv("FIRST");
  CHECK(run_world(world::adversarial, first ? std::strtoul(first, nullptr, 10) : 1, programs ? std::strtoul(programs, nullptr, 10) : 50, 1'000, sum) == 0);
  std::cout << sum.text() << "missing:\n" << sum.missing(1);
}
