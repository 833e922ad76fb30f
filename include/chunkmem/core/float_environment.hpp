// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// A scope in which this thread computes by the rules of IEEE 754: to nearest, with denormals, without traps.
///
///     const float_environment standard;
///     for (float& it : numbers) it *= 0.5F;
///
/// The caller's settings come back at the end, and the flags of exceptions as they were. It sets MXCSR on x86 with SSE
/// (the x87 unit of `long double` stays as it is) and FPCR on 64-bit ARM; elsewhere it does nothing, and `is_supported`
/// is false. Compilers do not move loads and stores across its ends, but may move arithmetic on registers: code that
/// has to run inside must read its operands from memory inside, as a loop over spans does.
/// Cost: some nanoseconds.
class float_environment {
 public:
#if defined(__SSE__)
  static constexpr bool is_supported = true;
#elif defined(__aarch64__)
  static constexpr bool is_supported = true;
#else
  static constexpr bool is_supported = false;
#endif

  /// The floating-point settings of a thread, for another thread, or for the same one later.
  ///
  ///     const auto mine = float_environment::settings::of_this_thread();
  ///     std::thread other{[mine] { const float_environment same{mine}; work(); }};
  class settings {
   public:
    constexpr settings() noexcept = default;  ///< the standard's rules
    /// To nearest, without traps. Denormal operands and results count as zeros: faster.
    [[nodiscard]] static constexpr settings flushing() noexcept { return settings{standard.control | flush_mode}; }
    [[nodiscard]] static settings of_this_thread() noexcept { return settings{read().control & ~flags}; }
    [[nodiscard]] constexpr bool operator==(const settings&) const noexcept = default;

   private:
    friend class float_environment;
    constexpr explicit settings(std::uint64_t control) noexcept : control_{control} {}
    std::uint64_t control_ = standard.control;
  };

  float_environment() noexcept : before_{read()} { write(standard); }
  /// The same with other settings.
  explicit float_environment(const settings& rules) noexcept : before_{read()} { write({rules.control_, 0}); }
  ~float_environment() { write(before_); }
  float_environment(const float_environment&) = delete;
  float_environment& operator=(const float_environment&) = delete;

 private:
  struct registers {
    std::uint64_t control;
    std::uint64_t status;  ///< where it is a register of its own
  };

#if defined(__SSE__)
  static constexpr registers standard{0x1f80, 0};      // all exceptions masked, no flag set
  static constexpr std::uint64_t flags = 0x3f;         // of exceptions, in the same register
  static constexpr std::uint64_t flush_mode = 0x8040;  // of results (FTZ) and of operands (DAZ)

  static registers read() noexcept
  {
    barrier();
    return {__builtin_ia32_stmxcsr(), 0};
  }
  static void write(const registers& values) noexcept
  {
    barrier();
    __builtin_ia32_ldmxcsr(static_cast<unsigned>(values.control));
    barrier();
  }
#elif defined(__aarch64__)
  static constexpr registers standard{0, 0};
  static constexpr std::uint64_t flags = 0;
  static constexpr std::uint64_t flush_mode = std::uint64_t{1} << 24U;  // FZ

  static registers read() noexcept
  {
    registers values{0, 0};
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(values.control), "=r"(values.status) : : "memory");
    return values;
  }
  static void write(const registers& values) noexcept
  {
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(values.control), "r"(values.status) : "memory");
  }
#else
  static constexpr registers standard{0, 0};
  static constexpr std::uint64_t flags = 0;
  static constexpr std::uint64_t flush_mode = 0;

  static registers read() noexcept { return standard; }
  static void write(const registers&) noexcept {}
#endif

  static void barrier() noexcept { __asm__ volatile("" : : : "memory"); }

  registers before_;
};

}  // namespace chunkmem::inline v0
