// SPDX-License-Identifier: Apache-2.0
// Pipelines side by side: each stage has replicas, which divide its weights among them.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/managed_weights.hpp>
#include <support/sanitized.hpp>

#include "schedule_runs.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace sharded_stages_test {

using namespace pipeline_test;
using chunkmem::pipeline::schedule;  // not that of a manager
using support::stage_of_layers;
using support::vector_type;
using support::width;

namespace {

using ranks_type = collective::local_threads;
using model_type = sharded_model<backend::host_arena, ranks_type, gradient::separate>;

const bytes block{16'384};  // of a chunk, for each rank

/// Replicas of a pipeline: how many, what a rank keeps, and how they train.
struct replication {
  std::uint32_t replicas = 1;
  sharding::zero divided = sharding::zero_3;
  optimizer::step_options options{.learning_rate = 0.05F, .skip_nonfinite = false};
  std::uint32_t infinite_batch = UINT32_MAX;  // a gradient of part 0 is no number in it, on one replica
  bool is_late = false;                       // updates wait until their weights are read
};

/// The number of a micro-batch of a replica among those of all replicas.
std::uint32_t number_in_all(const schedule& plan, const replication& how, std::uint32_t replica,
                            std::uint32_t micro_batch)
{
  const std::uint32_t batch = micro_batch / plan.micro_batches;
  return (batch * how.replicas + replica) * plan.micro_batches + micro_batch % plan.micro_batches;
}

/// Weights of a stage, divided over its replicas. Each part is a unit of its own. The device has room for one part and
/// its gradients.
template <class Element>
class sharded_weights {
 public:
  sharded_weights(const schedule& plan, std::uint32_t, thread_stages::place& here, ranks_type& replicas,
                  const optimizer::adam& kernel, const replication& how)
      : micro_batches_{plan.micro_batches},
        how_{how},
        is_last_{index_of(replicas.rank()) + 1 == replicas.ranks()},
        step_{here.all()},
        memory_{{.device_capacity = chunk(replicas) * (size_of(dtype_of<Element>) == 2 ? 5 : 2),
                 .host_capacity = chunk(replicas) * 64}},
        m_{memory_,
           replicas,
           {.chunk_bytes = chunk(replicas)},
           {.divided = how.divided},
           gradient::separate{.wide = true}},
        kernel_{kernel},
        versions_{m_, plan.versions, dtype_of<Element>}
  {
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == here.stage())
        parts_.emplace(part, m_.template add<Element>({width, width}, role::parameter, group_id{part}));
    m_.use(kernel_);
    for (const auto& [part, weight] : parts_) {
      const auto pin = m_.acquire(weight, access::write);
      const vector_type first = support::numbers_of(part + 1, width * width);
      for (std::size_t index = 0; index < first.size(); ++index) pin.span()[index] = round_to<Element>(first[index]);
    }
    versions_.start();
    begin_batch();
  }
  sharded_weights(const sharded_weights&) = delete;

  void begin_run(chunkmem::pass during, std::uint32_t micro_batch)
  {
    scope_->pass(during, micro_batch % micro_batches_);
  }
  [[nodiscard]] vector_type of(std::uint32_t part, std::uint32_t version)
  {
    return support::managed_layers<Element>::read(versions_.acquire(parts_.at(part), version));
  }
  void add_gradient(std::uint32_t part, std::uint32_t, vector_type of_hidden, const vector_type& input)
  {
    if (part == 0 && batch_ == how_.infinite_batch && is_last_) support::spoil(of_hidden);
    auto pin = m_.template gradient<float>(parts_.at(part));
    vector_type sum(width * width, 0);
    if (pin.beta() != 0)
      for (std::size_t index = 0; index < sum.size(); ++index) sum[index] = pin.span()[index];
    support::small_layer::add_gradient(sum, of_hidden, input);
    for (std::size_t index = 0; index < sum.size(); ++index) pin.span()[index] = sum[index];
    m_.gradient_done(std::move(pin));
  }
  /// The step is taken when the last part's update comes.
  void update(const operation&)
  {
    if (++updated_ < parts_.size()) return;
    updated_ = 0;
    scope_.reset();
    versions_.flip();
    begin_batch();
    const auto done = versions_.update([&] {
      const auto number = [this](tensor_handle it) {
        for (const auto& [part, weight] : parts_)
          if (it == weight) return part;
        throw std::logic_error{"a gradient of something else"};
      };
      return how_.is_late ? step_.take(m_, late_, how_.options, number)
                          : step_.take(m_, kernel_, how_.options, on_this_thread, number);
    });
    has_waited_ = has_waited_ || late_.waiting() != 0;
    skipped_ += done == optimizer::step_result::skipped_nonfinite ? 1U : 0U;
    ++batch_;
  }
  [[nodiscard]] vector_type newest(std::uint32_t part) { return of(part, versions_.newest()); }
  [[nodiscard]] bool is_clean() const noexcept { return updated_ == 0 && has_waited_ == how_.is_late; }
  [[nodiscard]] std::uint32_t skipped() const noexcept { return skipped_; }

 private:
  using scope_type = decltype(std::declval<model_type&>().iteration("batch"));

  static bytes chunk(const ranks_type& replicas) { return block * replicas.ranks(); }
  void begin_batch() { scope_.reset(new scope_type(m_.iteration("batch", micro_batches_))); }

  std::uint32_t micro_batches_;
  replication how_;
  bool is_last_;
  stage_step<ranks_type> step_;
  backend::host_arena memory_;
  model_type m_;
  optimizer::adam kernel_;
  optimizer::late_updates<model_type, optimizer::adam> late_{m_, kernel_};
  bool has_waited_ = false;  // an update
  weight_versions<model_type> versions_;
  std::map<std::uint32_t, tensor<Element>> parts_;
  std::unique_ptr<scope_type> scope_;
  std::size_t updated_ = 0;
  std::uint32_t batch_ = 0;
  std::uint32_t skipped_ = 0;
};

/// The stage of one replica, which has micro-batches of its own.
template <class Element>
class replica_stage : public stage_of_layers<sharded_weights<Element>> {
  using layers = stage_of_layers<sharded_weights<Element>>;

 public:
  replica_stage(const schedule& plan, thread_stages::place& here, ranks_type& replicas, const optimizer::adam& kernel,
                const replication& how)
      : layers{plan, here.stage(), here, replicas, kernel, how},
        plan_{plan},
        how_{how},
        replica_{index_of(replicas.rank())}
  {
  }

  void forward(const forward_run& run)
  {
    layers::weights().begin_run(chunkmem::pass::forward, run.step.micro_batch);
    layers::forward({in_all(run.step), run.input, run.output});
  }
  void backward(const backward_run& run)
  {
    backward_input(run);
    layers::backward_weight(in_all(run.step));
  }
  void backward_input(const backward_run& run)
  {
    layers::weights().begin_run(chunkmem::pass::backward, run.step.micro_batch);
    layers::backward_input({in_all(run.step), run.input, run.output_gradient, run.input_gradient});
  }
  void backward_weight(const operation& step)
  {
    layers::weights().begin_run(chunkmem::pass::backward, step.micro_batch);
    layers::backward_weight(in_all(step));
  }

 private:
  [[nodiscard]] operation in_all(operation step) const
  {
    step.micro_batch = number_in_all(plan_, how_, replica_, step.micro_batch);
    return step;
  }

  const schedule& plan_;
  replication how_;
  std::uint32_t replica_;
};

/// Calls `work(place, replicas, number)` once for each stage of each replica, each on a thread of its own.
using work_of_rank = call_ref<void(thread_stages::place& here, ranks_type& replicas, std::uint32_t number)>;
void on_grid(const schedule& plan, std::uint32_t replicas, work_of_rank work)
{
  std::deque<thread_stages> pipelines;
  for (std::uint32_t replica = 0; replica < replicas; ++replica) pipelines.emplace_back(plan);
  std::deque<collective::thread_group> groups;  // by stage
  for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage) groups.emplace_back(replicas);
  collective::run_threads(replicas * plan.stage_count(), [&](std::uint32_t number) {
    const std::uint32_t replica = number / plan.stage_count();
    thread_stages::place here{pipelines[replica], number % plan.stage_count()};
    ranks_type stage_replicas{groups[here.stage()], rank_id{replica}};
    work(here, stage_replicas, number);
  });
}

struct trained {
  std::vector<std::vector<vector_type>> weights;  // by replica and part
  std::vector<std::uint32_t> skipped;             // by rank
};

template <class Element>
trained train(const schedule& plan, const optimizer::adam& kernel, const replication& how)
{
  const std::size_t ranks = std::size_t{how.replicas} * plan.stage_count();
  trained found{.weights{how.replicas, std::vector<vector_type>(plan.part_count())},
                .skipped = std::vector<std::uint32_t>(ranks)};
  const std::vector<bytes> inputs(plan.part_count(), bytes{width * sizeof(float)});
  on_grid(plan, how.replicas, [&](thread_stages::place& here, ranks_type& replicas, std::uint32_t number) {
    const std::uint32_t replica = number / plan.stage_count();
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = buffers.size() + bytes{4'096}}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, buffers.size() + bytes{1}),
                                          buffers.size().count()};
    auto links = here.links(memory);
    replica_stage<Element> stage{plan, here, replicas, kernel, how};
    stage_runner runner{plan, links, memory, buffers, boundaries};
    runner.run(stage);
    if (!stage.is_clean()) throw std::logic_error{"something was left over"};
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == here.stage()) found.weights[replica][part] = stage.weights().newest(part);
    found.skipped[number] = stage.weights().skipped();
  });
  return found;
}

void add(vector_type& sum, const vector_type& other)
{
  for (std::size_t index = 0; index < sum.size(); ++index) sum[index] += other[index];
}

/// Gradients of a batch, added up in the order of a stage: over replicas first, if they are added in each micro-batch.
template <class WeightsOf>
std::vector<vector_type> gradients_of_all(const schedule& plan, const replication& how, std::uint32_t batch,
                                          WeightsOf weights_of)
{
  schedule some = plan;
  some.micro_batches = how.divided.gradients ? 1 : plan.micro_batches;
  const std::uint32_t rounds = plan.micro_batches / some.micro_batches;
  std::vector<vector_type> sums;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    std::vector<vector_type> of_round;
    for (std::uint32_t replica = 0; replica < how.replicas; ++replica) {
      const std::uint32_t which = (batch * how.replicas + replica) * rounds + round;
      const std::vector<vector_type> own = support::gradients_of_batch(some, which, weights_of);
      for (std::uint32_t part = 0; part < plan.part_count(); ++part)
        if (replica == 0)
          of_round.push_back(own[part]);
        else
          add(of_round[part], own[part]);
    }
    if (round == 0)
      sums = of_round;
    else
      for (std::uint32_t part = 0; part < plan.part_count(); ++part) add(sums[part], of_round[part]);
  }
  return sums;
}

template <class Element>
void has_the_bits_of_one_device(const schedule& plan, const replication& how)
{
  const bool has_masters = size_of(dtype_of<Element>) == 2;
  const optimizer::adam kernel{{.weight_decay = 0.01F}, {.masters = has_masters}};
  const trained found = train<Element>(plan, kernel, how);
  const std::vector<vector_type> expected = support::train_managed_alone<Element>(
      plan, kernel, {.options = how.options, .infinite_batch = how.infinite_batch},
      [&](std::uint32_t batch, auto weights_of) { return gradients_of_all(plan, how, batch, weights_of); });
  CAPTURE(plan.name, plan.stage_count(), plan.micro_batches, how.replicas, how.divided.gradients,
          how.divided.parameters);
  for (const std::vector<vector_type>& replica : found.weights) CHECK(replica == expected);
  for (const std::uint32_t skipped : found.skipped) CHECK(skipped == (how.infinite_batch < plan.batches ? 1U : 0U));
}

}  // namespace

TEST_CASE("updates that wait have the bits of one device, on stages with replicas", "[pipeline]")
{
  const pipeline_shape shape{.stages = 2, .micro_batches = 4, .batches = 3};
  for (const sharding::zero& divided : {sharding::zero_1, sharding::zero_3})
    for (const schedule& plan : {make_schedule(one_f_one_b{}, shape),
                                 make_schedule(pipedream_2bw{}, {.stages = 2, .micro_batches = 2, .batches = 4})}) {
      replication how{.replicas = 2,
                      .divided = divided,
                      .options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}},
                      .is_late = true};
      has_the_bits_of_one_device<float>(plan, how);
      how.infinite_batch = 1;
      has_the_bits_of_one_device<bf16>(plan, how);
    }
}

TEST_CASE("pipelines side by side divide the weights of each stage, and have the bits of one device", "[pipeline]")
{
  const pipeline_shape shape{.stages = 2, .micro_batches = 4, .batches = 3};
  const schedule plans[] = {make_schedule(gpipe{}, shape), make_schedule(one_f_one_b{}, shape),
                            make_schedule(interleaved{.parts = 2}, shape), make_schedule(zb_h1{}, shape),
                            make_schedule(zb_v{}, shape)};
  for (const schedule& plan : plans)
    for (const sharding::zero divided :
         {sharding::zero_1, sharding::zero_2, sharding::zero_3, sharding::zero_3_reduce_last})
      for (const std::uint32_t replicas : {1U, 2U, 3U}) {
        if (support::sanitized && replicas != 2) continue;
        has_the_bits_of_one_device<bf16>(plan, {replicas, divided});
        if (!support::sanitized) has_the_bits_of_one_device<float>(plan, {replicas, divided});
      }
}

TEST_CASE("replicas keep several versions of the weights, and have the bits of delayed training", "[pipeline][delayed]")
{
  struct shape {
    std::uint32_t d, m, versions;
  };
  for (const auto [d, m, versions] : {shape{1, 2, 2}, {2, 2, 2}, {2, 4, 2}, {3, 4, 2}, {4, 2, 3}}) {
    if (support::sanitized && d != 3) continue;
    const schedule plan =
        make_schedule(pipedream_2bw{.versions = versions}, {.stages = d, .micro_batches = m, .batches = 6});
    for (const sharding::zero divided :
         {sharding::zero_1, sharding::zero_2, sharding::zero_3, sharding::zero_3_reduce_last}) {
      replication how{.replicas = 2, .divided = divided};
      has_the_bits_of_one_device<bf16>(plan, how);
      if (!support::sanitized) has_the_bits_of_one_device<float>(plan, how);
      how.options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}};
      how.infinite_batch = 2;
      has_the_bits_of_one_device<bf16>(plan, how);
      if (!support::sanitized) has_the_bits_of_one_device<float>(plan, how);
    }
  }
}

TEST_CASE("batches of replicas with several versions follow their plans", "[pipeline]")
{
  const schedule plan = make_schedule(pipedream_2bw{}, {.stages = 1, .micro_batches = 2, .batches = 1});
  constexpr std::uint32_t last = support::sanitized ? 44 : 58;  // batch that is looked at
  for (const sharding::zero divided : {sharding::zero_1, sharding::zero_3}) {
    std::vector<std::vector<chunkmem::report>> reports(2);
    on_grid(plan, 2, [&](thread_stages::place&, ranks_type& replicas, std::uint32_t number) {
      backend::host_arena memory{{.device_capacity = block * 10, .host_capacity = block * 64}};
      model_type m{memory, replicas, {.chunk_bytes = block * 2}, {.divided = divided}};
      optimizer::adam adam{{}, {.masters = true}};
      m.use(adam);
      weight_versions<model_type> versions{m, 3, dtype::bfloat16};
      std::vector<tensor<bf16>> weights;
      for (int layer = 0; layer < 4; ++layer) weights.push_back(m.add<bf16>({16'000}, role::parameter));
      for (std::uint32_t layer = 0; layer < 4; ++layer)
        for (bf16& it : m.acquire(weights[layer], access::write).span()) it = bf16{1.0F};
      versions.start();
      for (std::uint32_t batch = 0; batch < last + 2; ++batch) {
        if (batch > 0) versions.flip();
        const auto scope = m.iteration("batch");
        if (batch > 0) (void)versions.update([&] { return m.step(adam, {.learning_rate = 0.1F}); });
        for (std::uint32_t layer = 0; layer < 4; ++layer) {
          const auto oldest = versions.acquire(weights[layer], batch < 2 ? 0 : batch - 2);
          const auto newest = versions.acquire(weights[layer], batch);
          if ((to_float(oldest.span()[0]) == to_float(newest.span()[0])) != (batch == 0))
            throw std::logic_error{"versions that are none"};
        }
        for (std::uint32_t layer = 4; layer-- > 0;) {
          auto gradient = m.gradient(weights[layer]);
          for (bf16& it : gradient.span()) it = bf16{1.0F};
          m.gradient_done(std::move(gradient));
        }
        reports[number].push_back(m.report());
      }
    });
    for (const std::vector<chunkmem::report>& of_rank : reports) {
      CAPTURE(divided.parameters);
      CHECK(of_rank[last].divergences == of_rank[38].divergences);
      CHECK(of_rank[last].replans == of_rank[38].replans);
      CHECK(of_rank[last].evictions > of_rank[38].evictions);
    }
  }
}

TEST_CASE("replicas that read different versions of a weight are told apart", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 1, .micro_batches = 1});
  std::vector<int> refused(2, 0);
  on_grid(plan, 2, [&](thread_stages::place&, ranks_type& replicas, std::uint32_t number) {
    backend::host_arena memory{{.device_capacity = block * 16, .host_capacity = block * 64}};
    model_type m{memory, replicas, {.chunk_bytes = block * 2}};
    weight_versions<model_type> versions{m, 2, dtype::bfloat16};
    optimizer::adam adam{{}, {.masters = true}};
    m.use(adam);
    const auto weight = m.add<bf16>({10}, role::parameter);
    for (bf16& it : m.acquire(weight, access::write).span()) it = bf16{1.0F};
    versions.start();
    {
      const auto scope = m.iteration();
      for (bf16& it : m.gradient(weight).span()) it = bf16{1.0F};
      m.gradient_done(weight);
    }
    versions.flip();
    const auto scope = m.iteration();
    (void)versions.update([&] { return m.step(adam, {.learning_rate = 0.5F}); });
    try {
      (void)versions.acquire(weight, number);
      m.settle();
    } catch (const error& told) {
      refused[number] = 1;
    }
  });
  CHECK(refused == std::vector{1, 1});
}

TEST_CASE("all replicas of all stages clip by one norm, and skip together", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 3, .micro_batches = 4, .batches = 4});
  for (const std::uint32_t replicas : {1U, 2U}) {
    replication how{.replicas = replicas, .options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}}};
    has_the_bits_of_one_device<bf16>(plan, how);
    how.infinite_batch = 2;
    has_the_bits_of_one_device<bf16>(plan, how);
    how.divided = sharding::zero_1;
    has_the_bits_of_one_device<float>(plan, how);
  }
}

TEST_CASE("where one replica of a stage has other options, no rank takes the step, and all take the next one",
          "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  std::vector<int> refused(4, 0);
  std::vector<int> updated(4, 0);
  on_grid(plan, 2, [&](thread_stages::place& here, ranks_type& replicas, std::uint32_t number) {
    backend::host_arena memory{{.device_capacity = block * 64, .host_capacity = block * 64}};
    model_type m{memory, replicas, {.chunk_bytes = block * 2}};
    optimizer::adam adam{{}, {.masters = false}};
    m.use(adam);
    const auto weight = m.add<float>({10}, role::parameter);
    for (float& it : m.acquire(weight, access::write).span()) it = static_cast<float>(index_of(replicas.rank()));
    try {
      const auto differs = m.iteration();
    } catch (const usage_error&) {  // replicas with other first values
      ++refused[number];
    }
    auto pin = m.acquire(weight, access::write);
    for (float& it : pin.span()) it = static_cast<float>(number);
    m.broadcast(std::move(pin));
    const auto scope = m.iteration();
    for (float& it : m.gradient(weight).span()) it = 1 + static_cast<float>(number);
    stage_step steps{here.all()};
    const auto step_by = [&](const optimizer::step_options& options) {
      return steps.take(m, adam, options, on_this_thread, [&](tensor_handle) { return here.stage(); });
    };
    for (const float wrong : {0.2F, -1.0F}) {  // other than the others', or for no step at all
      try {
        (void)step_by({.learning_rate = number == 3 ? wrong : 0.1F});
      } catch (const usage_error&) {
        ++refused[number];
      }
    }
    try {
      (void)step_by({.learning_rate = here.stage() == 0 ? 0.1F : 0.2F});  // of all replicas of a stage
    } catch (const usage_error&) {
      ++refused[number];
    }
    for (const bool of_stage : {false, true}) {  // the kernel of a replica, or of all replicas of a stage
      adam.group(group_id{0}, {.beta1 = (of_stage ? here.stage() == 1 : number == 3) ? 0.5F : 0.9F});
      try {
        (void)step_by({.learning_rate = 0.1F});
      } catch (const usage_error&) {
        ++refused[number];
      }
    }
    adam.group(group_id{0}, {});
    updated[number] = step_by({.learning_rate = 0.1F}) == optimizer::step_result::updated ? 1 : 0;
  });
  CHECK(refused == std::vector{6, 6, 6, 6});
  CHECK(updated == std::vector{1, 1, 1, 1});
}

TEST_CASE("while one rank of one stage pins a weight no rank takes the step, and all take it afterwards", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  std::vector<int> refused(4, 0);
  std::vector<int> updated(4, 0);
  on_grid(plan, 2, [&](thread_stages::place& here, ranks_type& replicas, std::uint32_t number) {
    backend::host_arena memory{{.device_capacity = block * 64, .host_capacity = block * 64}};
    model_type m{memory, replicas, {.chunk_bytes = block * 2}};
    optimizer::adam adam{{}, {.masters = false}};
    m.use(adam);
    const auto weight = m.add<float>({10}, role::parameter);
    for (float& it : m.acquire(weight, access::write).span()) it = 1;
    const auto scope = m.iteration();
    auto pin = m.acquire(weight, access::read);
    if (number != 2) pin.release();
    for (float& it : m.gradient(weight).span()) it = 1 + static_cast<float>(number);
    stage_step steps{here.all()};
    const auto take = [&] {
      return steps.take(m, adam, {.learning_rate = 0.1F, .clip = {.norm = 1}}, on_this_thread,
                        [&](tensor_handle) { return here.stage(); });
    };
    try {
      (void)take();
    } catch (const usage_error&) {
      ++refused[number];
    }
    pin.release();
    updated[number] = take() == optimizer::step_result::updated ? 1 : 0;
  });
  CHECK(refused == std::vector{1, 1, 1, 1});
  CHECK(updated == std::vector{1, 1, 1, 1});
}

}  // namespace sharded_stages_test
