#pragma once

#include <map>
#include <string>
#include <vector>

#include "baton/sheet/compose.h"
#include "baton/sheet/document.h"
#include "baton/sheet/sheets.h"

namespace baton::sheet {

/// Texts by path below the folder that is handed in.
using Files = std::map<std::string, std::string>;

/// The contents of code/: the C++ programs of the tasks with their CMakeLists.txt, and the PyTorch scripts, which have the
/// sizes of the rows that the document shows; that of matrix powers has the sheet's own.
Files code_of(const Sheet& sheet, const std::vector<SheetTask>& tasks, const Evidence& evidence);

/// Everything that is handed in except the PDF: the document as Markdown, LaTeX and HTML, its pictures, the code, and the tables as
/// CSV.
Files files_of(const Sheet& sheet, const std::vector<SheetTask>& tasks, const Document& document, const Evidence& evidence);

}  // namespace baton::sheet
