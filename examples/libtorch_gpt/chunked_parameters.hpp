// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lent_bytes.hpp"
#include "recomputed.hpp"

#include <c10/core/StreamGuard.h>
#include <chunkmem/manager/manager.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace libtorch_gpt {

namespace cm = chunkmem;

/// The place of LibTorch's work: the device of a manager's backend and, on a GPU, the stream of its agent `compute`.
struct torch_place {
  at::Device device = at::kCPU;
  std::optional<c10::Stream> stream{};
};

/// The parameters that one layer reads: acquired before the layer and released after it.
using layer = std::vector<std::size_t>;

/// Parameters of a LibTorch model whose bytes live in chunks.
///
/// Each parameter is one leaf tensor for the life of this object. It has bytes while a layer that reads it is held, and
/// none in between; autograd may save the leaf and views of it, since they share its storage. `run` holds a layer in
/// the forward pass, and a hook on the layer's output holds the layer again in the backward pass, until that reaches
/// the previous layer. A gradient goes to the manager as soon as autograd has computed it, and `.grad` is empty again.
/// A parameter that several layers read is one leaf: autograd sums its gradients in memory of its own, and delivers the
/// sum once.
///
/// Hooks refer to this object, so it must outlive the use of every graph that was made with it; a graph that is used
/// later throws. Several layers on several devices are not supported: the order of a backward pass is that of one
/// device.
///
/// @tparam Element   of all parameters; gradients have the same
/// @threads   one caller; the thread that autograd runs backward on takes its place while `backward` lasts
template <class Manager, cm::element Element>
class chunked_parameters {
 public:
  /// Where the kernels of LibTorch run.
  static constexpr cm::agent worker = Manager::engine_type::host_addressable ? cm::agent::host : cm::agent::compute;

  chunked_parameters(Manager& manager, const torch_place& where)
      : m_{manager}, device_{where.device}, stream_{where.stream}
  {
  }
  chunked_parameters(const chunked_parameters&) = delete;
  chunked_parameters& operator=(const chunked_parameters&) = delete;

  /// Declares a parameter. @return   its number; `tensor(number)` has no bytes yet
  std::size_t add(std::string_view name, at::IntArrayRef sizes, cm::group_id group = cm::group_id{0})
  {
    return adopt(name, view_of(nullptr, sizes, scalar_of<Element>, device_).requires_grad_(), group);
  }

  /// Declares an existing leaf, such as a parameter of a module, and takes its bytes away. Fill the parameter before
  /// training.
  /// @throws c10::Error   not a leaf of the element type that requires a gradient, or its storage was adopted before
  std::size_t adopt(std::string_view name, at::Tensor leaf, cm::group_id group = cm::group_id{0})
  {
    TORCH_CHECK(leaf.is_leaf() && leaf.requires_grad() && leaf.scalar_type() == scalar_of<Element>,
                "a parameter is a leaf of the element type");
    for (const entry& it : entries_)
      TORCH_CHECK(storage_of(it.leaf) != storage_of(leaf),
                  "this leaf was adopted before: name its first number in each layer that reads it");
    std::vector<std::uint64_t> extents(leaf.sizes().begin(), leaf.sizes().end());
    const auto handle =
        m_.template add<Element>(cm::shape{std::span<const std::uint64_t>{extents}}, cm::role::parameter, group);
    m_.name(handle, name);
    leaf.set_data(view_of(nullptr, leaf.sizes(), scalar_of<Element>, device_));
    take_bytes_back(leaf);
    const on_stream ours{stream_};  // autograd accumulates on the stream that is current now
    auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
    accumulator->add_post_hook(std::make_unique<hand_over>(life_, entries_.size()));
    entries_.push_back({handle, std::move(leaf), std::move(accumulator), {}, 0});
    return entries_.size() - 1;
  }

  [[nodiscard]] const at::Tensor& tensor(std::size_t which) const { return entries_.at(which).leaf; }
  [[nodiscard]] cm::tensor<Element> handle(std::size_t which) const { return entries_.at(which).handle; }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  /// Gives a parameter its first values: calls `write` with a tensor on the CPU.
  template <class Write>
  void fill(std::size_t which, Write&& write)
  {
    const auto pin = m_.acquire(handle(which), cm::access::write, cm::memory_location::host);
    write(view_of(pin.data(), tensor(which).sizes(), scalar_of<Element>, at::kCPU));
  }
  /// A copy of its values, on the CPU.
  [[nodiscard]] at::Tensor values(std::size_t which)
  {
    const auto pin = m_.acquire(handle(which), cm::access::read, cm::memory_location::host);
    return view_of(pin.data_without_const(), tensor(which).sizes(), scalar_of<Element>, at::kCPU).clone();
  }

  /// Keeps the bytes of a layer's parameters while this object lives. Holds may overlap.
  class hold {
   public:
    hold(chunked_parameters& owner, layer members) : hold{owner, std::move(members), 0}
    {
      for (; lent_ < members_.size(); ++lent_) owner.lend(members_[lent_]);
    }
    hold(const hold&) = delete;
    hold& operator=(const hold&) = delete;
    ~hold()
    {
      while (lent_ > 0) owner_.take_back(members_[--lent_]);
    }

   private:
    hold(chunked_parameters& owner, layer members, std::size_t lent)
        : owner_{owner}, members_{std::move(members)}, lent_{lent}
    {
    }
    chunked_parameters& owner_;
    layer members_;
    std::size_t lent_;
  };

  /// One layer: `body(input)` reads its parameters, now and in the backward pass.
  template <class Body>
  [[nodiscard]] at::Tensor run(const layer& members, const at::Tensor& input, Body&& body)
  {
    const auto before = input.grad_fn();
    at::Tensor output;
    {
      const hold weights{*this, members};
      output = body(input);
    }
    // the input may also be written in place
    const bool computed = !output.is_same(input) || output.grad_fn() != before;
    if (computed && output.requires_grad()) {
      output.register_hook([life = std::weak_ptr<chunked_parameters*>{life_}, members](const at::Tensor&) {
        chunked_parameters& self = alive(life);
        self.open_.reset();  // the next layer has run: autograd runs the newest nodes first
        self.open_.emplace(self, members);
      });
    }
    return output;
  }

  /// The same, but only the input is kept: the layer is recomputed in the backward pass.
  /// @param input   requires a gradient, else autograd skips the layer; all activations that the body reads
  /// @throws c10::Error   the input requires none and gradients are wanted: use `run` for the first layer of a model
  template <class Body>
  [[nodiscard]] at::Tensor run_again(const layer& members, const at::Tensor& input, Body body)
  {
    TORCH_CHECK(input.requires_grad() || !at::GradMode::is_enabled(),
                "run_again: its input needs a gradient, or its parameters would get none; use run for a first layer");
    const auto within = [life = std::weak_ptr<chunked_parameters*>{life_}, members](const std::function<void()>& work) {
      chunked_parameters& self = alive(life);
      self.open_.reset();
      const hold weights{self, members};
      work();
    };
    return recomputed::run(input, std::move(body), within);
  }

  /// Computes gradients of everything that `loss` depends on, and gives them to the manager.
  /// @throws the exceptions of hooks and kernels, chunkmem's errors with their types; call `forget_gradients`, then
  ///   continue
  void backward(const at::Tensor& loss)
  {
    const closing end{open_};
    torch::autograd::backward({loss}, {});
  }

  /// Drops the gradients of a step that is repeated. Also releases holds that a backward pass outside of `backward`
  /// left.
  void forget_gradients()
  {
    open_.reset();
    for (entry& it : entries_) it.leaf.mutable_grad() = at::Tensor{};
    m_.drop_gradients();
  }

  /// Called when the optimizer has changed the values: autograd then refuses graphs from before.
  void weights_changed()
  {
    for (entry& it : entries_) it.leaf.unsafeGetTensorImpl()->bump_version();
  }

 private:
  using pin_type = typename Manager::template pin_type<const Element>;
  using accumulator_type = decltype(torch::autograd::impl::grad_accumulator(std::declval<at::Tensor>()));
  using life_type = std::shared_ptr<chunked_parameters*>;

  struct entry {
    cm::tensor<Element> handle;
    at::Tensor leaf;
    accumulator_type accumulator;  // autograd itself keeps only a weak pointer
    std::optional<pin_type> pin;
    std::uint32_t holds;
  };

  struct on_stream {
    explicit on_stream(const std::optional<c10::Stream>& wanted)
    {
      if (wanted) guard.reset_stream(*wanted);
    }
    c10::OptionalStreamGuard guard;
  };

  struct closing {
    std::optional<hold>& open;
    ~closing() { open.reset(); }
  };

  /// Runs after the accumulation of a gradient: autograd adds nothing more in this backward pass.
  struct hand_over : torch::autograd::FunctionPostHook {
    hand_over(const life_type& life, std::size_t index) : life_{life}, at_{index} {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override
    {
      alive(life_).take_gradient(at_);
      return outputs;
    }

   private:
    std::weak_ptr<chunked_parameters*> life_;
    std::size_t at_;
  };

  static chunked_parameters& alive(const std::weak_ptr<chunked_parameters*>& life)
  {
    const auto self = life.lock();
    TORCH_CHECK(self, "a graph was used after the chunked_parameters that it was made with");
    return **self;
  }

  void lend(std::size_t which)
  {
    entry& it = entries_.at(which);
    if (it.holds == 0) {
      it.pin.emplace(m_.acquire(it.handle, cm::access::read, worker));
      lend_bytes(it.leaf, it.pin->data_without_const());
    }
    ++it.holds;
  }
  void take_back(std::size_t which) noexcept
  {
    entry& it = entries_[which];
    if (--it.holds > 0) return;
    take_bytes_back(it.leaf);
    it.pin.reset();
  }

  void take_gradient(std::size_t which)
  {
    entry& it = entries_[which];
    at::Tensor& made = it.leaf.mutable_grad();
    if (!made.defined()) return;
    TORCH_CHECK(made.layout() == at::kStrided, "a sparse gradient cannot lie in a chunk");
    const at::NoGradGuard without_graph;
    const on_stream ours{stream_};
    const auto room = m_.gradient(it.handle, worker);
    at::Tensor sum = view_of(room.data(), it.leaf.sizes(), scalar_of<Element>, device_);
    if (room.beta() == 0.0F)
      sum.copy_(made);
    else
      sum.add_(made);
    made = at::Tensor{};
  }

  Manager& m_;
  at::Device device_;
  std::optional<c10::Stream> stream_;
  std::vector<entry> entries_;
  std::optional<hold> open_;  // the layer that the backward pass is in
  life_type life_ = std::make_shared<chunked_parameters*>(this);
};

}  // namespace libtorch_gpt
