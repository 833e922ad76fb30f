// SPDX-License-Identifier: Apache-2.0
// The messages that a trainer reads after a mistake, each quoted whole. A message names the failure, with numbers and
// the name of the tensor, and the remedy.

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <support/catch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace messages_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena>;

namespace {

struct rig {
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  std::optional<manager> m{std::in_place, memory, cm::manager_options{.chunk_bytes = 4_KiB}};
  cm::tensor<float> embedding = m->add<float>({1024}, cm::role::parameter);
  cm::tensor<float> bias = m->add<float>({256}, cm::role::parameter);  // in a chunk with the next one
  cm::tensor<float> scale = m->add<float>({256}, cm::role::parameter);
  cm::tensor<float> mean = m->add<float>({16}, cm::role::buffer);
  cm::stacked<float> layers = m->add_stacked<float>(4, {1024}, cm::role::frozen);

  rig()
  {
    m->name(embedding, "embedding");
    m->name(bias, "bias");
    m->name(scale, "scale");
    m->name(mean, "mean");
    m->use(std::array{cm::list_spec{"momentum"}});
  }
  void fill()
  {
    for (const auto& tensor : {embedding, bias, scale, mean})
      for (float& x : m->acquire(tensor, cm::access::write).span()) x = 1.0F;
    for (std::uint32_t layer = 0; layer < layers.layers; ++layer)
      for (float& x : m->acquire(layers.slice(layer), cm::access::write).span()) x = 1.0F;
  }
};

/// The sentence of a call's error, which is an `Error`.
template <class Error, class Call>
std::string said(Call call)
{
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string{"another class of error: "} + error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("mistakes with pins are told with the tensor's name", "[mistakes]")
{
  rig it;
  auto& m = *it.m;
  const auto read = cm::access::read;
  CHECK(said<cm::usage_error>([&] { (void)m.acquire(it.embedding, read); }) ==
        "chunkmem: tensor 'embedding' (value) is free and cannot acquire: write it first with access::write "
        "(training_rules)");
  it.fill();
  {
    const auto on_device = m.acquire(it.bias, read);
    CHECK(said<cm::usage_error>([&] { (void)m.acquire(it.bias, cm::access::write, cm::memory_location::host); }) ==
          "chunkmem: tensor 'bias' (value) cannot be written on the host now: its chunk is in use on the device by 1 "
          "pin (release them first)");
    CHECK(said<cm::usage_error>([&] { (void)m.acquire(it.scale, cm::access::write, cm::memory_location::host); }) ==
          "chunkmem: tensor 'scale' (value) cannot be written on the host now: its chunk is in use on the device by 1 "
          "pin, the first of them on tensor 'bias' (value) (release them first)");
    CHECK(said<cm::usage_error>([&] { (void)on_device.writable(); }) ==
          "chunkmem: a pin that was acquired with access::read cannot be written (acquire it with access::read_write "
          "or access::write)");
    CHECK(said<cm::usage_error>([&] { m.drop(it.bias); }) ==
          "chunkmem: tensor 'bias' (value) is compute and cannot drop: release its pins first (training_rules)");
  }
  {
    const auto on_host = m.acquire(it.bias, cm::access::write, cm::memory_location::host);
    CHECK(said<cm::usage_error>([&] { (void)m.acquire(it.bias, read); }) ==
          "chunkmem: tensor 'bias' (value) cannot be read on the device now: its chunk is in use on the host by 1 pin "
          "(release them first)");
  }
  auto ended = m.acquire(it.bias, read);
  const auto moved = std::move(ended);
  CHECK(said<cm::usage_error>([&] { (void)ended.data(); }) ==
        "chunkmem: a pin or lease was used after it was released or moved from (acquire again)");
  CHECK(said<cm::usage_error>([&] { (void)cm::access{static_cast<cm::access_mode>(7)}; }) ==
        "chunkmem: an access that is none of read, read_write and write");
  rig other;
  CHECK(said<cm::usage_error>([&] { (void)other.m->acquire(it.bias, read); }) ==
        "chunkmem: a tensor was used with a manager that did not make it");
  CHECK(said<cm::usage_error>([&] { m.drop(cm::tensor<float>{}); }) ==
        "chunkmem: a tensor was used with a manager that did not make it");
  it.m.reset();
  CHECK(said<cm::usage_error>([&] { (void)moved.span(); }) ==
        "chunkmem: a pin or lease outlived its manager: its bytes are gone (end all pins before the manager)");
}

TEST_CASE("mistakes with room are told with every size", "[mistakes]")
{
  rig it;
  auto& m = *it.m;
  it.fill();
  {
    std::array<std::optional<manager::pin_type<const float>>, 4> pins;
    for (std::uint32_t layer = 0; layer < 4; ++layer)
      pins[layer].emplace(m.acquire(it.layers.slice(layer), cm::access::read));
    CHECK(said<cm::out_of_memory>([&] { (void)m.acquire(it.embedding, cm::access::read); }) ==
          "chunkmem: out of memory on the device tier: 4096 B asked for, capacity 16384 B, 16384 B cannot leave now, "
          "this moment fits in 20480 B (raise the capacity, or hold fewer pins and leases at once; rehearse finds what "
          "a whole step needs)");
    CHECK(said<cm::out_of_memory>([&] { (void)m.lease(cm::tier::device, 8_KiB); }) ==
          "chunkmem: out of memory on the device tier: 8192 B asked for, capacity 16384 B, 16384 B cannot leave now, "
          "this moment fits in 24576 B (raise the capacity, or hold fewer pins and leases at once; rehearse finds what "
          "a whole step needs)");
  }
  CHECK(said<cm::usage_error>([&] { (void)m.lease(cm::tier::device, cm::bytes{}); }) ==
        "chunkmem: a lease of zero bytes");
  CHECK(said<cm::usage_error>([&] { (void)m.lease(cm::no_tier, 1_KiB); }) ==
        "chunkmem: a lease on a tier that no backend has (use tier::device or tier::host)");
  CHECK(said<cm::usage_error>([&] { (void)m.lease(cm::tier::device, 1_KiB, static_cast<cm::agent>(77)); }) ==
        "chunkmem: an agent that this backend does not have: adopt() makes one");
  CHECK(said<cm::usage_error>([&] { (void)m.lease(cm::tier::device, 1_KiB, cm::agent::to_host); }) ==
        "chunkmem: the agents of the manager's own copies: use compute, or adopt() one");
}

TEST_CASE("a model that cannot fit is refused when it is sealed, with each size that must grow", "[mistakes]")
{
  const auto refusal = [](cm::bytes device, cm::bytes host, std::uint32_t layers) {
    arena memory{{.device_capacity = device, .host_capacity = host}};
    manager m{memory, {.chunk_bytes = 4_KiB}};
    m.add_stacked<float>(layers, {2048}, cm::role::parameter);
    m.use(std::array{cm::list_spec{"momentum"}});
    return said<cm::config_error>([&] { (void)m.seal(); });
  };
  CHECK(refusal(4_KiB, 1_MiB, 1) ==
        "chunkmem: this model does not fit: the device capacity is 4096 B, but the largest tensor of this model "
        "needs at least 8192 B with chunks of 4096 B (raise it; rehearse(step) says what a step needs)");
  CHECK(refusal(16_KiB, 12_KiB, 4) ==
        "chunkmem: this model does not fit: the host capacity is 12288 B, but the part of the weights that the device "
        "does not hold needs at least 16384 B with chunks of 4096 B (raise it; rehearse(step) says what a step needs)");
  CHECK(refusal(4_KiB, 16_KiB, 4) ==
        "chunkmem: this model does not fit: the device capacity is 4096 B, but the largest tensor of this model "
        "needs at least 8192 B; the host capacity is 16384 B, but the part of the weights that the device does not "
        "hold needs at least 24576 B with chunks of 4096 B (raise them; rehearse(step) says what a step needs)");
  CHECK(refusal(16_KiB, 16_KiB, 4) == "nothing");
  {  // 5 KiB in two chunks of 4 KiB, which would fit in six of 1 KiB
    arena memory{{.device_capacity = 6_KiB, .host_capacity = 64_KiB}};
    manager m{memory, {.chunk_bytes = 4_KiB}};
    m.add<float>({1280}, cm::role::parameter);
    CHECK(
        said<cm::config_error>([&] { (void)m.seal(); }) ==
        "chunkmem: this model does not fit: the device capacity is 6144 B, but the largest tensor of this model needs "
        "at least 8192 B with chunks of 4096 B (raise it, or use smaller chunks; rehearse(step) says what a step "
        "needs)");
  }
}

TEST_CASE("a model that cannot fit is refused at each use, until a step of it was rehearsed that does", "[mistakes]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 8_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(8, {1024}, cm::role::parameter);
  const auto stream_through = [&] {
    for (std::uint32_t layer = 0; layer < 8; ++layer) {
      {
        const auto pin = m.acquire(weights.slice(layer), cm::access::write);
      }
      m.drop(weights.slice(layer));
    }
  };
  for (int attempt = 0; attempt < 2; ++attempt) {
    CHECK_THROWS_AS(m.seal(), cm::config_error);
    CHECK_THROWS_AS(stream_through(), cm::config_error);
  }
  CHECK(m.rehearse(stream_through).smallest_device == 4_KiB);
  stream_through();
  (void)m.seal();
}

TEST_CASE("states that never come to be do not count where only the last layers are trained", "[mistakes]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(16, {1024}, cm::role::parameter);
  m.use(std::array{cm::list_spec{"momentum"}, cm::list_spec{"variance"}});
  for (std::uint32_t layer = 0; layer < 16; ++layer) {
    const auto pin = m.acquire(weights.slice(layer), cm::access::write);
    pin.span()[0] = 1;
  }
  const auto of_last =
      m.acquire<float>(weights.slice(15), m.list("momentum"), cm::access::write, cm::memory_location::host);
  CHECK(of_last.size() == 1024);
}

TEST_CASE("a step that cannot fit is refused when it is rehearsed, and later shortages know its need", "[mistakes]")
{
  rig it;
  auto& m = *it.m;
  const auto hold_all = [&] {
    const auto first = m.acquire(it.embedding, cm::access::write);
    std::array<std::optional<manager::pin_type<float>>, 4> pins;
    for (std::uint32_t layer = 0; layer < 4; ++layer)
      pins[layer].emplace(m.acquire(it.layers.slice(layer), cm::access::write));
  };
  CHECK(said<cm::config_error>([&] { (void)m.rehearse(hold_all); }) ==
        "chunkmem: this step does not fit: the device capacity is 16384 B, but this step needs at least 20480 B with "
        "chunks of 4096 B (raise it, or use smaller chunks or batches)");
  (void)m.rehearse([&] { const auto pin = m.acquire(it.embedding, cm::access::write); });
  CHECK(said<cm::out_of_memory>(hold_all) ==
        "chunkmem: out of memory on the device tier: 4096 B asked for, capacity 16384 B, 16384 B cannot leave now, "
        "this moment fits in 20480 B, the rehearsed step fits in 4096 B (raise the capacity, or hold fewer pins and "
        "leases at once)");
}

TEST_CASE("mistakes in declarations are told with what was declared", "[mistakes]")
{
  rig it;
  auto& m = *it.m;
  rig other;
  CHECK(said<cm::usage_error>([&] { m.use(std::array{cm::list_spec{"momentum"}}); }) ==
        "chunkmem: two lists have one name, momentum (call use once, or give the lists other names)");
  CHECK(said<cm::usage_error>([&] { (void)it.layers.slice(4); }) ==
        "chunkmem: layer 4 of a stack of 4 tensors (layers count from 0)");
  CHECK(said<cm::usage_error>([&] { m.add_stacked<float>(0, {4}, cm::role::parameter); }) ==
        "chunkmem: a stack of tensors needs at least one layer");
  CHECK(said<cm::usage_error>([&] { m.add<float>({4}, cm::role::gradient); }) ==
        "chunkmem: gradients and optimizer states are made by the manager: declare parameters and lists");
  CHECK(said<cm::usage_error>([&] { m.name(other.bias, "x"); }) ==
        "chunkmem: a tensor was named that this manager did not make");
  CHECK(said<cm::usage_error>([&] {
          m.add<float>({1, 1, 1, 1, 1, 1, 1}, cm::role::parameter);
        }) == "chunkmem: a shape has at most six extents");
  CHECK(said<cm::size_overflow>([&] {
          m.add<float>({1ULL << 40, 1ULL << 40}, cm::role::parameter);
        }) ==
        "chunkmem: product of bytes does not fit 64 bits: 1099511627776 and 1099511627776 (check the sizes given)");
  CHECK(said<cm::usage_error>([&] { (void)m.list("variance"); }) ==
        "chunkmem: there is no list named 'variance' (there are value, gradient and momentum)");
  std::array<std::byte, 4> cursor{};
  m.state("cursor", cursor);
  CHECK(said<cm::usage_error>([&] { m.state("cursor", cursor); }) ==
        "chunkmem: two registered states have one name, cursor (give the one that state() registers another name)");
  CHECK(said<cm::config_error>([&] {
          manager{it.memory, {.chunk_bytes = cm::bytes{100}}};
        }) == "chunkmem: chunk_bytes is 100 B (give a positive multiple of 256 B, or least_waste_chunks)");
  it.fill();
  CHECK(said<cm::usage_error>([&] { m.add<float>({4}, cm::role::parameter); }) ==
        "chunkmem: a tensor was added after the manager was sealed: declare all tensors before the first access");
  CHECK(said<cm::usage_error>([&] { m.use(std::array{cm::list_spec{"late"}}); }) ==
        "chunkmem: a list was added after the manager was sealed: name the optimizer before the first access");
  CHECK(said<cm::config_error>([] { (void)cm::eviction::any_eviction<cm::eviction::lru>{"lrv"}; }) ==
        "chunkmem: there is no policy named lrv to choose from (take one of: lru)");
  manager ordered{other.memory, {.chunk_bytes = 4_KiB, .order = cm::tensor_order::first_use}};
  const auto tensor = ordered.add<float>({4}, cm::role::parameter);
  CHECK(said<cm::config_error>([&] { (void)ordered.acquire(tensor, cm::access::write); }) ==
        "chunkmem: tensor_order::first_use needs to know the order: call rehearse before the first access");
}

TEST_CASE("mistakes with gradients and lists are told with the tensor's name", "[mistakes]")
{
  rig it;
  auto& m = *it.m;
  it.fill();
  rig other;
  other.fill();
  CHECK(said<cm::usage_error>([&] { (void)m.gradient(it.mean); }) ==
        "chunkmem: tensor 'mean' (value): a gradient or list of a tensor that is not trained (a frozen weight, a "
        "buffer or an activation)");
  CHECK(said<cm::usage_error>([&] { (void)m.gradient(m.acquire(it.mean, cm::access::read)); }) ==
        "chunkmem: tensor 'mean' (value): a gradient was requested with a pin that holds no parameter");
  CHECK(said<cm::usage_error>([&] { (void)m.gradient(other.m->acquire(other.bias, cm::access::read)); }) ==
        "chunkmem: a gradient was requested with a pin of another manager");
  CHECK(said<cm::usage_error>([&] { m.gradient_done(it.bias); }) ==
        "chunkmem: tensor 'bias' (gradient): gradient_done of a gradient that was not written");
  {
    auto gradient = m.gradient(it.bias);
    for (float& x : gradient.span()) x = 1.0F;
    const auto second = m.gradient(it.bias);
    CHECK(said<cm::usage_error>([&] { m.gradient_done(std::move(gradient)); }) ==
          "chunkmem: tensor 'bias' (gradient): gradient_done while another pin holds the gradient: release it before");
    CHECK(said<cm::usage_error>([&] { m.gradient_done(it.bias); }) ==
          "chunkmem: tensor 'bias' (gradient): gradient_done while a pin holds the gradient: release it before");
    CHECK(said<cm::usage_error>([&] { m.drop_gradient(it.bias); }) ==
          "chunkmem: tensor 'bias' (gradient) is compute and cannot drop: release its pins first (training_rules)");
  }
  m.gradient_done(it.bias);
  CHECK(said<cm::usage_error>([&] { (void)m.gradient(it.bias); }) ==
        "chunkmem: tensor 'bias' (value): a gradient was requested after gradient_done, in micro-batch 1 of 1 (call "
        "gradient_done after its last write; for several passes that add up, begin the iteration with as many "
        "micro-batches and name each by pass())");
  CHECK(said<cm::usage_error>([&] {
          (void)m.acquire<float>(it.mean, m.list("momentum"), cm::access::read, cm::memory_location::host);
        }) ==
        "chunkmem: tensor 'mean' (value): a gradient or list of a tensor that is not trained (a frozen weight, a "
        "buffer or an activation)");
  CHECK(said<cm::usage_error>([&] {
          (void)m.acquire<float>(it.bias, cm::list_id{9}, cm::access::read, cm::memory_location::host);
        }) == "chunkmem: a list that this manager does not have");
}

TEST_CASE("a gradient behind gradient_done says which micro-batch it was, or that no step was taken", "[mistakes]")
{
  rig it;
  auto& m = *it.m;
  it.fill();
  {
    auto iteration = m.iteration(4);
    for (std::uint32_t batch = 0; batch < 4; ++batch) {
      iteration.pass(cm::pass::backward, batch);
      auto gradient = m.gradient(it.bias);  // is open again in each of them
      for (float& x : gradient.span()) x = gradient.beta() == 0 ? 1.0F : x + 1.0F;
      m.gradient_done(std::move(gradient));
      if (batch == 1)
        CHECK(said<cm::usage_error>([&] { (void)m.gradient(it.bias); }) ==
              "chunkmem: tensor 'bias' (value): a gradient was requested after gradient_done, in micro-batch 2 of 4 "
              "(call gradient_done after its last write; for several passes that add up, begin the iteration with as "
              "many micro-batches and name each by pass())");
    }
  }
  const auto next = m.iteration();
  CHECK(said<cm::usage_error>([&] { (void)m.gradient(it.bias); }) ==
        "chunkmem: tensor 'bias' (value): a gradient was requested after gradient_done, and no step was taken since "
        "(take the step, or drop the gradient; for iterations that add up, begin one with as many micro-batches and "
        "name each by pass())");
  m.drop_gradient(it.bias);
  CHECK(m.gradient(it.bias).beta() == 0.0F);
}

TEST_CASE("a name that no checkpoint can hold is refused where it is declared", "[mistakes]")
{
  rig it;
  auto& m = *it.m;
  m.use(
      std::array{cm::list_spec{"momentum/old"}, cm::list_spec{"plain", cm::dtype::float32, 1, cm::list_use::scratch}});
  const auto named = [&](std::string_view name) { return said<cm::config_error>([&] { m.name(it.scale, name); }); };
  const auto would_be = [](std::string_view name, std::string_view what) {
    return "chunkmem: in a checkpoint the name " + std::string{name} + " would be that of " + std::string{what} +
           " (choose another name)";
  };
  CHECK(named("state/x") == would_be("state/x", "a registered state"));
  CHECK(named("x[0:7]") == would_be("x[0:7]", "a part of a tensor"));
  CHECK(named("x[rank 12 of 60]") == would_be("x[rank 12 of 60]", "a part of a tensor"));
  CHECK(named("momentum/x") == would_be("momentum/x", "an optimizer's list of a weight"));
  CHECK(named("old/x") == would_be("old/x", "an optimizer's list of a weight"));  // "momentum/old/x" is another's
  CHECK(named("__metadata__") == would_be("__metadata__", "the metadata of a safetensors file"));
  CHECK(named("w\xff") ==
        "chunkmem: a checkpoint cannot hold the name w\\xff, which is no UTF-8 (choose another name)");
  CHECK(named(std::string(4096, 'n')) ==
        "chunkmem: a checkpoint cannot hold a name of 4096 B, " + std::string(64, 'n') +
            "...: a loader takes 4096 B, and files may put 9 B before and after it (give a shorter name)");
  CHECK(named("bias") ==
        "chunkmem: two tensors of this model are called bias: number 1 and number 2, in the order of declaration from "
        "0 (give one of them another name)");
  for (const char* const fine : {"states/x", "state", "x[0:7", "x[:7]", "x[0:7]y", "x[rank 1 of ]", "momentum", "old",
                                 "momenta/x", "metadata", "gr\u00f6\u00dfe", "scale"})
    CHECK(named(fine) == "nothing");
  CHECK(m.name_of(it.scale) == "scale");

  std::array<std::byte, 4> content{};
  const auto state = [&](std::string_view name) { return said<cm::config_error>([&] { m.state(name, content); }); };
  CHECK(state("x[0:7]") == would_be("x[0:7]", "a part of a tensor"));
  CHECK(state("\xc3") == "chunkmem: a checkpoint cannot hold the name \\xc3, which is no UTF-8 (choose another name)");
  const auto list = [&](std::string_view name) {
    return said<cm::config_error>([&] { m.use(std::array{cm::list_spec{name}}); });
  };
  CHECK(list("state") == would_be("state", "registered states"));
  CHECK(list("state/x") == would_be("state/x", "registered states"));
  CHECK(list("\xed\xa0\x80").find("which is no UTF-8") != std::string::npos);  // half of a pair
  m.name(it.mean, "blocks/mean");
  CHECK(list("blocks") == would_be("blocks/mean", "an optimizer's list of a weight"));
  m.name(it.scale, "tensor.4");  // the first layer has no name of its own
  CHECK(said<cm::config_error>([&] { (void)m.seal(); }) ==
        "chunkmem: two tensors of this model are called tensor.4: number 4 and number 2, in the order of declaration "
        "from 0 (give one of them another name)");
  m.name(it.scale, "scale");
  (void)m.seal();
  CHECK(named("tensor.5").find("number 5 and number 2") != std::string::npos);
  CHECK(m.name_of(it.scale) == "scale");  // a name that is refused is not kept
}

TEST_CASE("two managers of one backend are told that the other one has its memory", "[mistakes]")
{
  rig it;
  it.fill();
  manager second{it.memory, {.chunk_bytes = 4_KiB}};
  const auto weight = second.add<float>({64}, cm::role::parameter);
  CHECK(said<cm::out_of_memory>([&] { (void)second.acquire(weight, cm::access::write); }) ==
        "chunkmem: out of memory on the device tier: 16384 B asked for, capacity 16384 B, 16384 B of it were allocated "
        "from this backend before (a manager takes all of a backend: give each manager a backend of its own, or end "
        "the other one)");
  it.m.reset();
  CHECK(second.acquire(weight, cm::access::write).size() == 64);
}

TEST_CASE("a wrong dtype is told with the tensor's name", "[mistakes]")
{
  rig it;
  auto& m = *it.m;
  it.fill();
  CHECK(said<cm::usage_error>([&] { (void)m.gradient<cm::bf16>(it.bias); }) ==
        "chunkmem: tensor 'bias' (value): a gradient was requested with an element type that is not its own: bfloat16, "
        "and it is of float32 (name that type, as in m.gradient<float>(...))");
  CHECK(said<cm::usage_error>([&] {
          (void)m.acquire<cm::bf16>(it.bias, m.list("momentum"), cm::access::read, cm::memory_location::host);
        }) ==
        "chunkmem: tensor 'bias' (momentum): a list was acquired with an element type that is not its own: bfloat16, "
        "and it is of float32 (name that type, as in m.acquire<float>(...))");
}

TEST_CASE("mistakes with iterations say what to end or begin first", "[mistakes]")
{
  rig it;
  auto& m = *it.m;
  it.fill();
  CHECK(said<cm::usage_error>([&] { (void)m.iteration(0); }) ==
        "chunkmem: an iteration has one to 65535 micro-batches, not 0");
  CHECK(said<cm::usage_error>([&] { (void)m.iteration(65'536); }) ==
        "chunkmem: an iteration has one to 65535 micro-batches, not 65536");
  CHECK(said<cm::usage_error>([&] { (void)m.plan("evaluate"); }) ==
        "chunkmem: iterations named evaluate have no plan yet (run two of them before)");
  {
    auto iteration = m.iteration(2);
    CHECK(said<cm::usage_error>([&] { (void)m.iteration(); }) ==
          "chunkmem: an iteration began inside another one: end the first one before, by its end()");
    CHECK(said<cm::usage_error>([&] { iteration.pass(cm::pass::forward, 2); }) ==
          "chunkmem: micro-batch 2 of an iteration that was begun with 2 micro-batches (they count from 0)");
    CHECK(said<cm::usage_error>([&] { (void)m.rehearse([] {}); }) ==
          "chunkmem: a rehearsal inside an iteration or another rehearsal");
    CHECK(said<cm::usage_error>([&] { m.exchange(cm::value_list, m.list("momentum")); }) ==
          "chunkmem: lists can be exchanged only between iterations");
    iteration.pass(cm::pass::forward, 0);
    iteration.pass(cm::pass::forward, 1);
    iteration.end();
    CHECK(said<cm::usage_error>([&] { iteration.pass(cm::pass::forward, 0); }) ==
          "chunkmem: a pass was named after its iteration had ended");
  }
  const auto pin = m.acquire(it.bias, cm::access::read);
  CHECK(said<cm::usage_error>([&] { m.exchange(cm::value_list, m.list("momentum")); }) ==
        "chunkmem: a list cannot be exchanged while a pin holds it");
}

TEST_CASE("mistakes with 16-bit weights say where the master is", "[mistakes]")
{
  using in_place = cm::manager<arena, cm::gradient::in_place>;
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  {
    in_place m{memory, {.chunk_bytes = 4_KiB}};
    m.add<cm::bf16>({64}, cm::role::parameter);
    CHECK(said<cm::config_error>([&] { (void)m.seal(); }) ==
          "chunkmem: gradient::in_place needs 16-bit parameters and a master list beside them (declare parameters as "
          "bf16 or fp16 and give use() an optimizer whose lists have masters, or use gradient::separate)");
  }
  in_place m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<cm::bf16>({64}, cm::role::parameter);
  const auto wide = m.add<float>({64}, cm::role::parameter);
  m.name(weight, "query");
  m.name(wide, "norm");
  const std::array specs{cm::list_spec{"master", cm::dtype::float32, 1, cm::list_use::master}};
  m.use(specs);
  CHECK(said<cm::usage_error>([&] {
          m.use(std::array{cm::list_spec{"second", cm::dtype::float32, 1, cm::list_use::master}});
        }) == "chunkmem: two master lists: the lists of one optimizer are enough");
  m.acquire(weight, cm::access::write).release();
  m.acquire(wide, cm::access::write).release();
  CHECK(said<cm::config_error>([&] { (void)m.iteration(2); }) ==
        "chunkmem: gradients of several micro-batches cannot add up where their weights lie (use gradient::separate)");
  CHECK(said<cm::usage_error>([&] {
          (void)m.acquire<float>(wide, m.list("master"), cm::access::read, cm::memory_location::host);
        }) == "chunkmem: tensor 'norm' (value): the master of a 32-bit parameter, which has none");
  const auto iteration = m.iteration();
  CHECK(said<cm::usage_error>([&] { (void)m.acquire(weight, cm::access::write); }) ==
        "chunkmem: tensor 'query' (value): a 16-bit weight cannot be written inside an iteration: its update comes "
        "from its master (write it between iterations)");
}

}  // namespace messages_test
