// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {
namespace backend {

/// What an error number of the CUDA runtime means for whoever got it.
enum class cuda_fault : std::uint8_t {
  none,
  passing,    ///< this call did nothing; the next one may work
  memory,     ///< the same, for want of memory
  no_gpu,     ///< no driver, or no device that it can use
  unloading,  ///< the program is ending, and the runtime is gone already
  sticky,     ///< every later call fails too, until the process starts again
};

namespace detail {

struct cuda_error_range {
  int first;
  int last;
};

/// The numbers that CUDA 13.0 knows. Those of older versions are among them.
inline constexpr cuda_error_range known_cuda_errors[] = {
    {0, 9},     {12, 13},   {16, 28},   {31, 32},   {34, 37},   {43, 46},   {49, 49},   {52, 53},
    {65, 69},   {98, 98},   {100, 103}, {127, 127}, {200, 201}, {205, 226}, {300, 304}, {400, 402},
    {500, 500}, {600, 600}, {700, 705}, {708, 721}, {800, 812}, {900, 915}, {999, 999}, {10000, 10000}};

/// Those that CUDA documents as the end of a process, and those after which nobody can say what is still true: memory
/// and links that lost bits (214, 220), a context that is gone (709, 810), an assertion of a kernel (710), a wait that
/// gave up (909), errors that the runtime itself has no word for (999, 10000).
inline constexpr int sticky_cuda_errors[] = {214, 220, 226, 700, 702, 709, 710, 714, 715,  716,
                                             717, 718, 719, 721, 810, 909, 911, 999, 10000};

}  // namespace detail

[[nodiscard]] constexpr bool is_known_cuda_error(int number) noexcept
{
  for (const detail::cuda_error_range& range : detail::known_cuda_errors)
    if (number >= range.first && number <= range.last) return true;
  return false;
}

/// Whether the process has to start again. A number that CUDA 13.0 does not know counts as one: better stop than guess.
/// Source: the comments of `enum cudaError` in CUDA 13.0, driver_types.h. Cost: some 40 compares; asked only after
/// errors.
[[nodiscard]] constexpr bool is_sticky_cuda_error(int number) noexcept
{
  for (const int sticky : detail::sticky_cuda_errors)
    if (number == sticky) return true;
  return !is_known_cuda_error(number);
}

[[nodiscard]] constexpr cuda_fault fault_of_cuda_error(int number) noexcept
{
  if (number == 0) return cuda_fault::none;
  if (is_sticky_cuda_error(number)) return cuda_fault::sticky;
  if (number == 2) return cuda_fault::memory;
  if (number == 4) return cuda_fault::unloading;
  if (number == 34 || number == 35 || number == 100) return cuda_fault::no_gpu;
  return cuda_fault::passing;
}

/// True where no call after this one can work.
[[nodiscard]] constexpr bool ends_cuda(cuda_fault fault) noexcept
{
  return fault == cuda_fault::sticky || fault == cuda_fault::unloading;
}

/// What to do about it: the end of an error's sentence.
[[nodiscard]] constexpr std::string_view remedy_of(cuda_fault fault) noexcept
{
  switch (fault) {
    case cuda_fault::memory: return "make the capacities smaller, or free memory";
    case cuda_fault::no_gpu: return "there is no GPU to use: install a driver that fits, or take backend::host_arena";
    case cuda_fault::unloading: return "the program is ending: destroy the backend before main returns";
    case cuda_fault::sticky: return "the device does not recover: start the process again, from a checkpoint";
    default: return "the call did nothing and may be tried again";
  }
}

}  // namespace backend
}  // namespace chunkmem::inline v0
