// expect: an optimizer kernel and its arithmetic on a device have different versions of the numerics
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>

namespace opt = chunkmem::optimizer;

struct older_adam : opt::basic_adam<opt::numerics::version_2> {
#ifndef CHUNKMEM_COMPILES
  static constexpr opt::numerics rule = opt::numerics::version_3;
#endif
};
struct any_backend {
  template <class Work>
  void launch(chunkmem::agent, Work work)
  {
    work(0);
  }
};
struct any_launcher {
  template <class Kernel>
  void operator()(any_backend&, chunkmem::agent, const Kernel&) const
  {
  }
};
void update(opt::device_step<older_adam, any_backend, any_launcher>& step, const opt::parameter_bytes& all)
{
  step.update(all, chunkmem::group_id{0}, false);
}
