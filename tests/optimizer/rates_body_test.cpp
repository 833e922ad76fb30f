#include <chunkmem/optimizer/rates_body.hpp>

#include <chunkmem/optimizer/loop_launcher.hpp>
#include <support/catch.hpp>

#include <vector>

using namespace chunkmem::optimizer;

TEST_CASE("rates travel in their body", "[optimizer]")
{
  for (std::size_t count = 0; count <= rates_body::most; ++count) {
    std::vector<float> memory(rates_body::most + 1, -1.0F);
    std::vector<float> rates;
    for (std::size_t at = 0; at < count; ++at) rates.push_back(0.5F * static_cast<float>(at));
    const rates_body body{memory.data(), rates};
    const std::vector<float> expected = rates;
    rates.assign(count, 77.0F);  // what the host does afterwards does not matter
    REQUIRE(body.count() == count);
    loop_launcher::run(body);
    for (std::size_t at = 0; at < memory.size(); ++at) REQUIRE(memory[at] == (at < count ? expected[at] : -1.0F));
  }
}
