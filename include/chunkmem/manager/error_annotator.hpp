// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <string>

namespace chunkmem::inline v0 {

/// Adds details to an error that passes by, where manager_options::error_details asks for them.
///
/// The error stays the one that was thrown. If writing its details fails, they stay empty. Cost: nothing until an error
/// is thrown; then one test, or what the writer costs.
/// @code
/// annotator.ask(&write_details, &engine);
/// try { ... } catch (error& failed) { annotator.annotate(failed); throw; }
/// @endcode
class error_annotator {
 public:
  using writer = std::string (*)(const void* about);

  /// From now on errors are told what `write(about)` says.
  void ask(writer write, const void* about) noexcept
  {
    write_ = write;
    about_ = about;
  }

  [[gnu::noinline, gnu::cold]] void annotate(error& failed) const noexcept
  {
    if (write_ == nullptr || !failed.details().empty()) return;
    try {
      failed.add_details(write_(about_).c_str());
    } catch (...) {  // no memory for a text about having no memory
    }
  }

 private:
  writer write_ = nullptr;
  const void* about_ = nullptr;
};

}  // namespace chunkmem::inline v0
