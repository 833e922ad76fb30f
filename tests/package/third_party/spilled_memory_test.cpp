// SPDX-License-Identifier: Apache-2.0
#include "spilled_memory.hpp"

#include "usual_training.hpp"

#include <conformance/stream_backend.hpp>

TEST_CASE("spilled_memory keeps the laws of a backend")
{
  conformance::stream_backend_laws<spilled_memory>([](chunkmem::bytes device, chunkmem::bytes host) {
    return spilled_memory{device, host};
  });
}

TEST_CASE("with its states in a file a model trains to the same bits")
{
  spilled_memory memory{tight_device, wide_host};
  const trained mine = train_on<chunkmem::manager<spilled_memory>>(memory);
  CHECK(usual_training().left.difference(mine.left) == "");
  CHECK(mine.moved.evictions == usual_training().moved.evictions);
}
