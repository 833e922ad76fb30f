// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

template <class Signature>
class call_ref;

/// A non-owning reference to a callable, without its type: a function that takes one is compiled only once.
///
///     void repeat(int times, call_ref<void(int)> work) { for (int i = 0; i < times; ++i) work(i); }
///     repeat(3, [&](int i) { sum += i; });
///
/// The callable has to outlive it. Cost: one indirect call; no allocation.
template <class Result, class... Arguments>
class call_ref<Result(Arguments...)> {
 public:
  template <class Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, call_ref> &&
             std::is_invocable_r_v<Result, Callable&, Arguments...>)
  call_ref(Callable&& work) noexcept : callable_{address_of(work)}, call_{&call_as<std::remove_reference_t<Callable>>}
  {
  }

  Result operator()(Arguments... arguments) const { return call_(callable_, std::forward<Arguments>(arguments)...); }

 private:
  template <class Callable>
  [[nodiscard]] static void* address_of(Callable& work) noexcept
  {
    if constexpr (std::is_function_v<Callable>)
      return reinterpret_cast<void*>(&work);
    else  // std::addressof would bring all of <memory> to every trainer
      return const_cast<void*>(static_cast<const volatile void*>(__builtin_addressof(work)));
  }
  template <class Callable>
  static Result call_as(void* callable, Arguments... arguments)
  {
    if constexpr (std::is_function_v<Callable>)
      return static_cast<Result>(reinterpret_cast<Callable*>(callable)(std::forward<Arguments>(arguments)...));
    else
      return static_cast<Result>((*static_cast<Callable*>(callable))(std::forward<Arguments>(arguments)...));
  }

  void* callable_;
  Result (*call_)(void* callable, Arguments... arguments);
};

}  // namespace chunkmem::inline v0
