// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/rates_body.hpp>

#include <chunkmem/optimizer/loop_launcher.hpp>
#include <support/catch.hpp>

#include <span>
#include <vector>

namespace rates_body_test {

using namespace chunkmem::optimizer;

TEST_CASE("rates arrive, as many as a body was given", "[optimizer]")
{
  std::vector<float> rates(rates_body::most);
  for (std::size_t at = 0; at < rates.size(); ++at) rates[at] = static_cast<float>(at) + 0.5F;
  std::vector<float> to(rates.size() + 1, -1.0F);
  loop_launcher::run(rates_body{to.data(), std::span{rates}.first(3)});
  CHECK((to[0] == 0.5F && to[2] == 2.5F && to[3] == -1.0F));
  loop_launcher::run(rates_body{to.data(), rates});
  CHECK(to[rates_body::most - 1] == rates.back());
  CHECK(to[rates_body::most] == -1.0F);
  CHECK(rates_body{to.data(), {}}.count() == 0);
}

}  // namespace rates_body_test
