# The core of the compiled form, as a static library that is built where a target links it:
#     target_link_libraries(trainer PRIVATE shardkit::compiled)
# Without contraction and a project's -ffast-math, so that its bits are the same for all flags.
# SHARDKIT_COMPILED_PRECISIONS, set before, are the precisions that it has, a shardkit::Precisions<...>. Headers joined
# by + are one source.
function(shardkit_add_compiled name suffix)
  set(sources)
  foreach(part ${ARGN})
    set(source "${CMAKE_CURRENT_BINARY_DIR}/shardkit/${part}.${suffix}")
    string(REPLACE "+" ".hpp>\n#include <shardkit/" headers "${part}")
    file(GENERATE OUTPUT "${source}" CONTENT "#include <shardkit/${headers}.hpp>\n")
    list(APPEND sources "${source}")
  endforeach()
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${sources})
  if(SHARDKIT_COMPILED_PRECISIONS)
    target_compile_definitions(${name} PRIVATE "SHARDKIT_COMPILED_PRECISIONS=${SHARDKIT_COMPILED_PRECISIONS}")
  endif()
  target_compile_definitions(${name} INTERFACE SHARDKIT_COMPILED)
endfunction()

if(NOT TARGET shardkit_compiled)
  shardkit_add_compiled(shardkit_compiled cpp
    compiled compiled_checkpoint compiled_states compiled_parts compiled_schedule compiled_reshard)
  target_compile_options(shardkit_compiled PRIVATE -fno-fast-math -ffp-contract=off)
  target_link_libraries(shardkit_compiled PUBLIC shardkit::shardkit)
  add_library(shardkit::compiled ALIAS shardkit_compiled)
endif()

# The same over MPI, where the project has found one: find_package(MPI) before find_package(shardkit).
if(TARGET MPI::MPI_CXX AND NOT TARGET shardkit_compiled_mpi)
  shardkit_add_compiled(shardkit_compiled_mpi cpp compiled_mpi)
  target_compile_options(shardkit_compiled_mpi PRIVATE -fno-fast-math -ffp-contract=off)
  target_link_libraries(shardkit_compiled_mpi PUBLIC shardkit_compiled MPI::MPI_CXX)
  add_library(shardkit::compiled_mpi ALIAS shardkit_compiled_mpi)
endif()

# NCCL behind it, and the core's kernels, which nvcc compiles, where the project has the language CUDA and NCCL is found.
# One source, so that whoever calls the engine also links what says before main what launches the kernels.
if(CMAKE_CUDA_COMPILER AND NOT TARGET shardkit_compiled_nccl)
  find_package(CUDAToolkit QUIET)
  find_path(SHARDKIT_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(SHARDKIT_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS "${CUDAToolkit_LIBRARY_DIR}")
  if(CUDAToolkit_FOUND AND SHARDKIT_NCCL_INCLUDE AND SHARDKIT_NCCL_LIBRARY)
    shardkit_add_compiled(shardkit_compiled_nccl cu compiled_nccl+compiled_nccl_states)
    target_compile_options(shardkit_compiled_nccl PRIVATE -Xcompiler=-fno-fast-math,-ffp-contract=off)
    target_include_directories(shardkit_compiled_nccl PRIVATE "${SHARDKIT_NCCL_INCLUDE}")
    target_link_libraries(shardkit_compiled_nccl
      PUBLIC shardkit_compiled
      INTERFACE CUDA::cudart_static "${SHARDKIT_NCCL_LIBRARY}")
    add_library(shardkit::compiled_nccl ALIAS shardkit_compiled_nccl)
  endif()
endif()
