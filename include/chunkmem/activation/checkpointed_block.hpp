// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/random_stream.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/checks/byte_poison.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/rank_manager.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The part of a tensor that a run with fewer rows than the declared ones uses.
enum class sized : std::uint8_t {
  whole,    ///< all elements, as of statistics over a batch
  by_rows,  ///< the elements of the batch's rows, from the beginning: tensors whose outer extent counts rows
};

/// A tensor of a block: its handle, its size, and a way to read its bytes whatever its type is.
///
///     const saved_tensor<Manager> made = make_saved_tensor(m, hidden, "layer 0 saved ", 0);
///     std::cout << made.size.count() << " B\n";
template <class Manager>
struct saved_tensor {
  tensor_handle handle;
  bytes size;
  std::uint64_t (*sum_of)(Manager&, tensor_handle) = nullptr;
  sized by = sized::whole;
  bool is_skip = false;  ///< blocks after the next one read the tensor

  /// Bytes of `active` rows of `rows`.
  [[nodiscard]] bytes size_of(std::uint64_t active, std::uint64_t rows) const noexcept
  {
    return by == sized::whole ? size : bytes{size.count() / rows * active};
  }
};

namespace detail {

/// A hash of bytes in their order, for checks (FNV-1a, Fowler, Noll and Vo 1991).
[[nodiscard]] inline std::uint64_t sum_of_bytes(std::span<const std::byte> content) noexcept
{
  std::uint64_t sum = 0xcbf29ce484222325U;
  for (const std::byte value : content) sum = (sum ^ std::to_integer<std::uint64_t>(value)) * 0x100000001b3U;
  return sum;
}

template <class Manager, element Element>
[[nodiscard]] std::uint64_t sum_of_tensor(Manager& manager, tensor_handle handle)
{
  const auto pin = manager.acquire(tensor<Element>{handle}, access::read);
  return sum_of_bytes(std::as_bytes(pin.span()));
}

}  // namespace detail

/// @throws usage_error   not a tensor of this manager
template <class Manager, element Element>
[[nodiscard]] saved_tensor<Manager> make_saved_tensor(Manager& manager, tensor<Element> declared, std::string prefix,
                                                      std::size_t number)
{
  manager.name(declared, prefix + std::to_string(number));
  saved_tensor<Manager> made;
  made.handle = declared;
  made.size = bytes{manager.info(declared).extents.elements() * sizeof(Element)};
  if constexpr (Manager::engine_type::host_addressable) made.sum_of = &detail::sum_of_tensor<Manager, Element>;
  return made;
}

/// The tensors of one block.
///
///     bytes all;
///     for (const auto& each : block.tensors().inner) all += each.size;
template <class Manager>
struct block_tensors {
  using list = std::vector<saved_tensor<Manager>>;
  list inner;    ///< saved for the backward callback alone
  list outputs;  ///< read by the next block too
  list skips;    ///< of earlier blocks, which this block reads

  /// The place of a tensor in a list; the list's size where the tensor is not in it.
  [[nodiscard]] static std::size_t place_of(const list& in, tensor_handle wanted) noexcept
  {
    return static_cast<std::size_t>(std::ranges::find(in, wanted, &saved_tensor<Manager>::handle) - in.begin());
  }
  [[nodiscard]] static bool has(const list& in, tensor_handle wanted) noexcept
  {
    return place_of(in, wanted) < in.size();
  }
};

/// The step and the micro-batch of a run. Random numbers depend on both, and on the instance.
///
///     network.run(iteration, {.step = 7, .micro_batch = 1});
struct chain_moment {
  static constexpr std::uint64_t no_step = UINT64_MAX;
  static constexpr std::uint64_t all_rows = UINT64_MAX;

  std::uint64_t step = no_step;   ///< of the training, counted by the trainer: another number in each step
  std::uint32_t micro_batch = 0;  ///< of the iteration: another number in each run of one step
  std::uint32_t instance = 0;     ///< of several forwards before one backward: they count from 0
  std::uint64_t rows = all_rows;  ///< of this batch, from 1 to the declared ones

  [[nodiscard]] constexpr bool operator==(const chain_moment&) const noexcept = default;
};

/// The run of a block, as its callback sees it: tensors, random numbers, the step.
///
///     layer.forward = [=](auto& run) {
///       const auto x = run.input(before);             // read
///       auto h = run.save(hidden);                    // write
///       dropout(h.span(), run.random());              // the same numbers in each run of this step
///     };
///     layer.backward = [=](auto& run) { const auto h = run.restore(hidden); ... };
///
/// Pins end with their scope. Weights, gradients and leases come from the manager as usual.
template <class Manager>
class block_run {
 public:
  using tensors_type = block_tensors<Manager>;
  /// The facts of a run, which its callback does not choose.
  struct facts {
    Manager* manager = nullptr;
    const std::string* name = nullptr;
    const tensors_type* declared = nullptr;  ///< by the handles that callbacks know: those of instance 0
    const tensors_type* own = nullptr;       ///< the same tensors of this instance
    const tensors_type* declared_before = nullptr;
    const tensors_type* before = nullptr;  ///< of the block before; null: the trainer's own inputs, unchecked
    chain_run run = chain_run::saving;
    bool is_again = false;
    bool is_training = true;
    bool reads_input = false;
    std::uint32_t block = 0;
    std::uint32_t stream_block = 0;  ///< of random numbers: the block's place in the chain of all instances
    const random_stream* numbers = nullptr;
    chain_moment moment;       ///< `rows` is a number of rows
    bool is_repeated = false;  ///< the same moment was run before in this iteration
  };
  explicit block_run(const facts& known) noexcept : known_{known} {}

  /// A saved tensor or an output, to be written by a forward callback.
  /// @throws usage_error   the block did not declare the tensor, or this is the backward callback; names the block; and
  ///   as the manager's `acquire`
  template <element Element>
  [[nodiscard]] auto save(tensor<Element> wanted, agent stream = agent::host)
  {
    if (known_.run == chain_run::backward) refuse("saves a tensor in its backward callback");
    if (is_of(&tensors_type::skips, wanted)) refuse("saves a tensor of an earlier block, which it reads");
    return acquired<Element>(own(wanted, "saves a tensor that it did not declare"), access::write, stream);
  }
  /// A saved tensor or an output that was written before, in this run or in the forward run; or a tensor of an earlier
  /// block that this block reads.
  /// @throws usage_error   the block did not declare the tensor, or would write a tensor of an earlier block; names the
  ///   block; and as the manager's `acquire`
  template <element Element, access_choice Access = access>
  [[nodiscard]] auto restore(tensor<Element> wanted, Access how = access::read, agent stream = agent::host)
  {
    if (writes(how) && is_of(&tensors_type::skips, wanted))
      refuse("writes a tensor of an earlier block, which other runs read");
    return acquired<Element>(own(wanted, "restores a tensor that it did not save"), how, stream);
  }
  /// An output of the block before, or a tensor of an earlier block that this block `reads`.
  /// @throws usage_error   the tensor is neither; or this is the backward callback, and the block has not set
  ///   reads_input; names the block; and as the manager's `acquire`
  template <element Element>
  [[nodiscard]] auto input(tensor<Element> wanted, agent stream = agent::host)
  {
    if (is_of(&tensors_type::skips, wanted)) return acquired<Element>(own(wanted, {}), access::read, stream);
    if (known_.run == chain_run::backward && !known_.reads_input)
      refuse("reads its input in its backward callback (set reads_input, so that plans keep it)");
    if (known_.before == nullptr) return acquired<Element>(wanted, access::read, stream);
    const std::size_t place = tensors_type::place_of(known_.declared_before->outputs, wanted);
    if (place == known_.before->outputs.size())
      refuse("reads an input that the block before does not output (of an earlier block: block.reads(tensor))");
    return acquired<Element>(known_.before->outputs[place].handle, access::read, stream);
  }

  /// The key of random_bits() for this run. Each run of this block in this step and micro-batch has the same key.
  /// Blocks, steps, micro-batches, instances, and networks of other names or seeds have other keys.
  /// @throws usage_error   the network has no name, `checkpointed::run` was given no step, or it was given the same
  ///   micro-batch twice in one iteration, so numbers would repeat; names the block
  [[nodiscard]] rounding_key random() const
  {
    expect_step("draws random numbers");
    if (known_.numbers->is_by_name() && known_.numbers->network().empty())
      refuse(
          "draws random numbers, and its network has no name: another network without a name would draw the same "
          "(give options::name, or random_rule::by_seed to go on with a training that was saved without a name)");
    if (known_.is_repeated)
      refuse(
          "draws the random numbers of a micro-batch that was run before in this iteration (give run() another "
          "micro-batch each time: network.run(iteration, {.step = step, .micro_batch = batch}))");
    return known_.numbers->key(known_.moment.step, known_.stream_block, known_.moment.micro_batch);
  }
  /// Whether the block already ran forward in this step. A callback that changes anything but its own tensors, such as
  /// running statistics, does so only where this is false.
  [[nodiscard]] bool is_again() const noexcept { return known_.is_again; }
  /// False in `checkpointed::evaluate`: no backward run follows. Running statistics are read there, and dropout is off.
  [[nodiscard]] bool is_training() const noexcept { return known_.is_training; }
  /// The number of this run's forward among several before one backward, from 0.
  [[nodiscard]] std::uint32_t instance() const noexcept { return known_.moment.instance; }
  /// Rows of this batch; in a rehearsal all declared rows. Pins of tensors that are sized::by_rows have the elements of
  /// this many rows.
  [[nodiscard]] std::uint64_t rows() const noexcept { return known_.moment.rows; }
  /// @throws usage_error   `checkpointed::run` was given no step; names the block
  [[nodiscard]] const chain_moment& moment() const
  {
    expect_step("asks for its step");
    return known_.moment;
  }
  [[nodiscard]] Manager& manager() const noexcept { return *known_.manager; }

 private:
  [[noreturn]] void refuse(std::string_view what, std::string_view more = {}) const
  {
    error_text text;
    text << "chunkmem: ";
    if (!known_.numbers->network().empty()) text << "network \"" << known_.numbers->network() << "\", ";
    throw usage_error{text << "block " << std::uint64_t{known_.block} << " (\"" << *known_.name << "\") " << what
                           << more};
  }
  void expect_step(std::string_view what) const
  {
    if (known_.moment.step == chain_moment::no_step)
      refuse(what, ", and run() was given no step (count the steps: network.run(iteration, {.step = step}))");
  }
  [[nodiscard]] bool is_of(typename tensors_type::list tensors_type::*which, tensor_handle wanted) const noexcept
  {
    return tensors_type::has(known_.declared->*which, wanted);
  }
  /// The tensor of this instance that stands for a declared one.
  [[nodiscard]] tensor_handle own(tensor_handle wanted, std::string_view otherwise) const
  {
    for (const auto which : {&tensors_type::inner, &tensors_type::outputs, &tensors_type::skips})
      if (const std::size_t place = tensors_type::place_of(known_.declared->*which, wanted);
          place < (known_.declared->*which).size())
        return (known_.own->*which)[place].handle;
    refuse(otherwise);
  }
  template <element Element, class Access>
  [[nodiscard]] auto acquired(tensor_handle handle, Access how, agent stream)
  {
    const tensor<Element> wanted{handle};
    return stream == agent::host ? known_.manager->acquire(wanted, how) : known_.manager->acquire(wanted, how, stream);
  }

  facts known_;
};

template <class Manager>
class checkpointed_block;

/// The block that makes each tensor of a network, and the sizes that all blocks share. A part of `checkpointed`.
///
///     if (const auto* const known = makers.find(hidden)) known->block;
template <class Manager>
struct tensor_makers {
  struct place {
    tensor_handle handle;
    checkpointed_block<Manager>* block = nullptr;
  };
  std::vector<place> all;
  std::uint64_t rows = 1;       ///< of the largest batch
  std::uint32_t instances = 1;  ///< forwards before one backward, at most
  bool has_run = false;         ///< the network ran, or is rehearsed: its chain stays

  [[nodiscard]] const place* find(tensor_handle wanted) const noexcept
  {
    const auto found = std::ranges::find(all, wanted, &place::handle);
    return found == all.end() ? nullptr : &*found;
  }
};

/// A block of a `checkpointed` network: its tensors, its two callbacks, and their times, if known.
///
///     auto& layer = network.add("layer 0");
///     const tensor<float> hidden = layer.template saves<float>({rows, 4 * width});
///     const tensor<float> out = layer.template outputs<float>({rows, width});
///     layer.forward = [&, hidden, out](auto& run) { ... };
///     layer.backward = [&, hidden](auto& run) { ... };
///
/// A tensor counts once, however often it is declared. A tensor that a later block than the next one reads is a skip:
/// it is saved once, and may leave the device between its uses.
template <class Manager>
class checkpointed_block {
 public:
  using run_type = block_run<Manager>;
  using tensors_type = block_tensors<Manager>;
  using makers_type = tensor_makers<Manager>;

  std::function<void(run_type&)> forward;
  std::function<void(run_type&)> backward;
  bool reads_input = false;    ///< the backward callback reads the block's input
  bytes gradient{};            ///< of the output, as the trainer keeps it between two backward callbacks
  bytes working{};             ///< leases of a callback, at most
  double forward_seconds = 0;  ///< for all rows; 0: both times are measured in the first steps
  double backward_seconds = 0;

  /// @param makers   of the network; outlives the block
  checkpointed_block(Manager& owner, makers_type& makers, std::uint32_t number, std::string_view name)
      : manager_{owner}, makers_{makers}, number_{number}, name_{name}, tensors_(makers.instances)
  {
  }
  checkpointed_block(const checkpointed_block&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint32_t instances() const noexcept { return makers_.instances; }

  /// Declares a tensor that the forward callback writes and the backward callback reads.
  /// @throws usage_error    the manager is sealed
  /// @throws config_error   sized::by_rows, and its elements are not those of options::rows equal rows
  template <element Element>
  tensor<Element> saves(const shape& extents, sized by = sized::whole)
  {
    return saves(manager_.template add<Element>(extents, role::activation), by);
  }
  /// The same for a tensor that the trainer declared, with role::activation. For a tensor of an earlier block this is
  /// `reads`.
  template <element Element>
  tensor<Element> saves(tensor<Element> declared, sized by = sized::whole)
  {
    if (const auto* const known = makers_.find(declared)) return read(declared, *known), declared;
    declare(&tensors_type::inner, declared, by, " saved ");
    return declared;
  }
  /// Declares the output: the next block's input. A block may have several.
  template <element Element>
  tensor<Element> outputs(const shape& extents, sized by = sized::whole)
  {
    return outputs(manager_.template add<Element>(extents, role::activation), by);
  }
  /// @throws usage_error   an earlier block makes the tensor, or this block saves it
  template <element Element>
  tensor<Element> outputs(tensor<Element> declared, sized by = sized::whole)
  {
    if (makers_.find(declared) == nullptr)
      declare(&tensors_type::outputs, declared, by, " output ");
    else if (!tensors_type::has(tensors().outputs, declared))
      refuse(
          "outputs a tensor that it saves, or that an earlier block makes (declare the tensor as output once; later "
          "blocks read it by block.reads(tensor))");
    return declared;
  }
  /// Declares that both callbacks read a tensor of an earlier block, by `run.input(tensor)`: a skip connection.
  /// @throws usage_error   no earlier block makes the tensor
  template <element Element>
  tensor<Element> reads(tensor<Element> made)
  {
    const auto* const known = makers_.find(made);
    if (known == nullptr || known->block->number_ >= number_) refuse("reads a tensor that no earlier block makes");
    read(made, *known);
    return made;
  }

  /// @param instance   of several forwards before one backward
  [[nodiscard]] const tensors_type& tensors(std::uint32_t instance = 0) const noexcept { return tensors_[instance]; }
  /// The tensor of an instance that stands for one that this block declared.
  /// @throws usage_error   the block did not declare it, or there is no such instance
  template <element Element>
  [[nodiscard]] tensor<Element> tensor_of(tensor<Element> declared, std::uint32_t instance) const
  {
    expects(instance < instances(), "a tensor was requested of an instance that the network does not have");
    for (const auto which : {&tensors_type::inner, &tensors_type::outputs})
      if (const std::size_t place = tensors_type::place_of(tensors().*which, declared);
          place < (tensors().*which).size())
        return tensor<Element>{(tensors(instance).*which)[place].handle};
    refuse("has no such tensor: it did not declare the tensor that was requested");
  }

 private:
  using list_type = typename tensors_type::list;

  [[noreturn]] void refuse(std::string_view why) const
  {
    throw usage_error{error_text{} << "chunkmem: block " << number_ << " (\"" << name_ << "\") " << why};
  }
  void expect_first_run_to_come() const
  {
    if (makers_.has_run) refuse("was given a tensor after the network had run (declare all before the first step)");
  }
  template <element Element>
  void declare(list_type tensors_type::*which, tensor<Element> declared, sized by, std::string_view kind)
  {
    expect_first_run_to_come();
    const shape extents = manager_.info(declared).extents;
    if (by == sized::by_rows && extents.elements() % makers_.rows != 0)
      throw config_error{error_text{} << "chunkmem: block " << number_ << " (\"" << name_ << "\") has a tensor of "
                                      << extents.elements() << " elements, sized by rows, and the largest batch has "
                                      << makers_.rows << " rows (set options::rows, or take sized::whole)"};
    for (std::uint32_t instance = 0; instance < instances(); ++instance) {
      const tensor<Element> own = instance == 0 ? declared : manager_.template add<Element>(extents, role::activation);
      list_type& list = tensors_[instance].*which;
      std::string prefix = name_;
      if (instance > 0) prefix += '#' + std::to_string(instance);
      list.push_back(make_saved_tensor(manager_, own, prefix.append(kind), list.size()));
      list.back().by = by;
    }
    makers_.all.push_back({declared, this});
  }
  void read(tensor_handle wanted, const typename makers_type::place& known)
  {
    checkpointed_block& maker = *known.block;
    if (&maker == this || tensors_type::has(tensors().skips, wanted)) return;
    expect_first_run_to_come();
    const auto which =
        tensors_type::has(maker.tensors().outputs, wanted) ? &tensors_type::outputs : &tensors_type::inner;
    if (which == &tensors_type::outputs && maker.number_ + 1 == number_) {
      reads_input = true;
      return;
    }
    const std::size_t place = tensors_type::place_of(maker.tensors().*which, wanted);
    for (std::uint32_t instance = 0; instance < instances(); ++instance) {
      saved_tensor<Manager>& made = (maker.tensors_[instance].*which)[place];
      made.is_skip = true;
      tensors_[instance].skips.push_back(made);
    }
  }

  Manager& manager_;
  makers_type& makers_;
  std::uint32_t number_;
  std::string name_;
  std::vector<tensors_type> tensors_;  // by instance
};

/// Finds blocks that do not compute the same bytes each time, blocks that overwrite their input, and blocks that, when
/// they run again, change bytes that outlive the step: buffers, frozen weights and registered bytes.
///
/// A part of `checkpointed` under checks::full. Cost: for each forward run, its inputs are read twice more, and its
/// result once; for each run again, all buffers, frozen weights and registered bytes are read twice.
///
///     check.begin(blocks);
///     check.input_before(m, own, before, is_again);
///     ... a forward run ...
///     check.ran(m, {network, block_name, block}, own, before);
template <class Manager>
class recompute_check {
 public:
  /// A block, for messages.
  struct place {
    const std::string& network;
    const std::string& name;
    std::uint32_t block;
  };

  void begin(std::size_t blocks)
  {
    first_.assign(blocks, 0);
    has_run_.assign(blocks, 0);
  }
  /// @param before   of the block before; null: unknown
  void input_before(Manager& manager, const block_tensors<Manager>& own, const block_tensors<Manager>* before,
                    bool is_again)
  {
    input_ = sum_of_input(manager, own, before);
    is_again_ = is_again;
    lasting_.clear();
    if (is_again) for_each_lasting(manager, [this](std::uint64_t sum, const auto&) { lasting_.push_back(sum); });
  }
  /// @throws usage_error   names the block
  void ran(Manager& manager, const place& at, const block_tensors<Manager>& own, const block_tensors<Manager>* before)
  {
    if (sum_of_input(manager, own, before) != input_)
      refuse(at, "overwrites its input, from which it may have to run again (give its result a tensor)");
    const std::uint64_t sum = sum_of(manager, own.inner) * 31 + sum_of(manager, own.outputs);
    if (has_run_[at.block] != 0 && sum != first_[at.block])
      refuse(at,
             "saved other bytes when it ran again in one step (draw random numbers by run.random(), and change nothing "
             "but its own tensors)");
    first_[at.block] = sum;
    has_run_[at.block] = 1;
    if (is_again_) expect_same(manager, at);
  }

 private:
  [[noreturn]] static void refuse(const place& at, std::string_view why, std::string_view what = {},
                                  std::string_view more = {})
  {
    error_text text;
    text << "chunkmem: ";
    if (!at.network.empty()) text << "network \"" << at.network << "\", ";
    throw usage_error{text << "block " << std::uint64_t{at.block} << " (\"" << at.name << "\") " << why << what
                           << more};
  }
  [[nodiscard]] static std::uint64_t sum_of_input(Manager& manager, const block_tensors<Manager>& own,
                                                  const block_tensors<Manager>* before)
  {
    return sum_of(manager, own.skips) * 31 + (before == nullptr ? 0 : sum_of(manager, before->outputs));
  }
  [[nodiscard]] static std::uint64_t sum_of(Manager& manager, const typename block_tensors<Manager>::list& all)
  {
    std::uint64_t sum = 0;
    for (const auto& each : all) sum = sum * 31 + each.sum_of(manager, each.handle);
    return sum;
  }
  /// Calls `visit(hash of its bytes, its name)` for each item that outlives a step and that no optimizer writes, always
  /// in the same order. The name is a callable, so that it is only made for a message.
  template <class Visit>
  static void for_each_lasting(Manager& manager, Visit visit)
  {
    auto& own = rank_manager(manager);
    own.for_each_tensor([&](tensor_handle it, const auto& info) {
      if (info.part != role::buffer && info.part != role::frozen) return;
      visit(checks::sum_of_bytes(own.content().bytes_of(it)), [&] {
        return std::string{info.part == role::buffer ? "buffer '" : "frozen weight '"} + own.name_of(it) + '\'';
      });
    });
    own.content().states().for_each([&](std::string_view name, std::span<const std::byte> content) {
      visit(checks::sum_of_bytes(content), [&] { return "registered bytes '" + std::string{name} + '\''; });
    });
  }
  void expect_same(Manager& manager, const place& at) const
  {
    std::size_t index = 0;
    for_each_lasting(manager, [&](std::uint64_t sum, const auto& name) {
      if (index < lasting_.size() && lasting_[index++] != sum)
        refuse(at, "changed ", name(),
               " when it ran again in one step: it changed twice, or once, as the plan of activations says (change it "
               "where run.is_again() is false; scratch is a lease, or a tensor with role::activation)");
    });
  }

  std::vector<std::uint64_t> first_;  // by block: the hash of its first forward run in this step
  std::vector<std::uint8_t> has_run_;
  std::vector<std::uint64_t> lasting_;  // hashes before a run again
  std::uint64_t input_ = 0;
  bool is_again_ = false;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
