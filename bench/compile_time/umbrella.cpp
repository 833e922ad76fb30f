// SPDX-License-Identifier: Apache-2.0
// The header alone.
#include <chunkmem/chunkmem.hpp>
