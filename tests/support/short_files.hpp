// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/catch.hpp>

#include <csignal>

#include <sys/resource.h>

namespace support {

/// During the life of this object no file of this process grows beyond that many bytes, and no signal reports it.
class short_files {
 public:
  explicit short_files(rlim_t size)
  {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{size, before_.rlim_max};
    before_signal_ = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
  }
  short_files(const short_files&) = delete;
  ~short_files()
  {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_signal_);
  }

 private:
  rlimit before_{};
  void (*before_signal_)(int) = nullptr;
};

}  // namespace support
