// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of a machine or of a transformer: a typed error of one line, or something that can be.
#include <chunkmem/workload/files.hpp>
#include <chunkmem/workload/machine.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

using namespace chunkmem;

namespace {

void demand(bool holds)
{
  if (!holds) std::abort();
}

template <class Use>
void try_it(const Use& use)
{
  try {
    use();
  } catch (const format_error& refused) {
    const std::string_view sentence = refused.what();
    demand(sentence.starts_with("chunkmem: a.json cannot be used: ") && sentence.ends_with(')') &&
           sentence.find('\n') == sentence.npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try_it([&] {
    const workload::rank_share share = workload::share_of_rank(workload::parse_machine(text, "a.json"));
    demand(share.ranks >= share.of_node && share.rates.device_flops_per_second > 0);
  });
  try_it([&] {
    const workload::transformer_shape shape = workload::parse_transformer(text, "a.json").shape;
    demand(workload::parameters_of(shape) > 0);
    try {
      const workload::transformer_costs costs{shape};
      demand(costs.held() <= costs.peak());
    } catch (const size_overflow&) {
    }
  });
  return 0;
}
