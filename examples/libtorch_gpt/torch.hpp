// SPDX-License-Identifier: Apache-2.0
#pragma once

// The headers of LibTorch that the example uses, 1.13 (Debian 12) to 2.x. Not <torch/torch.h>, which takes four times
// as long to compile.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/version.h>

// LibTorch's logging defines this name, which test frameworks define too.
#undef CHECK
