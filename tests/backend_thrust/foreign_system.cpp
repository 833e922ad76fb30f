// SPDX-License-Identifier: Apache-2.0
// Must not compile: a system whose memory the calling thread may not be able to read.
#include <chunkmem/backend/thrust_device.hpp>

struct foreign_system {};
chunkmem::backend::thrust_device<foreign_system> memory{{}};
