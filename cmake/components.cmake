# The components of chunkmem that need something else: for this tree and, installed beside the package, for its users.
# Each function makes the target chunkmem::<component>, or says in <why_not> what is missing.

# chunkmem_find_cuda(<why_not> [GLOBAL]): the CUDA runtime, for .cpp and .cu files alike.
function(chunkmem_find_cuda why_not)
  set(${why_not} "" PARENT_SCOPE)
  if(NOT TARGET chunkmem::cuda)
    find_package(CUDAToolkit QUIET ${ARGN})
    if(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cudart)
      set(${why_not} "no CUDA toolkit with cuda_runtime_api.h and libcudart was found (CUDAToolkit_ROOT may name its folder)"
          PARENT_SCOPE)
      return()
    elseif(CUDAToolkit_VERSION VERSION_LESS 12)
      set(${why_not} "CUDA 12 or newer is needed, found was ${CUDAToolkit_VERSION}" PARENT_SCOPE)
      return()
    endif()
    add_library(chunkmem::cuda INTERFACE IMPORTED ${ARGN})
    target_link_libraries(chunkmem::cuda INTERFACE chunkmem::chunkmem CUDA::cudart)
  endif()
  foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS)
    if(EXISTS "${folder}/driver_types.h")
      set(chunkmem_cuda_include "${folder}" PARENT_SCOPE)
    endif()
  endforeach()
  set(chunkmem_cuda_version "${CUDAToolkit_VERSION}" PARENT_SCOPE)
endfunction()

# chunkmem_find_thrust(<why_not> [GLOBAL]): the headers of Thrust, those of a CUDA toolkit or a package without one.
# The cache entry CHUNKMEM_THRUST_INCLUDE is the folder that holds thrust/version.h.
function(chunkmem_find_thrust why_not)
  set(${why_not} "" PARENT_SCOPE)
  find_path(CHUNKMEM_THRUST_INCLUDE thrust/version.h
            HINTS ${CUDAToolkit_INCLUDE_DIRS} ${chunkmem_cuda_include} ENV CUDA_PATH ENV CUDA_HOME
            PATHS /usr/local/cuda PATH_SUFFIXES cccl include/cccl include)
  mark_as_advanced(CHUNKMEM_THRUST_INCLUDE)
  if(NOT CHUNKMEM_THRUST_INCLUDE)
    set(${why_not} "no thrust/version.h was found (CUDA toolkit, or Debian: apt-get install libthrust-dev)" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS "${CHUNKMEM_THRUST_INCLUDE}/thrust/version.h" line REGEX "define +THRUST_VERSION +[0-9]+")
  string(REGEX REPLACE ".*THRUST_VERSION +([0-9]+).*" "\\1" number "${line}")
  math(EXPR major "${number} / 100000")
  math(EXPR minor "${number} / 100 % 1000")
  math(EXPR patch "${number} % 100")
  set(chunkmem_thrust_version "${major}.${minor}.${patch}" PARENT_SCOPE)
  if(NOT TARGET chunkmem::thrust)
    add_library(chunkmem::thrust INTERFACE IMPORTED ${ARGN})
    target_link_libraries(chunkmem::thrust INTERFACE chunkmem::chunkmem)
    # nvcc brings its own.
    target_include_directories(chunkmem::thrust SYSTEM INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${CHUNKMEM_THRUST_INCLUDE}>")
  endif()
endfunction()

# chunkmem_enable_cuda20(<target>): C++20 for its .cu files, also with a CMake that does not know that of a newer nvcc.
function(chunkmem_enable_cuda20 target)
  if("cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
    target_compile_features(${target} PRIVATE cuda_std_20)
  else()
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20>)
  endif()
endfunction()
