// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_environment.hpp>
#include <chunkmem/backend/cuda_memory.hpp>
#include <chunkmem/backend/cuda_session.hpp>
#include <chunkmem/backend/cuda_streams.hpp>
#include <chunkmem/backend/cuda_work.hpp>
#include <chunkmem/backend/peer_groups.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {
namespace backend {

/// Work that `cuda_device` captured, to be launched any number of times: `device.launch(graph)`.
///
/// May be destroyed while it runs: the runtime keeps it until it is done. May outlive its device, but cannot be
/// launched then. Empty when made without a device, and after a move. Cost: one allocation of the runtime; none to
/// move.
///
/// @threads   those of its device: one caller at a time for both
template <cuda_api Api>
class cuda_graph {
 public:
  using executable_type = typename Api::executable_type;

  cuda_graph() = default;
  cuda_graph(std::shared_ptr<cuda_session<Api>> session, executable_type executable) noexcept
      : session_{std::move(session)}, executable_{executable}
  {
  }
  cuda_graph(cuda_graph&& other) noexcept
      : session_{std::move(other.session_)}, executable_{std::exchange(other.executable_, executable_type{})}
  {
  }
  cuda_graph& operator=(cuda_graph&& other) noexcept
  {
    cuda_graph old{std::move(*this)};
    session_ = std::move(other.session_);
    executable_ = std::exchange(other.executable_, executable_type{});
    return *this;
  }
  ~cuda_graph()
  {
    if (session_ == nullptr || executable_ == executable_type{}) return;
    (void)session_->attempt("cudaGraphExecDestroy",
                            [&](const Api& api) { return api.destroy_executable(executable_); });
  }

  [[nodiscard]] bool belongs_to(const cuda_session<Api>& session) const noexcept { return session_.get() == &session; }
  [[nodiscard]] executable_type executable() const noexcept { return executable_; }

 private:
  std::shared_ptr<cuda_session<Api>> session_;
  executable_type executable_{};
};

/// Which GPU, and the capacities of its two tiers.
///
///     cuda_device<cuda_runtime> memory{{.device = 1, .host_capacity = 100_GiB}};  // all that is free on device 1
struct cuda_device_options {
  int device = 0;                            ///< which of the devices that the runtime shows
  bytes device_capacity{};                   ///< 0: the bytes that are free at the start, less `headroom`
  bytes host_capacity{};                     ///< of the host tier; all of it is pinned
  bytes headroom{std::uint64_t{512} << 20};  ///< left to others where device_capacity is 0
  /// Priority of the streams for copies and of those that `adopt()` makes, on which ranks gather and sum; none: the
  /// highest of the device. Compute waits for their kernels, so these go first. Copies between host and device go to
  /// copy engines and have no priority (CUDA Runtime API, Stream Management, cudaStreamCreateWithPriority).
  std::optional<int> copy_priority{};
};

/// A GPU: memory of a private pool, pinned memory of the host, a stream for each agent.
///
///     cuda_device<cuda_runtime> memory{{.device_capacity = 20_GiB, .host_capacity = 100_GiB}};
///     manager<cuda_device<cuda_runtime>> m{memory};
///
/// Includes no header of CUDA: the runtime's functions come from `Api`, which is `cuda_runtime` in programs and a
/// device on threads in tests. Memory from elsewhere, such as a tensor of a framework, may be copied and filled too.
///
/// Every failure is a `device_error` with the runtime's number and the count of the call, or `out_of_memory`. An error
/// that is not sticky leaves everything as it was, and order recovers (see cuda_order). After a sticky error, or where
/// order is lost, the backend refuses every call with this first cause. After an error that ends CUDA it makes no
/// further call of the runtime, not even to free: the rest ends with the process. The calling thread's device is
/// changed only inside of a call, and is restored after it; no context is made on another device than the backend's.
/// Cost: after construction only `allocate`, `adopt` and captures allocate, on the host or the device.
///
/// @threads   one caller at a time, from any thread
template <cuda_api Api>
class cuda_device {
 public:
  using stream_type = typename Api::stream_type;
  using graph_type = cuda_graph<Api>;

  static constexpr bool host_addressable = false;

  using memory_source = cuda_memory_source<Api>;
  using memory_sources = cuda_memory_sources<Api>;

  /// @throws config_error   no such device, or the headroom leaves nothing
  /// @throws device_error   no GPU, or the runtime failed; everything that was made is destroyed
  explicit cuda_device(const cuda_device_options& options) : cuda_device{options, memory_sources{}} {}
  template <std::convertible_to<Api> Given>  // so that `{}` after the options is no Api
  cuda_device(const cuda_device_options& options, Given api)
      : cuda_device{options, memory_sources{}, Api{std::move(api)}}
  {
  }
  /// On the user's own memory, for one tier or both. The capacity of a slab is all of it where the options name none.
  /// @throws config_error   also: memory of the wrong kind for its tier, or less than the capacity
  cuda_device(const cuda_device_options& options, const memory_sources& given, Api api = {})
      : session_{std::make_shared<cuda_session<Api>>(std::move(api))}, device_{require_device(options.device)}
  {
    session_->live_on(device_);
    const cuda_current_device<Api> current{*session_, device_};
    using memory_type = cuda_memory<Api>;
    bytes capacity = memory_type::capacity_on(given.device, tier::device, options.device_capacity);
    if (capacity == bytes{}) capacity = free_memory(options.headroom);
    const bytes on_host = options.host_capacity == bytes{} && given.host.what() == memory_source::kind::own
                              ? bytes{}
                              : memory_type::capacity_on(given.host, tier::host, options.host_capacity);
    memory_.emplace(*session_, device_, capacity, on_host, given);
    streams_.emplace(*session_, *groups_, priority_of(options.copy_priority));
    work_.emplace(*session_, *memory_, *streams_, device_);
  }
  cuda_device(const cuda_device&) = delete;
  cuda_device& operator=(const cuda_device&) = delete;

  /// Finishes queued work, then frees everything. Memory with work that cannot be finished stays with the process.
  /// Where groups of ranks have work on the streams, the destructor waits no longer than their deadline. Where that
  /// work does not end, a message on the standard error names the memory: the user's slab, or memory from the user's
  /// pool or resource, may still be written. Such memory may not be used or freed any more: end the process.
  ~cuda_device()
  {
    streams_->leave_capture();
    if (streams_->finish_all())
      memory_->give_all_back(streams_->own());
    else if (streams_->has_lost_work())
      name_what_stays();
    groups_->close();
    typename cuda_session<Api>::visit here;
    (void)session_->enter_home(here);  // once, instead of in each of some thousand calls
    work_.reset();
    streams_.reset();
    memory_.reset();
    session_->leave(here);
  }

  [[nodiscard]] bytes capacity(tier where) const noexcept { return memory_->ledger().capacity(where); }
  /// Bytes of the device that others use: contexts, libraries, other programs. The user's slab and all memory that the
  /// user's pool keeps do not count; memory that a resource keeps in addition to what it gave does. The call asks the
  /// runtime, which may wait. While a graph is being captured, the last answer is returned.
  /// @throws device_error
  [[nodiscard]] bytes other_bytes()
  {
    if (is_capturing()) return others_;
    const cuda_current_device<Api> current{*session_, device_};
    std::size_t free = 0;
    std::size_t total = 0;
    session_->require("cudaMemGetInfo", [&](const Api& api) { return api.memory_info(free, total); });
    const std::uint64_t used = total - free;
    const std::uint64_t ours = memory_->held_on_device();
    return others_ = bytes{used > ours ? used - ours : 0};
  }

  /// Gives the device tier the bytes that are free now, less `headroom`: after libraries have taken their memory.
  ///
  ///     const bytes before = memory.other_bytes();
  ///     warm_up(memory);                // the first product of cuBLASLt, the first sums of NCCL, each kernel once
  ///     memory.resize_to_free(256_MiB);  // libraries took memory.other_bytes() - before
  ///
  /// A library takes memory with its first call, and the runtime with the first launch of a kernel (CUDA C++
  /// Programming Guide, Lazy Loading; NCCL, Environment Variables, NCCL_RUNTIME_CONNECT): a constant cannot know it.
  /// @pre   no manager uses this backend yet
  /// @throws usage_error    the device tier has allocations, or is the user's memory, or a graph is being captured
  /// @throws config_error   the headroom leaves nothing; the capacity is as before
  void resize_to_free(bytes headroom)
  {
    streams_->require_no_capture("another capacity");
    session_->require_alive();
    const cuda_current_device<Api> current{*session_, device_};
    if (!session_->finish(streams_->own())) session_->raise();
    memory_->renew_pool();
    memory_->resize_device(free_memory(headroom));
  }

  /// @throws usage_error     size is 0, there is no such tier, or a graph is being captured
  /// @throws out_of_memory   above the capacity, or the system has no more; nothing was changed
  /// @throws device_error    nothing was changed
  [[nodiscard]] std::byte* allocate(tier where, bytes size)
  {
    streams_->require_no_capture("an allocation");
    session_->require_alive();
    const cuda_current_device<Api> current{*session_, device_};
    if (!streams_->hold_own()) session_->raise();
    return memory_->allocate(where, size, streams_->own());
  }

  /// Finishes all queued work first, since some of it may touch this memory; then frees the memory. Null is ignored; an
  /// address that was never allocated is counted and left alone. While capturing, a release is refused and counted.
  void release(tier where, std::byte* place) noexcept
  {
    if (place == nullptr) return;
    if (streams_->is_capturing())
      ++refused_releases_;
    else if (streams_->finish_all())
      memory_->release(where, place, streams_->own());
  }
  [[nodiscard]] std::uint64_t unknown_releases() const noexcept { return memory_->ledger().unknown_releases(); }
  [[nodiscard]] std::uint64_t refused_releases() const noexcept { return refused_releases_; }

  void copy(std::byte* to, const std::byte* from, bytes size) { copy(to, from, size, agent::host); }
  void fill(std::byte* to, std::byte value, bytes size) { fill(to, value, size, agent::host); }

  /// Copies bytes; the two ranges may not overlap. Between memory of the host tier, the calling thread copies by
  /// itself.
  /// @throws usage_error    unknown agent, a null address, or of the host while capturing; nothing was enqueued
  /// @throws device_error   nothing was enqueued
  void copy(std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    const copy_range one{.to = to, .from = from, .size = size};
    work_->copy({&one, 1}, stream);
  }

  /// Makes many copies with one call of the runtime for each 64, in no order among themselves: no copy may touch bytes
  /// that another one writes. While capturing, each copy is a call, since the runtime captures no batches. All sources
  /// have to stay until the copies are done, also those in memory that is not pinned.
  /// @throws usage_error    as copy; nothing was enqueued
  /// @throws device_error   some may have been enqueued; enqueueing all of them again is harmless
  void copy_batch(std::span<const copy_range> copies, agent stream) { work_->copy(copies, stream); }

  /// Memory from elsewhere counts as the host's for `agent::host`, and as the device's for all others.
  /// @throws usage_error    as copy; and for memory of the host while capturing
  /// @throws device_error   nothing was enqueued
  void fill(std::byte* to, std::byte value, bytes size, agent stream) { work_->fill(to, value, size, stream); }

  /// `work(stream)` is called now, to enqueue kernels, with the device current: best one kernel, so that a refusal
  /// means that nothing was enqueued. `work()` runs on the agent, on a thread of the runtime; it may not call the
  /// runtime, must not throw, and has at most 128 bytes.
  /// @throws usage_error    unknown agent; while capturing: of the host, or `work()`
  /// @throws device_error   the runtime refused the launch; nothing was enqueued
  template <class Callable>
  void launch(agent stream, Callable&& work)
  {
    work_->launch(stream, std::forward<Callable>(work));
  }

  /// `launch` of an operation of a group of ranks: a wait of the host for it is no longer than the deadline. Then the
  /// groups of this device end.
  /// @throws as launch
  template <class Callable>
  void launch_with_peers(agent stream, std::chrono::nanoseconds deadline, Callable&& work)
  {
    {
      const cuda_current_device<Api> current{*session_, device_};
      streams_->expect_peers(stream);
    }
    work_->launch(stream, std::forward<Callable>(work));
    streams_->gave_to_peers(stream, deadline);
  }

  /// @see stream_backend, cuda_streams
  /// @throws comm_error   the groups of ranks ended during a wait of the calling thread: the bytes of their operations
  ///   did not arrive
  [[nodiscard]] event record(agent stream) { return streams_->record(stream); }
  void wait(agent stream, event point) { streams_->wait(stream, point); }
  /// Whether a wait of the host for this event would return immediately. For waits with a deadline; no decision asks.
  /// @throws as wait
  [[nodiscard]] bool is_reached(event point) { return streams_->is_reached(point); }

  /// One more agent, with a new stream or with the caller's, which was made on this device and outlives the backend.
  /// @throws usage_error    `max_agents` are in use, no stream was given, or a graph is being captured
  /// @throws device_error   the runtime gives no stream, or refuses the given one; nothing was changed
  agent adopt() { return adopt_stream(nullptr); }
  agent adopt(stream_type stream)
  {
    if (stream == stream_type{})
      throw usage_error{
          "a default stream cannot be adopted: it depends on the calling thread and its device (make a stream)"};
    return adopt_stream(&stream);
  }
  [[nodiscard]] std::size_t agents() const noexcept { return streams_->agents(); }

  /// For kernels enqueued past `launch`: events cover these too. @throws usage_error   unknown agent
  [[nodiscard]] stream_type stream(agent on_stream) const { return streams_->stream(on_stream); }

  /// From here to `end_capture`, work of streams is captured and not done. @see graph_backend
  /// @throws usage_error    a capture has begun already
  /// @throws device_error   no capture has begun
  void begin_capture()
  {
    streams_->require_no_capture("the beginning of another capture");
    session_->require_alive();
    const cuda_current_device<Api> current{*session_, device_};
    streams_->begin_capture();
  }
  [[nodiscard]] bool is_capturing() const noexcept { return streams_->is_capturing(); }

  /// @throws usage_error    no capture has begun on this thread
  /// @throws device_error   the captured work is lost, and so is the backend
  [[nodiscard]] graph_type end_capture()
  {
    typename Api::graph_type graph = streams_->end_capture();
    typename Api::executable_type made{};
    session_->count_allocation();
    const int number =
        session_->insist("cudaGraphInstantiate", [&](const Api& api) { return api.instantiate(made, graph); });
    if (number != 0) session_->lose();
    (void)session_->attempt("cudaGraphDestroy", [&](const Api& api) { return api.destroy_graph(graph); });
    if (number != 0) session_->raise();
    return {session_, made};
  }

  /// @throws usage_error    a graph of another backend, or while capturing; nothing was enqueued
  /// @throws device_error   nothing was enqueued, or the backend is lost
  void launch(graph_type& graph)
  {
    if (!graph.belongs_to(*session_)) throw usage_error{"a graph was launched on a backend that did not capture it"};
    streams_->require_no_capture("the launch of a graph");
    session_->require_alive();
    streams_->launch(graph.executable());
  }

  /// The groups of ranks that have operations on these streams: a communicator joins with its first operation. Where
  /// groups failed and have ended, their operations leave the streams first.
  /// @throws device_error   an operation does not leave its stream
  [[nodiscard]] const std::shared_ptr<peer_groups>& groups()
  {
    streams_->drain_peers();
    return groups_;
  }

  /// Time since construction [ns].
  [[nodiscard]] std::uint64_t now() const noexcept
  {
    const auto passed = std::chrono::steady_clock::now() - start_;
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
  }
  [[nodiscard]] std::uint64_t throttled() const noexcept { return streams_->throttled(); }

  /// The settings of the environment that slow this backend down, as of its construction: a sentence each.
  ///
  ///     for (const std::string& each : memory.findings({.streams = 6, .are_ranks = true})) std::cerr << each << '\n';
  ///
  /// @param others   streams of the user and of libraries, which the backend cannot count, and whether there are ranks
  [[nodiscard]] std::vector<std::string> findings(const cuda_environment::neighbours& others = {}) const
  {
    return environment_.findings(streams_->agents(), others);
  }

  /// Whether the backend is lost: every operation throws the first cause.
  [[nodiscard]] bool is_lost() const noexcept { return session_->is_lost(); }

  /// Calls of the runtime; of these, how many may have blocked the caller, and how many make memory, streams, events,
  /// graphs.
  [[nodiscard]] std::uint64_t calls() const noexcept { return session_->calls(); }
  [[nodiscard]] std::uint64_t synchronizations() const noexcept { return session_->synchronizations(); }
  [[nodiscard]] std::uint64_t allocations() const noexcept { return session_->allocations(); }
  /// How often the calling thread waited, or waited again, because a call failed.
  [[nodiscard]] std::uint64_t recoveries() const noexcept { return session_->recoveries(); }

 private:
  /// Prints to the standard error: a destructor cannot throw, and the memory's owner should find the cause.
  void name_what_stays() const noexcept
  {
    error_text text;
    text << "chunkmem: a backend was destroyed, and an operation on its streams does not end: ";
    memory_->tell_what_stays(text);
    text << ". End the process. " << session_->failure().what();
    std::fprintf(stderr, "%s\n", text.c_str());
  }

  [[nodiscard]] int require_device(int wanted)
  {
    int count = 0;
    session_->require("cudaGetDeviceCount", [&](const Api& api) { return api.count_devices(count); });
    if (count == 0) {
      throw device_error{
          error_text{} << "chunkmem: the runtime shows no device (" << remedy_of(cuda_fault::no_gpu) << ")",
          device_fault{.number = 100, .is_sticky = false, .call = session_->calls()}};
    }
    if (wanted >= 0 && wanted < count) return wanted;
    throw config_error{error_text{} << "chunkmem: no such device: the "
                                    << (wanted < 0 ? "number is negative, " : "number is ")
                                    << static_cast<std::uint64_t>(wanted < 0 ? 0 : wanted) << ", the runtime shows "
                                    << static_cast<std::uint64_t>(count) << " (devices are counted from 0)"};
  }

  [[nodiscard]] int priority_of(const std::optional<int>& wanted)
  {
    int least = 0;
    int greatest = 0;
    session_->require("cudaDeviceGetStreamPriorityRange",
                      [&](const Api& api) { return api.stream_priorities(least, greatest); });
    const int found = wanted.value_or(greatest);
    if (found >= greatest && found <= least) return found;
    throw config_error{error_text{} << "chunkmem: copy_priority is " << found << ", and streams of this device have "
                                    << greatest << ", the highest, to " << least << " (set none for the highest)"};
  }

  [[nodiscard]] bytes free_memory(bytes headroom)
  {
    std::size_t free = 0;
    std::size_t total = 0;
    session_->require("cudaMemGetInfo", [&](const Api& api) { return api.memory_info(free, total); });
    if (bytes{free} > headroom) return bytes{free} - headroom;
    throw config_error{error_text{} << "chunkmem: the headroom leaves nothing of the device: " << std::uint64_t{free}
                                    << " B are free, " << headroom.count()
                                    << " B are to be left (make the headroom smaller)"};
  }

  agent adopt_stream(const stream_type* foreign)
  {
    streams_->require_no_capture("a new agent");
    session_->require_alive();
    const cuda_current_device<Api> current{*session_, device_};
    return streams_->adopt(foreign);
  }

  std::shared_ptr<cuda_session<Api>> session_;                             // graphs may outlive the device
  std::shared_ptr<peer_groups> groups_ = std::make_shared<peer_groups>();  // and so may groups of ranks
  int device_;
  cuda_environment environment_ = cuda_environment::of_process();
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::uint64_t refused_releases_ = 0;
  bytes others_;
  std::optional<cuda_memory<Api>> memory_;
  std::optional<cuda_streams<Api>> streams_;
  std::optional<cuda_work<Api>> work_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
