#pragma once

#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/save_queue.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/access.hpp>
#include <chunkmem/tensor/role.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// Pins of a manager's items that a save still reads, whatever the manager is.
class lent_pins {
 public:
  virtual ~lent_pins() = default;
};

/// Hands a model to a queue: what only a step changes (weights, masters, states) is lent where it lies on the host and stays pinned there for reading; all
/// else is copied. What the host has no room for is copied too, from the device.
template <class Manager>
class lending_writer final : public lent_pins {
 public:
  explicit lending_writer(save_queue& queue) : queue_{queue} {}

  void begin_file(std::uint64_t header) { queue_.begin_file(header); }
  void write(std::span<const std::byte> content) { lends_ ? queue_.lend(content) : queue_.write(content); }
  void end_file() { queue_.end_file(); }

  template <class Use>
  void with_bytes(Manager& m, const model_item& it, Use use)
  {
    if (it.is_state() || it.part != role::parameter) return detail::with_bytes(m, it, access::read, use);
    std::optional<pin_type> pin;
    try {
      pin.emplace(m.acquire_bytes(it.tensor, it.list, access::read, at::host));
    } catch (const out_of_memory&) {
      return detail::with_bytes(m, it, access::read, use);
    }
    pins_.push_back(std::move(*pin));
    lends_ = true;
    use(std::as_bytes(std::as_const(pins_.back()).span()));
    lends_ = false;
  }

 private:
  using pin_type = decltype(std::declval<Manager&>().acquire_bytes(tensor_handle{}, list_id{}, access::read, at::host));

  save_queue& queue_;
  std::vector<pin_type> pins_;
  bool lends_ = false;  // what is written just now
};

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
