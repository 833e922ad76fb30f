// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/undo_memory.hpp>

#include <chunkmem/manager/registry.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/executor.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/half.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

namespace undo_memory_test {

namespace cm = chunkmem;
using namespace cm::optimizer;

namespace {

struct known_lists {
  bool has_master;
  template <class Visit>
  void for_each_list(const cm::tensor_info&, Visit visit) const
  {
    if (has_master) visit(cm::list_id{2}, cm::dtype::float32);
    visit(cm::list_id{3}, cm::dtype::float32);
    visit(cm::list_id{4}, cm::dtype::bfloat16);
  }
};

}  // namespace

TEST_CASE("what an update overwrites comes back byte by byte, a gradient in the value's place too", "[optimizer]")
{
  constexpr std::size_t count = 37;
  for (const bool in_place : {false, true}) {
    adam kernel{{}, {.moments = cm::dtype::bfloat16, .masters = true}};
    std::vector<cm::bf16> value(count), gradient(count);
    std::vector<float> master(count);
    std::vector<cm::bf16> first(count), second(count);
    for (std::size_t i = 0; i < count; ++i) {
      master[i] = 0.25F * static_cast<float>(i);
      value[i] = cm::round_to<cm::bf16>(in_place ? 1.0F : master[i]);
      gradient[i] = first[i] = second[i] = cm::round_to<cm::bf16>(0.5F);
    }
    parameter_bytes all;
    all.value = reinterpret_cast<std::byte*>(value.data());
    all.value_type = all.gradient_type = cm::dtype::bfloat16;
    all.gradient = in_place ? all.value : reinterpret_cast<const std::byte*>(gradient.data());
    for (const cm::list_spec& spec : kernel.lists()) {
      std::byte* const data = spec.use == cm::list_use::master
                                  ? reinterpret_cast<std::byte*>(master.data())
                                  : reinterpret_cast<std::byte*>(all.list_count == 1 ? first.data() : second.data());
      all.lists[all.list_count++] = {data, spec.type, spec.use};
    }
    all.elements = count;
    const auto before = std::tuple{value, master, first, second};
    const auto same = [&] {
      return std::memcmp(std::get<0>(before).data(), value.data(), 2 * count) == 0 && std::get<1>(before) == master &&
             std::memcmp(std::get<2>(before).data(), first.data(), 2 * count) == 0 &&
             std::memcmp(std::get<3>(before).data(), second.data(), 2 * count) == 0;
    };
    const cm::tensor_info info{.extents = {count}, .type = cm::dtype::bfloat16};
    std::vector<std::byte> room(count * 10);
    CHECK(detail::undo_size(known_lists{true}, info) == count * 12);
    CHECK(detail::undo_size(known_lists{false}, info) == count * 8);
    const auto whole = value;
    if (!in_place) std::fill(value.begin(), value.end(), cm::bf16::from_bits(0x7ffe));
    detail::keep_bytes(all, room.data());
    value = whole;
    update_parameter(kernel, all, {}, {}, 0, on_this_thread);
    CHECK_FALSE(same());
    // it was never read, and what is there may be anything
    if (!in_place) std::fill(value.begin(), value.end(), cm::bf16::from_bits(0x7fff));
    detail::bring_back_bytes(all, room.data());
    CHECK(same());
  }
}

}  // namespace undo_memory_test
