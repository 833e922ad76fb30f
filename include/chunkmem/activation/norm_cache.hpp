// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/noise_meter.hpp>
#include <chunkmem/activation/row_choice.hpp>
#include <chunkmem/activation/sampling_report.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/host_device.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <chunkmem/tensor/registration.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

namespace detail {

/// The norm that a row's gradient is expected to have, from the norm that is kept.
struct expected_norms {
  double mean = 0;         ///< of the rows of a batch that have a norm
  double least = 0;        ///< lower bound of the norm with which a row counts
  bool are_known = false;  ///< some rows have one

  /// @param bits   of a bf16; 0 where there is none
  [[nodiscard]] CHUNKMEM_HOST_DEVICE double of(std::uint16_t bits) const noexcept
  {
    if (bits == 0) return mean;
    const double norm = strict_fp::to_double(static_cast<float>(bf16::from_bits(bits)));
    return norm < least ? least : norm;
  }
};

inline constexpr std::uint16_t infinite_norm = 0x7f80;  // bits of a bf16 infinity: these and larger ones are no norm

/// A norm as the cache keeps it: above 0, or 0 if not finite. @param loss_scale   that the gradient was multiplied by
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline std::uint16_t kept_norm_of(double square, float loss_scale) noexcept
{
  const double norm = strict_fp::quotient(strict_fp::root(square), strict_fp::to_double(loss_scale));
  constexpr std::uint16_t least = 0x0080;  // the smallest normal number
  if (!(norm < bits_as<double>(std::uint64_t{0x7ff0'0000'0000'0000U}))) return 0;
  const std::uint16_t bits = bf16{strict_fp::to_single(norm)}.bits();
  if (bits >= infinite_norm) return static_cast<std::uint16_t>(infinite_norm - 1);
  return bits < least ? least : bits;
}

}  // namespace detail

/// The samples of a pass, and its step. A sampled input is kept for one such batch.
///
///     const std::uint64_t numbers[] = {17, 4, 901};              // of the data, wherever they are shuffled to
///     const sampled_batch batch{.step = step, .samples = numbers, .loss_scale = scaler.scale()};
///
/// The rows of the first sample come first, then those of the second. The draws of a batch depend on its step, its
/// samples in their order, `micro_batch` and `replica`. Where no two batches of a step have the same numbers, leave
/// these two 0: then no number of ranks and of micro-batches changes a draw. Batches with the same numbers, as of data
/// without lasting ones, draw with the same random numbers unless one of the two differs.
struct sampled_batch {
  static constexpr std::uint64_t no_step = UINT64_MAX;

  std::uint64_t step = no_step;              ///< of the training, counted by the trainer
  std::span<const std::uint64_t> samples{};  ///< numbers that the trainer gave them; all have equally many rows
  float loss_scale = 1;                      ///< that gradients were multiplied by
  std::uint32_t micro_batch = 0;             ///< of the step: another number for each batch with the same numbers
  std::uint32_t replica = 0;                 ///< of ranks that train on other rows with the same numbers
};

/// Scratch memory of a choice, which all inputs of one cache share: they are sampled one after another.
///
///     norms.memory().make_room(rows);
struct sampling_memory {
  row_choice choice;
  std::vector<double> numbers;  ///< by row: weights in the forward pass, squares of gradients in the backward pass
  const std::string* reader = nullptr;  ///< the input whose squares they are now, by name

  void make_room(std::size_t rows)
  {
    choice.make_room(rows);
    numbers.resize(std::max(numbers.size(), rows));
  }
};

/// For sampled inputs: the norms of the gradients of linear layers' outputs, from when each sample was last seen.
///
///     activation::norm_cache norms{{.name = "sampling", .samples = texts.size(), .seed = 42}};
///     const auto site = norms.add("layer 0 attended", context);      // an input, with `context` rows for each sample
///     m.use(norms);                                                  // after all sites
///     for (...) { ...; optimizer::step(m, adam, options); norms.commit(); }
///
/// A sample has a number below `samples`, which the trainer gives it. For data that never comes back `samples` is 0:
/// nothing is kept, numbers are free, and each visit is a first one.
///
/// **A first visit is unbiased**, as is any other: a row without a norm takes the mean norm of those rows of its batch
/// that have one, or 1. Norms are those of earlier steps, so no draw of a step depends on the gradients of that step. A
/// norm far below the mean, such as 0, counts as 1/1024 of the mean: a row that had no gradient can have one now.
///
/// **State.** A manager saves "<name>/norms": the seed, a hash of the sites' names and rows, two bytes for each row of
/// each sample and site. Norms of a step are noted, and stored by `commit`: where a sample was seen more than once, the
/// largest norm is stored, so the order of micro-batches and ranks has no effect. Over ranks `commit(ranks)` gives all
/// ranks the norms of all. The bytes lie on the host, outside of the manager's capacities. A load forgets noted norms.
///
/// Steps count up: a committed step does not come again, except after a load of an older step. To tune a model from a
/// checkpoint without norms, load it before `m.use(norms)`: declare the model and its sampled inputs, load, then give
/// the norms to the manager.
///
/// Source: Liu et al. 2023 (arXiv 2305.15265) has the cache; there a first visit is biased. Cost: O(rows) for a batch,
/// without an allocation after the first step.
/// @threads   one caller at a time
class norm_cache {
 public:
  struct options {
    std::string name;             ///< of the state, another one for each cache of a training
    std::uint64_t samples = 0;    ///< of the data; 0: samples never come back
    std::uint64_t seed = 0;       ///< of the draws. A load replaces it by the file's
    bool measures_noise = false;  ///< for report(); the bits of a training are the same
  };
  /// The number of a sampled input: of one layer, or of layers that share the input.
  struct site {
    std::uint32_t index = UINT32_MAX;
  };

  /// @throws config_error   no name
  explicit norm_cache(const options& settings)
      : name_{settings.name},
        state_{settings.name + "/norms"},
        samples_{settings.samples},
        noise_{settings.measures_noise}
  {
    if (settings.name.empty())
      throw config_error{
          "a cache of norms without a name: a checkpoint could not tell it from another (give norm_cache::options a "
          "name)"};
    header_[of_rule] = rule;
    header_[of_seed] = settings.seed;
  }
  norm_cache(const norm_cache&) = delete;

  /// @param called   name in messages, and in the hash that distinguishes models
  /// @param rows   for each sample
  /// @throws usage_error   a manager has the cache already, or a site has the name; config_error   no rows, or
  ///   norms that cannot be counted
  site add(std::string_view called, std::uint32_t rows)
  {
    if (registered.is_tied())
      throw usage_error{error_text{} << "chunkmem: the sampled input \"" << called << "\" was added to the norms \""
                                     << name_ << "\" after m.use() (add all inputs before)"};
    if (rows == 0)
      throw config_error{error_text{} << "chunkmem: the sampled input \"" << called
                                      << "\" has no rows for a sample (give the positions of a sequence, or 1)"};
    for (const one_site& known : sites_)
      if (known.name == called)
        throw usage_error{error_text{} << "chunkmem: two sampled inputs are called \"" << called << "\" in the norms \""
                                       << name_ << "\": they would draw the same rows (give each a name of its own)"};
    constexpr std::uint64_t most = std::uint64_t{1} << 46U;
    if (samples_ > 0 && rows > (most - norms_) / samples_)
      throw config_error{error_text{} << "chunkmem: the norms \"" << name_ << "\" of " << samples_ << " samples with "
                                      << rows << " rows each at \"" << called << "\" are more than " << most
                                      << " (for data that never comes back give norm_cache::options::samples as 0)"};
    sites_.push_back({std::string{called}, norms_, rows, hash_of(called, hash_of(name_, 0)), 0});
    norms_ += samples_ * rows;
    print_ = hash_of(called, print_) * 31 + rows;
    noise_.add_site(called);
    return {static_cast<std::uint32_t>(sites_.size() - 1)};
  }
  [[nodiscard]] const std::string& name_of(site which) const { return expect_site(which).name; }
  /// Rows of each sample at this input.
  [[nodiscard]] std::uint32_t rows_of(site which) const { return expect_site(which).rows; }
  /// Bytes of the state.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return sizeof header_ + norms_ * sizeof(std::uint16_t); }

  /// Notes the layers that read the input of a site, as a number above 0. They share one norm for each row.
  /// @throws usage_error   the site is that of other layers
  void read_by(site which, std::uint64_t layers)
  {
    (void)expect_site(which);
    one_site& at = sites_[which.index];
    if (at.layers != 0 && at.layers != layers)
      refuse(at, "was given to layers with other weights than before (add an input for each layer: norm_cache::add)");
    at.layers = layers;
  }
  /// Multiplies each row's number by the norm that the row's output gradient is expected to have.
  /// @param rows   numbers of the batch's rows: those of its first sample, of its second, ...
  /// @throws usage_error   no step, or a committed one; no samples, or a number that is no sample's; another number of
  ///   rows; norms of an earlier step that were not committed; no manager has the cache. config_error   the loaded
  ///   norms are of another model
  void weigh(site which, const sampled_batch& batch, std::span<double> rows)
  {
    const one_site& at = expect_batch(which, batch, rows.size());
    const detail::expected_norms expected = expected_of(at, batch);
    if (!expected.are_known) return;
    const float_environment standard;
    double* row = rows.data();
    for (const std::uint64_t sample : batch.samples)
      for (const std::uint16_t bits : norms_at(at, sample)) {
        *row = strict_fp::product(*row, expected.of(bits));
        ++row;
      }
  }
  /// Whether norms are kept: the cache was made for samples that come back.
  [[nodiscard]] bool keeps_norms() const noexcept { return samples_ != 0; }
  /// The factors of `weigh`, for a device: the kept norms, and how they count.
  /// @param norms   written: a bf16 for each row, 0 where there is none. Empty for a cache that keeps no norms
  /// @throws as weigh
  [[nodiscard]] detail::expected_norms expect_norms_of(site which, const sampled_batch& batch, std::size_t rows,
                                                       std::span<std::uint16_t> norms)
  {
    const one_site& at = expect_batch(which, batch, rows);
    auto to = norms.begin();
    for (std::size_t each = 0; each < batch.samples.size() && !norms.empty(); ++each)
      to = std::ranges::copy(norms_at(at, batch.samples[each]), to).out;
    return expected_of(at, batch);
  }
  /// Refuses a batch that `note` would refuse, before any other work. @throws as weigh
  void expect(site which, const sampled_batch& batch, std::size_t rows) { (void)expect_batch(which, batch, rows); }
  /// The key of a batch's draws.
  [[nodiscard]] rounding_key key_of(site which, const sampled_batch& batch) const
  {
    const one_site& at = expect_site(which);
    const std::uint64_t batches = print_of(batch);
    const auto mixed = philox({low(batches), high(batches), low(at.hash), high(at.hash)},
                              {low(header_[of_seed]), high(header_[of_seed])});
    constexpr std::uint32_t of_sampling = 0xc000'0000U;  // no list of an optimizer and no micro-batch has these bits
    return {std::uint64_t{mixed[1]} << 32U | mixed[0], batch.step, mixed[2], of_sampling};
  }
  /// A hash of a batch.
  [[nodiscard]] static std::uint64_t print_of(const sampled_batch& batch) noexcept
  {
    std::uint64_t hash = 0xcbf29ce484222325U;
    const auto add = [&](std::uint64_t word) {
      for (unsigned shift = 0; shift < 64; shift += 8) hash = (hash ^ (word >> shift & 0xffU)) * 0x100000001b3U;
    };
    for (const std::uint64_t sample : batch.samples) add(sample);
    add(std::uint64_t{batch.replica} << 32U | batch.micro_batch);
    return hash;
  }

  /// Notes the norms of a batch; `commit` stores them for later steps.
  /// @param squares   of the norms of gradients that are multiplied by the loss scale. Those not finite are ignored
  /// @throws as weigh
  void note(site which, const sampled_batch& batch, std::span<const double> squares)
  {
    const one_site& at = expect_batch(which, batch, squares.size());
    mark(batch);
    if (samples_ == 0) return;
    const float_environment standard;
    const double* square = squares.data();
    for (const std::uint64_t sample : batch.samples) {
      const std::uint64_t first = at.first + sample * at.rows;
      for (std::uint32_t row = 0; row < at.rows; ++row, ++square) {
        const std::uint16_t bits = detail::kept_norm_of(*square, batch.loss_scale);
        if (bits != 0) noted_.push_back((first + row) << 16U | bits);
      }
    }
  }
  /// The same for norms that are still on their way from a device. @return   where their places begin, for `arrived`
  std::size_t note_later(site which, const sampled_batch& batch, std::size_t rows)
  {
    const one_site& at = expect_batch(which, batch, rows);
    const std::size_t begin = noted_.size();
    mark(batch);
    if (samples_ == 0) return begin;
    for (const std::uint64_t sample : batch.samples)
      for (std::uint32_t row = 0; row < at.rows; ++row) noted_.push_back((at.first + sample * at.rows + row) << 16U);
    return begin;
  }
  void arrived(std::size_t begin, std::span<const std::uint16_t> norms) noexcept
  {
    for (std::size_t at = 0; at < norms.size(); ++at)
      noted_[begin + at] = norms[at] == 0 ? 0 : noted_[begin + at] | norms[at];
  }
  /// An input with norms on their way: `take(input, is_wanted)` waits for them, and gives wanted ones to `arrived`.
  /// The first call of `commit` or `forget` calls `take` once.
  struct sender {
    void* input;
    void (*take)(void* input, bool is_wanted);
  };
  void wait_for(const sender& from) { senders_.push_back(from); }
  /// Forgets an input that ends.
  void forget_sender(const void* input) noexcept
  {
    std::erase_if(senders_, [input](const sender& each) { return each.input == input; });
  }

  /// Stores the noted norms. Call this once in each step, skipped steps too. Waits for norms that a device computes.
  /// @throws as weigh; device_error
  void commit()
  {
    expect_whole();
    take_all(true);
    take_in(noted_, used_);
    noise_.end_step();
  }
  /// The same for the noted norms of all ranks. Every rank calls this. Cost: 8 B for each row of each sampled input of
  /// the step, from each rank to each other, on the calling threads.
  /// @throws usage_error   on every rank: ranks differ in their inputs, numbers of samples, seed, step or stored norms;
  ///   comm_error; and as weigh
  template <class Ranks>
  void commit(Ranks& ranks)
  {
    expect_whole();
    take_all(true);
    enum : std::size_t { count, print, places, seed, next, sum, step, fields };
    const std::uint64_t mine[fields] = {noted_.size(),    print_,          norms_, header_[of_seed],
                                        header_[of_next], header_[of_sum], used_};
    all_.resize(std::size(mine) * ranks.ranks());
    ranks.exchange(mine, all_);
    std::uint64_t most = 0, used = 0;
    for (std::uint32_t rank = 0; rank < ranks.ranks(); ++rank) {
      const std::uint64_t* const other = all_.data() + std::size(mine) * rank;
      most = std::max(most, other[count]);
      if (other[print] != all_[print] || other[places] != all_[places])
        throw usage_error{error_text{} << "chunkmem: rank " << rank << " has other norms \"" << name_
                                       << "\" than rank 0: " << other[places] << " and " << all_[places]
                                       << ", of inputs by name and rows (give all ranks the same inputs and number of "
                                          "samples)"};
      if (other[seed] != all_[seed])
        throw usage_error{error_text{} << "chunkmem: rank " << rank << " has the seed " << other[seed]
                                       << " for the norms \"" << name_ << "\", and rank 0 has " << all_[seed]
                                       << " (give all ranks one seed, and load on all of them or on none)"};
      if (other[next] != all_[next] || other[sum] != all_[sum])
        throw usage_error{
            error_text{} << "chunkmem: rank " << rank << " has committed other norms \"" << name_
                         << "\" than rank 0: " << other[next] << " and " << all_[next]
                         << " are the steps that come next (call commit(ranks) on all ranks in each step, "
                            "and load one generation on all)"};
      if (other[step] != 0 && used != 0 && other[step] != used)
        throw usage_error{error_text{} << "chunkmem: rank " << rank << " commits norms \"" << name_ << "\" of step "
                                       << other[step] - 1 << ", and a rank before it of step " << used - 1
                                       << " (give all ranks the same step)"};
      if (other[step] != 0) used = other[step];
    }
    noted_.resize(most, 0);
    all_.resize(most * ranks.ranks());
    if (most != 0) ranks.exchange(noted_, all_);
    take_in(all_, used);
    noted_.clear();
    noise_.end_step();
  }
  /// Forgets the noted norms, as for a step that is tried again with other samples.
  void forget()
  {
    take_all(false);
    noted_.clear();
    noise_.forget();
    used_ = 0;
    if (bytes_.empty()) return;
    read_header();
    header_[of_mark] = 0;
    write_header();
  }

  /// The scratch memory: 32 B for each row of the largest input.
  [[nodiscard]] sampling_memory& memory() noexcept { return memory_; }
  /// The cost, savings and noise of each input. Noise and seconds need options::measures_noise. Call this between two
  /// steps. Cost: O(inputs), with an allocation.
  [[nodiscard]] sampling_report report()
  {
    if (!bytes_.empty()) see_load();
    return noise_.report();
  }
  /// For sampled inputs, in a step.
  [[nodiscard]] noise_meter& noise() noexcept { return noise_; }

  template <class Visit>
  void for_each_state(Visit visit)
  {
    header_[of_print] = print_;
    bytes_.assign(static_cast<std::size_t>(bytes()), std::byte{});
    std::memcpy(bytes_.data(), header_.data(), sizeof header_);
    visit(restart_state{state_, bytes_, &expect_norms});
  }
  registration registered;

 private:
  static constexpr std::uint64_t rule = 3;  // 1: each row was drawn by itself; 2: weights were not integers
  // of_next: the last committed step, and 1. of_sum: of the committed norms. of_mark: 0 where nothing is noted; a load
  // replaces it.
  enum : std::size_t { of_rule, of_seed, of_print, of_next, of_sum, of_mark, words };
  struct one_site {
    std::string name;
    std::uint64_t first;  // of its norms
    std::uint32_t rows;
    std::uint64_t hash;    // of the cache's name and its own
    std::uint64_t layers;  // see read_by
  };

  [[nodiscard]] static constexpr std::uint32_t low(std::uint64_t value) noexcept
  {
    return static_cast<std::uint32_t>(value);
  }
  [[nodiscard]] static constexpr std::uint32_t high(std::uint64_t value) noexcept
  {
    return static_cast<std::uint32_t>(value >> 32U);
  }
  [[nodiscard]] static std::uint64_t hash_of(std::string_view text, std::uint64_t begin) noexcept
  {
    std::uint64_t hash = 0xcbf29ce484222325U ^ begin;
    for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
    return hash;
  }
  /// @throws config_error   another rule made those norms, or one of them is negative or not finite
  static void expect_norms(std::span<const std::byte> loaded)
  {
    std::uint64_t saved = 0;
    if (loaded.size() >= sizeof saved) std::memcpy(&saved, loaded.data(), sizeof saved);
    if (saved != rule)
      throw config_error{error_text{} << "chunkmem: this checkpoint has norms of sampled inputs by rule " << saved
                                      << ", and this version has rule " << rule
                                      << " (load it with the version that saved it)"};
    for (std::size_t at = words * sizeof saved; at + sizeof(std::uint16_t) <= loaded.size();
         at += sizeof(std::uint16_t)) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, loaded.data() + at, sizeof bits);
      if (bits >= detail::infinite_norm)
        throw config_error{error_text{} << "chunkmem: this checkpoint has a norm of a sampled input that no gradient "
                                        << "has, at byte " << at << " of its state (load another generation)"};
    }
  }
  [[nodiscard]] const one_site& expect_site(site which) const
  {
    expects(which.index < sites_.size(),
            "an input was sampled that was not added to these norms (call norm_cache::add)");
    return sites_[which.index];
  }
  void read_header() noexcept { std::memcpy(header_.data(), bytes_.data(), sizeof header_); }
  void write_header() noexcept { std::memcpy(bytes_.data(), header_.data(), sizeof header_); }
  /// Takes the seed and the step from a loaded state. Norms noted before the load are forgotten, and sums of noise.
  void see_load()
  {
    const auto before = header_;
    read_header();
    if (header_ != before) forget();
  }
  void expect_whole()
  {
    if (!registered.is_tied())
      throw usage_error{error_text{} << "chunkmem: the norms \"" << name_
                                     << "\" were used before a manager was given them (call m.use() with them, after "
                                        "the last add)"};
    see_load();
    if (header_[of_print] != print_)
      throw config_error{
          error_text{} << "chunkmem: the norms \"" << name_
                       << "\" that were loaded are of another model: its sampled inputs have other names "
                          "or rows (load a checkpoint of this model, or add the inputs that it had)"};
  }
  const one_site& expect_batch(site which, const sampled_batch& batch, std::size_t rows)
  {
    const one_site& at = expect_site(which);
    expect_whole();
    if (batch.step == sampled_batch::no_step) refuse(at, "was given no step (count the steps: {.step = step, ...})");
    if (batch.step < header_[of_next])
      throw usage_error{error_text{} << "chunkmem: the sampled input \"" << at.name << "\" was given step "
                                     << batch.step << ", and the norms \"" << name_ << "\" of step "
                                     << header_[of_next] - 1
                                     << " were committed: its draws would repeat (count steps up, skipped ones too; "
                                        "after a load go on after the step of the file)"};
    if (batch.samples.empty())
      refuse(at, "was given rows of samples without numbers (give each sample of the data a number: .samples)");
    if (rows != batch.samples.size() * at.rows) {
      throw usage_error{error_text{} << "chunkmem: the sampled input \"" << at.name << "\" was given " << rows
                                     << " rows for " << batch.samples.size() << " samples of " << at.rows
                                     << " rows each (give as many numbers as there are samples in the batch)"};
    }
    if (samples_ != 0)
      for (const std::uint64_t sample : batch.samples)
        if (sample >= samples_)
          throw usage_error{error_text{} << "chunkmem: the sampled input \"" << at.name << "\" was given sample "
                                         << sample << ", and the norms \"" << name_ << "\" are of " << samples_
                                         << " samples (numbers begin at 0)"};
    if (!(batch.loss_scale > 0) || !(batch.loss_scale <= std::numeric_limits<float>::max()))
      throw usage_error{error_text{} << "chunkmem: the sampled input \"" << at.name << "\" was given a loss scale of "
                                     << batch.loss_scale << " (a number above 0, 1 where there is none)"};
    if (!noted_.empty() && noted_step_ != batch.step)
      throw usage_error{error_text{} << "chunkmem: the norms \"" << name_ << "\" of step " << noted_step_
                                     << " were not committed before step " << batch.step
                                     << " (call commit() after each step, or forget())"};
    used_ = batch.step + 1;
    return at;
  }
  [[noreturn]] static void refuse(const one_site& at, std::string_view why)
  {
    throw usage_error{error_text{} << "chunkmem: the sampled input \"" << at.name << "\" " << why};
  }

  [[nodiscard]] std::span<const std::uint16_t> norms_at(const one_site& at, std::uint64_t sample) const noexcept
  {
    return {norms() + at.first + sample * at.rows, at.rows};
  }
  [[nodiscard]] const std::uint16_t* norms() const noexcept
  {
    return reinterpret_cast<const std::uint16_t*>(bytes_.data() + sizeof header_);
  }
  [[nodiscard]] static double norm_in(std::uint16_t bits) noexcept
  {
    return strict_fp::to_double(static_cast<float>(bf16::from_bits(bits)));
  }
  /// Marks that a batch has noted norms, or summed noise.
  void mark(const sampled_batch& batch) noexcept
  {
    noted_step_ = batch.step;
    header_[of_mark] = batch.step + 1;
    write_header();
  }
  void take_all(bool are_wanted)
  {
    while (!senders_.empty()) {
      const sender from = senders_.back();
      from.take(from.input, are_wanted);  // where it throws, the next commit or forget calls it again
      senders_.pop_back();
    }
  }
  [[nodiscard]] detail::expected_norms expected_of(const one_site& at, const sampled_batch& batch) const noexcept
  {
    if (samples_ == 0) return {};
    const float_environment standard;
    double sum = 0;
    std::size_t known = 0;
    for (const std::uint64_t sample : batch.samples)
      for (const std::uint16_t bits : norms_at(at, sample)) {
        sum = strict_fp::sum(sum, norm_in(bits));
        known += bits != 0 ? 1 : 0;
      }
    if (known == 0) return {};
    const double mean = strict_fp::quotient(sum, static_cast<double>(known));
    return {mean, strict_fp::product(mean, 0x1p-10), true};
  }
  /// @param used   the step of the norms, and 1; 0: no input was used
  void take_in(std::vector<std::uint64_t>& noted, std::uint64_t used)
  {
    auto* const kept = reinterpret_cast<std::uint16_t*>(bytes_.data() + sizeof header_);
    const auto set = [&](std::uint64_t place, std::uint16_t bits) {
      header_[of_sum] += word_of(place, bits) - word_of(place, kept[place]);
      kept[place] = bits;
    };
    const auto has_norm = [](std::uint64_t each) { return (each & 0xffffU) != 0; };
    for (const std::uint64_t each : noted)
      if (has_norm(each)) set(each >> 16U, 0);
    for (const std::uint64_t each : noted)
      if (has_norm(each)) set(each >> 16U, std::max(kept[each >> 16U], static_cast<std::uint16_t>(each)));
    noted.clear();
    header_[of_next] = std::max(header_[of_next], used);
    header_[of_mark] = 0;
    used_ = 0;
    write_header();
  }
  /// A norm's part in the sum of all, which does not depend on their order.
  [[nodiscard]] static std::uint64_t word_of(std::uint64_t place, std::uint16_t bits) noexcept
  {
    if (bits == 0) return 0;
    std::uint64_t word = (place << 16U | bits) * 0x9e3779b97f4a7c15U;
    word = (word ^ word >> 29U) * 0xbf58476d1ce4e5b9U;
    return word ^ word >> 32U;
  }

  std::string name_;
  std::string state_;
  std::uint64_t samples_;
  std::uint64_t norms_ = 0;  // of all sites
  std::uint64_t print_ = 0;  // of the names and rows of all sites
  std::array<std::uint64_t, words> header_{};
  std::vector<one_site> sites_;
  std::vector<std::byte> bytes_;      // the state; empty until a manager has it
  std::vector<std::uint64_t> noted_;  // in this step: place << 16 | bits of the norm; without norms that did not arrive
  std::vector<std::uint64_t> all_;    // of all ranks
  std::vector<sender> senders_;       // norms on their way
  std::uint64_t noted_step_ = 0;
  std::uint64_t used_ = 0;  // the step of the last batch, and 1; 0: none since commit
  sampling_memory memory_;
  noise_meter noise_;
};

static_assert(registrable<norm_cache>);

}  // namespace activation

}  // namespace chunkmem::inline v0
