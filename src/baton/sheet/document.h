#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "baton/sheet/picture.h"

/// The handed-in document, as a value that knows nothing of files or formats. In its texts `…` marks code.
namespace baton::sheet {

struct Paragraph {
  std::string text;
  bool small = false;  // what was trained, where and by which command
};

/// A question of the sheet with its answer; `beside` is a second answer, which says itself where it comes from.
struct Asked {
  std::string label;  // Q3
  std::string question;
  std::string answer;
  std::string beside = {};
};

struct DataTable {
  std::string caption;
  std::vector<std::string> heading;
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> text;  // by column: words, and no numbers
};

/// Tables next to each other.
struct Grids {
  std::vector<DataTable> row;
};

struct Pictures {
  std::vector<Picture> row;  // next to each other
};

struct Listing {
  std::string caption;
  std::string code;
};

using Block = std::variant<Paragraph, Asked, Grids, Pictures, Listing>;

struct Section {
  std::string heading;
  std::vector<Block> blocks;
};

struct Document {
  std::string title;
  std::string name;  // the student's name; may be empty
  std::string date;
  std::vector<Paragraph> notes;  // before the first section
  std::vector<Section> sections;
};

/// The number of words of a text.
std::size_t words_in(std::string_view text);

/// Pictures go into files next to it: `files` gets their texts by name.
std::string to_markdown(const Document& document, std::map<std::string, std::string>& files);
/// Compiles with pdflatex and the packages that every LaTeX has.
std::string to_latex(const Document& document);
/// One page that needs nothing else, laid out for A4 paper with page numbers. With `pages`, contents name each section and the page
/// that it begins on; if there are none, there are no contents.
std::string to_html(const Document& document, const std::vector<int>& pages = {});

/// The page of a PDF that each section begins on, read from a print of `to_html` by Chromium; empty if it does not say.
std::vector<int> pages_of_sections(std::string_view pdf, std::size_t sections);
/// The number of pages of a PDF; 0 if it does not say.
int page_count(std::string_view pdf);

}  // namespace baton::sheet
