# Turns CUDA on where a toolkit is found: sets G2_HAS_CUDA, imports CUDA::*, defines g2_cuda_flags.
set(G2_HAS_CUDA OFF)
if(G2_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(G2_NVCC nvcc PATHS /usr/local/cuda/bin)
    if(G2_NVCC)
      set(CMAKE_CUDA_COMPILER ${G2_NVCC})
    endif()
  endif()
  # Portable kernels: A100 and H100 machine code, and PTX for what comes after.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 12.3 REQUIRED)
    set(G2_HAS_CUDA ON)
  else()
    message(STATUS "No CUDA toolkit found: building the CPU backend only")
  endif()
endif()

if(G2_HAS_CUDA)
  # Flags of every .cu file. -Xptxas -v is the report that ptxas_guard.sh reads.
  add_library(g2_cuda_flags INTERFACE)
  target_compile_options(g2_cuda_flags INTERFACE  # CMake 3.25 has no cuda_std_20 for nvcc 13
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --Werror=all-warnings -Xptxas=-v>)
  # Compiler launcher of kernel targets, before ccache where that is found.
  set(G2_PTXAS_GUARD ${PROJECT_SOURCE_DIR}/scripts/cmake/ptxas_guard.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})
endif()
