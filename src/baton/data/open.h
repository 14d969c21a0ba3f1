#pragma once

#include <string>
#include <string_view>

#include "baton/data/source.h"

namespace baton::data {

/// True if the text of --data asks for random numbers, for which there is no source: `open` refuses it.
bool is_random(std::string_view text);

/// Opens what the text of --data names: a file or a folder, or two `.npy` files with a comma between them. A usage error names what
/// is wrong with it.
Parts open(const std::string& text, const OpenOptions& options = {});

}  // namespace baton::data
