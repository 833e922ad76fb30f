// SPDX-License-Identifier: Apache-2.0
// Any bytes as a manifest, as they are and with a right checksum: a typed error, or a manifest of one spelling.
#include <chunkmem/checkpoint/manifest.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

using namespace chunkmem;

namespace {

void read(const std::string& text)
{
  try {
    if (checkpoint::write_manifest(checkpoint::read_manifest(text)) != text) std::abort();
  } catch (const format_error&) {
  } catch (const corrupt_data&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
  const std::string text{reinterpret_cast<const char*>(data), size};
  read(text);
  read(text + "checksum " + checkpoint::detail::as_digits(io::checksum_of(std::as_bytes(std::span{text}))) + '\n');
  return 0;
}
