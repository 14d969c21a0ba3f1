#include "baton/cuda/library.h"

#include <dlfcn.h>

#include <utility>

#include "baton/base/error.h"

namespace baton::cuda {

Library::Library(std::string name) : name_(std::move(name)), handle_(dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    handle_ = dlopen((BATON_CUDA_LIBRARIES "/" + name_).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

void* Library::address(const char* symbol) const { return handle_ == nullptr ? nullptr : dlsym(handle_, symbol); }

void* Library::required_address(const char* symbol) const {
  void* found = address(symbol);
  if (found == nullptr) {
    throw failure("{} lacks {}", name_, symbol);
  }
  return found;
}

}  // namespace baton::cuda
