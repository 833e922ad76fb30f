// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Rank 0 of a model reads bytes that it can get only with the help of the other ranks, and these fail. The bytes that
// it gets have to be right; else it has to get an error.
namespace support::lone {

namespace cm = chunkmem;

/// The behaviour of the other ranks in place of their part.
enum class peers : std::uint8_t { dead, silent, other_call };
inline constexpr peers all_peers[] = {peers::dead, peers::silent, peers::other_call};
inline constexpr std::string_view names_of_peers[] = {"dead", "silent", "makes another call"};

inline constexpr float first_value = 1;
inline constexpr float frozen_value = 2;
/// Bytes of 0x40 each, the gradient of each weight on each rank.
inline const float gradient_value = std::bit_cast<float>(0x40404040U);
inline constexpr float rate = 0.25F;

/// The result of a read.
struct outcome {
  bool was_told = false;      ///< a comm_error
  bool names_tensor = false;  ///< and its words name the tensor and the rank
  std::uint64_t wrong = 0;    ///< wrong elements that were returned without an error
  std::string other_error{};  ///< anything else that was thrown
};

/// A model on one rank: each weight has a unit of its own, and one of them is longer.
template <class Backend, class Ranks>
struct rig {
  using backend_type = Backend;
  using model_type = cm::sharded_model<Backend, Ranks>;

  static cm::bytes frame_of(std::uint32_t ranks) { return cm::bytes{std::uint64_t{ranks} * 16'384}; }

  rig(Backend& memory, Ranks& ranks, const cm::sharding::zero& divided)
      : m{memory,
          ranks,
          {.chunk_bytes = frame_of(ranks.ranks())},
          {.divided = divided, .sum_scale = 1.0F / static_cast<float>(ranks.ranks())}},
        elements{frame_of(ranks.ranks()).count() / sizeof(float)}
  {
    const cm::list_spec older{"weights/1", cm::dtype::float32, 1, cm::list_use::weight};
    m.use(std::span{&older, 1});
    m.use(kernel);
    weight = m.template add<float>({elements}, cm::role::parameter);
    other = m.template add<float>({elements * 2}, cm::role::parameter);
    frozen = m.template add<float>({elements}, cm::role::frozen);
    own = m.template add<float>({elements}, cm::role::buffer);
    m.name(weight, "the.weight");
    m.name(frozen, "the.frozen.one");
    m.name(own, "a.buffer");
    for (const auto it : {weight, other}) fill(it, first_value);
    fill(frozen, frozen_value);
    fill(own, 0);
    keep_as_older();
    step();
  }

  /// One step of all ranks.
  void step()
  {
    const auto scope = m.iteration();
    for (const auto it : {weight, other}) {
      const auto pin = m.acquire(it, cm::access::read, cm::agent::compute);
    }
    for (const auto it : {other, weight}) give_gradient(it);
    (void)m.step(kernel, {.learning_rate = rate});
  }
  void give_gradient(cm::tensor<float> of)
  {
    auto gradient = m.gradient(m.acquire(of, cm::access::read, cm::agent::compute));
    m.backend().fill(reinterpret_cast<std::byte*>(std::as_const(gradient).data()), std::byte{0x40},
                     cm::bytes{gradient.size() * sizeof(float)}, cm::agent::compute);
    m.gradient_done(std::move(gradient));
  }
  /// All ranks evaluate the model, twice.
  void record_evaluation()
  {
    for (int times = 0; times < 2; ++times) {
      {
        const auto scope = m.iteration("evaluation");
        for (const auto it : {weight, other}) {
          const auto pin = m.acquire(it, cm::access::read);
        }
      }
      m.gather_weights();
    }
  }
  [[nodiscard]] static float trained() { return first_value - rate * gradient_value; }

  /// The number of elements that differ from the result of all ranks.
  [[nodiscard]] std::uint64_t wrong(const float* of, float wanted, std::uint64_t count = 0) const
  {
    const std::span<const float> all{of, static_cast<std::size_t>(count != 0 ? count : elements)};
    return static_cast<std::uint64_t>(
        std::ranges::count_if(all, [wanted](float it) { return !(it - wanted < 1e-4F && wanted - it < 1e-4F); }));
  }

  typename rig::model_type m;
  cm::optimizer::sgd kernel{{.momentum = 0}};
  std::uint64_t elements;
  cm::tensor<float> weight, other, frozen, own;

 private:
  void fill(cm::tensor<float> it, float value)
  {
    const auto pin = m.acquire(it, cm::access::write, cm::memory_location::host);
    std::ranges::fill(pin.span(), value);
  }
  /// Makes the current weights those of the list.
  void keep_as_older()
  {
    auto& shares = m.shares();
    const cm::list_id older = m.list("weights/1");
    shares.for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info&) {
      const auto from = shares.acquire_bytes(it, cm::value_list, cm::access::read, cm::memory_location::host);
      const auto to = shares.acquire_bytes(it, older, cm::access::write, cm::memory_location::host);
      std::memcpy(to.data(), from.data(), from.size());
    });
    m.gather_weights();
  }
};

/// A way to read bytes that depend on other ranks.
template <class Rig>
struct site {
  std::string_view name;
  std::uint64_t (*read)(Rig&);             ///< by rank 0 alone: the number of wrong elements
  std::string_view tensor = "the.weight";  ///< that the error names; empty: none
  bool keeps_weights = false;              ///< each rank has all of them (zero_2)
  bool is_evaluation = false;              ///< all ranks record an evaluation before
};

template <class Rig>
[[nodiscard]] std::uint64_t wrong_of_weight(Rig& it)
{
  const auto pin = it.m.acquire(it.weight, cm::access::read);
  return it.wrong(pin.data(), Rig::trained());
}
/// All ranks but the reader would have to add their gradients.
template <class Rig>
void add_alone(Rig& it)
{
  it.m.gradient_zero(it.weight, cm::agent::compute);
  it.m.gradient_done(it.weight);
}
template <class Rig>
[[nodiscard]] std::vector<site<Rig>> sites()
{
  std::vector<site<Rig>> all{
      {"a weight behind a step", [](Rig& it) { return wrong_of_weight(it); }},
      {"a weight by a variable mode",
       [](Rig& it) {
         const cm::access mode = cm::access::read;
         const auto pin = it.m.acquire(it.weight, mode);
         return it.wrong(pin.data(), Rig::trained());
       }},
      {"a weight at a place",
       [](Rig& it) {
         const auto pin = it.m.acquire(it.weight, cm::access::read, cm::memory_location::host);
         return it.wrong(pin.data(), Rig::trained());
       }},
      {"a version of a weight",
       [](Rig& it) {
         const auto pin = it.m.acquire(it.weight, it.m.list("weights/1"), cm::access::read);
         return it.wrong(pin.data(), first_value);
       }},
      {"a frozen weight",
       [](Rig& it) {
         const auto pin = it.m.acquire(it.frozen, cm::access::read);
         return it.wrong(pin.data(), frozen_value);
       },
       "the.frozen.one"},
      {"a weight of an evaluation that follows its record",
       [](Rig& it) {
         const auto scope = it.m.iteration("evaluation");
         return wrong_of_weight(it);
       },
       "the.weight", false, true},
      {"a weight that was gathered anew",
       [](Rig& it) {
         it.m.gather_weights();
         return wrong_of_weight(it);
       }},
      {"a kept weight that was gathered anew",
       [](Rig& it) {
         it.m.gather_weights();
         return wrong_of_weight(it);
       },
       "", true},
      {"a whole in the manager of a rank",
       [](Rig& it) {
         const auto& whole = it.m.share_of(it.weight).first->whole;
         const auto pin = it.m.shares().acquire(whole, cm::access::read);
         return it.wrong(reinterpret_cast<const float*>(pin.data()), Rig::trained());
       },
       ""},
      {"a gradient behind a sum",
       [](Rig& it) {
         const auto scope = it.m.iteration();
         add_alone(it);
         const auto pin = it.m.gradient(it.weight);
         return std::uint64_t{pin.beta() != 0};  // else the caller has to write its bytes
       }},
      {"the sum of gradients that a rank owns",
       [](Rig& it) {
         const auto scope = it.m.iteration();
         add_alone(it);
         const auto share = it.m.share_of(it.weight).first;
         const auto pin = it.m.shares().template gradient<float>(cm::tensor<float>{share->share});
         return it.wrong(pin.data(), 0, share->share_elements);
       },
       ""},
      {"that sum, as bytes on the host",
       [](Rig& it) {
         const auto scope = it.m.iteration();
         add_alone(it);
         const auto share = it.m.share_of(it.weight).first;
         const auto pin =
             it.m.shares().acquire_bytes(share->share, cm::gradient_list, cm::access::read, cm::memory_location::host);
         return it.wrong(reinterpret_cast<const float*>(pin.data()), 0, share->share_elements);
       },
       ""},
      {"a buffer that a stream made of a weight",
       [](Rig& it) {
         {
           const auto from = it.m.acquire(it.weight, cm::access::read, cm::agent::compute);
           const auto to = it.m.acquire(it.own, cm::access::write, cm::agent::compute);
           it.m.backend().copy(reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()),
                               cm::bytes{it.elements * sizeof(float)}, cm::agent::compute);
         }
         const auto pin = it.m.acquire(it.own, cm::access::read);
         return it.wrong(pin.data(), Rig::trained());
       },
       ""},  // if the gather of the weight fails at once, the error names the weight
      {"a step",
       [](Rig& it) {
         const auto scope = it.m.iteration();
         add_alone(it);
         (void)it.m.step(it.kernel, {.learning_rate = rate});
         return std::uint64_t{1};  // no other call reported the loss
       },
       ""},
      {"the end of an iteration, behind a pin for a stream",
       [](Rig& it) {
         auto scope = it.m.iteration();
         const auto pin = it.m.acquire(it.weight, cm::access::read, cm::agent::compute);
         try {
           it.m.settle();
         } catch (const cm::comm_error&) {  // now the loss is known
         }
         scope.end();
         return it.wrong(pin.data(), Rig::trained());
       },
       ""},
  };
  if constexpr (Rig::backend_type::host_addressable)
    all.push_back({"the span of a pin for a stream, behind a wait for that",
                   [](Rig& it) {
                     const auto pin = it.m.acquire(it.weight, cm::access::read, cm::agent::compute);
                     it.m.backend().wait(cm::agent::host, it.m.backend().record(cm::agent::compute));
                     return it.wrong(pin.span().data(), Rig::trained());
                   },
                   ""});
  return all;
}

/// Rank 0 tries the site, and tries it again: bytes that may be wrong stay refused.
template <class Rig>
[[nodiscard]] outcome read_alone(Rig& it, const site<Rig>& from)
{
  outcome found;
  for (int times = 0; times < 2; ++times) {
    try {
      found.wrong += from.read(it);
      found.was_told = false;
    } catch (const cm::comm_error& told) {
      const std::string words = told.what();
      found.was_told = times == 0 || found.was_told;
      found.names_tensor = words.find("rank ") != std::string::npos &&
                           (from.tensor.empty() || words.find(from.tensor) != std::string::npos);
    } catch (const std::exception& other) {
      if (times == 0) found.other_error = other.what();  // the second try may find the iteration of the first
    }
  }
  return found;
}

/// One rank of a combination. @param wait   called by a silent rank, until the reader is done
/// @return   the result of rank 0
template <class Backend, class Ranks, class Wait>
[[nodiscard]] outcome fail_reader(Backend& memory, Ranks& ranks, std::size_t which, peers how, bool& is_prepared,
                                  Wait wait)
{
  using rig_type = rig<Backend, Ranks>;
  const site<rig_type> it = sites<rig_type>()[which];
  rig_type here{memory, ranks, it.keeps_weights ? cm::sharding::zero_2 : cm::sharding::zero_3};
  if (it.is_evaluation) here.record_evaluation();
  here.m.settle();
  is_prepared = true;
  if (index_of(ranks.rank()) == 0) return read_alone(here, it);
  if (how == peers::silent) wait();
  if (how == peers::other_call) {
    try {
      const auto scope = here.m.iteration();
      here.m.gradient_zero(here.other, cm::agent::compute);
      here.m.gradient_done(here.other);
      here.m.settle();
    } catch (const cm::comm_error&) {  // this rank gets the error too
    }
  }
  return {};
}

}  // namespace support::lone
