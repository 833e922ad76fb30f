// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/own_process.hpp>

#include <array>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// A new file that is written from its begin to its end.
///
/// - `write` takes some of the bytes, at least one, and says how many.
/// - `sync` returns when the bytes survive a power cut.
/// - `close` reports errors that the system has not reported before.
///
/// All throw io_error. After an io_error the file is lost: do not write to it again.
template <class Writer>
concept file_writer = std::movable<Writer> && requires(Writer file, std::span<const std::byte> content) {
  {
    file.write(content)
  } -> std::same_as<std::size_t>;
  file.sync();
  file.close();
};

/// A file that is read at any offset. `read` gives some of the bytes from `offset` on, and none only at the end. Throws
/// io_error.
template <class Reader>
concept file_reader = std::movable<Reader> && requires(Reader file, std::uint64_t offset, std::span<std::byte> room) {
  {
    file.size()
  } -> std::same_as<std::uint64_t>;
  {
    file.read(offset, room)
  } -> std::same_as<std::size_t>;
};

/// A reader whose `read` several threads may call at once.
template <class Reader>
concept shared_reader = file_reader<Reader> && bool{Reader::reads_at_once};

/// One folder of files, without folders inside. A checkpoint asks nothing else of a file system.
///
/// - `create` fails where the name exists.
/// - `rename` replaces the file of the new name in one step.
/// - `sync` returns when all renames and removals survive a power cut.
/// - `remove` says whether the file is gone. All others throw io_error.
///
/// Names have no separators. Tests put in a folder of their own here, which fails wherever a file can fail.
template <class Folder>
concept file_folder =
    std::movable<Folder> && file_writer<typename Folder::writer> && file_reader<typename Folder::reader> &&
    requires(Folder folder, const Folder& known, std::string_view name) {
      {
        folder.create(name)
      } -> std::same_as<typename Folder::writer>;
      {
        known.open(name)
      } -> std::same_as<typename Folder::reader>;
      folder.rename(name, name);
      {
        folder.remove(name)
      } noexcept -> std::same_as<bool>;
      folder.sync();
      {
        known.names()
      } -> std::same_as<std::vector<std::string>>;
    };

/// A folder with one writer at a time. `lock` returns an object that locks out all other writers while it lives, in
/// this process and in others. It throws io_error immediately where another writer has the lock. A process that is
/// killed loses the lock; its children may still hold it.
template <class Folder>
concept lockable_folder = file_folder<Folder> && requires(Folder folder) {
  {
    folder.lock()
  } -> std::move_constructible;
};

/// A folder that a thread may read and clear while its caller goes on, also after the caller's object is gone.
/// `again()` is another object for the same folder. `identity()`, two numbers, identifies the folder. A save reads and
/// clears folders without these functions before it returns.
template <class Folder>
concept shareable_folder = file_folder<Folder> && requires(const Folder& known) {
  {
    known.again()
  } -> std::same_as<Folder>;
  {
    known.identity()
  } -> std::same_as<std::array<std::uint64_t, 2>>;
};

/// A folder that knows the owners of its files. A file is foreign if a user may change it who is not trusted in this
/// folder. `open_own` throws io_error for a foreign file, and a checkpoint ignores it. A missing file is not foreign.
template <class Folder>
concept guarded_folder = file_folder<Folder> && requires(const Folder& known, std::string_view name) {
  {
    known.is_foreign(name)
  } -> std::same_as<bool>;
  {
    known.open_own(name)
  } -> std::same_as<typename Folder::reader>;
};

namespace io {

namespace detail {
struct no_lock {};

/// An errno in words, and a change that helps.
struct io_reason {
  std::string_view what;
  std::string_view advice;
};
[[nodiscard]] inline io_reason reason_of(int number) noexcept
{
  switch (number) {
    case 0: return {"nothing was done", "is it a plain file, and as long as it was?"};
    case ENOSPC: return {"no room is left", "free some, or name a folder with more"};
    case EDQUOT: return {"the quota is used up", "free some of it, or name another folder"};
    case EFBIG: return {"it may not grow any further", "raise the limit of the size of files, or write smaller ones"};
    case EIO: return {"the device did not do it", "look at the device, or name a folder elsewhere"};
    case EROFS: return {"nothing can be changed there", "name a folder that can be written to"};
    case EACCES:
    case EPERM: return {"that is not allowed", "check whose it is, and its mode"};
    case ENOENT: return {"it is not there", "check the path"};
    case EEXIST: return {"it is there already", "remove it if it is nobody's"};
    case ENOTDIR: return {"that is no folder", "check the path"};
    case EISDIR: return {"that is a folder", "check the name"};
    case ELOOP: return {"it is a symbolic link, or behind too many", "name what it points at"};
    case ENAMETOOLONG: return {"its name is too long", "choose a shorter one"};
    case EMFILE:
    case ENFILE: return {"too many files are open", "close some, or raise the limit"};
    default: return {"the system did not do it", "look the number up"};
  }
}
}  // namespace detail

/// Locks a folder that has locks. Does nothing for other folders.
/// @throws io_error   another writer has the lock
template <file_folder Folder>
[[nodiscard]] auto lock_of(Folder& folder)
{
  if constexpr (lockable_folder<Folder>)
    return folder.lock();
  else
    return detail::no_lock{};
}

/// Whether a file is foreign. Never in a folder that does not know the owners.
template <file_folder Folder>
[[nodiscard]] bool is_foreign(const Folder& folder, std::string_view name)
{
  if constexpr (guarded_folder<Folder>)
    return folder.is_foreign(name);
  else
    return false;
}
/// Opens a file that is not foreign. @throws io_error   also for a foreign file
template <file_folder Folder>
[[nodiscard]] typename Folder::reader open_own(const Folder& folder, std::string_view name)
{
  if constexpr (guarded_folder<Folder>)
    return folder.open_own(name);
  else
    return folder.open(name);
}

/// The error of an operation on a file or a folder. Its sentence names a byte where bytes are read or written.
/// @param number   errno, or 0 where the system reported no error and did nothing
[[nodiscard]] inline io_error failed(std::string_view operation, std::string_view file, int number,
                                     std::uint64_t offset = 0)
{
  error_text text;
  const auto [what, advice] = detail::reason_of(number);
  text << "chunkmem: " << operation << " " << file.substr(0, 255) << " failed";
  if (offset > 0 || operation == "reading" || operation == "writing") text << " at byte " << offset;
  text << ": " << what;
  if (number != 0) text << ", errno " << static_cast<std::uint64_t>(number);
  text << " (" << advice << ")";
  return io_error{text, {number, offset}};
}

/// Writes all of `content`. @param name   for the error @throws io_error   also where the file takes nothing
template <file_writer Writer>
void write_all(Writer& file, std::span<const std::byte> content, std::string_view name = "a file")
{
  const std::size_t size = content.size();
  while (!content.empty()) {
    const std::size_t taken = file.write(content);
    if (taken == 0 || taken > content.size()) throw failed("writing", name, 0, size - content.size());
    content = content.subspan(taken);
  }
}

/// Fills the room with bytes. @param name   for the error @throws io_error   also where the file ends before
template <file_reader Reader>
void read_all(Reader& file, std::uint64_t offset, std::span<std::byte> room, std::string_view name = "a file")
{
  while (!room.empty()) {
    const std::size_t given = file.read(offset, room);
    if (given == 0 || given > room.size()) throw failed("reading", name, 0, offset);
    room = room.subspan(given);
    offset += given;
  }
}

/// A new file that gets its name when it is whole and synced. A file that is not finished is removed, if possible; a
/// forked child leaves it to its parent.
///
/// The name is durable after the next sync of the folder. The folder has to outlive the object.
///
/// Use:
///
///     atomic_file file{folder, "table.tmp"};
///     file.write(content);
///     file.end("table.csv");
///     folder.sync();              // now the name survives a power cut
template <file_folder Folder>
class atomic_file {
 public:
  /// @param temporary   its name until it is whole
  /// @throws io_error   also where such a file exists: it stays
  atomic_file(Folder& folder, std::string_view temporary)
      : folder_{folder}, temporary_{temporary}, file_{folder.create(temporary)}
  {
  }
  atomic_file(const atomic_file&) = delete;
  ~atomic_file()
  {
    file_.reset();
    if (!is_whole_ && made_in_.is_here()) (void)folder_.remove(temporary_);
  }

  /// @throws io_error   nothing more may be done with the file
  void write(std::span<const std::byte> content) { write_all(*file_, content, temporary_); }
  /// The bytes so far survive a power cut, under the temporary name. @throws io_error   nothing more may be done with
  /// the file
  void sync() { file_->sync(); }
  /// Gives the file its name. A file that had the name is replaced. Nothing is written afterwards.
  /// @throws io_error   a file that had the name is untouched
  void end(std::string_view name)
  {
    file_->sync();
    file_->close();
    folder_.rename(temporary_, name);
    is_whole_ = true;
  }

 private:
  Folder& folder_;
  std::string temporary_;
  std::optional<typename Folder::writer> file_;
  bool is_whole_ = false;
  own_process made_in_;
};

}  // namespace io

}  // namespace chunkmem::inline v0
