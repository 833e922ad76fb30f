// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/training_on_device.hpp>

#include <chunkmem/activation/activation_plan.hpp>
#include <gpt_cuda/fake_training.hpp>
#include <program.hpp>
#include <support/catch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include <unistd.h>

namespace program_test {

namespace {

using namespace chunkmem::literals;
using Catch::Matchers::ContainsSubstring;
using gpt::update_choice;

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
  chosen.activations = gpt::activation_mode::recompute;
  chosen.threads = 2;
  chosen.verify = true;
  return chosen;
}

/// More layers, whose activations have no room together but where they are kept, and a GPU as slow as its link.
gpt::options deep_options(gpt::activation_mode choice)
{
  gpt::options chosen = some_options();
  chosen.size = {.layers = 5, .width = 16, .heads = 2, .context = 17, .batch = 4};
  chosen.steps = 1;
  chosen.sample = 0;
  chosen.device_rate = 1e12;
  chosen.link_rate = 12e9;
  chosen.activations = choice;
  chosen.sample_ratio = choice == gpt::activation_mode::sample ? 0.3 : 0;
  chosen.device_memory = choice == gpt::activation_mode::keep ? 512_KiB : 160_KiB;
  return chosen;
}

/// The output of the program, and its exit status.
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
  /// A letter for each layer, where a plan was printed.
  [[nodiscard]] std::string blocks() const
  {
    constexpr std::string_view label = "blocks ";
    const auto at = all.find(label);
    return at == std::string::npos ? "" : all.substr(at + label.size(), all.find('\n', at) - at - label.size());
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
  CHECK(support::lines_about_memory(result.all) == 1);
  CHECK(result.all.find("memory made in ") < result.all.find("held-out loss"));
}

TEST_CASE("the program of the GPU finds every bit the same where the whole iteration is planned", "[gpt_cuda]")
{
  gpt::options chosen = some_options();
  chosen.transfer = gpt::any_transfer{"planned"};
  chosen.steps = 5;
  chosen.update = GENERATE(update_choice::cpu, update_choice::gpu);
  const printed result{chosen};
  CHECK(result.status == EXIT_SUCCESS);
  CHECK_THAT(result.all, ContainsSubstring("transfer planned"));
  CHECK_THAT(result.all, ContainsSubstring("7 losses, 7 identical"));
  CHECK_THAT(result.all, ContainsSubstring("parameters identical"));
}

TEST_CASE("the program of the GPU finds every bit the same wherever activations lie, and prints a planner's plan",
          "[gpt_cuda]")
{
  using enum gpt::activation_mode;
  const gpt::activation_mode choice = GENERATE(keep, swap, karma, planned, sample);
  const gpt::options chosen = deep_options(choice);
  const printed result{chosen};
  CAPTURE(result.all);
  CHECK(result.status == EXIT_SUCCESS);
  CHECK_THAT(result.all, ContainsSubstring("3 losses, 3 identical"));
  CHECK_THAT(result.all, ContainsSubstring("parameters identical"));
  const std::string blocks = result.blocks();
  CHECK(blocks.empty() == !gpt::is_planned(choice));
  if (!gpt::is_planned(choice)) return;
  for (const std::string_view letters : {"K", "S", "RH"}) CHECK(blocks.find_first_of(letters) < blocks.size());
}

TEST_CASE("the rates of a GPU and its link decide whether a planner swaps", "[gpt_cuda]")
{
  using chunkmem::activation::block_action;
  const gpt::training_text text = support::some_text();
  chunkmem::optimizer::thread_pool workers{1};
  const auto count = [&](const gpt::options& chosen, block_action action) {
    gpt::training_setup setup{chosen, text, workers, 8_KiB};
    gpt::choose_activations<training>(setup);
    std::size_t layers = 0;
    for (std::uint32_t layer = 0; layer < chosen.size.layers; ++layer) layers += setup.plan.action_of(layer) == action;
    return layers;
  };
  gpt::options chosen = deep_options(gpt::activation_mode::planned);
  chosen.link_rate = 1e6;
  CHECK(count(chosen, block_action::swap) == 0);
  CHECK(count(chosen, block_action::recompute) > 0);
  CHECK(count(chosen, block_action::recompute_from_host) == 0);
  chosen.link_rate = 1e15;
  CHECK(count(chosen, block_action::swap) > 0);
  CHECK(count(chosen, block_action::recompute) == 0);
  CHECK(count(chosen, block_action::recompute_from_host) == 0);
  chosen.activations = gpt::activation_mode::recompute;
  CHECK(count(chosen, block_action::recompute) == chosen.size.layers);
}

TEST_CASE("a report with a loss that is no number is still JSON", "[gpt_cuda]")
{
  const auto where = std::filesystem::temp_directory_path() / ("chunkmem_report_" + std::to_string(::getpid()));
  {
    std::ofstream out{where};
    gpt::write_report(out, gpt::options{}, {.losses = {5.5f, NAN, INFINITY}, .parameter_hash = 1}, "{}");
  }
  std::ifstream in{where};
  const std::string all{std::istreambuf_iterator<char>{in}, {}};
  std::filesystem::remove(where);
  CHECK_THAT(all, ContainsSubstring("[5.5, null, null]"));
}

TEST_CASE("the memory of a machine is no more than what its container may have", "[gpt_cuda]")
{
  const auto where = std::filesystem::temp_directory_path() / ("chunkmem_cgroup_" + std::to_string(::getpid()));
  std::filesystem::create_directories(where);
  const auto says = [&](const char* text) {
    std::ofstream{where / "memory.max"} << text << '\n';
    return gpt::machine_memory(where);
  };
  const chunkmem::bytes all = gpt::machine_memory(where);
  CHECK(all.count() > 0);
  CHECK(says("max") == all);
  CHECK(says("1048576") == 1_MiB);
  CHECK(says("9223372036854771712") == all);
  std::filesystem::remove_all(where);
}

TEST_CASE("first weights and their hash are the same on any number of threads, and every number counts in the hash",
          "[gpt_cuda]")
{
  const auto hash_of = [](unsigned threads, std::size_t flipped) {
    support::prompt_device memory{{.device_capacity = 4_MiB, .host_capacity = 8_MiB}};
    support::gpt_manager m{memory, {.chunk_bytes = 512_KiB}};
    gpt::parameter_set net;
    gpt::declare_parameters(m, net, {.layers = 1, .width = 160, .heads = 2, .context = 9, .batch = 1},
                            chunkmem::dtype::bfloat16);
    chunkmem::optimizer::thread_pool workers{threads};
    gpt::fill(m, net, 3, workers);
    if (flipped > 0) {  // signs alone: the highest bits of words
      const auto pin = m.acquire(net.layers[0].qkv.as<chunkmem::bf16>(), chunkmem::access::read_write,
                                 chunkmem::memory_location::host);
      for (std::size_t index = 0; index < flipped; ++index) {
        chunkmem::bf16& highest = pin.span()[4 * index + 3];
        highest = chunkmem::round_to<chunkmem::bf16>(-chunkmem::to_float(highest));
      }
    }
    return gpt::hash_of_parameters(m, net);
  };
  const std::uint64_t one = hash_of(1, 0);
  CHECK(hash_of(4, 0) == one);
  CHECK(hash_of(1, 1) != one);
  CHECK(hash_of(1, 2) != one);
}

TEST_CASE("where the placement keeps the states decides who updates", "[gpt_cuda]")
{
  CHECK(settled("optimizer_on_host", 4_MiB) == update_choice::cpu);
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
