// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_options.hpp>
#include <chunkmem/checkpoint/save_queue.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/own_process.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// Pins of a manager's items that a save still reads, for any type of manager.
class borrowed_pins {
 public:
  virtual ~borrowed_pins() = default;
  /// Waits until all bytes have arrived on the host. For the thread of the manager, as the next call. @throws
  /// device_error   some bytes will not arrive
  virtual void wait() = 0;
  /// Waits until the bytes of this chunk have arrived. @throws as `wait`
  virtual void wait_for(chunk_id chunk) = 0;
  /// Whether bytes of this chunk are pinned.
  [[nodiscard]] virtual bool has(chunk_id chunk) const noexcept = 0;
  /// Ends the pins of a chunk, once its bytes are written or copied. @pre wait_for(chunk)
  virtual void take_back(chunk_id chunk) noexcept = 0;
  /// Whether bytes wait for late updates.
  [[nodiscard]] virtual bool has_promises() const noexcept = 0;
  /// Whether `wait` may do the late updates that promised bytes wait for. Ranks may not.
  [[nodiscard]] virtual bool may_update() const noexcept = 0;
  /// Does the late updates that promised bytes wait for. @pre may_update() @throws as these: call again
  virtual void finish_updates() = 0;
  /// Late updates were done: lends the promised bytes that no waiting update changes any more.
  virtual void keep_promises() noexcept = 0;
  /// Promised bytes will never be there: the save fails.
  virtual void break_promises() noexcept = 0;
  /// The save was given up: nothing waits for promised bytes.
  virtual void forget_promises() noexcept = 0;
};

/// Hands a model to a queue:
///
/// - Bytes that only a step changes (weights, masters, states) are lent in their place on the host. They stay pinned
///   there for reading.
/// - Bytes that an update still has to change, of a step that the save includes, are promised. They are lent after all
///   updates of their chunk.
/// - Bytes on the device are on their way to the host when they are lent. The calling thread waits for no copy: the
///   agent of a copy tells the queue that the bytes have arrived.
/// - Bytes that the host has no room for are copied immediately, and so are all other bytes. Where such bytes were
///   promised, they are tried again after later updates, and copied after the last one.
template <class Manager>
class lending_writer final : public borrowed_pins {
 public:
  /// @param may_update   see borrowed_pins
  lending_writer(Manager& m, std::shared_ptr<save_queue> queue, bool may_update = true)
      : m_{m}, queue_{std::move(queue)}, changing_{m}, may_update_{may_update}
  {
    // on all ranks until their updates are done, also where a rank has nothing to write
    if (!may_update_) m_.content().late_updates().read_behind(m_.updates_pending() != 0);
  }

  void wait() override
  {
    if (may_update_) {
      finish_updates();
      expects(promised_.empty(), "a background save waits for late updates that are never done (a fault of chunkmem)");
    }
    m_.backend().wait(agent::host, last_);
  }
  void wait_for(chunk_id chunk) override
  {
    if (!has(chunk)) return;
    m_.backend().wait(agent::host, lent_[first_[index_of(chunk)]].arrived);  // the last of the chunk
  }

  [[nodiscard]] bool has(chunk_id chunk) const noexcept override
  {
    return index_of(chunk) < first_.size() && first_[index_of(chunk)] != none;
  }
  void take_back(chunk_id chunk) noexcept override
  {
    if (!has(chunk)) return;
    for (std::size_t& index = first_[index_of(chunk)]; index != none; index = lent_[index].next) {
      queue_->take_back(lent_[index].number);
      lent_[index].pin.reset();
    }
  }

  void begin_file(std::uint64_t header) { queue_->begin_file(header); }
  void write(std::span<const std::byte> content)
  {
    if (lends_) return queue_->lend(content, lent_.back().number);
    if (!queue_->has_room(content.size())) wait();  // a thread that makes room waits for no lost device
    queue_->write(content);
  }
  void end_file() { queue_->end_file(); }

  void with_bytes(Manager& m, const model_item& item, call_ref<void(std::span<const std::byte>)> use)
  {
    if (!item.is_weight_or_list()) return detail::with_bytes(m, item, access::read, use);
    add(item);
    try {
      pin(lent_.size() - 1);
    } catch (const out_of_memory&) {
      lent_.pop_back();
      return detail::with_bytes(m, item, access::read, use);
    }
    lends_ = true;
    use(std::as_bytes(std::as_const(*lent_.back().pin).span()));
    lends_ = false;
  }
  /// Whether a late update changes the chunk of this item. Then `promise` follows.
  [[nodiscard]] bool comes_later(Manager&, const model_item& item)
  {
    if (!item.is_weight_or_list() || !changing_.has(item.tensor, item.list)) return false;
    add(item);
    promised_.push_back(lent_.size() - 1);
    m_.content().late_updates().read_behind(true);
    return true;
  }
  void promise(std::uint64_t offset, std::uint64_t size) { queue_->promise(offset, size, lent_.back().number); }

  [[nodiscard]] bool has_promises() const noexcept override { return !promised_.empty(); }
  [[nodiscard]] bool may_update() const noexcept override { return may_update_; }
  void finish_updates() override
  {
    if (!promised_.empty()) m_.updates().finish_updates();
  }
  void keep_promises() noexcept override
  {
    if (promised_.empty()) return end_promises();
    try {
      std::erase_if(promised_, [&](std::size_t index) {
        return !changing_.has(lent_[index].tensor, lent_[index].list) && lend_promised(index);
      });
      if (m_.updates_pending() == 0)
        for (const std::size_t index : std::exchange(promised_, {})) copy_promised(lent_[index]);
    } catch (...) {
      refuse(std::current_exception());
    }
    end_promises();
  }
  void break_promises() noexcept override
  {
    if (promised_.empty()) return;
    refuse(std::make_exception_ptr(
        usage_error{"a background save waited for late updates that a load discarded (wait for the save before)"}));
    m_.content().late_updates().read_behind(false);
  }
  void forget_promises() noexcept override { promised_.clear(); }

 private:
  using pin_type = decltype(std::declval<Manager&>().acquire_beside(tensor_handle{}, list_id{}, memory_location::host,
                                                                    agent::to_host));

  static constexpr std::size_t none = SIZE_MAX;

  struct lent_item {
    tensor_handle tensor;
    list_id list;
    std::uint64_t number;           // in the queue
    std::optional<pin_type> pin{};  // none: promised, or taken back
    std::size_t next = none;        // the one before it in its chunk
    event arrived{};
  };

  void add(const model_item& item)
  {
    const std::uint32_t chunk = changing_.chunk_of(item.tensor, item.list);
    if (chunk >= first_.size()) first_.resize(chunk + std::size_t{1}, none);
    lent_.push_back({item.tensor, item.list, queue_->add_item()});
  }
  /// @return   the place where the bytes will be @throws as pins
  std::span<const std::byte> pin(std::size_t index)
  {
    lent_item& it = lent_[index];
    it.pin.emplace(m_.acquire_beside(it.tensor, it.list, memory_location::host, agent::to_host));
    m_.backend().launch(agent::to_host, [queue = queue_, number = it.number]() noexcept { queue->arrive(number); });
    it.arrived = last_ = m_.backend().record(agent::to_host);
    it.next = std::exchange(first_[changing_.chunk_of(it.tensor, it.list)], index);
    return std::as_bytes(std::as_const(*it.pin).span());
  }

  /// @return   false: the host has no room
  bool lend_promised(std::size_t index)
  {
    try {
      queue_->keep_promise(pin(index), lent_[index].number);
      return true;
    } catch (const out_of_memory&) {
      return false;
    }
  }
  /// Copies the bytes from where the thread can read them without room on the host.
  void copy_promised(const lent_item& it)
  {
    constexpr memory_location place =
        Manager::engine_type::host_addressable ? memory_location::device : memory_location::host;
    const pin_type held = m_.acquire_beside(it.tensor, it.list, place, agent::host);
    queue_->keep_promise(std::as_bytes(held.span()), it.number);
    queue_->arrive(it.number);
    queue_->take_back(it.number);
  }
  void end_promises() noexcept
  {
    if (promised_.empty() && (may_update_ || m_.updates_pending() == 0)) m_.content().late_updates().read_behind(false);
  }
  void refuse(std::exception_ptr why) noexcept
  {
    promised_.clear();
    queue_->refuse(std::move(why));
  }

  Manager& m_;
  std::shared_ptr<save_queue> queue_;  // work on the device's copies may outlive a save that failed
  std::vector<lent_item> lent_;
  std::vector<std::size_t> first_;  // by chunk: of those with a pin
  std::vector<std::size_t> promised_;
  changing_chunks<Manager> changing_;
  event last_{};
  const bool may_update_;
  bool lends_ = false;  // the bytes that are written now
};

/// Carries out the orders of a queue, until none follows. @param commit   `commit(manifest)`: all was handed over
template <class Writer, class Commit>
void carry_out(save_queue& queue, Writer& writer, Commit commit)
{
  for (save_queue::order next; queue.take(next); queue.written(next)) {
    switch (next.what) {
      case save_queue::kind::begin_file: writer.begin_file(next.header); break;
      case save_queue::kind::bytes: writer.write(next.bytes()); break;
      case save_queue::kind::end_file: writer.end_file(); break;
      case save_queue::kind::commit: commit(std::move(next.rest));
    }
  }
}

/// Threads that write and copy while their trainer goes on, and the pins of the bytes that they read in a manager. The
/// threads end with the last order. In a forked child they do not exist: destroying this there leaves all files to the
/// parent.
class background_write {
 public:
  /// @param bound   of the queue's copies [B]   @param now   as save_queue
  explicit background_write(std::uint64_t bound, save_queue::clock now = &std::chrono::steady_clock::now)
      : queue_(std::make_shared<save_queue>(bound, now))
  {
  }
  background_write(const background_write&) = delete;
  ~background_write()
  {
    if (!threads_.is_owner()) {
      if (unwatch_) unwatch_();
      return;
    }
    (*queue_)->close();
    join();
    detach();
  }

  /// @throws usage_error   this is a forked child; the same for the next call
  [[nodiscard]] save_queue& queue()
  {
    expect_own_process();
    return **queue_;
  }
  [[nodiscard]] const save_queue& queue() const
  {
    expect_own_process();
    return **queue_;
  }
  void expect_own_process() const { threads_.expect_owner("a background save"); }
  /// Stops: bytes that are not written yet are not written any more.
  void cancel() noexcept
  {
    if (!threads_.is_owner()) return;
    (*queue_)->cancel();
    if (*borrowed_ != nullptr) (*borrowed_)->forget_promises();
  }

  /// Runs `work()` once, on a thread of its own. An exception of `work()` is the failure of the queue.
  /// @param copying   number of further threads, which copy lent bytes ahead
  /// @throws io_error   a thread could not be started
  template <class Work>
  void start(Work work, std::uint32_t copying = 0)
  {
    try {
      threads_->reserve(copying + std::size_t{1});
      threads_->emplace_back([this, work = std::move(work)]() mutable noexcept {
        try {
          work();
        } catch (...) {
          (*queue_)->fail(std::current_exception());
        }
        (*queue_)->end();
      });
      for (std::uint32_t each = 0; each < copying; ++each)
        threads_->emplace_back([this]() noexcept { (*queue_)->copy_ahead(); });
    } catch (const std::system_error& refused) {
      throw io_error{error_text{} << "chunkmem: starting the thread of a background save failed: system error "
                                  << static_cast<std::uint64_t>(refused.code().value())
                                  << " (raise the limit of threads, or call checkpoint::save)",
                     {.number = refused.code().value()}};
    }
  }
  /// A target for a model_writer of this manager. It reads the bytes of weights and states in their place, until they
  /// are about to change.
  /// @param may_update   see borrowed_pins
  /// @throws usage_error   another save already does
  template <class Manager>
  [[nodiscard]] lending_writer<Manager>& lend_from(Manager& m, bool may_update = true)
  {
    auto borrowed = std::make_unique<lending_writer<Manager>>(m, *queue_, may_update);
    lending_writer<Manager>& to = *borrowed;
    *borrowed_ = std::move(borrowed);
    unwatch_ = [&m, this] {
      m.content().changes().end(this);
      m.content().late_updates().end_watch(this);
    };
    m.content().changes().begin(
        [](void* context, chunk_id chunk) noexcept { static_cast<background_write*>(context)->before_change(chunk); },
        [](void* context, bool begins) noexcept { static_cast<background_write*>(context)->update(begins); }, this);
    m.content().late_updates().watch(
        [](void* context, bool is_lost) noexcept { static_cast<background_write*>(context)->after_updates(is_lost); },
        this);
    return to;
  }
  /// Does the late updates that promised bytes wait for. @pre the save is of a manager @throws as these: call again
  void finish_updates()
  {
    if (borrowed_.is_owner() && *borrowed_ != nullptr) (*borrowed_)->finish_updates();
  }
  /// Whether bytes wait for late updates.
  [[nodiscard]] bool has_promises() const noexcept
  {
    return borrowed_.is_owner() && *borrowed_ != nullptr && (*borrowed_)->has_promises();
  }
  /// Waits until lent bytes have arrived, or the queue knows that they will not: no wait is for a lost device.
  void settle() noexcept { settle(chunk_id::none); }
  /// Call this before bytes of this chunk change: they are written or copied, and unpinned. None: all chunks.
  void before_change(chunk_id chunk) noexcept
  {
    if (chunk == chunk_id::none) return detach();
    if (!borrowed_.is_owner() || *borrowed_ == nullptr || !(*borrowed_)->has(chunk)) return;
    update(true);
    settle(chunk);
    (*borrowed_)->take_back(chunk);
    update(false);
  }
  /// An update begins, or ends. The disk pauses meanwhile.
  void update(bool begins) noexcept
  {
    if (!threads_.is_owner()) return;
    begins ? (*queue_)->begin_update() : (*queue_)->end_update();
  }
  /// Notes that late updates of a chunk were done. @param is_lost   none was done, and none will be
  void after_updates(bool is_lost) noexcept
  {
    if (!borrowed_.is_owner() || *borrowed_ == nullptr) return;
    is_lost ? (*borrowed_)->break_promises() : (*borrowed_)->keep_promises();
    if (detaches_ && !has_promises()) detach();
  }
  /// Stops reading and pinning bytes of the manager. Waits where the buffer is full. Where promised bytes wait for
  /// updates of all ranks, the last of these updates makes this call instead.
  void detach() noexcept
  {
    if (!borrowed_.is_owner() || *borrowed_ == nullptr) return;
    detaches_ = has_promises() && !(*borrowed_)->may_update();
    if (detaches_) return;
    settle();
    (*queue_)->take_back();
    unwatch_();
    borrowed_->reset();
  }
  /// Waits until all orders are written, or failed. The queue was closed, or its last order is the commit.
  void join() noexcept
  {
    settle();
    if (!threads_.is_owner()) return;
    for (std::thread& it : *threads_) it.join();
    threads_->clear();
  }

 private:
  void settle(chunk_id chunk) noexcept
  {
    if (!borrowed_.is_owner() || *borrowed_ == nullptr) return;
    try {
      chunk == chunk_id::none ? (*borrowed_)->wait() : (*borrowed_)->wait_for(chunk);
    } catch (...) {
      (*queue_)->refuse(std::current_exception());
    }
  }

  process_owned<std::shared_ptr<save_queue>> queue_;
  process_owned<std::unique_ptr<borrowed_pins>> borrowed_;
  std::function<void()> unwatch_;
  bool detaches_ = false;  // behind the last promise
  process_owned<std::vector<std::thread>> threads_;
};

}  // namespace detail

/// The options of a save in the background.
///
///     pending_save saving = save_async(m, folder, {.files = {.keep = 3}, .lends = true});
struct async_save_options {
  static constexpr bytes least_buffer{4096};  ///< with less, threads wake each other for every few bytes

  save_options files{};
  bytes buffer{std::uint64_t{256} << 20};  ///< copies that wait for the disk, at most; `least_buffer` where it is less
  /// weights and states are written from their place on the host, where they are pinned until an update or a write
  /// needs them: see save_async
  bool lends = false;
  /// threads that copy lent bytes into the buffer ahead of updates; 0: an update copies its bytes itself. For saves
  /// that the disk does not finish within forward and backward: see save_async
  std::uint32_t copying_threads = 0;
};

namespace detail {

/// Writes files of a generation, and syncs them now and then, so that no single sync takes long.
template <class Part>
class syncing_part {
 public:
  /// @param round   between two syncs [B]
  syncing_part(Part& part, std::uint64_t round) : part_{part}, round_{round} {}

  void begin_file(std::uint64_t header)
  {
    part_.begin_file(header);
    since_ = 0;
  }
  void write(std::span<const std::byte> content)
  {
    part_.write(content);
    since_ += content.size();
    if (since_ < round_) return;
    part_.sync();
    since_ = 0;
  }
  void end_file() { part_.end_file(); }

 private:
  Part& part_;
  std::uint64_t round_;
  std::uint64_t since_ = 0;
};

/// A save that was started, for any type of model and of folder. All ranks make the calls of `is_over` and `end`.
class started_save {
 public:
  virtual ~started_save() = default;
  /// Its threads.
  [[nodiscard]] virtual background_write& writing() noexcept = 0;
  /// Whether `end` would not wait for a disk. @throws comm_error
  [[nodiscard]] virtual bool is_over() = 0;
  /// Ends the save: the generation exists. Called again, this returns or throws the same.
  [[nodiscard]] virtual saved_generation end() = 0;
};

/// The save of a model in the background. A manager commits on the thread that writes. Ranks commit together in `end`.
template <class Model, file_folder Folder>
class started_model_save final : public started_save {
 public:
  started_model_save(Model& model, Folder& folder, const async_save_options& options)
      : model_{model},
        options_{options},
        buffer_{std::max(options.buffer, async_save_options::least_buffer)},
        saving_{model, folder, options.files},
        writing_{buffer_.count()}
  {
  }
  ~started_model_save() override
  {
    if constexpr (!is_manager<Model>) writing_.cancel();
  }

  /// Returns when all bytes are lent, or copied, or written.
  void start()
  {
    model_save<Model, Folder>& saving = *saving_;
    saving.prepare(options_.lends ? buffer_ : bytes{});
    collective::all_or_none(saving.ranks(), [&] {
      expects(options_.buffer.count() > 0, "a checkpoint in the background without a buffer");
    });
    saving.begin();
    saving.make_room();
    if constexpr (!is_manager<Model>) saving.older().find();
    lending_writer<std::remove_reference_t<decltype(saving.manager())>>* lent = nullptr;
    collective::all_or_none(saving.ranks(), [&] {
      writing_.start([this] { run(); }, options_.lends ? options_.copying_threads : 0);
      if (options_.lends) lent = &writing_.lend_from(saving.manager(), is_manager<Model>);
    });
    const auto nothing = [] {};
    lent != nullptr ? saving.hand_over(*lent, nothing) : saving.hand_over(writing_.queue(), nothing);
    saving.belong();
    collective::all_or_none(saving.ranks(), [&] { writing_.queue().commit({}); });
    writing_.queue().close();
  }

  [[nodiscard]] background_write& writing() noexcept override { return writing_; }
  [[nodiscard]] bool is_over() override
  {
    const save_queue& queue = writing_.queue();
    if (result_ || failed_ != nullptr) return true;
    if constexpr (is_manager<Model>) {
      return queue.is_over();
    } else {
      enum : std::uint64_t { goes_on, over, failed };
      const std::vector<std::uint64_t> all =
          collective::words_of_all(saving_->ranks(), queue.failure() != nullptr ? failed
                                                     : queue.is_over()          ? over
                                                                                : goes_on);
      return std::ranges::count(all, std::uint64_t{failed}) > 0 || std::ranges::count(all, std::uint64_t{goes_on}) == 0;
    }
  }
  [[nodiscard]] saved_generation end() override
  {
    writing_.expect_own_process();
    if (failed_ != nullptr) std::rethrow_exception(failed_);
    if (result_) return *result_;
    finish_updates();  // a failed update is no failure of the save
    try {
      wait_for_files();
      if constexpr (!is_manager<Model>) {
        saving_->commit();
        written_ = saving_->finish();
      }
    } catch (...) {
      failed_ = std::current_exception();
      stop();
      throw;
    }
    return *(result_ = written_);
  }

 private:
  /// On the thread that writes.
  void run()
  {
    model_save<Model, Folder>& saving = *saving_;
    const struct ending {
      model_save<Model, Folder>& saving;
      ~ending()
      {
        if constexpr (is_manager<Model>) saving.close();
      }
    } closes{saving};
    syncing_part files{saving.part(), is_manager<Model> ? UINT64_MAX : options_.files.round.count()};
    carry_out(writing_.queue(), files, [&](const manifest&) {
      saving.part().finish();
      if constexpr (is_manager<Model>) {
        saving.commit_files();
        written_ = saving.saved();
        written_.clean_up = saving.older().remove(written_.number);
      } else {
        saving.older().check_own_part([&](std::uint64_t read) { writing_.queue().progress(read); });
      }
    });
  }
  /// Does late updates that the save waits for, over ranks on all of them.
  void finish_updates()
  {
    if constexpr (is_manager<Model>)
      writing_.finish_updates();
    else
      (void)model_.finish_updates_unless([this] { return !writing_.has_promises(); });
  }
  /// Ranks exchange their progress, so that no rank waits for long.
  void wait_for_files()
  {
    save_queue& queue = writing_.queue();
    writing_.settle();
    while (!collective::agreed(saving_->ranks(), [&] {
      const bool is_over = queue.wait_for_more(is_manager<Model> ? UINT64_MAX : options_.files.round.count());
      if (const std::exception_ptr failed = queue.failure(); failed != nullptr) std::rethrow_exception(failed);
      return is_over;
    })) {
    }
    writing_.join();
    writing_.detach();
  }
  void stop() noexcept
  {
    writing_.cancel();
    writing_.join();
    writing_.detach();
    saving_->close();
  }

  Model& model_;
  async_save_options options_;
  bytes buffer_;
  std::optional<saved_generation> result_;  // of `end`
  std::exception_ptr failed_;               // what it threw
  saved_generation written_;
  process_owned<model_save<Model, Folder>> saving_;
  background_write writing_;  // last: its thread uses the others
};

}  // namespace detail

/// A save that goes on while its trainer does. It ends with `wait`. The model outlives it. A forked child may destroy
/// the object, which changes no file; every other call there is a usage_error.
///
///     pending_save save = save_async(m, folder);
///     while (!save.is_over()) step();
///     const saved_generation saved = save.wait();  // throws what the save threw
///
/// - The save of a manager ends with this object too: its error is then lost.
/// - Over ranks there is no generation without `wait`. Every rank makes the same calls, except `detach` and
///   `most_buffered`, at the same places between its other calls.
class pending_save {
 public:
  pending_save(pending_save&&) noexcept = default;
  pending_save& operator=(pending_save&&) = delete;

  /// For save_async.
  template <class Model, file_folder Folder>
  [[nodiscard]] static pending_save start(Model& model, Folder& folder, const async_save_options& options)
  {
    auto started = std::make_unique<detail::started_model_save<Model, Folder>>(model, folder, options);
    started->start();
    return pending_save{std::move(started)};
  }

  /// Stops reading and pinning bytes of the model. Late updates that the save waits for are done; where one fails, the
  /// save fails. Bytes that are not written yet are copied, and the call waits for bytes that do not fit in the buffer.
  /// A load makes this call itself; an update does the same for its own chunks. Ranks exchange nothing. Where the save
  /// waits for late updates of ranks, the call does nothing yet, and the last of these updates makes it again.
  void detach() noexcept
  {
    if (save_ != nullptr) save_->writing().detach();
  }
  [[deprecated("use detach")]] void let_go() noexcept { detach(); }
  /// Whether the files are written, or failed: `wait` would not wait for a disk. False while the save needs late
  /// updates: the next step does them, or `wait`. Over ranks: whether the files of all ranks are written, or one rank
  /// failed; one exchange of a word. @throws comm_error
  [[nodiscard]] bool is_over() const
  {
    expects(save_ != nullptr, "is_over of a pending save that was moved from");
    return save_->is_over();
  }
  /// Waits until the generation exists. Called again, this returns or throws the same.
  /// @throws io_error   the folder did not take all bytes; older generations are untouched, except those that
  ///   `keep_while_writing` removed. std::bad_alloc, out_of_memory, device_error   likewise, the latter two where lent
  ///   bytes cannot be brought to the host. usage_error   likewise: a load discarded late updates that the save waited
  ///   for. Over ranks on every rank, and as save. As late_updates::finish, and usage_error where that object is gone:
  ///   the save goes on, call again
  saved_generation wait()
  {
    expects(save_ != nullptr, "wait of a pending save that was moved from");
    return save_->end();
  }
  /// The most copies that waited at once, on this rank.
  [[nodiscard]] bytes most_buffered() const
  {
    expects(save_ != nullptr, "most_buffered of a pending save that was moved from");
    return bytes{save_->writing().queue().most_held()};
  }

 private:
  explicit pending_save(std::unique_ptr<detail::started_save> started) : save_{std::move(started)} {}

  std::unique_ptr<detail::started_save> save_;
};

/// Saves a checkpoint in the background: as `save`, with a thread of its own that writes the files. Returns when all
/// bytes that are not yet written fit in `buffer`.
///
/// The saved bytes are those of the call: later training does not change them. With a buffer for the whole model the
/// trainer waits only for copies in memory. One save at a time: wait for the last one before the next. A folder with
/// locks refuses the next one. The folder has to outlive the returned object.
///
/// Use:
///
///     auto saving = checkpoint::save_async(m, folder, {.lends = true});
///     train_one_step(m);  // the files are written meanwhile
///     saving.wait();      // the generation is there, or this throws
///
/// With `lends`:
///
/// - The call returns immediately. The writing thread reads weights, masters and states in their place on the host,
///   while the next iteration runs forward and backward. Pins keep them there.
/// - Before an update, or a write on the host, changes a chunk, the bytes of this chunk that are not written yet are
///   copied into the buffer. This waits for the disk where the buffer is full. Other chunks stay lent.
/// - Items are written in the order in which the last iteration changed them, so that the first updates find their
///   items written: see model_content.
/// - Late updates stay late. The bytes of a chunk are taken after its updates, in the next forward pass, and the files
///   are those of a save that finishes the updates first. After the first step, whose updates make states, the updates
///   are finished first. Frozen weights and buffers are copied immediately.
/// - A write of the trainer does late updates that the save waits for.
/// - While an update runs on the host, or takes its chunk back, the disk pauses: it writes no copies, so that the
///   update has the host's memory bandwidth for itself. It pauses where the buffer has room for all bytes that are
///   still lent, for at most nine tenths of the time. Where updates are most of a step, give a `buffer` for the whole
///   model.
/// - With `copying_threads` such copies are made ahead, while forward and backward run, as far as the buffer has room.
///   Where the disk would finish in time the copies are useless: three times the traffic in host memory.
/// - Good for hosts that have room for all chunks: pinned chunks cannot make room for others.
/// - While bytes of a chunk are lent, it is not written on the device, not even by a gradient (`usage_error`), and
///   captured steps are not replayed.
/// - Only one save at a time lends from a manager (`usage_error`).
///
/// Over ranks:
///
/// - A thread of each rank writes its files, and reads older generations.
/// - Every rank calls `wait`, at the same place between its other calls. There the ranks agree that all files are
///   written, rank 0 writes the manifest, and older generations are removed.
/// - Each rank has a `buffer`. A rank whose buffer is full waits for its disk before its update, and the other ranks
///   for this rank in their next exchange. That has to take less than the deadline of their group.
/// - Items have one order on all ranks, with `lends` too.
/// - No rank does late updates alone. They are finished first on all ranks where the buffer of one rank has no room for
///   all bytes that are copied in the call, and where several ranks have one share that the device updates.
///
/// @throws as `save`, with io_error also where its thread cannot be started; `wait` throws later errors of the disk
template <class Model, file_folder Folder>
[[nodiscard]] pending_save save_async(Model& model, Folder& folder, const async_save_options& options = {})
{
  return pending_save::start(model, folder, options);
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
