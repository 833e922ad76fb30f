// SPDX-License-Identifier: Apache-2.0
#pragma once

// Replaces operator new and delete of a program, in every form. Exactly one file of a program includes this header, and
// defines `own_new` and `own_delete`.

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <new>

namespace support {

/// @return   null where there is no memory
void* own_new(std::size_t size, std::size_t alignment) noexcept;
void own_delete(void* place) noexcept;

inline void* own_new_or_throw(std::size_t size, std::size_t alignment)
{
  if (void* const place = own_new(size, alignment)) return place;
  throw std::bad_alloc{};
}

}  // namespace support

void* operator new(std::size_t size)
{
  return support::own_new_or_throw(size, 1);
}
void* operator new[](std::size_t size)
{
  return support::own_new_or_throw(size, 1);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept
{
  return support::own_new(size, 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept
{
  return support::own_new(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment)
{
  return support::own_new_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment)
{
  return support::own_new_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept
{
  return support::own_new(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept
{
  return support::own_new(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* place) noexcept
{
  support::own_delete(place);
}
void operator delete[](void* place) noexcept
{
  support::own_delete(place);
}
void operator delete(void* place, std::size_t) noexcept
{
  support::own_delete(place);
}
void operator delete[](void* place, std::size_t) noexcept
{
  support::own_delete(place);
}
void operator delete(void* place, const std::nothrow_t&) noexcept
{
  support::own_delete(place);
}
void operator delete[](void* place, const std::nothrow_t&) noexcept
{
  support::own_delete(place);
}
void operator delete(void* place, std::align_val_t) noexcept
{
  support::own_delete(place);
}
void operator delete[](void* place, std::align_val_t) noexcept
{
  support::own_delete(place);
}
void operator delete(void* place, std::size_t, std::align_val_t) noexcept
{
  support::own_delete(place);
}
void operator delete[](void* place, std::size_t, std::align_val_t) noexcept
{
  support::own_delete(place);
}
void operator delete(void* place, std::align_val_t, const std::nothrow_t&) noexcept
{
  support::own_delete(place);
}
void operator delete[](void* place, std::align_val_t, const std::nothrow_t&) noexcept
{
  support::own_delete(place);
}
