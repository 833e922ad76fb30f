// SPDX-License-Identifier: Apache-2.0
// Any bytes as the header of a file: a typed error, or a table that the format allows and that is written and read
// again.
#include <chunkmem/checkpoint/safetensors_table.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

using namespace chunkmem;

namespace {

void demand(bool holds)
{
  if (!holds) std::abort();
}

void check(const std::vector<checkpoint::stored_tensor>& found, std::uint64_t payload,
           const checkpoint::loader_limits& limits)
{
  std::uint64_t end = 0;
  for (const checkpoint::stored_tensor& it : found) {
    demand(it.begin == end && checkpoint::detail::has_size_of_extents(it));
    demand(it.name.size() <= limits.name_length && it.extents.size() <= limits.rank);
    end = it.end;
  }
  demand(end == payload && found.size() <= limits.tensors);
  demand(checkpoint::read_table(checkpoint::write_table(found).substr(8), payload, limits) == found);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
  // The first two bytes choose the length of the tensors: too few values to guess otherwise.
  if (size < 2) return 0;
  const std::uint64_t payload = data[0] + (data[1] > 250 ? std::uint64_t{data[1]} << 56 : 0);
  const std::string_view header{reinterpret_cast<const char*>(data) + 2, size - 2};
  const checkpoint::loader_limits limits{.header = bytes{1 << 16}, .tensors = 16, .rank = 4, .name_length = 64};
  try {
    check(checkpoint::read_table(header, payload, limits), payload, limits);
  } catch (const format_error&) {
  }
  return 0;
}
