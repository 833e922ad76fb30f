// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <chunkmem/tensor/registration.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace activation {

/// The inputs of a network's random numbers, besides its seed, the step, the block and the micro-batch.
enum class random_rule : std::uint64_t {
  /// On nothing: networks with one seed draw the same numbers. For files that were saved before there were names.
  by_seed = 1,
  by_name = 2,  ///< on the network's name, and on the replica
};

/// The random numbers of one network, and their state in a checkpoint: the rule and the seed.
///
/// A part of `checkpointed`. A network with a name gives it to its manager by `use`: the state "<name>/random". After
/// a load the seed is the file's, so a resumed training draws the numbers of the training that was saved. The
/// numbers depend on names and counts alone, so they are the same on every rank, machine and plan.
///
///     random_stream stream{"encoder", 42};
///     m.use(stream);
///     const rounding_key key = stream.key(step, block, micro_batch);
///
/// Source: Philox (Salmon et al. 2011) with a key made of the seed and of the name's hash (FNV-1a, Fowler, Noll and Vo
/// 1991). Cost: one call of philox for a key.
class random_stream {
 public:
  random_stream(std::string_view network, std::uint64_t seed, random_rule rule = random_rule::by_name,
                std::uint32_t replica = 0)
      : name_{network}, state_{network.empty() ? std::string{} : name_ + "/random"}, replica_{replica}
  {
    saved_ = {seed, static_cast<std::uint64_t>(rule)};
    for (const char letter : network) hash_ = (hash_ ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  }
  random_stream(const random_stream&) = delete;

  [[nodiscard]] const std::string& network() const noexcept { return name_; }
  [[nodiscard]] bool is_by_name() const noexcept
  {
    return saved_[1] == static_cast<std::uint64_t>(random_rule::by_name);
  }
  [[nodiscard]] rounding_key key(std::uint64_t step, std::uint32_t block, std::uint32_t micro_batch) const noexcept
  {
    constexpr std::uint32_t of_activations = 0x8000'0000U;  // no list of an optimizer has this bit
    std::uint64_t seed = saved_[0];
    if (is_by_name()) {
      const auto drawn =
          philox({low(hash_), high(hash_), replica_, static_cast<std::uint32_t>(saved_[1])}, {low(seed), high(seed)});
      seed = std::uint64_t{drawn[1]} << 32U | drawn[0];
    }
    return {seed, step, block, of_activations | micro_batch};
  }

  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{state_, std::as_writable_bytes(std::span{saved_}), &expect_rule});
  }
  registration registered;

 private:
  [[nodiscard]] static constexpr std::uint32_t low(std::uint64_t value) noexcept
  {
    return static_cast<std::uint32_t>(value);
  }
  [[nodiscard]] static constexpr std::uint32_t high(std::uint64_t value) noexcept
  {
    return static_cast<std::uint32_t>(value >> 32U);
  }
  /// @throws config_error   the numbers of that file were drawn by another rule
  static void expect_rule(std::span<const std::byte> loaded)
  {
    std::array<std::uint64_t, 2> saved{};
    if (loaded.size() == sizeof saved) std::memcpy(saved.data(), loaded.data(), sizeof saved);
    if (saved[1] == static_cast<std::uint64_t>(random_rule::by_name)) return;
    throw config_error{error_text{} << "chunkmem: this checkpoint drew the random numbers of a network by rule "
                                    << saved[1] << ", and this version draws by rule "
                                    << static_cast<std::uint64_t>(random_rule::by_name)
                                    << " (load it with the version that saved it)"};
  }

  std::string name_;
  std::string state_;
  std::uint32_t replica_;
  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::array<std::uint64_t, 2> saved_{};  // the seed, the rule
};

static_assert(registrable<random_stream>);

}  // namespace activation

}  // namespace chunkmem::inline v0
