// SPDX-License-Identifier: Apache-2.0
#include "precision.hpp"

#include <chunkmem/tensor/dtype.hpp>

namespace gpt::kernels {
namespace {

// The compiler vectorizes loops of a constant length at -O2.
constexpr index block = 64;

template <class Element>
void widen_all(const Element* stored, float* wide, index elements)
{
  const index whole = elements - elements % block;
  for (index start = 0; start < whole; start += block) {
    for (index i = 0; i < block; ++i) wide[start + i] = chunkmem::to_float(stored[start + i]);
  }
  for (index i = whole; i < elements; ++i) wide[i] = chunkmem::to_float(stored[i]);
}

template <class Element, class Value>
void round_all(Value value_of, Element* stored, index elements)
{
  const index whole = elements - elements % block;
  for (index start = 0; start < whole; start += block) {
    for (index i = start; i < start + block; ++i) stored[i] = chunkmem::round_to<Element>(value_of(i));
  }
  for (index i = whole; i < elements; ++i) stored[i] = chunkmem::round_to<Element>(value_of(i));
}

template <class Element>
void add_all(const float* fresh, float beta, Element* stored, index elements)
{
  if (beta == 0.0f) {
    round_all([=](index i) { return fresh[i]; }, stored, elements);
  } else {
    round_all([=](index i) { return chunkmem::to_float(stored[i]) + fresh[i]; }, stored, elements);
  }
}

}  // namespace

void widen(const chunkmem::bf16* stored, float* wide, index elements)
{
  widen_all(stored, wide, elements);
}

void widen(const chunkmem::fp16* stored, float* wide, index elements)
{
  widen_all(stored, wide, elements);
}

void add_rounded(const float* fresh, float beta, chunkmem::bf16* stored, index elements)
{
  add_all(fresh, beta, stored, elements);
}

void add_rounded(const float* fresh, float beta, chunkmem::fp16* stored, index elements)
{
  add_all(fresh, beta, stored, elements);
}

}  // namespace gpt::kernels
