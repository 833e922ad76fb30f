// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>

/// Common parts of programs that need a GPU: whether there is one, and records of their figures.
namespace gpu {

/// The reason why nothing can run on a GPU here; empty where it can.
[[nodiscard]] inline std::string why_not()
{
  int devices = 0;
  const cudaError_t answer = cudaGetDeviceCount(&devices);
  if (answer == cudaSuccess && devices > 0) return {};
  const int number = answer == cudaSuccess ? cudaErrorNoDevice : answer;
  return std::string{"no GPU: "} + cudaGetErrorName(static_cast<cudaError_t>(number)) + " (" +
         std::string{chunkmem::backend::remedy_of(chunkmem::backend::fault_of_cuda_error(number))} + ")";
}

[[nodiscard]] inline std::string device_name()
{
  cudaDeviceProp properties{};
  return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? std::string{properties.name} : "unknown";
}

/// The number of the driver, such as 580.159.04, where the system tells it; else the CUDA version that it supports.
[[nodiscard]] inline std::string driver_version()
{
  std::ifstream told{"/proc/driver/nvidia/version"};
  for (std::string word; told >> word;)
    if (!word.empty() && word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos)
      return word;
  int number = 0;
  if (cudaDriverGetVersion(&number) != cudaSuccess) return "unknown";
  return "CUDA " + std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// Figures of one program, with the device and the driver they were measured on.
class figures {
 public:
  /// @param program   also the name of the file
  explicit figures(std::string program) : program_{std::move(program)} {}

  /// Notes a figure and prints it. @param relation   "<=", ">=" or "=="
  void add(const std::string& name, double value, const std::string& unit, const std::string& relation, double bound)
  {
    const bool is_met = relation == "==" ? value == bound : relation == ">=" ? value >= bound : value <= bound;
    is_met_ = is_met_ && is_met;
    std::cout << name << " is " << value << ' ' << unit << ", bound " << relation << ' ' << bound
              << (is_met ? "\n" : ": MISSED\n");
    text_ += std::string{text_.empty() ? "[" : ",\n "} + R"({"name": ")" + name + R"(", "value": )" +
             std::to_string(value) + R"(, "unit": ")" + unit + R"(", "relation": ")" + relation + R"(", "bound": )" +
             std::to_string(bound) + R"(, "device": ")" + device_name() + R"(", "driver": ")" + driver_version() +
             R"(", "command": "build/gpu/bin/)" + program_ + R"("})";
  }

  /// Writes them to the folder that CHUNKMEM_FIGURES names. @return   every bound was met
  [[nodiscard]] bool write() const
  {
    if (const char* const folder = std::getenv("CHUNKMEM_FIGURES"); folder != nullptr && !text_.empty())
      std::ofstream{std::string{folder} + "/" + program_ + ".json"} << text_ << "]\n";
    return is_met_;
  }

 private:
  std::string program_;
  std::string text_;
  bool is_met_ = true;
};

}  // namespace gpu
