#pragma once

#include <map>
#include <string>

namespace baton::sheet {

/// A .tar.gz of these files, texts by path, all below one folder. Equal files give equal bytes.
std::string to_tarball(const std::string& folder, const std::map<std::string, std::string>& files);

}  // namespace baton::sheet
