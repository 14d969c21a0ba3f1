#pragma once

#include <string>

namespace baton::cuda {

/// A shared library that is opened at run time, so that a program built with CUDA also starts without it. Once opened it
/// stays open: its functions are called until the process ends.
class Library {
 public:
  /// Looks where the system looks, then among the CUDA libraries that the program was built with.
  explicit Library(std::string name);

  bool found() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }

  /// Sets a pointer to a function of the library, to null if the library or the function is not there.
  template <typename Function>
  void look_up(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(address(symbol));
  }
  /// Sets a pointer to a function that must be there; a failure names what is missing.
  template <typename Function>
  void find(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(required_address(symbol));
  }

 private:
  void* address(const char* symbol) const;
  void* required_address(const char* symbol) const;

  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace baton::cuda
