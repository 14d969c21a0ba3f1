#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "baton/data/images.h"

namespace baton::data {

/// True if this program was built with the libraries for them: without one, its files are refused in a sentence.
bool reads_png();
bool reads_jpeg();

/// A PNG or JPEG file that was read into memory, as gray or red, green and blue; transparency is left out. Of
/// samples of 16 bits the upper 8 are taken, and a gamma curve of the file is ignored. `name` names it in the
/// usage error for what is damaged, of another kind, or larger than its bytes can say.
Picture decode_picture(std::span<const std::byte> bytes, const std::string& name);

}  // namespace baton::data
