// SPDX-License-Identifier: Apache-2.0
// What does a save cost that goes on while a rank trains?
//
// A representative rank of each machine trains GPTs on virtual clocks, by the manager and the optimizer steps
// themselves. Between two steps a save lends weights' masters and states, as checkpoint::save_async with `lends` does:
// the same items in the same order, the same pins and copies from the device, the same moment at which an update takes
// them back. The disk is an agent of the backend with a rate of its own. What is not written when the first update
// comes is copied into one buffer, as far as it fits, and the rest is waited for.
//
// The overhead is that of the steps during which the disk writes, over as many without a save. The bound is for disks
// that write a save within the products of one step, decided before anything was seen, with a buffer of 256 MiB, states
// on the host or on the device. Shown beside it: slower disks, where an update waits for what is not written; a buffer
// for a whole save, where it waits for copies in memory alone; and trainings whose updates are late, which a save has
// to finish first.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/model_writer.hpp>
#include <chunkmem/planner/plan_memory.hpp>
#include <chunkmem/planner/rank_training.hpp>
#include <chunkmem/workload/machine_file.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace cm = chunkmem;
namespace checkpoint = cm::checkpoint;
using training_type = cm::planner::rank_training<>;
using manager_type = training_type::manager_type;

constexpr double bound = 5;  // %
constexpr cm::bytes small_buffer{std::uint64_t{256} << 20};
constexpr cm::bytes no_bound{UINT64_MAX};
constexpr double disks[] = {1e9, 3e9, 7e9};  // bytes per second, of each rank

/// A disk that writes what a manager lends it, in virtual time: checkpoint::detail::save_queue without bytes.
class virtual_disk {
 public:
  virtual_disk(manager_type& m, cm::agent stream, double rate, const cm::backend::link_cost& copying, cm::bytes buffer)
      : m_{m}, stream_{stream}, rate_{rate}, copying_{copying}, buffer_{buffer.count()}
  {
    m_.backend().wait(stream_, m_.backend().record(cm::agent::host));  // a save begins when it is asked for
  }

  void begin_file(std::uint64_t) {}
  void end_file() {}
  void write(std::span<const std::byte> content)
  {
    constexpr std::uint64_t most = std::uint64_t{4} << 20;
    for (std::uint64_t left = content.size(); left > 0; left -= std::min(left, most)) {
      const std::uint64_t size = std::min(left, most);
      m_.backend().advance(stream_, static_cast<std::uint64_t>(static_cast<double>(size) / rate_ * 1e9),
                           cm::bytes{size});
      pieces_.push_back({size, m_.backend().record(stream_)});
      all_ += size;
    }
  }
  template <class Use>
  void with_bytes(manager_type& m, const checkpoint::model_item& it, Use use)
  {
    if (it.is_state()) return use(std::span<const std::byte>{it.state});  // a few bytes, which are copied
    pins_.push_back(
        m.acquire_bytes(it.tensor, it.list, cm::access::read, cm::memory_location::host, cm::agent::to_host));
    m_.backend().wait(stream_, m_.backend().record(cm::agent::to_host));
    use(std::as_bytes(std::as_const(pins_.back()).span()));
  }

  /// As save_queue::take_back: the last pieces are copied, as far as there is room, and the others waited for.
  void let_go()
  {
    cm::backend::simulated& backend = m_.backend();
    while (!pieces_.empty() && pieces_.front().written.value <= backend.clock(cm::agent::host)) pieces_.pop_front();
    while (!pieces_.empty() && copied_ + pieces_.back().size <= buffer_) {
      copied_ += pieces_.back().size;
      backend.advance(cm::agent::host, copying_.nanoseconds_for(cm::bytes{pieces_.back().size}),
                      2 * cm::bytes{pieces_.back().size});
      pieces_.pop_back();
    }
    if (!pieces_.empty()) backend.wait(cm::agent::host, pieces_.back().written);
    pieces_.clear();
    pins_.clear();
  }
  [[nodiscard]] std::uint64_t all() const { return all_; }
  [[nodiscard]] std::uint64_t copied() const { return copied_; }
  [[nodiscard]] bool is_done() const { return m_.backend().clock(stream_) <= m_.backend().clock(cm::agent::compute); }

 private:
  struct piece {
    std::uint64_t size;
    cm::event written;
  };

  manager_type& m_;
  cm::agent stream_;
  double rate_;
  cm::backend::link_cost copying_;
  std::uint64_t buffer_;
  std::deque<piece> pieces_;
  std::vector<manager_type::pin_type<const std::uint8_t>> pins_;
  std::uint64_t all_ = 0;
  std::uint64_t copied_ = 0;
};

struct question {
  std::string machine;
  std::string model;
  cm::workload::transformer_shape shape;
  cm::workload::rank_share share;
  std::uint64_t micro_batch;
};

/// One save, and the steps during which it was written.
struct answer {
  double disk_seconds = 0;
  double passes_seconds = 0;  ///< the products of a step
  double step_seconds = 0;    ///< without a save
  std::uint64_t steps = 0;
  double overhead = 0;  ///< [%]
  std::uint64_t copied = 0;

  [[nodiscard]] bool counts() const { return disk_seconds <= passes_seconds; }
};

/// A rank that trains until its steps repeat.
class rank {
 public:
  rank(const question& it, const cm::planner::rank_settings& settings)
      : groups_{it.shape,
                {.micro_batch = it.micro_batch},
                cm::planner::own_elements(settings.chunk_elements) * it.share.ranks},
        script_{groups_, cm::workload::training_setup{}.recomputes_layers,
                it.share.rates.device_flops_per_second * settings.reached_share, settings.gather_units},
        training_{groups_, script_, it.share, settings, cm::planner::capacities_of(it.share, settings)},
        copying_{cm::planner::costs_of(it.share, settings).within_host}
  {
    (void)training_.rehearse();
    training_.fill();
    for (int step = 0; step < 8; ++step) training_.step();
    disk_ = training_.engine().backend().adopt();
  }

  answer save(double rate, cm::bytes buffer)
  {
    answer result;
    result.step_seconds = seconds_of(4) / 4;
    for (const auto& it : training_.timeline().computing)
      result.passes_seconds += static_cast<double>(it.nanoseconds) * 1e-9;
    manager_type& m = training_.engine();
    const auto items = checkpoint::content_of(m);
    const checkpoint::save_plan plan =
        checkpoint::plan_of(items, cm::bytes{std::uint64_t{4} << 30}, checkpoint::rest_of(m, items));
    virtual_disk disk{m, disk_, rate, copying_, buffer};
    checkpoint::model_writer{m, plan}.write(disk);
    m.content().changes().begin(
        [](void* context, cm::chunk_id) noexcept { static_cast<virtual_disk*>(context)->let_go(); }, &disk);
    double taken = 0;
    do {
      taken += seconds_of(1);
      ++result.steps;
    } while (!disk.is_done());
    disk.let_go();  // late updates may not have come yet
    m.content().changes().end(&disk);
    result.disk_seconds = static_cast<double>(disk.all()) / rate;
    result.overhead = 100 * (taken / (static_cast<double>(result.steps) * result.step_seconds) - 1);
    result.copied = disk.copied();
    (void)seconds_of(4);  // until steps repeat again
    return result;
  }

 private:
  [[nodiscard]] double seconds_of(int steps)
  {
    const std::uint64_t begin = training_.clocks().clock(cm::agent::compute);
    for (int step = 0; step < steps; ++step) training_.step();
    return static_cast<double>(training_.clocks().clock(cm::agent::compute) - begin) * 1e-9;
  }

  cm::planner::parameter_groups groups_;
  cm::planner::training_script script_;
  training_type training_;
  cm::backend::link_cost copying_;
  cm::agent disk_{};
};

std::optional<rank> rank_of(const question& it, double device_update_share, bool late)
{
  constexpr std::uint64_t least_chunks = 40;
  const std::uint64_t own = cm::workload::parameters_of(it.shape) / it.share.ranks;
  cm::planner::rank_settings settings;
  settings.chunk_elements = std::clamp(std::uint64_t{32} << 20, own / (4 * least_chunks), own / (least_chunks + 8));
  settings.takes_norm = true;
  settings.updates_late = late;
  settings.device_update_share = device_update_share;
  settings.gather_units = 4;
  // states on the host
  if (cm::bytes{14} * own > cm::planner::capacities_of(it.share, settings)[cm::tier::host]) return {};
  try {
    return std::optional<rank>{std::in_place, it, settings};
  } catch (const cm::error&) {
    return {};  // it does not fit
  }
}

std::vector<question> questions(const std::string& only)
{
  std::vector<std::filesystem::path> files;
  for (const auto& it : std::filesystem::directory_iterator{CHUNKMEM_MACHINES}) files.push_back(it.path());
  std::ranges::sort(files);
  std::vector<question> all;
  for (const auto& file : files)
    for (const char* const model : {"GPT2_1B", "GPT3_10B", "GPT3_18B"}) {
      if ((file.stem().string() + " " + model).find(only) == std::string::npos) continue;
      const auto share = cm::workload::share_of_rank(cm::workload::read_machine(file.string()));
      for (const std::uint64_t batch : {1U, 4U, 16U})
        all.push_back({file.stem().string(), model, cm::workload::shape_of("PatrickStar", model), share, batch});
    }
  return all;
}

/// What was found for the bound.
struct worst_of {
  int cases = 0;
  double overhead = 0;
  double most_copied = 0;

  void add(const answer& found)
  {
    most_copied = std::max(most_copied, static_cast<double>(found.copied));
    if (!found.counts()) return;
    ++cases;
    overhead = std::max(overhead, found.overhead);
  }
};

void ask(const question& it, double device_update_share, worst_of& worst)
{
  std::optional<rank> one = rank_of(it, device_update_share, false);
  if (!one) return;
  std::optional<rank> late = rank_of(it, device_update_share, true);
  for (const double rate : disks) {
    const answer found = one->save(rate, small_buffer);
    const answer roomy = one->save(rate, no_bound);
    std::printf("%-20s %-9s %5d %6.0f %5.0f | %8.3f %8.3f %8.3f | %5d %7.2f%% %4.0f MiB | %5d %7.2f%% |",
                it.machine.c_str(), it.model.c_str(), static_cast<int>(it.micro_batch), device_update_share,
                rate * 1e-9, found.disk_seconds, found.passes_seconds, found.step_seconds,
                static_cast<int>(found.steps), found.overhead, static_cast<double>(found.copied) / 1048576,
                static_cast<int>(roomy.steps), roomy.overhead);
    if (late) std::printf(" %7.2f%%", late->save(rate, small_buffer).overhead);
    std::printf("%s\n", found.counts() ? "" : "  (a slow disk)");
    std::fflush(stdout);
    worst.add(found);
  }
}

}  // namespace

int main(int count, char** arguments)
{
  const std::string only = count > 1 ? arguments[1] : "";
  std::printf("%-20s %-9s %5s %6s %5s | %8s %8s %8s | %23s | %14s | %8s\n", "machine", "model", "batch", "device",
              "GB/s", "save [s]", "products", "step", "steps, over, copied", "room for all", "late");
  worst_of worst;
  for (const question& it : questions(only))
    for (const double share : {0.0, 1.0}) ask(it, share, worst);
  std::printf("%d saves that a disk writes within the products of a step: the worst costs %.2f %% of its steps\n",
              worst.cases, worst.overhead);
  if (worst.cases == 0) return 1;
  if (count > 1) return 0;
  return transfer_bench::write_figures(
      "overlapped_save_bench", {{"checkpoint.async_step_overhead_percent", worst.overhead, "%", "<=", bound},
                                {"checkpoint.staging_buffers_peak",
                                 worst.most_copied / static_cast<double>(small_buffer.count()), "buffers", "<=", 1}});
}
