// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

#include <string>
#include <type_traits>

namespace error_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Throws `thrown` and returns what the handler for `Caught` read, or "another handler".
template <class Caught, class Thrown>
std::string text_when_caught_as(const Thrown& thrown)
{
  try {
    throw Thrown{thrown};
  } catch (const Caught& caught) {
    return caught.what();
  } catch (...) {
    return "another handler";
  }
}

template <class Standard, class Thrown>
void is_both(const Thrown& thrown, error_code code)
{
  const std::string expected = thrown.what();
  CAPTURE(expected);
  CHECK(expected.rfind("chunkmem: ", 0) == 0);
  CHECK(text_when_caught_as<Standard>(thrown) == expected);
  CHECK(text_when_caught_as<std::exception>(thrown) == expected);
  CHECK(text_when_caught_as<error>(thrown) == expected);
  CHECK(text_when_caught_as<Thrown>(thrown) == expected);
  CHECK(thrown.code() == code);
  CHECK(static_cast<const error&>(thrown).code() == code);
  static_assert(std::is_nothrow_copy_constructible_v<Thrown>,
                "an exception that may throw when copied ends the program");
}

static_assert(!std::is_base_of_v<std::exception, error>, "two bases of std::exception would make a catch miss");
static_assert(std::is_abstract_v<error>);

}  // namespace

TEST_CASE("each error is its one standard exception and a chunkmem error", "[core]")
{
  is_both<std::logic_error>(usage_error{"a pin was used twice"}, error_code::usage);
  is_both<std::invalid_argument>(config_error{"the capacity is 1 B"}, error_code::config);
  is_both<std::runtime_error>(device_error{"a copy failed"}, error_code::device);
  is_both<std::runtime_error>(io_error{"a file is short"}, error_code::io);
  is_both<std::logic_error>(internal_error{"a frame was lost"}, error_code::internal);
  is_both<std::runtime_error>(format_error{"line 3 of a profile"}, error_code::format);
  is_both<std::overflow_error>(size_overflow{"sum of bytes", 1, 2}, error_code::size_overflow);
  is_both<std::bad_alloc>(out_of_memory{{tier::host, 1, 2, 3, 4}}, error_code::out_of_memory);
}

TEST_CASE("each error has a number of its own that stays", "[core]")
{
  CHECK(static_cast<int>(error_code::out_of_memory) == 1);
  CHECK(static_cast<int>(error_code::usage) == 2);
  CHECK(static_cast<int>(error_code::size_overflow) == 3);
  CHECK(static_cast<int>(error_code::config) == 4);
  CHECK(static_cast<int>(error_code::device) == 5);
  CHECK(static_cast<int>(error_code::io) == 6);
  CHECK(static_cast<int>(error_code::internal) == 7);
  CHECK(static_cast<int>(error_code::format) == 8);
}

TEST_CASE("out_of_memory carries its numbers and says what to change", "[core]")
{
  try {
    throw out_of_memory{{tier::device, 4'096, 65'536, 61'440, 65'792}};
  } catch (const out_of_memory& refused) {
    CHECK(refused.shortage().where == tier::device);
    CHECK(refused.shortage().requested == 4'096);
    CHECK(refused.shortage().capacity == 65'536);
    CHECK(refused.shortage().pinned == 61'440);
    CHECK(refused.shortage().needed == 65'792);
    const std::string text = refused.what();
    CHECK_THAT(text, ContainsSubstring("device tier") && ContainsSubstring("4096 B") && ContainsSubstring("65536 B"));
    CHECK_THAT(text,
               ContainsSubstring("61440 B") && ContainsSubstring("65792 B") && ContainsSubstring("raise the capacity"));
  }
}

TEST_CASE("a copy of an error keeps its text when the original is gone", "[core]")
{
  std::exception_ptr kept;
  try {
    throw usage_error{error_text{} << "chunkmem: tensor " << 7 << " has no bytes"};
  } catch (const usage_error&) {
    kept = std::current_exception();
  }
  try {
    std::rethrow_exception(kept);
  } catch (const error& again) {
    CHECK(std::string{again.what()} == "chunkmem: tensor 7 has no bytes");
  }
}

TEST_CASE("the longest numbers fit an error's sentence", "[core]")
{
  const out_of_memory refused{{tier::device, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
  const std::string text = refused.what();
  CHECK(text.back() == ')');
}

TEST_CASE("an error has details where somebody adds them, and its copies share them", "[core]")
{
  usage_error first{"a pin was used twice"};
  CHECK(first.details().empty());
  first.add_details("");
  CHECK(first.details().empty());
  const std::string long_text(10'000, 'x');
  first.add_details(long_text.c_str());
  CHECK(first.details() == long_text);
  first.add_details("a handler further from the cause");
  CHECK(first.details() == long_text);
  const usage_error copy{first};
  CHECK(static_cast<const void*>(copy.details().data()) == static_cast<const void*>(first.details().data()));
  first = usage_error{"another one"};
  CHECK(first.details().empty());
  CHECK(copy.details() == long_text);
  try {
    try {
      throw out_of_memory{{tier::host, 1, 2, 3, 4}};
    } catch (error& passing) {
      passing.add_details("where everything lies");
      throw;
    }
  } catch (const out_of_memory& caught) {
    CHECK(caught.details() == "where everything lies");
    CHECK(caught.shortage().requested == 1);
  }
}

}  // namespace error_test
