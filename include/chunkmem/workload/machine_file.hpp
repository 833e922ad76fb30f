// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/json_fields.hpp>
#include <chunkmem/workload/machine.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace workload {

namespace detail {

/// A number and where it comes from: {"value": 8, "source": "..."}.
class sourced_fields {
 public:
  explicit sourced_fields(json_fields& fields) : fields_{fields} {}

  [[nodiscard]] std::uint64_t whole(const std::string& key, std::uint64_t most = UINT64_MAX)
  {
    const std::uint64_t value = fields_.whole(key + ".value", most);
    (void)fields_.text(key + ".source");
    return value;
  }
  [[nodiscard]] double number(const std::string& key)
  {
    const double value = fields_.number(key + ".value");
    (void)fields_.text(key + ".source");
    return value;
  }

 private:
  json_fields& fields_;
};

[[nodiscard]] inline machine machine_of(json_fields fields)
{
  sourced_fields all{fields};
  machine made;
  made.name = fields.text("name");
  made.nodes = static_cast<std::uint32_t>(all.whole("nodes", UINT32_MAX));
  made.devices = static_cast<std::uint32_t>(all.whole("devices", UINT32_MAX));
  made.device_bytes = bytes{all.whole("device_bytes")};
  made.host_bytes = bytes{all.whole("host_bytes")};
  made.rates.device_flops_per_second = all.number("device_flops_per_second");
  made.rates.to_device_bytes_per_second = all.number("to_device_bytes_per_second");
  made.rates.to_host_bytes_per_second = all.number("to_host_bytes_per_second");
  made.rates.peer_bytes_per_second = all.number("peer_bytes_per_second");
  made.rates.network_bytes_per_second = all.number("network_bytes_per_second");
  made.rates.host_memory_bytes_per_second = all.number("host_memory_bytes_per_second");
  made.rates.host_updates_per_second = all.number("host_updates_per_second");
  made.rates.device_updates_per_second = all.number("device_updates_per_second");
  fields.finish();
  if (const machine_problem wrong = made.problem(); !wrong.member.empty())
    fields.refuse(std::string{wrong.member} + ".value", wrong.why, "correct it");
  try {
    (void)made.memory();
  } catch (const size_overflow&) {
    fields.refuse("host_bytes.value", "makes more bytes with all devices and nodes than 64 bits count", "correct it");
  }
  return made;
}

}  // namespace detail

/// A machine from JSON text: one object with a name. For each other member of machine and of machine_rates it has an
/// object {"value": number, "source": "where it is from"}. No member may be missing.
/// @param file   a name for messages
/// @throws format_error   one sentence with the file and the key that is wrong
[[nodiscard]] inline machine parse_machine(std::string_view text, std::string_view file)
{
  return detail::machine_of(json_fields{text, file});
}

/// The same from a file. @throws io_error   it cannot be read
[[nodiscard]] inline machine read_machine(const std::string& path)
{
  return detail::machine_of(json_fields::of_file(path));
}

}  // namespace workload

}  // namespace chunkmem::inline v0
