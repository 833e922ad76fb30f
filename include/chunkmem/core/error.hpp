// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/tier.hpp>
#include <chunkmem/core/version.hpp>

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace detail {

/// A byte as the four characters \xNN.
struct escaped_byte {
  char text[4] = {'\\', 'x', '0', '0'};

  constexpr explicit escaped_byte(char letter) noexcept
  {
    constexpr char digits[] = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(letter);
    text[2] = digits[code >> 4U];
    text[3] = digits[code & 15U];
  }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text, sizeof text}; }
};

/// Bytes of the UTF-8 character at the begin of a text; 0: no character begins there.
[[nodiscard]] constexpr std::size_t length_of_character(std::string_view text) noexcept
{
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const std::size_t length = byte(0) < 0x80U   ? 1
                             : byte(0) < 0xc2U ? 0
                             : byte(0) < 0xe0U ? 2
                             : byte(0) < 0xf0U ? 3
                             : byte(0) < 0xf5U ? 4
                                               : 0;
  if (length > text.size()) return 0;
  for (std::size_t index = 1; index < length; ++index)
    if ((byte(index) & 0xc0U) != 0x80U) return 0;
  if (length == 3 && ((byte(0) == 0xe0U && byte(1) < 0xa0U) || (byte(0) == 0xedU && byte(1) > 0x9fU)))
    return 0;  // too long, or half of a pair
  if (length == 4 && ((byte(0) == 0xf0U && byte(1) < 0x90U) || (byte(0) == 0xf4U && byte(1) > 0x8fU)))
    return 0;  // too long, or beyond Unicode
  return length;
}

/// Whether a character is a control character, or one that a terminal does not show: ends of lines, marks of direction,
/// zero-width characters.
[[nodiscard]] constexpr bool is_hidden(std::string_view character) noexcept
{
  unsigned code = static_cast<unsigned char>(character[0]);
  if (character.size() > 1) code &= 0x7fU >> character.size();
  for (std::size_t index = 1; index < character.size(); ++index)
    code = code << 6U | (static_cast<unsigned char>(character[index]) & 0x3fU);
  constexpr unsigned ranges[][2] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},      {0x61c, 0x61c},
                                    {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f},
                                    {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  for (const auto& range : ranges)
    if (code >= range[0] && code <= range[1]) return true;
  return false;
}

}  // namespace detail

/// Bytes of the first character of a text if a message may contain it unchanged; 0: its first byte has to be escaped.
/// @pre   the text is not empty
[[nodiscard]] constexpr std::size_t printable_length(std::string_view text) noexcept
{
  const std::size_t length = detail::length_of_character(text);
  return length == 0 || detail::is_hidden(text.substr(0, length)) ? 0 : length;
}

/// An untrusted text made safe for a message: in one line, without control characters for the terminal.
///
/// A byte of a control character, of a character that is not shown, or of invalid UTF-8 becomes `\xNN`; all other bytes
/// stay, a backslash too. A printable text stays as it is. error_text does this by itself: this is for other texts.
[[nodiscard]] inline std::string printable(std::string_view text)
{
  std::string line;
  while (!text.empty()) {
    const std::size_t length = printable_length(text);
    if (length != 0)
      line += text.substr(0, length);
    else
      line += detail::escaped_byte{text.front()}.view();
    text.remove_prefix(length != 0 ? length : 1);
  }
  return line;
}

/// One sentence built in place, so that an error can be thrown when the heap is exhausted.
///
///     throw usage_error{error_text{} << "chunkmem: a tensor of " << size << " B (give it elements)"};
///
/// Names come from files and users: characters that could end the line or control a terminal are written as `\xNN`, see
/// `printable`. Text above the capacity is cut, never allocated; a character or an escape is never cut in two: dots
/// take its place. Cost: no allocation, O(characters).
class error_text {
 public:
  constexpr error_text() = default;

  error_text& operator<<(std::string_view words) noexcept
  {
    while (!words.empty()) {
      const std::size_t length = printable_length(words);
      append(length != 0 ? words.substr(0, length) : detail::escaped_byte{words.front()}.view());
      words.remove_prefix(length != 0 ? length : 1);
    }
    storage_[length_] = '\0';
    return *this;
  }

  /// An integer in digits, with its sign. A `char` is a character and not its code, a `bool` is a word; bytes
  /// (`std::uint8_t`) are numbers.
  template <std::integral Number>
  error_text& operator<<(Number number) noexcept
  {
    if constexpr (std::same_as<Number, bool>) {
      return *this << std::string_view{number ? "true" : "false"};
    } else if constexpr (std::same_as<Number, char>) {
      return *this << std::string_view{&number, 1};
    } else {
      char digits[20];
      const auto end = std::to_chars(digits, digits + sizeof digits, number);
      return *this << std::string_view{digits, static_cast<std::size_t>(end.ptr - digits)};
    }
  }

  /// The fewest digits that round-trip; "nan" and "inf" as they are.
  template <std::floating_point Number>
  error_text& operator<<(Number number) noexcept
  {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, number);
    return *this << std::string_view{digits, static_cast<std::size_t>(end.ptr - digits)};
  }

  [[nodiscard]] const char* c_str() const noexcept { return storage_; }
  [[nodiscard]] std::string_view view() const noexcept { return {storage_, length_}; }

 private:
  void append(std::string_view piece) noexcept
  {
    const bool fits = piece.size() <= capacity - length_;
    for (std::size_t index = 0; index < piece.size() && length_ < capacity; ++index)
      storage_[length_++] = fits ? piece[index] : '.';
  }

  static constexpr std::size_t capacity = 511;
  char storage_[capacity + 1] = {};
  std::size_t length_ = 0;
};

/// Stable numbers of the errors, for programs.
enum class error_code : std::uint16_t {
  out_of_memory = 1,
  usage = 2,
  size_overflow = 3,
  config = 4,
  device = 5,
  io = 6,
  internal = 7,
  format = 8,
  corrupt = 9,
  comm = 10,
};

/// The common base of every exception of this library.
///
/// A mix-in, not a `std::exception`: each class below derives from exactly one standard exception and from this, so
/// that `catch (const std::exception&)` and `catch (const chunkmem::error&)` both work and neither is ambiguous.
/// Text form: `chunkmem: what failed: numbers with units (what to change)`. Nothing here allocates, nor does a copy.
class error {
 public:
  [[nodiscard]] virtual const char* what() const noexcept = 0;
  [[nodiscard]] virtual error_code code() const noexcept = 0;

  /// Lines about the state when the error was thrown, if requested (manager_options::error_details); else empty. They
  /// belong to the error, and outlive the manager.
  [[nodiscard]] std::string_view details() const noexcept { return details_.what(); }
  /// Adds details while the error is passed on. Existing details stay, since they were closer to the cause.
  /// @throws std::bad_alloc   no room for the text; the error is unchanged
  void add_details(const char* text)
  {
    if (details().empty()) details_ = std::runtime_error{text};
  }
  /// Appends a line to the details. @throws std::bad_alloc   as add_details
  void append_details(std::string_view line)
  {
    std::string all{details()};
    if (!all.empty() && all.back() != '\n') all += '\n';
    details_ = std::runtime_error{all.append(line)};
  }

 protected:
  error() = default;
  error(const error&) = default;
  error& operator=(const error&) = default;
  virtual ~error() = default;

 private:
  std::runtime_error details_{""};  // for its text, which copies share: copying an error cannot throw
};

namespace detail {

template <class Standard>
struct quiet_standard : Standard {
  quiet_standard() : Standard{""} {}  // an empty standard text does not allocate; ours is kept inline
};
template <>
struct quiet_standard<std::bad_alloc> : std::bad_alloc {};

template <class Standard, error_code Code>
class typed_error : public quiet_standard<Standard>, public error {
 public:
  explicit typed_error(const error_text& sentence) noexcept : sentence_{sentence} {}
  explicit typed_error(std::string_view sentence) noexcept { sentence_ << "chunkmem: " << sentence; }

  [[nodiscard]] const char* what() const noexcept override { return sentence_.c_str(); }
  [[nodiscard]] error_code code() const noexcept override { return Code; }

 private:
  error_text sentence_;
};

}  // namespace detail

/// The caller broke a rule; nothing was changed.
///
///     try { (void)m.acquire(unwritten, access::read); } catch (const usage_error& wrong) { std::puts(wrong.what()); }
class usage_error : public detail::typed_error<std::logic_error, error_code::usage> {
 public:
  using typed_error::typed_error;
};

/// A setting that cannot work, found before anything ran.
///
///     try { m.seal(); } catch (const config_error& wrong) { std::puts(wrong.what()); }  // says what to change
class config_error : public detail::typed_error<std::invalid_argument, error_code::config> {
 public:
  using typed_error::typed_error;
};

/// The error of a device's runtime.
///
///     if (failed.fault().is_sticky) end_process();
struct device_fault {
  int number = 0;          ///< the runtime's own number of the error, such as a cudaError_t; 0: it has none
  bool is_sticky = false;  ///< the device does not recover: its process has to start again
  std::uint64_t call = 0;  ///< number of the runtime's call, from 1 for each backend; 0: not counted
};

/// A device operation failed. The bytes it would have written are unspecified; the source is intact.
///
///     try { step(); } catch (const device_error& failed) { if (failed.fault().is_sticky) end_process(); }
///
/// Where the fault is sticky, the backend refuses all further work with this first cause.
class device_error : public detail::typed_error<std::runtime_error, error_code::device> {
 public:
  using typed_error::typed_error;
  device_error(const error_text& sentence, const device_fault& fault) noexcept : typed_error{sentence}, fault_{fault} {}

  [[nodiscard]] const device_fault& fault() const noexcept { return fault_; }

 private:
  device_fault fault_;
};

/// The system's error for a file.
///
///     if (failed.fault().number == ENOSPC) make_room();
struct io_fault {
  int number = 0;            ///< errno; 0: no error, but no progress either
  std::uint64_t offset = 0;  ///< in the file, of a read or write
};

/// A file could not be read or written.
///
///     try { save(m, folder); } catch (const io_error& failed) { if (failed.fault().number == ENOSPC) make_room(); }
class io_error : public detail::typed_error<std::runtime_error, error_code::io> {
 public:
  using typed_error::typed_error;
  io_error(const error_text& sentence, const io_fault& fault) noexcept : typed_error{sentence}, fault_{fault} {}

  [[nodiscard]] const io_fault& fault() const noexcept { return fault_; }

 private:
  io_fault fault_;
};

/// Stored bytes differ from the bytes that were written; none of them was used.
///
///     try { load(); } catch (const corrupt_data&) { load_older(); }
class corrupt_data : public detail::typed_error<std::runtime_error, error_code::corrupt> {
 public:
  using typed_error::typed_error;
};

/// A text or file has the wrong form; none of it was used.
///
///     try { (void)profile_text::read(in); } catch (const format_error&) { record_again(); }
class format_error : public detail::typed_error<std::runtime_error, error_code::format> {
 public:
  using typed_error::typed_error;
};

/// Why ranks could not work together.
enum class comm_failure : std::uint8_t {
  peer_lost,  ///< a rank is gone, or left
  deadline,   ///< a rank did not answer in time
  mismatch,   ///< ranks made different calls
  revoked,    ///< another rank failed first, and ended the group
};

[[nodiscard]] constexpr std::string_view name_of(comm_failure failure) noexcept
{
  constexpr std::string_view names[] = {"a rank is lost", "the deadline passed", "ranks ask for different things",
                                        "another rank gave up"};
  return names[static_cast<std::size_t>(failure)];
}

/// The error of a communicator.
///
///     if (failed.fault().rank != UINT32_MAX) std::cerr << "rank " << failed.fault().rank << " is at fault\n";
struct comm_fault {
  comm_failure failure = comm_failure::deadline;
  std::uint32_t rank = UINT32_MAX;  ///< the rank at fault; UINT32_MAX: unknown
  std::uint64_t sequence = 0;       ///< number of the communicator's operation, from 1
  std::uint64_t waited = 0;         ///< for the others [ns]
  int number = 0;                   ///< the transport's own number of the error; 0: it has none
};

/// Ranks could not finish an operation together. The bytes it would have written are unspecified.
///
///     try { step(); } catch (const comm_error& failed) { std::puts(failed.what()), leave(); }
///
/// Every later call of the communicator throws this first cause.
class comm_error : public detail::typed_error<std::runtime_error, error_code::comm> {
 public:
  using typed_error::typed_error;
  comm_error(const error_text& sentence, const comm_fault& fault) noexcept : typed_error{sentence}, fault_{fault} {}

  [[nodiscard]] const comm_fault& fault() const noexcept { return fault_; }

 private:
  comm_fault fault_;
};

/// An internal invariant was broken: a bug of this library, please report it.
///
///     try { step(); } catch (const internal_error& defect) { std::puts(defect.what()); }
class internal_error : public detail::typed_error<std::logic_error, error_code::internal> {
 public:
  using typed_error::typed_error;
};

/// A size does not fit 64 bits.
///
///     try { (void)(1_GiB * UINT64_MAX); } catch (const size_overflow& wrong) { std::puts(wrong.what()); }
class size_overflow : public detail::typed_error<std::overflow_error, error_code::size_overflow> {
 public:
  size_overflow(std::string_view what, std::uint64_t left, std::uint64_t right) noexcept
      : typed_error{error_text{} << "chunkmem: " << what << " does not fit 64 bits: " << left << " and " << right
                                 << " (check the sizes given)"}
  {
  }
};

/// The state of a tier when an allocation failed. All numbers in bytes.
///
///     const memory_shortage& shortage = full.shortage();
///     std::cerr << "a capacity of " << shortage.needed << " B would do\n";
struct memory_shortage {
  tier where = tier::device;
  std::uint64_t requested = 0;  ///< contiguous bytes
  std::uint64_t capacity = 0;   ///< of the tier
  std::uint64_t pinned = 0;     ///< held by pins, leases, or as the only copy: cannot leave now
  std::uint64_t needed = 0;     ///< capacity that would be enough now; the least one, unless free bytes are scattered
  bool refused = false;         ///< the capacity has room, but the system gave no memory
  std::uint64_t step = 0;       ///< capacity that the rehearsed step fits in; 0: no step was rehearsed
  std::uint64_t taken = 0;      ///< allocated from the backend by others: another manager, or the caller
};

/// No room is left, even if everything that may move is moved.
///
///     try { step(); } catch (const out_of_memory& full) { std::cerr << full.shortage().needed << " bytes\n"; }
class out_of_memory : public detail::typed_error<std::bad_alloc, error_code::out_of_memory> {
 public:
  explicit out_of_memory(const memory_shortage& shortage) noexcept
      : typed_error{sentence(shortage)}, shortage_{shortage}
  {
  }

  [[nodiscard]] const memory_shortage& shortage() const noexcept { return shortage_; }

 private:
  static error_text sentence(const memory_shortage& it) noexcept
  {
    error_text text;
    if (it.refused)
      return text << "chunkmem: the system gave no memory for the " << name_of(it.where) << " tier: " << it.requested
                  << " B asked for, within a capacity of " << it.capacity
                  << " B (make the capacity smaller, or free memory)";
    if (it.taken > 0)
      return text << "chunkmem: out of memory on the " << name_of(it.where) << " tier: " << it.requested
                  << " B asked for, capacity " << it.capacity << " B, " << it.taken
                  << " B of it were allocated from this backend before (a manager takes all of a backend: give each "
                     "manager a backend of its own, or end the other one)";
    text << "chunkmem: out of memory on the " << name_of(it.where) << " tier: " << it.requested
         << " B asked for, capacity " << it.capacity << " B, " << it.pinned
         << " B cannot leave now, this moment fits in " << it.needed << " B";
    if (it.step > 0) text << ", the rehearsed step fits in " << it.step << " B";
    text << " ";
    if (it.pinned < it.capacity && it.capacity - it.pinned >= it.requested)
      return text
             << "(what cannot leave lies so that no free run is long enough: raise the capacity, or pin less at once)";
    // Bytes that cannot leave the host are mostly the only copy, not pinned.
    text << (it.where == tier::host
                 ? "(raise the capacity, drop tensors that are dead, or hold fewer pins and leases at once"
                 : "(raise the capacity, or hold fewer pins and leases at once");
    return text << (it.step > 0 ? ")" : "; rehearse finds what a whole step needs)");
  }

  memory_shortage shortage_;
};

/// Throws where a caller broke a precondition. The text names it, and a change that helps.
///
/// The place in the source is left out: it would be a line of this library, not of the caller.
/// @throws usage_error   `condition` is false; nothing was changed
constexpr void expects(bool condition, std::string_view what)
{
  if (condition) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: " << what};
}

}  // namespace chunkmem::inline v0
