// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter_base.hpp"
#include "mistakes.hpp"
#include "stepper.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace differential {
namespace {

/// Makes the calls of a program on a manager.
template <class World>
class adapter final : public adapter_base<World> {
  using base = adapter_base<World>;
  using typename base::any_pin, typename base::engine, typename base::backend, typename base::manager;
  template <class Element>
  using pin_of = typename base::template pin_of<Element>;
  using base::agent_of, base::handle, base::house_, base::keep, base::leases_, base::m, base::pins_, base::show;

 public:
  using base::base;
  ~adapter() override { scope_.reset(); }

  // Pins.

  [[nodiscard]] std::size_t pins() const override { return pins_.size(); }
  answer acquire(const request& it, granted& got) override
  {
    return ask([&] {
      const cm::tensor_handle wanted = handle(it.tensor);
      const auto how = cm::access{static_cast<cm::access_mode>(it.how)};
      const auto place = static_cast<cm::memory_location>(it.at);
      const auto list = cm::list_id{it.list};
      if (it.by == route::bytes) {
        if (it.agent == on_caller)
          keep(m().acquire_bytes(wanted, list, how, place), got);
        else
          keep(m().acquire_bytes(wanted, list, how, agent_of(it.agent)), got);
      } else if (it.type == element::real) {
        typed<float>(it, wanted, list, how, place, got);
      } else {
        typed<cm::bf16>(it, wanted, list, how, place, got);
      }
    });
  }
  answer look(std::size_t pin, granted& got) override
  {
    return ask([&] { std::visit([&](const auto& it) { this->show(it, got); }, pins_[pin]); });
  }
  answer move_pin(std::size_t pin) override
  {
    return std::visit(
        [](auto& it) {
          auto moved = std::move(it);
          const answer result = ask([&] { (void)it.data(); });
          it = std::move(moved);
          return result;
        },
        pins_[pin]);
  }
  void release(std::size_t pin) override
  {
    std::visit([](auto& it) { it.release(); }, pins_[pin]);
    erase(pins_, pin);
  }

  // Gradients.

  answer gradient_of_pin(std::size_t index, element kind, granted& got) override
  {
    bool is_consumed = false;
    const auto consume = [&](auto kept) {
      got.beta = kept.beta();
      is_consumed = true;
      erase(this->pins_, index);
      this->keep(std::move(kept), got);
    };
    const auto open = [&](auto& pin) {
      if (kind == element::real)
        consume(this->m().template gradient<float>(std::move(pin)));
      else
        consume(this->m().template gradient<cm::bf16>(std::move(pin)));
    };
    answer result;
    if (auto* const real = std::get_if<pin_of<float>>(&pins_[index]))
      result = ask([&] { open(*real); });
    else if (auto* const brain = std::get_if<pin_of<cm::bf16>>(&pins_[index]))
      result = ask([&] { open(*brain); });
    else
      return {.is = verdict::other};
    // no room: it is consumed too
    if (!is_consumed && std::visit([](const auto& it) { return !it.is_live(); }, pins_[index])) erase(pins_, index);
    return result;
  }
  answer gradient(std::uint32_t tensor, element kind, std::uint32_t agent, granted& got) override
  {
    const auto open = [&](auto fresh) {
      got.beta = fresh.beta();
      this->keep(std::move(fresh), got);
    };
    return ask([&] {
      const cm::tensor<cm::bf16> wanted{handle(tensor)};  // a gradient's own type is what counts
      if (kind == element::real)
        open(this->m().template gradient<float>(wanted, agent_of(agent)));
      else
        open(this->m().gradient(wanted, agent_of(agent)));
    });
  }
  answer done_with_pin(std::size_t index) override
  {
    answer result{.is = verdict::other};
    if (auto* const real = std::get_if<typename base::template gradient_of<float>>(&pins_[index]))
      result = ask([&] { m().gradient_done(std::move(*real)); });
    else if (auto* const brain = std::get_if<typename base::template gradient_of<cm::bf16>>(&pins_[index]))
      result = ask([&] { m().gradient_done(std::move(*brain)); });
    if (result.is == verdict::fine) erase(pins_, index);
    return result;
  }
  answer done(std::uint32_t tensor, std::uint32_t agent) override
  {
    return ask([&] {
      if (base::plan_.tensors[tensor % base::plan_.tensors.size()].type == element::real)
        m().gradient_done(cm::tensor<float>{handle(tensor)}, agent_of(agent));
      else
        m().gradient_done(cm::tensor<cm::bf16>{handle(tensor)}, agent_of(agent));
    });
  }
  answer drop(std::uint32_t tensor) override
  {
    return ask([&] { m().drop(handle(tensor)); });
  }
  answer drop_gradient(std::uint32_t tensor) override
  {
    return ask([&] { m().drop_gradient(handle(tensor)); });
  }
  answer drop_gradients() override
  {
    return ask([&] { m().drop_gradients(); });
  }

  // Steps.

  answer step(const step_request& wanted, stepped& got) override
  {
    std::vector<cm::tensor_handle> first;
    for (const std::uint32_t it : wanted.first) first.push_back(handle(it));
    return steps_.step(wanted, first, got);
  }
  answer finish_updates() override { return steps_.finish_updates(); }
  void end_late() override { steps_.end_late(); }
  answer begin_load() override
  {
    return ask([&] { m().content().begin_load(); });
  }
  void end_load() override { m().content().end_load(); }

  // Leases and work.

  answer lease(bool on_host, std::uint64_t size, std::uint32_t agent, granted& got) override
  {
    return ask([&] {
      leases_.push_back(m().lease(on_host ? cm::tier::host : cm::tier::device, cm::bytes{size}, agent_of(agent)));
      got.data = leases_.back().data();
      got.size = leases_.back().size().count();
    });
  }
  void end_lease(std::size_t index) override { erase(leases_, index); }
  void launch(std::uint32_t agent, std::byte* data, const job& work) override
  {
    house_.memory.launch(agent_of(agent), [data, it = &work]() noexcept { it->run(data); });
  }
  void drain() override
  {
    for (std::size_t who = 1; who < house_.memory.agents(); ++who)
      house_.memory.wait(cm::agent::host, house_.memory.record(static_cast<cm::agent>(who)));
  }

  // Iterations.

  answer begin(std::uint32_t name, std::uint32_t micro_batches) override
  {
    return ask([&] { scope_.reset(new scope_type(m().iteration(name_of(name), micro_batches))); });
  }
  answer pass_to(pass during, std::uint32_t micro_batch) override
  {
    return ask([&] { scope_->pass(static_cast<cm::pass>(during), micro_batch); });
  }
  answer end() override
  {
    const answer result = ask([&] { scope_->end(); });
    scope_.reset();
    return result;
  }
  void abandon() override
  {
    try {
      const std::unique_ptr<scope_type> ended_by_the_exception = std::move(scope_);
      throw divergence{};
    } catch (const divergence&) {
    }
  }
  void keep_record() override { m().updates().keep_record(); }
  answer exchange(std::uint32_t left, std::uint32_t right) override
  {
    return ask([&] { m().exchange(cm::list_id{left}, cm::list_id{right}); });
  }
  answer rehearse(rehearsed_step& step, figures& need) override
  {
    return ask([&] {
      const cm::memory_requirement known = m().rehearse([&] { step.run(); });
      need.capacity[0] = known.smallest_device.count();
      need.capacity[1] = known.smallest_host.count();
    });
  }
  answer use_profile(std::uint32_t from, std::uint32_t to) override
  {
    const cm::access_record* const known = m().profile(name_of(from));
    return ask([&] { m().use_profile(known == nullptr ? cm::access_record{} : *known, name_of(to)); });
  }
  [[nodiscard]] bool has_profile(std::uint32_t name) override { return m().profile(name_of(name)) != nullptr; }
  answer mistake(std::uint32_t which) override { return mistakes_.make(which, house_, base::setting_, this->handles_); }

  // What is seen.

  [[nodiscard]] figures seen() const override
  {
    const cm::report now = house_.m.report();
    figures result;
    for (const cm::tier where : {cm::tier::device, cm::tier::host}) {
      result.capacity[static_cast<int>(where)] = now.capacity[where].count();
      result.in_use[static_cast<int>(where)] = now.in_use[where].count();
      result.peak[static_cast<int>(where)] = now.peak[where].count();
    }
    const std::uint64_t moved[5] = {now.loaded.count(), now.written_back.count(), now.loads, now.write_backs,
                                    now.evictions};
    std::copy(moved, moved + 5, result.moved);
    result.iterations = now.iterations;
    result.divergences = now.divergences;
    return result;
  }
  [[nodiscard]] state state_of(std::uint32_t tensor) override
  {
    return static_cast<state>(m().state_of(handle(tensor)));
  }
  [[nodiscard]] bool is_filled(std::uint32_t tensor, std::uint32_t list) override
  {
    return list == gradient_list ? m().has_gradient(handle(tensor)) : m().is_filled(handle(tensor), cm::list_id{list});
  }
  [[nodiscard]] bool waits(std::uint32_t tensor) override
  {
    return m().updates_pending() > 0 && !m().has_gradient(handle(tensor)) &&
           m().is_filled(handle(tensor), cm::gradient_list);
  }
  [[nodiscard]] bool is_guessed() const override { return steps_.is_guessed(); }
  [[nodiscard]] bool is_measured(std::uint32_t tensor) override
  {
    return m().updates().measure_of(handle(tensor)) != nullptr;
  }
  [[nodiscard]] place place_of_update(std::uint32_t tensor) override
  {
    return static_cast<place>(m().updates().place_of_update(handle(tensor)));
  }
  [[nodiscard]] bool has_drifted() const override { return house_.m.drifted(); }
  [[nodiscard]] std::vector<std::string> faults() override
  {
    if constexpr (requires { house_.memory.faults(); })
      return house_.memory.faults();
    else
      return {};
  }

 private:
  using scope_type = cm::iteration<engine>;

  template <class Element>
  void typed(const request& it, cm::tensor_handle wanted, cm::list_id list, cm::access how, cm::memory_location place,
             granted& got)
  {
    const cm::tensor<Element> tensor{wanted};
    if (it.by == route::list)
      keep(m().template acquire<Element>(wanted, list, how, place), got);
    else if (it.agent != on_caller)
      keep(m().acquire(tensor, how, agent_of(it.agent)), got);
    else if (place == cm::memory_location::host)
      keep(m().acquire(tensor, how, place), got);
    else
      keep(m().acquire(tensor, how), got);
  }
  template <class Held>
  static void erase(std::vector<Held>& from, std::size_t index)
  {
    if (index + 1 < from.size()) from[index] = std::move(from.back());
    from.pop_back();
  }
  [[nodiscard]] static const char* name_of(std::uint32_t name)
  {
    constexpr const char* names[] = {"train", "eval", "other"};
    return names[name % 3];
  }

  mistake_maker<World> mistakes_;
  stepper<World> steps_{this->house_.m, this->kernel_};
  std::unique_ptr<scope_type> scope_;
};

}  // namespace
}  // namespace differential
