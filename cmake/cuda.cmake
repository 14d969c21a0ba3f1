# The CUDA backend is built where the toolkit (nvcc) and NCCL's header are found; elsewhere a small file says that it is not there.
set(BATON_CUDA_LEAST 12.5)  # cudaGetDriverEntryPointByVersion came with it
option(BATON_CUDA "Build the CUDA backend where the toolkit is found" ON)

if(BATON_CUDA)
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
endif()
if(BATON_CUDA AND CMAKE_CUDA_COMPILER)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # For the GPU that is here. Where there is none, for Hopper, which the kernels for few rows need, and in a form that drivers
    # translate for what is newer, or not older than Ampere.
    if(EXISTS /dev/nvidiactl)
      set(CMAKE_CUDA_ARCHITECTURES native)
    else()
      set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90)
    endif()
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # linked by name below, so that nothing else is
  enable_language(CUDA)
  find_package(CUDAToolkit)
endif()

# Adds the backend, or its absence, to a layer.
function(baton_add_cuda target)
  set(folder ${PROJECT_SOURCE_DIR}/src/baton/exec/backend)
  find_path(BATON_CUBLAS_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(BATON_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  set(missing "")
  if(NOT BATON_CUDA)
    set(missing "BATON_CUDA is off")
  elseif(NOT CMAKE_CUDA_COMPILER)
    set(missing "the toolkit's nvcc is not found")
  elseif(NOT CUDAToolkit_FOUND)
    set(missing "the toolkit's libraries are not found")
  elseif(CUDAToolkit_VERSION VERSION_LESS BATON_CUDA_LEAST)
    set(missing "the toolkit is ${CUDAToolkit_VERSION}, but ${BATON_CUDA_LEAST} is needed")
  elseif(NOT BATON_CUBLAS_INCLUDE_DIR)
    set(missing "the toolkit's cublasLt.h is not found")
  elseif(NOT BATON_NCCL_INCLUDE_DIR)
    set(missing "nccl.h is not found")
  endif()
  if(missing)
    message(STATUS "CUDA: not built (${missing})")
    target_sources(${target} PRIVATE ${folder}/cuda_unavailable.cpp)
    set_source_files_properties(${folder}/cuda_unavailable.cpp PROPERTIES COMPILE_DEFINITIONS BATON_CUDA_MISSING="${missing}")
    return()
  endif()
  message(STATUS "CUDA: ${CUDAToolkit_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
  # Apart, so that programs that link to the layer need no CUDA compiler.
  add_library(baton_cuda_kernels OBJECT ${folder}/cuda/code.cu ${folder}/cuda/elementwise.cu ${folder}/cuda/exchange.cu ${folder}/cuda/few_rows.cu
              ${folder}/cuda/update.cu
              ${folder}/cuda/few_rows_backward.cu)
  target_include_directories(baton_cuda_kernels PRIVATE ${PROJECT_BINARY_DIR}/layers/exec ${PROJECT_BINARY_DIR}/layers/base)
  set_target_properties(baton_cuda_kernels PROPERTIES CUDA_STANDARD 17)  # CMake 3.25 does not know that nvcc has 20
  target_compile_options(baton_cuda_kernels PRIVATE -Xcompiler=-Wall,-Wextra
                         $<$<BOOL:${BATON_WERROR}>:-Werror=all-warnings>)
  list(TRANSFORM ARGN PREPEND ${folder}/cuda/)
  target_sources(${target} PRIVATE ${ARGN} $<TARGET_OBJECTS:baton_cuda_kernels>)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${BATON_CUBLAS_INCLUDE_DIR} ${BATON_NCCL_INCLUDE_DIR})
  target_compile_definitions(${target} PRIVATE BATON_CUDA_LIBRARIES="${CUDAToolkit_LIBRARY_DIR}")
  target_link_libraries(${target} PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
endfunction()
