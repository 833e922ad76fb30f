// SPDX-License-Identifier: Apache-2.0
// A library that makes links between ranks of an MPI program slow. It is loaded before MPI:
//
//     mpirun -n 4 env LD_PRELOAD=libslow_link.so CHUNKMEM_SLOW_LINK="2,1,20000000;1,3,5000000" program
//
// Each entry is FROM,TO,BYTES_PER_SECOND, with ranks of MPI_COMM_WORLD. With TO -1 it is the port of FROM, which
// messages to all ranks without an entry of their own share. The bytes of all messages from FROM to TO are sent one
// after the other at this rate, whatever their communicator and thread. MPI_Isend returns at once: a thread of this
// library starts the message when its last byte would have left. So neither the program's work nor another link waits.
// Collective operations of MPI are not delayed. A type must not be freed before its message has ended.
#include <mpi.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

namespace {

using steady = std::chrono::steady_clock;

[[noreturn]] void give_up(const char* why)
{
  std::fprintf(stderr, "slow_link: %s\n", why);
  PMPI_Abort(MPI_COMM_WORLD, 3);
  std::abort();
}
void require(int answer)
{
  if (answer != MPI_SUCCESS) give_up("a call of MPI failed");
}

/// The arguments of a message.
struct message {
  const void* place;
  int count;
  MPI_Datatype type;
  int to;
  int tag;
  MPI_Comm group;
  bool is_synchronous;

  int start(MPI_Request* request) const
  {
    return (is_synchronous ? PMPI_Issend : PMPI_Isend)(place, count, type, to, tag, group, request);
  }
};

/// A slow way from this process to another one.
struct slow_link {
  double bytes_per_second = 0;
  steady::time_point free_at{};  ///< time when its last byte has left
  std::size_t held = 0;          ///< messages that have not started
};

/// A message that starts later, or that is in flight. This library completes its request.
struct held_message {
  message what;
  slow_link* link;
  steady::time_point start_at;
  MPI_Request request = MPI_REQUEST_NULL;     ///< the program's
  MPI_Request of_message = MPI_REQUEST_NULL;  ///< MPI's, once it has started
  bool has_started = false;
};

int tell_status(void*, MPI_Status* status)
{
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  return MPI_SUCCESS;
}
int free_nothing(void*)
{
  return MPI_SUCCESS;
}
int cancel_nothing(void*, int)
{
  return MPI_SUCCESS;
}

/// The slow links of this process and the messages on them.
class slow_links {
 public:
  slow_links()
  {
    int rank = 0;
    int level = MPI_THREAD_SINGLE;
    require(PMPI_Comm_rank(MPI_COMM_WORLD, &rank));
    require(PMPI_Query_thread(&level));
    if (const char* const text = std::getenv("CHUNKMEM_SLOW_LINK")) read(text, rank);
    if (!links_.empty() && level < MPI_THREAD_MULTIPLE)
      give_up("the program has to start MPI with MPI_THREAD_MULTIPLE");
  }

  /// @return   null: the link of the message is not slow
  [[nodiscard]] slow_link* link_of(int to, MPI_Comm group)
  {
    if (links_.empty() || to < 0) return nullptr;
    MPI_Group ours = MPI_GROUP_NULL;
    MPI_Group world = MPI_GROUP_NULL;
    int rank = MPI_UNDEFINED;
    require(PMPI_Comm_group(group, &ours));
    require(PMPI_Comm_group(MPI_COMM_WORLD, &world));
    require(PMPI_Group_translate_ranks(ours, 1, &to, world, &rank));
    PMPI_Group_free(&ours);
    PMPI_Group_free(&world);
    auto found = links_.find(rank);
    if (found == links_.end()) found = links_.find(-1);  // the port
    return found == links_.end() ? nullptr : &found->second;
  }

  int send(slow_link& link, const message& what, MPI_Request* request)
  {
    int size = 0;
    require(PMPI_Type_size(what.type, &size));
    const std::lock_guard lock{mutex_};
    const auto now = steady::now();
    const std::chrono::duration<double> taken{static_cast<double>(size) * what.count / link.bytes_per_second};
    link.free_at = std::max(now, link.free_at) + std::chrono::duration_cast<steady::duration>(taken);
    // A few bytes on a quiet link: a change of threads would take longer.
    if (link.held == 0 && link.free_at - now < std::chrono::microseconds{50}) return what.start(request);
    require(PMPI_Grequest_start(tell_status, free_nothing, cancel_nothing, nullptr, request));
    messages_.push_back({.what = what, .link = &link, .start_at = link.free_at, .request = *request});
    ++link.held;
    if (!thread_.joinable()) thread_ = std::thread{[this] { run(); }};
    changed_.notify_one();
    return MPI_SUCCESS;
  }

  void end()
  {
    {
      const std::lock_guard lock{mutex_};
      ends_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void read(std::string_view text, int rank)
  {
    while (!text.empty()) {
      const std::string_view entry = text.substr(0, text.find(';'));
      text.remove_prefix(std::min(entry.size() + 1, text.size()));
      int from = 0;
      int to = 0;
      double rate = 0;
      const char* at = entry.data();
      const char* const end = at + entry.size();
      const auto number = [&](auto& value, bool is_last) {
        const auto [next, failure] = std::from_chars(at, end, value);
        const bool is_good = failure == std::errc{} && (is_last ? next == end : next != end && *next == ',');
        at = next + (is_good && !is_last ? 1 : 0);
        return is_good;
      };
      if (!number(from, false) || !number(to, false) || !number(rate, true) || !(rate > 0))
        give_up("CHUNKMEM_SLOW_LINK is not FROM,TO,BYTES_PER_SECOND, and more of them with ';'");
      if (from == rank) links_[to].bytes_per_second = rate;
    }
  }

  void run()
  {
    std::unique_lock lock{mutex_};
    while (!ends_) {
      bool is_any_under_way = false;
      auto next = steady::time_point::max();
      for (auto it = messages_.begin(); it != messages_.end();) {
        if (move_on(*it)) {
          it = messages_.erase(it);
          continue;
        }
        is_any_under_way = is_any_under_way || it->has_started;
        if (!it->has_started) next = std::min(next, it->start_at);
        ++it;
      }
      if (is_any_under_way) next = std::min(next, steady::now() + std::chrono::microseconds{100});
      if (next == steady::time_point::max())
        changed_.wait(lock);
      else
        changed_.wait_until(lock, next);
    }
  }

  /// Starts the messages of a link in their order, which MPI promises to the receiver. @return   the message has ended
  static bool move_on(held_message& it)
  {
    if (!it.has_started) {
      if (steady::now() < it.start_at) return false;
      require(it.what.start(&it.of_message));
      it.has_started = true;
      --it.link->held;
    }
    int is_done = 0;
    require(PMPI_Test(&it.of_message, &is_done, MPI_STATUS_IGNORE));
    if (is_done != 0) require(PMPI_Grequest_complete(it.request));
    return is_done != 0;
  }

  std::map<int, slow_link> links_;  // by the rank at the other end
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<held_message> messages_;  // in the order of their calls
  bool ends_ = false;
  std::thread thread_;
};

/// Made by the first message, and never destroyed: a program may end without MPI_Finalize.
slow_links& all()
{
  static slow_links& made = *new slow_links;
  return made;
}

int send_later(const message& what, MPI_Request* request)
{
  slow_link* const link = all().link_of(what.to, what.group);
  return link == nullptr ? what.start(request) : all().send(*link, what, request);
}
int send_and_wait(const message& what)
{
  MPI_Request request = MPI_REQUEST_NULL;
  const int answer = send_later(what, &request);
  return answer == MPI_SUCCESS ? PMPI_Wait(&request, MPI_STATUS_IGNORE) : answer;
}

}  // namespace

extern "C" {

int MPI_Isend(const void* place, int count, MPI_Datatype type, int to, int tag, MPI_Comm group, MPI_Request* request)
{
  return send_later({place, count, type, to, tag, group, false}, request);
}
int MPI_Issend(const void* place, int count, MPI_Datatype type, int to, int tag, MPI_Comm group, MPI_Request* request)
{
  return send_later({place, count, type, to, tag, group, true}, request);
}
int MPI_Send(const void* place, int count, MPI_Datatype type, int to, int tag, MPI_Comm group)
{
  return send_and_wait({place, count, type, to, tag, group, false});
}
int MPI_Ssend(const void* place, int count, MPI_Datatype type, int to, int tag, MPI_Comm group)
{
  return send_and_wait({place, count, type, to, tag, group, true});
}
int MPI_Finalize()
{
  all().end();
  return PMPI_Finalize();
}

}  // extern "C"
