// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/host_device.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <chunkmem/tensor/registration.hpp>
#include <chunkmem/tensor/rounding_bits.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

// numerics, rounding_source and numerics_record, then the limits on small numbers that the arithmetics share from
// version 2 on.

namespace chunkmem::inline v0 {

namespace optimizer {

/// The rules of an optimizer's arithmetic. docs/numerics.md has the rules of each version.
enum class numerics : std::uint8_t {
  version_1 = 1,  ///< numbers below 2^-126 count as 0; needs a processor that keeps denormals
  version_2 = 2,  ///< numbers below 2^-100 count as 0; the bits are the same with and without a flush mode
  version_3 = 3,  ///< as version 2, with random bits of rounding_bits instead of random_bits
};

/// The random bits of a rounding by a version of the numerics, as a stream of a rounding_key with `bits_of(element)`.
template <numerics Rule>
using rounding_source = std::conditional_t<(Rule >= numerics::version_3), chunkmem::detail::rounding_hash,
                                           chunkmem::detail::rounding_stream>;

/// The version of a work or a kernel with a member `rule`; the newest for others.
template <class Work>
inline constexpr numerics numerics_of = numerics::version_3;
template <class Work>
  requires requires { Work::rule; }
inline constexpr numerics numerics_of<Work> = Work::rule;

namespace detail {

/// Checks at compile time that a host and a device round by the same bits.
template <class Kernel, class Work>
consteval void check_numerics() noexcept
{
  static_assert(numerics_of<Kernel> == numerics_of<Work>,
                "chunkmem: an optimizer kernel and its arithmetic on a device have different versions of the numerics "
                "(give the kernel the member `static constexpr numerics rule` of the work whose arithmetic it takes)");
}

}  // namespace detail

/// The version of the numerics, as the optimizers of this library put it into checkpoints: "adam/numerics".
///
///     numerics_record<numerics::version_3> record{false};
///     record.for_each_state(visit);
///
/// A load of another version throws config_error, unless the optimizer takes any version. Version 1 is not written:
/// files without this record are of version 1.
template <numerics Rule>
class numerics_record {
 public:
  /// @param takes_any   a checkpoint of another version loads, and later saves have this version
  explicit numerics_record(bool takes_any) noexcept : takes_any_{takes_any} {}

  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{.name = "numerics",
                        .content = std::as_writable_bytes(std::span{&version_, 1}),
                        .check = takes_any_ ? nullptr : &check,
                        .is_constant = true});
  }

 private:
  static constexpr std::uint64_t own = static_cast<std::uint64_t>(Rule) - 1;

  static void check(std::span<const std::byte> loaded)
  {
    std::uint64_t found = 0;
    std::memcpy(&found, loaded.data(), sizeof found);
    if (found == own) return;
    throw config_error{error_text{} << "chunkmem: a checkpoint of version " << found + 1
                                    << " of the numerics, and this optimizer has version " << own + 1
                                    << " (train on with optimizer::numerics::version_" << found + 1
                                    << ", or give .takes_any_numerics = true: later updates have other bits)"};
  }

  std::uint64_t version_ = own;
  bool takes_any_;
};

namespace detail {

/// A momentum or a gradient below this number counts as 0. Between this number and the denormals there is room for the
/// 24 bits of a float32: no denormal changes the sum with a number that is stored.
inline constexpr float least_number = 0x1p-100F;

/// The larger of two numbers. @pre neither is NaN
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float larger(float left, float right) noexcept
{
  return strict_fp::is_less(left, right) ? right : left;
}

/// A parameter below the result is stored as 0. A denormal times a factor of the update is at least 2^26 times smaller.
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline float least_parameter_of(float rate, float keep) noexcept
{
  const float factor = larger(strict_fp::magnitude(rate), strict_fp::magnitude(keep));
  return strict_fp::product(larger(factor, 1.0F), least_number);
}

/// `base` to a whole power, by repeated squaring: `std::pow` is not the same in every library. Not inlined, so that no
/// compiler contracts its last product with the caller's difference.
[[nodiscard, gnu::noinline]] CHUNKMEM_HOST_DEVICE inline double power(double base, std::uint64_t exponent) noexcept
{
  double result = 1.0;
  for (; exponent != 0; exponent >>= 1U, base = strict_fp::product(base, base))
    if ((exponent & 1U) != 0) result = strict_fp::product(result, base);
  return result;
}

/// 1 - beta^number
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline float rest_of_power(float beta, std::uint64_t number) noexcept
{
  return strict_fp::to_single(strict_fp::sum(1.0, -power(strict_fp::to_double(beta), number)));
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
