// SPDX-License-Identifier: Apache-2.0
#include <conformance/chunk_mover.hpp>

#include "verdict.hpp"

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/manager/chunk_mover.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace wrong_movers_test {

using namespace chunkmem;
using memory = conformance::watched_backend;

namespace {

/// Right: every byte is turned over on the way, in both directions. It shows that the laws ask for no plain copy.
struct turns_bytes_over {
  using policy_kind = mover_kind;
  static constexpr std::string_view name = "turns_bytes_over";
  void bring(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    backend.launch(stream, [=] {
      for (std::uint64_t index = 0; index < size.count(); ++index) to[index] = ~from[index];
    });
  }
  void take(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    bring(backend, to, from, size, stream);
  }
};

/// Loads go over the stream for loads, whatever the caller says.
struct has_an_agent_of_its_own : copy_mover {
  void bring(memory& backend, std::byte* to, const std::byte* from, bytes size, agent)
  {
    backend.copy(to, from, size, agent::to_device);
  }
};
/// Returns when the bytes are there.
struct waits_inside : copy_mover {
  void bring(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    backend.copy(to, from, size, stream);
    backend.wait(agent::host, backend.record(stream));
  }
};
/// Copies at once, with the call that has no agent.
struct copies_at_once : copy_mover {
  void take(memory& backend, std::byte* to, const std::byte* from, bytes size, agent) { backend.copy(to, from, size); }
};
/// Goes past the backend, since the memory can be reached.
struct goes_past_the_backend : copy_mover {
  void bring(memory&, std::byte* to, const std::byte* from, bytes size, agent) { std::memcpy(to, from, size.count()); }
};
/// Takes a number of bytes for one of elements of 16 bits.
struct counts_elements : copy_mover {
  void take(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    backend.copy(to, from, bytes{size.count() / 2}, stream);
  }
};
/// Ends before the last byte.
struct forgets_the_last_byte : copy_mover {
  void bring(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    backend.copy(to, from, bytes{size.count() - 1}, stream);
  }
};
/// Moves pieces of 1 KiB, and no rest.
struct forgets_the_rest : turns_bytes_over {
  void bring(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    turns_bytes_over::bring(backend, to, from, bytes{size.count() / 1'024 * 1'024}, stream);
  }
};
/// Never writes back.
struct takes_nothing : copy_mover {
  void take(memory&, std::byte*, const std::byte*, bytes, agent) {}
};
/// Thinks that a second write-back of one place is one too many.
struct takes_a_place_once : copy_mover {
  void take(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    if (from != last_) backend.copy(to, from, size, stream);
    last_ = from;
  }
  const std::byte* last_ = nullptr;
};
/// Encodes what it brings, and takes the code back.
struct decodes_nothing : turns_bytes_over {
  void take(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    backend.copy(to, from, size, stream);
  }
};
/// Keeps a checksum behind the window.
struct writes_behind_the_window : copy_mover {
  void take(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    backend.launch(stream, [=] {
      std::memcpy(to, from, size.count());
      to[size.count()] = std::byte{7};
    });
  }
};
/// Enqueues one half, and then the other.
struct fails_half_way : copy_mover {
  void bring(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    const std::uint64_t half = size.count() / 2;
    backend.copy(to, from, bytes{half}, stream);
    backend.copy(to + half, from + half, bytes{size.count() - half}, stream);
  }
};
/// Expects the next step to notice.
struct swallows_errors : copy_mover {
  void bring(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    try {
      backend.copy(to, from, size, stream);
    } catch (const device_error&) {
    }
  }
};
/// Tells of an error in a class of its own.
struct renames_errors : copy_mover {
  void take(memory& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    try {
      backend.copy(to, from, size, stream);
    } catch (const device_error&) {
      throw std::runtime_error{"a copy failed"};
    }
  }
};

template <class Policy>
laws::verdict judge(std::string_view law)
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_chunk_mover<Policy>()};
}

}  // namespace

TEST_CASE("the laws of movers hold for one that encodes, and decodes what it takes", "[laws][mover]")
{
  conformance::chunk_mover_laws<turns_bytes_over>();
}

}  // namespace wrong_movers_test

const laws::verdicts& laws::wrong_movers()
{
  using namespace wrong_movers_test;
  static const verdicts all{
      judge<has_an_agent_of_its_own>("bring enqueues on another agent than it is told"),
      judge<waits_inside>("bring works or waits on the calling thread"),
      judge<copies_at_once>("take works or waits on the calling thread"),
      judge<goes_past_the_backend>("bring gives its agent nothing to do"),
      judge<counts_elements>("what was taken did not come back"),
      judge<forgets_the_last_byte>("take after bring changed the bytes of the host"),
      judge<forgets_the_rest>("take after bring changed the bytes of the host"),
      judge<takes_nothing>("take gives its agent nothing to do"),
      judge<takes_a_place_once>("take gives its agent nothing to do"),
      judge<decodes_nothing>("take after bring changed the bytes of the host"),
      judge<writes_behind_the_window>("bytes beside the window changed"),
      judge<fails_half_way>("bring failed with something enqueued"),
      judge<swallows_errors>("bring passes no device_error on"),
      judge<renames_errors>("take passes no device_error on"),
  };
  return all;
}
