// SPDX-License-Identifier: Apache-2.0
// What does a save cost that runs while a rank trains?
//
// A representative rank of each machine trains GPTs on virtual clocks, by the manager and the optimizer steps
// themselves, with updates at once and late ones, on the host and on the device. Between two steps a save lends masters
// of weights and states, as checkpoint::save_async with `lends` does: the same items in the same order, the same pins
// and copies from the device. Updates take their chunks back through the manager's own change_watch. The queue and its
// threads are those of virtual_queue.hpp.
//
// The disk belongs to a node, whose ranks save at the same time. The thread that writes computes the checksum of a
// piece, then writes the piece. The buffer is the memory of a rank's share of the host that its chunks do not use.
// Where the disk takes longer than the products of a step, threads copy ahead: as many as finish within the products,
// and no more than the host's memory feeds.
//
// The overhead of a save is the additional time of the steps from its call on, over the steps that it spans. Each save
// is compared with least_overhead.hpp. Every case counts.
#include "../planner/machine_cases.hpp"
#include "../transfer/planning_figures.hpp"
#include "least_overhead.hpp"
#include "virtual_queue.hpp"

#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/model_writer.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/planner/plan_memory.hpp>
#include <chunkmem/planner/rank_training.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
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
using saving_bench::virtual_queue;

constexpr double bound = 5;                  // points
constexpr double disks[] = {1e9, 3e9, 7e9};  // bytes per second, of a node
constexpr double sums = 13e9;                // bytes per second: 1 GiB in 0.08 s (NOTES.md, "Saves and loads")

/// The times at which a step without a save changes chunks and updates on the host, one after the other. The next steps
/// do the same.
class usual_updates {
 public:
  /// Runs a step and records the times of its updates.
  template <class Step>
  void note(manager_type& m, Step step)
  {
    noted_.clear();
    m_ = &m;
    begin_ = m.backend().now();
    m.content().changes().begin(
        [](void* self, cm::chunk_id) noexcept {
          static_cast<usual_updates*>(self)->see(true);
          static_cast<usual_updates*>(self)->see(false);
        },
        [](void* self, bool begins) noexcept { static_cast<usual_updates*>(self)->see(begins); }, this);
    step();
    m.content().changes().end(this);
    end_ = m.backend().now();
    next_ = 0;
  }
  /// Duration of the next update [ns].
  [[nodiscard]] std::uint64_t lasts() const { return noted_[next_].end - noted_[next_].begin; }
  /// Time from the end of the last update to the next one [ns].
  [[nodiscard]] std::uint64_t until_next() const
  {
    const std::uint64_t before = next_ > 0 ? noted_[next_ - 1].end : begin_;
    return noted_[next_].begin - before;
  }
  /// Called when the next update begins. @return   time from its end to the one after it [ns]
  std::uint64_t go_on()
  {
    const std::uint64_t rest = next_ + 1 < noted_.size() ? 0 : end_ - noted_[next_].end;
    next_ = (next_ + 1) % noted_.size();
    return rest + until_next();
  }

 private:
  struct update {
    std::uint64_t begin;
    std::uint64_t end;
  };

  void see(bool begins)
  {
    const std::uint64_t now = m_->backend().now();
    begins ? noted_.push_back({now, now}) : void(noted_.back().end = now);
  }

  manager_type* m_ = nullptr;
  std::vector<update> noted_;
  std::uint64_t begin_ = 0;  // begin of that step
  std::uint64_t end_ = 0;
  std::size_t next_ = 0;
};

/// checkpoint::detail::lending_writer and background_write, over a virtual queue.
class virtual_save {
 public:
  virtual_save(manager_type& m, virtual_queue& queue, usual_updates& usual)
      : m_{m}, queue_{queue}, usual_{usual}, changing_{m}
  {
    m_.content().changes().begin(
        [](void* save, cm::chunk_id chunk) noexcept { static_cast<virtual_save*>(save)->before_change(chunk); },
        [](void* save, bool begins) noexcept { static_cast<virtual_save*>(save)->update(begins); }, this);
    m_.content().late_updates().watch(
        [](void* save, bool) noexcept { static_cast<virtual_save*>(save)->keep_promises(); }, this);
  }
  virtual_save(const virtual_save&) = delete;
  ~virtual_save()
  {
    m_.content().changes().end(this);
    m_.content().late_updates().end_watch(this);
  }

  void begin_file(std::uint64_t) {}
  void end_file() {}
  void write(std::span<const std::byte> content)
  {
    lends_ ? queue_.lend(content.size(), static_cast<std::uint32_t>(lent_.size() - 1), lent_.back().arrived)
           : queue_.write(content.size());
  }
  template <class Use>
  void with_bytes(manager_type&, const checkpoint::model_item& it, Use use)
  {
    if (it.is_state()) return use(std::span<const std::byte>{it.state});  // a few bytes, which are copied
    lent_.push_back({it.tensor, it.list});
    lend(lent_.back());
    lends_ = true;
    use(std::as_bytes(std::as_const(*lent_.back().pin).span()));
    lends_ = false;
  }
  bool comes_later(manager_type&, const checkpoint::model_item& it)
  {
    if (it.is_state() || !changing_.has(it.tensor, it.list)) return false;
    promised_.push_back(static_cast<std::uint32_t>(lent_.size()));
    lent_.push_back({it.tensor, it.list});
    return true;
  }
  void promise(std::uint64_t, std::uint64_t size)
  {
    queue_.promise(size, static_cast<std::uint32_t>(lent_.size() - 1));
  }

  /// Bytes that were only on the device.
  [[nodiscard]] std::uint64_t from_device() const noexcept { return from_device_; }

 private:
  struct lent_item {
    cm::tensor_handle tensor;
    cm::list_id list;
    std::optional<manager_type::pin_type<const std::uint8_t>> pin{};
    cm::chunk_id chunk{};
    cm::event arrived{};
  };

  void lend(lent_item& it)
  {
    const std::uint64_t before = m_.backend().clock(cm::agent::to_host);
    it.pin.emplace(m_.acquire_beside(it.tensor, it.list, cm::memory_location::host, cm::agent::to_host));
    it.chunk = cm::chunk_id{changing_.chunk_of(it.tensor, it.list)};
    it.arrived = m_.backend().record(cm::agent::to_host);
    if (m_.backend().clock(cm::agent::to_host) > before) from_device_ += it.pin->span().size();
  }
  void keep_promises()
  {
    if (promised_.empty()) return;
    std::erase_if(promised_, [&](std::uint32_t item) {
      lent_item& it = lent_[item];
      if (changing_.has(it.tensor, it.list)) return false;
      lend(it);
      queue_.keep_promise(item, it.arrived);
      return true;
    });
  }

  void update(bool begins)
  {
    const std::uint64_t now = m_.backend().now();
    if (begins) {
      const std::uint64_t lasts = usual_.lasts();
      until_next_ = usual_.go_on();
      queue_.begin_update(now + lasts, now + lasts + until_next_);
    } else {
      queue_.end_update(now + until_next_);
    }
  }
  void before_change(cm::chunk_id chunk)
  {
    update(true);
    for (std::uint32_t item = 0; item < lent_.size(); ++item) {
      if (!lent_[item].pin || (chunk != cm::chunk_id::none && lent_[item].chunk != chunk)) continue;
      m_.backend().wait(cm::agent::host, lent_[item].arrived);
      queue_.take_back(item);
      lent_[item].pin.reset();
    }
    update(false);
  }

  manager_type& m_;
  virtual_queue& queue_;
  usual_updates& usual_;
  checkpoint::detail::changing_chunks<manager_type> changing_;
  std::vector<lent_item> lent_;
  std::vector<std::uint32_t> promised_;  // of lent_
  std::uint64_t from_device_ = 0;
  std::uint64_t until_next_ = 0;  // the next update, from the end of the current one [ns]
  bool lends_ = false;
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
  saving_bench::save_case its;
  saving_bench::least_save least;
  double passes_seconds = 0;  ///< the products of a step
  std::uint32_t copying_threads = 0;
  double steps = 0;
  double overhead = 0;  ///< [%]
  double copied = 0;    ///< [B]

  [[nodiscard]] double points() const { return overhead - least.overhead; }
  /// The seconds of the save above the least seconds, over the steps of the least save [%]: a save over more steps is
  /// not divided by them.
  [[nodiscard]] double seconds_above() const
  {
    return 100 * (overhead / 100 * steps - least.overhead / 100 * least.steps) / least.steps;
  }
};

/// A rank that trains until its steps repeat.
class rank {
 public:
  rank(const question& it, const cm::planner::rank_settings& settings)
      : share_{it.share},
        groups_{cm::planner::groups_of(it.shape, {.micro_batch = it.micro_batch}, it.share, settings)},
        script_{groups_, cm::workload::training_setup{}.recomputes_layers,
                it.share.rates.device_flops_per_second * settings.reached_share, settings.gather_units},
        training_{groups_, script_, it.share, settings, cm::planner::capacities_of(it.share, settings)},
        copying_{cm::planner::costs_of(it.share, settings).within_host},
        updates_late_{settings.updates_late}
  {
    const std::uint64_t chunks = training_.rehearse().chunks.count();
    training_.fill();
    for (int step = 0; step < 8; ++step) training_.step();
    for (cm::agent& each : threads_) each = training_.engine().backend().adopt();
    const std::uint64_t host = cm::planner::capacities_of(it.share, settings)[cm::tier::host].count();
    spare_ = host - std::min(host, chunks);
  }

  answer save(double disk)
  {
    constexpr int until_repeated = 4;  // steps
    answer found = steps_without();
    const std::uint64_t begin = compute_clock();
    manager_type& m = training_.engine();
    checkpoint::manager_content content{m};
    content.prepare_to_save(true);
    content.collect();
    content.sort_by_change();
    const auto& items = content.items();
    const checkpoint::save_plan plan =
        checkpoint::plan_of(items, cm::bytes{std::uint64_t{4} << 30}, checkpoint::rest_of(m));
    std::uint64_t size = 0;
    for (const auto& file : plan.files)
      for (const auto& entry : file) size += entry.size();
    found.its.bytes = static_cast<double>(size);
    found.its.writing = 1 / (share_.of_node / disk + 1 / sums);
    found.copying_threads = copying_threads_for(found);
    virtual_queue queue{m.backend(),
                        threads_[0],
                        threads_[1],
                        {found.its.writing, std::min(spare_, size), found.copying_threads, copying_}};
    {
      virtual_save saving{m, queue, usual_};
      checkpoint::model_writer{m, plan}.write(saving);
      queue.close(m.backend().now() + usual_.until_next());
      do {
        training_.step();
        ++found.steps;
      } while (queue.end() > std::max(compute_clock(), m.backend().now()));
      found.its.on_device = static_cast<double>(saving.from_device());
    }
    for (int step = 0; step < until_repeated; ++step) training_.step();
    const double usual = found.steps * found.its.step;
    found.overhead = 100 * (seconds_since(begin) - usual - until_repeated * found.its.step) / usual;
    found.copied = static_cast<double>(queue.copied());
    found.least = saving_bench::least_overhead_of(found.its);
    return found;
  }

 private:
  [[nodiscard]] std::uint64_t compute_clock() const { return training_.clocks().clock(cm::agent::compute); }
  [[nodiscard]] double seconds_since(std::uint64_t begin) const
  {
    return static_cast<double>(compute_clock() - begin) * 1e-9;
  }
  /// The number of threads that copy within the passes the bytes that the disk does not write there, and no more than
  /// host memory feeds.
  [[nodiscard]] std::uint32_t copying_threads_for(const answer& found) const
  {
    const double left = found.its.bytes - found.its.writing * found.passes_seconds;
    if (left <= 0) return 0;
    const double wanted = left / (copying_.bytes_per_second * found.passes_seconds);
    const double most = share_.rates.host_memory_bytes_per_second / (2 * copying_.bytes_per_second);
    return static_cast<std::uint32_t>(std::max(1.0, std::floor(std::min(std::ceil(wanted), most))));
  }
  /// A case whose save is not simulated yet.
  [[nodiscard]] answer steps_without()
  {
    constexpr int steps = 4;
    const std::uint64_t begin = compute_clock();
    for (int step = 0; step < steps; ++step) usual_.note(training_.engine(), [this] { training_.step(); });
    answer made;
    for (const auto& it : training_.timeline().computing)
      made.passes_seconds += static_cast<double>(it.nanoseconds) * 1e-9;
    made.its.step = seconds_since(begin) / steps;
    made.its.spare = static_cast<double>(spare_);
    made.its.host_memory = share_.rates.host_memory_bytes_per_second;
    const auto& last = training_.timeline();
    if (updates_late_) made.its.forward = static_cast<double>(last.backward - last.begin) * 1e-9;
    made.its.from_device = share_.rates.to_host_bytes_per_second;
    constexpr double update_bytes = cm::optimizer::listed_states{}.update_bytes();  // of Adam
    for (const auto& it : training_.timeline().copies) made.its.step_bytes += static_cast<double>(it.bytes);
    for (const auto& it : training_.timeline().updating) {
      if (it.place != cm::memory_location::host) continue;
      const double bytes =
          static_cast<double>(it.nanoseconds) * 1e-9 * share_.rates.host_updates_per_second * update_bytes;
      made.its.step_bytes += bytes;  // a norm, which reads only the gradient, also takes the time of its bytes
      if (it.end - it.access_index > 1) made.its.update_bytes += bytes;
    }
    return made;
  }

  cm::workload::rank_share share_;
  cm::planner::parameter_groups groups_;
  cm::planner::training_script script_;
  training_type training_;
  cm::backend::link_cost copying_;
  bool updates_late_;
  usual_updates usual_;
  std::uint64_t spare_ = 0;
  cm::agent threads_[2]{};  // for writing and for copying
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
  } catch (const cm::config_error&) {
    return {};  // no room for the step
  }
}

std::vector<question> questions(const std::string& only)
{
  std::vector<question> all;
  const auto add = [&](const std::string& machine, const char* model, const auto& shape, const auto& share) {
    for (const std::uint64_t batch : {1U, 4U, 16U}) all.push_back({machine, model, shape, share, batch});
  };
  bench::for_each_machine({"GPT2_1B", "GPT3_10B", "GPT3_18B"}, only, add);
  return all;
}

struct totals {
  int cases = 0;
  int without_room = 0;
  int above = 0;
  double worst = -100;
  double worst_seconds = -100;  // [%]
  double worst_overhead = 0;

  void add(const answer& found)
  {
    ++cases;
    above += found.points() > bound ? 1 : 0;
    worst = std::max(worst, found.points());
    worst_seconds = std::max(worst_seconds, found.seconds_above());
    worst_overhead = std::max(worst_overhead, found.overhead);
  }
};

void ask(const question& it, double device_update_share, bool late, totals& all)
{
  std::optional<rank> one = rank_of(it, device_update_share, late);
  if (!one) {
    std::printf("%-18s %-8s %2d %3.0f %-5s does not fit\n", it.machine.c_str(), it.model.c_str(),
                static_cast<int>(it.micro_batch), device_update_share, late ? "late" : "");
    all.without_room += static_cast<int>(std::size(disks));
    return;
  }
  for (const double disk : disks) {
    const answer found = one->save(disk);
    std::printf(
        "%-18s %-8s %2d %3.0f %-5s %1.0f | %7.3f %7.2f %7.2f %7.3f %7.3f | %2d %6.2f %4.0f %4.0f | %7.2f %7.2f "
        "%7.2f%s\n",
        it.machine.c_str(), it.model.c_str(), static_cast<int>(it.micro_batch), device_update_share, late ? "late" : "",
        disk * 1e-9, found.its.bytes / found.its.writing, found.its.bytes * 1e-9, found.its.spare * 1e-9,
        found.passes_seconds, found.its.step, static_cast<int>(found.copying_threads), found.copied * 1e-9, found.steps,
        found.least.steps, found.overhead, found.least.overhead, found.points(),
        found.points() > bound ? " above" : "");
    std::fflush(stdout);
    all.add(found);
  }
}

}  // namespace

int main(int count, char** arguments)
{
  const std::string only = count > 1 ? arguments[1] : "";
  std::printf("%-18s %-8s %2s %3s %-5s %1s | %7s %7s %7s %7s %7s | %2s %6s %4s %4s | %7s %7s %7s\n", "machine", "model",
              "mb", "dev", "", "d", "save s", "GB", "room GB", "passes", "step s", "th", "copied", "n", "min", "over %",
              "least", "points");
  totals all;
  for (const question& it : questions(only))
    for (const double share : {0.0, 1.0})
      for (const bool late : {false, true}) ask(it, share, late, all);
  std::printf(
      "%d saves, %d more have no room for their steps: at most %.2f points above the least overhead, %d of them above "
      "%.0f; over the steps of the least save alone at most %.2f %%; the greatest overhead is %.2f %%\n",
      all.cases, all.without_room, all.worst, all.above, bound, all.worst_seconds, all.worst_overhead);
  if (all.cases == 0) return 1;
  if (count > 1) return 0;
  return transfer_bench::write_figures("overlapped_save_bench", {{"checkpoint.save_overhead_above_least_worst_points",
                                                                  all.worst, "points", "<=", bound}});
}
