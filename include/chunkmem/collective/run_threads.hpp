// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

namespace detail {

/// The first failure that is no comm_error, else the first one: comm_errors are others' failures mostly.
inline void throw_cause(const std::vector<std::exception_ptr>& failures)
{
  std::exception_ptr first;
  for (const std::exception_ptr& it : failures) {
    if (!it) continue;
    if (!first) first = it;
    try {
      std::rethrow_exception(it);
    } catch (const comm_error&) {
    } catch (...) {
      throw;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace detail

/// Calls `work(number)` once for each number below `count`, each on a thread of its own, and returns when all have
/// ended.
///
///     run_threads(4, [&](std::uint32_t rank) { train(rank); });
///
/// @throws what the first one threw whose failure is no comm_error; else what the first one did
/// @throws std::system_error   the system gives no more threads; those that ran have ended
template <class Work>
void run_threads(std::uint32_t count, Work work)
{
  std::vector<std::exception_ptr> failures(count);
  std::vector<std::jthread> threads;  // joined also where one cannot start
  threads.reserve(count);
  for (std::uint32_t number = 0; number < count; ++number)
    threads.emplace_back([&work, &failures, number] {
      try {
        work(number);
      } catch (...) {
        failures[number] = std::current_exception();
      }
    });
  threads.clear();
  detail::throw_cause(failures);
}

}  // namespace collective

}  // namespace chunkmem::inline v0
