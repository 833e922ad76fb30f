// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_async.hpp>

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/every_policy.hpp>
#include <support/fake_device.hpp>
#include <support/gated_folder.hpp>
#include <support/memory_folder.hpp>
#include <support/mixed_trainer.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include "small_model.hpp"

namespace borrowed_items_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using support::gated_folder;
using support::memory_folder;

namespace {

/// A trainer in memory of its own, whose steps can be taken in two halves.
template <class Backend, class... Policies>
struct training {
  using manager_type = cm::manager<Backend, Policies...>;

  training() { m.content().belongs_to(1), trainer.initialise(); }
  void step(std::uint32_t now) { trainer.step(now); }
  [[nodiscard]] std::vector<float> losses() { return trainer.losses(); }

  Backend memory{{.device_capacity = 96_KiB, .host_capacity = 1_MiB}};
  manager_type m{memory, {.chunk_bytes = 4_KiB}, Policies{}...};
  support::mixed::trainer<manager_type, Backend, float> trainer{m, memory, support::mixed::usual_recipe(7)};
};

constexpr std::uint32_t saved_at = 4;
constexpr std::uint32_t steps = 7;

/// Trains with a save in flight from `saved_at` on. @param opens   half of the next step after which the disk begins to
/// write; 0: before the step @param copying   threads that copy ahead
template <class Backend, class... Policies>
void save_in_flight(cm::bytes buffer, int opens, std::uint32_t copying = 0)
{
  training<Backend, Policies...> plain;
  training<Backend, Policies...> run;
  gated_folder folder;
  memory_folder right;
  std::optional<checkpoint::pending_save> pending;
  for (std::uint32_t now = 0; now < steps; ++now) {
    plain.step(now);
    if (now != saved_at) {
      run.step(now);
      continue;
    }
    (void)checkpoint::save(run.m, right);
    folder.set_open(opens == 0);
    pending.emplace(checkpoint::save_async(run.m, folder,
                                           {.files = {.file_size = opens == 0 ? 20_KiB : 1_MiB},
                                            .buffer = buffer,
                                            .lends = true,
                                            .copying_threads = copying}));
    {
      auto scope = run.m.iteration();
      run.trainer.forward_and_backward(scope, now, 0);
      CHECK(
          (opens == 0 || copying > 0 || pending->most_buffered() < 16_KiB));  // headers, and what is no weight or state
      folder.set_open(true);
      run.trainer.update();
    }
    CHECK(pending->most_buffered() <= std::max(buffer, checkpoint::async_save_options::least_buffer));
  }
  CHECK(pending->wait().number == 1);
  CHECK(run.losses() == plain.losses());
  CHECK(run.m.report().divergences == plain.m.report().divergences);
  CHECK(run.m.report().loads == plain.m.report().loads);

  training<Backend, Policies...> now;
  training<Backend, Policies...> then;
  CHECK(checkpoint::load(now.m, folder).number == 1);
  CHECK(checkpoint::load(then.m, right).number == 1);
  CHECK(now.losses() == then.losses());
  std::vector<cm::tensor_handle> others;
  then.m.for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info&) { others.push_back(it); });
  std::size_t index = 0;
  now.m.for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info&) {
    for (const std::string_view name : {"adam/momentum", "adam/variance"}) {
      if (!now.m.is_filled(it, now.m.list(name))) continue;
      const auto left = now.m.acquire_bytes(it, now.m.list(name), cm::access::read, cm::memory_location::host);
      const auto of_right =
          then.m.acquire_bytes(others[index], then.m.list(name), cm::access::read, cm::memory_location::host);
      CHECK(std::ranges::equal(left.span(), of_right.span()));
    }
    const auto left = now.m.acquire_bytes(it, cm::value_list, cm::access::read, cm::memory_location::host);
    const auto of_right =
        then.m.acquire_bytes(others[index++], cm::value_list, cm::access::read, cm::memory_location::host);
    CHECK(std::ranges::equal(left.span(), of_right.span()));
  });
}

}  // namespace

TEST_CASE(
    "a save takes weights and states from where they lie while the next iteration runs, and its bits are of one moment",
    "[checkpoint]")
{
  std::uint32_t number = 0;
  for (const cm::bytes buffer : {4_KiB, 20_KiB, 1_MiB})
    for (const int opens : {0, buffer > 4_KiB ? 1 : 0}) {
      const std::uint32_t turn = number++ % 3;  // under a sanitizer each of these has one of the three ways
      INFO("buffer of " << buffer.count() << " B, the disk begins " << (opens == 0 ? "at once" : "before the update"));
      if (!support::sanitized || turn == 0) save_in_flight<arena>(buffer, opens);
      if (!support::sanitized || turn == 1)
        save_in_flight<arena, support::every_eviction, cm::transfer::planned>(buffer, opens);
      if (!support::sanitized || turn == 2)
        save_in_flight<arena, support::every_eviction, cm::transfer::planned>(buffer, opens, 2);
    }
}

TEST_CASE("the same on a backend that copies at the worst moments", "[checkpoint]")
{
  for (const cm::bytes buffer : {20_KiB, 1_MiB}) {
    save_in_flight<support::adversarial>(buffer, 1);
    save_in_flight<support::adversarial>(buffer, 1, 2);
  }
}

TEST_CASE("one save at a time lends from a manager, and another one does not end its watch", "[checkpoint]")
{
  gated_folder folder;
  memory_folder other;
  small_model model;
  model.fill(3.0F);
  folder.set_open(false);
  auto first = checkpoint::save_async(model.m, folder, {.files = {}, .buffer = 1_MiB, .lends = true});
  CHECK_THROWS_AS(checkpoint::save_async(model.m, other, {.files = {}, .buffer = 1_MiB, .lends = true}),
                  cm::usage_error);
  CHECK(checkpoint::generations_in(other).empty());
  CHECK(checkpoint::save_async(model.m, other, {.files = {}, .buffer = 1_MiB}).wait().number == 1);
  // a copy of the old ones is written
  for (auto& it : model.m.acquire(model.a, cm::access::write, cm::memory_location::host).span()) it = 9.0F;
  folder.set_open(true);
  CHECK(first.wait().number == 1);
  small_model after;
  CHECK(checkpoint::load(after.m, folder).number == 1);
  CHECK(after.holds(3.0F));
}

TEST_CASE("a write on the host, a load and the end of a save let go of what is lent", "[checkpoint]")
{
  gated_folder folder;
  small_model model;
  const auto weight = [&] { return model.m.acquire(model.a, cm::access::read, cm::memory_location::host); };
  {
    auto pending = checkpoint::save_async(model.m, folder, {.files = {}, .buffer = 1_MiB, .lends = true});
    CHECK(pending.wait().number == 1);
  }
  {
    auto pending = checkpoint::save_async(model.m, folder, {.files = {}, .buffer = 1_MiB, .lends = true});
    (void)weight();
    (void)checkpoint::load(model.m, folder);
    pending.detach();
    pending.detach();
    auto moved = std::move(pending);
    pending.detach();  // nothing is there any more
    CHECK(moved.wait().number == 2);
  }
  model.fill(3.0F);
  {
    auto pending = checkpoint::save_async(model.m, folder, {.files = {}, .buffer = 1_MiB, .lends = true});
  }
  model.fill(4.0F);
  small_model after;
  CHECK(checkpoint::load(after.m, folder).number == 3);
  CHECK(after.holds(3.0F));
}

TEST_CASE("a save that lends before the first iteration lets go of weights whose masters are made", "[checkpoint]")
{
  gated_folder folder;
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const std::vector<cm::list_spec> lists{cm::master_list};
  const auto w = m.add<cm::bf16>({16}, cm::role::parameter);
  m.use(lists);
  for (auto& it : m.acquire(w, cm::access::write).span()) it = cm::round_to<cm::bf16>(2.0F);
  auto pending = checkpoint::save_async(m, folder, {.files = {}, .buffer = 1_MiB, .lends = true});
  {
    const auto scope = m.iteration();
    CHECK(cm::to_float(m.acquire(w, cm::access::read).span()[3]) == 2.0F);
  }
  CHECK(pending.wait().number == 1);
}

TEST_CASE("what lies on the device is lent before it has arrived, and nobody waits for its copy", "[checkpoint]")
{
  memory_folder folder;
  arena memory{{.device_capacity = 256_KiB, .host_capacity = 256_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({5000}, cm::role::parameter);
  const auto holds = [](const auto& pin) {
    return std::ranges::all_of(pin.span(), [](float it) { return it == 3.0F; });
  };
  std::ranges::fill(m.acquire(weight, cm::access::write).span(), 3.0F);  // on the device
  std::promise<void> opens;
  memory.launch(cm::agent::to_host, [open = opens.get_future().share()]() noexcept { open.wait(); });
  auto pending = checkpoint::save_async(m, folder, {.files = {}, .buffer = 1_MiB, .lends = true});
  CHECK_FALSE(pending.is_over());
  CHECK(pending.most_buffered() < 1_KiB);  // headers
  opens.set_value();
  CHECK(pending.wait().number == 1);
  CHECK(pending.is_over());
  std::ranges::fill(m.acquire(weight, cm::access::write).span(), 4.0F);
  CHECK(checkpoint::load(m, folder).number == 1);
  CHECK(holds(m.acquire(weight, cm::access::read)));
}

TEST_CASE("a device that is lost under a save ends it with an error", "[checkpoint]")
{
  constexpr int lost = 700;
  int in_wait = 0;
  int saved = 0;
  for (std::uint64_t operation = 1; operation < 60 && saved < 3; ++operation)
    for (const cm::bytes buffer : {4_KiB, 1_MiB}) {
      memory_folder folder;
      support::fake_device memory{{.device_capacity = 256_KiB, .host_capacity = 256_KiB, .seed = operation}};
      memory.runtime().fail_operation(operation, lost);
      cm::manager<support::fake_device, support::every_eviction> m{memory, {.chunk_bytes = 4_KiB}};
      std::vector<cm::tensor<float>> weights;
      for (int index = 0; index < 6; ++index) weights.push_back(m.add<float>({1000}, cm::role::parameter));
      const auto buffer_of_model = m.add<float>({1000}, cm::role::buffer);
      bool has_begun = false;
      try {
        for (const auto& it : weights)
          std::ranges::fill(m.acquire(it, cm::access::write, cm::memory_location::host).span(), 2.0F);
        std::ranges::fill(m.acquire(buffer_of_model, cm::access::write, cm::memory_location::host).span(), 1.0F);
        // now on the device alone
        for (const auto& it : weights) (void)m.acquire(it, cm::access::read_write, cm::agent::compute);
        auto pending = checkpoint::save_async(
            m, folder, {.files = {}, .buffer = buffer, .lends = true, .copying_threads = operation % 2 == 0 ? 2U : 0U});
        has_begun = true;
        saved += pending.wait().number == 1 ? 1 : 0;
      } catch (const cm::device_error&) {
        in_wait += has_begun ? 1 : 0;
        CHECK(folder.names().empty());
      }
    }
  CHECK(in_wait > 0);
  CHECK(saved > 0);
}

}  // namespace borrowed_items_test

namespace background_write_test {

using namespace chunkmem;
using checkpoint::detail::background_write;
using checkpoint::detail::carry_out;
using checkpoint::detail::save_queue;

namespace {

/// A clock of a test. A thread that pauses reads it again and again.
std::atomic<int> seconds{0};
std::atomic<int> reads{0};

save_queue::time now() noexcept
{
  ++reads;
  return save_queue::time{std::chrono::seconds{seconds.load()}};
}

/// The recorded writes.
struct told {
  std::uint64_t headers = 0;
  std::uint64_t files = 0;
  std::vector<std::byte> bytes;

  void begin_file(std::uint64_t header) { headers += header; }
  void write(std::span<const std::byte> content) { bytes.insert(bytes.end(), content.begin(), content.end()); }
  void end_file() { ++files; }
};

}  // namespace

TEST_CASE("what is ordered is written by another thread, which ends behind the commit", "[checkpoint]")
{
  told writer;
  bool is_committed = false;
  const std::vector<std::byte> content(5000, std::byte{7});
  {
    background_write writing{1000};
    writing.start([&] {
      carry_out(writing.queue(), writer, [&](const checkpoint::manifest& rest) { is_committed = rest.run == 5; });
    });
    for (int file = 0; file < 2; ++file) {
      writing.queue().begin_file(8);
      writing.queue().write(content);
      writing.queue().end_file();
    }
    checkpoint::manifest rest;
    rest.run = 5;
    writing.queue().commit(rest);
    writing.queue().close();
    writing.join();
    CHECK(writing.queue().is_over());
    CHECK(writing.queue().failure() == nullptr);
  }
  CHECK(is_committed);
  CHECK(writer.headers == 16);
  CHECK(writer.files == 2);
  CHECK(writer.bytes == std::vector<std::byte>(10000, std::byte{7}));
}

TEST_CASE("one whose orders end too early ends without a commit", "[checkpoint]")
{
  told writer;
  bool is_committed = false;
  {
    background_write writing{1000};
    writing.start(
        [&] { carry_out(writing.queue(), writer, [&](const checkpoint::manifest&) { is_committed = true; }); });
    writing.queue().begin_file(8);
  }
  CHECK_FALSE(is_committed);
}

TEST_CASE("what its thread meets is the failure of its queue, and ends it", "[checkpoint]")
{
  background_write writing{1000};
  writing.start([] { throw std::runtime_error{"the disk is gone"}; });
  writing.join();
  CHECK(writing.queue().is_over());
  CHECK(writing.queue().wait_for_more(1));
  CHECK_THROWS_WITH(std::rethrow_exception(writing.queue().failure()), "the disk is gone");
  CHECK_THROWS_WITH(writing.queue().end_file(), "the disk is gone");
}

TEST_CASE("a save that lends pauses its disk while its manager updates", "[checkpoint]")
{
  checkpoints::small_model it;
  const std::vector<std::byte> content(500, std::byte{7});
  seconds = 0;
  background_write writing{1000, now};
  (void)writing.lend_from(it.m);
  writing.queue().write(content);
  writing.queue().close();
  seconds = 100;
  std::atomic<bool> is_written = false;
  {
    const auto updating = it.m.updates().updating();
    reads = 0;
    writing.start([&] {
      save_queue::order next;
      if (writing.queue().take(next)) writing.queue().written(next);
      is_written = true;
    });
    while (reads < 3 && !is_written) std::this_thread::yield();
    CHECK_FALSE(is_written);
  }
  writing.join();
  CHECK(is_written);
}

}  // namespace background_write_test

namespace save_async_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

TEST_CASE("a save in the background keeps the bits of its moment, whatever is written meanwhile", "[checkpoint]")
{
  for (const cm::bytes buffer : {1_B, 700_B, 64_KiB, 64_MiB}) {
    INFO("buffer of " << buffer.count() << " B");
    temporary_folder place;
    posix_folder folder{place.path()};
    small_model model;
    auto pending = checkpoint::save_async(model.m, folder, {.files = {.file_size = 100_B}, .buffer = buffer});
    model.fill(9.0F);
    const auto saved = pending.wait();
    CHECK(saved.number == 1);
    CHECK(saved.files > 1);
    CHECK(pending.most_buffered() <= std::max(buffer, checkpoint::async_save_options::least_buffer));
    CHECK(pending.wait().number == 1);
    CHECK(model.holds(9.0F));
    small_model after;
    CHECK(checkpoint::load(after.m, folder).number == 1);
    CHECK(after.holds(1.5F));
  }
}

namespace {

/// A folder whose listing blocks until it is released, or for some seconds.
class held_folder : public cm::io::posix_folder {
 public:
  explicit held_folder(const std::string& path) : posix_folder{path} {}
  [[nodiscard]] held_folder again() const { return {posix_folder::again(), gate_}; }
  [[nodiscard]] std::vector<std::string> names() const
  {
    if (is_again_ && gate_->opened.wait_for(std::chrono::seconds{5}) != std::future_status::ready)
      gate_->is_late = true;
    return posix_folder::names();
  }
  void let_go() { gate_->open.set_value(); }
  [[nodiscard]] bool is_late() const { return gate_->is_late; }

 private:
  struct gate {
    std::promise<void> open;
    std::shared_future<void> opened = open.get_future().share();
    std::atomic<bool> is_late = false;
  };

  held_folder(posix_folder&& same, std::shared_ptr<gate> of)
      : posix_folder{std::move(same)}, gate_{std::move(of)}, is_again_{true}
  {
  }

  std::shared_ptr<gate> gate_ = std::make_shared<gate>();
  bool is_again_ = false;
};
static_assert(cm::shareable_folder<held_folder>);

}  // namespace

TEST_CASE("a save in the background begins while the older generations of the last one are read", "[checkpoint]")
{
  checkpoints::temporary_folder place;
  held_folder folder{place.path()};
  checkpoints::small_model model;
  (void)checkpoint::save(model.m, folder);
  auto pending = checkpoint::save_async(model.m, folder, {.files = {.round = 0_B}, .lends = true});
  CHECK_FALSE(folder.is_late());
  folder.let_go();
  CHECK(pending.wait().number == 2);
}

TEST_CASE("a pending save that nobody waits for ends before its folder", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  for (int turn = 0; turn < 3; ++turn) (void)checkpoint::save_async(model.m, folder);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{3, 2});
  auto first = checkpoint::save_async(model.m, folder);
  auto second = std::move(first);
  CHECK_THROWS_AS(first.wait(), cm::usage_error);
  CHECK_THROWS_AS(first.most_buffered(), cm::usage_error);
  CHECK(second.wait().number == 4);
}

TEST_CASE("a save in the background lets as many older generations go before as it is told", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  for (int turn = 0; turn < 2; ++turn) (void)checkpoint::save(model.m, folder);
  (void)checkpoint::finish_save(model.m);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{2, 1});
  auto third = checkpoint::save_async(model.m, folder, {.files = {.keep = 2, .keep_while_writing = 1}});
  CHECK(checkpoint::generations_in(folder).back() == 2);
  CHECK(third.wait().number == 3);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{3, 2});
}

TEST_CASE("a tiny buffer is made one that is worth waking a thread for, and is never exceeded", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 256_KiB}};
  const auto it = m.add<float>({32 << 10}, cm::role::buffer);
  for (float& value : m.acquire(it, cm::access::write).span()) value = 1.0F;
  auto pending = checkpoint::save_async(m, folder, {.files = {}, .buffer = 1_B});
  CHECK(pending.wait().size > 128_KiB);
  CHECK(pending.most_buffered() <= checkpoint::async_save_options::least_buffer);
  CHECK(pending.most_buffered() >= 1_KiB);
}

namespace {

/// A folder that accepts a few writes and then no more.
class full_folder : public posix_folder {
 public:
  class writer : public posix_folder::writer {
   public:
    writer(posix_folder::writer file, int* left) : posix_folder::writer{std::move(file)}, left_{left} {}
    [[nodiscard]] std::size_t write(std::span<const std::byte> content)
    {
      if ((*left_)-- <= 0) throw cm::io::failed("writing", "a file", 28);
      return posix_folder::writer::write(content);
    }

   private:
    int* left_;
  };
  full_folder(const std::string& path, int writes) : posix_folder{path}, left_{writes} {}
  [[nodiscard]] writer create(std::string_view name) { return {posix_folder::create(name), &left_}; }

 private:
  int left_;
};

}  // namespace

TEST_CASE("a full disk is said by the save or by its wait, and the model goes on", "[checkpoint]")
{
  for (const cm::bytes buffer : {64_B, 64_MiB}) {
    temporary_folder place;
    small_model model;
    {
      posix_folder folder{place.path()};
      (void)checkpoint::save(model.m, folder);
    }
    for (int writes = 0; writes < 4; ++writes) {
      full_folder folder{place.path(), writes};
      CHECK_THROWS_AS(checkpoint::save_async(model.m, folder, {.files = {}, .buffer = buffer}).wait(), cm::io_error);
      CHECK(folder.names().size() == 2);  // nothing is left behind
    }
    model.fill(2.0F);
    CHECK(model.holds(2.0F));
    const posix_folder folder{place.path()};
    CHECK(checkpoint::load(model.m, folder).number == 1);
    CHECK(model.holds(1.5F));
  }
}

}  // namespace save_async_test
