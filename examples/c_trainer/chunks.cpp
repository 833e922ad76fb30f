// SPDX-License-Identifier: Apache-2.0
// The functions of chunks.h. No exception leaves them.
#include "chunks.h"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace cm = chunkmem;
using arena_type = cm::backend::host_arena;
using model_over_ranks = cm::sharded_model<arena_type, cm::collective::local_threads>;
using a_tensor = cm::tensor<float>;
using read_pin = decltype(std::declval<model_over_ranks&>().acquire(a_tensor{}, cm::access::read));
using written_pin = decltype(std::declval<model_over_ranks&>().acquire(a_tensor{}, cm::access::write));
using gradient_pin = decltype(std::declval<model_over_ranks&>().gradient(a_tensor{}));

struct chunk_group {
  cm::collective::thread_group threads;
};

struct chunk_model {
  chunk_model(chunk_group& group, std::uint32_t number, std::uint32_t layers, std::uint64_t floats, cm::bytes device,
              cm::bytes host)
      : memory{{.device_capacity = device, .host_capacity = host}}, rank{group.threads, cm::rank_id{number}}
  {
    m.use(adam);
    m.state("steps", std::as_writable_bytes(std::span{&steps, 1}));
    weights = m.add_stacked<float>(layers, {floats}, cm::role::parameter);
    outputs = m.add_stacked<float>(layers + 1, {floats}, cm::role::activation);
    for (std::uint32_t layer = 0; layer < layers; ++layer) m.name(weights.slice(layer), "w" + std::to_string(layer));
  }

  arena_type memory;
  cm::collective::local_threads rank;
  model_over_ranks m{memory, rank, {.chunk_bytes = cm::bytes{1 << 15}}};
  cm::optimizer::adam adam;
  std::uint64_t steps = 0;
  cm::stacked<float> weights, outputs;
  std::optional<read_pin> weight, input;
  std::optional<written_pin> first, output;
  std::optional<gradient_pin> gradient;
  std::string error;

  void release(int kind)
  {
    if (kind == CHUNKS_WEIGHT) weight.reset();
    if (kind == CHUNKS_FIRST) first.reset();
    if (kind == CHUNKS_INPUT) input.reset();
    if (kind == CHUNKS_OUTPUT) output.reset();
    if (kind == CHUNKS_GRADIENT && gradient) m.gradient_done(std::move(*std::exchange(gradient, std::nullopt)));
  }
};

namespace {

struct stopped {};
thread_local std::string error_of_no_model;

/// @throws usage_error   the pointer is null
template <class Object>
Object& given(Object* it)
{
  if (it == nullptr) throw cm::usage_error{"a pointer is null"};
  return *it;
}

/// Runs `work`, and returns the code of its exception.
/// @param of   keeps the text of the error; null: the calling thread keeps the text
template <class Work>
int code_of(chunk_model* of, Work work) noexcept
{
  const auto told = [&](const char* what, int code) noexcept {
    try {
      (of == nullptr ? error_of_no_model : of->error) = what;
    } catch (...) {
    }
    return code;
  };
  try {
    work();
    return CHUNKS_OK;
  } catch (const stopped&) {
    return told("a function of the trainer ended the step", CHUNKS_STOPPED);
  } catch (const cm::comm_error& it) {
    return told(it.what(), CHUNKS_LOST_RANK);
  } catch (const cm::io_error& it) {
    return told(it.what(), CHUNKS_BAD_FILE);
  } catch (const cm::format_error& it) {
    return told(it.what(), CHUNKS_BAD_FILE);
  } catch (const std::bad_alloc& it) {  // out_of_memory is derived from bad_alloc
    return told(it.what(), CHUNKS_NO_MEMORY);
  } catch (const std::exception& it) {
    return told(it.what(), CHUNKS_WRONG_CALL);
  } catch (...) {
    return told("an unknown error", CHUNKS_WRONG_CALL);
  }
}

void take_step(chunk_model& it, chunks_pass forward, chunks_pass backward, void* trainer, float rate)
{
  const auto pass = [&](chunks_pass work) {
    const bool ends = work(&it, trainer) != 0;
    for (int kind = 0; kind < CHUNKS_KINDS; ++kind) it.release(kind);  // pins that the trainer forgot
    if (ends) throw stopped{};
  };
  if (forward == nullptr || backward == nullptr) throw cm::usage_error{"a pass is null"};
  bool has_begun = false;  // false: a pass called this function, and the gradients of its step stay
  try {
    auto iteration = it.m.iteration();
    has_begun = true;
    iteration.pass(cm::pass::forward);
    pass(forward);
    iteration.pass(cm::pass::backward);
    pass(backward);
  } catch (...) {
    if (has_begun) it.m.drop_gradients();
    throw;
  }
  it.m.step(it.adam, {.learning_rate = rate});
}

}  // namespace

int chunks_group_new(chunk_group** group, uint32_t ranks)
{
  return code_of(nullptr, [&] { given(group) = new chunk_group{cm::collective::thread_group{ranks}}; });
}
void chunks_group_free(chunk_group* group)
{
  delete group;
}

int chunks_new(chunk_model** model, chunk_group* group, uint32_t rank, uint32_t layers, uint64_t floats,
               uint64_t device, uint64_t host)
{
  return code_of(nullptr, [&] {
    given(model) = new chunk_model{given(group), rank, layers, floats, cm::bytes{device}, cm::bytes{host}};
  });
}
void chunks_free(chunk_model* model)
{
  delete model;
}
const char* chunks_error(const chunk_model* model)
{
  return (model == nullptr ? error_of_no_model : model->error).c_str();
}

int chunks_pin(chunk_model* model, chunks_kind kind, uint32_t number, float** address)
{
  return code_of(model, [&] {
    chunk_model& it = given(model);
    float*& to = given(address);
    it.release(kind);
    switch (kind) {
      case CHUNKS_WEIGHT:
        it.weight.emplace(it.m.acquire(it.weights.slice(number), cm::access::read));
        to = const_cast<float*>(it.weight->data());
        return;
      case CHUNKS_INPUT:
        it.input.emplace(it.m.acquire(it.outputs.slice(number), cm::access::read));
        to = const_cast<float*>(it.input->data());
        return;
      case CHUNKS_FIRST:
        it.first.emplace(it.m.acquire(it.weights.slice(number), cm::access::write));
        to = it.first->data();
        return;
      case CHUNKS_OUTPUT:
        it.output.emplace(it.m.acquire(it.outputs.slice(number), cm::access::write));
        to = it.output->data();
        return;
      case CHUNKS_GRADIENT:
        it.gradient.emplace(it.m.gradient(it.weights.slice(number)));
        to = it.gradient->data();
        if (it.gradient->beta() == 0) std::ranges::fill(it.gradient->span(), 0.0F);
        return;
      case CHUNKS_KINDS: break;
    }
    throw cm::usage_error{"there is no such kind of pin"};
  });
}
int chunks_unpin(chunk_model* model, chunks_kind kind)
{
  return code_of(model, [&] { given(model).release(kind); });
}
int chunks_drop(chunk_model* model, uint32_t number)
{
  return code_of(model, [&] { given(model).m.drop(model->outputs.slice(number)); });
}

int chunks_step(chunk_model* model, chunks_pass forward, chunks_pass backward, void* trainer, float rate)
{
  return code_of(model, [&] {
    take_step(given(model), forward, backward, trainer, rate);
    ++model->steps;
  });
}
int chunks_rehearse(chunk_model* model, chunks_pass forward, chunks_pass backward, void* trainer, uint64_t* device,
                    uint64_t* host)
{
  return code_of(model, [&] {
    chunk_model& it = given(model);
    const cm::memory_requirement need =
        it.m.rehearse([&] { take_step(it, forward, backward, trainer, 0.0F); }, cm::rehearse_on::scratch);
    given(device) = need.smallest_device.count();
    given(host) = need.smallest_host.count();
  });
}

int chunks_save(chunk_model* model, const char* folder)
{
  return code_of(model, [&] {
    cm::io::posix_folder place{&given(folder)};
    cm::checkpoint::save(given(model).m, place);
  });
}
int chunks_load(chunk_model* model, const char* folder, uint64_t* steps)
{
  return code_of(model, [&] {
    cm::io::posix_folder place{&given(folder)};
    const auto found = cm::checkpoint::load(given(model).m, place, {.allow_fresh_start = true});
    given(steps) = found.number == 0 ? 0 : model->steps;
  });
}
