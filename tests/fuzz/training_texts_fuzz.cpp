// SPDX-License-Identifier: Apache-2.0
// Any bytes as a profile or as a plan of transfers: a typed error of one line, or something that is written as it was
// read.
#include <chunkmem/profile/profile_text.hpp>
#include <chunkmem/transfer/plan_text.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
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
    demand(sentence.starts_with("chunkmem: line ") && sentence.ends_with(')'));
    for (const char letter : sentence) demand(letter >= ' ' && letter <= '~');
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
  const std::string text{reinterpret_cast<const char*>(data), size};
  try_it([&] {
    std::istringstream in{text};
    const access_record record = profile_text::read(in, "a.profile");
    demand(record.size() <= text.size());
  });
  try_it([&] {
    std::istringstream in{text};
    const transfer::iteration_plan plan = plan_text::read(in, "a.plan");
    std::ostringstream out;
    plan_text::write(out, plan);
    std::istringstream again{out.str()};
    demand(plan_text::read(again, "a.plan") == plan);
  });
  return 0;
}
