// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/import_values.hpp>

#include <support/catch.hpp>
#include <support/simulated_folder.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace safetensors_file_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using checkpoint::safetensors_file;
using support::simulated_folder;

namespace {

std::string length_of(std::uint64_t size)
{
  std::string text;
  for (unsigned byte = 0; byte < 8; ++byte) text += static_cast<char>(size >> (8 * byte) & 0xffU);
  return text;
}
std::string refusal(const std::string& content, const checkpoint::loader_limits& limits = {})
{
  simulated_folder folder;
  folder.put("file", content);
  try {
    const safetensors_file file{std::as_const(folder).open("file"), "file", limits};
    return "it is taken";
  } catch (const format_error& refused) {
    return refused.what();
  }
}

}  // namespace

TEST_CASE("a file of another program is opened by its header", "[checkpoint]")
{
  const std::string header = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
                             R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}  )";
  simulated_folder folder;
  folder.put("file", length_of(header.size()) + header + "aabbbbBBBBxx" + std::string());
  CHECK_THAT(refusal(length_of(header.size()) + header + "aabbbbBBBB"), ContainsSubstring("cannot be used"));
  safetensors_file file{std::as_const(folder).open("file"), "file"};
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.payload() == 8 + header.size());
  std::string found(8, '\0');
  file.read(0, file.payload() + file.tensors()[1].begin, std::as_writable_bytes(std::span{found}));
  CHECK(found == "bbBBBBxx");
  CHECK_THROWS_AS(file.read(0, file.payload() + 5, std::as_writable_bytes(std::span{found})), io_error);
}

TEST_CASE("what is no such file is refused", "[checkpoint]")
{
  CHECK_THAT(refusal("1234567"), ContainsSubstring("shorter than its first number"));
  for (const std::uint64_t size : {std::uint64_t{3}, std::uint64_t{1} << 40, UINT64_MAX})
    CHECK_THAT(refusal(length_of(size) + "{}"), ContainsSubstring("longer than the file"));
  CHECK_THAT(refusal(length_of(2) + "{}", {.header = bytes{1}}), ContainsSubstring("or than the limit"));
  CHECK_THAT(refusal(length_of(2) + "[]"), ContainsSubstring("does not begin with {"));
  CHECK(refusal(length_of(2) + "{}") == "it is taken");
}

}  // namespace safetensors_file_test
