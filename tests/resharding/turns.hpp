// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/io/file_folder.hpp>

#include <support/oracles/dice.hpp>
#include <support/simulated_folder.hpp>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace resharding {

/// Who of several ranks does the next operation on files: drawn once all of them want one, wait for each other, or have
/// ended. So an order is a matter of the seed alone, and ranks that talk never wait for one that waits for its turn.
class turns {
 public:
  static constexpr std::uint64_t first_rank_first = 1;
  static constexpr std::uint64_t last_rank_first = 2;

  /// @param order   first_rank_first, last_rank_first, or a seed
  turns(std::uint32_t ranks, std::uint64_t order) : who_(ranks, state::runs), order_{order}, chance_{order} {}

  /// This rank begins to wait for all others; the last one lets all go on.
  void meets(std::uint32_t rank)
  {
    const std::lock_guard guard{mutex_};
    who_[rank] = state::meets;
    for (const state it : who_)
      if (it != state::meets) return draw();
    for (state& it : who_) it = state::runs;
  }
  void ends(std::uint32_t rank)
  {
    const std::lock_guard guard{mutex_};
    who_[rank] = state::ended;
    draw();
  }
  /// Runs `work()` in this rank's turn.
  template <class Work>
  std::invoke_result_t<Work&> take(std::uint32_t rank, Work work)
  {
    std::unique_lock lock{mutex_};
    who_[rank] = state::wants;
    draw();
    changed_.wait(lock, [&] { return who_[rank] == state::has; });
    const running back{who_[rank]};
    return work();
  }

 private:
  enum class state : std::uint8_t { runs, wants, has, meets, ended };
  struct running {
    state& now;
    ~running() { now = state::runs; }
  };
  /// @pre locked
  void draw()
  {
    std::vector<std::size_t> wanting;
    for (std::size_t index = 0; index < who_.size(); ++index) {
      if (who_[index] == state::runs || who_[index] == state::has) return;
      if (who_[index] == state::wants) wanting.push_back(index);
    }
    if (wanting.empty()) return;
    const std::size_t next = order_ == first_rank_first  ? wanting.front()
                             : order_ == last_rank_first ? wanting.back()
                                                         : chance_.pick(wanting);
    who_[next] = state::has;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<state> who_;
  std::uint64_t order_;
  support::dice chance_;
};

/// A wrong protocol, or a faulty folder, of one rank.
struct rank_lies {
  bool file_syncs = false;
  bool folder_syncs = false;
  std::uint32_t good_syncs = UINT32_MAX;  ///< of the folder; those after them fail, while files can be removed
};

/// One rank's view of a folder that all of them write into.
class rank_folder {
 public:
  class writer {
   public:
    writer(rank_folder& of, support::simulated_folder::writer file) : of_{&of}, file_{std::move(file)} {}
    [[nodiscard]] std::size_t write(std::span<const std::byte> content)
    {
      return of_->turn([&] { return file_.write(content); });
    }
    void sync()
    {
      if (!of_->lies_.file_syncs) of_->turn([&] { file_.sync(); });
    }
    void close()
    {
      of_->turn([&] { file_.close(); });
    }

   private:
    rank_folder* of_;
    support::simulated_folder::writer file_;
  };
  class reader {
   public:
    reader(const rank_folder& of, support::simulated_folder::reader file) : of_{&of}, file_{std::move(file)} {}
    [[nodiscard]] std::uint64_t size()
    {
      return of_->turn([&] { return file_.size(); });
    }
    [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<std::byte> room)
    {
      return of_->turn([&] { return file_.read(offset, room); });
    }

   private:
    const rank_folder* of_;
    support::simulated_folder::reader file_;
  };

  rank_folder(support::simulated_folder folder, turns& order, std::uint32_t rank, rank_lies lies = {})
      : folder_{std::move(folder)}, order_{&order}, rank_{rank}, lies_{lies}
  {
  }

  [[nodiscard]] writer create(std::string_view name)
  {
    return turn([&] { return writer{*this, folder_.create(name)}; });
  }
  [[nodiscard]] reader open(std::string_view name) const
  {
    return turn([&] { return reader{*this, folder_.open(name)}; });
  }
  void rename(std::string_view from, std::string_view to)
  {
    turn([&] { folder_.rename(from, to); });
  }
  bool remove(std::string_view name) noexcept
  {
    return turn([&] { return folder_.remove(name); });
  }
  void sync()
  {
    if (syncs_++ >= lies_.good_syncs) throw chunkmem::io::failed("syncing", "the folder", EIO);
    if (!lies_.folder_syncs) turn([&] { folder_.sync(); });
  }
  [[nodiscard]] support::simulated_folder::holder lock()
  {
    return turn([&] { return folder_.lock(); });
  }
  [[nodiscard]] std::vector<std::string> names() const
  {
    return turn([&] { return folder_.names(); });
  }

 private:
  template <class Work>
  std::invoke_result_t<Work&> turn(Work work) const
  {
    return order_->take(rank_, work);
  }

  mutable support::simulated_folder folder_;
  turns* order_;
  std::uint32_t rank_;
  rank_lies lies_;
  std::uint32_t syncs_ = 0;
};

static_assert(chunkmem::lockable_folder<rank_folder>);

}  // namespace resharding
