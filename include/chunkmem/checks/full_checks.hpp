// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/byte_poison.hpp>
#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

// From the run-time library of the address sanitizer; not referred to where a program is built without it.
extern "C" void __asan_poison_memory_region(const volatile void* begin, std::size_t size);
extern "C" void __asan_unpoison_memory_region(const volatile void* begin, std::size_t size);

namespace chunkmem::inline v0 {

namespace checks {

/// The line of the caller's program that made a call. As a defaulted last parameter it names the place of the call.
///
///     const auto where = [](const call_place& from = call_place{}) { return from.line; };
///     std::cout << where() << '\n';  // the number of this line
///
/// Not `std::source_location`, which clang 14 lacks.
struct call_place {
  const char* file = nullptr;
  unsigned line = 0;

  explicit constexpr call_place(const char* from = __builtin_FILE(),
                                unsigned index = static_cast<unsigned>(__builtin_LINE())) noexcept
      : file{from}, line{index}
  {
  }
};

/// For a sentence: "trainer.cpp:12", without folders.
inline error_text& operator<<(error_text& text, const call_place& place) noexcept
{
  const std::string_view path{place.file};
  const std::size_t slash = path.rfind('/');
  return text << path.substr(slash == std::string_view::npos ? 0 : slash + 1) << ":" << std::uint64_t{place.line};
}

/// Which thread is inside of a manager, and in which call: a second thread is refused.
///
///     caller_guard callers;
///     const auto inside = callers.enter("acquire");  // throws where another thread is inside
///
/// Threads may alternate. A call within a call of the same thread is no second caller.
/// Cost: one exchange of an atomic for each outermost call. @threads   any
class caller_guard {
 public:
  /// A call that goes on; the outermost one of its thread lets others in when it ends.
  class scope {
   public:
    scope() = default;
    explicit scope(caller_guard* guard) noexcept : guard_{guard} {}
    scope(scope&& other) noexcept : guard_{std::exchange(other.guard_, nullptr)} {}
    scope& operator=(scope&&) = delete;
    /// Whether no other call of the same thread encloses this one.
    [[nodiscard]] bool is_outermost() const noexcept { return guard_ != nullptr; }
    ~scope()
    {
      if (guard_ != nullptr) guard_->leave();
    }

   private:
    caller_guard* guard_ = nullptr;
  };

  /// @param call   a literal
  /// @throws usage_error   another thread is inside
  [[nodiscard]] scope enter(const char* call)
  {
    const void* other = nullptr;
    if (inside_.compare_exchange_strong(other, this_thread(), std::memory_order_acquire)) {
      call_.store(call, std::memory_order_relaxed);
      return scope{this};
    }
    if (other == this_thread()) return {};
    const char* const theirs = call_.load(std::memory_order_relaxed);
    throw usage_error{
        error_text{} << "chunkmem: the manager was called by two threads at once: " << std::string_view{call}
                     << ", while another thread is in " << std::string_view{theirs == nullptr ? "another call" : theirs}
                     << " (one caller at a time: guard the manager with a mutex, or give each thread its own)"};
  }

  /// The same where nothing may be thrown: waits until the other thread has left.
  /// @param waited   becomes true where it had to wait
  [[nodiscard]] scope wait_to_enter(const char* call, bool& waited) noexcept
  {
    waited = false;
    for (const void* other = nullptr; !inside_.compare_exchange_strong(other, this_thread(), std::memory_order_acquire);
         other = nullptr) {
      if (other == this_thread()) return {};
      waited = true;
      inside_.wait(other, std::memory_order_relaxed);
    }
    call_.store(call, std::memory_order_relaxed);
    return scope{this};
  }

 private:
  void leave() noexcept
  {
    call_.store(nullptr, std::memory_order_relaxed);
    inside_.store(nullptr, std::memory_order_release);
    inside_.notify_all();
  }
  /// An address that no other thread has. `<thread>` is not for headers that everybody includes.
  [[nodiscard]] static const void* this_thread() noexcept
  {
    static thread_local const char mark = 0;
    return &mark;
  }

  std::atomic<const void*> inside_{nullptr};
  std::atomic<const char*> call_{nullptr};
};

/// Whether the beta of each gradient of a step was read, and the gradient was written whole.
///
///     gradient_watch watch;
///     watch.reset(1);
///     watch.opened(0, content, dtype::float32, true, true);
///     watch.asked(0);                                                            // its beta was read
///     const unwritten_count left = watch.unwritten(0, content, dtype::float32);  // all elements: none was written
///
/// The first opening of a gradient in a step marks every element as unwritten; an element that still has the mark later
/// was not written. Numbers and bytes only: this class knows no manager.
class gradient_watch {
 public:
  void reset(std::size_t parameters)
  {
    asked_.assign(parameters, 1);
    has_marks_.assign(parameters, false);
  }

  /// Notes a pin on the gradient. @param first   of this step: the elements are undefined
  void opened(std::uint32_t parameter, std::span<std::byte> content, dtype type, bool first, bool has_beta) noexcept
  {
    asked_[parameter] = has_beta ? 0 : 1;
    if (!first) return;
    has_marks_[parameter] = true;
    fill_as_unwritten(content, type);
  }
  /// Notes that the beta was read. @threads   any: several may write one gradient
  void asked(std::uint32_t parameter) noexcept
  {
    std::atomic_ref<std::uint8_t> known{asked_[parameter]};
    if (known.load(std::memory_order_relaxed) == 0) known.store(1, std::memory_order_relaxed);
  }
  [[nodiscard]] bool was_asked(std::uint32_t parameter) const noexcept { return asked_[parameter] != 0; }

  /// @return   elements that were not written since the gradient's first opening in this step
  [[nodiscard]] unwritten_count unwritten(std::uint32_t parameter, std::span<const std::byte> content,
                                          dtype type) noexcept
  {
    if (!has_marks_[parameter]) return {};
    const unwritten_count found = count_unwritten(content, type);
    has_marks_[parameter] = found.elements > 0;
    return found;
  }
  /// Forgets a gradient that was dropped, used up or loaded.
  void forget(std::uint32_t parameter) noexcept
  {
    asked_[parameter] = 1;
    has_marks_[parameter] = false;
  }

  /// Allows this tensor to have no gradient in a step. @throws std::bad_alloc
  void allow_none(std::uint32_t tensor)
  {
    if (!may_lack(tensor)) allowed_.push_back(tensor);
  }
  [[nodiscard]] bool may_lack(std::uint32_t tensor) const noexcept
  {
    return std::find(allowed_.begin(), allowed_.end(), tensor) != allowed_.end();
  }

 private:
  std::vector<std::uint8_t> asked_;  // by parameter: since its last opening
  std::vector<bool> has_marks_;      // by parameter: elements may have the mark
  std::vector<std::uint32_t> allowed_;
};

/// The bytes of the arenas that may be accessed: those of live pins and leases. All others are poisoned for the address
/// sanitizer.
///
///     guarded_bytes guard;
///     guard.add_arena(arena);
///     guard.open(arena.first(1'024));   // a pin begins
///     guard.close(arena.first(1'024));  // and ends: the sanitizer reports the next access
///
/// Where a program is built with the sanitizer, it reports a read after a release, a write past a tensor into its
/// neighbour, and a use of free frames and gaps. Elsewhere only the intervals are kept. Cost: O(log open pins) for each
/// pin, and the sanitizer's own 1/8 of the bytes.
class guarded_bytes {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool is_guarding = true;
#elif defined(__has_feature)
  static constexpr bool is_guarding = __has_feature(address_sanitizer);
#else
  static constexpr bool is_guarding = false;
#endif

  guarded_bytes() = default;
  guarded_bytes(const guarded_bytes&) = delete;
  ~guarded_bytes() { forget(); }

  /// Guards these bytes, which become an arena.
  /// @throws std::bad_alloc
  void add_arena(std::span<std::byte> arena)
  {
    if (arena.empty()) return;
    arenas_[arena.data()] = arena.size();
    guard(arena.data(), arena.size());
  }
  /// The arenas end: nothing is guarded, and nothing is open.
  void forget() noexcept
  {
    for (const auto& [begin, size] : arenas_) release(begin, size);
    arenas_.clear();
    open_.clear();
  }

  /// Begins a pin or lease on these bytes. @throws std::bad_alloc   nothing was opened
  void open(std::span<std::byte> content)
  {
    if (content.empty()) return;
    auto& it = open_[content.data()];
    it.size = std::max(it.size, content.size());
    ++it.holders;
    release(content.data(), content.size());
  }
  /// Ends a pin or lease on these bytes.
  void close(std::span<std::byte> content) noexcept
  {
    const auto it = open_.find(content.data());
    if (it == open_.end() || --it->second.holders > 0) return;
    guard(content.data(), it->second.size);
    open_.erase(it);
  }

  /// Opens these bytes for a copy of the library, until `take_back`.
  void lend(std::span<const std::byte> content) noexcept { release(content.data(), content.size()); }
  void take_back(std::span<const std::byte> content) noexcept
  {
    if constexpr (!is_guarding) return;
    const std::byte* const end = content.data() + content.size();
    guard(content.data(), content.size());
    auto it = open_.lower_bound(content.data());
    if (it != open_.begin() && std::prev(it)->first + std::prev(it)->second.size > content.data()) --it;
    for (; it != open_.end() && it->first < end; ++it) release(it->first, it->second.size);
  }

  /// Whether a live pin or lease holds this byte.
  [[nodiscard]] bool is_open(const std::byte* place) const noexcept
  {
    auto it = open_.upper_bound(place);
    if (it == open_.begin()) return false;
    --it;
    return place < it->first + it->second.size;
  }

 private:
  struct interval {
    std::size_t size = 0;
    std::uint32_t holders = 0;
  };

  static void guard([[maybe_unused]] const std::byte* begin, [[maybe_unused]] std::size_t size) noexcept
  {
    if constexpr (is_guarding) __asan_poison_memory_region(begin, size);
  }
  static void release([[maybe_unused]] const std::byte* begin, [[maybe_unused]] std::size_t size) noexcept
  {
    if constexpr (is_guarding) __asan_unpoison_memory_region(begin, size);
  }

  std::map<const std::byte*, std::size_t> arenas_;
  std::map<const std::byte*, interval> open_;
};

/// Keeps mistakes that were found where nothing may be thrown, such as the end of a pin, until they can be thrown.
///
///     mistake_note mistakes;
///     mistakes.add(error_text{} << "chunkmem: a pin ended on another thread");  // where nothing may be thrown
///     mistakes.raise();                                                         // later
///
/// The first one is kept as a sentence, since others often follow from it; the rest are counted. No allocation.
class mistake_note {
 public:
  void add(const error_text& sentence) noexcept
  {
    if (count_++ == 0) first_ = sentence;
  }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// @throws usage_error   the first mistake that was noted; all are forgotten
  void raise()
  {
    if (count_ == 0) [[likely]]
      return;
    const std::uint64_t more = std::exchange(count_, 0) - 1;
    if (more > 0) first_ << " [and " << more << " more that were found since]";
    throw usage_error{std::exchange(first_, {})};
  }

 private:
  error_text first_;
  std::uint64_t count_ = 0;
};

/// The checksum of each tensor while it must not change: while pins only read it, and while no pin holds it.
///
///     pinned_cells cells;
///     cells.reset(1);
///     cells.pinned(0, content, false, from);
///     const bool is_fine = cells.released(0, content, true) == pinned_cells::finding::fine;
///
/// A cell is the bytes of a tensor in one list. A gradient that lies in its weight's bytes has the weight's cell.
/// Cost: one pass over the bytes for each first pin and each last release. This class knows no manager.
class pinned_cells {
 public:
  /// The mistake with a cell, if any.
  enum class finding : std::uint8_t { fine, written_through_read, written_unpinned };

  void reset(std::size_t cells) { cells_.assign(cells, {}); }

  /// Begins a pin. @pre   `compare` was called where the bytes were not pinned and must not have changed
  void pinned(std::uint32_t index, std::span<const std::byte> content, bool writes, const call_place& from) noexcept
  {
    cell& it = cells_[index];
    if (it.pins++ == 0) it.writers = false;
    it.from = from;
    if (writes)
      it.writers = true, it.known = false;
    else if (!it.writers && !it.known)
      it.know(sum_of_bytes(content));
  }

  /// Ends a pin. @param retained   these bytes must not change until the next pin
  [[nodiscard]] finding released(std::uint32_t index, std::span<const std::byte> content, bool retained) noexcept
  {
    cell& it = cells_[index];
    finding found = finding::fine;
    if (!it.writers && it.known && it.sum != sum_of_bytes(content)) {
      found = finding::written_through_read;
      it.know(sum_of_bytes(content));  // told once
    }
    if (--it.pins > 0) return found;
    if (!retained)
      it.known = false;
    else if (!it.known)
      it.know(sum_of_bytes(content));
    return found;
  }

  /// Compares bytes that no pin holds. @param content   a valid copy of the cell
  [[nodiscard]] finding compare(std::uint32_t index, std::span<const std::byte> content) noexcept
  {
    cell& it = cells_[index];
    if (it.pins > 0 || !it.known || it.sum == sum_of_bytes(content)) return finding::fine;
    it.known = false;  // told once
    return finding::written_unpinned;
  }

  /// Forgets a checksum: the bytes are dead, or a permitted write changed them.
  void forget(std::uint32_t index) noexcept { cells_[index].known = false; }
  void forget_all() noexcept
  {
    for (cell& it : cells_) it.known = false;
  }

  [[nodiscard]] bool is_pinned(std::uint32_t index) const noexcept { return cells_[index].pins > 0; }
  /// Whether a cell without a pin has a checksum.
  [[nodiscard]] bool is_watched(std::uint32_t index) const noexcept
  {
    return cells_[index].known && cells_[index].pins == 0;
  }
  /// The place of the call that acquired its last pin.
  [[nodiscard]] const call_place& last_pin(std::uint32_t index) const noexcept { return cells_[index].from; }

 private:
  struct cell {
    std::uint64_t sum = 0;
    std::uint32_t pins = 0;
    bool known = false;    ///< the sum is that of the bytes
    bool writers = false;  ///< one of the pins since the first may write
    call_place from{"", 0};

    void know(std::uint64_t of) noexcept { sum = of, known = true; }
  };

  std::vector<cell> cells_;
};

/// Finds mistakes of a trainer that neither the compiler nor a usage_error finds. See checks::full.
///
///     full_checks checks;
///     checks.attach(about);
///     const auto inside = checks.enter("acquire", call_place{});  // throws what was noted since the last call
///
/// A mistake that shows where nothing may be thrown, at the end of a pin or while a chunk leaves, is noted; the next
/// call of the manager throws it. The error names the tensor, its list and the line that acquired the last pin.
class full_checks {
 public:
  using place_type = call_place;

  void attach(const surroundings& about) noexcept { about_ = about; }

  /// Begins a public call, on any thread. @throws usage_error   a mistake was noted, or another thread is inside
  [[nodiscard]] caller_guard::scope enter(const char* call, const call_place& from)
  {
    caller_guard::scope inside = callers_.enter(call);
    if (inside.is_outermost()) {  // a call within a call is the library's own
      now_ = from;
      mistakes_.raise();
    }
    return inside;
  }
  /// Begins the end of a pin or lease, which may be within a call. Waits for another thread that is inside, and notes
  /// that as a mistake.
  [[nodiscard]] caller_guard::scope enter_release() noexcept
  {
    bool waited = false;
    caller_guard::scope inside = callers_.wait_to_enter("the end of a pin", waited);
    if (waited)
      mistakes_.add(error_text{} << "chunkmem: a pin ended on one thread while another was inside of the manager"
                                    " (one caller at a time: guard the manager and its pins with a mutex)");
    return inside;
  }
  /// @throws usage_error   a mistake was noted
  void expect_no_mistake() { mistakes_.raise(); }
  /// Adds the place of a call to the details of an error.
  static void tell_place(error_text& text, const call_place& from) noexcept { text << "called at " << from; }

  // Bytes.

  void reset(std::uint32_t slots, std::uint32_t parameters)
  {
    cells_.reset(slots);
    gradients_.reset(parameters);
  }
  void add_arena(std::span<std::byte> arena) { guarded_.add_arena(arena); }
  void forget_arenas() noexcept { guarded_.forget(); }

  /// Begins a pin. Bytes with undefined content are poisoned. @throws std::bad_alloc   nothing was changed
  void pinned(const pin_event& pin)
  {
    settle();
    guarded_.open(pin.content);
    if (pin.how == access::write && !cells_.is_pinned(pin.cell)) fill_with_poison(pin.content);
    cells_.pinned(pin.cell, pin.content, writes(pin.how), now_);
  }
  void released(const pin_event& pin) noexcept
  {
    settle();
    if (cells_.released(pin.cell, pin.content, pin.retained) == pinned_cells::finding::written_through_read) {
      error_text text = begin_with("a pin that reads ");
      describe(pin.slot, text);
      mistakes_.add(text << " was written through; the last pin was acquired at " << cells_.last_pin(pin.cell)
                         << " (acquire it with access::read_write)");
    }
    guarded_.close(pin.content);
  }
  [[nodiscard]] bool is_watched(std::uint32_t cell) const noexcept { return cells_.is_watched(cell); }
  /// Compares a valid copy of a cell that no pin holds.
  void compare(const pin_event& copy) noexcept
  {
    settle();
    if (cells_.compare(copy.cell, copy.content) == pinned_cells::finding::fine) return;
    error_text text = begin_with("bytes of ");
    describe(copy.slot, text);
    mistakes_.add(
        text << " changed while no pin held them; the last pin was acquired at " << cells_.last_pin(copy.cell)
             << " (keep the pin as long as its pointer is used, and write no element past the end of a tensor)");
  }
  void forget(std::uint32_t cell) noexcept { cells_.forget(cell); }
  void forget_all() noexcept { cells_.forget_all(); }

  /// Poisons bytes that were not written yet, or are dead.
  void fresh(std::span<std::byte> content) noexcept
  {
    settle();
    fill_with_poison(content);
  }
  void leased(std::span<std::byte> content)
  {
    guarded_.open(content);
    fresh(content);
  }
  void lease_ended(std::span<std::byte> content) noexcept
  {
    fresh(content);
    guarded_.close(content);
  }
  /// Opens these bytes for the manager's own copies until `take_back`, which waits for them.
  void lend(std::span<std::byte> content) noexcept { guarded_.lend(content); }
  void take_back(std::span<std::byte> content) noexcept
  {
    settle();
    guarded_.take_back(content);
  }

  // Gradients.

  void gradient_opened(const gradient_event& of, bool first, bool has_beta) noexcept
  {
    if (!of.content.empty()) settle();
    gradients_.opened(of.parameter, of.content, of.type, first, has_beta);
  }
  void beta_read(std::uint32_t parameter) noexcept { gradients_.asked(parameter); }
  /// @param before   the operation that is about to use the gradient, for the message
  /// @throws usage_error   its beta was not read, or elements were not written
  void expect_written(const gradient_event& of, std::string_view before)
  {
    if (!gradients_.was_asked(of.parameter)) {
      error_text text = begin_with(before);
      text << ": the beta() of ";
      describe(of.slot, text);
      throw usage_error{text << " was not read (beta 0: overwrite every element; beta 1: add to it)"};
    }
    if (!of.content.empty()) settle();
    const unwritten_count found = gradients_.unwritten(of.parameter, of.content, of.type);
    if (found.elements == 0) return;
    error_text text = begin_with(before);
    text << ": " << found.elements << " of " << std::uint64_t{of.content.size() / size_of(of.type)} << " elements of ";
    describe(of.slot, text);
    throw usage_error{text << " were never written, the first one is " << found.first
                           << " (where beta is 0 write every element, zeros too)"};
  }
  void gradient_gone(std::uint32_t parameter) noexcept { gradients_.forget(parameter); }
  void allow_no_gradient(std::uint32_t tensor) { gradients_.allow_none(tensor); }
  [[nodiscard]] bool may_lack_gradient(std::uint32_t tensor) const noexcept { return gradients_.may_lack(tensor); }

  /// Mistakes that the next call will throw.
  [[nodiscard]] std::uint64_t noted() const noexcept { return mistakes_.count(); }
  [[nodiscard]] const guarded_bytes& guarded() const noexcept { return guarded_; }

 private:
  [[nodiscard]] static error_text begin_with(std::string_view words) noexcept
  {
    return error_text{} << "chunkmem: " << words;
  }
  void describe(std::uint32_t slot, error_text& text) const noexcept
  {
    if (about_.describe != nullptr)
      about_.describe(about_.manager, slot, text);
    else
      text << "slot " << std::uint64_t{slot};
  }
  void settle() const noexcept
  {
    if (about_.settle != nullptr) about_.settle(about_.manager);
  }

  surroundings about_;
  caller_guard callers_;
  mistake_note mistakes_;
  call_place now_{"", 0};  // of the call that is going on
  pinned_cells cells_;
  guarded_bytes guarded_;
  gradient_watch gradients_;
};

/// For debugging: finds silent mistakes of a trainer, and names the tensor, the place and the remedy.
///
///     manager<backend::host_arena, checks::full> m{memory};
///     m.verify();  // throws what was found
///
/// Finds: writes through a pin that reads; bytes that change while no pin holds them; elements of a gradient that were
/// never written; a beta that was never read; parameters without a gradient at an optimizer's step; a second thread
/// inside of the manager. Bytes that were never written, of leases that ended, and dropped bytes are NaN. With the
/// address sanitizer every access to bytes that no pin or lease holds is reported where it happens. Good while a
/// trainer is written, and in its tests. Poor for training: copies overlap nothing, and each pin costs two passes over
/// its bytes. Results have the same bits. Bytes are checked where the calling thread can read the device tier.
struct full {
  using policy_kind = checks_kind;
  static constexpr std::string_view name = "full";
  static constexpr bool is_on = true;
  using part = full_checks;
};

static_assert(check_policy<full>);

}  // namespace checks

}  // namespace chunkmem::inline v0
