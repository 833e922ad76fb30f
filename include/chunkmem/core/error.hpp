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

/// A control character, or one that a terminal does not show: ends of lines, marks of direction, characters of no
/// width.
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

/// Bytes of the first character of a text if a message may hold the character as it is; 0: its first byte has to be
/// escaped.
/// @pre   the text is not empty
[[nodiscard]] constexpr std::size_t printable_length(std::string_view text) noexcept
{
  const std::size_t length = detail::length_of_character(text);
  return length == 0 || detail::is_hidden(text.substr(0, length)) ? 0 : length;
}

/// A text of others as a message may hold it: in one line, and without a word to the terminal.
///
/// A byte of a control character, of a character that is not shown, or of what is no UTF-8 becomes `\xNN`; all else
/// stays, a backslash too. A text that is printable already stays as it is. error_text does this by itself: this is for
/// other texts.
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

/// One sentence built in place, so that an error can be thrown when the heap has nothing left.
///
///     throw usage_error{error_text{} << "chunkmem: a tensor of " << size << " B (give it elements)"};
///
/// Names come from files and users: what could end the line or speak to a terminal is written as `\xNN`, see
/// `printable`. Text past the capacity is cut, never allocated; a character or an escape is never cut in two: dots take
/// its place. Cost: no allocation, O(characters).
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

  /// A whole number in digits, with its sign. A `char` is a character and not its code, a `bool` is a word; bytes
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

  /// The fewest digits that tell it from its neighbours; "nan" and "inf" as they are.
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

/// Stable numbers for programs that cannot read sentences.
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

/// What every exception of this library also is.
///
/// A mix-in, not a `std::exception`: each class below derives from exactly one standard exception and from this, so
/// that `catch (const std::exception&)` and `catch (const chunkmem::error&)` both work and neither is ambiguous.
/// Text form: `chunkmem: what failed: numbers with units (what to change)`. Nothing here allocates, nor does a copy.
class error {
 public:
  [[nodiscard]] virtual const char* what() const noexcept = 0;
  [[nodiscard]] virtual error_code code() const noexcept = 0;

  /// Lines about the moment at which it was thrown, where somebody was asked for them (manager_options::error_details);
  /// else empty. They belong to the error, and outlive what they are about.
  [[nodiscard]] std::string_view details() const noexcept { return details_.what(); }
  /// For whoever lets an error pass and knows more. Details that are there already stay: they were closer to the cause.
  /// @throws std::bad_alloc   no room for the text; the error is as it was
  void add_details(const char* text)
  {
    if (details().empty()) details_ = std::runtime_error{text};
  }
  /// One line more, below the details that are there. @throws std::bad_alloc   as add_details
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

/// The caller asked for something that the rules forbid; nothing was changed.
///
///     try { (void)m.acquire(unwritten, access::read); } catch (const usage_error& wrong) { std::puts(wrong.what()); }
class usage_error : public detail::typed_error<std::logic_error, error_code::usage> {
 public:
  using typed_error::typed_error;
};

/// A setting that cannot work; found before anything ran.
///
///     try { m.seal(); } catch (const config_error& wrong) { std::puts(wrong.what()); }  // says what to change
class config_error : public detail::typed_error<std::invalid_argument, error_code::config> {
 public:
  using typed_error::typed_error;
};

/// What a device answered.
///
///     if (failed.fault().is_sticky) end_process();
struct device_fault {
  int number = 0;          ///< the runtime's own number of the error, such as a cudaError_t; 0: it has none
  bool is_sticky = false;  ///< the device does not recover: its process has to start again
  std::uint64_t call = 0;  ///< which call of the runtime it was, counted from 1 for each backend; 0: not counted
};

/// A device operation failed. The bytes it would have written are not valid; the source is intact.
///
///     try { step(); } catch (const device_error& failed) { if (failed.fault().is_sticky) end_process(); }
///
/// Where the fault is sticky, whoever met it refuses all further work with this first cause.
class device_error : public detail::typed_error<std::runtime_error, error_code::device> {
 public:
  using typed_error::typed_error;
  device_error(const error_text& sentence, const device_fault& fault) noexcept : typed_error{sentence}, fault_{fault} {}

  [[nodiscard]] const device_fault& fault() const noexcept { return fault_; }

 private:
  device_fault fault_;
};

/// What the system answered about a file.
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

/// Bytes that were written before are not what they were; nothing of them was used.
///
///     try { load(); } catch (const corrupt_data&) { load_older(); }
class corrupt_data : public detail::typed_error<std::runtime_error, error_code::corrupt> {
 public:
  using typed_error::typed_error;
};

/// A text or file does not have the form that it should have; nothing of it was used.
///
///     try { (void)profile_text::read(in); } catch (const format_error&) { record_again(); }
class format_error : public detail::typed_error<std::runtime_error, error_code::format> {
 public:
  using typed_error::typed_error;
};

/// Why ranks could not work together.
enum class comm_failure : std::uint8_t {
  peer_lost,  ///< a rank is gone, or left
  deadline,   ///< nobody answered in time
  mismatch,   ///< ranks did not ask for the same
  revoked,    ///< another rank met an error first, and said so
};

[[nodiscard]] constexpr std::string_view name_of(comm_failure failure) noexcept
{
  constexpr std::string_view names[] = {"a rank is lost", "the deadline passed", "ranks ask for different things",
                                        "another rank gave up"};
  return names[static_cast<std::size_t>(failure)];
}

/// What a communicator met.
///
///     if (failed.fault().rank != UINT32_MAX) std::cerr << "rank " << failed.fault().rank << " is at fault\n";
struct comm_fault {
  comm_failure failure = comm_failure::deadline;
  std::uint32_t rank = UINT32_MAX;  ///< who is at fault; UINT32_MAX: not known
  std::uint64_t sequence = 0;       ///< which operation of this communicator, counted from 1
  std::uint64_t waited = 0;         ///< for the others [ns]
  int number = 0;                   ///< the transport's own number of the error; 0: it has none
};

/// Ranks could not finish an operation together. What it would have written is not valid.
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

/// A promise of this library to itself was broken: a defect, please report it.
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

/// What a tier looked like when it could not give more. All numbers in bytes.
///
///     const memory_shortage& shortage = full.shortage();
///     std::cerr << "a capacity of " << shortage.needed << " B would do\n";
struct memory_shortage {
  tier where = tier::device;
  std::uint64_t requested = 0;  ///< contiguous bytes asked for
  std::uint64_t capacity = 0;   ///< what the tier may hold
  std::uint64_t pinned = 0;     ///< held by pins, leases, or as the only copy: cannot leave now
  std::uint64_t needed = 0;     ///< capacity that this moment fits in; the least one, unless free bytes lie scattered
  bool refused = false;         ///< the capacity has room, but the system gave no memory
  std::uint64_t step = 0;       ///< capacity that the rehearsed step fits in; 0: no step was rehearsed
  std::uint64_t taken = 0;      ///< of a backend, from which others allocated that much: another manager, or the caller
};

/// No room is left, after everything that may move was considered.
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
    // what the host cannot give up is mostly the only copy of something: no pin
    text << (it.where == tier::host
                 ? "(raise the capacity, drop tensors that are dead, or hold fewer pins and leases at once"
                 : "(raise the capacity, or hold fewer pins and leases at once");
    return text << (it.step > 0 ? ")" : "; rehearse finds what a whole step needs)");
  }

  memory_shortage shortage_;
};

/// Throws where a caller broke a precondition. The text says which, and what to change.
///
/// The place in the source is left out: it would be a line of this library, where the caller has nothing to mend.
/// @throws usage_error   `condition` is false; nothing was changed
constexpr void expects(bool condition, std::string_view what)
{
  if (condition) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: " << what};
}

}  // namespace chunkmem::inline v0
