// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "saving.hpp"
#include "storage_set.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace libtorch_gpt {

/// The bytes of each storage that a forward pass saves, in the order of the pass.
using saved_sizes = std::vector<std::size_t>;

/// The rules for saved tensors that get a place in a chunk. The others stay where they are.
///
/// A leaf that requires a gradient stays, and so do views of it: it is a parameter, or an input that lives anyway.
struct saving_rules {
  std::size_t least_bytes = 1024;          ///< each place in a chunk is a multiple of 256 B
  const storage_set* elsewhere = nullptr;  ///< other storages that live anyway: frozen weights, leaves that are views

  [[nodiscard]] bool takes(const at::Tensor& saved) const
  {
    return has_plain_bytes(saved) && saved.storage().nbytes() >= least_bytes && !is_of_leaf(saved) &&
           (elsewhere == nullptr || !elsewhere->has(saved));
  }

 private:
  [[nodiscard]] static bool has_plain_bytes(const at::Tensor& saved)
  {
    return saved.layout() == at::kStrided && saved.has_storage() && !saved.is_quantized() && !saved.is_conj() &&
           !saved.is_neg() && saved.numel() > 0;
  }
  [[nodiscard]] static bool is_of_leaf(const at::Tensor& saved)
  {
    const auto is_leaf = [](const at::TensorBase& it) { return it.is_leaf() && it.requires_grad(); };
    return is_leaf(saved) || (saved.is_view() && is_leaf(saved._base()));
  }
};

/// Reads the sizes of a forward pass and keeps nothing: the pass takes no more memory than one without gradients.
///
///     saved_size_list list{rules};
///     { const saving looked_at{&list}; (void)model(input); }
///     declare(list.sizes());
class saved_size_list : public saver {
 public:
  explicit saved_size_list(const saving_rules& rules = {}) : rules_{rules} {}
  [[nodiscard]] const saved_sizes& sizes() const noexcept { return sizes_; }

  [[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override
  {
    return std::make_unique<note>(*this);
  }

 private:
  struct note : torch::autograd::SavedVariableHooks {
    explicit note(saved_size_list& owner) : owner_{owner} {}
    void call_pack_hook(const at::Tensor& saved) override { owner_.add(saved); }
    at::Tensor call_unpack_hook() override
    {
      TORCH_CHECK(false, "a forward pass that was only looked at has no backward pass");
    }

   private:
    saved_size_list& owner_;
  };
  struct seen {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // so that no later storage gets its address
    std::int64_t version = 0;
  };

  void add(const at::Tensor& saved)
  {
    if (!rules_.takes(saved)) return;
    const auto [it, is_new] =
        seen_.try_emplace(storage_of(saved), seen{saved.storage().getWeakStorageImpl(), saved._version()});
    if (!is_new && it->second.version == saved._version()) return;
    it->second.version = saved._version();
    sizes_.push_back(saved.storage().nbytes());
  }

  saving_rules rules_;
  saved_sizes sizes_{};
  std::unordered_map<const void*, seen> seen_{};
};

}  // namespace libtorch_gpt
