// SPDX-License-Identifier: Apache-2.0
// Counts operator new in the benchmarks of this folder. Not in a .cu file, where nvcc would compile the operators for
// the device too.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

std::uint64_t news_so_far() noexcept;

namespace {

std::atomic<std::uint64_t> news{0};

void* counted(std::size_t size, std::size_t alignment)
{
  ++news;
  const std::size_t whole = (size + alignment - 1) / alignment * alignment;
  if (void* const place = std::aligned_alloc(alignment, whole == 0 ? alignment : whole)) return place;
  throw std::bad_alloc{};
}

}  // namespace

std::uint64_t news_so_far() noexcept
{
  return news;
}

void* operator new(std::size_t size)
{
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment)
{
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* place) noexcept
{
  std::free(place);
}
void operator delete(void* place, std::size_t) noexcept
{
  std::free(place);
}
void operator delete(void* place, std::align_val_t) noexcept
{
  std::free(place);
}
void operator delete(void* place, std::size_t, std::align_val_t) noexcept
{
  std::free(place);
}
