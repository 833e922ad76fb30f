// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/workload/files.hpp>
#include <chunkmem/workload/machine.hpp>
#include <chunkmem/workload/named_transformers.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

namespace bench {

/// Calls `visit(machine, model, shape, share of a rank)` for each machine's file and each model of PatrickStar whose
/// "machine model" contains the letters of `only`.
template <class Visit>
void for_each_machine(std::initializer_list<const char*> models, const std::string& only, Visit visit)
{
  namespace workload = chunkmem::workload;
  std::vector<std::filesystem::path> files;
  for (const auto& it : std::filesystem::directory_iterator{CHUNKMEM_MACHINES}) files.push_back(it.path());
  std::ranges::sort(files);
  for (const auto& file : files)
    for (const char* const model : models) {
      const std::string machine = file.stem().string();
      if ((machine + " " + model).find(only) == std::string::npos) continue;
      visit(machine, model, workload::shape_of("PatrickStar", model),
            workload::share_of_rank(workload::read_machine(file.string())));
    }
}

}  // namespace bench
