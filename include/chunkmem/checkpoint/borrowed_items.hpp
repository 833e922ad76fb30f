// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/save_queue.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/access.hpp>
#include <chunkmem/tensor/role.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// Pins of a manager's items that a save still reads, for any type of manager.
class borrowed_pins {
 public:
  virtual ~borrowed_pins() = default;
  /// Waits until all bytes have arrived on the host. For the thread of the manager, as the next. @throws device_error
  /// some will not arrive
  virtual void wait() = 0;
  /// Until those of this chunk have. @throws as `wait`
  virtual void wait_for(chunk_id chunk) = 0;
  /// Something of this chunk is pinned.
  [[nodiscard]] virtual bool has(chunk_id chunk) const noexcept = 0;
  /// Ends the pins of a chunk, once its bytes are written or copied. @pre wait_for(chunk)
  virtual void take_back(chunk_id chunk) noexcept = 0;
};

/// Hands a model to a queue:
///
/// - Bytes that only a step changes (weights, masters, states) are lent in their place on the host. They stay pinned
///   there for reading.
/// - Bytes on the device are on their way to the host when they are lent. The calling thread waits for no copy: the
///   agent of a copy tells the queue that the bytes have arrived.
/// - Bytes that the host has no room for are copied at once, and so are all other bytes.
template <class Manager>
class lending_writer final : public borrowed_pins {
 public:
  lending_writer(Manager& m, std::shared_ptr<save_queue> queue) : m_{m}, queue_{std::move(queue)} {}

  void wait() override { m_.backend().wait(agent::host, last_); }
  void wait_for(chunk_id chunk) override
  {
    if (has(chunk)) m_.backend().wait(agent::host, lent_[first_[index_of(chunk)]].arrived);  // the last of the chunk
  }

  [[nodiscard]] bool has(chunk_id chunk) const noexcept override
  {
    return index_of(chunk) < first_.size() && first_[index_of(chunk)] != none;
  }
  void take_back(chunk_id chunk) noexcept override
  {
    if (!has(chunk)) return;
    for (std::size_t& index = first_[index_of(chunk)]; index != none; index = lent_[index].next) {
      queue_->take_back(index + std::uint64_t{1});
      lent_[index].pin.reset();
    }
  }

  void begin_file(std::uint64_t header) { queue_->begin_file(header); }
  void write(std::span<const std::byte> content)
  {
    if (lends_) return queue_->lend(content, lent_.size());
    if (!queue_->has_room(content.size())) wait();  // a thread that makes room waits for no lost device
    queue_->write(content);
  }
  void end_file() { queue_->end_file(); }

  template <class Use>
  void with_bytes(Manager& m, const model_item& item, Use use)
  {
    if (item.is_state() || item.part != role::parameter) return detail::with_bytes(m, item, access::read, use);
    std::optional<pin_type> pin;
    try {
      pin.emplace(m.acquire_bytes(item.tensor, item.list, access::read, memory_location::host, agent::to_host));
    } catch (const out_of_memory&) {
      return detail::with_bytes(m, item, access::read, use);
    }
    const std::uint32_t chunk = m.chunk_of_slot()[index_of(pin->details().slot)];
    m.backend().launch(agent::to_host, [queue = queue_]() noexcept { queue->arrive(); });
    last_ = m.backend().record(agent::to_host);
    remember(std::move(*pin), chunk);
    lends_ = true;
    use(std::as_bytes(std::as_const(*lent_.back().pin).span()));
    lends_ = false;
  }

 private:
  using pin_type = decltype(std::declval<Manager&>().acquire_bytes(tensor_handle{}, list_id{}, access::read,
                                                                   memory_location::host, agent::to_host));

  static constexpr std::size_t none = SIZE_MAX;

  struct lent_item {
    std::optional<pin_type> pin;
    std::size_t next;  // the one before it in its chunk
    event arrived;
  };

  void remember(pin_type&& pin, std::uint32_t chunk)
  {
    if (chunk >= first_.size()) first_.resize(chunk + std::size_t{1}, none);
    lent_.push_back({std::move(pin), first_[chunk], last_});
    first_[chunk] = lent_.size() - 1;
  }

  Manager& m_;
  std::shared_ptr<save_queue> queue_;  // work on the device's copies may outlive a save that failed
  std::vector<lent_item> lent_;        // the queue counts them by arrivals, from 1
  std::vector<std::size_t> first_;     // by chunk
  event last_{};
  bool lends_ = false;  // what is written just now
};

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
