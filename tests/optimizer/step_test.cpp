#include <chunkmem/optimizer/step.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>
#include <support/toy_trainer.hpp>

#include <string>
#include <vector>

namespace cm = chunkmem;
namespace toy = support::toy;
using namespace cm::literals;
using failing = support::failing<support::adversarial>;
using manager = cm::manager<failing>;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::uint32_t layers = 6;

/// Six weights of a chunk, a device of three: each update moves chunks, and each of these copies may fail.
template <class Kernel>
struct fixture {
  explicit fixture(const support::failure_plan& plan = {})
      : memory{plan, support::adversarial_options{.device_capacity = 12_KiB, .host_capacity = 256_KiB, .when = support::schedule::latest}}
  {
    m.use(kernel.lists());
    weights = m.template add_stacked<float>(layers, {1000}, cm::role::parameter);
  }
  void fill()
  {
    for (std::uint32_t at = 0; at < layers; ++at) toy::fill(m.acquire(weights.slice(at), cm::access::write).span(), at);
  }
  /// Gradients of all layers but those for which `skipped` says so.
  void differentiate(std::uint64_t step, std::uint32_t skipped = layers)
  {
    for (std::uint32_t at = 0; at < layers; ++at)
      if (at != skipped) toy::fill(m.gradient(weights.slice(at)).span(), 100 * step + at);
  }
  std::vector<float> everything()
  {
    std::vector<float> all;
    for (std::uint32_t at = 0; at < layers; ++at) {
      append(all, m.template acquire<float>(weights.slice(at), cm::value_list, cm::access::read, cm::at::host).span());
      for (const cm::list_spec& spec : kernel.lists())
        append(all, m.template acquire<float>(weights.slice(at), m.list(spec.name), cm::access::read, cm::at::host).span());
    }
    return all;
  }
  static void append(std::vector<float>& all, std::span<const float> more) { all.insert(all.end(), more.begin(), more.end()); }

  Kernel kernel;
  failing memory;
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> weights;
};

template <class Kernel>
std::vector<float> undisturbed(std::uint64_t& copies)
{
  fixture<Kernel> it;
  it.fill();
  for (std::uint64_t step = 0; step < 3; ++step) {
    it.differentiate(step);
    cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F});
  }
  copies = it.memory.copies();
  return it.everything();
}

/// Whichever copy fails in an update: calling again finishes it with the same bits.
template <class Kernel>
void redo_after_every_copy()
{
  std::uint64_t copies = 0;
  const std::vector<float> expected = undisturbed<Kernel>(copies);
  std::uint64_t caught = 0;
  for (std::uint64_t k = 0; k < copies; ++k) {
    INFO("copy " << k);
    fixture<Kernel> it;
    it.fill();
    bool in_update = false;
    for (std::uint64_t step = 0; step < 3; ++step) {
      it.differentiate(step);
      it.memory.set_plan({.copy = k});
      for (bool done = false; !done;) {
        try {
          cm::optimizer::step(it.m, it.kernel, {.learning_rate = 0.1F});
          done = true;
        } catch (const cm::device_error&) {
          in_update = true;
          CHECK(it.kernel.progress.number == step);
        }
      }
      CHECK(it.kernel.progress.number == step + 1);
      CHECK(it.kernel.progress.reached == 0);
      for (std::uint32_t at = 0; at < layers; ++at) CHECK(!it.m.has_gradient(it.weights.slice(at)));
      it.memory.set_plan({});
    }
    REQUIRE(it.everything() == expected);
    caught += in_update ? 1 : 0;
  }
  CHECK(caught > 10);
}

}  // namespace

TEST_CASE("an update that fails is finished by the next call, with the same bits", "[optimizer]")
{
  redo_after_every_copy<cm::optimizer::adam>();
  redo_after_every_copy<cm::optimizer::sgd>();
}

TEST_CASE("a parameter without a gradient keeps its value and its states", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  it.differentiate(0);
  cm::optimizer::step(it.m, it.kernel);
  const std::vector<float> before = it.everything();
  for (const std::uint32_t skipped : {0U, 3U, layers - 1}) {
    it.differentiate(1, skipped);
    cm::optimizer::step(it.m, it.kernel);
    it.m.drop_gradients();
  }
  cm::optimizer::step(it.m, it.kernel);  // no gradient at all: nothing moves but the count
  CHECK(it.kernel.progress.number == 5);

  fixture<cm::optimizer::adam> one;
  one.fill();
  one.differentiate(0);
  cm::optimizer::step(one.m, one.kernel);
  one.differentiate(1, 2);
  cm::optimizer::step(one.m, one.kernel);
  const std::vector<float> after = one.everything();
  const std::size_t each = 3'000;
  for (std::size_t at = 0; at < after.size(); ++at) {
    if (at / each == 2) REQUIRE(after[at] == before[at]);
  }
  CHECK(after[0] != before[0]);
}

TEST_CASE("new gradients in the middle of an unfinished update are refused", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  it.differentiate(0);
  std::uint64_t copies = it.memory.copies();
  it.memory.set_plan({.copy = copies + 12, .persistent = true});
  CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel), cm::device_error);
  it.memory.set_plan({});
  REQUIRE(it.kernel.progress.reached > 1);
  toy::fill(it.m.gradient(it.weights.slice(0)).span(), 1);
  const std::vector<float> before = it.everything();
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel), ContainsSubstring("cut short"));
  CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel), cm::usage_error);
  CHECK(it.everything() == before);
  it.m.drop_gradient(it.weights.slice(0));
  cm::optimizer::step(it.m, it.kernel);
  CHECK(it.kernel.progress.number == 1);
}

TEST_CASE("a step without the optimizer's lists names what is missing", "[optimizer]")
{
  fixture<cm::optimizer::sgd> it;
  it.fill();
  it.differentiate(0);
  cm::optimizer::adam stranger;
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, stranger), ContainsSubstring("adam/momentum"));
  CHECK(stranger.progress.number == 0);
  cm::optimizer::step(it.m, it.kernel);
  CHECK(it.kernel.progress.number == 1);
}

TEST_CASE("a rehearsed step updates nothing", "[optimizer]")
{
  fixture<cm::optimizer::adam> it;
  it.fill();
  const std::vector<float> before = it.everything();
  it.m.rehearse([&] {
    it.differentiate(0);
    cm::optimizer::step(it.m, it.kernel);
  });
  CHECK(it.kernel.progress.number == 0);
  CHECK(it.everything() == before);
}
