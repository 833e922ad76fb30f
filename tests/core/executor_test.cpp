// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/executor.hpp>

#include <conformance/executor.hpp>
#include <support/catch.hpp>

#include <vector>

namespace executor_test {

using namespace chunkmem;

namespace {

/// The functions of the concept and nothing else; the last part comes first.
struct backwards {
  static int threads() { return 1; }
  template <class Work>
  void run(unsigned parts, Work&& work)
  {
    while (parts > 0) work(--parts);
  }
};
static_assert(executor<backwards>);

struct without_threads {
  void run(unsigned, void (*)(unsigned)) {}
};
struct without_run {
  static unsigned threads() { return 1; }
};
static_assert(!executor<without_threads> && !executor<without_run> && !executor<int>);
static_assert(serial::threads() == 1);

}  // namespace

TEST_CASE("the serial executor keeps the laws and the order", "[core]")
{
  serial workers;
  conformance::executor_laws(workers);
  std::vector<unsigned> order;
  workers.run(4, [&order](unsigned part) { order.push_back(part); });
  CHECK(order == std::vector<unsigned>{0, 1, 2, 3});
}

TEST_CASE("an executor of one's own may run the parts in any order", "[core]")
{
  backwards workers;
  conformance::executor_laws(workers);
}

}  // namespace executor_test
