// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/rank_step.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/counting_ranks.hpp>
#include <support/failing.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rank_step_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using support::counting_ranks;
using support::failing;
using support::failure_plan;

constexpr std::uint32_t ranks = 2;
constexpr bytes frame{ranks * 16384};

/// A rank that trains three units, one of them frozen, on a device that has room for `frames`.
struct trainer {
  using memory_type = failing<backend::host_arena>;
  memory_type memory;
  using model_type = sharded_model<memory_type, counting_ranks>;
  collective::local_threads end;
  counting_ranks here{end};
  model_type m;
  optimizer::adam adam{{}};
  std::vector<tensor<float>> weights;

  trainer(const collective::thread_group& group, std::uint32_t rank, const sharding::sharding_options& divided,
          std::uint32_t frames = 10)
      : memory{failure_plan{},
               backend::host_arena_options{.device_capacity = frame * frames, .host_capacity = frame * 30}},
        end{group, rank_id{rank}},
        m{memory, here, {.chunk_bytes = frame}, divided}
  {
    m.use(adam);
    for (const role part : {role::parameter, role::frozen, role::parameter, role::parameter})
      weights.push_back(m.template add<float>({7000}, part));
    for (const auto it : weights)
      for (float& value : m.acquire(it, access::write).span()) value = 1;
  }
  void differentiate(std::uint32_t step)
  {
    for (const auto it : weights) (void)m.acquire(it, access::read).size();
    const float own = static_cast<float>(index_of(here.rank()) + 1 + step);
    for (const std::size_t index : {3U, 2U, 0U}) {
      if (!has_gradient(index, step)) continue;
      auto gradient = m.gradient(m.acquire(weights[index], access::read));
      for (float& value : gradient.span()) value = own * static_cast<float>(index + 1);
      m.gradient_done(std::move(gradient));
    }
  }
  /// All have one in each step but one, whose unit is gathered by the step itself.
  [[nodiscard]] static bool has_gradient(std::size_t index, std::uint32_t step) { return index != 3 || step != 1; }
  /// Forward and backward, where each call is made again until no copy of it fails.
  void differentiate_again(std::uint32_t step)
  {
    for (const auto it : weights) again([&] { (void)m.acquire(it, access::read).size(); });
    const float own = static_cast<float>(index_of(here.rank()) + 1 + step);
    for (const std::size_t index : {3U, 2U, 0U}) {
      if (!has_gradient(index, step)) continue;
      again([&] {
        const auto gradient = m.gradient(weights[index]);
        for (float& value : gradient.span()) value = own * static_cast<float>(index + 1);
      });
      again([&] { m.gradient_done(weights[index]); });
    }
  }
  template <class Work>
  std::invoke_result_t<Work> again(Work work)
  {
    for (;; ++failures) {
      try {
        return work();
      } catch (const device_error&) {
      }
    }
  }
  /// A step goes on with its own rate alone, and nobody reads a weight that it has updated and not gathered yet.
  void check_half_done(const sharding::zero& divided)
  {
    if (adam.progress.decision == optimizer::step_decision::update) {
      try {
        (void)m.step(adam, {.learning_rate = 0.25F, .clip = {.norm = 1}});
        complaint = "a step went on with another rate on one rank";
      } catch (const usage_error&) {
      }
    }
    try {
      if (m.shares().has_gradient(m.share_of(weights[0]).first->share)) return;  // it is the old one
      (void)m.acquire(weights[0], access::read);
      if (!divided.parameters) complaint = "a weight was read that is not gathered yet";
    } catch (const usage_error&) {
    }
  }
  std::uint32_t failures = 0;
  std::string complaint;
  optimizer::step_outcome step() { return m.step(adam, {.learning_rate = 0.125F, .clip = {.norm = 1}}); }
  std::vector<float> values()
  {
    std::vector<float> all;
    for (const auto it : weights) {
      const auto pin = m.acquire(it, access::read);
      all.push_back(pin.span()[0]);
      all.push_back(pin.span()[6999]);
    }
    return all;
  }
};

constexpr sharding::sharding_options stages[] = {{.divided = sharding::zero_1},
                                                 {.divided = sharding::zero_2},
                                                 {.divided = sharding::zero_3},
                                                 {.divided = sharding::zero_3, .gathers_ahead = 3},
                                                 {.divided = sharding::zero_3, .gathers_ahead = 1}};

/// Weights behind three steps, which `make(trainer)` gives a function for. Copy `fatal` of rank 1 fails, from step
/// `in_step` to the next one, and each call is made again. @return   what went wrong, or nothing
template <class Make>
std::string run(const sharding::sharding_options& divided, std::uint32_t in_step, std::uint64_t fatal,
                std::vector<float>& found, std::uint64_t& copies, std::uint32_t& failures, Make make)
{
  std::vector<std::string> complaints(ranks);
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    trainer it{group, rank, divided};
    const auto step_of = make(it);
    std::uint64_t before = 0;
    for (std::uint32_t step = 0; step < 3; ++step) {
      const auto scope = it.again([&] { return it.m.iteration(); });
      it.differentiate_again(step);
      if (rank == 1 && step == in_step) {
        before = it.memory.copies();
        it.memory.set_plan({.copy = before + fatal});
      }
      if (rank == 1 && step == in_step + 1) copies = it.memory.copies() - before;
      it.again([&] { step_of(step); });
    }
    std::vector<float> values;
    it.again([&] { values = it.values(); });
    complaints[rank] = it.complaint;
    if (rank == 1) found = values, failures += it.failures;
    if (rank == 0 && values[2] != 1) complaints[rank] += "a frozen weight moved";
  });
  return complaints[0] + complaints[1];
}
std::vector<float> run_on_host(const sharding::sharding_options& divided, const optimizer::step_options& options)
{
  std::vector<float> found;
  std::uint64_t copies = 0;
  std::uint32_t failures = 0;
  const auto make = [&](trainer& it) { return [&](std::uint32_t) { (void)it.m.step(it.adam, options); }; };
  CHECK(run(divided, 1, UINT64_MAX / 2, found, copies, failures, make) == "");
  return found;
}
/// Compares with `wanted`, whichever copy fails.
template <class Make>
void check_all_copies(const sharding::sharding_options& divided, const std::vector<float>& wanted, Make make,
                      std::uint32_t in_step = 1)
{
  std::vector<float> found;
  std::uint64_t copies = 0, all = 0;
  std::uint32_t failures = 0;
  CHECK(run(divided, in_step, UINT64_MAX / 2, found, all, failures, make) == "");
  CHECK(found == wanted);
  CHECK(failures == 0);
  REQUIRE(all > 0);
  for (std::uint64_t fatal = 0; fatal < all; ++fatal) {
    INFO("division " << &divided - stages << ", copy " << fatal << " of " << all);
    CHECK(run(divided, in_step, fatal, found, copies, failures, make) == "");
    CHECK(found == wanted);
  }
  CHECK(failures == all);
}

constexpr optimizer::step_options clipped{.learning_rate = 0.125F, .clip = {.norm = 1}};

TEST_CASE("a step that failed at any copy goes on where it stopped: nothing is updated twice, nothing is left out",
          "[sharding]")
{
  for (const sharding::sharding_options& divided : stages) {
    const std::vector<float> wanted = run_on_host(divided, clipped);
    for (const std::uint32_t in_step : {0U, 1U})  // which is recorded, which follows a plan
      check_all_copies(
          divided, wanted,
          [&](trainer& it) {
            return [&](std::uint32_t) {
              try {
                if (!(it.step().norm > 0)) it.complaint = "no norm";
              } catch (const device_error&) {
                it.check_half_done(divided.divided);
                throw;
              }
            };
          },
          in_step);
  }
}

TEST_CASE("an update that waits has the bits of one that does not, whatever copy fails before its weight is read",
          "[sharding]")
{
  for (const sharding::sharding_options& divided : stages)
    check_all_copies(divided, run_on_host(divided, clipped), [&](trainer& it) {
      using late_type = optimizer::late_updates<decltype(trainer::m), optimizer::adam>;
      return [&it, late = std::make_shared<late_type>(it.m, it.adam)](std::uint32_t step) {
        (void)late->step(clipped);
        if (late->waiting() != (step == 1 ? 2U : 3U)) it.complaint = "an update did not wait";
      };
    });
}

constexpr bytes all_bytes{4 * frame.count()};  // of the updates of two of three shares

TEST_CASE("an early update over ranks has the bits of one that is not, whatever all ranks decide and copy fails",
          "[sharding]")
{
  for (const sharding::sharding_options& divided : stages)
    for (const float clip : {1e9F, 1300.0F, 1.0F}) {  // the norm is 1,323: updates stay, are taken back, are not made
      const optimizer::step_options options{.learning_rate = 0.125F, .clip = {.norm = clip}};
      const std::vector<float> wanted = run_on_host(divided, options);
      for (const bytes undo : {all_bytes, bytes{frame.count() * 3 / 2}, bytes{}}) {
        INFO("division " << &divided - stages << ", clip " << clip << ", undo " << undo.count());
        std::size_t early_ones = 0;
        check_all_copies(divided, wanted, [&](trainer& it) {
          using early_type = optimizer::early_updates<decltype(trainer::m), optimizer::adam>;
          const std::uint32_t rank = index_of(it.here.rank());
          auto early = std::make_shared<early_type>(it.m, it.adam, rank == 1 ? undo : all_bytes);
          return [&, rank, early](std::uint32_t step) {
            (void)early->step(options);
            if (rank == 1 && step == 1) early_ones = early->early();
          };
        });
        CHECK(early_ones == (clip < 1e9F || undo == bytes{} ? 0U : undo == all_bytes ? 2U : 1U));
      }
    }
}

TEST_CASE("kernels update the shares of ranks with the bits of the host, at once and late, whatever copy fails",
          "[sharding]")
{
  struct on_device {
    using device_type = optimizer::device_updates<decltype(trainer::m), optimizer::loop_launcher>;
    explicit on_device(trainer& trained) : device{trained.m}, late{trained.m, trained.adam, device} {}
    device_type device;
    optimizer::late_updates<decltype(trainer::m), optimizer::adam, device_type> late;
  };
  for (const sharding::sharding_options& divided : stages)
    for (const float clip : {0.0F, 1.0F}) {
      const optimizer::step_options options{.learning_rate = 0.125F, .clip = {.norm = clip}};
      const std::vector<float> wanted = run_on_host(divided, options);
      for (const bool is_late : {false, true}) {
        INFO("division " << &divided - stages << ", clip " << clip << (is_late ? ", late" : ", at once"));
        check_all_copies(divided, wanted, [&](trainer& it) {
          return [&it, &options, is_late, on = std::make_shared<on_device>(it)](std::uint32_t step) {
            if (step == 2)
              (void)it.m.step(it.adam, options);  // back on the host
            else if (is_late)
              (void)on->late.step(options);
            else
              (void)it.m.step(it.adam, options, on->device);
          };
        });
      }
    }
}

/// Starts kernels until one is fatal.
struct failing_launcher {
  struct plan {
    std::uint64_t launches = 0;
    std::uint64_t fatal = UINT64_MAX;
  };
  std::shared_ptr<plan> of = std::make_shared<plan>();

  template <class Backend, optimizer::device_kernel Kernel>
  void operator()(Backend& backend, agent stream, const Kernel& kernel) const
  {
    if (of->launches++ == of->fatal) throw device_error{"chunkmem: a kernel could not be started"};
    optimizer::loop_launcher{}(backend, stream, kernel);
  }
};

/// Two steps of four weights that share a unit, so that a share has two runs. Launch `fatal` of rank 1's
/// second one fails.
/// @param refused   how often gradients were to be dropped of a step that was half done
std::vector<float> run_with_launches(bool on_device, bool is_late, std::uint64_t fatal, std::uint64_t& launches,
                                     std::uint32_t& refused)
{
  std::vector<std::vector<float>> found(ranks);
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    trainer::memory_type memory{
        failure_plan{}, backend::host_arena_options{.device_capacity = frame * 40, .host_capacity = frame * 90}};
    collective::local_threads end{group, rank_id{rank}};
    decltype(trainer::here) here{end};
    decltype(trainer::m) m{memory, here, {.chunk_bytes = 2 * frame}};
    optimizer::adam adam{{}};
    m.use(adam);
    std::vector<tensor<float>> weights;
    for (int count = 0; count < 4; ++count) weights.push_back(m.add<float>({3000}, role::parameter));
    for (const auto it : weights)
      for (float& value : m.acquire(it, access::write).span()) value = 1;
    failing_launcher launcher;
    optimizer::device_updates device{m, launcher};
    optimizer::late_updates late{m, adam, device};
    const optimizer::step_options options{.learning_rate = 0.1F, .clip = {.norm = 1}};
    for (std::uint32_t step = 0; step < 2; ++step) {
      const auto scope = m.iteration();
      for (const auto it : weights) {
        auto gradient = m.gradient(m.acquire(it, access::read));
        for (float& value : gradient.span()) value = static_cast<float>(step + 1);
        m.gradient_done(std::move(gradient));
      }
      const std::uint64_t before = launcher.of->launches;
      if (rank == 1 && step == 1) launcher.of->fatal = before + fatal;
      const auto again = [&](auto work) {
        for (bool ended = false; !ended;) {
          try {
            work();
            ended = true;
          } catch (const device_error&) {
            if (!m.shares().updates().gradients().is_updated_in_part()) continue;
            try {
              m.drop_gradients();
              found[rank].push_back(-1);
            } catch (const usage_error&) {
              ++refused;  // by rank 1 alone
            }
          }
        }
      };
      again([&] {
        (void)(!on_device ? m.step(adam, options) : is_late ? late.step(options) : m.step(adam, options, device));
      });
      again([&] { late.finish(); });
      if (rank == 1) launches = launcher.of->launches - before;
    }
    for (const auto it : weights) {
      const auto pin = m.acquire(it, access::read);
      found[rank].push_back(pin.span()[0]), found[rank].push_back(pin.span()[2999]);
    }
  });
  CHECK(found[0] == found[1]);
  return found[0];
}

TEST_CASE("whichever kernel of a share cannot be started, no run of it is updated twice, and its gradients are kept",
          "[sharding]")
{
  std::uint64_t launches = 0;
  std::uint32_t refused = 0;
  const std::vector<float> wanted = run_with_launches(false, false, UINT64_MAX / 2, launches, refused);
  for (const bool is_late : {false, true}) {
    CHECK(run_with_launches(true, is_late, UINT64_MAX / 2, launches, refused) == wanted);
    const std::uint64_t all = launches;
    CHECK(all >= 6);  // measures and updates of two runs
    for (std::uint64_t fatal = 0; fatal < all; ++fatal) {
      INFO((is_late ? "late, launch " : "launch ") << fatal << " of " << all);
      CHECK(run_with_launches(true, is_late, fatal, launches, refused) == wanted);
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("an early step without room updates nothing: its gradients may be dropped, and weights be used", "[sharding]")
{
  for (const sharding::sharding_options& divided : stages) {
    std::vector<std::string> wrong(ranks);
    const collective::thread_group group{ranks, {}};
    support::on_ranks(ranks, [&](std::uint32_t rank) {
      trainer it{group, rank, divided};
      optimizer::early_updates early{it.m, it.adam, bytes{1'000 * frame.count()}};
      const optimizer::step_options options{.learning_rate = 0.125F, .clip = {.norm = 1}};
      const auto scope = it.m.iteration();
      it.differentiate(0);
      try {
        (void)early.step(options);
        wrong[rank] += "there was room ";
      } catch (const out_of_memory&) {
      }
      const std::vector<float> before = it.values();
      it.m.drop_gradients();
      if (it.values() != before) wrong[rank] += "a weight moved ";
      it.differentiate(0);
      (void)it.m.step(it.adam, options);
      if (it.values() == before || it.adam.progress.number != 1) wrong[rank] += "no step followed ";
    });
    INFO("division " << &divided - stages);
    for (const std::string& each : wrong) CHECK(each == "");
  }
}

TEST_CASE("kernels round the shares of ranks by the random bits that one rank has", "[sharding]")
{
  std::vector<std::vector<float>> found(2 * ranks);
  const collective::thread_group of_host{ranks, {}}, of_device{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    for (const bool on_device : {false, true}) {
      trainer::memory_type memory{
          failure_plan{}, backend::host_arena_options{.device_capacity = frame * 40, .host_capacity = frame * 90}};
      collective::local_threads end{on_device ? of_device : of_host, rank_id{rank}};
      decltype(trainer::here) here{end};
      decltype(trainer::m) m{memory, here, {.chunk_bytes = frame}};
      optimizer::adam adam{{}, {.moments = dtype::bfloat16, .masters = false}};
      m.use(adam);
      const auto weight = m.add<bf16>({70'000}, role::parameter);  // a share begins inside of it
      for (bf16& value : m.acquire(weight, access::write).span()) value = round_to<bf16>(1.0F);
      optimizer::device_updates<decltype(m), optimizer::loop_launcher> device{m};
      for (std::uint32_t step = 0; step < 2; ++step) {
        const auto scope = m.iteration();
        {
          const auto gradient = m.gradient(m.acquire(weight, access::read));
          for (std::size_t index = 0; index < gradient.size(); ++index)
            gradient.span()[index] = round_to<bf16>(static_cast<float>(index % 97) - 40.0F);
        }
        m.gradient_done(weight);
        const optimizer::step_options options{.learning_rate = 0.01F, .clip = {.norm = 1}, .seed = 7};
        (void)(on_device ? m.step(adam, options, device) : m.step(adam, options));
      }
      const auto pin = m.acquire(weight, access::read);
      for (const bf16 value : pin.span()) found[2 * rank + (on_device ? 1 : 0)].push_back(to_float(value));
    }
  });
  REQUIRE(found[0].size() == 70'000);
  std::size_t unlike = 0;  // of elements that had the same gradients
  for (std::size_t index = 97; index < found[0].size(); ++index)
    unlike += found[0][index] != found[0][index - 97] ? 1 : 0;
  CHECK(unlike > 10'000);
  for (const auto& each : found) CHECK((each == found[0]));
}

TEST_CASE(
    "an early step over ranks is skipped by all, finished by itself alone, and refused before it updates anything",
    "[sharding]")
{
  for (const sharding::sharding_options& divided : stages) {
    std::vector<std::string> wrong(ranks);
    const collective::thread_group group{ranks, {}};
    support::on_ranks(ranks, [&](std::uint32_t rank) {
      trainer it{group, rank, divided};
      optimizer::early_updates early{it.m, it.adam, all_bytes};
      const optimizer::step_options options{.learning_rate = 0.125F, .clip = {.norm = 1e9F}};
      const auto refuses = [&](auto step, std::string_view text) {
        try {
          (void)step();
          wrong[rank] += "not refused: " + std::string{text};
        } catch (const usage_error& refused) {
          if (std::string_view{refused.what()}.find(text) == std::string_view::npos) wrong[rank] += refused.what();
        }
      };
      {
        const auto scope = it.m.iteration();
        refuses([&] { return early.step(options); }, "no weight has a gradient on any rank");
        it.differentiate(0);
        (void)early.step(options);
      }
      const std::vector<float> before = it.values();
      {
        const auto scope = it.m.iteration();
        it.differentiate(2);
        if (auto more = it.m.gradient(it.weights[0]); rank == 1)
          more.span()[6999] = std::numeric_limits<float>::infinity();
        if (early.step(options).result != optimizer::step_result::skipped_nonfinite) wrong[rank] += "not skipped ";
      }
      if (it.values() != before) wrong[rank] += "a skipped step moved a weight ";
      const auto scope = it.m.iteration();
      it.differentiate(3);
      refuses([&] { return early.step({.learning_rate = rank == 0 ? 0.125F : 0.25F, .clip = {.norm = 1e9F}}); },
              "learning rate = ");
      if (it.values() != before) wrong[rank] += "a refused step moved a weight ";
      if (early.step(options) != optimizer::step_result::updated || early.early() != 2) wrong[rank] += "not early ";
      if (it.adam.progress.number != 2) wrong[rank] += "counted ";
    });
    INFO("division " << &divided - stages);
    for (const std::string& each : wrong) CHECK(each == "");
  }
}

TEST_CASE("updates that wait are done by a step at once, by finish and before gradients are dropped", "[sharding]")
{
  for (const sharding::sharding_options& divided : stages) {
    std::vector<std::string> wrong(ranks);
    const collective::thread_group group{ranks, {}}, others{ranks, {}};
    support::on_ranks(ranks, [&](std::uint32_t rank) {
      trainer at_once{others, rank, divided};
      trainer it{group, rank, divided};
      optimizer::late_updates late{it.m, it.adam};
      const optimizer::step_options options{.learning_rate = 0.125F, .clip = {.norm = 1}};
      for (std::uint32_t step = 0; step < 5; ++step) {
        {
          const auto scope = at_once.m.iteration();
          at_once.differentiate(step);
          at_once.step();
        }
        {
          const auto scope = it.m.iteration();
          it.differentiate(step);
          if (step == 2)
            it.step();
          else
            (void)late.step(options);
        }
        if (late.waiting() != (step == 2 ? 0U : step == 1 ? 2U : 3U)) wrong[rank] += "waits ";
        if (step == 0) late.finish();
        if (step == 3) it.m.drop_gradients();
        if (step == 1)
          for (trainer* const each : {&it, &at_once})
            for (float& value : each->m.acquire(each->weights[2], access::write).span()) value = 0.5F;
        if (step != 1 && step != 4 && late.waiting() != 0) wrong[rank] += "still waits ";
        if (step != 1 && it.values() != at_once.values()) wrong[rank] += "differs " + std::to_string(step) + " ";
      }
      const auto scope = it.m.iteration();
      it.differentiate(5);
      const tensor_handle first[] = {it.weights[0]};
      try {
        (void)late.step(options, first);
        wrong[rank] += "took a first one";
      } catch (const usage_error& refused) {
        if (std::string{refused.what()}.find("leave `first` empty") == std::string::npos) wrong[rank] += refused.what();
      }
    });
    INFO("division " << &divided - stages);
    for (const std::string& each : wrong) CHECK(each == "");
  }
}

TEST_CASE("an update that waits is of the gradients of its own step, whatever has gradients in the next one",
          "[sharding]")
{
  for (const sharding::sharding_options& divided : stages)
    for (const bool next_is_late : {false, true}) {
      std::vector<std::vector<float>> found(ranks);
      const collective::thread_group group{ranks, {}};
      support::on_ranks(ranks, [&](std::uint32_t rank) {
        trainer::memory_type memory{
            failure_plan{}, backend::host_arena_options{.device_capacity = frame * 40, .host_capacity = frame * 90}};
        collective::local_threads end{group, rank_id{rank}};
        counting_ranks here{end};
        trainer::model_type m{memory, here, {.chunk_bytes = frame}, divided};
        optimizer::adam adam{{.beta1 = 0, .beta2 = 0.5F, .epsilon = 1e-30F}};  // moves a constant gradient by the rate
        m.use(adam);
        std::vector<tensor<float>> weights;  // larger than a chunk, so each share has chunks of its own
        for (std::uint32_t index = 0; index < 2; ++index)
          weights.push_back(m.add<float>({40'000}, role::parameter, group_id{index}));
        for (const auto it : weights)
          for (float& value : m.acquire(it, access::write).span()) value = 8;
        optimizer::late_updates late{m, adam};
        const auto pass = [&](std::size_t count) {
          for (std::size_t index = 0; index < count; ++index) {
            auto gradient = m.gradient(m.acquire(weights[index], access::read));
            for (float& value : gradient.span()) value = 1;
            m.gradient_done(std::move(gradient));
          }
        };
        const auto train = [&](std::size_t count, bool is_late) {
          const auto scope = m.iteration();
          pass(count);
          is_late ? late.step({.learning_rate = 1}) : m.step(adam, {.learning_rate = 1});
        };
        train(2, true);
        train(1, next_is_late);  // nothing of the second weight is used: its update waits still
        for (const auto it : weights) found[rank].push_back(m.acquire(it, access::read).span()[39'999]);
      });
      INFO("division " << &divided - stages << (next_is_late ? ", late" : ", at once"));
      for (const auto& each : found) CHECK(each == std::vector<float>{6, 7});
    }
}

TEST_CASE(
    "a share that is half done is finished with the options of its step, and an infinite norm clips on every rank",
    "[sharding]")
{
  std::vector<std::string> wrong(ranks);
  std::vector<std::uint32_t> refused(ranks);
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    trainer it{group, rank, {.divided = sharding::zero_1}};
    const optimizer::step_options options{.learning_rate = 0.125F, .skip_nonfinite = false};  // copies come in updates
    const auto one_step = [&](std::uint32_t step, std::uint64_t fatal) {
      const auto scope = it.m.iteration();
      it.differentiate(step);
      if (rank == 1) it.memory.set_plan({.copy = it.memory.copies() + fatal});
      for (bool ended = false; !ended;) {
        try {
          (void)it.m.step(it.adam, options);
          ended = true;
        } catch (const device_error&) {
          it.memory.set_plan({});
          if (it.adam.progress.decision == optimizer::step_decision::open) continue;
          it.adam.group(group_id{0}, {.weight_decay = 100.0F});
          try {
            (void)it.m.step(it.adam, options);
            wrong[rank] += "other options were taken ";
          } catch (const usage_error&) {
            ++refused[rank];
          }
          it.adam.group(group_id{0}, {});
        }
      }
      it.memory.set_plan({});
    };
    for (std::uint32_t step = 0; step < 8; ++step) one_step(step, step);
    const auto scope = it.m.iteration();
    for (const std::size_t index : {3U, 2U, 0U}) {
      auto gradient = it.m.gradient(it.m.acquire(it.weights[index], access::read));
      for (float& value : gradient.span()) value = 1;
      if (rank == 1 && index == 2) gradient.span()[6999] = std::numeric_limits<float>::infinity();
      it.m.gradient_done(std::move(gradient));
    }
    const auto done = it.m.step(it.adam, {.clip = {.norm = 1}, .skip_nonfinite = false});
    if (done.norm != std::numeric_limits<double>::infinity()) wrong[rank] += "another norm ";
    const std::vector<float> after = it.values();  // first and last of each weight
    for (std::size_t index = 0; index < after.size(); ++index)
      if (std::isnan(after[index]) != (index == 5)) wrong[rank] += "NaN elsewhere than at the infinity ";
  });
  for (const std::string& it : wrong) CHECK(it == "");
  CHECK(refused[0] == 0);
  CHECK(refused[1] > 0);
}

TEST_CASE("a sum_scale that makes nothing or no number of gradients is refused", "[sharding]")
{
  for (const float wrong :
       {0.0F, -1.0F, 1e-45F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    CHECK_THROWS_AS(sharding::check({.sum_scale = wrong}), config_error);
  CHECK_NOTHROW(sharding::check({}));
  CHECK_NOTHROW(sharding::check({.sum_scale = std::numeric_limits<float>::min()}));
  const collective::thread_group group{1, {}};
  collective::local_threads end{group, rank_id{0}};
  counting_ranks here{end};
  trainer::memory_type memory{failure_plan{},
                              backend::host_arena_options{.device_capacity = frame, .host_capacity = frame}};
  CHECK_THROWS_AS((trainer::model_type{memory, here, {.chunk_bytes = frame}, {.sum_scale = 0.0F}}), config_error);
}

TEST_CASE("weights are made of shares that others changed, in every stage", "[sharding]")
{
  for (const sharding::sharding_options& divided : stages) {
    std::vector<std::vector<float>> found(ranks);
    const collective::thread_group group{ranks, {}};
    support::on_ranks(ranks, [&](std::uint32_t rank) {
      trainer it{group, rank, divided};
      (void)it.values();  // they are whole somewhere
      const auto [unit, part] = it.m.share_of(it.weights[0]);
      if (part != nullptr) {
        const auto pin = it.m.shares().acquire(tensor<float>{unit->share}, access::read_write, memory_location::host);
        for (std::uint64_t index = 0; index < part->elements; ++index)
          pin.span()[part->begin - unit->share_begin + index] = static_cast<float>(rank + 5);
      }
      {
        const auto scope = it.m.iteration();
        try {
          it.m.gather_weights();
          found[rank].push_back(-1);
        } catch (const usage_error&) {
        }
      }
      it.m.gather_weights();
      const std::vector<float> values = it.values();
      found[rank].insert(found[rank].end(), values.begin(), values.end());
    });
    INFO("division " << &divided - stages);
    CHECK(found[0] == std::vector<float>{5, 6, 1, 1, 1, 1, 1, 1});
    CHECK(found[1] == found[0]);
  }
}

TEST_CASE("a rank that gathered another chunk than the others is found out by the next step", "[sharding]")
{
  std::vector<std::string> said(ranks);
  const collective::thread_group group{ranks, {.deadline = 300'000'000}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    trainer it{group, rank, {.divided = sharding::zero_3}};
    said[rank] = support::refusal<comm_error>([&] {
      const auto scope = it.m.iteration();
      (void)it.m.acquire(it.weights[rank == 0 ? 0 : 2], access::read).size();
      it.differentiate(0);
      (void)it.step();
    });
  });
  for (const std::string& it : said) CHECK(it != "");
}

TEST_CASE("a step that one rank cannot take is taken by none, and all of them go on", "[sharding]")
{
  const collective::thread_group group{ranks, {}}, others{ranks, {}};
  std::vector<std::string> said(ranks), said_by_all(ranks);
  std::vector<std::uint64_t> updates(ranks);
  std::vector<char> same(ranks);
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    trainer it{group, rank, {.divided = sharding::zero_3}};
    const auto refusal = [&](float rate) {
      return support::refusal<usage_error>([&] { (void)it.m.step(it.adam, {.learning_rate = rate}); });
    };
    {
      const auto scope = it.m.iteration();
      it.differentiate(0);
      said[rank] = refusal(rank == 1 ? std::numeric_limits<float>::quiet_NaN() : 0.125F);
      said_by_all[rank] = refusal(-1.0F);
      it.step();
    }
    updates[rank] = it.adam.progress.number;
    trainer undisturbed{others, rank, {.divided = sharding::zero_3}};
    {
      const auto scope = undisturbed.m.iteration();
      undisturbed.differentiate(0);
      undisturbed.step();
    }
    same[rank] = it.values() == undisturbed.values();
  });
  CHECK_THAT(said[0], ContainsSubstring("ranks take different steps: rank 1 cannot take this one"));
  CHECK_THAT(said[1], ContainsSubstring("a learning rate of nan"));
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    CHECK_THAT(said_by_all[rank], ContainsSubstring("a learning rate of -1 "));
    CHECK(updates[rank] == 1);
    CHECK(same[rank]);
  }
}

TEST_CASE("a step over ranks refuses a kernel and a loss scale that use was not called with", "[sharding]")
{
  const collective::thread_group group{ranks, {}};
  std::vector<std::string> kernel(ranks), scale(ranks);
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    trainer it{group, rank, {.divided = sharding::zero_3}};
    optimizer::adam copy = it.adam;
    auto of_loss = optimizer::loss_scale::fixed(2.0F);
    const auto refusal = [&](optimizer::adam& with, optimizer::loss_scale* by) {
      return support::refusal<usage_error>([&] { (void)it.m.step(with, {.loss_scale = by}); });
    };
    const auto scope = it.m.iteration();
    it.differentiate(0);
    kernel[rank] = refusal(copy, nullptr);
    scale[rank] = refusal(it.adam, &of_loss);
    it.m.use(of_loss);
    (void)it.m.step(it.adam, {.loss_scale = &of_loss});
  });
  for (const std::string& it : kernel)
    CHECK_THAT(it, ContainsSubstring("an optimizer kernel that the manager was not given"));
  for (const std::string& it : scale) CHECK_THAT(it, ContainsSubstring("a loss scale that the manager was not given"));
}

TEST_CASE("ranks write their shares in one way, also where one owns nothing that has a gradient", "[sharding]")
{
  // Two weights in a unit: the share of rank 0 is the first one, that of rank 1 the second. Only one has a gradient.
  std::vector<std::vector<std::uint8_t>> kinds(ranks);
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    collective::local_threads here{group, rank_id{rank}};
    backend::host_arena memory{{.device_capacity = frame * 16, .host_capacity = frame * 16}};
    sharded_model<backend::host_arena, collective::local_threads> m{memory, here, {.chunk_bytes = frame}};
    optimizer::adam adam{{}, {.masters = true}};
    m.use(adam);
    const auto first = m.add<bf16>({8'192}, role::parameter);
    const auto second = m.add<bf16>({8'192}, role::parameter);
    for (const auto it : {first, second})
      for (bf16& value : m.acquire(it, access::write).span()) value = bf16{1.0F};
    for (int step = 0; step < 2; ++step) {
      const auto scope = m.iteration();
      auto gradient = m.gradient(second);
      for (bf16& value : gradient.span()) value = bf16{1.0F};
      m.gradient_done(std::move(gradient));
      (void)m.step(adam, {.learning_rate = 0.1F});
    }
    for (const access_entry& it : m.shares().profile()->entries())
      kinds[rank].push_back(static_cast<std::uint8_t>(it.kind));
  });
  CHECK_FALSE(kinds[0].empty());
  CHECK(kinds[0] == kinds[1]);
}

}  // namespace rank_step_test
