// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/basic_manager.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// A second set of gradients of a stage, in chunks: gradients of the next batch accumulate while the update of the
/// batch before waits.
///
/// The manager's gradients belong to the batch whose update comes next. Gradients of the batch after it accumulate in a
/// list of their own. `adopt`, called after each update, copies them to the manager's gradients.
///
/// Use, with a schedule that has two sets of gradients:
///
///     next_gradients gradients{m};                           // before anything is acquired
///     gradients.add<float>(weight, batch, [&](std::span<float> sum, float beta) { ... });  // sum = beta sum + new
///     steps.begin(m, adam, options, number_of);              // the last backward run of a batch is over
///     versions.update([&] { return steps.take(m, adam, options, pool, number_of); });  // at its update
///     gradients.adopt<float>();
///
/// After a load, `start` sets the next batch; sums of a batch without its update start again. A rehearsal leaves the
/// state unchanged. Cost: 4 B of each parameter, for gradients of float32, and one copy of them on the device for each
/// batch.
/// @tparam Manager   with `gradient::separate`   @threads   one caller, that of the manager
template <class Manager>
class next_gradients {
 public:
  /// Declares the list. @param m   outlives this object   @param type   of gradients
  /// @throws usage_error   the manager is sealed, or has such a list already
  explicit next_gradients(Manager& m, dtype type = dtype::float32) : m_{m}
  {
    const list_spec spec{"gradients/next", type, 1, list_use::scratch};
    m.use(std::span{&spec, 1});
    list_ = m.list(spec.name);
  }
  next_gradients(const next_gradients&) = delete;

  /// Batch `due` has the next update. No gradient is accumulated yet.
  void start(std::uint32_t due) noexcept
  {
    real_.due = due;
    real_.is_begun.assign(real_.is_begun.size(), 0);
    real_.is_adopting = false;
  }
  [[nodiscard]] std::uint32_t due() const noexcept { return real_.due; }

  /// Adds to the gradient of a weight. @param write   `write(std::span<Kind> sum, float beta)`: sum = beta sum + new
  /// gradient; enqueued on `stream`, or done by the calling thread
  /// @throws usage_error   the batch is neither the due one nor the next one; and as gradient of a manager
  template <element Kind, element Element, class Write>
  void add(tensor<Element> weight, std::uint32_t batch, Write write, agent stream = agent::host)
  {
    progress& now = progress_now();
    if (batch == now.due) {
      const auto pin = m_.template gradient<Kind>(weight, stream);
      return write(std::span<Kind>{pin.data(), pin.size()}, pin.beta());
    }
    if (batch != now.due + 1)
      throw usage_error{error_text{} << "chunkmem: a gradient of batch " << batch
                                     << " came, and the next update is that of batch " << now.due
                                     << " (a stage keeps gradients of two batches; call adopt after each update)"};
    const bool is_begun = now.begun(weight) != 0;
    const auto pin = m_.template acquire<Kind>(weight, list_, is_begun ? access::read_write : access::write, stream);
    write(std::span<Kind>{pin.data(), pin.size()}, is_begun ? 1.0F : 0.0F);
    now.begun(weight) = 1;
  }

  /// The due batch has its update: gradients of the next batch become the manager's.
  /// @param stream   copies   @throws usage_error   a gradient of the due batch has no update yet
  /// @throws out_of_memory, device_error   call it again
  template <element Kind>
  void adopt(agent stream = agent::host)
  {
    progress& now = progress_now();
    m_.for_each_parameter([&](tensor_handle it, const tensor_info&) {
      expects(
          now.is_adopting || m_.rehearsing() || !m_.has_gradient(it),
          "gradients of a batch cannot be adopted before the update of the batch ahead of it (take the step first)");
    });
    now.is_adopting = true;
    m_.for_each_parameter([&](tensor_handle it, const tensor_info& info) {
      if (now.begun(it) == 0) return;
      if (info.type == dtype::float32) copy<Kind>(tensor<float>{it}, stream);
      if (info.type == dtype::bfloat16) copy<Kind>(tensor<bf16>{it}, stream);
      if (info.type == dtype::float16) copy<Kind>(tensor<fp16>{it}, stream);
      now.begun(it) = 0;
    });
    now.is_adopting = false;
    ++now.due;
  }

 private:
  template <element Kind, element Element>
  void copy(tensor<Element> weight, agent stream)
  {
    const auto source = m_.template acquire<Kind>(weight, list_, access::read, stream);
    const auto target = m_.template gradient<Kind>(weight, stream);
    m_.updates().allow_any_micro_batches(weight);
    if (!m_.rehearsing())
      m_.backend().copy(reinterpret_cast<std::byte*>(target.data()), reinterpret_cast<const std::byte*>(source.data()),
                        bytes{source.size() * sizeof(Kind)}, stream);
  }
  struct progress {
    std::uint32_t due = 0;
    bool is_adopting = false;
    std::vector<std::uint8_t> is_begun{};  // by parameter: the list has a sum of the batch after the due one

    [[nodiscard]] std::uint8_t& begun(tensor_handle it)
    {
      const std::size_t index = index_of(it.id);
      if (index >= is_begun.size()) is_begun.resize(index + 1);
      return is_begun[index];
    }
  };
  /// A rehearsal works on a copy.
  [[nodiscard]] progress& progress_now()
  {
    if (!m_.rehearsing()) {
      rehearsed_.reset();
      return real_;
    }
    if (!rehearsed_) rehearsed_ = real_;
    return *rehearsed_;
  }

  Manager& m_;
  list_id list_{};
  progress real_;
  std::optional<progress> rehearsed_;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
