// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/gathered_chunks.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <support/catch.hpp>

#include <vector>

namespace gathered_chunks_test {

namespace cm = chunkmem;
using namespace cm::literals;

TEST_CASE("shares name the chunks that keep them and their places in the whole", "[manager]")
{
  cm::registry tensors;
  const auto add = [&](std::uint64_t size, cm::role part) {
    return tensors.add({size}, cm::dtype::uint8, part, cm::group_id{0});
  };
  const cm::tensor_id whole = add(4096, cm::role::gathered);
  const cm::tensor_id kept = add(4096, cm::role::gathered);
  const cm::tensor_id first = add(1024, cm::role::frozen);
  const cm::tensor_id second = add(1024, cm::role::frozen);
  cm::gathered_chunks gathered;
  CHECK(gathered.empty());
  gathered.add(whole, 20, false);
  gathered.add(kept, 21, true);
  gathered.derive(whole, first, 0);
  gathered.derive(kept, second, 2048);
  tensors.seal(cm::append_layout{}, 4_KiB);

  const cm::chunk_shares shares = gathered.shares(tensors);
  const cm::chunk_id shared = tensors.chunk_of(first);
  CHECK(shared == tensors.chunk_of(second));
  REQUIRE(shares.of(tensors.chunk_of(whole)).size() == 1);
  CHECK(shares.of(tensors.chunk_of(whole))[0] == cm::chunk_share{tensors.chunk_of(whole), shared, 0, 0, 1024});
  CHECK(shares.of(tensors.chunk_of(kept))[0] == cm::chunk_share{tensors.chunk_of(kept), shared, 1024, 2048, 1024});
  CHECK(shares.label_of(tensors.chunk_of(kept)) == 21);
  std::vector<cm::chunk_id> loaded;
  gathered.for_each_loaded_from_shares(tensors, [&](cm::chunk_id chunk) { loaded.push_back(chunk); });
  CHECK(loaded == std::vector<cm::chunk_id>{tensors.chunk_of(whole)});
}

TEST_CASE("a tier gets frames for all chunks, and more where windows of several frames cut its room", "[manager]")
{
  cm::registry tensors;
  for (const std::uint64_t size : {4096U, 4096U, 16'384U})
    tensors.add({size}, cm::dtype::uint8, cm::role::buffer, cm::group_id{0});
  tensors.seal(cm::append_layout{}, 4_KiB);
  const cm::gathered_chunks none;
  const cm::model_frames frames{tensors, none, 4_KiB};
  CHECK((tensors.total_frames() == 6 && tensors.longest_window() == 4));
  CHECK(frames.in(1_MiB) == 18);  // three times as many: Robson's bound for windows of one to four
  CHECK(frames.in(20_KiB) == 5);
  CHECK(frames.in(cm::bytes{4095}) == 0);
}

}  // namespace gathered_chunks_test
