# SPDX-License-Identifier: Apache-2.0
# The components of chunkmem that need another library, for this tree and for users of the installed package.
# Each function makes the target chunkmem::<component>, or sets <why_not> to the reason why there is none. Finding a
# file is not enough: a small program has to compile and link with the library first.
cmake_policy(VERSION 3.25)

# chunkmem_first_error(<out> <text>): the first line of <text> that names an error, without the folder of the program.
function(chunkmem_first_error out text)
  string(REGEX REPLACE "[;[]|]" " " text "${text}")
  string(REGEX REPLACE "[^ \n\"']*/TryCompile-[^/]*/" "" text "${text}")
  string(REGEX MATCHALL "[^\n]+" lines "${text}")
  set(errors "${lines}")
  list(FILTER errors INCLUDE REGEX "error:|undefined reference|cannot find|not recognized")
  list(APPEND errors ${lines} "without a word")
  list(GET errors 0 line)
  string(STRIP "${line}" line)
  string(SUBSTRING "${line}" 0 200 line)
  set(${out} "${line}" PARENT_SCOPE)
endfunction()

# chunkmem_stamp(<out> <includes> <libraries> <source>): a text that changes when a file of <libraries>, or a header
# that <source> names, changes or is removed.
function(chunkmem_stamp out includes libraries source)
  set(files "")
  foreach(library IN LISTS libraries)
    if(TARGET ${library})
      get_target_property(folders ${library} INTERFACE_INCLUDE_DIRECTORIES)
      list(APPEND includes ${folders})
      foreach(property IN ITEMS INTERFACE_LINK_LIBRARIES IMPORTED_LOCATION IMPORTED_LOCATION_RELEASE
              IMPORTED_LOCATION_RELWITHDEBINFO IMPORTED_LOCATION_NONE IMPORTED_LOCATION_NOCONFIG)
        get_target_property(value ${library} ${property})
        list(APPEND files ${value})
      endforeach()
    else()
      list(APPEND files "${library}")
    endif()
  endforeach()
  string(REGEX MATCHALL "#include <[^>]+>" headers "${source}")
  foreach(header IN LISTS headers)
    string(REGEX REPLACE ".*<(.*)>" "\\1" header "${header}")
    list(TRANSFORM includes APPEND "/${header}" OUTPUT_VARIABLE places)
    list(APPEND files ${places})
  endforeach()
  set(stamp "")
  foreach(file IN LISTS files)
    if(IS_ABSOLUTE "${file}" AND EXISTS "${file}")
      file(TIMESTAMP "${file}" time "%s" UTC)
      string(APPEND stamp " ${file} ${time}")
    endif()
  endforeach()
  set(${out} "${stamp}" PARENT_SCOPE)
endfunction()

# chunkmem_try(<why_not> <part> PROGRAM <source> [INCLUDES <folder...>] [LIBRARIES <target or file...>]
#              [DEFINITIONS <name=value...>] [LINK_OPTIONS <flag...>])
# Compiles and links <source>, a small program that calls a function of <part>. Success is cached until the compiler, an
# argument, a library or a header that <source> names changes. A failure is tried again by every configuration.
function(chunkmem_try why_not part)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "PROGRAM" "INCLUDES;LIBRARIES;DEFINITIONS;LINK_OPTIONS")
  set(question "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_EXE_LINKER_FLAGS}")
  string(APPEND question " ${ARGN}")
  set(${why_not} "" PARENT_SCOPE)
  foreach(library IN LISTS arg_LIBRARIES)
    if(TARGET ${library})
      get_target_property(folders ${library} INTERFACE_INCLUDE_DIRECTORIES)
      get_target_property(linked ${library} INTERFACE_LINK_LIBRARIES)
      string(APPEND question " ${folders} ${linked}")
      foreach(folder IN LISTS folders) # CMake itself would stop there
        if(IS_ABSOLUTE "${folder}" AND NOT EXISTS "${folder}")
          set(${why_not} "${library} names the folder ${folder}, which does not exist" PARENT_SCOPE)
          return()
        endif()
      endforeach()
    endif()
  endforeach()
  chunkmem_stamp(stamp "${arg_INCLUDES}" "${arg_LIBRARIES}" "${arg_PROGRAM}")
  string(SHA256 question "${question}${stamp}")
  if(question STREQUAL CHUNKMEM_TRIED_${part})
    return()
  endif()

  list(TRANSFORM arg_DEFINITIONS PREPEND "-D")
  set(CMAKE_CXX_FLAGS_DEBUG "") # nothing runs: the fastest compilation
  set(language "$ENV{LC_ALL}")
  set(ENV{LC_ALL} C)
  try_compile(works SOURCE_FROM_VAR "${part}.cpp" arg_PROGRAM NO_CACHE
              CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${arg_INCLUDES}"
              COMPILE_DEFINITIONS ${arg_DEFINITIONS} LINK_OPTIONS ${arg_LINK_OPTIONS}
              LINK_LIBRARIES ${arg_LIBRARIES} OUTPUT_VARIABLE said CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
  set(ENV{LC_ALL} "${language}")
  if(works)
    set(CHUNKMEM_TRIED_${part} "${question}" CACHE INTERNAL "")
  else()
    chunkmem_first_error(error "${said}")
    set(${why_not} "a small program with it does not build: ${error}" PARENT_SCOPE)
  endif()
endfunction()

# chunkmem_add_component(<component> [GLOBAL] [INCLUDES <folder...>] [LIBRARIES <target or file...>]):
# the target chunkmem::<component>.
function(chunkmem_add_component component)
  cmake_parse_arguments(PARSE_ARGV 1 arg "GLOBAL" "" "INCLUDES;LIBRARIES")
  if(NOT TARGET chunkmem::${component})
    add_library(chunkmem::${component} INTERFACE IMPORTED)
    target_link_libraries(chunkmem::${component} INTERFACE chunkmem::chunkmem ${arg_LIBRARIES})
    target_include_directories(chunkmem::${component} SYSTEM INTERFACE ${arg_INCLUDES})
    if(arg_GLOBAL)
      set_target_properties(chunkmem::${component} PROPERTIES IMPORTED_GLOBAL ON)
    endif()
  endif()
endfunction()

# chunkmem_find_cuda(<why_not> [GLOBAL]): the CUDA runtime, for .cpp and .cu files alike.
function(chunkmem_find_cuda why_not)
  # With 3.25 or more, CMake 3.25.1 sets a property of CUDA::nvToolsExt, also where a toolkit has no such target.
  set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  find_package(CUDAToolkit QUIET ${ARGN})
  if(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cudart)
    string(CONCAT missing "no CUDA toolkit with cuda_runtime_api.h and libcudart was found "
                         "(CUDAToolkit_ROOT may name its folder)")
  elseif(CUDAToolkit_VERSION VERSION_LESS 12)
    set(missing "CUDA 12 or newer is needed, found was ${CUDAToolkit_VERSION}")
  else()
    chunkmem_try(missing cuda LIBRARIES CUDA::cudart PROGRAM [[
#include <cuda_runtime_api.h>
int main() { int version = 0; return cudaRuntimeGetVersion(&version); }
]])
  endif()
  set(${why_not} "${missing}" PARENT_SCOPE)
  if(missing)
    return()
  endif()
  chunkmem_add_component(cuda ${ARGN} LIBRARIES CUDA::cudart)
  foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS)
    if(EXISTS "${folder}/driver_types.h")
      set(chunkmem_cuda_include "${folder}" PARENT_SCOPE)
    endif()
  endforeach()
  set(chunkmem_cuda_version "${CUDAToolkit_VERSION}" PARENT_SCOPE)
endfunction()

# chunkmem_find_nccl(<why_not> [GLOBAL]): NCCL, and the CUDA runtime that it needs.
# The cache entries CHUNKMEM_NCCL_INCLUDE and CHUNKMEM_NCCL_LIBRARY are the folder that holds nccl.h, and libnccl.
function(chunkmem_find_nccl why_not)
  chunkmem_find_cuda(missing ${ARGN})
  if(NOT missing)
    find_path(CHUNKMEM_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${chunkmem_cuda_include})
    find_library(CHUNKMEM_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ENV CUDA_PATH
                 PATH_SUFFIXES lib lib64)
    mark_as_advanced(CHUNKMEM_NCCL_INCLUDE CHUNKMEM_NCCL_LIBRARY)
    if(NOT CHUNKMEM_NCCL_INCLUDE OR NOT CHUNKMEM_NCCL_LIBRARY)
      set(missing "no nccl.h or no libnccl was found (CHUNKMEM_NCCL_INCLUDE and CHUNKMEM_NCCL_LIBRARY may name them)")
    else()
      chunkmem_try(missing nccl INCLUDES "${CHUNKMEM_NCCL_INCLUDE}"
                   LIBRARIES CUDA::cudart "${CHUNKMEM_NCCL_LIBRARY}" PROGRAM [[
#include <nccl.h>
int main() { int version = 0; return ncclGetVersion(&version); }
]])
    endif()
  endif()
  set(${why_not} "${missing}" PARENT_SCOPE)
  if(NOT missing)
    chunkmem_add_component(nccl ${ARGN} LIBRARIES chunkmem::cuda "${CHUNKMEM_NCCL_LIBRARY}"
                           INCLUDES "${CHUNKMEM_NCCL_INCLUDE}")
  endif()
endfunction()

# chunkmem_find_thrust(<why_not> [GLOBAL]): the headers of Thrust, those of a CUDA toolkit or a package without one.
# The cache entry CHUNKMEM_THRUST_INCLUDE is the folder that holds thrust/version.h.
function(chunkmem_find_thrust why_not)
  find_path(CHUNKMEM_THRUST_INCLUDE thrust/version.h
            HINTS ${CUDAToolkit_INCLUDE_DIRS} ${chunkmem_cuda_include} ENV CUDA_PATH ENV CUDA_HOME
            PATHS /usr/local/cuda PATH_SUFFIXES cccl include/cccl include)
  mark_as_advanced(CHUNKMEM_THRUST_INCLUDE)
  set(number "")
  if(CHUNKMEM_THRUST_INCLUDE AND EXISTS "${CHUNKMEM_THRUST_INCLUDE}/thrust/version.h")
    file(STRINGS "${CHUNKMEM_THRUST_INCLUDE}/thrust/version.h" number LIMIT_COUNT 1
         REGEX "define +THRUST_VERSION +[0-9]+")
    string(REGEX REPLACE ".*THRUST_VERSION +([0-9]+).*" "\\1" number "${number}")
  endif()
  if(NOT CHUNKMEM_THRUST_INCLUDE)
    set(missing "no thrust/version.h was found (CUDA toolkit, or Debian: apt-get install libthrust-dev)")
  elseif(NOT EXISTS "${CHUNKMEM_THRUST_INCLUDE}/thrust/version.h")
    set(missing "CHUNKMEM_THRUST_INCLUDE names ${CHUNKMEM_THRUST_INCLUDE}, where no thrust/version.h is")
  elseif(NOT number)
    set(missing "${CHUNKMEM_THRUST_INCLUDE}/thrust/version.h defines no THRUST_VERSION")
  else()
    chunkmem_try_thrust(missing cpp)
  endif()
  set(${why_not} "${missing}" PARENT_SCOPE)
  if(missing)
    return()
  endif()
  math(EXPR major "${number} / 100000")
  math(EXPR minor "${number} / 100 % 1000")
  math(EXPR patch "${number} % 100")
  set(chunkmem_thrust_version "${major}.${minor}.${patch}" PARENT_SCOPE)
  # nvcc has its own Thrust.
  chunkmem_add_component(thrust ${ARGN} INCLUDES "$<$<COMPILE_LANGUAGE:CXX>:${CHUNKMEM_THRUST_INCLUDE}>")
endfunction()

# chunkmem_try_thrust(<why_not> <system> [<arguments of chunkmem_try...>]): a loop on one of Thrust's systems.
function(chunkmem_try_thrust why_not system)
  string(TOUPPER "${system}" name)
  chunkmem_try(missing thrust_${system} INCLUDES "${CHUNKMEM_THRUST_INCLUDE}" ${ARGN}
               DEFINITIONS THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_${name} SYSTEM=${system} PROGRAM [[
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/memory.h>
#include <thrust/system/cpp/execution_policy.h>
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_OMP
#include <thrust/system/omp/execution_policy.h>
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_TBB
#include <thrust/system/tbb/execution_policy.h>
#endif
int main()
{
  int last = 0;
  thrust::for_each_n(thrust::SYSTEM::par, thrust::counting_iterator<int>{1}, 1, [&last](int number) { last = number; });
  return last - 1;
}
]])
  set(${why_not} "${missing}" PARENT_SCOPE)
endfunction()

# chunkmem_find_json(<why_not> [GLOBAL]): JSON for the headers that read files written by people.
# The cache entry CHUNKMEM_JSON_INCLUDE holds nlohmann/json.hpp; nothing is linked.
function(chunkmem_find_json why_not)
  find_path(CHUNKMEM_JSON_INCLUDE nlohmann/json.hpp)
  mark_as_advanced(CHUNKMEM_JSON_INCLUDE)
  if(NOT CHUNKMEM_JSON_INCLUDE)
    set(missing "no nlohmann/json.hpp was found (Debian: apt-get install nlohmann-json3-dev)")
  else()
    chunkmem_try(missing json INCLUDES "${CHUNKMEM_JSON_INCLUDE}" PROGRAM [[
#include <nlohmann/json.hpp>
int main() { return nlohmann::json{}.empty() ? 0 : 1; }
]])
  endif()
  set(${why_not} "${missing}" PARENT_SCOPE)
  if(NOT missing)
    chunkmem_add_component(json ${ARGN} INCLUDES "${CHUNKMEM_JSON_INCLUDE}")
  endif()
endfunction()

# chunkmem_find_checkpoint(<why_not> [GLOBAL]): JSON for the headers of safetensors, and checksums. POSIX is assumed.
# The cache entries CHUNKMEM_JSON_INCLUDE and CHUNKMEM_XXHASH_INCLUDE hold nlohmann/json.hpp and xxhash.h; nothing is
# linked.
function(chunkmem_find_checkpoint why_not)
  chunkmem_find_json(missing ${ARGN})
  if(NOT missing)
    find_path(CHUNKMEM_XXHASH_INCLUDE xxhash.h)
    mark_as_advanced(CHUNKMEM_XXHASH_INCLUDE)
    if(NOT CHUNKMEM_XXHASH_INCLUDE)
      set(missing "no xxhash.h was found (Debian: apt-get install libxxhash-dev)")
    else()
      chunkmem_try(missing xxhash INCLUDES "${CHUNKMEM_XXHASH_INCLUDE}" DEFINITIONS XXH_INLINE_ALL PROGRAM [[
#include <xxhash.h>
int main() { return XXH3_64bits("chunkmem", 8) == 0 ? 1 : 0; }
]])
      if(missing)
        string(PREPEND missing "xxHash in ${CHUNKMEM_XXHASH_INCLUDE}: ")
      endif()
    endif()
  endif()
  set(${why_not} "${missing}" PARENT_SCOPE)
  if(NOT missing)
    chunkmem_add_component(checkpoint ${ARGN} INCLUDES "${CHUNKMEM_JSON_INCLUDE}" "${CHUNKMEM_XXHASH_INCLUDE}")
  endif()
endfunction()

# chunkmem_find_mpi(<why_not> [GLOBAL]): any MPI library, without its bindings for C++.
function(chunkmem_find_mpi why_not)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX ${ARGN})
  if(NOT MPI_CXX_FOUND) # CMake makes the target MPI::MPI_CXX even where it finds no MPI
    set(missing "no MPI was found (Debian: apt-get install libopenmpi-dev openmpi-bin)")
  else()
    chunkmem_try(missing mpi LIBRARIES MPI::MPI_CXX PROGRAM [[
#include <mpi.h>
int main() { int has_begun = 0; return MPI_Initialized(&has_begun) == MPI_SUCCESS ? 0 : 1; }
]])
  endif()
  set(${why_not} "${missing}" PARENT_SCOPE)
  if(NOT missing)
    chunkmem_add_component(mpi ${ARGN} LIBRARIES MPI::MPI_CXX)
    set(chunkmem_mpi_launcher "${MPIEXEC_EXECUTABLE}" PARENT_SCOPE)
    set(chunkmem_mpi_include "${MPI_CXX_INCLUDE_DIRS}" PARENT_SCOPE)
  endif()
endfunction()

# chunkmem_find_dlpack(<why_not> [GLOBAL]): the header of DLPack, 0.6 or newer.
# The cache entry CHUNKMEM_DLPACK_INCLUDE is the folder that holds dlpack/dlpack.h; nothing is linked.
function(chunkmem_find_dlpack why_not)
  find_path(CHUNKMEM_DLPACK_INCLUDE dlpack/dlpack.h)
  mark_as_advanced(CHUNKMEM_DLPACK_INCLUDE)
  if(NOT CHUNKMEM_DLPACK_INCLUDE)
    string(CONCAT missing "no dlpack/dlpack.h was found (Debian: apt-get install libdlpack-dev, "
                         "or CHUNKMEM_DLPACK_INCLUDE may name its folder)")
  else()
    chunkmem_try(missing dlpack INCLUDES "${CHUNKMEM_DLPACK_INCLUDE}" PROGRAM [[
#include <dlpack/dlpack.h>
int main()
{
  DLManagedTensor tensor{};
  tensor.dl_tensor.device = DLDevice{kDLCPU, 0};
  return tensor.dl_tensor.ndim;
}
]])
  endif()
  set(${why_not} "${missing}" PARENT_SCOPE)
  if(NOT missing)
    chunkmem_add_component(dlpack ${ARGN} INCLUDES "${CHUNKMEM_DLPACK_INCLUDE}")
  endif()
endfunction()

# chunkmem_find_conformance(<why_not>): the laws of each family of policies, as <conformance/...> and <support/...>, and a
# main program for Catch2. CHUNKMEM_CATCH2_INCLUDE may name the folder of catch2/catch.hpp, version 2 in one header.
function(chunkmem_find_conformance why_not)
  set(${why_not} "" PARENT_SCOPE)
  if(TARGET chunkmem::conformance)
    return()
  endif()
  set(laws "${chunkmem_laws}")  # the config file knows where they are
  add_library(chunkmem_conformance_catch2 INTERFACE)
  if(CHUNKMEM_CATCH2_INCLUDE)
    target_include_directories(chunkmem_conformance_catch2 SYSTEM INTERFACE "${CHUNKMEM_CATCH2_INCLUDE}")
  else()
    find_package(Catch2 QUIET)
    if(NOT Catch2_FOUND)
      set(${why_not} "no Catch2 2.13 or 3 was found (Debian: apt-get install catch2)" PARENT_SCOPE)
      return()
    endif()
    target_link_libraries(chunkmem_conformance_catch2 INTERFACE Catch2::Catch2)
  endif()
  add_library(chunkmem_conformance STATIC EXCLUDE_FROM_ALL "${laws}/support/main.cpp")
  target_include_directories(chunkmem_conformance SYSTEM PUBLIC "${laws}")
  target_link_libraries(chunkmem_conformance PUBLIC chunkmem::chunkmem chunkmem_conformance_catch2)
  add_library(chunkmem::conformance ALIAS chunkmem_conformance)
endfunction()

# chunkmem_find_compiled(<why_not>): the default manager on host memory with Adam, SGD and their steps, compiled once, for
# programs that include <chunkmem/optimizer/compiled_step.hpp> or <chunkmem/manager/compiled_manager.hpp>. It has the
# flags of the project, so flags that change a class (-D_GLIBCXX_DEBUG) are to be set for the whole project.
function(chunkmem_find_compiled why_not)
  set(${why_not} "" PARENT_SCOPE)
  if(NOT TARGET chunkmem::compiled)
    add_library(chunkmem_compiled STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compiled_manager.cpp"
                                                          "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compiled_step.cpp")
    target_link_libraries(chunkmem_compiled PUBLIC chunkmem::chunkmem)
    add_library(chunkmem::compiled ALIAS chunkmem_compiled)
  endif()
endfunction()

# chunkmem_enable_cuda20(<target>): C++20 for its .cu files, also with a CMake that does not know the C++20 of a newer
# nvcc.
function(chunkmem_enable_cuda20 target)
  if("cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
    target_compile_features(${target} PRIVATE cuda_std_20)
  else()
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20>)
  endif()
endfunction()
