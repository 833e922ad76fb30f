// SPDX-License-Identifier: Apache-2.0
// The example of docs/integrating.md for LibTorch, extracted by tests/pages/extract.py while configuring.
#include <integrating_libtorch.hpp>
