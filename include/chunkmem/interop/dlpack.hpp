// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#if !defined(DLPACK_DLPACK_H_)  // not where a framework's copy, such as ATen/dlpack.h, was included before
#include <dlpack/dlpack.h>
#endif

namespace chunkmem::inline v0 {

/// Tensors of other programs and frameworks, lent and taken by the structs of DLPack.
///
/// The header of DLPack comes from the user, 0.6 or newer. A framework's copy that was included before is used instead.
namespace interop {

/// The name of an element type in DLPack.
[[nodiscard]] constexpr DLDataType dlpack_type_of(dtype type) noexcept
{
  switch (type) {
    case dtype::float32: return {kDLFloat, 32, 1};
    case dtype::bfloat16: return {kDLBfloat, 16, 1};
    case dtype::float16: return {kDLFloat, 16, 1};
    case dtype::int32: return {kDLInt, 32, 1};
    case dtype::int64: return {kDLInt, 64, 1};
    case dtype::uint8: return {kDLUInt, 8, 1};
  }
  return {kDLOpaqueHandle, 0, 0};
}

[[nodiscard]] constexpr bool is_same_type(const DLDataType& left, const DLDataType& right) noexcept
{
  return left.code == right.code && left.bits == right.bits && left.lanes == right.lanes;
}

/// Whether the calling thread may read the bytes of this device.
[[nodiscard]] constexpr bool is_readable_here(const DLDevice& device) noexcept
{
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost || device.device_type == kDLROCMHost ||
         device.device_type == kDLCUDAManaged;
}

/// One of the two structs of DLPack: the first one, or the struct of DLPack 1 with a version and flags.
template <class Managed>
concept dlpack_managed = requires(Managed it, void (*deleter)(Managed*)) {
  it.dl_tensor.data;
  it.manager_ctx;
  it.deleter = deleter;
};

/// Bit of `flags` in the newer struct: the consumer may not write.
inline constexpr std::uint64_t dlpack_read_only = 1;

/// The newest supported major version of the structs.
inline constexpr std::uint32_t dlpack_major_version = 1;

/// The struct has a version.
template <class Managed>
concept dlpack_versioned = dlpack_managed<Managed> && requires(Managed it) {
  it.version.major;
  it.version.minor;
  it.flags;
};

static_assert(dlpack_managed<DLManagedTensor> && !dlpack_versioned<DLManagedTensor>);

/// One lent tensor. It is returned when its consumer calls the deleter.
///
///     struct lent_pin final : lent_tensor { my_pin pin; };
///     dlpack_returns::address::drop(dlpack_returns::address{returns}, new lent_pin);  // in the deleter
class lent_tensor {
 public:
  lent_tensor() = default;
  lent_tensor(const lent_tensor&) = delete;
  lent_tensor& operator=(const lent_tensor&) = delete;
  virtual ~lent_tensor() = default;  ///< ends the pin

 private:
  friend class dlpack_returns;
  lent_tensor* next_ = nullptr;
};

/// A mailbox for lent tensors. They wait in it, after their consumers are done, until the manager's own caller ends
/// their pins.
///
/// A framework may call a deleter on any of its threads, at any time, and a manager has one caller at a time. With a
/// mailbox the deleter only drops the tensor in, and `collect` ends the pins. Without a mailbox the deleter ends the
/// pin itself, and has to be called where the manager may be called. The mailbox may be destroyed before the tensors
/// are returned. These then end on the thread that returns the last of them. Cost: a deleter makes one atomic exchange
/// and never waits; nothing is allocated.
///
/// Use:
///
///     interop::dlpack_returns returns;
///     auto* lent = interop::to_dlpack(std::move(pin), shape, {.returns = &returns});
///     ...                    // the framework calls the deleter on any thread
///     returns.collect();     // once a step, on the manager's caller
///
/// @threads   drop: any; all others: the manager's caller
class dlpack_returns {
  struct box;

 public:
  dlpack_returns() : box_{std::make_shared<box>()} {}

  /// Ends the pins of all returned tensors. @return   their number
  std::size_t collect() noexcept { return box_->empty(); }

  /// A share in the mailbox, for a tensor that is lent.
  class address {
   public:
    address() = default;
    explicit address(const dlpack_returns& to) noexcept : box_{to.box_} {}
    [[nodiscard]] bool is_known() const noexcept { return box_ != nullptr; }
    /// Takes the tensor. @pre   is_known
    static void drop(address to, lent_tensor* back) noexcept { to.box_->add(back); }

   private:
    friend class dlpack_returns;
    std::shared_ptr<box> box_;
  };

 private:
  /// A lock-free stack. Only one thread takes from it, and takes all together, so that there is no ABA problem.
  struct box {
    box() = default;
    box(const box&) = delete;
    box& operator=(const box&) = delete;
    ~box() { empty(); }

    void add(lent_tensor* back) noexcept
    {
      back->next_ = first.load(std::memory_order_relaxed);
      while (!first.compare_exchange_weak(back->next_, back, std::memory_order_release, std::memory_order_relaxed)) {
      }
    }
    std::size_t empty() noexcept
    {
      std::size_t ended = 0;
      for (lent_tensor* at = first.exchange(nullptr, std::memory_order_acquire); at != nullptr; ++ended)
        delete std::exchange(at, at->next_);
      return ended;
    }

    std::atomic<lent_tensor*> first = nullptr;
  };

  std::shared_ptr<box> box_;
};

namespace detail {

/// The parts of one lent tensor: the struct, the arrays that it points to, and the pin.
template <dlpack_managed Managed, class Pin>
class lent_pin final : public lent_tensor {
 public:
  lent_pin(const shape& extents, DLDevice where, const dlpack_returns* returns) : rank_{extents.rank()}
  {
    if (returns != nullptr) home_ = dlpack_returns::address{*returns};
    std::int64_t stride = 1;
    for (std::size_t axis = rank_; axis-- > 0;) {
      extents_[axis] = static_cast<std::int64_t>(extents[axis]);
      strides_[axis] = stride;
      stride *= extents_[axis];
    }
    managed_.dl_tensor.device = where;
    managed_.dl_tensor.ndim = static_cast<int>(rank_);
    managed_.dl_tensor.dtype = dlpack_type_of(dtype_of<std::remove_const_t<typename Pin::element_type>>);
    managed_.dl_tensor.shape = extents_;
    managed_.dl_tensor.strides = strides_;  // newer readers want them, also where they are the usual ones
    managed_.dl_tensor.byte_offset = 0;
    managed_.manager_ctx = this;
    managed_.deleter = &come_back;
  }

  /// Takes the pin over. Cannot fail.
  Managed* take(Pin&& held, void* data, bool reads_only) noexcept
  {
    pin_ = std::move(held);
    managed_.dl_tensor.data = data;
    if constexpr (dlpack_versioned<Managed>) {
      managed_.version.major = dlpack_major_version;
      managed_.version.minor = 0;
      managed_.flags = reads_only ? dlpack_read_only : 0;
    }
    return &managed_;
  }

 private:
  static void come_back(Managed* self)
  {
    auto* const it = static_cast<lent_pin*>(self->manager_ctx);
    dlpack_returns::address home = std::move(it->home_);
    if (home.is_known())
      dlpack_returns::address::drop(std::move(home), it);
    else
      delete it;
  }

  Managed managed_{};
  std::size_t rank_;
  std::int64_t extents_[shape::max_rank] = {};
  std::int64_t strides_[shape::max_rank] = {};
  dlpack_returns::address home_;
  Pin pin_;
};

}  // namespace detail

/// The options of lending a pin.
///
///     const lending how{.device_id = 1, .returns = &returns};
///     DLManagedTensor* const lent = to_dlpack<DLManagedTensor>(std::move(pin), extents, how);
struct lending {
  int device_id = 0;                        ///< of the GPU, as the consumer counts them; memory of the host has none
  const dlpack_returns* returns = nullptr;  ///< the mailbox of the tensor; null: its deleter ends the pin itself
};

namespace detail {

template <dlpack_managed Managed, pinned_element Element, class Engine>
[[nodiscard]] Managed* lend_pin(pin<Element, Engine>&& held, const shape& extents, const lending& how)
{
  using pin_type = pin<Element, Engine>;
  const access_token& known = held.details();
  void* const data = held.data_without_const();
  if (data == nullptr)
    throw usage_error{"a pin of a rehearsal has no bytes to lend (ask the manager whether it is rehearsing)"};
  if (held.size() != extents.elements())
    throw usage_error{error_text{} << "chunkmem: a tensor of " << held.size()
                                   << " elements cannot be lent with a shape of " << extents.elements()
                                   << " (give the shape that it was declared with)"};
  const bool on_gpu = !Engine::host_addressable && place_of(known.kind) == memory_location::device;
  const DLDevice where{on_gpu ? kDLCUDA : kDLCPU, on_gpu ? how.device_id : 0};
  const bool reads_only = !writes(access_of(known.kind));
  auto lent = std::make_unique<lent_pin<Managed, pin_type>>(extents, where, how.returns);
  return lent.release()->take(std::move(held), data, reads_only);
}

}  // namespace detail

/// Lends the bytes of a pin: the tensor stays where it is until the consumer calls the deleter.
///
/// - A pin for a stream is ready only for that stream. Let the consumer work on that stream, and call the deleter no
///   earlier than its last work is enqueued there.
/// - A pin in memory of a CUDA device is lent as memory of that device, and any other pin as memory of the CPU.
/// - A pin for reading has the read-only flag of DLPack 1. The older struct has no such flag: take
///   `to_dlpack_without_const`.
/// - Call the deleter before the manager is destroyed, like the end of any pin. Call it within the iteration of the
///   pin, so that the step follows its record. Without `returns`, call it on a thread that may call the manager.
///
/// Use:
///
///     DLManagedTensor* lent = interop::to_dlpack(std::move(pin), m.info(weight).extents);
///     at::Tensor seen = at::fromDLPack(lent);   // of LibTorch; its end ends the pin
///
/// Cost: one allocation.
/// @tparam Managed   DLManagedTensor, or DLManagedTensorVersioned of DLPack 1
/// @param held       moved from only where this returns
/// @param extents    extents of the tensor, as declared, or any others with as many elements
/// @throws usage_error      a pin that was released or moved from, or of a rehearsal; or another number of elements
/// @throws std::bad_alloc   no room for the struct
template <dlpack_managed Managed = DLManagedTensor, pinned_element Element, class Engine>
[[nodiscard]] Managed* to_dlpack(pin<Element, Engine>&& held, const shape& extents, const lending& how = {})
{
  static_assert(dlpack_versioned<Managed> || !std::is_const_v<Element>,
                "chunkmem: DLManagedTensor cannot say that a tensor is read only: lend a pin for reading as "
                "DLManagedTensorVersioned, or by to_dlpack_without_const");
  return detail::lend_pin<Managed>(std::move(held), extents, how);
}

/// Lends a pin for reading in the older struct. Its consumers do not learn that they must not write.
///
/// If a consumer writes, the bytes depend on the capacity: they are kept while the chunk stays on the device, and lost
/// when it leaves. `checks::full` reports the change when the tensor comes back.
/// @throws   as to_dlpack
template <dlpack_managed Managed = DLManagedTensor, pinned_element Element, class Engine>
[[nodiscard]] Managed* to_dlpack_without_const(pin<Element, Engine>&& held, const shape& extents,
                                               const lending& how = {})
{
  return detail::lend_pin<Managed>(std::move(held), extents, how);
}

/// Calls the deleter of a tensor that was handed over, once.
///
///     const std::unique_ptr<DLManagedTensor, dlpack_ends<DLManagedTensor>> owner{given};
template <dlpack_managed Managed>
struct dlpack_ends {
  void operator()(Managed* it) const noexcept
  {
    if (it->deleter != nullptr) it->deleter(it);
  }
};

/// Owns a tensor that another program handed over, and calls its deleter at the end. Refuses a struct of an unknown
/// version.
///
/// Use:
///
///     const auto foreign = interop::own_dlpack(at::toDLPack(tensor));   // of LibTorch
///     interop::fill(m, weight, foreign->dl_tensor);
///
/// @throws usage_error   null; or the struct has a newer major version. Then its deleter was called, and nothing else
///   of it was read
template <dlpack_managed Managed>
[[nodiscard]] std::unique_ptr<Managed, dlpack_ends<Managed>> own_dlpack(Managed* handed_over)
{
  std::unique_ptr<Managed, dlpack_ends<Managed>> it{handed_over};
  if (it == nullptr) throw usage_error{"a null DLPack tensor was handed over (a capsule gives its pointer only once)"};
  if constexpr (dlpack_versioned<Managed>) {
    if (it->version.major > dlpack_major_version)
      throw usage_error{error_text{} << "chunkmem: a DLPack tensor of version " << std::uint64_t{it->version.major}
                                     << ", and at most " << std::uint64_t{dlpack_major_version}
                                     << " is known here (ask the producer for an older one)"};
  }
  return it;
}

namespace detail {

[[noreturn]] inline void refuse_foreign(std::string_view what, std::string_view remedy)
{
  throw usage_error{error_text{} << "chunkmem: a DLPack tensor cannot be taken: " << what << " (" << remedy << ")"};
}

inline constexpr int most_axes = 64;  ///< the most that frameworks have

/// The number of elements, after all possible checks of a foreign struct.
inline std::uint64_t checked_elements(const DLTensor& from, dtype wanted)
{
  if (!is_same_type(from.dtype, dlpack_type_of(wanted)))
    throw usage_error{error_text{} << "chunkmem: a DLPack tensor cannot be taken: its elements are of code "
                                   << std::uint64_t{from.dtype.code} << ", " << std::uint64_t{from.dtype.bits}
                                   << " bits and " << std::uint64_t{from.dtype.lanes} << " lanes, wanted is "
                                   << name_of(wanted) << " (convert it where it comes from)"};
  if (!is_readable_here(from.device))
    refuse_foreign("its memory is not the host's", "copy it to the CPU where it comes from");
  if (from.ndim < 0 || from.ndim > most_axes || (from.ndim > 0 && from.shape == nullptr))
    refuse_foreign("it has no shape, or too many axes", "the struct is damaged");
  checked elements = 1;
  for (int axis = 0; axis < from.ndim; ++axis) {
    if (from.shape[axis] < 0) refuse_foreign("an extent is negative", "the struct is damaged");
    elements *= static_cast<std::uint64_t>(from.shape[axis]);
  }
  if (elements.value() > 0 && from.data == nullptr) refuse_foreign("it has no bytes", "its producer may have none yet");
  (void)(elements * checked{size_of(wanted)});  // as bytes it has to be countable too
  return elements.value();
}

/// Whether elements are row-major without gaps. Axes of one element may have any stride. @pre   it was checked
[[nodiscard]] inline bool is_compact(const DLTensor& from) noexcept
{
  if (from.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (int axis = from.ndim; axis-- > 0;) {
    if (from.shape[axis] == 0) return true;
    if (from.shape[axis] != 1 && from.strides[axis] != expected) return false;
    expected *= from.shape[axis];
  }
  return true;
}

[[nodiscard]] inline const std::byte* first_byte(const DLTensor& from) noexcept
{
  return static_cast<const std::byte*>(from.data) + from.byte_offset;
}

/// Copies element by element, rows from the last axis. The producer vouches for the places of the elements.
/// @pre   checked, not empty
inline void copy_strided(const DLTensor& from, std::size_t size, int axis, const std::byte* source, std::byte*& to)
{
  if (axis == from.ndim) {
    std::memcpy(to, source, size);
    to += size;
    return;
  }
  const std::int64_t step = from.strides[axis] * static_cast<std::int64_t>(size);
  for (std::int64_t index = 0; index < from.shape[axis]; ++index)
    copy_strided(from, size, axis + 1, source + index * step, to);
}

[[nodiscard]] inline bool has_shape(const DLTensor& from, const shape& wanted) noexcept
{
  if (static_cast<std::size_t>(from.ndim) != wanted.rank()) return false;
  for (std::size_t axis = 0; axis < wanted.rank(); ++axis)
    if (static_cast<std::uint64_t>(from.shape[axis]) != wanted[axis]) return false;
  return true;
}

}  // namespace detail

/// The elements of a foreign tensor, without a copy. The span is valid as long as the tensor.
///
/// @throws usage_error   another element type, not the host's memory, not row-major without gaps, not aligned for its
///                       elements, or no bytes; size_overflow   more bytes than 64 bits can count
template <element Element>
[[nodiscard]] std::span<const Element> span_of(const DLTensor& from)
{
  const std::uint64_t elements = detail::checked_elements(from, dtype_of<Element>);
  if (elements == 0) return {};
  if (!detail::is_compact(from))
    detail::refuse_foreign("its elements have gaps or another order",
                           "copy it with copy_of or fill, or make it contiguous");
  const std::byte* const begin = detail::first_byte(from);
  if (reinterpret_cast<std::uintptr_t>(begin) % alignof(Element) != 0)
    detail::refuse_foreign("its first element is not aligned", "copy it with copy_of or fill");
  return {reinterpret_cast<const Element*>(begin), static_cast<std::size_t>(elements)};
}

/// Copies a foreign tensor with any strides, bit for bit, in row-major order.
///
/// @param to   as many elements; the two may not overlap
/// @throws usage_error     as span_of, except order and alignment; or another number of elements; nothing was written
/// @throws size_overflow   as span_of
/// @complexity   O(elements); one copy where there are no gaps
template <element Element>
void copy_of(const DLTensor& from, std::span<Element> to)
{
  const std::uint64_t elements = detail::checked_elements(from, dtype_of<Element>);
  if (elements != to.size())
    throw usage_error{error_text{} << "chunkmem: a DLPack tensor of " << elements << " elements cannot be copied to "
                                   << std::uint64_t{to.size()} << " (give it the shape of its target)"};
  if (elements == 0) return;
  std::byte* out = std::as_writable_bytes(to).data();
  if (detail::is_compact(from))
    std::memcpy(out, detail::first_byte(from), to.size_bytes());
  else
    detail::copy_strided(from, sizeof(Element), 0, detail::first_byte(from), out);
}

/// Fills a tensor of a manager from a foreign tensor of its shape and element type, bit for bit.
///
/// @param place   the tier that is written first: the calling thread must reach it. The default is the device where the
///   thread reaches it, else the host
/// @throws usage_error   as copy_of; another shape; or the tensor cannot be written now; it is unchanged
/// @throws out_of_memory, device_error   as acquire; the tensor is unchanged
template <class Manager, element Element>
void fill(Manager& m, tensor<Element> to, const DLTensor& from,
          memory_location place = Manager::engine_type::host_addressable ? memory_location::device
                                                                         : memory_location::host)
{
  (void)detail::checked_elements(from, dtype_of<Element>);
  if (!detail::has_shape(from, m.info(to).extents))
    detail::refuse_foreign("its shape is not that of the tensor to fill", "reshape it where it comes from");
  const auto pin = m.acquire(to, access::write, place);
  if (!m.rehearsing()) copy_of<Element>(from, pin.span());
}

}  // namespace interop
}  // namespace chunkmem::inline v0
