// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/version.hpp>

#include <support/catch.hpp>

namespace version_test {

#ifndef CHUNKMEM_VERSION
#error "the version is a macro, so that a program can ask for it before it compiles anything"
#endif

TEST_CASE("the version has three parts of which two are below a hundred", "[core]")
{
  const int major = CHUNKMEM_VERSION / 10'000;
  const int minor = CHUNKMEM_VERSION / 100 % 100;
  CHECK(CHUNKMEM_VERSION > 0);
  CHECK((major >= 0 && minor >= 0 && minor < 100));
}

}  // namespace version_test
