// SPDX-License-Identifier: Apache-2.0
// remedy: chunkmem needs C..20: compile with -std=c..20 or newer
// standard: 17
#include <chunkmem/chunkmem.hpp>
