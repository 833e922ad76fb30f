// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace support {

/// One end of a group of two whose transfers take time: once both ends have arrived, their agents sleep for the time of
/// the transfer. Bytes arrive when the sleep ends.
template <class Communicator>
class throttled_end {
 public:
  throttled_end(Communicator& real, double seconds) : real_{&real}, seconds_{seconds} {}

  [[nodiscard]] chunkmem::rank_id rank() const noexcept { return real_->rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return real_->ranks(); }
  void check() const { real_->check(); }
  void revoke() noexcept { real_->revoke(); }

  template <class Backend>
  void send(Backend& backend, chunkmem::agent stream, std::byte* place, chunkmem::bytes size, chunkmem::rank_id to,
            std::uint32_t label)
  {
    real_->send(backend, stream, place, size, to, label);
    travel(backend, stream);
  }
  template <class Backend>
  void receive(Backend& backend, chunkmem::agent stream, std::byte* place, chunkmem::bytes size, chunkmem::rank_id from,
               std::uint32_t label)
  {
    real_->receive(backend, stream, place, size, from, label);
    travel(backend, stream);
  }

 private:
  template <class Backend>
  void travel(Backend& backend, chunkmem::agent stream)
  {
    backend.launch(stream, [seconds = seconds_]() noexcept {
      std::this_thread::sleep_for(std::chrono::duration<double>{seconds});
    });
  }

  Communicator* real_;
  double seconds_;
};

}  // namespace support
