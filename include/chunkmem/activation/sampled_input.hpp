// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/chain_timeline.hpp>
#include <chunkmem/activation/noise_meter.hpp>
#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/row_choice.hpp>
#include <chunkmem/activation/sampling_kernels.hpp>
#include <chunkmem/activation/sampling_on_stream.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/workload/kept_rows.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

namespace detail {

/// Calls `work(first, count)` for runs of rows, in parallel on the workers.
template <executor Workers, class Work>
void over_rows(Workers& workers, std::size_t rows, Work work)
{
  const std::size_t parts = std::max<std::size_t>(1, std::min<std::size_t>(workers.threads(), rows));
  workers.run(static_cast<unsigned>(parts), [&](unsigned part) {
    const float_environment standard;  // of the thread that runs it
    const std::size_t first = rows * part / parts;
    work(first, rows * (part + 1) / parts - first);
  });
}

/// Adds the sum of squares of each row to the row's number, in the order of `measure`, the same for every instruction
/// set.
template <executor Workers, real_element Element>
void add_squares(Workers& workers, std::span<const Element> matrix, std::span<double> rows)
{
  const std::size_t width = matrix.size() / rows.size();
  over_rows(workers, rows.size(), [&](std::size_t first, std::size_t count) {
    for (std::size_t row = first; row < first + count; ++row)
      rows[row] = strict_fp::sum(rows[row], measure(matrix.subspan(row * width, width)).squares);
  });
}

}  // namespace detail

namespace detail {

/// Bytes of the lease in which kept rows of gradients lie, times their scales.
[[nodiscard]] inline bytes slopes_bytes(std::uint64_t kept, std::uint64_t outputs)
{
  return align_up(bytes{kept * outputs * sizeof(float)}, tensor_alignment);
}

}  // namespace detail

/// How much of an input is kept.
///
///     const sampling_options how{.rows = batch * context, .width = width, .ratio = 0.3};
///     const std::uint64_t rows = how.kept_of(how.rows);
struct sampling_options {
  std::uint64_t rows = 0;   ///< of the input, at most
  std::uint64_t width = 0;  ///< elements of a row
  double ratio = 1;         ///< of the rows that are kept: above 0, 1 for the exact gradient

  /// The kept rows of this many rows: the nearest number, at least 1. @pre ratio is in (0, 1]
  [[nodiscard]] std::uint64_t kept_of(std::uint64_t all) const noexcept { return workload::kept_rows(all, ratio); }
  /// Bytes between the forward and the backward pass: kept rows, and an index and a scale of each.
  [[nodiscard]] bytes size(dtype of) const
  {
    const std::uint64_t kept = kept_of(rows);
    return align_up(bytes{kept * width * size_of(of)}, tensor_alignment) + align_up(bytes{4 * kept}, tensor_alignment) +
           align_up(bytes{4 * kept}, tensor_alignment);
  }
  /// Bytes of the lease of `sampled` on the calling thread, for a product with this many outputs; the widest of several
  /// products counts. Leases on a stream are larger: see `sampled_input::working_bytes`.
  [[nodiscard]] bytes workspace(std::uint64_t outputs) const { return detail::slopes_bytes(kept_of(rows), outputs); }
  /// Bytes of all rows, as exact training keeps them.
  [[nodiscard]] bytes size_of_all(dtype of) const
  {
    return align_up(bytes{rows * width * size_of(of)}, tensor_alignment);
  }
};

/// The factors of a weight's gradient: kept rows of the input, and gradients of the output times the scales, row by
/// row. `weight gradient += rows^T slopes`.
///
///     weight_gradient(it.rows, it.slopes, g.beta(), g.data(), it.count, inputs, outputs);
template <real_element Element>
struct sampled_rows {
  const Element* rows;  ///< [count, width]
  const float* slopes;  ///< [count, outputs]
  std::uint64_t count;
};

/// An input of linear layers, of whose rows a sample is kept from the forward to the backward pass.
///
/// The kept rows, their indices and their scales are tensors of the manager with role::activation, in chunks of the one
/// budget. `keep` fills them in the forward pass, after the exact products, and `sampled` reads them in the backward
/// pass. Products that share an input share its rows: queries, keys and values have one sampled_input.
///
///     activation::sampled_input<manager, float> kept{m, norms, site, {.rows = n, .width = w, .ratio = 0.3}, {weight}};
///     ...
///     kept.keep(batch, hidden);        // hidden: a tensor of the manager, whose bytes are dead from here on
///
/// In a block of `checkpointed`, `kept.saved_by(layer)` declares the three tensors to the block. A block that runs
/// forward again keeps the same rows. A batch may have fewer rows than the options say.
///
/// **On a stream**, as of CUDA, a launcher does the same with kernels, bit for bit. Pointers are into device memory:
///
///     using launcher = activation::cub_sampling<optimizer::cuda_launcher>;   // activation/cub_sampling.cuh
///     activation::sampled_input<manager, bf16, launcher> kept{m, norms, site, how, {weight}};
///     kept.keep(batch, hidden, agent::compute);
///     sampled(kept, batch, agent::compute, linear_slope{...});               // whose products enqueue
///
/// Two calls wait for the device: `norm_cache::commit`, for the norms, and a `keep` of another batch after `forget()`.
/// A pass takes a lease of `working_bytes`: about 34 B for each row forward, and 18 B with the slopes backward. Norms
/// of a batch travel in a lease on the host, of 2 B for each row, from `keep` until `commit`. A rehearsal counts these
/// leases: its step calls `commit` as any, or holds them to its end.
///
/// Source: see row_choice. Cost: one pass over the input, a sort of its rows, and a copy of the kept ones.
/// @threads   as the manager; the passes run on `workers`
/// @tparam Launcher   a sampling_launcher, or by_calling_thread
template <class Manager, class Element, class Launcher = by_calling_thread>
class sampled_input {
 public:
  static_assert(
      real_element<Element>,
      "chunkmem: activation::sampled_input keeps rows of float, bf16 or fp16, the inputs of linear layers: an "
      "embedding reads numbers of tokens, and has nothing to sample");
  /// Whether kernels on a stream sample, instead of the calling thread.
  static constexpr bool is_on_stream = sampling_launcher<Launcher>;
  static_assert(is_on_stream || std::is_same_v<Launcher, by_calling_thread>,
                "chunkmem: activation::sampled_input has a third argument that is no sampling_launcher: take "
                "activation::cub_sampling<optimizer::cuda_launcher> on CUDA, loop_sampling where kernels run on the "
                "host, or none");
  static_assert(
      is_on_stream || Manager::engine_type::host_addressable,
      "chunkmem: activation::sampled_input reads rows on the calling thread, which cannot read the device tier of this "
      "backend: name what launches kernels on its streams as the third argument, as "
      "activation::cub_sampling<optimizer::cuda_launcher> on CUDA");
  using element_type = Element;

  /// @param manager, norms   outlive this
  /// @param weights   of all linear layers that read the input: [width, outputs] or [outputs, width] each
  /// @throws config_error   a ratio outside of (0, 1], no rows or no elements; a weight that is of no linear layer of
  ///   this width, or no weight that is trained; usage_error   the manager is sealed, or a weight is another manager's
  sampled_input(Manager& manager, norm_cache& norms, norm_cache::site which, const sampling_options& options,
                std::initializer_list<tensor_handle> weights, const Launcher& launcher = {})
      : manager_{manager},
        norms_{norms},
        site_{which},
        options_{checked(norms, which, options)},
        rows_{(expect_linear(weights), norms_.read_by(site_, number_of(weights)),
               declared<Element>({kept(), options_.width}, " rows"))},
        indices_{declared<std::int32_t>({kept()}, " indices")},
        scales_{declared<float>({kept()}, " scales")}
  {
    if constexpr (is_on_stream) {
      on_stream_.emplace(manager_, norms_, site_, launcher, options_.rows);
    } else {
      norms_.memory().make_room(static_cast<std::size_t>(options_.rows));
      if (measures()) lengths_.resize(static_cast<std::size_t>(options_.rows) * noise_meter::probes);
    }
    constexpr dtype of = dtype_of<Element>;
    norms_.noise().declare(site_.index, options_.ratio, options_.size_of_all(of), options_.size(of));
  }
  sampled_input(const sampled_input&) = delete;

  [[nodiscard]] const sampling_options& options() const noexcept { return options_; }
  [[nodiscard]] const std::string& name() const { return norms_.name_of(site_); }
  [[nodiscard]] Manager& manager() const noexcept { return manager_; }

  /// Bytes of the leases on the device of one call.
  struct lease_sizes {
    bytes forward;   ///< of `keep`
    bytes backward;  ///< of `sampled`

    /// The larger one: the two are never held at the same time.
    [[nodiscard]] bytes most() const noexcept { return std::max(forward, backward); }
  };
  /// The bytes that `keep` and `sampled` lease on the device for a full batch, exactly: a part of the working memory of
  /// a block of `checkpointed`.
  ///
  ///     layer.working += kept.working_bytes(outputs).most();
  ///
  /// @param outputs   of the widest product
  [[nodiscard]] lease_sizes working_bytes(std::uint64_t outputs) const
  {
    if constexpr (is_on_stream)
      return {on_stream_->choice_places(options_.width).plan.size(),
              on_stream_->slopes_places(kept() * outputs, outputs).plan.size()};
    else
      return {bytes{}, options_.workspace(outputs)};
  }

  /// Declares the tensors to a block of a `checkpointed` network.
  /// @throws usage_error   the network has several instances: this keeps the rows of one batch
  template <class Block>
  void saved_by(Block& block) const
  {
    expects(block.instances() == 1,
            "a sampled input was given to a network of several instances: it keeps the rows of one batch");
    block.saves(rows_);
    block.saves(indices_);
    block.saves(scales_);
  }

  /// Chooses rows of the input, and keeps them in place of the rows kept before. A refused call changes nothing.
  /// @param input   all rows of the batch. Empty in a rehearsal
  /// @throws usage_error   a batch that norm_cache::weigh refuses, or an input that is not whole rows, at most as many
  ///   as the options say; another input than is kept for this batch already; a product of `sampled` calls it; and as
  ///   the manager's `acquire`
  template <executor Workers = const serial>
    requires(!is_on_stream)
  void keep(const sampled_batch& batch, std::span<const Element> input, Workers& workers = on_this_thread)
  {
    const bool computes = this->computes();
    const double begin = seconds();
    const std::size_t count = computes ? rows_in(input.size()) : 0;
    std::span<const double> weights;
    std::uint64_t print_of_input = 0;
    if (computes) {
      weights = weigh(batch, input, workers);
      print_of_input = print_of(weights);
      expect_same_input(batch.step, norm_cache::print_of(batch), print_of_input);
      has_rows_ = false;
    }
    const auto rows = manager_.acquire(rows_, access::write);
    const auto indices = manager_.acquire(indices_, access::write);
    const auto scales = manager_.acquire(scales_, access::write);
    if (!computes) {
      (manager_.rehearsing() ? has_rehearsed_ : has_rows_) = true;
      return;
    }
    const std::size_t places = static_cast<std::size_t>(options_.kept_of(count));
    const std::span<std::int32_t> chosen = indices.span().first(places);
    always_ = norms_.memory().choice.choose(weights, chosen, scales.span().first(places), norms_.key_of(site_, batch));
    const std::size_t width = static_cast<std::size_t>(options_.width);
    const std::span<Element> kept_rows = rows.span();
    detail::over_rows(workers, places, [&](std::size_t first, std::size_t many) {
      for (std::size_t at = first; at < first + many; ++at)
        std::copy_n(input.data() + static_cast<std::size_t>(chosen[at]) * width, width, kept_rows.data() + at * width);
    });
    remember(batch, count);
    print_of_input_ = print_of_input;
    if (!measures()) return;
    norms_.noise().spent(site_.index, seconds() - begin);
    norms_.noise().look(site_.index, batch.step, input, count, std::span{lengths_}, workers);
  }
  /// The same for a tensor of the manager, whose bytes are dead afterwards: to read it again is a usage_error.
  template <executor Workers = const serial>
    requires(!is_on_stream)
  void keep(const sampled_batch& batch, tensor<Element> input, Workers& workers = on_this_thread)
  {
    {
      const auto pin = manager_.acquire(input, access::read);
      keep(batch, computes() ? std::span<const Element>{pin.span()} : std::span<const Element>{}, workers);
    }
    manager_.drop(input);
  }

  /// The same on a stream, which has written the input before. The work is enqueued when the call returns.
  /// @param input   all rows of the batch, in device memory
  /// @throws as above, but another input under the same batch is not detected; device_error
  void keep(const sampled_batch& batch, std::span<const Element> input, agent stream)
    requires is_on_stream
  {
    const bool computes = this->computes();
    const std::size_t count = computes ? rows_in(input.size()) : 0;
    if (computes) {
      norms_.expect(site_, batch, count);
      has_rows_ = false;
    }
    const auto rows = manager_.acquire(rows_, access::write, stream);
    const auto indices = manager_.acquire(indices_, access::write, stream);
    const auto scales = manager_.acquire(scales_, access::write, stream);
    auto room = on_stream_->take_choice_memory(options_.width, stream);
    if (!computes) {
      (manager_.rehearsing() ? has_rehearsed_ : has_rows_) = true;
      return;
    }
    const std::size_t places = static_cast<std::size_t>(options_.kept_of(count));
    on_stream_->keep(room, batch, input, count, rows.data(), std::span{indices.data(), places},
                     std::span{scales.data(), places}, stream);
    remember(batch, count);
  }
  void keep(const sampled_batch& batch, tensor<Element> input, agent stream)
    requires is_on_stream
  {
    {
      const auto pin = manager_.acquire(input, access::read, stream);
      const std::span<const Element> all{pin.data(), static_cast<std::size_t>(input.elements)};
      keep(batch, computes() ? all : std::span<const Element>{}, stream);
    }
    manager_.drop(input);
  }

  /// The backward pass, called by `sampled`. All is checked, and one lease taken, before the first product.
  ///
  /// All rows of a product's gradient are read, for the norms. Its kept rows, times their scales, are single precision
  /// in the lease: no scale is rounded away. Then the norms are noted, and the kept rows dropped.
  /// @param products   of_weight of each is called with sampled_rows
  template <executor Workers, class... Slopes>
    requires(!is_on_stream)
  void take_back(const sampled_batch& batch, Workers& workers, const Slopes&... products)
  {
    const bool computes = this->computes();
    const double begin = seconds();
    double aside = 0;  // of products and of the measurement
    {
      const std::uint64_t places = options_.kept_of(computes ? count_ : options_.rows);
      const std::uint64_t outputs = std::max({static_cast<std::uint64_t>(products.outputs)...});
      const auto rows = manager_.acquire(rows_, access::read);
      const auto indices = manager_.acquire(indices_, access::read);
      const auto scales = manager_.acquire(scales_, access::read);
      const auto workspace = manager_.lease(tier::device, detail::slopes_bytes(places, outputs));
      const reading alone{norms_.memory(), name()};
      if (computes) std::ranges::fill(numbers(count_), 0.0);
      const auto back = [&](const auto& product) {
        if (computes)
          scale(product.slope, static_cast<std::size_t>(product.outputs), indices.span(), scales.span(),
                workspace.template span<float>(), places, workers);
        const double before = seconds();
        product.of_weight(sampled_rows<Element>{rows.data(), reinterpret_cast<const float*>(workspace.data()), places});
        aside += seconds() - before;
      };
      (back(products), ...);
      if (computes && measures()) {
        norms_.noise().multiplied(site_.index, aside);
        aside += measure(batch, indices.span().first(places), scales.span().first(places), products...);
      }
    }
    if (computes) norms_.note(site_, batch, numbers(count_));
    forget();
    if (computes && measures()) norms_.noise().spent(site_.index, seconds() - begin - aside);
  }
  /// The same on a stream. Norms are noted when they have arrived on the host.
  template <class... Slopes>
    requires is_on_stream
  void take_back(const sampled_batch& batch, agent stream, const Slopes&... products)
  {
    const bool computes = this->computes();
    {
      const std::uint64_t places = options_.kept_of(computes ? count_ : options_.rows);
      const std::uint64_t outputs = std::max({static_cast<std::uint64_t>(products.outputs)...});
      const auto rows = manager_.acquire(rows_, access::read, stream);
      const auto indices = manager_.acquire(indices_, access::read, stream);
      const auto scales = manager_.acquire(scales_, access::read, stream);
      auto room = on_stream_->take_slopes_memory(kept() * outputs, outputs, stream);
      bool is_first = true;
      const auto back = [&](const auto& product) {
        if (computes)
          on_stream_->scale(room, product.slope, count_, std::exchange(is_first, false), indices.data(), scales.data(),
                            places, stream);
        product.of_weight(sampled_rows<Element>{rows.data(), on_stream_->slopes_in(room), places});
      };
      (back(products), ...);
      if (computes)
        on_stream_->note(room, batch, count_, stream);
      else
        on_stream_->seal();
    }
    forget();
  }
  /// @throws usage_error   no rows are kept for this batch; a gradient of another size; a product of `sampled` calls
  ///   it; as norm_cache::note
  template <class... Slopes>
  void expect_products(const sampled_batch& batch, const Slopes&... products)
  {
    expect_kept(batch);
    expect_alone();
    if (!computes()) return;
    norms_.expect(site_, batch, count_);
    (expect_slope(products.slope.size(), products.outputs), ...);
  }
  /// Drops the kept rows, as for a step that is tried again.
  void forget()
  {
    (manager_.rehearsing() ? has_rehearsed_ : has_rows_) = false;
    manager_.drop(rows_);
    manager_.drop(indices_);
    manager_.drop(scales_);
  }

  /// Rows that the last choice kept for certain.
  [[nodiscard]] std::uint64_t always_kept() const noexcept
    requires(!is_on_stream)
  {
    return always_;
  }
  /// The weights of the last choice, one for each row of its batch, until the next call of any input of these norms:
  /// for a search of ratios.
  [[nodiscard]] std::span<const double> weights() const noexcept
    requires(!is_on_stream)
  {
    return numbers(count_);
  }

 private:
  /// While products run, the numbers of the cache are squares of this input.
  class reading {
   public:
    reading(sampling_memory& memory, const std::string& name) noexcept : memory_{memory} { memory_.reader = &name; }
    reading(const reading&) = delete;
    ~reading() { memory_.reader = nullptr; }

   private:
    sampling_memory& memory_;
  };

  [[nodiscard]] std::uint64_t kept() const noexcept { return options_.kept_of(options_.rows); }
  /// The batch whose rows are kept now.
  void remember(const sampled_batch& batch, std::size_t count) noexcept
  {
    has_rows_ = true;
    count_ = count;
    step_ = batch.step;
    print_ = norm_cache::print_of(batch);
  }
  [[nodiscard]] bool measures() const noexcept { return norms_.noise().is_on(); }
  /// 0 where nothing is measured, or where the manager has no clock.
  [[nodiscard]] double seconds() const
  {
    if constexpr (requires(Manager& m) { m.backend().now(), m.report().stalls; })
      return measures() ? chain_clock::read(manager_) : 0;
    else
      return 0;
  }
  /// Adds a batch to the noise of its step. @return   the seconds that this took
  template <class... Slopes>
  double measure(const sampled_batch& batch, std::span<const std::int32_t> chosen, std::span<const float> by,
                 const Slopes&... products)
  {
    const double begin = seconds();
    std::size_t column = 0;
    const auto add = [&](const auto& product) {
      const auto outputs = static_cast<std::size_t>(product.outputs);
      norms_.noise().add(site_.index, batch.step, batch.loss_scale, product.slope, outputs, column,
                         std::span<const float>{lengths_}, chosen, by);
      column += outputs;
    };
    (add(products), ...);
    return seconds() - begin;
  }

  /// Checks the options before any tensor is declared.
  [[nodiscard]] static const sampling_options& checked(norm_cache& norms, norm_cache::site which,
                                                       const sampling_options& options)
  {
    const std::string& name = norms.name_of(which);
    if (is_on_stream && norms.noise().is_on())
      throw config_error{error_text{} << "chunkmem: the noise of the sampled input \"" << name
                                      << "\" cannot be measured on a stream (measure it where the host reads the "
                                         "device tier, or leave measures_noise out)"};
    if (!(options.ratio > 0) || !(options.ratio <= 1))
      throw config_error{error_text{} << "chunkmem: the sampled input \"" << name << "\" has a ratio of "
                                      << options.ratio << " (give one above 0, and 1 at most)"};
    constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
    if (options.rows == 0 || options.rows > most || options.width == 0)
      throw config_error{error_text{} << "chunkmem: the sampled input \"" << name << "\" has " << options.rows
                                      << " rows of " << options.width << " elements (give 1 to " << most
                                      << " rows of 1 or more elements)"};
    return options;
  }
  void expect_linear(std::initializer_list<tensor_handle> weights) const
  {
    bool is_trained = false;
    for (const tensor_handle weight : weights) {
      const auto& info = manager_.info(weight);
      const bool is_linear = info.extents.rank() == 2 &&
                             (info.extents[0] == options_.width || info.extents[1] == options_.width) &&
                             (info.part == role::parameter || info.part == role::frozen);
      if (!is_linear)
        throw config_error{error_text{} << "chunkmem: the sampled input \"" << name() << "\" is read with '"
                                        << manager_.name_of(weight)
                                        << "', which is no weight of a linear layer: such a weight "
                                        << "has two extents, and one of them is " << options_.width
                                        << " (sample the inputs of linear layers alone, not of embeddings, norms or "
                                           "convolutions)"};
      is_trained = is_trained || info.part == role::parameter;
    }
    if (!is_trained)
      throw config_error{error_text{} << "chunkmem: the sampled input \"" << name()
                                      << "\" is read by no weight that is trained, so no row of it is needed (declare "
                                         "no sampling for it)"};
  }
  /// A hash of the layers, in any order.
  [[nodiscard]] static std::uint64_t number_of(std::initializer_list<tensor_handle> weights)
  {
    std::uint64_t sum = 1;
    for (const tensor_handle weight : weights)
      sum += (std::uint64_t{index_of(weight.id)} + 1) * 0x9e3779b97f4a7c15U % 0x7fff'ffff'ffffU;
    return sum;
  }
  template <element Other>
  [[nodiscard]] tensor<Other> declared(const shape& extents, std::string_view what)
  {
    const tensor<Other> made = manager_.template add<Other>(extents, role::activation);
    manager_.name(made, name() + std::string{what} + " of " + std::to_string(index_of(made.id)));
    return made;
  }

  [[nodiscard]] std::span<double> numbers(std::size_t rows) const noexcept
  {
    return std::span{norms_.memory().numbers}.first(rows);
  }
  [[nodiscard]] std::size_t rows_in(std::size_t elements) const
  {
    const std::size_t width = static_cast<std::size_t>(options_.width), count = elements / width;
    if (elements == 0 || elements % width != 0 || count > options_.rows)
      throw usage_error{error_text{} << "chunkmem: the sampled input \"" << name() << "\" was given " << elements
                                     << " elements (give 1 to " << options_.rows << " rows of " << options_.width
                                     << " elements)"};
    return count;
  }
  /// The norm of each row, times the norm that its gradient is expected to have.
  template <class Workers>
  std::span<double> weigh(const sampled_batch& batch, std::span<const Element> input, Workers& workers)
  {
    expect_alone();
    const float_environment standard;
    const std::span<double> weights = numbers(rows_in(input.size()));
    std::ranges::fill(weights, 0.0);
    detail::add_squares(workers, input, weights);
    for (double& each : weights) each = strict_fp::root(each);
    norms_.weigh(site_, batch, weights);
    return weights;
  }
  [[nodiscard]] static std::uint64_t print_of(std::span<const double> weights) noexcept
  {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const double weight : weights) hash = (hash ^ std::bit_cast<std::uint64_t>(weight)) * 0x100000001b3U;
    return hash;
  }
  /// A block that runs forward again keeps the same rows. Another input under the same batch is another batch.
  void expect_same_input(std::uint64_t step, std::uint64_t print, std::uint64_t print_of_input) const
  {
    if (has_rows_ && step == step_ && print == print_ && print_of_input != print_of_input_)
      throw usage_error{
          error_text{} << "chunkmem: the sampled input \"" << name() << "\" keeps other rows for this batch"
                       << " of step " << step << " already (give each micro-batch with the same numbers a "
                       << "sampled_batch::micro_batch of its own, and an input of its own where two are "
                          "kept at once; or call forget() before a step is tried again)"};
  }
  void expect_alone() const
  {
    if (norms_.memory().reader != nullptr)
      throw usage_error{error_text{} << "chunkmem: the sampled input \"" << name() << "\" was used by a product of \""
                                     << *norms_.memory().reader << "\", whose gradients have the memory of their norms "
                                     << "(call it after sampled(), or give it a norm_cache of its own)"};
  }
  /// Adds the squares of a product's gradient, and scales its kept rows.
  template <class Slope, class Workers>
  void scale(std::span<const Slope> slope, std::size_t width, std::span<const std::int32_t> chosen,
             std::span<const float> by, std::span<float> scaled, std::uint64_t places, Workers& workers)
  {
    const float_environment standard;
    const std::span<double> squares = numbers(count_);
    detail::add_squares(workers, slope, squares);
    const bool is_finite =
        std::ranges::all_of(squares, [](double each) { return each <= std::numeric_limits<double>::max(); });
    detail::over_rows(workers, static_cast<std::size_t>(places), [&](std::size_t first, std::size_t many) {
      for (std::size_t at = first; at < first + many; ++at) {
        const Slope* const from = slope.data() + static_cast<std::size_t>(chosen[at]) * width;
        const float scale = is_finite ? by[at] : std::numeric_limits<float>::quiet_NaN();
        if (!detail::is_number(scale)) {
          std::ranges::fill(scaled.subspan(at * width, width), detail::scaled_by(scale, 0));
          continue;
        }
        for (std::size_t column = 0; column < width; ++column)
          scaled[at * width + column] = strict_fp::product(scale, to_float(from[column]));
      }
    });
  }
  void expect_slope(std::size_t elements, std::uint64_t outputs) const
  {
    if (outputs == 0 || elements != count_ * outputs)
      throw usage_error{error_text{} << "chunkmem: the sampled input \"" << name() << "\" was given a gradient of "
                                     << elements << " elements, and " << count_ << " rows of " << outputs
                                     << " were expected (give the gradient of the output of all rows)"};
  }
  /// Whether there are bytes to compute with: not in a rehearsal, and not in virtual time.
  [[nodiscard]] bool computes() const noexcept { return Manager::engine_type::has_bytes && !manager_.rehearsing(); }
  void expect_kept(const sampled_batch& batch) const
  {
    if (!(manager_.rehearsing() ? has_rehearsed_ : has_rows_))
      throw usage_error{error_text{} << "chunkmem: the gradients of the sampled input \"" << name()
                                     << "\" were requested, and no rows of it are kept (call keep() in the forward "
                                        "pass, once for each call of sampled())"};
    if (computes() && (batch.step != step_ || norm_cache::print_of(batch) != print_))
      throw usage_error{error_text{} << "chunkmem: the gradients of the sampled input \"" << name()
                                     << "\" were requested with another batch than its rows were kept for, in step "
                                     << step_ << " (give both calls one batch)"};
  }

  Manager& manager_;
  norm_cache& norms_;
  norm_cache::site site_;
  sampling_options options_;
  tensor<Element> rows_;
  tensor<std::int32_t> indices_;
  tensor<float> scales_;
  std::size_t count_ = 0;  // rows of the batch that is kept
  std::uint64_t step_ = 0;
  std::uint64_t print_ = 0;           // of that batch
  std::uint64_t print_of_input_ = 0;  // and of its rows
  std::uint64_t always_ = 0;
  std::vector<float> lengths_;  // of the rows of that batch, along the signs of the noise_meter
  bool has_rows_ = false;
  bool has_rehearsed_ = false;  // a rehearsal keeps rows, apart from has_rows_
  [[no_unique_address]] typename detail::stream_passes<Manager, Launcher>::type on_stream_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
