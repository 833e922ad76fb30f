// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "averages.hpp"
#include "breakable.hpp"
#include "plan.hpp"
#include "subject.hpp"

#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/chosen_gradient.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace differential {
namespace {  // each kind of manager has its own, since one is compiled with other headers

using any_transfer =
    cm::transfer::any_transfer<cm::transfer::lookahead, cm::transfer::no_prefetch, cm::transfer::planned>;

template <class Backend, class... More>
using manager_on =
    cm::manager<Backend, breakable_eviction, breakable_layout, breakable_mover, support::chosen_gradient, More...>;

[[nodiscard]] inline any_transfer transfer_of(const setting& it)
{
  return any_transfer{any_transfer::names[it.transfer % any_transfer::names.size()]};
}
[[nodiscard]] inline cm::bytes device_bytes(const setting& it)
{
  return cm::bytes{std::uint64_t{it.frame} * it.device_frames + std::uint64_t{256} * it.device_rest};
}
[[nodiscard]] inline cm::bytes host_bytes(const setting& it)
{
  return cm::bytes{std::uint64_t{it.frame} * it.host_frames};
}

/// The text of an exception, in plain words. Called in a handler.
inline answer translated()
{
  try {
    throw;
  } catch (const cm::usage_error& it) {
    return {.is = verdict::usage, .sentence = it.what()};
  } catch (const cm::out_of_memory& it) {
    const cm::memory_shortage& why = it.shortage();
    return {verdict::memory, it.what(), why.where == cm::tier::host, why.requested, why.capacity,
            why.pinned,      why.needed};
  } catch (const cm::config_error& it) {
    return {.is = verdict::config, .sentence = it.what()};
  } catch (const cm::device_error& it) {
    return {.is = verdict::device, .sentence = it.what()};
  } catch (const std::exception& it) {
    return {.is = verdict::other, .sentence = it.what()};
  }
}
template <class Call>
answer ask(Call call)
{
  try {
    call();
    return {};
  } catch (const divergence&) {
    throw;
  } catch (...) {
    return translated();
  }
}

/// A manager of these settings on a backend of its own.
template <class World>
struct house {
  using backend = typename World::backend;
  using manager = typename World::manager;
  explicit house(const setting& wanted) : house{wanted, cm::bytes{wanted.frame}, wanted.in_place} {}
  house(const setting& wanted, cm::bytes frame, bool in_place)
      : memory{World::options(wanted)}, m{manager_of(memory, wanted, frame, in_place)}
  {
  }
  static manager manager_of(backend& memory, const setting& it, cm::bytes frame, bool in_place)
  {
    const auto eviction = support::every_eviction::names[it.eviction % support::every_eviction::names.size()];
    const auto layout = every_layout::names[it.layout % every_layout::names.size()];
    return World::make(memory, cm::manager_options{.chunk_bytes = frame}, it, breakable_eviction{eviction, it.planted},
                       breakable_layout{layout, it.planted}, breakable_mover{it.planted},
                       support::chosen_gradient{in_place, it.wide});
  }

  backend memory;
  manager m;
};

/// Binds the words of a program to a manager: declarations, pins and leases.
template <class World>
class adapter_base : public subject {
 protected:
  using backend = typename World::backend;
  using manager = typename World::manager;
  using engine = typename manager::engine_type;
  template <class Element>
  using pin_of = typename manager::template pin_type<const Element>;  // modes are known at run time
  template <class Element>
  using gradient_of = cm::gradient_pin<Element, engine>;
  using any_pin =
      std::variant<pin_of<float>, pin_of<cm::bf16>, pin_of<std::uint8_t>, gradient_of<float>, gradient_of<cm::bf16>>;

 public:
  explicit adapter_base(const setting& wanted) : setting_{wanted}, plan_{plan_of(wanted.tensors)}, house_{wanted}
  {
    declare();
    adopted_ = house_.memory.adopt();
  }

  [[nodiscard]] bool is_addressable() const override { return backend::host_addressable; }
  [[nodiscard]] std::uint32_t agents() const override { return static_cast<std::uint32_t>(house_.memory.agents()); }
  [[nodiscard]] std::vector<answer> declaration_mistakes() const override { return declaration_mistakes_; }

  [[nodiscard]] std::vector<slot_place> places() const override
  {
    std::vector<slot_place> result;
    std::uint32_t base = 0;
    const auto lists = static_cast<std::uint32_t>(plan_.lists.size()) + 2;
    for (std::uint32_t list = 0; list < lists; ++list) place_group(list, role::parameter, result, base);
    for (const role part : {role::frozen, role::buffer, role::activation}) place_group(value_list, part, result, base);
    return result;
  }

 protected:
  [[nodiscard]] manager& m() noexcept { return house_.m; }
  [[nodiscard]] cm::tensor_handle handle(std::uint32_t tensor)
  {
    if (tensor < handles_.size()) return handles_[tensor];
    if (tensor % 2 == 0) return {};
    return {handles_[0].id, handles_[0].owner + 2};
  }
  [[nodiscard]] static cm::agent agent_of(std::uint32_t who)
  {
    return who == on_caller ? cm::agent::host : static_cast<cm::agent>(who);
  }

  template <class Pin>
  void keep(Pin&& fresh, granted& got)
  {
    show(fresh, got);
    pins_.emplace_back(std::forward<Pin>(fresh));
  }
  /// Address and size, and that `span` says the same where it may be asked.
  template <class Pin>
  void show(const Pin& it, granted& got)
  {
    using value = typename Pin::element_type;
    got.data = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(it.data()));
    got.size = it.size() * sizeof(value);
    if (!backend::host_addressable && cm::place_of(it.details().kind) == cm::memory_location::device) return;
    const auto elements = it.span();
    const bool same = got.data == nullptr ? elements.empty()
                                          : elements.size_bytes() == got.size &&
                                                reinterpret_cast<const std::byte*>(elements.data()) == got.data;
    if (!same) throw divergence{"span() and data() of a pin differ"};
  }

  setting setting_;
  plan plan_;
  averages kernel_{plan_};
  house<World> house_;
  std::array<std::byte, 8> cursor_{};
  std::vector<cm::tensor_handle> handles_;
  std::vector<any_pin> pins_;
  std::vector<cm::lease<engine>> leases_;
  cm::agent adopted_ = cm::agent::host;
  std::vector<answer> declaration_mistakes_;

 private:
  void declare()
  {
    m().use(kernel_);
    for (const tensor_plan& it : plan_.tensors) {
      const cm::role part = part_of(it.part);
      if (it.type == element::real)
        handles_.push_back(m().template add<float>({it.elements}, part));
      else
        handles_.push_back(m().template add<cm::bf16>({it.elements}, part));
    }
    m().state("cursor", cursor_);
    const auto wrong = [this](auto call) { declaration_mistakes_.push_back(ask(call)); };
    wrong([&] { m().template add<float>({4}, cm::role::gradient); });
    wrong([&] { m().template add_stacked<float>(0, {4}, cm::role::parameter); });
    wrong([&] { m().use(std::array{cm::list_spec{"momentum"}}); });
    wrong([&] { m().use(std::array{cm::list_spec{"half", cm::dtype::bfloat16, 1, cm::list_use::master}}); });
    if (setting_.tensors != 0)
      wrong([&] { m().use(std::array{cm::list_spec{"second", cm::dtype::float32, 1, cm::list_use::master}}); });
    m().seal();
  }
  [[nodiscard]] static cm::role part_of(role it)
  {
    constexpr cm::role parts[] = {cm::role::parameter, cm::role::frozen, cm::role::buffer, cm::role::activation};
    return parts[static_cast<int>(it)];
  }

  void place_group(std::uint32_t list, role part, std::vector<slot_place>& result, std::uint32_t& base) const
  {
    std::vector<cm::bytes> sizes;
    std::vector<std::uint32_t> present;
    for (const tensor_plan& it : plan_.tensors) {
      if (it.part != part) continue;
      const bool absent = list > 1 && plan_.lists[list - 2].is_master && it.type != element::brain;
      present.push_back(absent ? no_slot : static_cast<std::uint32_t>(sizes.size()));
      const std::uint32_t wide = list > 1 || (list == gradient_list && setting_.wide) ? 4 : size_of(it.type);
      if (!absent) sizes.emplace_back(std::uint64_t{it.elements} * wide);
    }
    every_layout layout{every_layout::names[setting_.layout % every_layout::names.size()]};
    std::vector<cm::chunk_place> places(sizes.size());
    layout.reset(cm::bytes{setting_.frame});
    cm::place_all(layout, sizes, places);
    std::uint32_t chunks = 0;
    std::vector<std::uint32_t> frames;
    for (const cm::chunk_place& it : places) {
      chunks = std::max(chunks, it.chunk + 1);
      frames.resize(chunks, 1);
      frames[it.chunk] = std::max(frames[it.chunk], it.frames);
    }
    for (const std::uint32_t index : present)
      result.push_back(index == no_slot ? slot_place{}
                                        : slot_place{base + places[index].chunk, frames[places[index].chunk]});
    base += chunks;
  }
};

}  // namespace
}  // namespace differential
