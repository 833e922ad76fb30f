// SPDX-License-Identifier: Apache-2.0
// How many instructions does an update by Adam take for each element with AVX2?
//
// Counts with cachegrind, without caches: one run with few and one with more updates, and the difference between them.
// The whole update counts: loads, the factor of the loss scale, rounding, stores and the loop. The figure is that of
// float32. It does not depend on a clock.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/core/executor.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace cm = chunkmem;
using namespace cm::optimizer;
using cm::dtype;

namespace {

constexpr double bound = 5.0;
constexpr std::size_t elements = 65'536;
constexpr std::uint64_t few = 2;
constexpr std::uint64_t more = 12;

/// The storage of a parameter.
struct storage {
  const char* name;
  dtype value, moments;
  bool has_master;
};
constexpr storage storages[] = {{"float32", dtype::float32, dtype::float32, false},
                                {"bf16 with a master", dtype::bfloat16, dtype::float32, true},
                                {"fp16 with a master", dtype::float16, dtype::float32, true},
                                {"bf16 alone, random rounding", dtype::bfloat16, dtype::float32, false},
                                {"all lists bf16, random rounding", dtype::bfloat16, dtype::bfloat16, false}};

void update(const storage& how, std::uint64_t updates)
{
  const adam kernel{{}, {.moments = how.moments, .masters = how.has_master, .instructions = instruction_set::avx2}};
  std::vector<std::byte> bytes[5];
  const auto list = [&](std::size_t which, dtype type) {
    bytes[which].resize(elements * cm::size_of(type));
    return bytes[which].data();
  };
  parameter_bytes all;
  all.value = list(0, how.value);
  all.gradient = list(1, how.value);
  all.value_type = all.gradient_type = how.value;
  all.lists[0] = {list(2, how.moments), how.moments};
  all.lists[1] = {list(3, how.moments), how.moments};
  all.list_count = 2;
  if (how.has_master) all.lists[all.list_count++] = {list(4, dtype::float32), dtype::float32, cm::list_use::master};
  all.elements = elements;
  cm::serial alone;
  for (std::uint64_t step = 1; step <= updates; ++step) update_parameter(kernel, all, {0.5F}, {1e-3F, step}, 1, alone);
}

/// Instructions of one run of this program, by cachegrind; 0 without cachegrind.
double count(const std::string& self, std::size_t which, std::uint64_t updates)
{
  const std::string command = "valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null '" + self +
                              "' --update " + std::to_string(which) + ' ' + std::to_string(updates) + " 2>&1";
  std::FILE* const out = popen(command.c_str(), "r");
  if (out == nullptr) return 0;
  std::string digits;
  char line[512];
  while (std::fgets(line, sizeof line, out) != nullptr)
    if (const char* found = std::strstr(line, "refs:"); found != nullptr)
      for (const char* at = found; *at != '\0'; ++at)
        if (*at >= '0' && *at <= '9') digits += *at;  // digits have commas between them
  return pclose(out) == 0 ? std::atof(digits.c_str()) : 0;
}

}  // namespace

int main(int argc, char** argv)
{
  if (argc == 4 && std::string_view{argv[1]} == "--update") {
    update(storages[std::strtoul(argv[2], nullptr, 10) % std::size(storages)], std::strtoul(argv[3], nullptr, 10));
    return 0;
  }
  if (!is_available(instruction_set::avx2)) {
    std::printf("SKIPPED: this processor has no AVX2\n");
    return 4;
  }
  double figure = 0;
  for (std::size_t which = 0; which < std::size(storages); ++which) {
    const double less = count(argv[0], which, few);
    const double all = count(argv[0], which, more);
    if (less == 0 || all == 0) {
      std::printf("SKIPPED: cachegrind (valgrind) is not here\n");
      return 4;
    }
    const double each = (all - less) / static_cast<double>((more - few) * elements);
    std::printf("%-32s %6.2f instructions for each element\n", storages[which].name, each);
    if (which == 0) figure = each;
  }
  std::printf("float32: %.2f, bound %.1f\n", figure, bound);
  return transfer_bench::write_figures("update_instructions_bench",
                                       {{"optimizer.avx2_instructions_fp32", figure, "instructions", "<=", bound}});
}
