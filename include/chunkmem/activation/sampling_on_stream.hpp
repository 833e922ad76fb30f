// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/row_choice.hpp>
#include <chunkmem/activation/sampling_kernels.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// No launcher: the calling thread samples. See sampled_input.
struct by_calling_thread {};

namespace detail {

/// The layout of one run of device memory.
class room_plan {
 public:
  /// @return   offset of the room for `count` numbers [B]
  template <class Number>
  std::uint64_t take(std::uint64_t count) noexcept
  {
    const std::uint64_t begin = size_;
    size_ += (count * sizeof(Number) + alignment - 1) / alignment * alignment;
    return begin;
  }
  [[nodiscard]] bytes size() const noexcept { return bytes{size_}; }

 private:
  static constexpr std::uint64_t alignment = 256;  // as cudaMalloc's
  std::uint64_t size_ = 0;
};

/// Memory of a choice: 26 B for each row, where a row has at most 4,096 elements, and the temporary bytes of a sort.
struct choice_room {
  room_plan plan;
  std::uint64_t first, second, third, norms, state, temporary;

  choice_room(std::uint64_t rows, std::uint64_t parts, std::uint64_t temporary_bytes) noexcept
      : first{plan.take<std::uint64_t>(rows * parts)},
        second{plan.take<std::uint64_t>(rows)},
        third{plan.take<std::uint64_t>(std::max(rows + 1, largest_number_kernel::blocks_of(rows)))},
        norms{plan.take<std::uint16_t>(rows)},
        state{plan.take<choice_state>(1)},
        temporary{plan.take<std::byte>(temporary_bytes)}
  {
  }
};

/// Memory of the backward pass: the scaled slopes, then 18 B for each row, with parts as above.
struct slopes_room {
  room_plan plan;
  std::uint64_t slopes, sums, squares, largest, norms, state;

  slopes_room(std::uint64_t rows, std::uint64_t parts, std::uint64_t numbers) noexcept
      : slopes{plan.take<float>(numbers)},
        sums{plan.take<double>(rows * parts)},
        squares{plan.take<std::uint64_t>(rows)},
        largest{plan.take<std::uint64_t>(largest_number_kernel::blocks_of(rows))},
        norms{plan.take<std::uint16_t>(rows)},
        state{plan.take<choice_state>(1)}
  {
  }
};

/// The passes of one sampled input on a stream: enqueued, never awaited. Norms travel in leases on the host, one for
/// each batch that is kept, which end when `norm_cache::commit` has waited for them.
///
///     stream_sampling<manager, launcher> passes{m, norms, site, launcher{}, rows};
///     auto room = passes.take_choice_memory(width, stream);
///     if (!m.rehearsing()) passes.keep(room, batch, input, count, rows, indices, scales, stream);
///     ...
///     auto back = passes.take_slopes_memory(kept * outputs, outputs, stream);
///     if (m.rehearsing()) passes.seal(); else passes.scale(back, ...), passes.note(back, batch, count, stream);
///
/// Leases of a rehearsal are those of a step: each call of the `take_...` ends up in the record.
template <class Manager, sampling_launcher Launcher>
class stream_sampling {
 public:
  using lease_type = decltype(std::declval<Manager&>().lease(tier::host, bytes{}, agent::host));

  /// @throws device_error   the launcher cannot compute the bytes that a sort needs
  stream_sampling(Manager& manager, norm_cache& norms, norm_cache::site which, const Launcher& launcher,
                  std::uint64_t rows)
      : manager_{manager},
        norms_{norms},
        site_{which},
        launch_{launcher},
        rows_{rows},
        temporary_{static_cast<std::uint64_t>(launcher.temporary_bytes(rows))}
  {
  }
  stream_sampling(const stream_sampling&) = delete;
  /// Waits for copies to or from a lease. Noted norms stay noted, as for an input of the calling thread.
  ~stream_sampling()
  {
    norms_.forget_sender(this);
    try {
      take(true);
    } catch (...) {  // a device that is going away writes nothing any more
    }
  }

  /// Memory of a forward pass.
  struct choice_memory {
    choice_room places;
    lease_type device;
  };
  [[nodiscard]] choice_room choice_places(std::uint64_t width) const noexcept
  {
    return {rows_, parts_of(width), temporary_};
  }
  [[nodiscard]] choice_memory take_choice_memory(std::uint64_t width, agent stream)
  {
    const choice_room places = choice_places(width);
    choice_memory room{places, manager_.lease(tier::device, places.plan.size(), stream)};
    open_letter();
    return room;
  }
  /// Enqueues: the choice among the rows of an input, and the copies of those that are kept.
  template <class Element>
  void keep(choice_memory& room, const sampled_batch& batch, std::span<const Element> input, std::uint64_t count,
            Element* rows, std::span<std::int32_t> indices, std::span<float> scales, agent stream)
  {
    const std::uint64_t width = input.size() / count, kept = indices.size();
    const auto at = [&](std::uint64_t place) { return room.device.data() + place; };
    auto* const first = reinterpret_cast<std::uint64_t*>(at(room.places.first));
    auto* const second = reinterpret_cast<std::uint64_t*>(at(room.places.second));
    auto* const third = reinterpret_cast<std::uint64_t*>(at(room.places.third));
    auto* const state = reinterpret_cast<choice_state*>(at(room.places.state));
    auto* const norms = reinterpret_cast<std::uint16_t*>(at(room.places.norms));
    std::byte* const temporary = at(room.places.temporary);
    auto& backend = manager_.backend();

    const expected_norms expected = send_norms(batch, count, norms, stream);
    add_squares(input.data(), count, width, reinterpret_cast<double*>(first), second, true, stream);
    launch(weigh_kernel{second, norms, count, expected}, stream);
    find_largest(second, count, third, state, stream);
    launch(keys_kernel{second, first, count, state}, stream);
    launch_.sort_down(backend, stream, first, second, count, temporary, temporary_);
    launch(units_kernel{second, third, count}, stream);
    launch_.add_up(backend, stream, third, count + 1, temporary, temporary_);
    const row_line line{second, third, count, kept};
    launch(always_kernel{line, state}, stream);
    launch(places_kernel{line, state, first, norms_.key_of(site_, batch)}, stream);
    launch_.sort_down(backend, stream, first, second, kept, temporary, temporary_);
    launch(keep_rows_kernel<Element>{second, input.data(), rows, indices.data(), scales.data(), kept, width}, stream);
  }

  /// Memory of the backward pass.
  struct slopes_memory {
    slopes_room places;
    lease_type device;
  };
  /// @param numbers   of all kept rows of the widest product
  /// @param widest    elements of its rows
  [[nodiscard]] slopes_room slopes_places(std::uint64_t numbers, std::uint64_t widest) const noexcept
  {
    return {rows_, parts_of(widest), numbers};
  }
  [[nodiscard]] slopes_memory take_slopes_memory(std::uint64_t numbers, std::uint64_t widest, agent stream)
  {
    const slopes_room places = slopes_places(numbers, widest);
    slopes_memory room{places, manager_.lease(tier::device, places.plan.size(), stream)};
    open_letter();
    return room;
  }
  [[nodiscard]] static float* slopes_in(const slopes_memory& room)
  {
    return reinterpret_cast<float*>(room.device.data() + room.places.slopes);
  }
  /// Enqueues: the squares of a product's gradient, and its kept rows times their scales.
  template <class Slope>
  void scale(const slopes_memory& room, std::span<const Slope> slope, std::uint64_t count, bool is_first,
             const std::int32_t* indices, const float* scales, std::uint64_t places, agent stream)
  {
    const std::uint64_t width = slope.size() / count;
    const auto at = [&](std::uint64_t place) { return room.device.data() + place; };
    auto* const state = reinterpret_cast<choice_state*>(at(room.places.state));
    auto* const squares = reinterpret_cast<std::uint64_t*>(at(room.places.squares));
    add_squares(slope.data(), count, width, reinterpret_cast<double*>(at(room.places.sums)), squares, is_first, stream);
    find_largest(squares, count, reinterpret_cast<std::uint64_t*>(at(room.places.largest)), state, stream);
    launch(scale_rows_kernel<Slope>{slope.data(), indices, scales, slopes_in(room), state, places, width}, stream);
  }
  /// Enqueues: the norms of all products' gradients, on their way to the cache.
  void note(const slopes_memory& room, const sampled_batch& batch, std::uint64_t count, agent stream)
  {
    if (!has_open_letter()) return;
    letter& mine = letters_.back();
    auto* const norms = reinterpret_cast<std::uint16_t*>(room.device.data() + room.places.norms);
    const auto* const squares = reinterpret_cast<const std::uint64_t*>(room.device.data() + room.places.squares);
    launch(norms_kernel{squares, norms, count, batch.loss_scale}, stream);
    const std::size_t begin = norms_.note_later(site_, batch, static_cast<std::size_t>(count));
    seal();  // before its bytes change: no other batch takes the letter over where a copy fails
    copy(mine, mine.room.data(), reinterpret_cast<const std::byte*>(norms), count * sizeof *norms, stream);
    mine.begin = begin;
    mine.count = static_cast<std::size_t>(count);
  }
  /// Ends the batch: its letter travels until `norm_cache::commit`. `note` calls this too.
  void seal() noexcept
  {
    if (has_open_letter()) letters_.back().is_open = false;
  }

 private:
  /// Norms of a batch on their way, in a lease on the host that has to live until they have arrived: expected norms to
  /// the device, then norms of the gradients back. Both copies wait for the batch's rows, so they do not overlap.
  struct letter {
    lease_type room;
    bool is_rehearsed;
    bool is_open = true;     ///< of the batch that is kept now, or of one that was forgotten
    bool is_on_way = false;  ///< something is, until `arrival`
    event arrival{};
    std::uint64_t step = 0, print = 0;  ///< of the batch whose norms are on their way to the device
    std::size_t begin = 0, count = 0;   ///< where the cache wants them; none: nothing comes back
  };

  [[nodiscard]] static std::uint64_t parts_of(std::uint64_t width) noexcept
  {
    return row_squares_kernel<float>::parts_of(width);
  }
  template <class Kernel>
  void launch(const Kernel& kernel, agent stream)
  {
    launch_(manager_.backend(), stream, kernel);
  }
  template <class Number>
  void add_squares(const Number* matrix, std::uint64_t rows, std::uint64_t width, double* sums, std::uint64_t* squares,
                   bool is_first, agent stream)
  {
    launch(row_squares_kernel<Number>{matrix, rows, width, sums}, stream);
    launch(add_squares_kernel{sums, squares, rows, parts_of(width), is_first}, stream);
  }
  void find_largest(const std::uint64_t* numbers, std::uint64_t count, std::uint64_t* of_blocks, choice_state* state,
                    agent stream)
  {
    launch(largest_number_kernel{numbers, count, of_blocks}, stream);
    launch(largest_number_kernel{of_blocks, largest_number_kernel::blocks_of(count), &state->largest, true}, stream);
  }

  [[nodiscard]] bool has_open_letter() const noexcept
  {
    return !letters_.empty() && letters_.back().is_open && letters_.back().is_rehearsed == manager_.rehearsing();
  }
  /// Opens the letter of a batch, which its passes share. After `sampled_input::forget` the next batch takes it over.
  /// The calling thread reads and writes the letter only when no copy of it is running: the lease is of that thread.
  void open_letter()
  {
    if (!norms_.keeps_norms() || has_open_letter()) return;
    auto room = manager_.lease(tier::host, bytes{rows_ * sizeof(std::uint16_t)}, agent::host);
    if (letters_.empty())
      norms_.wait_for({this, [](void* self, bool is_wanted) { static_cast<stream_sampling*>(self)->take(is_wanted); }});
    letters_.push_back({std::move(room), manager_.rehearsing()});
  }
  [[nodiscard]] expected_norms send_norms(const sampled_batch& batch, std::uint64_t count, std::uint16_t* to,
                                          agent stream)
  {
    const auto rows = static_cast<std::size_t>(count);
    if (!has_open_letter()) return norms_.expect_norms_of(site_, batch, rows, {});
    letter& mine = letters_.back();
    const std::uint64_t print = norm_cache::print_of(batch);
    // A block that runs again sends the same norms: no wait is needed.
    const bool is_written = mine.is_on_way && mine.step == batch.step && mine.print == print;
    if (mine.is_on_way && !is_written) wait_for(mine);
    auto* const from = reinterpret_cast<std::uint16_t*>(mine.room.data());
    const expected_norms expected =
        norms_.expect_norms_of(site_, batch, rows, is_written ? std::span<std::uint16_t>{} : std::span{from, rows});
    if (!expected.are_known) return expected;
    copy(mine, reinterpret_cast<std::byte*>(to), mine.room.data(), count * sizeof *to, stream);
    mine.step = batch.step;
    mine.print = print;
    return expected;
  }
  void copy(letter& mine, std::byte* to, const std::byte* from, std::uint64_t size, agent stream)
  {
    manager_.backend().copy(to, from, bytes{size}, stream);
    mine.arrival = manager_.backend().record(stream);
    mine.is_on_way = true;
  }
  void wait_for(letter& mine)
  {
    auto& backend = manager_.backend();
    if constexpr (measuring_backend<std::remove_cvref_t<decltype(backend)>>)
      backend.wait(agent::host, mine.arrival, wait_cause::optimizer_input);
    else
      backend.wait(agent::host, mine.arrival);
    mine.is_on_way = false;
  }
  void take(bool is_wanted)
  {
    for (letter& each : letters_)
      if (each.is_on_way) wait_for(each);
    for (const letter& each : letters_)
      if (is_wanted && each.count != 0)
        norms_.arrived(each.begin, {reinterpret_cast<const std::uint16_t*>(each.room.data()), each.count});
    letters_.clear();
  }

  Manager& manager_;
  norm_cache& norms_;
  norm_cache::site site_;
  Launcher launch_;
  std::uint64_t rows_;  // at most
  std::uint64_t temporary_;
  std::vector<letter> letters_;
};

/// The passes of an input with a launcher.
template <class Manager, class Launcher>
struct stream_passes {
  struct type {};
};
template <class Manager, sampling_launcher Launcher>
struct stream_passes<Manager, Launcher> {
  using type = std::optional<stream_sampling<Manager, Launcher>>;
};

}  // namespace detail

}  // namespace activation

}  // namespace chunkmem::inline v0
