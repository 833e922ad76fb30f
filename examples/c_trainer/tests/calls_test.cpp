// SPDX-License-Identifier: Apache-2.0
#include <chunks.h>

#include <support/catch.hpp>

#include <unistd.h>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>

namespace c_trainer_calls_test {

/// Mistakes of a trainer in C end in codes and texts, and what runs goes on.

namespace {

constexpr std::uint32_t layers = 2;
constexpr std::uint64_t floats = 64;

struct model_of_one {
  chunk_group* group = nullptr;
  chunk_model* it = nullptr;

  model_of_one()
  {
    REQUIRE(chunks_group_new(&group, 1) == CHUNKS_OK);
    REQUIRE(chunks_new(&it, group, 0, layers, floats, 4U << 20, 4U << 20) == CHUNKS_OK);
  }
  model_of_one(const model_of_one&) = delete;
  ~model_of_one()
  {
    chunks_free(it);
    chunks_group_free(group);
  }
  [[nodiscard]] std::string error() const { return chunks_error(it); }
};

void fill(chunk_model* model)
{
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    float* w = nullptr;
    REQUIRE(chunks_pin(model, CHUNKS_FIRST, layer, &w) == CHUNKS_OK);
    for (std::uint64_t i = 0; i < floats; ++i) w[i] = 1;
    REQUIRE(chunks_unpin(model, CHUNKS_FIRST) == CHUNKS_OK);
  }
}
float weight_of(chunk_model* model)
{
  float* w = nullptr;
  REQUIRE(chunks_pin(model, CHUNKS_WEIGHT, 0, &w) == CHUNKS_OK);
  const float found = *w;
  REQUIRE(chunks_unpin(model, CHUNKS_WEIGHT) == CHUNKS_OK);
  return found;
}

int nothing(chunk_model*, void*)
{
  return 0;
}
/// The pass pins every gradient, adds one to each element, and releases no pin.
int ones(chunk_model* model, void*)
{
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    float* g = nullptr;
    if (chunks_pin(model, CHUNKS_GRADIENT, layer, &g) != CHUNKS_OK) return 1;
    for (std::uint64_t i = 0; i < floats; ++i) g[i] += 1;
  }
  return 0;
}
int ones_then_fails(chunk_model* model, void*)
{
  return ones(model, nullptr) + 1;
}
/// Adds to all gradients, then starts a step inside the step, and writes the code of the inner step to `code`.
int steps_inside(chunk_model* model, void* code)
{
  const int failed = ones(model, nullptr) + chunks_unpin(model, CHUNKS_GRADIENT);
  *static_cast<int*>(code) = chunks_step(model, nothing, ones, nullptr, 0.5F);
  return failed;
}

}  // namespace

TEST_CASE("null pointers and numbers that do not exist end in a code and a text", "[c_trainer]")
{
  CHECK(chunks_group_new(nullptr, 1) == CHUNKS_WRONG_CALL);
  chunk_model* none = nullptr;
  CHECK(chunks_new(&none, nullptr, 0, 1, 1, 1 << 20, 1 << 20) == CHUNKS_WRONG_CALL);
  CHECK(std::string{chunks_error(nullptr)} == "chunkmem: a pointer is null");
  const model_of_one m;
  CHECK(chunks_new(&none, m.group, 7, layers, floats, 1 << 20, 1 << 20) == CHUNKS_WRONG_CALL);
  CHECK(std::string{chunks_error(nullptr)} != "chunkmem: a pointer is null");
  CHECK(none == nullptr);
  float* address = nullptr;
  CHECK(chunks_pin(nullptr, CHUNKS_WEIGHT, 0, &address) == CHUNKS_WRONG_CALL);
  CHECK(chunks_pin(m.it, CHUNKS_WEIGHT, 0, nullptr) == CHUNKS_WRONG_CALL);
  CHECK(chunks_pin(m.it, CHUNKS_FIRST, layers, &address) == CHUNKS_WRONG_CALL);
  CHECK(chunks_pin(m.it, CHUNKS_KINDS, 0, &address) == CHUNKS_WRONG_CALL);
  CHECK(m.error() == "chunkmem: there is no such kind of pin");
  CHECK(chunks_unpin(nullptr, CHUNKS_WEIGHT) == CHUNKS_WRONG_CALL);
  CHECK(chunks_drop(m.it, layers + 1) == CHUNKS_WRONG_CALL);
  CHECK(chunks_step(m.it, nullptr, nothing, nullptr, 0.5F) == CHUNKS_WRONG_CALL);
  CHECK(chunks_save(m.it, nullptr) == CHUNKS_WRONG_CALL);
  CHECK(chunks_load(m.it, nullptr, nullptr) == CHUNKS_WRONG_CALL);
  chunks_free(nullptr);
  chunks_group_free(nullptr);
}

TEST_CASE("a step that its pass ends changes no weight, and the next one counts", "[c_trainer]")
{
  const model_of_one m;
  fill(m.it);
  CHECK(chunks_step(m.it, nothing, ones_then_fails, nullptr, 0.5F) == CHUNKS_STOPPED);
  CHECK(weight_of(m.it) == 1);
  CHECK(chunks_step(m.it, nothing, ones, nullptr, 0.5F) == CHUNKS_OK);
  CHECK(std::abs(weight_of(m.it) - 0.5F) < 1e-4F);  // the first step of Adam is the rate
}

TEST_CASE("a step inside of a step is refused, and takes no gradient from the one that runs", "[c_trainer]")
{
  const model_of_one m;
  fill(m.it);
  int code = CHUNKS_OK;
  CHECK(chunks_step(m.it, nothing, steps_inside, &code, 0.5F) == CHUNKS_OK);
  CHECK(code == CHUNKS_WRONG_CALL);
  CHECK(std::abs(weight_of(m.it) - 0.5F) < 1e-4F);
}

TEST_CASE("a load from an empty folder says 0 steps, whatever was trained before", "[c_trainer]")
{
  const std::string place =
      (std::filesystem::temp_directory_path() / ("c_trainer_calls." + std::to_string(getpid()))).string();
  REQUIRE(std::filesystem::create_directory(place));
  const model_of_one m;
  fill(m.it);
  CHECK(chunks_step(m.it, nothing, ones, nullptr, 0.5F) == CHUNKS_OK);
  std::uint64_t steps = 99;
  CHECK(chunks_load(m.it, place.c_str(), &steps) == CHUNKS_OK);
  CHECK(steps == 0);
  CHECK(chunks_save(m.it, place.c_str()) == CHUNKS_OK);
  CHECK(chunks_load(m.it, place.c_str(), &steps) == CHUNKS_OK);
  CHECK(steps == 1);
  std::filesystem::remove_all(place);
}

}  // namespace c_trainer_calls_test
