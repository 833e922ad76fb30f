// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace support {

/// The launcher and its ranks; the ranks end with the launcher, since each asked the system for that.
class launched_job {
 public:
  /// Files that a killed launcher leaves are in `folder`, and its standard error is in `folder`/errors.
  launched_job(const std::vector<std::string>& words, const std::string& folder)
  {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    process_ = ::fork();
    if (process_ != 0) return;
    for (const char* const place : {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_orte_tmpdir_base"})
      ::setenv(place, folder.c_str(), 1);
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int stream : {0, 1}) ::dup2(nothing, stream);
    ::dup2(::open((folder + "/errors").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  launched_job(const launched_job&) = delete;
  launched_job& operator=(const launched_job&) = delete;
  ~launched_job()
  {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  /// Whether the launcher itself has ended: nothing more will happen.
  [[nodiscard]] bool has_ended()
  {
    if (process_ > 0 && ::waitpid(process_, nullptr, WNOHANG) == process_) process_ = -1;
    return process_ <= 0;
  }

 private:
  pid_t process_ = -1;
};

[[nodiscard]] inline std::vector<std::string> split(const std::string& text)
{
  std::istringstream in{text};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace support
