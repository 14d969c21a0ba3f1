#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace baton::sheet {

/// The files of twins/ as they were when this was built: name and text.
std::span<const std::pair<std::string_view, std::string_view>> twin_texts();
/// The programs that hand-ins get, from the folder handin/: path below it and text.
std::span<const std::pair<std::string_view, std::string_view>> program_texts();

}  // namespace baton::sheet
