// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunkmem.hpp>
#include <either_gradient.hpp>
#include <extents.hpp>
#include <file_trace.hpp>
#include <gpt_cuda/fake_math.hpp>
#include <policies.hpp>
#include <support/fake_device.hpp>
#include <text.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace support {

/// A fake GPU that starts all work at once.
struct prompt_device : fake_device {
  explicit prompt_device(fake_device_options options) : fake_device{at_once(options)} {}

 private:
  [[nodiscard]] static fake_device_options at_once(fake_device_options options)
  {
    options.when = fake_schedule::earliest;
    return options;
  }
};

/// The manager of the program, on the fake GPU.
using gpt_manager = chunkmem::manager<fake_device, gpt::any_eviction, gpt::any_layout, gpt::any_transfer,
                                      gpt::file_trace, gpt::either_gradient>;

/// A GPT of two layers whose every extent is odd where it may be.
inline constexpr gpt::extents small_gpt{.layers = 2, .width = 16, .heads = 2, .context = 9, .batch = 2};

/// The number of printed lines with the time that memory took, in the form that bench/gpu.sh reads.
inline std::size_t lines_about_memory(const std::string& printed)
{
  constexpr std::string_view begin = "\nmemory made in ";
  std::size_t lines = 0;
  for (std::size_t at = printed.find(begin); at != std::string::npos; at = printed.find(begin, at + 1)) {
    const std::size_t end = printed.find_first_not_of("0123456789.", at + begin.size());
    lines += end > at + begin.size() && printed.compare(end, 3, " s\n") == 0 ? 1 : 0;
  }
  return lines;
}

inline gpt::training_text some_text()
{
  std::string all;
  for (int i = 0; i < 200; ++i) all += "the quick brown fox jumps over the lazy dog " + std::to_string(i) + '\n';
  return {"made here", all};
}

}  // namespace support
