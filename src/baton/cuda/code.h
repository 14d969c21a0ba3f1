#pragma once

#include <string>

/// The code of this build that a GPU runs (C++17, as nvcc compiles it).
namespace baton::cuda {

/// The compute capability, 10 · major + minor, for which the kernels that run on the selected GPU were compiled: 90 on an H200, 80
/// if the driver translates code for older GPUs. 0: there is no code for it.
int code_version();

/// The first architecture on which kernels wait for those before them on their own, and on which there are clusters of
/// blocks.
constexpr int first_programmatic = 90;

/// The capabilities that this build has code for, such as "8.0, 9.0".
std::string built_for();

}  // namespace baton::cuda
