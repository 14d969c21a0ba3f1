#pragma once

#include <string>

namespace baton::app {

/// Two results of `train --json`, of its PyTorch twin or of one each, as a table: what was trained, times, memory and losses. A
/// usage error says which file is no such result.
std::string compare_results(const std::string& first, const std::string& second);

}  // namespace baton::app
