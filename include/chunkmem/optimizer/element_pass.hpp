// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/strict_fp_lanes.hpp>
#include <chunkmem/optimizer/element_streams.hpp>
#include <chunkmem/optimizer/numerics.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/packed_lanes.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

inline constexpr std::size_t no_root = ~std::size_t{};

/// The arithmetic of an update, for vectors: `in<Real>()` gives it for one kind of lanes, as an object with
/// - `decayed(parameter, gradient)`, which adds a part of the parameter to the gradient, where `is_decayed()` says so,
/// - `observe(slope, states)`, which changes the states by the gradient, and sets a small gradient to 0,
/// - `divisor(root)`, which computes the divisor of the step from the square root of the state `root_of`; a work with
///   `no_root` has none,
/// - `move(parameter, step, slope, divisor, states)`, which makes two products: their sum is the new parameter. With a
///   root, it may read the first state only, and not the slope,
/// - `least_parameter`: a parameter below it is stored as 0.
/// The bits of a work do not depend on the flush mode of the thread. A gradient below 2^-100 counts as 0, so the pass
/// flushes none after the factor.
///
/// A work of version 1 of the numerics has `observe(parameter, gradient, states)` and `move(parameter, gradient, root,
/// states)` instead, and keeps denormals.
template <class Work>
concept lane_work = requires(const Work& work) {
  {
    Work::rule
  } -> std::convertible_to<numerics>;
  Work::states;
  Work::root_of;
  work.template in<lanes<4>>();
};

/// A visitor that takes any work.
struct work_visitor {
  template <class Work>
  void operator()(const Work&) const noexcept
  {
  }
};

/// A kernel with a lane_work: `with_lane_work(settings, visit)` calls `visit(work)` once.
template <class Kernel>
concept updates_in_lanes = requires(const Kernel& kernel, const step_settings& settings, work_visitor visit) {
  kernel.with_lane_work(settings, visit);
};

/// The elements of one list, and their rounding.
struct element_stream {
  std::byte* data = nullptr;
  dtype type = dtype::float32;
  bool is_stochastic = false;  ///< has 16 bits, rounded by random bits; else to nearest
};

/// The streams that one update reads and writes. The gradient may be the bytes of the value. States are the first lists
/// of the kernel: their numbers are part of the keys of stochastic rounding.
template <std::size_t States>
struct update_streams {
  const std::byte* gradient = nullptr;
  dtype gradient_type = dtype::float32;
  const std::byte* source = nullptr;  ///< the parameter to read: the value or its master
  dtype source_type = dtype::float32;
  std::byte* master = nullptr;  ///< float32, written where there is one
  element_stream value{};       ///< written where it has an address
  element_stream states[States + 1]{};
  rounding_key key{};       ///< without the list
  std::uint64_t first = 0;  ///< index in its tensor of the first element of the streams, a multiple of 128

  void advance(std::uint64_t count) noexcept
  {
    gradient += count * size_of(gradient_type);
    source += count * size_of(source_type);
    if (master != nullptr) master += count * sizeof(float);
    if (value.data != nullptr) value.data += count * size_of(value.type);
    for (std::size_t index = 0; index != States; ++index) states[index].data += count * size_of(states[index].type);
    first += count;
  }
};

/// Spans in single precision. @pre spans.lists has as many as there are states
template <std::size_t States>
[[nodiscard]] update_streams<States> streams_of(const update_spans& spans) noexcept
{
  update_streams<States> all;
  all.gradient = reinterpret_cast<const std::byte*>(spans.gradient.data());
  all.source = reinterpret_cast<const std::byte*>(spans.parameter.data());
  all.value.data = reinterpret_cast<std::byte*>(spans.parameter.data());
  for (std::size_t index = 0; index != States; ++index)
    all.states[index].data = reinterpret_cast<std::byte*>(spans.lists[index].data());
  return all;
}

/// The types and the rounding of the streams of an update, read from the streams at run time.
struct any_types {
  static dtype gradient(const auto& all) noexcept { return all.gradient_type; }
  static dtype source(const auto& all) noexcept { return all.source_type; }
  static dtype value(const auto& all) noexcept { return all.value.type; }
  static dtype state(const auto& all, std::size_t index) noexcept { return all.states[index].type; }
  static bool has_master(const auto& all) noexcept { return all.master != nullptr; }
  static bool has_value(const auto& all) noexcept { return all.value.data != nullptr; }
  static bool rounds_value(const auto& all) noexcept { return all.value.is_stochastic; }
  static bool rounds_state(const auto& all, std::size_t index) noexcept { return all.states[index].is_stochastic; }
};

/// The same, known at compile time. Value and gradient are `Type`, and states are `State`. The parameter is read from
/// its master if there is one, and the master is not fresh. Random bits round states of 16 bits, and a value of 16 bits
/// without a master.
template <dtype Type, bool HasMaster, dtype State>
struct usual_types {
  static constexpr dtype gradient(const auto&) noexcept { return Type; }
  static constexpr dtype source(const auto&) noexcept { return HasMaster ? dtype::float32 : Type; }
  static constexpr dtype value(const auto&) noexcept { return Type; }
  static constexpr dtype state(const auto&, std::size_t) noexcept { return State; }
  static constexpr bool has_master(const auto&) noexcept { return HasMaster; }
  static constexpr bool has_value(const auto&) noexcept { return true; }
  static constexpr bool rounds_value(const auto&) noexcept { return Type != dtype::float32 && !HasMaster; }
  static constexpr bool rounds_state(const auto&, std::size_t) noexcept { return State != dtype::float32; }

  template <std::size_t States>
  [[nodiscard]] static bool are(const update_streams<States>& all) noexcept
  {
    using any = any_types;
    bool same = any::gradient(all) == Type && any::source(all) == source(all) && any::value(all) == Type &&
                any::has_master(all) == HasMaster && any::has_value(all) && any::rounds_value(all) == rounds_value(all);
    for (std::size_t index = 0; index != States; ++index)
      same = same && any::state(all, index) == State && any::rounds_state(all, index) == rounds_state(all, index);
    return same;
  }
};

/// Updates elements in one pass. A loaded number stays in a register until the loop stores the new one, or a block of
/// elements stays in the L1 cache between two loops.
///
///     element_pass<adam_lane_work>{work, streams, &transform}.run(best_instruction_set(), elements);
///
/// Not for a work that needs the elements of a whole run at once. Denormals take no time: while it runs, the thread is
/// in flush mode, which changes no bit (except in version 1 of the numerics). Cost: one read and one write of each
/// byte.
/// @pre the thread rounds to nearest
template <lane_work Work>
class element_pass {
 public:
  static constexpr std::size_t states = Work::states;
  static_assert(states <= 2, "chunkmem: a work with three states needs more lines in begin and store_states");
  using streams_type = update_streams<states>;
  static constexpr bool is_first_version = Work::rule == numerics::version_1;
  /// The processor family has sets above the baseline, which then needs only one loop for all types.
#if defined(__x86_64__)
  static constexpr bool has_wider_sets = true;
#else
  static constexpr bool has_wider_sets = false;
#endif
  static constexpr bool draws_philox = Work::rule < numerics::version_3;
  static constexpr auto usual_mode =
      is_first_version ? float_environment::settings{} : float_environment::settings::flushing();

  /// @param how   null: the work gets the gradient unchanged
  /// @param mode   of the thread while it works; no bit depends on the flush mode
  element_pass(const Work& work, const streams_type& streams, const gradient_transform* how,
               const float_environment::settings& mode = usual_mode) noexcept
      : work_{work}, streams_{streams}, mode_{mode}, transforms_{how != nullptr}
  {
    if (how != nullptr) how_ = *how;
    // In flush mode a factor that is a denormal would be 0.
    if (bits_as<std::uint32_t>(how_.factor) != bits_as<std::uint32_t>(flush(how_.factor))) mode_ = {};
    // With a factor of at most 2^26, a denormal stays below the least number of a work.
    constexpr float most = is_first_version ? 1.0F : 0x1p26F;
    flushes_first_ = !(how_.factor <= most && how_.factor >= -most);
    cuts_ = how_.limit > 0.0F;
    is_special_ = is_first_version || flushes_first_ || cuts_;
    if constexpr (!is_first_version) is_special_ = is_special_ || work_.is_decayed();
  }

  void run(instruction_set set, std::uint64_t count) noexcept
  {
    using enum dtype;
    constexpr std::uint64_t block = std::uint64_t{1} << 32U;  // of elements that share the keys of their random bits
    for (std::uint64_t rest = block - streams_.first % block; count > rest; count -= rest, rest = block) {
      element_pass{*this}.run(set, rest);
      streams_.advance(rest);
    }
    run_as<usual_types<float32, false, float32>, usual_types<bfloat16, true, float32>,
           usual_types<float16, true, float32>, usual_types<bfloat16, false, float32>,
           usual_types<float16, false, float32>, usual_types<bfloat16, false, bfloat16>>(set, count);
  }

  /// Runs a loop that is compiled for one of these types, if the streams have it; else a loop for any types. Not
  /// inlined: the numbers of the work are computed before the flush mode is set.
  template <class... Types>
  [[gnu::noinline]] void run_as(instruction_set set, std::uint64_t count) noexcept
  {
    const float_environment fixed{mode_};
    random_keys keys[draws_philox ? states + 1 : 1];
    make(keys);
    has_bf16_ = set == instruction_set::avx512_bf16;
    std::uint64_t done = 0;
    if (!has_wider_sets || set != instruction_set::baseline) done = run_first<Types...>(set, count);
    if (done < count) run_rest(set, done, count - done);
  }

 private:
  using source_type = rounding_source<Work::rule>;
  /// The keys that all draws of a stream share; keys of rounding_bits are common to all streams.
  using random_keys = std::conditional_t<draws_philox, stream_words, source_type>;

  [[nodiscard]] static constexpr std::uint32_t list_of(std::size_t stream) noexcept
  {
    return stream != states ? static_cast<std::uint32_t>(stream) : value_stream;
  }

  /// Fills `keys` for the streams that random bits round.
  void make(random_keys* keys) noexcept
  {
    keys_ = keys;
    rounding_key key = streams_.key;
    if constexpr (draws_philox) {
      for (std::size_t index = 0; index <= states; ++index) {
        const element_stream& it = index != states ? streams_.states[index] : streams_.value;
        key.list = list_of(index);
        if (it.is_stochastic) keys[index] = random_keys{source_type{key}};
      }
    } else if (rounds_states<any_types>() || streams_.value.is_stochastic) {
      keys[0] = source_type{key}.in_block_of(streams_.first);
    }
  }

  template <class Real>
  struct registers {
    Real parameter, gradient, step, divisor;
    Real state[states + 1];
  };
  /// The numbers of all elements, each in every lane of a vector.
  template <class Real>
  struct numbers {
    explicit numbers(const element_pass& of) noexcept
        : work{of.work_.template in<Real>()},
          factor{in_all_lanes<Real>(of.how_.factor)},
          least{in_all_lanes<Real>(-of.how_.limit)},
          most{in_all_lanes<Real>(of.how_.limit)}
    {
    }

    decltype(std::declval<const Work&>().template in<Real>()) work;
    Real factor, least, most;
  };
  /// The numbers that the second loop over a block takes from the first: the divisors, and the first state if it is not
  /// stored as float32.
  template <std::size_t Block>
  struct kept_of_block {
    alignas(64) std::byte divisors[4 * Block], moments[4 * Block];
  };
  /// The random bits of a block, which all lists share. Older versions: of a group, for each list.
  template <std::size_t Width, std::size_t Block>
  struct randoms {
    explicit randoms(const element_pass& of) noexcept
    {
      if constexpr (!draws_philox) find_places(places, of.keys_[0], of.streams_.first);
    }

    /// Draws the bits of the next vector. @param place   of its first element in the block
    [[gnu::always_inline]] void draw(const element_pass& of, std::size_t place) noexcept
    {
      lane_bits<Width> bits;
      draw_lanes(bits, of.keys_[0], places);
      *reinterpret_cast<typename packed<std::uint32_t, Width>::type*>(drawn + place) = bits;
      places += Width;
    }

    lane_bits<Width> places{};
    alignas(64) std::uint32_t drawn[Block]{};
    random_group group[draws_philox ? states + 1 : 1];
  };

  /// A block has a loop up to the divisor, and a second loop from the quotient on.
  template <class Types>
  static constexpr bool in_halves = !is_first_version && Work::root_of != no_root && !std::is_same_v<Types, any_types>;

  /// Updates whole blocks, by the loop for the first of these types that the streams have. @return   elements updated
  template <class... Types>
  [[nodiscard]] std::uint64_t run_first(instruction_set set, std::uint64_t count) const noexcept
  {
    std::uint64_t done = 0;
    static_cast<void>(((Types::are(streams_) && (done = run_vectors<Types>(set, count), true)) || ...));
    return done;
  }
  [[nodiscard]] std::uint64_t run_any(instruction_set set, std::uint64_t count) const noexcept
  {
    return set == instruction_set::baseline ? run_baseline<any_types>(count) : run_vectors<any_types>(set, count);
  }
  template <class Types>
  [[nodiscard]] std::uint64_t run_vectors(instruction_set set, std::uint64_t count) const noexcept
  {
#if defined(__x86_64__)
    return set >= instruction_set::avx512 ? run_avx512<Types>(count) : run_avx2<Types>(count);
#else
    static_cast<void>(set);
    return run_baseline<Types>(count);
#endif
  }

  // A macro for three functions, since an attribute cannot depend on a template parameter. Functions for a processor
  // can be inlined only into functions for the same processor.
  //
  // The first loop over a block computes each vector up to the divisor, the second one from the quotient on. Roots and
  // quotients have a long latency: instructions that wait for both would fill the queue of the processor. The loop for
  // any types has one vector in a block, so that its code stays short.
#if defined(__CUDACC__)
#define CHUNKMEM_UNROLL  // nvcc warns of pragmas of GCC
#else
#define CHUNKMEM_UNROLL _Pragma("GCC unroll 4")
#endif
#define CHUNKMEM_UPDATE_LOOP(NAME, SET, TARGET)                                                       \
  template <class Types>                                                                              \
  [[nodiscard]] TARGET std::uint64_t NAME(std::uint64_t count) const noexcept                         \
  {                                                                                                   \
    using real = typename SET::real;                                                                  \
    constexpr std::size_t width = lane_count<real>;                                                   \
    constexpr std::size_t rows = in_halves<Types> ? SET::rows : 1;                                    \
    constexpr std::size_t together = rows < 4 ? rows : 4;                                             \
    constexpr std::size_t block = rows * width;                                                       \
    const element_pass self{*this}; /* its address does not escape: no store changes it */            \
    const numbers<real> all{*this};                                                                   \
    randoms<width, block> random{*this};                                                              \
    std::uint64_t index = 0;                                                                          \
    for (const std::uint64_t end = count / block * block; index != end;) {                            \
      registers<real> now;                                                                            \
      kept_of_block<block> kept;                                                                      \
      const std::uint64_t first = index;                                                              \
      const std::uint64_t last = first + block;                                                       \
      if (rows == 1 || self.is_special_) {                                                            \
        for (; index != last; index += width) {                                                       \
          self.template begin<Types>(self.is_special_, index, first, all, random, now);               \
          if constexpr (Work::root_of != no_root) SET::root(now.divisor, now.state[Work::root_of]);   \
          self.template keep<Types>(index - first, all, now, kept);                                   \
        }                                                                                             \
      } else {                                                                                        \
        for (; index != last; index += together * width)                                              \
          CHUNKMEM_UNROLL for (std::size_t at = index; at != index + together * width; at += width)   \
          {                                                                                           \
            self.template begin<Types>(false, at, first, all, random, now);                           \
            if constexpr (Work::root_of != no_root) SET::root(now.divisor, now.state[Work::root_of]); \
            self.template keep<Types>(at - first, all, now, kept);                                    \
          }                                                                                           \
      }                                                                                               \
      for (index = first; index != last; index += together * width)                                   \
        CHUNKMEM_UNROLL for (std::size_t at = index; at != index + together * width; at += width)     \
        {                                                                                             \
          self.template move<Types>(at, first, all, now, kept);                                       \
          if constexpr (!is_first_version) SET::add(now.parameter, now.step);                         \
          self.template store_parameter<Types>(at, first, all, random, now);                          \
        }                                                                                             \
    }                                                                                                 \
    return index;                                                                                     \
  }

  CHUNKMEM_UPDATE_LOOP(run_baseline, baseline_lanes, )
#if defined(__x86_64__)
  CHUNKMEM_UPDATE_LOOP(run_avx2, avx2_lanes, [[gnu::target("avx2,fma,f16c")]])
  CHUNKMEM_UPDATE_LOOP(run_avx512, avx512_lanes, [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]])
#endif
#undef CHUNKMEM_UPDATE_LOOP
#undef CHUNKMEM_UNROLL

  /// Loads elements, and changes their states. @param first   element of the block
  template <class Types, std::size_t Width, std::size_t Block>
  [[gnu::always_inline]] void begin(bool is_special, std::uint64_t index, std::uint64_t first,
                                    const numbers<lanes<Width>>& all, randoms<Width, Block>& random,
                                    registers<lanes<Width>>& now) const noexcept
  {
    load_lanes(now.gradient, streams_.gradient, Types::gradient(streams_), index);
    if (is_special) [[unlikely]]
      transform<Types>(index, all, now.gradient);
    else
      now.gradient = strict_fp::product(now.gradient, all.factor);
    if constexpr (states > 0) load_lanes(now.state[0], streams_.states[0].data, Types::state(streams_, 0), index);
    if constexpr (states > 1) load_lanes(now.state[1], streams_.states[1].data, Types::state(streams_, 1), index);
    if constexpr (is_first_version) {
      load_lanes(now.parameter, streams_.source, Types::source(streams_), index);
      all.work.observe(now.parameter, now.gradient, now.state);
    } else {
      all.work.observe(now.gradient, now.state);
    }
    store_states<Types>(index, first, random, now);
  }
  /// Computes the divisor from the root, and keeps it for the second loop. @param place   of the elements in the block
  template <class Types, class Real, std::size_t Block>
  [[gnu::always_inline]] void keep(std::uint64_t place, const numbers<Real>& all, registers<Real>& now,
                                   kept_of_block<Block>& kept) const noexcept
  {
    if constexpr (!is_first_version && Work::root_of != no_root) now.divisor = all.work.divisor(now.divisor);
    if constexpr (Block > lane_count<Real>) {
      store_lanes(kept.divisors, dtype::float32, place, now.divisor, false);
      if (Types::state(streams_, 0) != dtype::float32)
        store_lanes(kept.moments, dtype::float32, place, now.state[0], false);
    }
  }
  /// Computes the new parameter, or the two products whose sum it is.
  template <class Types, class Real, std::size_t Block>
  [[gnu::always_inline]] void move(std::uint64_t index, std::uint64_t first, const numbers<Real>& all,
                                   registers<Real>& now, const kept_of_block<Block>& kept) const noexcept
  {
    if constexpr (Block > lane_count<Real>) {
      load_lanes(now.divisor, kept.divisors, dtype::float32, index - first);
      if (Types::state(streams_, 0) == dtype::float32)
        load_lanes(now.state[0], streams_.states[0].data, dtype::float32, index);
      else
        load_lanes(now.state[0], kept.moments, dtype::float32, index - first);
    }
    if constexpr (is_first_version) {
      all.work.move(now.parameter, now.gradient, now.divisor, now.state);
    } else {
      load_lanes(now.parameter, streams_.source, Types::source(streams_), index);
      all.work.move(now.parameter, now.step, now.gradient, now.divisor, now.state);
    }
  }
  /// The rare changes of a gradient: all but the product with the factor.
  template <class Types, class Real>
  [[gnu::always_inline]] void transform(std::uint64_t index, const numbers<Real>& all, Real& gradient) const noexcept
  {
    if (is_first_version && !transforms_) return;
    if (flushes_first_) flush_lanes(gradient);
    gradient = strict_fp::product(gradient, all.factor);
    if constexpr (is_first_version) flush_lanes(gradient);
    if (cuts_) gradient = strict_fp::cut_to(gradient, all.least, all.most);
    if constexpr (!is_first_version) {
      if (!work_.is_decayed()) return;
      Real parameter;
      load_lanes(parameter, streams_.source, Types::source(streams_), index);
      gradient = all.work.decayed(parameter, gradient);
    }
  }
  template <class Types>
  [[nodiscard]] bool rounds_states() const noexcept
  {
    return (states > 0 && Types::rounds_state(streams_, 0)) || (states > 1 && Types::rounds_state(streams_, 1));
  }
  template <class Types, std::size_t Width, std::size_t Block>
  [[gnu::always_inline]] void store_states(std::uint64_t index, std::uint64_t first, randoms<Width, Block>& random,
                                           const registers<lanes<Width>>& now) const noexcept
  {
    if constexpr (!draws_philox)
      if (rounds_states<Types>()) random.draw(*this, index - first);
    if constexpr (states > 0)
      put(0, streams_.states[0].data, Types::state(streams_, 0), Types::rounds_state(streams_, 0), index, now.state[0],
          random, index - first);
    if constexpr (states > 1)
      put(1, streams_.states[1].data, Types::state(streams_, 1), Types::rounds_state(streams_, 1), index, now.state[1],
          random, index - first);
  }
  template <class Types, std::size_t Width, std::size_t Block>
  [[gnu::always_inline]] void store_parameter(std::uint64_t index, std::uint64_t first,
                                              const numbers<lanes<Width>>& all, randoms<Width, Block>& random,
                                              registers<lanes<Width>>& now) const noexcept
  {
    if constexpr (!is_first_version) now.parameter = strict_fp::stored(now.parameter, all.work.least_parameter);
    if (Types::has_master(streams_)) store_lanes(streams_.master, dtype::float32, index, now.parameter, has_bf16_);
    if constexpr (!draws_philox)
      if (Types::rounds_value(streams_) && !rounds_states<Types>()) random.draw(*this, index - first);
    if (Types::has_value(streams_))
      put(states, streams_.value.data, Types::value(streams_), Types::rounds_value(streams_), index, now.parameter,
          random, index - first);
  }
  /// Stores elements. @param which   of the streams that random bits round
  template <std::size_t Width, std::size_t Block>
  [[gnu::always_inline]] void put(std::size_t which, std::byte* to, dtype type, bool is_stochastic, std::uint64_t index,
                                  const lanes<Width>& value, randoms<Width, Block>& random,
                                  std::size_t place) const noexcept
  {
    using chunkmem::detail::philox_group;
    if (!is_stochastic) return store_lanes(to, type, index, value, has_bf16_);
    lane_bits<Width> bits;
    if constexpr (draws_philox) {
      const std::uint64_t element = streams_.first + index;
      const std::uint64_t in_group = element % philox_group;
      if (in_group == 0 || index == 0) draw_group<Width>(random.group[which], keys_[which], element / philox_group);
      load_random(bits, random.group[which], in_group);
    } else {
      const lane_bits<Width> drawn =
          *reinterpret_cast<const typename packed<std::uint32_t, Width>::type*>(random.drawn + place);
      bits_of_list(bits, drawn, list_of(which));
    }
    store_lanes(to, type, index, value, bits);
  }

  /// Updates the elements after the last whole block. Copies of the last ones fill a whole vector.
  void run_rest(instruction_set set, std::uint64_t done, std::uint64_t count) const noexcept
  {
    constexpr std::uint64_t most = 16;  // lanes of a vector
    struct copy {
      alignas(64) std::byte bytes[most * sizeof(float)]{};
    };
    copy gradient, source, master, value, lists[states + 1];
    element_pass whole{*this};  // a new one would look at its factor and limit in flush mode
    whole.streams_.advance(done);
    const std::uint64_t in_vectors = whole.run_any(set, count);
    count -= in_vectors;
    if (count == 0) return;
    whole.streams_.advance(in_vectors);
    const streams_type from = whole.streams_;
    streams_type& to = whole.streams_;
    const auto borrow = [&](auto*& data, dtype type, copy& room) {
      if (data == nullptr) return;
      std::memcpy(room.bytes, data, count * size_of(type));
      data = room.bytes;
    };
    borrow(to.gradient, to.gradient_type, gradient);
    borrow(to.source, to.source_type, source);
    borrow(to.master, dtype::float32, master);
    borrow(to.value.data, to.value.type, value);
    for (std::size_t state = 0; state != states; ++state)
      borrow(to.states[state].data, to.states[state].type, lists[state]);
    static_cast<void>(whole.run_any(set, set == instruction_set::baseline ? (count + 3) / 4 * 4 : most));
    const auto give_back = [&](std::byte* data, dtype type, const copy& room) {
      if (data != nullptr) std::memcpy(data, room.bytes, count * size_of(type));
    };
    give_back(from.master, dtype::float32, master);
    give_back(from.value.data, from.value.type, value);
    for (std::size_t state = 0; state != states; ++state)
      give_back(from.states[state].data, from.states[state].type, lists[state]);
  }

  Work work_;
  streams_type streams_;
  gradient_transform how_{};
  float_environment::settings mode_;
  bool transforms_;
  bool flushes_first_;
  bool cuts_;
  bool is_special_;                    // more than the factor changes the gradient
  bool has_bf16_ = false;              // the processor has AVX512_BF16, while it runs
  const random_keys* keys_ = nullptr;  // while it runs
};

/// `update` of a kernel that works in lanes, on spans in single precision.
template <updates_in_lanes Kernel>
void update_in_lanes(const Kernel& kernel, const update_spans& spans, const step_settings& settings) noexcept
{
  kernel.with_lane_work(settings, [&]<class Work>(const Work& work) {
    element_pass<Work>{work, streams_of<Work::states>(spans), nullptr}.run(kernel.instructions(),
                                                                           spans.parameter.size());
  });
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
