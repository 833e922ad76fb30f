// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/gathered_chunks.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/manager/residency_snapshot.hpp>
#include <chunkmem/sharding/gathering.hpp>

#include <support/catch.hpp>
#include <support/told_gatherer.hpp>

#include <cstdint>
#include <vector>

namespace gathered_chunks_test {

namespace cm = chunkmem;
using namespace cm::literals;

TEST_CASE("shares name the chunks that keep them, and chunks that ranks add up are known", "[manager]")
{
  cm::registry tensors;
  const auto add = [&](std::uint64_t size, cm::role part) {
    return tensors.add({size}, cm::dtype::uint8, part, cm::group_id{0});
  };
  const cm::tensor_id whole = add(4096, cm::role::gathered);
  const cm::tensor_id kept = add(4096, cm::role::gathered);
  const cm::tensor_id gradients = add(4096, cm::role::activation);
  const cm::tensor_id first = add(1024, cm::role::frozen);
  const cm::tensor_id second = add(1024, cm::role::frozen);
  cm::gathered_chunks gathered;
  CHECK(gathered.empty());
  gathered.add(whole, 20, false);
  gathered.add(kept, 21, true);
  gathered.derive(whole, first, 0);
  gathered.derive(kept, second, 2048);
  gathered.add_summed(gradients);
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
  cm::chunk_cache<cm::eviction::lru> laid_out;
  cm::model_frames{tensors, gathered, 4_KiB}.lay_out(laid_out, {{1_MiB, 1_MiB}});
  for (const cm::chunk_id chunk : laid_out.table().chunk_ids()) {
    CHECK(laid_out[chunk].is_summed() == (chunk == tensors.chunk_of(gradients)));
    CHECK(laid_out[chunk].is_filled_by_ranks() == (chunk == tensors.chunk_of(kept)));
  }
}

TEST_CASE("a tier gets frames for all chunks, and more where windows of several frames cut its room", "[manager]")
{
  cm::registry tensors;
  for (const std::uint64_t size : {4096U, 4096U, 16'384U})
    tensors.add({size}, cm::dtype::uint8, cm::role::buffer, cm::group_id{0});
  tensors.seal(cm::append_layout{}, 4_KiB);
  const cm::gathered_chunks none;
  const cm::model_frames frames{tensors, none, 4_KiB};
  CHECK((tensors.total_frames() == 6 && tensors.longest_frame_run() == 4));
  CHECK(frames.in(1_MiB) == 18);  // three times as many: Robson's bound for frame runs of one to four
  CHECK(frames.in(20_KiB) == 5);
  CHECK(frames.in(cm::bytes{4095}) == 0);
}

}  // namespace gathered_chunks_test

namespace gathered_access_test {

using namespace chunkmem;
using manager_type = manager<backend::host_arena, sharding::gathering<collective::self>>;

/// One gathered chunk of 64 floats and its share, which is all of it.
struct rig {
  static constexpr bytes frame{256};
  backend::host_arena memory;
  collective::self ranks;
  manager_type m;
  tensor<std::uint8_t> whole;
  tensor<float> share;
  tensor<float> other;

  explicit rig(std::uint64_t frames = 8)
      : memory{{.device_capacity = frame * frames, .host_capacity = frame * 8}},
        m{memory, {.chunk_bytes = frame}, sharding::gathering<collective::self>{ranks, memory.adopt()}}
  {
    whole = m.add<std::uint8_t>({frame.count()}, role::gathered);
    m.gathered().tensors().add(whole.id, 3, false);
    share = m.add<float>({64}, role::parameter);
    other = m.add<float>({64}, role::activation);
    m.gathered().tensors().derive(whole.id, share.id, 0);
  }
  /// While this pin lives the share may change.
  auto change() { return m.acquire(whole, access::write, memory_location::host); }
  void write(float value, memory_location place)
  {
    const auto changes = change();
    const auto pin = m.acquire(share, access::write, place);
    for (float& it : pin.span()) it = value;
  }
  float first()
  {
    const auto pin = m.acquire(whole, access::read);
    return *reinterpret_cast<const float*>(pin.data());
  }
};

TEST_CASE("a tensor that is made of shares is not written on the device", "[manager]")
{
  rig it;
  it.write(1.5F, memory_location::host);
  CHECK_THROWS_AS(it.m.acquire(it.whole, access::write), usage_error);
  CHECK_THROWS_AS(it.m.acquire(it.whole, access::read_write), usage_error);
  CHECK(it.first() == 1.5F);
}

namespace {

using told_type = manager<backend::host_arena, support::told_gatherer>;

/// A rank of four that owns the third quarter of two wholes.
struct told_rig {
  static constexpr bytes frame{256};
  backend::host_arena memory{{.device_capacity = frame * 8, .host_capacity = frame * 8}};
  support::told_of_ranks told;
  told_type m{memory, {.chunk_bytes = frame}, support::told_gatherer{{}, &told, memory.adopt()}};
  std::vector<tensor<std::uint8_t>> wholes;
  std::vector<tensor<float>> shares;
  tensor<float> gradients;

  told_rig()
  {
    for (const std::uint32_t label : {30U, 31U}) {
      wholes.push_back(m.add<std::uint8_t>({frame.count()}, role::gathered));
      m.gathered().tensors().add(wholes.back().id, label, false);
      shares.push_back(m.add<float>({16}, role::parameter));
      m.gathered().tensors().derive(wholes.back().id, shares.back().id, 128);
    }
    gradients = m.add<float>({64}, role::activation);
    for (std::size_t index = 0; index < wholes.size(); ++index) {
      const auto changes = m.acquire(wholes[index], access::write, memory_location::host);
      for (float& it : m.acquire(shares[index], access::write, memory_location::host).span())
        it = static_cast<float>(index + 1);
    }
  }
};

}  // namespace

TEST_CASE("ranks gather by label, and a share lies where it was said to", "[manager]")
{
  told_rig it;
  for (const std::size_t index : {1U, 0U}) {
    const auto pin = it.m.acquire(it.wholes[index], access::read);
    const auto* const values = reinterpret_cast<const float*>(pin.data());
    CHECK((values[32] == static_cast<float>(index + 1) && values[47] == static_cast<float>(index + 1)));
  }
  CHECK(it.told.gathered() == std::vector<std::uint32_t>{31, 30});
}

TEST_CASE("a sum over ranks is that of one chunk under its label, and of none in a rehearsal", "[manager]")
{
  told_rig it;
  const auto sum = [&] {
    const auto pin = it.m.acquire(it.gradients, access::write);
    it.m.gathered().sum(it.gradients.id, 9, {dtype::float32, 0.25F});
  };
  sum();
  REQUIRE(it.told.sums.size() == 1);
  CHECK((it.told.sums[0].label == 9 && it.told.sums[0].size == 256 && it.told.sums[0].how.type == dtype::float32 &&
         it.told.sums[0].how.scale == 0.25F));
  it.m.drop(it.gradients);
  (void)it.m.rehearse([&] {
    sum();
    it.m.drop(it.gradients);
  });
  CHECK(it.told.sums.size() == 1);
}

}  // namespace gathered_access_test
