// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Forward declarations, for headers that need names without definitions.
namespace chunkmem::inline v0 {

class bytes;
class error;
class shape;
enum class tier : std::uint8_t;
enum class role : std::uint8_t;
enum class dtype : std::uint8_t;
enum class access_mode : std::uint8_t;
class access;
enum class memory_location : std::uint8_t;
enum class agent : std::uint8_t;
struct list_spec;
struct tensor_handle;
struct manager_options;
struct memory_requirement;
struct report;

}  // namespace chunkmem::inline v0
