#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "baton/exec/backend.h"

namespace baton::devices {

/// A backend: its name and a short description.
struct BackendKind {
  std::string name;
  std::string summary;
  bool runs_on_gpus = false;                             // false: it runs on cores
  std::function<std::unique_ptr<exec::Backend>()> make;  // throws a usage error if it does not run here
  std::function<bool()> runs_here;
};

/// Every backend, in the order in which help shows them.
const std::vector<BackendKind>& backends();
/// The names of the backends that run here.
const std::vector<std::string>& backend_names();
/// Finds one by its name; a usage error lists all names.
const BackendKind& backend_by_name(std::string_view name);
/// Makes one by its name; a usage error also says why it does not run.
std::unique_ptr<exec::Backend> make_backend(std::string_view name);

}  // namespace baton::devices
