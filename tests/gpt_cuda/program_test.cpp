#include <gpt_cuda/training_on_device.hpp>

#include <gpt_cuda/fake_training.hpp>
#include <program.hpp>
#include <support/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace program_test {

namespace {

using namespace chunkmem::literals;
using gpt::update_choice;
using Catch::Matchers::ContainsSubstring;

struct fake_machine {
  [[nodiscard]] static gpt::memory_limits limits() { return {.host = 1_GiB, .device = 4_MiB}; }
};
using training =
    gpt::cuda::training_on_device<support::prompt_device, support::gpt_manager, support::fake_math, fake_machine>;

gpt::options some_options()
{
  gpt::options chosen;
  chosen.size = support::small_gpt;
  chosen.steps = 3;
  chosen.sample = 3;
  chosen.chunk_bytes = 8_KiB;
  chosen.precision = chunkmem::dtype::bfloat16;
  chosen.threads = 2;
  chosen.verify = true;
  return chosen;
}

/// What the program prints, and what it exits with.
struct printed {
  explicit printed(const gpt::options& chosen)
  {
    const gpt::training_text text = support::some_text();
    std::FILE* const out = std::tmpfile();
    REQUIRE(out != nullptr);
    status = gpt::run<training>(chosen, text, gpt::display{out});
    std::rewind(out);
    for (int each = std::fgetc(out); each != EOF; each = std::fgetc(out)) all.push_back(static_cast<char>(each));
    std::fclose(out);
  }
  int status = -1;
  std::string all;
};

update_choice settled(const char* placement, std::optional<chunkmem::bytes> device)
{
  gpt::options chosen = some_options();
  chosen.placement = gpt::any_placement{placement};
  chosen.device_memory = device;
  const gpt::training_text text = support::some_text();
  chunkmem::optimizer::thread_pool workers{1};
  training::settle(chosen, text, workers, 8_KiB);
  return chosen.update;
}

}  // namespace

TEST_CASE("the program of the GPU trains capped, then without a limit, and finds every bit the same", "[gpt_cuda]")
{
  const printed result{some_options()};
  CHECK(result.status == EXIT_SUCCESS);
  CHECK_THAT(result.all, ContainsSubstring("parameters identical"));
  CHECK_THAT(result.all, ContainsSubstring("5 losses, 5 identical"));
  CHECK_THAT(result.all, ContainsSubstring("updates on threads of the CPU"));
  CHECK_THAT(result.all, ContainsSubstring("sampled after the bar"));
}

TEST_CASE("where the placement keeps the states decides who updates", "[gpt_cuda]")
{
  CHECK(settled("host_first", 4_MiB) == update_choice::cpu);
  CHECK(settled("device_margin", 4_MiB) == update_choice::gpu);
  CHECK(settled("device_margin", std::nullopt) == update_choice::cpu);
}

TEST_CASE("a budget that the GPU does not have is refused in a sentence, before anything is trained", "[gpt_cuda]")
{
  gpt::options chosen = some_options();
  const gpt::training_text text = support::some_text();
  const auto refused = [&](const char* why) {
    CHECK_THROWS_WITH(gpt::run<training>(chosen, text, gpt::display{stdout}), ContainsSubstring(why));
  };
  chosen.device_memory = 5_MiB;
  refused("that the device has free");
  chosen.device_memory.reset();
  chosen.size.width = 96;
  chosen.chunk_bytes = 160_KiB;
  refused("--verify trains a second time with");
}

}  // namespace program_test
