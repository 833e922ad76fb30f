// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace libtorch_gpt {

/// Keeps the tensors that autograd saves.
struct saver {
  /// Hooks for one tensor that autograd is about to save: they get the tensor, and return it in the backward pass.
  [[nodiscard]] virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
  virtual ~saver() = default;
};

namespace detail {

inline thread_local saver* current_saver = nullptr;

/// LibTorch's own engine. Autograd asks the engine for hooks before it saves a tensor; LibTorch's own answer is none.
struct saving_engine : torch::autograd::Engine {
  ~saving_engine() override { stop(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override
  {
    return current_saver != nullptr ? current_saver->hooks() : nullptr;
  }
};

/// Replaces LibTorch's engine for the rest of the process: its backward passes are the same code.
inline void install_saving_engine()
{
  static saving_engine ours;
  static const bool is_installed = [] {
    torch::autograd::set_default_engine_stub([]() -> torch::autograd::Engine& { return ours; });
    return true;
  }();
  (void)is_installed;
}

}  // namespace detail

/// While this object lives, `to` keeps the tensors that autograd saves on this thread; null leaves them to LibTorch.
///
/// A process has one engine. The engine of LibTorch's Python would be replaced, and with it the hooks of Python: use
/// this class only in programs without Python.
class saving {
 public:
  explicit saving(saver* to) : before_{detail::current_saver}
  {
    if (to != nullptr) detail::install_saving_engine();
    detail::current_saver = to;
  }
  saving(const saving&) = delete;
  saving& operator=(const saving&) = delete;
  ~saving() { detail::current_saver = before_; }

 private:
  saver* before_;
};

}  // namespace libtorch_gpt
