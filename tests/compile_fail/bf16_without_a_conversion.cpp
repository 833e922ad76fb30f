// expect: conversion from .float. to .*bf16
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/dtype.hpp>

#ifdef CHUNKMEM_COMPILES
const chunkmem::bf16 weight{1.5F};
#else
const chunkmem::bf16 weight = 1.5F;
#endif
