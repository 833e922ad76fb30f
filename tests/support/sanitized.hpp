// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace support {

// True in a build with a sanitizer, which makes everything several times slower: counts may be smaller then.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitized = true;
inline constexpr bool sanitized = true;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr bool thread_sanitized = false;
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
inline constexpr bool thread_sanitized = __has_feature(thread_sanitizer);
inline constexpr bool sanitized = __has_feature(address_sanitizer) || thread_sanitized;
#else
inline constexpr bool thread_sanitized = false;
inline constexpr bool sanitized = false;
#endif

}  // namespace support
