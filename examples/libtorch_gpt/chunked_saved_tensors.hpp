// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lent_bytes.hpp"
#include "saved_sizes.hpp"

#include <chunkmem/manager/manager.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace libtorch_gpt {

namespace cm = chunkmem;

/// The tensors that autograd saves in a forward pass. They lie in chunks until the backward pass has used them.
///
/// Saving copies the storage into a tensor of the manager, once for all saved views of it, so that LibTorch frees its
/// own bytes as soon as the forward pass does not need them. The backward pass gets a tensor over the pinned bytes,
/// with the shape and the strides that were saved. The bytes are dropped with the last saved tensor of a storage,
/// whether the backward pass used it or an exception ended the pass.
///
/// The manager's tensors are declared beforehand, from the sizes that one forward pass saved. A storage without a
/// place, because the pass was another one, stays with LibTorch. A tensor that the rules exclude stays there too;
/// autograd refuses that tensor in the backward pass if it was written since. A copied tensor keeps its values of the
/// moment when it was saved.
///
///     chunked_saved_tensors saved{m, at::kCPU, rules, list.sizes()};
///     { const saving into{&saved}; loss = model(input); }
///     parameters.backward(loss);
///
/// Graphs that outlive this object throw where they are used. @pre nothing writes to tensors through `.data`, which
/// bypasses version counters
/// @threads as chunked_parameters
template <class Manager>
class chunked_saved_tensors : public saver {
 public:
  /// Where the kernels of LibTorch run.
  static constexpr cm::agent worker = Manager::engine_type::host_addressable ? cm::agent::host : cm::agent::compute;

  chunked_saved_tensors(Manager& manager, at::Device device, const saving_rules& rules, const saved_sizes& sizes)
      : m_{manager}, device_{device}, rules_{rules}
  {
    for (const std::size_t size : sizes) {
      places_.push_back({size, m_.template add<std::uint8_t>({size}, cm::role::activation)});
      m_.name(places_.back().handle, "saved." + std::to_string(places_.size() - 1));
    }
    std::ranges::stable_sort(places_, {}, &place::size);
  }
  chunked_saved_tensors(const chunked_saved_tensors&) = delete;
  chunked_saved_tensors& operator=(const chunked_saved_tensors&) = delete;

  [[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override
  {
    return std::make_unique<saved_tensor>(*this);
  }

  /// Storages that are in chunks now.
  [[nodiscard]] std::size_t in_use() const noexcept
  {
    return static_cast<std::size_t>(std::ranges::count(places_, true, &place::is_taken));
  }
  /// Bytes that were copied into chunks so far.
  [[nodiscard]] std::uint64_t saved_bytes() const noexcept { return saved_bytes_; }
  /// Bytes of storages that were worth a place and found none, counted at each save.
  [[nodiscard]] std::uint64_t unplaced_bytes() const noexcept { return unplaced_bytes_; }

 private:
  using pin_type = typename Manager::template pin_type<const std::uint8_t>;
  using life_type = std::shared_ptr<chunked_saved_tensors*>;

  struct place {
    std::size_t size = 0;
    cm::tensor<std::uint8_t> handle{};
    bool is_taken = false;
  };

  /// The bytes of a storage in a place of the manager.
  struct copy : std::enable_shared_from_this<copy> {
    copy(const life_type& owner, place& in, const at::Tensor& from)
        : life{owner},
          where{in},
          storage{from.storage().getWeakStorageImpl()},
          key{storage_of(from)},
          version{from._version()}
    {
    }
    copy(const copy&) = delete;
    copy& operator=(const copy&) = delete;
    ~copy()
    {
      if (const auto owner = life.lock()) (*owner)->give_back(*this);
    }
    std::weak_ptr<chunked_saved_tensors*> life{};
    place& where;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // so that no later storage gets its address
    const void* key = nullptr;
    std::int64_t version = 0;
  };

  /// A pin that ends before the bytes are dropped.
  struct lent {
    std::shared_ptr<const copy> from{};
    pin_type pin{};
  };

  /// One tensor that autograd saved: a view of a copy, or the tensor itself.
  struct saved_tensor : torch::autograd::SavedVariableHooks {
    explicit saved_tensor(chunked_saved_tensors& owner) : life_{owner.life_} {}
    void call_pack_hook(const at::Tensor& saved) override
    {
      chunked_saved_tensors& owner = alive(life_);
      version_ = saved._version();
      copy_ = owner.rules_.takes(saved) && saved.device() == owner.device_ ? owner.copy_of(saved) : nullptr;
      if (copy_ == nullptr) {
        itself_ = saved.detach();  // with its graph the tensor would keep itself alive
        return;
      }
      sizes_ = saved.sizes().vec();
      strides_ = saved.strides().vec();
      offset_ = static_cast<std::size_t>(saved.storage_offset()) * saved.element_size();
      type_ = saved.scalar_type();
    }
    at::Tensor call_unpack_hook() override
    {
      if (copy_ != nullptr) return alive(life_).lend(copy_, *this);
      TORCH_CHECK(itself_._version() == version_,
                  "a tensor needed for gradient computation has been modified by an inplace operation: ",
                  itself_.toString(), " ", itself_.sizes(), " is at version ", itself_._version(), ", not ", version_);
      return itself_;
    }

   private:
    friend chunked_saved_tensors;
    std::weak_ptr<chunked_saved_tensors*> life_;
    std::int64_t version_ = 0;
    at::Tensor itself_{};
    std::shared_ptr<const copy> copy_{};
    std::vector<std::int64_t> sizes_{}, strides_{};
    std::size_t offset_ = 0;  // [bytes]
    at::ScalarType type_ = at::kByte;
  };

  static chunked_saved_tensors& alive(const std::weak_ptr<chunked_saved_tensors*>& life)
  {
    const auto self = life.lock();
    TORCH_CHECK(self, "a graph was used after the chunked_saved_tensors that it was made with");
    return **self;
  }

  /// The copy of the storage of `saved`, or null where no free place is large enough.
  [[nodiscard]] std::shared_ptr<const copy> copy_of(const at::Tensor& saved)
  {
    const auto known = copies_.find(storage_of(saved));
    if (known != copies_.end() && known->second->version == saved._version()) return known->second->shared_from_this();
    const std::size_t size = saved.storage().nbytes();
    auto room = std::ranges::lower_bound(places_, size, {}, &place::size);
    room = std::find_if(room, places_.end(), [](const place& it) { return !it.is_taken; });
    if (room == places_.end()) {
      unplaced_bytes_ += size;
      return nullptr;
    }
    const auto made = std::make_shared<copy>(life_, *room, saved);
    copies_.insert_or_assign(made->key, made.get());
    room->is_taken = true;
    write(*room, saved);
    saved_bytes_ += size;
    return made;
  }

  void write(const place& to, const at::Tensor& saved)
  {
    const auto pin = m_.acquire(to.handle, cm::access::write, worker);
    const auto size = static_cast<std::int64_t>(saved.storage().nbytes());
    view_of(pin.data(), {size}, at::kByte, device_)
        .copy_(view_of(saved.storage().data_ptr().get(), {size}, at::kByte, device_));
  }

  [[nodiscard]] at::Tensor lend(const std::shared_ptr<const copy>& from, const saved_tensor& as)
  {
    const auto held = std::make_shared<lent>(lent{from, m_.acquire(from->where.handle, cm::access::read, worker)});
    return at::for_blob(held->pin.data_without_const() + as.offset_, as.sizes_)
        .strides(as.strides_)
        .deleter([held](void*) {})
        .options(at::TensorOptions{}.dtype(as.type_).device(device_))
        .target_device(device_)
        .make_tensor();
  }

  void give_back(const copy& gone) noexcept
  {
    gone.where.is_taken = false;
    if (const auto known = copies_.find(gone.key); known != copies_.end() && known->second == &gone)
      copies_.erase(known);
    try {
      m_.drop(gone.where.handle);
    } catch (...) {  // the device is lost: the next write reuses these bytes
    }
  }

  Manager& m_;
  at::Device device_;
  saving_rules rules_;
  std::vector<place> places_{};                      // by size
  std::unordered_map<const void*, copy*> copies_{};  // by storage, the newest of each
  std::uint64_t saved_bytes_ = 0, unplaced_bytes_ = 0;
  life_type life_ = std::make_shared<chunked_saved_tensors*>(this);
};

}  // namespace libtorch_gpt
